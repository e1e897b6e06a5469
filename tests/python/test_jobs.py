"""Jobs in results: bandwidth as in nccl-tests, ideal times, and what delayed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pytest

import pathloom as pl
from conftest import Cli
from pathloom.report.jobs import delay_lines, jobs_table

STAR = "leaf-spine:spines=1,leaves=1,hosts=4,rate=10Gbps,delay=1us,buffer=1000"
TRANSPORT = "newreno:iw=64KB,rwnd=128KB,jitter=0s"
PAYLOAD_BPS = 10e9 * 1448 / 1514


def run(traffic: str, fabric: str = STAR, runs: int = 1) -> dict[str, Any]:
    """The scheme of a comparison of one scheme."""
    result = pl.compare(
        fabric=fabric,
        traffic=traffic,
        schemes=["ecmp"],
        duration="1s",
        runs=runs,
        transport=TRANSPORT,
        until="finished",
    )
    [scheme] = result.summary["schemes"]
    return dict(scheme)


# Collective, bus factor of nccl-tests for 4 ranks, steps, and bytes in them, of a buffer of 8 MB.
CASES = [
    ("all-reduce:size=8MB", 2 * 3 / 4, 6, 12e6),
    ("all-reduce:algorithm=recursive,size=8MB", 2 * 3 / 4, 4, 12e6),
    ("all-reduce:algorithm=tree,chunks=16,size=8MB", 2 * 3 / 4, 36, 36 * 0.5e6),
    ("all-reduce:algorithm=hierarchical,groups=2,size=8MB", 2 * 3 / 4, 4, 12e6),
    ("all-gather:size=8MB", 3 / 4, 3, 6e6),
    ("reduce-scatter:algorithm=recursive,size=8MB", 3 / 4, 2, 6e6),
    ("broadcast:algorithm=binomial,size=8MB", 1, 2, 16e6),
    ("reduce:algorithm=ring,chunks=16,size=8MB", 1, 18, 18 * 0.5e6),
    ("all-to-all:algorithm=pairwise,size=2MB", 3 / 4, 3, 6e6),
    ("all-to-all:algorithm=bruck,size=2MB", 3 / 4, 2, 8e6),
]


@pytest.mark.parametrize(("traffic", "bus_factor", "steps", "serial_bytes"), CASES)
def test_bandwidth_and_ideal_time_follow_their_definitions(
    traffic: str, bus_factor: float, steps: int, serial_bytes: float
) -> None:
    scheme = run(f"{traffic},jitter=0s")
    [job] = scheme["jobs"]
    assert job["time_s"] == pytest.approx(scheme["completion_s"]["mean"])
    assert job["algbw_bps"] == pytest.approx(8 * 8e6 / job["time_s"])
    assert job["busbw_bps"] == pytest.approx(bus_factor * job["algbw_bps"])
    assert job["steps"] == steps
    assert job["ideal_s"] == pytest.approx(steps * 2e-6 + 8 * serial_bytes / PAYLOAD_BPS, rel=1e-6)
    # On the ideal fabric, only acknowledgements, forwarding of last frames and the first windows are left.
    assert 1 <= job["slowdown"] < 1.04
    assert job["slowdown_of_best"] >= job["slowdown"] and job["best_ideal_s"] <= job["ideal_s"]
    assert job["incomplete"] == 0


def test_the_best_algorithm_depends_on_the_size() -> None:
    assert run("all-reduce:size=8MB,jitter=0s")["jobs"][0]["best"] == "recursive"
    three = "leaf-spine:spines=1,leaves=1,hosts=3,rate=10Gbps,delay=1us,buffer=1000"
    # Three ranks are no power of two: doubling sends the buffer twice more.
    assert run("all-reduce:size=8MB,jitter=0s", three)["jobs"][0]["best"] == "ring"
    assert run("all-to-all:algorithm=direct,size=1KB", STAR)["jobs"][0]["best"] == "direct"


def test_iterations_count_each_for_itself() -> None:
    once, thrice = (
        run(f"all-gather:size=8MB,jitter=0s,{keys}")["jobs"][0] for keys in ("gap=1ms", "iterations=3,gap=1ms")
    )
    assert thrice["iterations"] == 3
    assert thrice["time_s"] == pytest.approx(once["time_s"], rel=0.01)


def test_servers_shorten_the_ideal_of_a_hierarchy() -> None:
    fabric = "rail-optimized:servers=2,gpus=4,spines=4,rate=10Gbps,delay=1us,buffer=1000,nvlink_rate=100Gbps"
    [job] = run("all-reduce:algorithm=hierarchical,size=8MB,jitter=0s", fabric)["jobs"]
    inside = 6 * 2e-6 + 8 * 12e6 / (10 * PAYLOAD_BPS)
    assert job["ideal_s"] == pytest.approx(inside + 2 * 2e-6 + 8 * 2e6 / PAYLOAD_BPS, rel=1e-3)
    assert job["best"] == "hierarchical" and 1 <= job["slowdown"] < 1.1
    [flat] = run("all-reduce:size=8MB,jitter=0s", fabric)["jobs"]
    assert flat["best"] == "hierarchical" and flat["slowdown_of_best"] > 2


def test_a_slow_cable_is_named() -> None:
    fabric = "leaf-spine:spines=2,leaves=2,hosts=4,rate=10Gbps,delay=1us,buffer=1000,degrade=h5-e1:2Gbps"
    scheme = run("all-reduce:size=8MB", fabric, runs=2)
    [job] = scheme["jobs"]
    delay = job["delay"]
    assert "h5" in (delay["slowest"]["src"], delay["slowest"]["dst"])
    assert {delay["busiest_link"]["source"], delay["busiest_link"]["target"]} == {"h5", "e1"}
    assert 0.9 < delay["busiest_link"]["busy_s"] / job["time_s"] < 1
    assert 1 <= delay["transfers"] <= 14 and delay["last_host"] == f"h{delay['last_rank']}"
    assert [len(one["jobs"]) for one in scheme["runs"]] == [1, 1]
    [line] = delay_lines([scheme])
    assert "h5" in line and "in 2 of 2 runs" in line
    table = jobs_table([scheme])
    assert table is not None and "busbw" in table.headings and "over the ideal" in table.headings


def test_a_job_that_does_not_finish_has_no_bandwidth() -> None:
    result = pl.run(fabric=STAR, traffic="all-reduce:size=80MB", scheme="ecmp", duration="1ms")
    [job] = result.summary["schemes"][0]["jobs"]
    assert (job["incomplete"], job["time_s"], job["busbw_bps"], job["delay"]) == (1, None, None, None)
    assert job["ideal_s"] > 0


def test_other_traffic_has_no_jobs() -> None:
    result = pl.run(fabric=STAR, traffic="incast:senders=3,size=10KB", scheme="ecmp", duration="1ms")
    assert "jobs" not in result.summary["schemes"][0]
    assert jobs_table(result.summary["schemes"]) is None


BESIDE = "all-reduce:size=2MB,hosts=4+all-gather:size=2MB,hosts=4,skip=4,iterations=2+web-search:load=0.1,max_size=1MB"


def test_jobs_and_background_traffic_run_beside_each_other() -> None:
    fabric = "leaf-spine:spines=2,leaves=2,hosts=4,rate=10Gbps"
    result = pl.compare(fabric=fabric, traffic=BESIDE, schemes=["ecmp"], duration="5ms", runs=2, until="finished")
    [scheme] = result.summary["schemes"]
    reduce, gather = scheme["jobs"]
    assert (reduce["collective"], reduce["ranks"], gather["collective"], gather["iterations"]) == (
        "all-reduce",
        4,
        "all-gather",
        2,
    )
    assert reduce["time_s"] > 0 and gather["time_s"] > 0
    # One group of the first job and two of the second one, in each run.
    assert scheme["completion_s"]["of"] == "collective"
    assert [run["completion_s"]["groups"] for run in scheme["runs"]] == [3, 3]
    background = result.flows.filter(polars.col("coflow").is_null())
    assert background.height > 10
    assert set(result.flows.filter(polars.col("coflow") < 6)["src"]) == {"h0", "h1", "h2", "h3"}
    table = jobs_table(result.summary["schemes"])
    assert table is not None and {"job 1: busbw", "job 2: busbw"} <= set(table.headings)
    assert [line.split(":")[0] for line in delay_lines([scheme])] == ["ecmp, job 1", "ecmp, job 2"]


def test_background_traffic_slows_a_job_down() -> None:
    fabric = "leaf-spine:spines=1,leaves=2,hosts=4,rate=10Gbps,buffer=1000"
    job = "all-reduce:size=8MB,placement=striped"
    alone, beside = (run(traffic, fabric)["jobs"][0] for traffic in (job, f"{job}+long-lived:pattern=stride"))
    assert beside["time_s"] > 1.2 * alone["time_s"]
    assert beside["ideal_s"] == pytest.approx(alone["ideal_s"], rel=0.05)
    # Its transfers also end beside coflows of other parts, which count for themselves.
    incast = run(f"{job}+incast:senders=4,size=100KB", fabric)
    assert [one["collective"] for one in incast["jobs"]] == ["all-reduce"]
    assert incast["completion_s"]["groups"] == 1


def test_a_trace_of_training_has_a_bubble_share(tmp_path: Path) -> None:
    # A forward pass of 1 ms and an all-reduce; gradients of inputs, 1 ms and a small all-reduce; gradients of weights.
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4"
    layer = "layer -1 1000000 ALLREDUCE 8000000 1000000 ALLREDUCE 4000 1000000 NONE 0 0"
    file = tmp_path / "job.txt"
    file.write_text(f"{head} checkpoints: 0 checkpoint_initiates: 0\n1\n{layer}\n", encoding="utf-8")
    scheme = run(f"simai:file={file}")
    [job] = scheme["jobs"]
    assert (job["collective"], job["ranks"]) == ("training", 4) and "busbw_bps" not in job
    assert job["compute_s"] == pytest.approx(2e-3)
    # The first transfer starts at 1 ms.
    [collective] = run("all-reduce:size=8MB")["jobs"]
    assert job["time_s"] == pytest.approx(collective["time_s"] + 1e-3, rel=0.02)
    assert job["bubble_share"] == pytest.approx(1 - 2e-3 / (1e-3 + job["time_s"]), rel=1e-6)
    assert 0.8 < job["bubble_share"] < 0.9
    table = jobs_table([scheme])
    assert table is not None and "bubble share" in table.headings


def test_a_sweep_over_algorithms_has_their_bandwidth(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        f'fabric = "{STAR}"\ntraffic = "all-reduce:algorithm={{algorithm}},size=2MB"\nschemes = "ecmp"\n'
        'duration = "10ms"\nuntil = "finished"\nruns = 1\ngrid = {algorithm = ["ring", "tree"]}\n',
        encoding="utf-8",
    )
    assert cli("sweep", "s.toml", "--out", "s").code == 0
    points = polars.read_csv(tmp_path / "s/points.csv")
    ring, tree = points["collective_busbw_bps"]
    # Two trees send the buffer twice, a ring 1.5 times.
    assert 1.2 < ring / tree < 1.6
    assert points["collective_time_s"].to_list() == points["completion_mean_s"].to_list()
    assert (tmp_path / "s/busbw-by-algorithm.svg").is_file()


@pytest.mark.parametrize(
    "traffic",
    [
        "all-reduce:algorithm=recursive,size=4MB",
        "all-reduce:algorithm=tree,chunks=16,size=4MB",
        "all-reduce:algorithm=hierarchical,size=4MB",
        "all-reduce:size=4MB,placement=rail",
        "broadcast:chunks=16,size=4MB",
        "reduce:algorithm=binomial,size=4MB",
        "all-to-all:size=500KB",
        "all-to-all:algorithm=direct,size=500KB",
        "all-to-all:algorithm=bruck,size=500KB",
        "moe:tokens=1000",
    ],
)
def test_no_job_is_faster_than_its_ideal_in_servers(traffic: str) -> None:
    fabric = "rail-optimized:servers=2,gpus=4,spines=4,rate=10Gbps,delay=1us,buffer=1000,nvlink_rate=100Gbps"
    [job] = run(f"{traffic},jitter=0s", fabric)["jobs"]
    # Without steps for all ranks, several of a server send to one host of the other at the same time.
    assert 1 <= job["slowdown"] < (4 if traffic == "all-to-all:size=500KB" else 1.5)
    assert job["best_ideal_s"] <= job["ideal_s"]
