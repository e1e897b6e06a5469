"""Pictures of the ranks of jobs: what they draw, and that their texts have room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars
import pytest

import pathloom as pl
from geometry import troubles
from pathloom.experiments.results.result import ResultData
from pathloom.report.plots import plots
from pathloom.report.rank_plots import MOST_ROWS, first_run, ranks_of, step_waits, transfers_of, union

STAR = "leaf-spine:spines=1,leaves=1,hosts=4,rate=10Gbps,delay=1us,buffer=1000"
NAMES = {"rank-timeline", "rank-matrix", "rank-steps"}


def run(traffic: str, fabric: str = STAR, duration: str = "1s", series: str | None = None) -> ResultData:
    """A comparison of one run under ECMP."""
    result: ResultData = pl.compare(
        fabric=fabric,
        traffic=traffic,
        schemes=["ecmp"],
        duration=duration,
        runs=1,
        transport="dctcp",
        until="finished",
        series=series,
    )
    return result


def trace(folder: Path) -> str:
    """A job that computes 1 ms, reduces 8 MB over 4 ranks, computes 1 ms, reduces 4 KB, and computes 1 ms."""
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4"
    layer = "layer -1 1000000 ALLREDUCE 8000000 1000000 ALLREDUCE 4000 1000000 NONE 0 0"
    file = folder / "job.txt"
    file.write_text(f"{head} checkpoints: 0 checkpoint_initiates: 0\n1\n{layer}\n", encoding="utf-8")
    return f"simai:file={file}"


def test_intervals_join() -> None:
    assert union([]).shape == (0, 2)
    assert union([(1.0, 1.0)]).shape == (0, 2)
    joined = union(np.array([[3.0, 4.0], [0.0, 5.0], [5.0, 6.0], [8.0, 9.0]]))
    assert joined.tolist() == [[0.0, 6.0], [8.0, 9.0]]


def test_ranks_of_a_trace_compute_then_transfer(tmp_path: Path) -> None:
    result = run(trace(tmp_path))
    outcome = result.outcomes[0].outcome
    [job] = outcome["jobs"]
    transfers = transfers_of(outcome, job)
    assert transfers.height == result.flows.height
    for rank in ranks_of(job, transfers, result.fabric.names):
        # The file has two computations before transfers, of 1 ms each.
        assert rank.computes[0].tolist() == pytest.approx([0.0, 1e-3], abs=1e-5)
        assert rank.computes[-1, 1] - rank.computes[-1, 0] == pytest.approx(1e-3, abs=1e-5)
        assert len(rank.computes) == 2
        assert rank.sends[0, 0] >= rank.computes[0, 1] - 1e-9
        assert 0.0 <= rank.idle_s < rank.end_s


def test_a_slow_cable_shows_in_the_matrix_and_in_the_steps() -> None:
    result = run("all-to-all:size=100KB,algorithm=pairwise", STAR.replace("delay=1us", "delay=1us,degrade=h2-e0:1Gbps"))
    outcome = result.outcomes[0].outcome
    [job] = outcome["jobs"]
    transfers = transfers_of(outcome, job)
    into = transfers.group_by("dst").agg(polars.col("end_s").max() - polars.col("start_s").min())
    assert into.height == 4
    waits = step_waits(transfers)
    assert waits["step"].to_list() == [0, 1, 2]
    # 100 KB take 0.83 ms on the slow cable, which two of four transfers cross, and 0.08 ms on others.
    assert 0.3e-3 < waits["wait_s"][0] < 0.5e-3


def test_all_pictures_of_jobs_are_made(tmp_path: Path) -> None:
    result = run(f"{trace(tmp_path)}+all-to-all:size=10KB,hosts=3", series="100us")
    made = {plot.name: plot for plot in plots(result)}
    assert made.keys() >= NAMES
    for name in NAMES:
        assert not troubles(made[name].figure), name
    assert "job 2: 0 (h0)" in [text.get_text() for text in made["rank-timeline"].figure.axes[0].get_yticklabels()]
    assert "links between switches" not in made["rank-timeline"].says, "no transfer leaves the rack"
    assert "Only the first job is drawn." in made["rank-matrix"].says


def test_many_ranks_leave_out_those_that_ended_first() -> None:
    result = run("all-reduce:size=100KB", "leaf-spine:spines=2,leaves=5,hosts=8,rate=10Gbps")
    [timeline] = [plot for plot in plots(result) if plot.name == "rank-timeline"]
    assert len(timeline.figure.axes[0].get_yticklabels()) == MOST_ROWS
    assert "8 ranks that ended earlier are left out" in timeline.says


def test_other_traffic_has_no_pictures_of_ranks() -> None:
    idle = run("long-lived:pattern=permutation", duration="2ms")
    assert not NAMES & {plot.name for plot in plots(idle)}
    assert first_run(idle, "ofpt") is None


def test_unfinished_transfers_end_with_the_run() -> None:
    result: ResultData = pl.compare(
        fabric=STAR, traffic="all-reduce:size=80MB", schemes=["ecmp"], duration="5ms", runs=1, transport="dctcp"
    )
    outcome = result.outcomes[0].outcome
    transfers = transfers_of(outcome, outcome["jobs"][0])
    assert transfers["end_s"].max() == pytest.approx(outcome["end_ns"] / 1e9)
    assert NAMES - {"rank-steps"} <= {plot.name for plot in plots(result)}


def test_the_busiest_links_are_below_the_ranks() -> None:
    result = run("all-to-all:size=50KB", "leaf-spine:spines=2,leaves=2,hosts=2,rate=10Gbps", series="100us")
    [timeline] = [plot for plot in plots(result) if plot.name == "rank-timeline"]
    _, links = timeline.figure.axes
    assert len(links.get_yticklabels()) == 8
    assert "links between switches that sent most, in steps of 100us" in timeline.says
    assert not troubles(timeline.figure)
