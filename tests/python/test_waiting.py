"""Waiting for events, by a clock that the tests advance."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from fake_clock import FakeClock
from pathloom.errors import ToolError
from pathloom.lab import controller, system
from pathloom.waiting import await_event


@pytest.mark.parametrize(
    ("happens_at_s", "patience_s", "seen", "ends_at_s"),
    [(0.0, 10.0, True, 0.0), (0.9, 10.0, True, 1.0), (10.0, 10.0, True, 10.0), (10.1, 10.0, False, 10.0)],
)
def test_an_event_is_seen_at_the_next_look_and_at_the_end(
    happens_at_s: float, patience_s: float, seen: bool, ends_at_s: float
) -> None:
    clock = FakeClock()
    assert await_event(lambda: clock.now_s() >= happens_at_s, patience_s, 0.5, clock) == seen
    assert clock.now_s() == pytest.approx(ends_at_s)


def test_it_looks_once_even_without_patience() -> None:
    clock = FakeClock()
    assert await_event(lambda: True, 0.0, 0.5, clock)
    assert not await_event(lambda: False, 0.0, 0.5, clock)
    assert not await_event(lambda: False, -1.0, 0.5, clock)
    assert clock.now_s() == 0.0


class Switches:
    """Switches that get their rules and sessions one by one: two at the beginning, one more with each look."""

    def __init__(self) -> None:
        self.looks = 0

    def rule_counts(self) -> dict[int, int]:
        """Returns how many rules each switch has."""
        self.looks += 1
        return {0: 2 + self.looks}


@pytest.mark.parametrize(("wanted", "ends_at_s"), [(3, 0.0), (13, 0.5), (10_000, controller.PATIENCE_S)])
def test_the_controller_has_a_minute_for_its_rules(tmp_path: Path, wanted: int, ends_at_s: float) -> None:
    clock, switches = FakeClock(), cast(Any, Switches())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        if ends_at_s < controller.PATIENCE_S:
            controller.await_routes(process, switches, tmp_path, {0: wanted}, clock)
        else:
            with pytest.raises(ToolError, match="has not set up the switches within 60 s"):
                controller.await_routes(process, switches, tmp_path, {0: wanted}, clock)
        process.kill()
    assert clock.now_s() == pytest.approx(ends_at_s)


def test_a_controller_that_ends_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "controller.log").write_text("no such scheme\n", encoding="utf-8")
    clock, switches = FakeClock(), cast(Any, Switches())
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        with pytest.raises(ToolError, match="the controller ended: no such scheme"):
            controller.await_routes(process, switches, tmp_path, {0: 10_000}, clock)
    assert clock.now_s() == 0.0


def test_a_process_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = FakeClock()
    monkeypatch.setattr(system, "processes_of", lambda _directory, _prefix: [4_194_305])
    monkeypatch.setattr(system, "is_over", lambda _process: False)
    with pytest.raises(ToolError, match="process 4194305 does not end"):
        system.end_processes(tmp_path, "x", clock=clock)
    assert clock.now_s() == pytest.approx(10.0)
