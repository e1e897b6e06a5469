"""Runs: one simulation each, spread over threads, in slices short enough to watch and to stop.

The simulator does not hold the interpreter while it runs, so threads are all it takes to use every core. What a run
gives depends on its settings and its seed alone: not on the number of threads, nor on how it was sliced.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pathloom import _core
from pathloom.experiments.settings import Settings

SLICE_WALL_S = 0.1
"""How long a slice should take: the time that Ctrl-C has to wait at most, or little more."""
FIRST_SLICES = 2000
"""The first slice is this part of the duration."""
SLICE_CHANGE_MOST = 4.0
"""Two neighbouring slices differ at most by this factor."""
LEAST_SLICE_S = 1e-8
"""Slices stay well above the simulator's nanosecond."""


@dataclass(frozen=True)
class Job:
    """One run of one scheme."""

    scheme: str
    run: int
    seed: int


@dataclass(frozen=True)
class RunOutcome:
    """What one run gave, as the simulator reports it."""

    job: Job
    outcome: dict[str, Any]
    wall_s: float


@dataclass(frozen=True)
class Wrappers:
    """Files that a run writes beside its result; for a single run only."""

    pcap: str | None = None
    event_log: str | None = None


Progress = Callable[[Job, float], None]
"""Called with the share (0..1) of a run that is done; from several threads."""


@dataclass
class Execution:
    """All runs of an experiment, in the order of the settings: schemes, and in each the runs."""

    settings: Settings
    fabric_text: str | None = None
    wrappers: Wrappers = Wrappers()
    outcomes: list[RunOutcome] = field(default_factory=list)
    interrupted: bool = False
    description: str = ""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepares the first run of every scheme, so that bad input is found before any run starts."""
        settings = self.settings
        self.jobs = [
            Job(scheme, run, settings.run_seed(run))
            for scheme in settings.schemes
            for run in range(1, settings.runs + 1)
        ]
        first = [job for job in self.jobs if job.run == 1]
        self._prepared = {job: self._simulation(job) for job in first}
        self.description = self._prepared[first[0]].description
        self.notes = self._prepared[first[0]].notes

    def _simulation(self, job: Job) -> _core.Simulation:
        settings = self.settings
        return _core.Simulation(
            json.dumps(
                {
                    "fabric": settings.fabric,
                    "fabric_text": self.fabric_text,
                    "traffic": settings.traffic,
                    "scheme": job.scheme,
                    "transport": settings.transport,
                    "control": settings.control,
                    "duration": settings.duration,
                    "seed": job.seed,
                    "faults": settings.faults,
                    "pcap": self.wrappers.pcap,
                    "event_log": self.wrappers.event_log,
                }
            )
        )

    def run(self, threads: int, progress: Progress = lambda _job, _share: None) -> None:
        """Carries out all runs on so many threads.

        After a Ctrl-C the runs under way are given up within a slice, `interrupted` is set, and `outcomes` holds the
        runs that were finished. An error in a run ends the others likewise and is raised.
        """
        stop = threading.Event()

        def carry_out(job: Job) -> RunOutcome | None:
            if stop.is_set():
                return None
            simulation = self._prepared.pop(job, None) or self._simulation(job)
            return _advance(simulation, job, self.settings.duration_s, stop, progress)

        with _threads(threads, stop) as pool:
            futures: list[Future[RunOutcome | None]] = [pool.submit(carry_out, job) for job in self.jobs]
            try:
                _wait(futures)
            except KeyboardInterrupt:
                self.interrupted = True
        results = (future.result() for future in futures if not future.cancelled())
        self.outcomes = [outcome for outcome in results if outcome is not None]


@contextmanager
def _threads(count: int, stop: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """A pool whose threads are told to stop, and awaited, on the way out."""
    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="run")
    try:
        yield pool
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _wait(futures: list[Future[RunOutcome | None]]) -> None:
    """Waits for all, and raises what the first failing one raised. Wakes up often, for Ctrl-C."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()


def _advance(
    simulation: _core.Simulation, job: Job, duration_s: float, stop: threading.Event, progress: Progress
) -> RunOutcome | None:
    """Advances a run to its end, slice by slice; None when it was stopped."""
    started = time.perf_counter()
    reached, slice_s = 0.0, duration_s / FIRST_SLICES
    while not simulation.done:
        if stop.is_set():
            return None
        slice_started = time.perf_counter()
        reached = simulation.advance(reached + slice_s)
        took = time.perf_counter() - slice_started
        ratio = SLICE_WALL_S / max(took, 1e-9)
        slice_s *= min(max(ratio, 1 / SLICE_CHANGE_MOST), SLICE_CHANGE_MOST)
        slice_s = max(slice_s, LEAST_SLICE_S)
        progress(job, min(reached / duration_s, 0.99))
    simulation.finish()
    outcome = simulation.outcome()
    progress(job, 1.0)
    return RunOutcome(job, outcome, time.perf_counter() - started)


def default_threads() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
