"""Runs: one simulation each, in slices that are short enough to report progress and to stop.

The outcome of a run depends only on its settings and its seed, not on the number of threads or on the slices. A scheme
written in Python holds the interpreter lock only while it is called.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import SchemeError, ToolError, bad_input
from pathloom.experiments.results.series import Recorder
from pathloom.experiments.running.memory import check_room
from pathloom.experiments.running.threads import Runner, Take, Threads, Work, interruptible
from pathloom.experiments.schemes.loading import PythonScheme
from pathloom.experiments.settings.identity import digests, identity
from pathloom.experiments.settings.model import DRAIN, FINISHED, Job, Settings
from pathloom.experiments.settings.timeouts import default_min_rto_ns
from pathloom.specs import SIM

if TYPE_CHECKING:
    from pathloom.experiments.running.store import Store

SLICE_WALL_S = 0.1
"""Target duration of a slice. Ctrl-C waits at most this long, or little more."""
FIRST_SLICES = 2000
"""The first slice is at most the duration over this number,"""
FIRST_SLICE_S = 1e-3
"""and at most this simulated time, which takes little time on any fabric."""
SLICE_CHANGE_MOST = 4.0
"""Two consecutive slices differ at most by this factor."""
LEAST_SLICE_S = 1e-8
"""Shortest slice: well above the simulator's clock unit of a nanosecond."""
LONGEST_S = 200 * 86_400
"""Longest time that the simulator's clock can represent, in seconds."""
MOST_DRAIN = 2**32 - 1
"""Longest drain that the simulator accepts, in durations."""
_NO_FLOWS = "the traffic has no flows; raise --duration or the load"
"""The core's message if no flow starts. `_as_given` adapts it to the words of the settings."""
SILENT_BACKOFFS = 3
"""With `until=finished` a run is abandoned if unfinished flows receive nothing for this many of the longest
retransmission time-outs: any flow with a working path has been retransmitted by then."""


