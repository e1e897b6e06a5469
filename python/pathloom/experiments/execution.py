"""Runs: one simulation each, spread over threads, in slices short enough to watch and to stop.

The simulator does not hold the interpreter while it runs, so threads are all it takes to use every core; a scheme
written in Python takes it for the moments in which it is asked, and needs no pickling. What a run
gives depends on its settings and its seed alone: not on the number of threads, nor on how it was sliced.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import SchemeError, ToolError, bad_input
from pathloom.experiments.python_schemes import PythonScheme
from pathloom.experiments.settings import DRAIN, FINISHED, Job, Settings
from pathloom.specs import SIM

Result = TypeVar("Result")

SLICE_WALL_S = 0.1
"""How long a slice should take: the time that Ctrl-C has to wait at most, or little more."""
FIRST_SLICES = 2000
"""The first slice is this part of the duration at most,"""
FIRST_SLICE_S = 1e-3
"""and no more than this of simulated time, which is soon done on any fabric."""
SLICE_CHANGE_MOST = 4.0
"""Two neighbouring slices differ at most by this factor."""
LEAST_SLICE_S = 1e-8
"""Slices stay well above the simulator's nanosecond."""
LONGEST_S = 200 * 86_400
"""What the simulator's clock holds, in seconds."""
MOST_DRAIN = 2**32 - 1
"""Longest drain that the simulator takes, in durations."""
SILENT_BACKOFFS = 3
"""With `until=finished` a run is given up when unfinished flows receive nothing for so many of the longest
retransmission time-outs: a flow with a working path has been tried again by then."""


@dataclass(frozen=True)
class Sample:
    """What had arrived by a moment of a run."""

    at_s: float
    delivered_bytes: int
    """Payload of all flows."""
    polling_period_s: float | None = None
    """Mean time between rounds of readings so far; None where there were not two, and in the lab, where only the end of
    a run tells."""


@dataclass(frozen=True)
class RunOutcome:
    """What one run gave, as the simulator reports it."""

    job: Job
    outcome: dict[str, Any]
    wall_s: float
    trouble: tuple[int, str, str] | None = None
    """Where a scheme in Python failed: how often, the first time in one line, and the traceback of that."""
    samples: tuple[Sample, ...] = ()
    """Taken at the times that the execution was given."""
    silent_s: float | None = None
    """How long nothing had arrived when the run was given up; None where it was not."""
    stolen_share: float = 0.0
    """What the host of a virtual machine gave to others of its processors' time during a run in the lab, 0 to 1."""


NOTED_STOLEN_SHARE = 0.05
"""Runs whose machine was kept from them for longer say so."""


def stolen_text(share: float) -> str:
    """Says what `RunOutcome.stolen_share` may have done.

    >>> stolen_text(0.3)
    "the host of this machine gave 30 % of its processors' time to others; a lab that lacks it carries less"
    """
    percent = f"{round(100 * share)} % of its processors' time"
    return f"the host of this machine gave {percent} to others; a lab that lacks it carries less"


@dataclass(frozen=True)
class Wrappers:
    """Files that a run writes beside its result; for a single run only."""

    pcap: str | None = None
    event_log: str | None = None

    def remove_partial(self) -> None:
        """Removes what a run that was given up may have left beside them."""
        for path in (self.pcap, self.event_log):
            if path is not None:
                with suppress(OSError):
                    Path(f"{path}.partial").unlink()


Progress = Callable[[Job, float], None]
"""Called with the share (0..1) of a run that is done; from several threads."""


