"""Series over time add up to the totals of a run, and do not change the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pathloom
from conftest import Cli
from pathloom.api.results import Result
from pathloom.experiments.results.after_end import steps_with_flows, until_end
from pathloom.quantities import time_text
from pathloom.show.results import Results
from pathloom.show.sources import folder
from synthetic import numbers

FABRIC = "diamond:rate=10Mbps,buffer=4"
COMMON: dict[str, Any] = {"fabric": FABRIC, "traffic": "hadoop:load=0.8", "duration": "1s", "runs": 2}


@pytest.fixture(scope="module")
def result() -> Result:
    return pathloom.compare(**COMMON, schemes=["ecmp", "spt"], series="10ms")


def test_series_change_no_figure(result: Result) -> None:
    plain = pathloom.compare(**COMMON, schemes=["ecmp", "spt"])
    assert numbers(result.json())["schemes"] == numbers(plain.json())["schemes"]
    assert plain.link_series.height == plain.flow_series.height == 0


def test_series_add_up_to_the_totals(result: Result) -> None:
    steps = result.flow_series.sort("scheme", "run", "at_s")
    for (scheme, run), flows in result.flows.group_by("scheme", "run"):
        end_s = next(
            one.outcome["end_ns"] / 1e9 for one in result.outcomes if (one.job.label, one.job.run) == (scheme, run)
        )
        mine = steps.filter((pl.col("scheme") == scheme) & (pl.col("run") == run))
        # All steps except the last one are 10 ms long.
        length_s = pl.when(pl.col("at_s") == end_s).then(end_s - (end_s // 0.01) * 0.01).otherwise(0.01)
        carried = mine.group_by("flow").agg(bytes=(pl.col("goodput_bps") * length_s).sum() / 8)
        whole = flows.filter(pl.col("delivered_bytes") > 0).join(carried, on="flow", how="left")
        finished = whole.filter("finished")
        assert finished["bytes"].to_list() == pytest.approx(finished["delivered_bytes"].to_list(), rel=1e-6)
        assert (whole["bytes"] > whole["delivered_bytes"] * (1 - 1e-6)).all(), "bytes behind a gap have arrived"
        links = result.link_series.filter((pl.col("scheme") == scheme) & (pl.col("run") == run))
        totals = links.group_by("link").agg(
            bits=(pl.col("rate_bps") * length_s).sum(),
            waited=(pl.col("mean_queue") * length_s).sum(),
            dropped=pl.col("dropped_packets").sum(),
        )
        of_run = result.links.filter(
            (pl.col("scheme") == scheme) & (pl.col("run") == run) & (pl.col("sent_bytes") > 0)
        ).join(totals, on="link", how="left")
        # Unfinished flows leave frames in queues, including the frame that is being sent.
        assert of_run["bits"].to_list() == pytest.approx((of_run["sent_bytes"] * 8).to_list(), abs=8 * 1514 * 5)
        assert of_run["waited"].to_list() == pytest.approx((of_run["mean_queue"] * end_s).to_list(), abs=1e-9)
        assert of_run["dropped"].to_list() == of_run["dropped_packets"].to_list()
    assert result.links["dropped_packets"].sum() > 0, "the case has drops"
    assert result.link_series["rate_bps"].max() <= 10e6 * (1 + 1e-6)  # type: ignore[operator]


def test_nothing_is_faster_than_its_link_even_after_losses_and_cuts() -> None:
    rate_bps = 100e6
    result = pathloom.compare(
        fabric="fat-tree:k=4,rate=100Mbps",
        traffic="long-lived:pattern=permutation",
        schemes=["ecmp", "mptcp"],
        duration="1s",
        runs=1,
        series="10ms",
        faults=["300ms:down:c0", "600ms:up:c0"],
    )
    assert (result.flows["reordered"] > 100).any(), "gaps are closed late"
    assert result.links["dropped_packets"].sum() > 100
    # The sending of a packet may begin in one step and end in the next.
    assert result.flow_series["goodput_bps"].max() <= rate_bps * 1.02  # type: ignore[operator]
    assert result.link_series["rate_bps"].max() <= rate_bps * (1 + 1e-6)  # type: ignore[operator]


def test_series_are_saved_and_drawn(cli: Cli, tmp_path: Path) -> None:
    options = ["--fabric", "diamond:rate=10Mbps", "--traffic", "hadoop:load=0.4", "--duration", "500ms", "--runs", "1"]
    outcome = cli("compare", *options, "--schemes", "ecmp,spt", "--series", "10ms", "--out", "out", "--resume")
    assert outcome.code == 0, outcome.err
    first = pl.read_parquet(tmp_path / "out/link-series.parquet")
    assert first.height > 10
    assert (tmp_path / "out/over-time.svg").is_file()
    assert "--series 10ms" in (tmp_path / "out/report.html").read_text(encoding="utf-8")
    again = cli("compare", *options, "--schemes", "ecmp,spt", "--series", "10ms", "--out", "out", "--resume")
    assert again.code == 0, again.err
    assert pl.read_parquet(tmp_path / "out/link-series.parquet").equals(first)


def test_ways_follow_faults_and_have_reasons() -> None:
    result = pathloom.compare(
        fabric="fat-tree:k=4,rate=10Mbps",
        traffic="long-lived:pattern=stride",
        schemes=["ofpt"],
        duration="4s",
        runs=1,
        series="500ms",
        faults=["2s:down:a0_0"],
    )
    paths = result.way_series
    assert set(paths["flow"].to_list()) == set(result.flows["flow"].to_list()), "each flow has a way"
    for row in paths.iter_rows(named=True):
        nodes = row["path"].split()
        assert nodes[0].startswith("h") and (row["at_s"] < 1 or nodes[-1].startswith("h"))
    assert paths.filter(pl.col("why").str.starts_with("ofpt put it on"))["flow"].n_unique() == 16
    later = paths.filter(pl.col("at_s") > 2)
    assert later.height > 0, "flows left the dead switch"
    last = paths.sort("at_s").group_by("flow", maintain_order=True).last()
    assert not any("a0_0" in path.split() for path in last["path"])


def test_flows_that_end_within_a_step_have_a_way() -> None:
    result = pathloom.compare(**{**COMMON, "runs": 1}, schemes=["ecmp"], series="500ms")
    finished = result.flows.filter("finished")
    assert finished.filter(pl.col("fct_s") < 0.01).height > 0, "the case has short flows"
    assert set(finished["flow"]) <= set(result.way_series["flow"])


@pytest.mark.parametrize(("series", "words"), [("10", "is not a time"), ("0s", "not a positive time"), ("1us", "60us")])
def test_bad_steps(series: str, words: str) -> None:
    with pytest.raises(pathloom.PathloomError, match=words):
        pathloom.compare(**COMMON, schemes=["ecmp"], series=series)


def test_what_happens_after_the_last_flow_is_said_and_not_shown(tmp_path: Path) -> None:
    # Subflows that have nothing to close with wait for their timers after the last byte has arrived.
    result = pathloom.compare(
        fabric="rail-optimized:servers=4,gpus=4,rate=100Gbps",
        traffic="all-to-all:size=200KB",
        schemes=["ecmp"],
        transport="mptcp",
        duration="2ms",
        until="finished",
        runs=1,
        series="100us",
    )
    end_s = float((result.flows["start_s"] + result.flows["fct_s"]).max())  # type: ignore[arg-type]
    last_s = float(result.link_series["at_s"].max())  # type: ignore[arg-type]
    assert last_s > 1.3 * end_s, "the case has late packets"
    [note] = [note for note in result.notes if "the last flow ended" in note]
    assert note.startswith("scheme ecmp: ") and f"links sent until {time_text(last_s)}" in note
    result.save(tmp_path)
    at_s = Results(folder(tmp_path)).times("ecmp", 1)["at_s"]
    assert at_s[-2] < end_s <= at_s[-1] < end_s + 100e-6
    shown = until_end(result.link_series, result.flows)
    assert shown["at_s"].max() == at_s[-1] and shown.height < result.link_series.height


def test_series_of_runs_that_end_before_their_flows_are_shown_to_their_end(result: Result) -> None:
    unfinished = result.flows.with_columns(finished=pl.lit(False))
    assert until_end(result.link_series, unfinished).equals(result.link_series)
    assert steps_with_flows([0.1, 0.2, 0.3], 0.2) == steps_with_flows([0.1, 0.2], 5.0) == [0.1, 0.2]
    assert not [note for note in result.notes if "the last flow ended" in note]
