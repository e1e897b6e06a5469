"""The exact optimum beside a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pathloom as pl
from conftest import SMALL, Cli
from pathloom.experiments.results.definitions import DEFINITIONS


def summary(**settings: object) -> dict[str, dict[str, Any]]:
    defaults: dict[str, object] = {"schemes": ["spt", "ecmp"], "duration": "300ms", "runs": 2, "yardstick": True}
    result = pl.compare(**{**defaults, **settings})  # type: ignore[arg-type]
    return {row["scheme"]: row for row in result.summary["schemes"]}


def test_one_path_of_half_the_demand_makes_half_the_optimum() -> None:
    # Two hosts on each side send over one cable of a host's rate: no routing gives their flows more than half.
    rows = summary(fabric="dumbbell:hosts=2,rate=10Mbps", traffic="long-lived:pattern=stride", duration="2s")
    for row in rows.values():
        optimum = row["optimum"]["throughput"]["mean"]
        assert optimum == pytest.approx(0.5, abs=0.02)
        assert 0.5 < row["of_optimum"]["throughput"] <= 1.001


def test_a_healthy_fat_tree_carries_any_permutation() -> None:
    rows = summary(fabric="fat-tree:k=4,rate=10Mbps", traffic="long-lived:pattern=permutation")
    for row in rows.values():
        assert row["optimum"]["throughput"]["mean"] == pytest.approx(1.0, abs=1e-6)
        assert row["of_optimum"]["throughput"] == pytest.approx(row["throughput"]["mean"])


def test_failed_links_lower_the_optimum_and_never_below_what_is_reached() -> None:
    fabric = "fat-tree:k=4,rate=10Mbps,fail=0.2,fail_seed=3"
    rows = summary(fabric=fabric, traffic="long-lived:pattern=stride", schemes=["ecmp", "hedera:period=100ms"])
    optima = {row["optimum"]["throughput"]["mean"] for row in rows.values()}
    assert len(optima) == 1, "all schemes have the same optimum"
    assert 0.3 < optima.pop() < 1.0
    for row in rows.values():
        for run in row["runs"]:
            assert run["throughput"]["mean"] <= run["optimum"]["throughput"]["mean"] * 1.02


def test_access_links_faster_than_the_path_lower_the_optimum() -> None:
    # Hosts of 20 Mb/s share a path of 10 Mb/s: the bound is half of the rate of a host.
    graph = pl.parallel_paths(["10Mbps"], ["1ms"], host_rate="20Mbps")
    rows = summary(fabric=graph, traffic="long-lived:pattern=stride", duration="1s")
    optimum = rows["spt"]["optimum"]["throughput"]["mean"]
    assert optimum == pytest.approx(0.5, abs=0.03)


def test_finite_flows_are_compared_with_their_ideal_time() -> None:
    rows = summary(fabric="fat-tree:k=4,rate=10Mbps", traffic="hadoop:load=0.3")
    ideals = {row["optimum"]["fct_s"]["mean"] for row in rows.values()}
    assert len(ideals) == 1
    for row in rows.values():
        fct, ideal = row["fct_s"], row["optimum"]["fct_s"]
        assert row["optimum"]["throughput"]["mean"] == 1.0
        assert all(fct[key] >= ideal[key] for key in ("mean", "p50", "p95", "p99"))
        assert row["of_optimum"]["fct_s"] == pytest.approx(fct["mean"] / ideal["mean"])


def test_the_optimum_is_in_all_outputs(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("compare", *SMALL, "--schemes", "spt,ecmp", "--runs", "2", "--yardstick", "--out", "results")
    assert outcome.code == 0, outcome.err
    for words in ("of the optimum", "over the ideal"):
        assert words in outcome.out
        assert words in (tmp_path / "results/report.html").read_text(encoding="utf-8")
    content = json.loads((tmp_path / "results/result.json").read_text(encoding="utf-8"))
    assert content["settings"]["yardstick"] is True
    assert "--yardstick" in (tmp_path / "results/report.html").read_text(encoding="utf-8")
    assert content["schemes"][0]["runs"][0]["optimum"]["fct_s"]["p99"] > 0


def test_without_the_option_no_optimum_is_computed(cli: Cli) -> None:
    outcome = cli("run", *SMALL, "--scheme", "ecmp", "--json", "-")
    row = json.loads(outcome.out)["schemes"][0]
    assert "optimum" not in row
    assert "of_optimum" not in row


def test_the_rule_limit_of_switches_is_a_setting(cli: Cli, tmp_path: Path) -> None:
    text = 'fabric = "fat-tree:k=4,rate=10Mbps"\ntraffic = "long-lived"\nscheme = "hedera:period=50ms"\n'
    (tmp_path / "tcam.toml").write_text(text + 'duration = "300ms"\ncontrol = "rules=14"\n', encoding="utf-8")
    limited = json.loads(cli("run", "--spec", "tcam.toml", "--json", "-").out)["schemes"][0]["control"]
    free = json.loads(cli("run", "--spec", "tcam.toml", "--control", "delay=500us", "--json", "-").out)
    assert free["schemes"][0]["control"]["rules_max"] > 14 >= limited["rules_max"]


def test_the_ideal_is_documented_as_a_lower_bound() -> None:
    """Even a packet that is alone in the fabric needs a handshake, and each switch stores it before forwarding."""
    one = pl.compare(
        fabric="fat-tree:k=4,rate=10Mbps", traffic="incast:senders=1,size=1KB", schemes=["ecmp"], duration="1s", runs=1
    )
    assert one.flows["slowdown"][0] > 5
    meaning = dict(DEFINITIONS)["Slowdown"]
    assert "lower bound" in meaning and "even when it is alone" in meaning