class Execution:
    """All runs of an experiment, seed by seed, and in each seed the schemes in the order of the settings."""

    def __init__(
        self,
        settings: Settings,
        fabric_text: str | None,
        wrappers: Wrappers,
        in_python: Mapping[str, PythonScheme] | None = None,
        sample_at_s: Sequence[float] = (),
    ) -> None:
        """Prepares the first run of every scheme, so that bad input is found before any run starts.

        `sample_at_s` are moments of a run, ascending, at which what has arrived so far is noted.
        """
        self.settings = settings
        self.in_python = in_python or {}
        self.fabric_text = fabric_text
        self.wrappers = wrappers
        self.sample_at_s = tuple(sample_at_s)
        self.outcomes: list[RunOutcome] = []
        self.interrupted = False
        self.failure: SchemeError | ToolError | None = None
        """What ended it early: a scheme written in Python that failed, unless the settings say to keep going."""
        self.jobs = settings.jobs(SIM)
        first = [job for job in self.jobs if job.run == 1]
        self._prepared = interruptible(lambda: {job: self._simulation(job) for job in first})
        self.description = self._prepared[first[0]].description
        self.notes = self._prepared[first[0]].notes

    def _simulation(self, job: Job) -> _core.Simulation:
        return simulation(self.settings, self.fabric_text, job, self.wrappers, self.in_python.get(job.scheme))

    def run(
        self,
        threads: int,
        progress: Progress = lambda _job, _share: None,
        take: Callable[[RunOutcome], None] | None = None,
    ) -> None:
        """Carries out all runs on so many threads.

        With `take`, each run is given to it as soon as it is finished, from the thread that carried it out, and not
        kept in `outcomes`: thousands of large runs need not be held at once.

        After a Ctrl-C the runs under way are given up within a slice, `interrupted` is set, and `outcomes` holds the
        runs that were finished. A scheme that fails ends the runs likewise and is the `failure`, unless the settings
        say to keep going. Any other error in a run ends the others likewise and is raised.
        """
        stop, lock = threading.Event(), threading.Lock()
        todo = iter(self.jobs)
        finished: dict[Job, RunOutcome] = {}
        errors: list[BaseException] = []
        failures: dict[Job, SchemeError] = {}

        def work() -> None:
            while not stop.is_set():
                with lock:
                    job = next(todo, None)
                if job is None:
                    return
                try:
                    outcome = self._carry_out(job, stop, progress)
                    if outcome is not None and take is not None:
                        take(outcome)
                except SchemeError as error:
                    failures[job] = error
                    stop.set()
                    return
                except BaseException as error:
                    errors.append(error)
                    stop.set()
                    return
                if outcome is not None and take is None:
                    finished[job] = outcome

        workers = [_Worker(work, f"run-{number}") for number in range(threads)]
        try:
            for worker in workers:
                worker.start()
            _await(workers)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            stop.set()
            # A Ctrl-C may have come between two of them. One that has not begun by now finds that it should stop.
            _await([worker for worker in workers if worker.begun.is_set()])
            # Those that nobody came to would keep their half-written files.
            self._prepared.clear()
        if errors:
            raise errors[0]
        self.failure = next((failures[job] for job in self.jobs if job in failures), None)
        self.outcomes = [finished[job] for job in self.jobs if job in finished]

    def _carry_out(self, job: Job, stop: threading.Event, progress: Progress) -> RunOutcome | None:
        try:
            simulation = self._prepared.pop(job, None) or self._simulation(job)
        except PathloomError as error:
            raise bad_input(f"run {job.run} of {job.scheme} (seed {job.seed}): {error}") from None
        return _advance(simulation, job, self.settings, self.sample_at_s, stop, progress)


def simulation(
    settings: Settings, fabric_text: str | None, job: Job, wrappers: Wrappers, in_python: PythonScheme | None = None
) -> _core.Simulation:
    """Prepares a run: its flows are drawn and default routes stand. Raises `PathloomError` on bad input.

    `in_python` stands in for the scheme that the job names.
    """
    return _core.Simulation(
        json.dumps(
            {
                "fabric": settings.fabric,
                "fabric_text": fabric_text,
                "traffic": settings.traffic,
                "scheme": job.scheme,
                "transport": settings.transport,
                "control": settings.control,
                "duration": settings.duration,
                "drain": drain(settings),
                "seed": job.seed,
                "faults": settings.faults,
                "pcap": wrappers.pcap,
                "event_log": wrappers.event_log,
            }
        ),
        in_python.instance(job.seed) if in_python is not None else None,
        (lambda: in_python.instance(job.seed)) if in_python is not None else None,
    )


def drain(settings: Settings) -> int:
    """How many durations flows under way have to finish at most.

    >>> drain(Settings.of({"fabric": "diamond", "traffic": "long-lived", "schemes": ("ecmp",), "duration": "1s"}))
    5
    """
    if settings.until != FINISHED:
        return DRAIN
    return min(max(int(LONGEST_S / settings.duration_s) - 1, DRAIN), MOST_DRAIN)


def interruptible(call: Callable[[], Result]) -> Result:
    """Makes a call into the core on another thread, so that Ctrl-C is answered while it lasts."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    worker = _Worker(work, "prepare")
    worker.start()
    _await([worker])
    if errors:
        raise errors[0]
    return results[0]


class _Worker:
    """A thread that tells when it has begun and when it has ended.

    `Thread.join` will not do: a Ctrl-C that comes in it makes Python 3.11 take a thread that still runs for one that
    has ended.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._whole, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _whole(self) -> None:
        self.begun.set()
        try:
            self._work()
        finally:
            self.ended.set()


