"""A promise is tried again only where the machine did not run, and fails all the same when it is broken each time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from machine import TRIES, Bears, Machine, NotJudgedError, others_s
from pathloom.lab import system

QUIET = Bears(pause_s=0.15, share=2.0)
"""Bears all but what these tests do to the watchers."""


def stand_still(machine: Machine, seconds: float) -> None:
    """Stops the watchers, as a host that gives its processors to others does."""
    for word in (signal.SIGSTOP, signal.SIGCONT):
        for watcher in machine.watchers:
            os.kill(watcher.pid, word)
        time.sleep(seconds if word == signal.SIGSTOP else 0)


def broken(machine: Machine, still_s: Callable[[int], float], mended: int) -> tuple[int, list[str]]:
    """Breaks a promise until a try; returns how often it was tried, and why again."""
    tries, reasons = 0, []

    def promise() -> None:
        nonlocal tries
        tries += 1
        stand_still(machine, still_s(tries))
        assert tries >= mended, "nothing lost"

    try:
        machine.hold(promise, QUIET, lambda _, why: reasons.append(why))
    except AssertionError as error:
        reasons.append(error.__notes__[0])
    return tries, reasons


def test_a_promise_broken_while_the_machine_stood_still_is_tried_again(machine: Machine) -> None:
    tries, reasons = broken(machine, lambda _: 0.25, mended=2)
    assert tries == 2
    assert "broken was: nothing lost" in reasons[0]
    assert int(reasons[0].partition("stood still for ")[2].partition(" ms")[0]) >= 240


def test_a_promise_broken_on_a_machine_that_runs_fails_at_once(machine: Machine) -> None:
    tries, reasons = broken(machine, lambda _: 0.0, mended=9)
    assert tries == 1
    assert f"this was try 1 of {TRIES}" in reasons[0]


def test_a_promise_that_is_broken_again_when_the_machine_runs_fails(machine: Machine) -> None:
    assert broken(machine, lambda tries: 0.25 if tries == 1 else 0.0, mended=9)[0] == 2


def test_a_promise_that_is_always_broken_fails(machine: Machine) -> None:
    tries, reasons = broken(machine, lambda _: 0.25, mended=9)
    assert (tries, len(reasons)) == (TRIES, TRIES)


@pytest.mark.parametrize(("least", "judged"), [(0.5, False), (0.1, True)])
def test_a_promise_that_nobody_could_keep_is_not_judged(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, least: float, judged: bool
) -> None:
    # A host that takes so much of all processors, or more.
    monkeypatch.setattr(system, "stolen_s", lambda: least * (os.cpu_count() or 1) * time.monotonic())
    with pytest.raises(AssertionError if judged else NotJudgedError):
        machine.hold(lambda: broken_promise(machine), Bears(pause_s=0.15, share=0.05), lambda _number, _why: None)


def broken_promise(machine: Machine) -> None:
    stand_still(machine, 0.25)
    raise AssertionError("nothing lost")


def test_what_others_take_is_told_from_what_these_tests_take() -> None:
    loop = ["python3", "-c", "while True: pass"]
    ours = subprocess.Popen(loop)
    # As a program that somebody else has started.
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


def test_this_folder_s_tests_are_tried_again(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("x", encoding="ascii")
    if tmp_path.name != "try-2":
        # Longer than any test bears.
        stand_still(machine, 0.25)
    assert tmp_path.name == "try-2"
    assert (tmp_path.parent / "seen").exists()
