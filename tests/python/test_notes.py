"""Notes on a result: what a reader should know that the figures do not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pathloom as pl
from conftest import Cli
from pathloom.scheme import Actions, Event, FlowArrived, Route, Scheme, View

K4 = {"fabric": "fat-tree:k=4,rate=10Mbps", "traffic": "long-lived:pattern=stride"}


class Idle(Scheme):
    """Does nothing."""

    def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
        return None


class Placing(Scheme):
    """Gives every flow the first of its paths."""

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        if isinstance(event, FlowArrived):
            flow = view.flow(event.flow)
            yield Route(flow.id, view.paths(flow.src_tor, flow.dst_tor)[0])


def notes(**more: Any) -> list[str]:
    settings: dict[str, Any] = {**K4, "schemes": ["ecmp"], "duration": "100ms", "runs": 2, **more}
    return pl.compare(**settings).notes


def test_a_fault_after_the_end_is_noted() -> None:
    assert notes(faults=["1s:down:c0"]) == [
        "fault 1s:down:c0 came after the end of every run (100 ms) and changed nothing"
    ]
    assert notes(faults=["50ms:down:c0"]) == []


def test_a_fault_that_mends_nothing_is_noted() -> None:
    assert notes(faults=["20ms:up:c0", "30ms:restore:a0_1-c3", "40ms:session-up:c1"]) == [
        "fault 20ms:up:c0 changed nothing: no down or flap came before it",
        "fault 30ms:restore:a0_1-c3 changed nothing: no degrade or loss came before it",
        "fault 40ms:session-up:c1 changed nothing: no session-down came before it",
    ]
    mended = ["10ms:down:c0", "20ms:up:c0", "10ms:loss:a0_1-c3:0.1", "20ms:restore:a0_1-c3"]
    assert [note for note in notes(faults=mended) if note.startswith("fault")] == []
    assert notes(fabric="fat-tree:k=4,fail=0.1", faults=["20ms:up:e0_0-a0_0"]) == []


def test_a_fault_after_the_end_of_some_runs_is_noted() -> None:
    """Runs of finite flows end when these do, so at different times."""
    settings = {"fabric": "fat-tree:k=4", "traffic": "web-search:load=0.3", "runs": 3, "duration": "100ms"}
    result = pl.compare(schemes=["ecmp"], **settings)  # type: ignore[arg-type]
    ends_ns = sorted(one.outcome["end_ns"] for one in result.outcomes)
    between_ns = (ends_ns[0] + ends_ns[1]) // 2
    faults = ["1ns:loss:a0_1-c3:0", f"{between_ns}ns:restore:a0_1-c3"]
    (note,) = (one for one in notes(**settings, faults=faults) if one.startswith("fault"))
    assert note == f"fault {between_ns}ns:restore:a0_1-c3 came after the end of 1 of 3 runs and changed nothing in them"


def test_a_period_longer_than_the_run_and_a_scheme_that_never_acted() -> None:
    assert notes(schemes=["spt", "ecmp", "hedera"]) == [
        "scheme hedera: its period of 5s is longer than its longest run (100 ms); raise --duration or lower its key "
        "`period`",
        "scheme hedera never acted: it gave no flow a path, and all stayed on the default routes",
    ]
    assert notes(schemes=["hedera:elephant=0.2,period=1s"])[0].startswith(
        "scheme hedera:elephant=0.2,period=1s: its period of 1s is longer"
    )
    assert notes(schemes=["ecmp", "hedera:period=500ms"], duration="3s") == []


def test_a_scheme_that_acts_on_arrivals_is_told_of_its_period_alone() -> None:
    (note,) = notes(schemes=["ofpt"])
    assert "its period of 5s is longer than its longest run (100 ms);" in note


def test_a_scheme_in_python_that_never_acted_is_noted() -> None:
    assert notes(schemes=[Idle]) == [
        "scheme Idle never acted: it gave no flow a path, and all stayed on the default routes"
    ]
    assert notes(schemes=[Placing]) == []


def test_streams_on_paths_that_their_host_claimed_were_given_a_path() -> None:
    traces = Path(__file__).parents[2] / "experiments/traces"
    result = pl.compare(
        fabric=str(traces / "topology-b.json"),
        traffic=f"flows:file={traces / 'a-to-b-100MB.csv'}",
        schemes=["parallel-tcp:paths=3,streams=5"],
        duration="2s",
        runs=1,
    )
    assert not any("never acted" in note for note in result.notes)
    assert result.outcomes[0].outcome["control"]["routes"] == 5


def test_flows_that_never_started_are_noted() -> None:
    (note,) = notes(traffic="all-reduce:size=1MB", runs=1)
    assert note.endswith(" of 480 flows never started and are in no FCT: they were to follow flows that did not finish")
    assert int(note.split()[0]) > 100


def test_notes_are_printed_and_in_the_report_and_in_json(cli: Cli, tmp_path: Path) -> None:
    arguments = [word for key, value in K4.items() for word in (f"--{key}", value)]
    done = cli("run", *arguments, "--scheme", "hedera", "--duration", "50ms", "--out", "out")
    assert "\nNote: scheme hedera: its period of 5s is longer" in done.out
    for name in ("report.html", "result.json"):
        assert "its period of 5s is longer" in (tmp_path / "out" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("worth", ["spt", "ecmp"])
def test_default_routes_are_all_there_is_to_some(worth: str) -> None:
    assert notes(schemes=[worth]) == []
