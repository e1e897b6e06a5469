"""The TCP connections that programs open, as the kernel reports them (`pathloom-hostd opened`).

The library of `with-paths` (crates/preload) sees only calls of the C library. The kernel sees every connection of the
programs in a cgroup: also those of static programs, and of programs that call the kernel by themselves, such as those
in Go. This needs root.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Self

from pathloom.native import find

PROGRAM = "pathloom-hostd"
_END_S = 10.0
_MOST_EXPECTED = 65_536


class KernelReports:
    """Reports of the connections of the programs that this process starts between `start` and `leave`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._early: list[str] = []

    @classmethod
    def start(cls) -> Self | str:
        """Starts the reports, and moves this process into their cgroup. Returns why this is not possible, if so."""
        program = find(PROGRAM)
        if program is None:
            return f"{PROGRAM} is not installed"
        pipe = subprocess.PIPE
        words = [program, "opened", str(os.getpid())]
        # In a session of its own: Ctrl-C is for the command, which may go on.
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            said = process.communicate(timeout=_END_S)[1].strip().splitlines()
            return said[-1].removeprefix(f"{PROGRAM}: ") if said else f"`{PROGRAM}` ended at once"
        return cls(process)

    def leave(self) -> None:
        """Moves this process back into its own cgroup. Programs that it has started stay in that of the reports."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.write("leave\n")
            self._process.stdin.flush()
        for line in iter(self._process.stdout.readline, ""):
            if line == "left\n":
                return
            self._early.append(line)

    def lines(self) -> Iterator[list[str]]:
        """Yields the words of each report, until `end` is called, by another thread, and everything was reported."""
        assert self._process.stdout is not None
        with self._process.stdout as out:
            for line in chain(self._early, out):
                yield line.split()

    def cancel(self) -> None:
        """Ends the reports that nobody reads."""
        self.end()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def end(self) -> None:
        """Ends the reports. The cgroup is removed; programs that still run in it move out of it."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


class Expected:
    """What the library has reported, and the kernel will report again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *words: str) -> None:
        """Adds a report of the library."""
        with self._lock:
            # What was not reported again, such as a connection without a route, must not stay for ever.
            if len(self._counts) >= _MOST_EXPECTED:
                del self._counts[next(iter(self._counts))]
            self._counts[words] = self._counts.get(words, 0) + 1

    def take(self, *words: str) -> bool:
        """Returns whether a report of the kernel was expected."""
        with self._lock:
            count = self._counts.pop(words, 0)
            if count > 1:
                self._counts[words] = count - 1
        return count > 0
