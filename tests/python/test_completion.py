"""Completion times of collectives, coflows and incasts, and the slowdown of flows, from real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pathloom
from conftest import Cli

K4 = "fat-tree:k=4,rate=1Gbps"


def run(traffic: str, duration: str = "100ms", runs: int = 1, **more: Any) -> pathloom.Result:
    return pathloom.run(scheme="ecmp", fabric=K4, traffic=traffic, duration=duration, runs=runs, **more)


def spans(flows: pl.DataFrame, group: pl.Expr) -> list[float]:
    """Returns the time from the first start to the last end, by group."""
    ends = flows.group_by(group.alias("group")).agg(
        time_s=(pl.col("start_s") + pl.col("fct_s")).max() - pl.col("start_s").min()
    )
    return sorted(ends["time_s"].to_list())


def test_a_collective_completes_when_its_last_flow_does() -> None:
    result = run("all-to-all:size=100KB,hosts=8", "1s", runs=2)
    found = result.summary["schemes"][0]["completion_s"]
    by_run = [spans(result.flows.filter(pl.col("run") == run), pl.lit(0))[0] for run in (1, 2)]
    assert (found["of"], found["groups"], found["incomplete"]) == ("collective", 2, 0)
    assert found["mean"] == pytest.approx(sum(by_run) / 2, abs=1e-9)
    assert found["mean_censored"] is False and found["ci95"] > 0
    runs = result.summary["schemes"][0]["runs"]
    assert [one["completion_s"]["mean"] for one in runs] == pytest.approx(by_run)


def test_each_iteration_of_a_collective_counts_by_itself() -> None:
    result = run("all-reduce:size=800KB,hosts=8,iterations=3,gap=5ms", "1s")
    found = result.summary["schemes"][0]["completion_s"]
    steps = 2 * 7
    expected = spans(result.flows, pl.col("coflow") // steps)
    assert len(expected) == 3 == found["groups"]
    assert found["mean"] == pytest.approx(sum(expected) / 3, abs=1e-9)
    assert found["p50"] == pytest.approx(expected[1], abs=1e-9)


def test_coflows_and_incasts_by_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text(
        "start_s,src,dst,size_bytes,coflow\n0.001,h0,h5,100000,1\n0.002,h1,h6,2000000,1\n0.01,h0,h7,50000,2\n"
    )
    coflows = run(f"flows:file={tmp_path}/flows.csv")
    found = coflows.summary["schemes"][0]["completion_s"]
    expected = spans(coflows.flows, pl.col("coflow"))
    assert (found["of"], found["groups"]) == ("coflow", 2)
    assert found["p99"] == pytest.approx(expected[0] + 0.99 * (expected[1] - expected[0]), abs=1e-9)
    incast = run("incast:senders=4,size=20KB,period=20ms").summary["schemes"][0]["completion_s"]
    assert incast["of"] == "incast" and incast["groups"] >= 4


def test_an_unfinished_collective_has_a_bound(cli: Cli) -> None:
    arguments = ["--fabric", K4, "--traffic", "all-reduce:size=100MB", "--scheme", "ecmp", "--duration", "10ms"]
    result = run("all-reduce:size=100MB", "10ms")
    found = result.summary["schemes"][0]["completion_s"]
    assert found["mean_censored"] is True and found["incomplete"] == 1
    assert found["mean"] == pytest.approx(0.06, abs=1e-3), "the run ends after a drain of five durations"
    out = cli("run", *arguments).out
    assert "completion" in out and "≥ 60.0 ms" in out
    assert "never started and are in no FCT" in out


def test_other_traffic_has_no_completion_time(cli: Cli) -> None:
    row = run("web-search:load=0.2").summary["schemes"][0]
    assert row["completion_s"] is None and row["runs"][0]["completion_s"] is None


@pytest.mark.parametrize(
    ("traffic", "words"),
    [
        ("all-to-all:size=10KB", ["completion ", "Shortest completion time: "]),
        ("incast:senders=4,size=20KB,period=20ms", ["mean incast completion ", "mean incast completion time: "]),
    ],
)
def test_tables_and_headlines_show_the_completion_time(cli: Cli, traffic: str, words: list[str]) -> None:
    schemes = ["--schemes", "spt,ecmp", "--runs", "2", "--duration", "100ms"]
    out = cli("compare", "--fabric", K4, "--traffic", traffic, *schemes).out
    assert any(line.startswith(words[0]) for line in out.splitlines()), out
    assert words[1].strip() in out or "ompletion time is equal within 1 %" in out


def test_slowdown_is_fct_over_ideal_fct(cli: Cli) -> None:
    result = run("web-search:load=0.6", "300ms", runs=3)
    row, flows = result.summary["schemes"][0], result.flows
    assert row["flows"]["unfinished"] == 0
    each = (flows["fct_s"] / flows["ideal_fct_s"]).to_numpy()
    assert each.min() >= 1.0
    by_run = [each[(flows["run"] == run).to_numpy()].mean() for run in (1, 2, 3)]
    assert row["slowdown"]["mean"] == pytest.approx(np.mean(by_run))
    for percent in (50, 95, 99):
        assert row["slowdown"][f"p{percent}"] == pytest.approx(np.percentile(each, percent))
        assert row["slowdown"][f"p{percent}_censored"] is False
    assert [one["slowdown"]["mean"] for one in row["runs"]] == pytest.approx(by_run)
    for name in ("mouse", "rabbit", "elephant"):
        of_class = (flows["size_class"] == name).to_numpy()
        means = [each[of_class & (flows["run"] == run).to_numpy()].mean() for run in (1, 2, 3)]
        assert row["slowdown"][name] == pytest.approx(np.mean(means)), name
        assert row["slowdown"][f"{name}_censored"] is False
    out = cli("run", "--fabric", K4, "--traffic", "web-search:load=0.6", "--scheme", "ecmp", "--duration", "300ms").out
    assert all(any(line.startswith(f"{name} slowdown") for line in out.splitlines()) for name in ("mean", "p50", "p99"))
    assert all(f"mean slowdown, {name} " in out for name in ("mice", "rabbits", "elephants"))
    assert any(line.startswith("Jain's index") for line in out.splitlines())


def test_long_lived_flows_have_no_slowdown() -> None:
    row = run("long-lived", "10ms").summary["schemes"][0]
    assert all(value is None for value in row["slowdown"].values())
