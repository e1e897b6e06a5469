"""What is kept of a run: the numbers that figures ask for, a few hundred bytes, and not its hundred thousand flows.

Kept runs are shared between figures. With a folder they outlive the process, one file per run, so that what takes hours
can be interrupted and gone on with.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pathloom import _core, native
from pathloom.experiments import stats, summary, tables
from pathloom.experiments.execution import NOTED_STOLEN_SHARE
from pathloom.experiments.folder import write_text
from pathloom.experiments.inputs import named_files
from pathloom.experiments.settings import Job, Settings
from pathloom.reproduction import metrics
from pathloom.reproduction.definitions import Measure
from pathloom.reproduction.metrics import METRICS, RANKED, RunData, bound, by_rank, goodput_in_time
from pathloom.specs import LAB

MOST_RANKED = 20_000
"""Runs with more flows than this keep no curve by rank: no picture by rank shows so many."""


@dataclass(frozen=True)
class Kept:
    """What is left of one run."""

    values: dict[str, float | None]
    """Metrics, by `key`."""
    bounds: dict[str, str] = field(default_factory=dict)
    """Those of them that are bounds alone because flows were not finished: `at least` or `at most`."""
    ranks: dict[str, list[float]] = field(default_factory=dict)
    """Curves by rank, by name of the metric."""
    goodput: list[tuple[float, float]] = field(default_factory=list)
    """Time in seconds and goodput in kbit/s, where a run was sampled."""
    stolen_share: float = 0.0
    """As in `RunOutcome`."""


def key(asked: Measure) -> str:
    """Tells a measure from others.

    >>> key(Measure(metric="fct_mean", below_bytes=1000))
    'fct_mean below_bytes=1000'
    """
    takes = {"level": asked.level, "below_bytes": asked.below_bytes, "from_bytes": asked.from_bytes, "flow": asked.flow}
    return " ".join([asked.metric, *(f"{name}={value:g}" for name, value in takes.items() if value is not None)])


def keep(run: RunData, measures: Iterable[Measure], stolen_share: float = 0.0) -> Kept:
    """Works out every measure of a run, and its curves."""
    measures = list(measures)
    values = {key(one): _finite(METRICS[one.metric](run, one)) for one in measures}
    few = run.flows.height <= MOST_RANKED
    ranks = {name: by_rank(run, Measure(metric=name), name) for name in RANKED} if few else {}
    bounds = {key(one): found for one in measures if (found := bound(run, one, one.metric)) != "exactly"}
    return Kept(values, bounds, ranks, goodput_in_time(run) if len(run.samples) > 1 else [], stolen_share)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


@dataclass
class Memory:
    """Runs by what they depend on."""

    folder: Path | None = None
    """Where runs are kept beyond this process; None for nowhere."""
    runs: dict[str, Kept] = field(default_factory=dict)

    def find(
        self, settings: Settings, job: Job, sample_at_s: Sequence[float], measures: Iterable[Measure]
    ) -> Kept | None:
        """A run that was carried out before, if all that is asked of it was kept."""
        name = identity(settings, job, sample_at_s)
        found = self.runs.get(name) or self._read(name)
        if found is None or any(key(one) not in found.values for one in measures):
            return None
        self.runs[name] = found
        return found

    def add(self, settings: Settings, job: Job, sample_at_s: Sequence[float], kept: Kept) -> None:
        """Keeps a run. Raises `PathloomError` when its file cannot be written."""
        name = identity(settings, job, sample_at_s)
        self.runs[name] = kept
        if self.folder is not None:
            record = {"scheme": job.scheme, "seed": job.seed, "traffic": settings.traffic, **asdict(kept)}
            write_text(self.folder / f"{name}.json", json.dumps(record, allow_nan=False) + "\n")

    def _read(self, name: str) -> Kept | None:
        if self.folder is None:
            return None
        try:
            record: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            goodput = [(float(at_s), float(kbps)) for at_s, kbps in record["goodput"]]
            values, bounds, ranks = (dict(record[name]) for name in ("values", "bounds", "ranks"))
            kept = Kept(values, bounds, ranks, goodput, float(record.get("stolen_share", 0.0)))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # Not there, or not whole: it is carried out again.
        # So is one that lacked the machine, now that the machine may be there.
        return kept if kept.stolen_share <= NOTED_STOLEN_SHARE else None


def identity(settings: Settings, job: Job, sample_at_s: Sequence[float]) -> str:
    """All that the numbers of a run depend on, in short: its settings and seed, and the program."""
    alone = settings.model_copy(update={"schemes": (job.scheme,), "runs": 1, "seed": job.seed})
    text = "\n".join([_program(settings.worlds), alone.model_dump_json(), repr(tuple(sample_at_s)), *_files(alone)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_digests: dict[str, str] = {}


def _program(worlds: Sequence[str]) -> str:
    """Digest of what carries runs out in these worlds, and of what measures them."""
    files = [str(_core.__file__), metrics.__file__, tables.__file__, summary.__file__, stats.__file__]
    return "".join([*map(_digest, files), *(_laboratory() if LAB in worlds else [])])


def _laboratory() -> list[str]:
    """What else decides what a run in the lab of this machine gives."""
    from pathloom.lab import daemons, system

    own = sorted(str(path) for path in Path(system.__file__).parent.glob("*.py"))
    programs = [path for path in (system.find_tool("ovs-vswitchd"), native.find()) if path is not None]
    machine = (os.uname().release, system.usual_daemons(), daemons.allocator())
    return [*map(_digest, [*own, *programs]), repr(machine)]


def _files(settings: Settings) -> list[str]:
    """Digests of the files that a run reads: traces, and schemes in Python."""
    return [_digest(path) for path in named_files([settings.fabric, settings.traffic, *settings.schemes])]


def _digest(path: str) -> str:
    if path not in _digests:
        _digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return _digests[path]
