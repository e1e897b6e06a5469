"""Checks whether the machine itself ran during a test: virtual processors may stand still, or others may use them.

Some tests promise a time or a rate (up in 5 s, 95 % of a link, no time-out of TCP). Only a machine that runs can keep
such a promise. So one watcher per processor sleeps a few milliseconds at a time, with the priority of the lab's
switches, and records when it woke up late. The processor time that the host and processes of others took is counted
too. A test marks each promise of time:

    with timing():
        assert up.took_s < 5

If a promise of time is broken while the machine stood still for longer than the test tolerates, the test is tried
again. It fails if the promise is broken on a machine that ran, or in every try. If the host took a large part of the
machine in each try, the promise was not judged, and the test reports that. All other assertions of a test are
invariants (no lost probe, no rule left, no crash). They fail the first time they are broken, whatever the machine did.

Usage as a program, for the watchers: machine.py PROCESSOR FILE.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pathloom.lab import system

TRIES = 4
MARK = "PATHLOOM_TESTS"
"""Environment variable of every process that these tests start."""
MOST_STOLEN_SHARE = 0.3
"""If the host takes more than this share of the processors in every try, a test cannot be judged."""
_NAP_S = 0.003
_NOTED_S = 0.01
"""Pauses from this length on are recorded."""
_CALM_S, _PATIENCE_S = 0.3, 15.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Tolerance:
    """What a promise tolerates of the machine."""

    pause_s: float = 0.05
    """Longest pause of a processor. After a few tens of milliseconds, queues of the lab overflow."""
    share: float = 0.15
    """Largest share of the processors that the host and other processes take."""


@dataclass(frozen=True)
class MachineUsage:
    """The behaviour of the machine during a time."""

    pauses_s: Sequence[float]
    """Length of each pause of a processor."""
    share: float
    """Share of processor time of the host (steal) and of processes that these tests have not started."""
    stolen_share: float
    """Share of processor time of the host."""

    def excuses(self, tolerance: Tolerance) -> bool:
        """Returns whether a promise may be broken although the tested program is right."""
        return max(self.pauses_s, default=0.0) > tolerance.pause_s or self.share > tolerance.share

    def __str__(self) -> str:
        longest_ms = 1e3 * max(self.pauses_s, default=0.0)
        return f"stood still for {longest_ms:.0f} ms at most, others took {self.share:.0%} of its processors"


class LateError(AssertionError):
    """A promise of time was broken."""


@contextmanager
def timing() -> Iterator[None]:
    """Marks the assertions inside as promises of time, which a machine that stands still cannot keep.

    Only assertions about times, rates or timers belong inside. Put them after the invariants of a test, so that a late
    try still checks these.
    """
    try:
        yield
    except AssertionError as error:
        raise LateError(*error.args) from error


class NotJudgedError(Exception):
    """The host took a large part of the machine in each of the tries."""


class Machine:
    """Watches this machine, from its creation until it is closed."""

    def __init__(self, directory: Path) -> None:
        self._files = [directory / f"processor-{number}" for number in sorted(os.sched_getaffinity(0))]
        self.watchers = [
            subprocess.Popen(
                [sys.executable, __file__, file.name.rpartition("-")[2], str(file)], start_new_session=True
            )
            for file in self._files
        ]
        deadline = time.monotonic() + 20
        while not all(file.exists() for file in self._files):
            assert time.monotonic() < deadline, "the watchers of the machine did not start"
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for watcher in self.watchers:
            watcher.kill()
            watcher.wait()

    def pauses_s(self, since_s: float) -> list[float]:
        """Returns the lengths of pauses of processors after a time of the monotonic clock."""
        # A watcher records a pause after its end.
        time.sleep(10 * _NAP_S)
        lines = [line.split() for file in self._files for line in file.read_text(encoding="ascii").splitlines()]
        lengths_s = [length_within_s(since_s, float(end_s), float(length_s)) for end_s, length_s in lines]
        return [length_s for length_s in lengths_s if length_s > 0]

    def await_calm(self, tolerance: Tolerance) -> None:
        """Waits until the machine has run for a short time, up to a limit."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            started = time.monotonic()
            time.sleep(_CALM_S)
            if max(self.pauses_s(started), default=0.0) < tolerance.pause_s:
                return

    def measure(self) -> Callable[[], MachineUsage]:
        """Begins a measurement. Returns the function that ends it."""
        started, stolen, others = time.monotonic(), system.stolen_s(), others_s()

        def end() -> MachineUsage:
            there_s = (time.monotonic() - started) * len(self._files)
            stolen_s = system.stolen_s() - stolen
            taken_s = stolen_s + sum(used - others.get(process, 0.0) for process, used in others_s().items())
            return MachineUsage(self.pauses_s(started), taken_s / there_s, stolen_s / there_s)

        return end

    def hold(self, promise: Callable[[], object], tolerance: Tolerance, again: Callable[[int, str], None]) -> None:
        """Runs `promise`, up to `TRIES` times if it was late (`LateError`) while the machine did not run.

        Before each further try, `again` is called with its number and the reason. Raises the exception of the last try,
        or `NotJudgedError`. Any other exception is raised at once.
        """
        stolen_shares = []
        for number in range(1, TRIES + 1):
            end = self.measure()
            try:
                promise()
                return
            except LateError as error:
                usage = end()
                stolen_shares.append(usage.stolen_share)
                if number == TRIES and min(stolen_shares) > MOST_STOLEN_SHARE:
                    least = f"{min(stolen_shares):.0%} of the machine or more"
                    raise NotJudgedError(f"the host took {least} in each of {TRIES} tries") from error
                if number == TRIES or not usage.excuses(tolerance):
                    error.add_note(f"The machine {usage}; this was try {number} of {TRIES}.")
                    raise
                said = (str(error) or type(error).__name__).splitlines()[0]
                why = f"the machine {usage}; broken was: {said}"
            self.await_calm(tolerance)
            again(number + 1, why)


def length_within_s(since_s: float, end_s: float, length_s: float) -> float:
    """Returns how much of a pause lies after a time. What came before belongs to whatever was measured then."""
    return min(length_s, max(end_s - since_s, 0.0))


def others_s() -> dict[tuple[int, str], float]:
    """Returns the processor time of processes that these tests have not started, by number and start of the process."""
    mark, found = f"{MARK}=".encode(), {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{entry.name}/environ").read_bytes()
            fields = Path(f"/proc/{entry.name}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        words = fields.rpartition(")")[2].split()
        # A process without an environment is a thread of the kernel, or is about to end.
        if environment and not any(one.startswith(mark) for one in environment.split(b"\0")):
            found[int(entry.name), words[19]] = (int(words[11]) + int(words[12])) * _TICK_S
    return found


def watch(processor: int, file: Path) -> None:
    """Records pauses of this processor in lines with the end and the length of each."""
    os.sched_setaffinity(0, {processor})
    system.give_priority(os.getpid())
    parent = os.getppid()
    with file.open("w", encoding="ascii", buffering=1) as out:
        before = time.monotonic()
        while os.getppid() == parent:
            time.sleep(_NAP_S)
            now = time.monotonic()
            if now - before - _NAP_S > _NOTED_S:
                out.write(f"{now} {now - before - _NAP_S}\n")
            before = now


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