@dataclass(frozen=True)
class Sample:
    """The data that had arrived by a time of a run."""

    at_s: float
    delivered_bytes: int
    """Payload bytes of all flows."""
    polling_period_s: float | None = None
    """Mean time between rounds of readings so far; None before the second round, and in the lab, where only the end of
    a run gives it."""


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run, as the simulator reports it."""

    job: Job
    outcome: dict[str, Any]
    wall_s: float
    trouble: tuple[int, str, str] | None = None
    """Failures of a scheme in Python: how often it failed, the first failure in one line, and its traceback."""
    samples: tuple[Sample, ...] = ()
    """Samples at the times `sample_at_s` of the execution."""
    silent_s: float | None = None
    """How long nothing had arrived when the run was abandoned; None if it was not."""
    stolen_share: float = 0.0
    """Share of processor time that the host of this virtual machine gave to others during a run in the lab, 0 to 1."""
    description: str = ""
    """The traffic generated for the run: parameters, sources of tables, load achieved."""
    notes: tuple[str, ...] = ()
    """What a reader should know about the workload."""


NOTED_STOLEN_SHARE = 0.05
"""A run with a larger `stolen_share` gets a note."""


def stolen_text(share: float) -> str:
    """Describes the possible effect of `RunOutcome.stolen_share`.

    >>> stolen_text(0.3)
    "the host of this machine gave 30 % of its processors' time to others, so the lab may carry less traffic"
    """
    percent = f"{round(100 * share)} % of its processors' time"
    return f"the host of this machine gave {percent} to others, so the lab may carry less traffic"


@dataclass(frozen=True)
class RunFiles:
    """Files that a run writes in addition to its result; only for a single run."""

    pcap: str | None = None
    event_log: str | None = None

    def remove_partial(self) -> None:
        """Removes partial files that an abandoned run may have left."""
        for path in (self.pcap, self.event_log):
            if path is not None:
                with suppress(OSError):
                    Path(f"{path}.partial").unlink()


class Stop(Protocol):
    """Tells a run in progress to end."""

    def is_set(self) -> bool:
        """Whether it should end now."""
        ...


Progress = Callable[[Job, float], None]
"""Called with the share (0..1) of a run that is done; from several threads."""


class Execution:
    """All runs of an experiment, seed by seed, and in each seed the schemes in the order of the settings."""

    def __init__(
        self,
        settings: Settings,
        fabric_text: str | None,
        run_files: RunFiles,
        in_python: Mapping[str, PythonScheme] | None = None,
        sample_at_s: Sequence[float] = (),
        store: Store[RunOutcome] | None = None,
        threads: int = 1,
    ) -> None:
        """Prepares the first run of every scheme, so that bad input is found before any run starts.

        `sample_at_s` are ascending times of a run at which the delivered data is sampled. Runs in the store are not
        carried out again, and finished runs are added to it. Each run uses up to `threads` threads; no outcome depends
        on their number.
        """
        self.threads = threads
        self.settings = settings
        self.in_python = in_python or {}
        self.fabric_text = fabric_text
        self.run_files = run_files
        self.sample_at_s = tuple(sample_at_s)
        self.outcomes: list[RunOutcome] = []
        self.interrupted = False
        self.failure: SchemeError | ToolError | None = None
        """Cause of an early end: a failed scheme written in Python, unless the settings have `keep_going`."""
        self.jobs = settings.jobs(SIM)
        self._store = store
        self._finished: dict[Job, RunOutcome] = {}
        self._names = {job: self._identity(job) for job in self.jobs} if store is not None else {}
        self.kept = {job for job in self.jobs if self._stored(job) is not None}
        """The runs that are in the store."""
        first = [job for job in self.jobs if job.run == 1 and job not in self.kept]
        self._prepared = interruptible(lambda: self._first(first))
        reasons = {job.scheme: prepared.one_thread for job, prepared in self._prepared.items()}
        self.on_one_thread = {scheme: why for scheme, why in reasons.items() if why is not None and threads > 1}
        """Schemes whose runs use only one thread, and why."""
        head = self._stored(self.jobs[0]) or self._prepared[self.jobs[0]]
        self.description = head.description
        self.notes = list(head.notes)

    def _first(self, jobs: Sequence[Job]) -> dict[Job, _core.Simulation]:
        """Prepares the first run of each scheme. Raises `PathloomError` if there is not enough memory for them."""
        prepared: dict[Job, _core.Simulation] = {}
        for job in jobs:
            prepared[job] = self._simulation(job)
            if len(prepared) == 1:
                check_room(prepared[job], job, others=len(jobs) - 1)
        return prepared

    def missing(self) -> list[Job]:
        """The runs that are still to be carried out, seed by seed."""
        return [job for job in self.jobs if job not in self.kept and job not in self._finished]

    def release(self) -> None:
        """Frees the prepared runs; they are prepared again when they are carried out."""
        self._prepared.clear()

    def _simulation(self, job: Job) -> _core.Simulation:
        in_python = self.in_python.get(job.scheme)
        return simulation(self.settings, self.fabric_text, job, self.run_files, in_python, self.threads)

    def _identity(self, job: Job) -> str:
        in_python = self.in_python.get(job.scheme)
        imported = "\n".join([*in_python.names, digests(in_python.files)]) if in_python is not None else ""
        return identity(self.settings, job, repr(self.sample_at_s), self.fabric_text or "", imported)

    def _stored(self, job: Job) -> RunOutcome | None:
        found = self._store.find(self._names[job]) if self._store is not None else None
        # The stored outcome does not depend on the position of the run, so the job is replaced.
        return replace(found, job=job) if found is not None else None

    def run(
        self,
        threads: int,
        progress: Progress = lambda _job, _share: None,
        take: Callable[[RunOutcome], None] | None = None,
        runner: Runner | None = None,
    ) -> None:
        """Carries out all runs on this many threads, or by another `runner`.

        If `take` is given, it is called with each finished run, on the thread that carried it out. The run is then not
        kept in `outcomes`, so thousands of large runs need not fit into memory.

        After Ctrl-C the runs in progress are abandoned within a slice, `interrupted` is set, and `outcomes` holds the
        finished runs. A failed scheme ends the runs in the same way and is stored in `failure`, unless the settings
        have `keep_going`. Any other error in a run also ends the others, and is raised.
        """
        works = [Work(self, job) for job in self.missing()]
        take_one: Take = (lambda work, outcome: work.execution.keep(outcome)) if take is None else _handed(take)
        try:
            if runner is not None:
                # Another runner cannot use the runs that are prepared here.
                self.release()
            ended = (runner or Threads(threads)).run(works, lambda work, share: progress(work.job, share), take_one)
        finally:
            # Frees the runs that were not carried out, so that their partial files are removed.
            self.release()
        self.interrupted, self.failure = ended.interrupted, ended.failure
        self.collect()

    def keep(self, outcome: RunOutcome) -> None:
        """Keeps a finished run, in the store if there is one."""
        job = outcome.job
        if self._store is None:
            self._finished[job] = outcome
            return
        # If an input file changed during the run, it is not known which content the run has read.
        if self._identity(job) == self._names[job]:
            self._store.add(self._names[job], outcome)
            self.kept.add(job)
        else:
            self._finished[job] = outcome

    def collect(self) -> None:
        """Fills `outcomes` with the finished runs."""
        found = {job: self._finished.get(job) or self._stored(job) for job in self.jobs}
        self.outcomes = [outcome for outcome in found.values() if outcome is not None]

    def carry_out(self, job: Job, stop: Stop, progress: Callable[[float], None]) -> RunOutcome | None:
        """Carries out one run; None if it was stopped. Raises `PathloomError` and `SchemeError`."""
        try:
            simulation = self._prepared.pop(job, None) or self._simulation(job)
        except PathloomError as error:
            raise bad_input(f"run {job.run} of {job.scheme} (seed {job.seed}): {error}") from None
        check_room(simulation, job)
        return advance(simulation, job, self.settings, self.sample_at_s, stop, progress)


def _handed(take: Callable[[RunOutcome], None]) -> Take:
    return lambda _work, outcome: take(outcome)


def simulation(
    settings: Settings,
    fabric_text: str | None,
    job: Job,
    run_files: RunFiles,
    in_python: PythonScheme | None = None,
    threads: int = 1,
) -> _core.Simulation:
    """Prepares a run: draws its flows and installs default routes. Raises `PathloomError` on bad input.

    `in_python` replaces the scheme that the job names.
    """
    what = json.dumps(
        {
            "fabric": settings.fabric,
            "fabric_text": fabric_text,
            "traffic": settings.traffic,
            "scheme": job.scheme,
            "transport": settings.transport,
            "min_rto_ns": default_min_rto_ns(settings, fabric_text) if job.world == SIM else None,
            "control": settings.control,
            "duration": settings.duration,
            "drain": drain(settings),
            "seed": job.seed,
            "faults": settings.faults,
            "threads": threads,
            "pcap": run_files.pcap,
            "event_log": run_files.event_log,
        }
    )
    instance = in_python.instance(job.seed) if in_python is not None else None
    again = (lambda: in_python.instance(job.seed)) if in_python is not None else None
    try:
        return _core.Simulation(what, instance, again)
    except PathloomError as error:
        raise bad_input(_as_given(str(error), settings)) from None


def _as_given(text: str, settings: Settings) -> str:
    """Rewrites a message of the core in the terms of the settings: options, keys of a file or arguments.

    >>> settings = Settings(fabric="diamond", traffic="flows:file=a.csv", schemes=("ecmp",), control="dely=1ms")
    >>> _as_given("control `control:dely=1ms`: unknown key `dely`", settings)
    'control `dely=1ms`: unknown key `dely`'
    >>> _as_given("the traffic has no flows; raise --duration or the load", settings)
    'no flow of `flows:file=a.csv` starts within 10s; raise the duration'
    """
    if text == _NO_FLOWS:
        load = " or the load" if _has_load(settings.traffic) else ""
        # A coflow may be within one host, whatever the duration.
        which = " between different hosts" if settings.traffic.startswith("coflow") else ""
        return f"no flow of `{settings.traffic}`{which} starts within {settings.duration}; raise the duration{load}"
    if settings.control is not None and not settings.control.startswith("control:"):
        return text.replace(f"control `control:{settings.control}`", f"control `{settings.control}`")
    return text


def _has_load(traffic: str) -> bool:
    """Whether traffic has a load that can be raised; traces and collectives have no load.

    >>> [_has_load(spec) for spec in ("web-search", "sizes.csv:load=0.1", "flows:file=a.csv")]
    [True, True, False]
    """
    name = traffic.partition(":")[0].strip()
    keys = {one["name"]: [key["name"] for key in one["keys"]] for one in _core.traffics()}
    return "load" in keys.get(name, ["load"])


def drain(settings: Settings) -> int:
    """Longest drain, in durations: the time that active flows have to finish.

    >>> drain(Settings.of({"fabric": "diamond", "traffic": "long-lived", "schemes": ("ecmp",), "duration": "1s"}))
    5
    """
    if settings.until != FINISHED:
        return DRAIN
    return min(max(int(LONGEST_S / settings.duration_s) - 1, DRAIN), MOST_DRAIN)


def advance(
    simulation: _core.Simulation,
    job: Job,
    settings: Settings,
    sample_at_s: Sequence[float],
    stop: Stop,
    progress: Callable[[float], None],
) -> RunOutcome | None:
    """Advances a run to its end, slice by slice; None if it was stopped. Raises `SchemeError`."""
    started, duration_s = time.perf_counter(), settings.duration_s
    reached, slice_s = 0.0, min(duration_s / FIRST_SLICES, FIRST_SLICE_S)
    recording_times = _RecordingTimes(settings, sample_at_s)
    stall_detector = _StallDetector(settings) if settings.until == FINISHED else None
    if settings.series is not None:
        simulation.keep_ways()
    while not simulation.done:
        _check_scheme(simulation, job, settings)
        if stop.is_set():
            return None
        if stall_detector is not None and stall_detector.is_too_long(simulation, reached):
            break
        slice_started = time.perf_counter()
        look_s = stall_detector.look_s if stall_detector is not None else math.inf
        reached = simulation.advance(min(reached + slice_s, recording_times.due_s, look_s))
        if recording_times.take(simulation, reached):
            continue
        took = time.perf_counter() - slice_started
        ratio = SLICE_WALL_S / max(took, 1e-9)
        slice_s *= min(max(ratio, 1 / SLICE_CHANGE_MOST), SLICE_CHANGE_MOST)
        slice_s = max(slice_s, LEAST_SLICE_S)
        progress(min(reached / duration_s, 0.99))
    _check_scheme(simulation, job, settings)
    silent_s = None if simulation.done or stall_detector is None else stall_detector.limit_s
    simulation.finish()
    recording_times.take_rest(simulation)
    outcome = {**simulation.outcome(), **recording_times.series()}
    progress(1.0)
    return RunOutcome(
        job,
        outcome,
        wall_s=time.perf_counter() - started,
        trouble=simulation.troubles,
        samples=tuple(recording_times.samples),
        silent_s=silent_s,
        description=simulation.description,
        notes=tuple(simulation.notes),
    )


def _check_scheme(simulation: _core.Simulation, job: Job, settings: Settings) -> None:
    """Raises `SchemeError` if the scheme, written in Python, has failed and `keep_going` is not set."""
    if settings.keep_going or simulation.troubles is None:
        return
    _, line, traceback = simulation.troubles
    text = " ".join(f"scheme {job.scheme} failed in run {job.run} (seed {job.seed}): {line}".split())
    raise SchemeError(text, traceback)


class _RecordingTimes:
    """The times of a run at which data is recorded: samples of delivered data, and steps of series."""

    def __init__(self, settings: Settings, sample_at_s: Sequence[float]) -> None:
        self.samples: list[Sample] = []
        self._at_s = sample_at_s
        self._recorder = Recorder(_core.parse_time_s(settings.series)) if settings.series is not None else None

    @property
    def due_s(self) -> float:
        """Time of the next sample or step."""
        return min(self._next_sample_s, self._recorder.due_s if self._recorder is not None else math.inf)

    @property
    def _next_sample_s(self) -> float:
        return self._at_s[len(self.samples)] if len(self.samples) < len(self._at_s) else math.inf

    def take(self, simulation: _core.Simulation, reached_s: float) -> bool:
        """Records what is due. Returns whether anything was due."""
        # The simulator's clock is in whole nanoseconds.
        if reached_s < self.due_s - LEAST_SLICE_S:
            return False
        if self._recorder is not None and reached_s >= self._recorder.due_s - LEAST_SLICE_S:
            self._recorder.take(simulation, self._recorder.due_s)
        if reached_s >= self._next_sample_s - LEAST_SLICE_S:
            self.samples.append(_sample(simulation, self._next_sample_s))
        return True

    def take_rest(self, simulation: _core.Simulation) -> None:
        """Records the samples and the step that are still due: a run that ends early delivers nothing more."""
        self.samples += [_sample(simulation, at_s) for at_s in self._at_s[len(self.samples) :]]
        if self._recorder is not None:
            self._recorder.take(simulation, simulation.outcome()["end_ns"] / 1e9)

    def series(self) -> dict[str, Any]:
        """The series as a part of the outcome; empty without series."""
        return {"series": self._recorder.columns()} if self._recorder is not None else {}


class _StallDetector:
    """Detects that unfinished flows receive nothing any more, after the usual drain and all faults.

    It checks at fixed times of the run, so that the result does not depend on the slices.
    """

    def __init__(self, settings: Settings) -> None:
        self.limit_s = SILENT_BACKOFFS * _core.transport_settings(settings.transport)["max_rto"] / 1e9
        """A run is abandoned if nothing arrives for this long."""
        usual_s = settings.duration_s * (1 + DRAIN)
        self.look_s = max([usual_s, *map(fault_end_s, settings.faults)])
        """Time of the next check."""
        self._arrived_bytes = -1

    def is_too_long(self, simulation: _core.Simulation, now_s: float) -> bool:
        """Whether nothing arrived between the last two checks."""
        if now_s < self.look_s - LEAST_SLICE_S:
            return False
        flows = simulation.outcome()["flows"]
        arrived_bytes = int(flows["delivered_bytes"][flows["size_bytes"] >= 0].sum())
        silent = arrived_bytes == self._arrived_bytes
        self.look_s, self._arrived_bytes = self.look_s + self.limit_s, arrived_bytes
        return silent


def fault_end_s(fault: str) -> float:
    """Time of the last event of a fault: cables may flap.

    >>> fault_end_s("1s:flap:c0:100ms/400ms/3"), fault_end_s("2s:down:c0")
    (2.1, 2.0)
    """
    at_s = fault_time_s(fault)
    rhythm = [part.strip() for part in fault.rpartition(":")[2].split("/")]
    if fault.split(":")[1].strip() != "flap" or len(rhythm) != len(("down", "up", "times")):
        return at_s
    down_s, up_s = map(_core.parse_time_s, rhythm[:2])
    return round(at_s + (int(rhythm[2]) - 1) * (down_s + up_s) + down_s, 9)


def fault_time_s(fault: str) -> float:
    """Time of a fault such as `10s:down:c0`.

    >>> fault_time_s("300ms:down:e0_0-a0_1")
    0.3
    """
    return _core.parse_time_s(fault.partition(":")[0].strip())


def _sample(simulation: _core.Simulation, at_s: float) -> Sample:
    outcome = simulation.outcome()
    return Sample(at_s, int(outcome["flows"]["delivered_bytes"].sum()), outcome["control"]["polling_period_s"])
