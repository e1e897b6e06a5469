"""`pathloom bench faults`: random schedules of faults in simulated time, and the promises that they break."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pathloom import _core


@dataclass
class Findings:
    """Results of the schedules."""

    seed: int
    everything: bool = False
    schedules: int = 0
    wall_s: float = 0.0
    broken: dict[int, list[str]] = field(default_factory=dict)
    """Promises that a schedule broke, by its seed."""

    def command(self, seed: int) -> str:
        """The command that repeats a schedule."""
        return f"pathloom bench faults --seed {seed} --schedules 1{' --everything' if self.everything else ''}"

    def as_json(self) -> dict[str, Any]:
        """The figures, and the broken promises of each schedule."""
        return {
            "schedules": self.schedules,
            "violations": len(self.broken),
            "per_hour": self.per_hour,
            "seed": self.seed,
            "findings": [
                {"seed": seed, "broken": lines, "command": self.command(seed)}
                for seed, lines in sorted(self.broken.items())
            ],
        }

    @property
    def per_hour(self) -> int:
        """Schedules in an hour of wall-clock time."""
        return round(self.schedules / self.wall_s * 3600) if self.wall_s > 0 else 0


def measure(
    seed: int,
    duration_s: float,
    schedules: int | None,
    jobs: int,
    everything: bool = False,
    report: Callable[[int, list[str]], None] = lambda _seed, _lines: None,
) -> Findings:
    """Runs the schedules of `seed`, `seed + 1` and so on, on `jobs` threads.

    It ends after `duration_s` of wall-clock time or, if `schedules` is given, after that many schedules. `report` is
    called for each schedule that broke a promise.
    """
    findings = Findings(seed, everything)
    seeds = itertools.count(seed) if schedules is None else iter(range(seed, seed + schedules))
    began = time.monotonic()
    lock = threading.Lock()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set() and (schedules is not None or time.monotonic() - began < duration_s):
            with lock:
                own = next(seeds, None)
            if own is None:
                return
            try:
                lines, _ = _core.fault_schedule(own, everything)
            except Exception as error:
                lines = [f"the simulator failed: {error}"]
            with lock:
                findings.schedules += 1
                if lines:
                    findings.broken[own] = lines
                    report(own, lines)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work) for _ in range(jobs)]
        try:
            for future in futures:
                future.result()
        finally:
            stop.set()
    findings.wall_s = time.monotonic() - began
    return findings