def _await(workers: Sequence[_Worker]) -> None:
    """Waits for threads to end, and wakes up often: Python answers Ctrl-C between two waits."""
    for worker in workers:
        while not worker.ended.wait(0.1):
            pass


def _advance(
    simulation: _core.Simulation,
    job: Job,
    settings: Settings,
    sample_at_s: Sequence[float],
    stop: threading.Event,
    progress: Progress,
) -> RunOutcome | None:
    """Advances a run to its end, slice by slice; None when it was stopped. Raises `SchemeError`."""
    started, duration_s = time.perf_counter(), settings.duration_s
    reached, slice_s = 0.0, min(duration_s / FIRST_SLICES, FIRST_SLICE_S)
    samples: list[Sample] = []
    silence = _Silence(settings) if settings.until == FINISHED else None
    while not simulation.done:
        _check_scheme(simulation, job, settings)
        if stop.is_set():
            return None
        if silence is not None and silence.is_too_long(simulation, reached):
            break
        slice_started = time.perf_counter()
        due = sample_at_s[len(samples)] if len(samples) < len(sample_at_s) else math.inf
        look_s = silence.look_s if silence is not None else math.inf
        reached = simulation.advance(min(reached + slice_s, due, look_s))
        if reached >= due - LEAST_SLICE_S:  # The simulator's clock is in whole nanoseconds.
            samples.append(_sample(simulation, due))
            continue
        took = time.perf_counter() - slice_started
        ratio = SLICE_WALL_S / max(took, 1e-9)
        slice_s *= min(max(ratio, 1 / SLICE_CHANGE_MOST), SLICE_CHANGE_MOST)
        slice_s = max(slice_s, LEAST_SLICE_S)
        progress(job, min(reached / duration_s, 0.99))
    _check_scheme(simulation, job, settings)
    silent_s = None if simulation.done or silence is None else silence.limit_s
    simulation.finish()
    outcome = simulation.outcome()
    # A run that ends early delivers nothing more.
    samples += [_sample(simulation, at_s) for at_s in sample_at_s[len(samples) :]]
    progress(job, 1.0)
    took_s = time.perf_counter() - started
    return RunOutcome(job, outcome, took_s, simulation.troubles, tuple(samples), silent_s)


def _check_scheme(simulation: _core.Simulation, job: Job, settings: Settings) -> None:
    """Raises `SchemeError` when the scheme, written in Python, has failed and nobody said to keep going."""
    if settings.keep_going or simulation.troubles is None:
        return
    _, line, traceback = simulation.troubles
    text = " ".join(f"scheme {job.scheme} failed in run {job.run} (seed {job.seed}): {line}".split())
    raise SchemeError(text, traceback)


class _Silence:
    """Finds out that unfinished flows receive nothing any more, once the usual drain and all faults are over.

    It looks at set times of the run, so that what it finds does not depend on how the run is sliced.
    """

    def __init__(self, settings: Settings) -> None:
        self.limit_s = SILENT_BACKOFFS * _core.transport_settings(settings.transport)["max_rto"] / 1e9
        """A run is given up when nothing arrived for so long."""
        usual_s = settings.duration_s * (1 + DRAIN)
        self.look_s = max([usual_s, *map(fault_time_s, settings.faults)])
        """When it looks next."""
        self._arrived_bytes = -1

    def is_too_long(self, simulation: _core.Simulation, now_s: float) -> bool:
        """Whether nothing arrived between the last two looks."""
        if now_s < self.look_s - LEAST_SLICE_S:
            return False
        flows = simulation.outcome()["flows"]
        arrived_bytes = int(flows["delivered_bytes"][flows["size_bytes"] >= 0].sum())
        silent = arrived_bytes == self._arrived_bytes
        self.look_s, self._arrived_bytes = self.look_s + self.limit_s, arrived_bytes
        return silent


def fault_time_s(fault: str) -> float:
    """When a fault, `10s:down:c0`, happens.

    >>> fault_time_s("300ms:down:e0_0-a0_1")
    0.3
    """
    return _core.parse_time_s(fault.partition(":")[0].strip())


def _sample(simulation: _core.Simulation, at_s: float) -> Sample:
    outcome = simulation.outcome()
    return Sample(at_s, int(outcome["flows"]["delivered_bytes"].sum()), outcome["control"]["polling_period_s"])


def default_threads() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
