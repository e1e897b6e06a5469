"""One run: a simulation in slices that are short enough to report progress and to stop.

The outcome of a run depends only on its settings and its seed, not on the slices. A scheme written in Python holds the
interpreter lock only while it is called.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import SchemeError, bad_input
from pathloom.experiments.results.outcome import RunOutcome, Sample
from pathloom.experiments.schemes.loading import PythonScheme
from pathloom.experiments.settings.fault_times import fault_end_s
from pathloom.experiments.settings.fitting_min_rto import default_min_rto_ns
from pathloom.experiments.settings.model import DRAIN, FINISHED, Job, Settings
from pathloom.specs import SIM

if TYPE_CHECKING:
    from pathloom.experiments.running.recorder import Recorder

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
            "fidelity": settings.fidelity,
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

    >>> [_has_load(spec) for spec in ("web-search", "sizes.csv:load=0.1", "flows:file=a.csv", "incast+hadoop")]
    [True, True, False, True]
    """
    if "+" in traffic:
        return any(map(_has_load, _core.traffic_parts(traffic)))
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


def _recorder(step: str) -> Recorder:
    # It needs NumPy, which takes most of the start of the command line.
    from pathloom.experiments.running.recorder import Recorder

    return Recorder(_core.parse_time_s(step))


class _RecordingTimes:
    """The times of a run at which data is recorded: samples of delivered data, and steps of series."""

    def __init__(self, settings: Settings, sample_at_s: Sequence[float]) -> None:
        self.samples: list[Sample] = []
        self._at_s = sample_at_s
        self._recorder = _recorder(settings.series) if settings.series is not None else None

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


def _sample(simulation: _core.Simulation, at_s: float) -> Sample:
    outcome = simulation.outcome()
    return Sample(at_s, int(outcome["flows"]["delivered_bytes"].sum()), outcome["control"]["polling_period_s"])
