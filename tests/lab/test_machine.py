"""A promise of time is tried again only if the machine did not run. All other assertions fail the first time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from machine import (
    TRIES,
    LateError,
    Machine,
    MachineUsage,
    NotJudgedError,
    Tolerance,
    length_within_s,
    others_s,
    timing,
)
from pathloom.lab import system

RAN = MachineUsage(pauses_s=(), share=0.0, stolen_share=0.0)
STOOD_STILL = MachineUsage(pauses_s=(0.25,), share=0.0, stolen_share=0.0)


def stand_still(machine: Machine, seconds: float) -> None:
    """Stops the watchers, like a host that gives its processors to others."""
    for word in (signal.SIGSTOP, signal.SIGCONT):
        for watcher in machine.watchers:
            os.kill(watcher.pid, word)
        time.sleep(seconds if word == signal.SIGSTOP else 0)


@pytest.fixture
def broken(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str]]]:
    """Breaks a promise until try number `mended`, on a machine that behaved as given in each try.

    The behaviour is given, since no test can be sure of the machine that it runs on. Returns the number of tries, and
    the reasons for them.
    """

    def hold(*usages: MachineUsage, mended: int) -> tuple[int, list[str]]:
        tries, reasons = 0, []
        monkeypatch.setattr(machine, "measure", lambda: lambda: usages[tries - 1])

        def promise() -> None:
            nonlocal tries
            tries += 1
            with timing():
                assert tries >= mended, "in time"

        try:
            machine.hold(promise, Tolerance(), lambda _, why: reasons.append(why))
        except LateError as error:
            reasons.append(error.__notes__[0])
        return tries, reasons

    return hold


def test_a_promise_broken_while_the_machine_stood_still_is_retried(broken: Callable[..., Any]) -> None:
    tries, reasons = broken(STOOD_STILL, RAN, mended=2)
    assert tries == 2
    assert reasons == [f"the machine {STOOD_STILL}; broken was: in time"]


def test_a_promise_broken_on_a_machine_that_runs_fails_at_once(broken: Callable[..., Any]) -> None:
    tries, reasons = broken(RAN, mended=9)
    assert tries == 1
    assert reasons == [f"The machine {RAN}; this was try 1 of {TRIES}."]


def test_a_promise_broken_again_while_the_machine_runs_fails(broken: Callable[..., Any]) -> None:
    assert broken(STOOD_STILL, RAN, mended=9)[0] == 2


def test_a_promise_that_is_always_broken_fails(broken: Callable[..., Any]) -> None:
    tries, reasons = broken(*[STOOD_STILL] * TRIES, mended=9)
    assert (tries, len(reasons)) == (TRIES, TRIES)


def test_a_machine_that_stands_still_is_noticed(machine: Machine) -> None:
    end = machine.measure()
    stand_still(machine, 0.25)
    usage = end()
    assert max(usage.pauses_s) >= 0.24
    assert usage.excuses(Tolerance(pause_s=0.2))


@pytest.mark.parametrize(("end_s", "within_s"), [(9.9, 0.0), (10.0, 0.0), (10.1, 0.1), (10.25, 0.25), (12.0, 0.25)])
def test_a_pause_counts_from_the_start_of_the_measurement(end_s: float, within_s: float) -> None:
    assert length_within_s(10.0, end_s, 0.25) == pytest.approx(within_s)


@pytest.mark.parametrize(("least", "judged"), [(0.5, False), (0.1, True)])
def test_a_promise_is_not_judged_if_the_host_takes_the_machine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, least: float, judged: bool
) -> None:
    # A host that takes at least this share of all processors.
    monkeypatch.setattr(system, "stolen_s", lambda: least * (os.cpu_count() or 1) * time.monotonic())
    with pytest.raises(LateError if judged else NotJudgedError):
        machine.hold(lambda: late(machine), Tolerance(pause_s=0.15, share=0.05), lambda _number, _why: None)


def late(machine: Machine) -> None:
    stand_still(machine, 0.25)
    raise LateError("in time")


@pytest.mark.parametrize("broken", [AssertionError("a probe was lost"), RuntimeError("a crash")])
def test_an_invariant_broken_once_fails_even_if_the_machine_stood_still(machine: Machine, broken: Exception) -> None:
    tries = []

    def promise() -> None:
        tries.append(1)
        stand_still(machine, 0.25)
        raise broken

    with pytest.raises(type(broken), match=str(broken)):
        machine.hold(promise, Tolerance(), lambda _number, _why: None)
    assert len(tries) == 1


def test_only_assertions_within_timing_are_late() -> None:
    with pytest.raises(LateError, match="2 s"), timing():
        assert False, "2 s"  # noqa: B011
    with pytest.raises(KeyError), timing():
        raise KeyError("a crash")


def test_processor_time_of_others_is_distinguished_from_that_of_these_tests() -> None:
    loop = ["python3", "-c", "while True: pass"]
    ours = subprocess.Popen(loop)
    # Without the mark, this looks like a program that somebody else has started.
    other = subprocess.Popen(loop, env={"PATH": os.environ["PATH"]})
    try:
        found: dict[int, float] = {}
        deadline = time.monotonic() + 20
        while found.get(other.pid, 0.0) < 0.1:
            assert time.monotonic() < deadline
            time.sleep(0.1)
            found = {process: used_s for (process, _), used_s in others_s().items()}
        assert ours.pid not in found
        assert os.getpid() not in found
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()
