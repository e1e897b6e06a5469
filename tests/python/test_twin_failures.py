"""All failures of a fork: by max-min rates first, the worst of them in packets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pathloom._core import PathloomError
from pathloom.cli.app import carry_out
from pathloom.experiments.running.threads import Threads
from pathloom.fabrics import Fabric
from pathloom.twin.ask import Plan
from pathloom.twin.failures import Batch, elements, singles
from pathloom.twin.failures_report import summary, table_of_failures
from pathloom.twin.fork import Arrivals, Flows, Fork
from pathloom.twin.measures import MEASURES


def fork_of(spec: str, pairs: list[tuple[str, str]]) -> Fork:
    """Flows without an end between these hosts."""
    graph = json.loads(Fabric(spec).to_node_link())
    src, dst, count = [one for one, _ in pairs], [other for _, other in pairs], len(pairs)
    rates, windows = [10**6] * count, [20_000] * count
    flows = Flows(src, dst, [1.0] * count, [1000] * count, [None] * count, [True] * count, rates, windows)
    return Fork(graph, "ecmp", replace(flows, slow_start=[False] * count, path=[None] * count), Arrivals.none())


@pytest.fixture
def spread(tmp_path: Path) -> tuple[Fork, Path]:
    """Two leaves with two spines, one of which is slow, and eight flows from leaf to leaf."""
    fork = fork_of(
        "leaf-spine:spines=2,leaves=2,hosts=4,rate=100Mbps,degrade=c1:5Mbps",
        [(f"h{one}", f"h{4 + other}") for one in range(4) for other in (one, (one + 1) % 4)],
    )
    path = tmp_path / "now.plf"
    fork.write(path)
    return fork, path


def test_what_can_fail_is_cables_between_switches_and_switches_without_hosts(spread: tuple[Fork, Path]) -> None:
    fork, _ = spread
    assert sorted(elements(fork)) == ["c0", "c1", "e0-c0", "e0-c1", "e1-c0", "e1-c1"]
    for edge in fork.fabric["edges"]:
        if {edge["source"], edge["target"]} in ({"e0", "c1"}, {"e1", "c1"}):
            edge["failed"] = True
    assert sorted(elements(fork)) == ["c0", "e0-c0", "e1-c0"], "what is out of service does not fail"


def test_two_cables_of_a_pair_fail_one_by_one() -> None:
    graph = json.loads(Fabric("diamond").to_node_link())
    edge = next(edge for edge in graph["edges"] if {edge["source"], edge["target"]} == {"e0", "c0"})
    graph["edges"].append({**edge, "key": 90, "cable": 90})
    found = elements(Fork(graph, "ecmp", Flows(), Arrivals.none()))
    cable = f"{edge['source']}-{edge['target']}"
    assert {name for name in found if "#" in name} == {f"{cable}#1", f"{cable}#2"}


def test_the_worst_failures_are_found_without_packets_and_run_in_packets(spread: tuple[Fork, Path]) -> None:
    fork, path = spread
    plan = Plan(MEASURES["mean-throughput"], duration="100ms", runs=2)
    batch = Batch(fork, path, "single", plan)
    screening = batch.screen(2)
    assert screening.total == len(screening.rows) == 6
    rates = {one.alternative.name: one.rate_bps for one in screening.rows}
    # Without the fast spine, eight flows share 5 Mbit/s; without the slow one, all have a share of 100 Mbit/s.
    assert rates["fail:c0"] == pytest.approx(5e6 * 1448 / 1514 / 8, rel=0.01)
    assert rates["fail:c1"] == pytest.approx(100e6 * 1448 / 1514 / 8, rel=0.01)
    report = batch.in_packets(screening, 2, Threads(2), None, None)
    means = {row.name: row.mean for row in report.answer.rows}
    worst = [one.alternative.name for one in screening.rows[:2]]
    assert set(means) == {"nothing", *worst} and all(means[name] < means["nothing"] / 2 for name in worst)
    rows = table_of_failures(report)[1]
    assert [row[0] for row in rows] == [*worst, "nothing"]
    assert summary(report).startswith("6 of 6 failures by max-min rates")


def test_double_failures_come_after_all_single_ones_the_costliest_first(spread: tuple[Fork, Path]) -> None:
    fork, path = spread
    plan = Plan(MEASURES["worst-pair"], duration="100ms", runs=2)
    screening = Batch(fork, path, "double", plan).screen(2)
    names = [one.alternative.name for one in screening.rows]
    # Of 15 pairs, 4 are a spine and a cable of it.
    assert screening.total == len(names) == 6 + 15 - 4
    cut_off = {one.alternative.name for one in screening.rows if one.rate_bps == 0}
    assert {"fail:e0-c0+fail:e0-c1", "fail:c0+fail:c1"} <= {"+".join(sorted(name.split("+"))) for name in cut_off}
    now = iter(range(1000))
    early = Batch(fork, path, "double", replace(plan, budget_s=1.0)).screen(1, clock=lambda: float(next(now)))
    assert len(early.rows) == 6 and early.total == 17, "the time was up after the single failures"
    assert {one.alternative for one in early.rows} == set(singles(fork))


def test_failures_are_a_command(
    spread: tuple[Fork, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["twin", "ask", "now.plf", "--failures", "single", "--worst", "1", "--runs", "2", "--duration", "20ms"]
    assert carry_out([*asked, "--out", "found", "--ledger", "l.sqlite", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failures"], found["total"], found["estimated"]) == ("single", 6, 6)
    assert len(found["answer"]["alternatives"]) == 2
    assert json.loads((tmp_path / "found/failures.json").read_text()) == found
    assert (tmp_path / "found/failures.svg").is_file()
    assert carry_out(asked) == 0
    assert "by max-min rates" in capsys.readouterr().out
    for wrong, words in [
        (["drain:c0", "--failures", "single"], "takes no questions"),
        (["--failures", "triple"], "is not one of single, double"),
        (["--failures", "single", "--worst", "0"], "--worst"),
        ([], "no question"),
    ]:
        assert carry_out(["twin", "ask", "now.plf", *wrong]) == 2
        assert words in capsys.readouterr().err


def test_a_fork_without_flows_has_no_rates_to_compare(tmp_path: Path) -> None:
    fork = fork_of("diamond", [])
    with pytest.raises(PathloomError, match="no flows under way"):
        Batch(fork, tmp_path / "none.plf", "single", Plan(MEASURES["mean-throughput"]))
