"""Whether the machine itself ran while a test measured: virtual processors stand still, or others use them.

Some tests promise a time or a rate (up in 5 s, 95 % of a link, no time-out of TCP). Only a machine that runs can keep
such a promise. So one watcher per processor sleeps a few milliseconds at a time, with the priority that the lab's
switches have, and notes when it woke up late. The processor time that the host and other people's processes took is
counted too. A test marks each promise of time by itself:

    with timing():
        assert up.took_s < 5

A promise of time that is broken while the machine stood still for longer than the test bears is tried again. It fails
when it is broken on a machine that ran, or in every try. Where the host kept a large part of the machine in each try,
the promise was not judged, and the test says so. Everything else that a test asserts is an invariant (no lost probe, no
rule left behind, no crash): it fails the first time it is broken, whatever the machine did.

Usage as a program, of the watchers: machine.py PROCESSOR FILE.
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
HOPELESS_SHARE = 0.3
"""A host that takes so much of the processors in every try leaves nothing to judge by."""
_NAP_S = 0.003
_NOTED_S = 0.01
"""Pauses from this long on are noted."""
_CALM_S, _PATIENCE_S = 0.3, 15.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Bears:
    """What a promise bears of the machine."""

    pause_s: float = 0.05
    """A processor that stands still for so long. After a few tens of milliseconds, queues of the lab overflow."""
    share: float = 0.15
    """What the host and other processes take of the processors."""


@dataclass(frozen=True)
class Stretch:
    """What the machine did for a while."""

    pauses_s: Sequence[float]
    """How long processors stood still, each time."""
    share: float
    """Of the processors' time, what the host (steal) and processes took that these tests have not started."""
    stolen_share: float
    """What of it the host took."""

    def excuses(self, bears: Bears) -> bool:
        """Whether a promise can be broken though nothing is wrong."""
        return max(self.pauses_s, default=0.0) > bears.pause_s or self.share > bears.share

    def __str__(self) -> str:
        longest_ms = 1e3 * max(self.pauses_s, default=0.0)
        return f"stood still for {longest_ms:.0f} ms at most, others took {self.share:.0%} of its processors"


class LateError(AssertionError):
    """A promise of time was broken."""


@contextmanager
def timing() -> Iterator[None]:
    """What is asserted inside is a promise of time, which a machine that stands still cannot keep.

    Only what times, rates or timers decide belongs inside. Put it after the invariants of a test, so that a try that is
    late still has them checked.
    """
    try:
        yield
    except AssertionError as error:
        raise LateError(*error.args) from error


class NotJudgedError(Exception):
    """The host kept a large part of the machine in each of the tries."""


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
        """How long processors stood still from a time on, of the monotonic clock."""
        # Who stands still notes it afterwards.
        time.sleep(10 * _NAP_S)
        lines = [line.split() for file in self._files for line in file.read_text(encoding="ascii").splitlines()]
        return [float(length_s) for end_s, length_s in lines if float(end_s) > since_s]

    def await_calm(self, bears: Bears) -> None:
        """Waits until the machine has run for a moment, though not for long."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            started = time.monotonic()
            time.sleep(_CALM_S)
            if max(self.pauses_s(started), default=0.0) < bears.pause_s:
                return

    def measure(self) -> Callable[[], Stretch]:
        """Begins a stretch; what it returns ends it."""
        started, stolen, others = time.monotonic(), system.stolen_s(), others_s()

        def end() -> Stretch:
            there_s = (time.monotonic() - started) * len(self._files)
            stolen_s = system.stolen_s() - stolen
            taken_s = stolen_s + sum(used - others.get(process, 0.0) for process, used in others_s().items())
            return Stretch(self.pauses_s(started), taken_s / there_s, stolen_s / there_s)

        return end

    def hold(self, promise: Callable[[], object], bears: Bears, again: Callable[[int, str], None]) -> None:
        """Runs `promise`; again, up to `TRIES` times, when it was late (`LateError`) while the machine did not run.

        Before each further try, `again` is called with its number and the reason. Raises what the last try raised, or
        `NotJudgedError`. Any other exception is raised at once.
        """
        stolen_shares = []
        for number in range(1, TRIES + 1):
            end = self.measure()
            try:
                promise()
                return
            except LateError as error:
                stretch = end()
                stolen_shares.append(stretch.stolen_share)
                if number == TRIES and min(stolen_shares) > HOPELESS_SHARE:
                    least = f"{min(stolen_shares):.0%} of the machine or more"
                    raise NotJudgedError(f"the host took {least} in each of {TRIES} tries") from error
                if number == TRIES or not stretch.excuses(bears):
                    error.add_note(f"The machine {stretch}; this was try {number} of {TRIES}.")
                    raise
                said = (str(error) or type(error).__name__).splitlines()[0]
                why = f"the machine {stretch}; broken was: {said}"
            self.await_calm(bears)
            again(number + 1, why)


def others_s() -> dict[tuple[int, str], float]:
    """Seconds that processes have used which these tests have not started, by process and time of its start."""
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
        # What has no environment is the kernel's own, working for whoever asked, or about to go.
        if environment and not any(one.startswith(mark) for one in environment.split(b"\0")):
            found[int(entry.name), words[19]] = (int(words[11]) + int(words[12])) * _TICK_S
    return found


def watch(processor: int, file: Path) -> None:
    """Notes when this processor stood still, line by line: when that ended, and how long it was."""
    os.sched_setaffinity(0, {processor})
    system.run_at_once(os.getpid())
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
