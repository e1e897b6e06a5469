"""`pathloom bench faults`: random schedules of faults in virtual time, and the promises that they break."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pathloom import _core, native

BATCH = 8
"""Schedules over OpenFlow that one process runs."""

Judge = Callable[[list[int]], Iterable[tuple[int, list[str]]]]
"""Runs the schedules of consecutive seeds; returns the promises that each breaks."""


@dataclass
class Findings:
    """Results of the schedules."""

    seed: int
    everything: bool = False
    over_openflow: bool = False
    schedules: int = 0
    wall_s: float = 0.0
    broken: dict[int, list[str]] = field(default_factory=dict)
    """Promises that a schedule broke, by its seed."""

    def command(self, seed: int) -> str:
        """The command that repeats a schedule."""
        flags = [(" --everything", self.everything), (" --over-openflow", self.over_openflow)]
        return f"pathloom bench faults --seed {seed} --schedules 1" + "".join(flag for flag, given in flags if given)

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


def in_simulator(everything: bool) -> Judge:
    """Schedules in the simulator, where the controller gets decoded inputs."""

    def judge(seeds: list[int]) -> Iterable[tuple[int, list[str]]]:
        for own in seeds:
            try:
                lines, _ = _core.fault_schedule(own, everything)
            except Exception as error:
                lines = [f"the simulator failed: {error}"]
            yield own, lines

    return judge


def over_openflow() -> Judge:
    """Schedules of the live controller without its sockets, with switches that speak OpenFlow."""

    def judge(seeds: list[int]) -> Iterable[tuple[int, list[str]]]:
        done = run_over_openflow(seeds[0], len(seeds))
        rows = {row["seed"]: row["broken"] for row in map(json.loads, done.stdout.splitlines())}
        failed = [f"{native.BENCH} ended with status {done.returncode}: {done.stderr.strip()[-500:]}"]
        return [(own, rows.get(own, failed)) for own in seeds]

    return judge


def run_over_openflow(seed: int, count: int, *sabotage: str) -> subprocess.CompletedProcess[str]:
    """Runs the schedules of `seed` and the following seeds: a line of JSON for each.

    `sabotage` names what is broken on purpose, for tests of the bench.
    """
    words = [native.program(native.BENCH), "faults", str(seed), str(count), *sabotage]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def smallest(seed: int, everything: bool, openflow: bool) -> str:
    """The smallest form of a schedule that breaks the same promise, as text; empty if it breaks none."""
    if not openflow:
        return _core.fault_schedule(seed, everything, True)[1].rstrip()
    lines = run_over_openflow(seed, 1).stdout.splitlines()
    form = json.loads(lines[0])["smallest"] if lines else None
    return json.dumps(form) if form else ""


def measure(
    seed: int,
    duration_s: float,
    schedules: int | None,
    jobs: int,
    everything: bool = False,
    openflow: bool = False,
    report: Callable[[int, list[str]], None] = lambda _seed, _lines: None,
) -> Findings:
    """Runs the schedules of `seed`, `seed + 1` and so on, on `jobs` threads.

    It ends after `duration_s` of wall-clock time or, if `schedules` is given, after that many schedules. `report` is
    called for each schedule that broke a promise.
    """
    findings = Findings(seed, everything, openflow)
    judge, batch = (over_openflow(), BATCH) if openflow else (in_simulator(everything), 1)
    seeds = itertools.count(seed) if schedules is None else iter(range(seed, seed + schedules))
    began = time.monotonic()
    lock = threading.Lock()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set() and (schedules is not None or time.monotonic() - began < duration_s):
            with lock:
                batch_seeds = list(itertools.islice(seeds, batch))
            if not batch_seeds:
                return
            for own, lines in judge(batch_seeds):
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
