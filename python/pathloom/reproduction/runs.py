"""Stored results of runs: the numbers that figures need, a few hundred bytes, and not the hundred thousand flows.

Figures share stored runs. With a folder they outlive the process, one file per run, so that long computations can be
interrupted and resumed. A run that another build of Pathloom has carried out is used only on request.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pathloom import native
from pathloom.experiments.results import stats, summary, tables
from pathloom.experiments.results.outcome import NOTED_STOLEN_SHARE
from pathloom.experiments.running.store import Store
from pathloom.experiments.settings.identity import digests, program_digest, short_digest, work_identity
from pathloom.experiments.settings.model import Job, Settings
from pathloom.reproduction import metrics
from pathloom.reproduction.definitions import Measure
from pathloom.reproduction.metrics import METRICS, RANKED, RunData, bound, by_rank, goodput_in_time
from pathloom.specs import LAB

MOST_RANKED = 5_000
"""For runs with more flows than this no curves by rank are stored: no picture by rank shows so many flows."""


@dataclass(frozen=True)
class StoredRun:
    """The stored results of one run."""

    values: dict[str, float | None]
    """Metrics, by `key`."""
    bounds: dict[str, str] = field(default_factory=dict)
    """Metrics that are only bounds because flows were not finished: `at least` or `at most`."""
    ranks: dict[str, list[float]] = field(default_factory=dict)
    """Curves by rank, by name of the metric."""
    goodput: list[tuple[float, float]] = field(default_factory=list)
    """Time in seconds and goodput in kbit/s, if the run was sampled."""
    stolen_share: float = 0.0
    """The same as in `RunOutcome`."""
    build: str = ""
    """The build of Pathloom that carried out the run: `this_build` at that time."""


def key(asked: Measure) -> str:
    """A text that identifies a measure.

    >>> key(Measure(metric="fct_mean", below_bytes=1000))
    'fct_mean below_bytes=1000'
    """
    parameters = {
        "level": asked.level,
        "below_bytes": asked.below_bytes,
        "from_bytes": asked.from_bytes,
        "flow": asked.flow,
    }
    return " ".join([asked.metric, *(f"{name}={value:g}" for name, value in parameters.items() if value is not None)])


def measure_run(run: RunData, measures: Iterable[Measure], stolen_share: float = 0.0) -> StoredRun:
    """Computes all measures of a run, and its curves."""
    measures = list(measures)
    values = {key(one): _finite(METRICS[one.metric](run, one)) for one in measures}
    few = run.flows.height <= MOST_RANKED
    ranks = {name: by_rank(run, Measure(metric=name), name) for name in RANKED} if few else {}
    bounds = {key(one): found for one in measures if (found := bound(run, one, one.metric)) != "exactly"}
    return StoredRun(
        values, bounds, ranks, goodput_in_time(run) if len(run.samples) > 1 else [], stolen_share, this_build()
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class StoredRunCodec:
    """The stored results of a run, as JSON."""

    suffix = ".json"

    def encode(self, value: StoredRun) -> bytes:
        """The content of the file of a run."""
        return (json.dumps(asdict(value), allow_nan=False) + "\n").encode()

    def decode(self, content: bytes) -> StoredRun | None:
        """The results in a file; None if the file is incomplete or damaged."""
        try:
            record: dict[str, Any] = json.loads(content)
            goodput = [(float(at_s), float(kbps)) for at_s, kbps in record["goodput"]]
            values, bounds, ranks = (dict(record[name]) for name in ("values", "bounds", "ranks"))
            stolen_share, build = float(record.get("stolen_share", 0.0)), str(record["build"])
            return StoredRun(values, bounds, ranks, goodput, stolen_share, build)
        except (ValueError, KeyError, TypeError):
            return None


class RunCache:
    """Stored runs by their identity, shared by figures."""

    def __init__(self, folder: Path | None = None, resumes: bool = True, any_build: bool = False) -> None:
        """`folder` stores runs beyond this process; None stores nothing.

        Runs that the folder had before are used only if `resumes`, and with `any_build` whatever build of Pathloom
        carried them out.
        """
        self.resumes = resumes
        self._any_build = any_build
        self._store = Store(folder, StoredRunCodec()) if folder is not None else None
        self._runs: dict[str, StoredRun] = {}
        self.added = 0
        """Number of runs that this process has stored."""

    def find(
        self, settings: Settings, job: Job, sample_at_s: Sequence[float], measures: Iterable[Measure]
    ) -> StoredRun | None:
        """A run that was carried out before, if all requested measures are stored."""
        name = run_name(settings, job, sample_at_s)
        found = self._runs.get(name) or self._read(name)
        if found is None or any(key(one) not in found.values for one in measures):
            return None
        self._runs[name] = found
        return found

    def add(self, settings: Settings, job: Job, sample_at_s: Sequence[float], kept: StoredRun) -> None:
        """Stores a run. Raises `PathloomError` if its file cannot be written."""
        name = run_name(settings, job, sample_at_s)
        self._runs[name] = kept
        if self._store is not None:
            self._store.add(name, kept)
        self.added += 1

    def _read(self, name: str) -> StoredRun | None:
        kept = self._store.find(name) if self._store is not None and self.resumes else None
        if kept is not None and kept.build != this_build() and not self._any_build:
            return None
        # A run that lacked too much processor time is carried out again, as the machine may be less busy now.
        return kept if kept is not None and kept.stolen_share <= NOTED_STOLEN_SHARE else None


def run_name(settings: Settings, job: Job, sample_at_s: Sequence[float]) -> str:
    """The identity of a run, independent of the build of Pathloom that carries it out."""
    lab = _laboratory() if LAB in settings.worlds else []
    return work_identity(settings, job, repr(tuple(sample_at_s)), *lab)


def this_build() -> str:
    """The identity of the program files that carry out runs in the simulator and measure them."""
    measured_by = [metrics.__file__, tables.__file__, summary.__file__, stats.__file__]
    return short_digest(program_digest(), digests(measured_by))


def _laboratory() -> list[str]:
    """Further identities that affect a run in the lab of this machine: lab code, programs and kernel."""
    from pathloom.lab import daemons, system

    own = sorted(str(path) for path in Path(system.__file__).parent.rglob("*.py"))
    programs = [str(path) for path in (system.find_tool("ovs-vswitchd"), native.find()) if path is not None]
    machine = (os.uname().release, system.usual_daemons(), daemons.allocator())
    return [digests([*own, *programs]), repr(machine)]
