"""The result of a sweep: figures at every point, and tables of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from pathloom.errors import bad_input
from pathloom.experiments.results.columns import figures_of, frame_of
from pathloom.experiments.results.record import SCHEMA, SWEEP, check_kind, read_record
from pathloom.experiments.settings.identity import versions
from pathloom.experiments.settings.model import Settings
from pathloom.experiments.sweeps.plan import SweepPlan, Value, place_text
from pathloom.experiments.sweeps.precision import Precision
from pathloom.quantities import counted

_FIGURE = re.compile(r"\d+(\.\d+)?( ?(ns|us|µs|ms|s|min|h)\b)?")
"""A number or a time in a note."""


@dataclass(frozen=True)
class PointResult:
    """The result of one point."""

    at: Mapping[str, Value]
    settings: Settings
    series: tuple[str, ...]
    """Names of its schemes that are the same at all points."""
    description: str
    notes: tuple[str, ...]
    schemes: tuple[dict[str, Any], ...]
    """The same as `schemes` in the result of a comparison."""
    troubles: tuple[str, ...] = ()
    until: dict[str, Any] | None = None
    """Width of the widest interval, and whether it is as narrow as requested; None if nothing was requested."""

    def record(self) -> dict[str, Any]:
        """The point in `result.json`."""
        return {
            "at": dict(self.at),
            "traffic": {"description": self.description, "notes": list(self.notes)},
            **({"until": self.until} if self.until is not None else {}),
            "schemes": list(self.schemes),
        }


@dataclass(frozen=True, repr=False)
class SweepData:
    """The result of a sweep, without its report."""

    plan: SweepPlan
    until: Precision | None
    points: tuple[PointResult, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files that runs have read, by path."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of `result.json`. Only keys with `wall` in them differ between two sweeps of one seed."""
        return {
            "schema": SCHEMA,
            "complete": True,
            "settings": {**settings_record(self.plan, self.until), "files": dict(self.files)},
            "versions": versions(),
            "seed": self.points[0].settings.seed,
            "points": [point.record() for point in self.points],
        }

    def json(self) -> str:
        """The content of `result.json` as text."""
        return json.dumps(self.summary, indent=2, allow_nan=False) + "\n"

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per point and scheme: the axes, the scheme, and its figures; see docs/formats.md."""
        return frame_of(
            [
                {**point.at, "scheme": row["scheme"], "runs": len(row["runs"]), **figures_of(row)}
                for point in self.points
                for row in point.schemes
            ]
        )

    @cached_property
    def runs(self) -> pl.DataFrame:
        """One row per point, scheme and run; see docs/formats.md."""
        return frame_of(
            [
                {**point.at, "scheme": row["scheme"], "run": run["run"], "seed": run["seed"], **figures_of(run)}
                for point in self.points
                for row in point.schemes
                for run in row["runs"]
            ]
        )

    @property
    def notes(self) -> list[str]:
        """Notes on the points, each with its points.

        Notes that differ only in their figures are merged into that of the first point; `points` has all notes.
        """
        alike: dict[str, list[tuple[str, str]]] = {}
        for point in self.points:
            for note in point.notes:
                alike.setdefault(_FIGURE.sub("#", note), []).append((note, place_text(point.at)))
        return [self._said_once(found) for found in alike.values()]

    def _said_once(self, found: Sequence[tuple[str, str]]) -> str:
        """One note for all points that have it or a similar one."""
        note, place = found[0]
        same = len({one for one, _ in found}) == 1
        if same and len(found) == len(self.points):
            return note
        others = len(found) - 1
        more = f" (and at {counted(others, 'other point')}{'' if same else ' with other values'})" if others else ""
        return f"at {place}{more}: {note}"

    @property
    def troubles(self) -> list[str]:
        """Failures of schemes written in Python, with tracebacks."""
        return [f"at {place_text(point.at)}: {text}" for point in self.points for text in point.troubles]

    def __repr__(self) -> str:
        names = dict.fromkeys(name for point in self.points for name in point.series)
        return (
            f"SweepResult({', '.join(names)} over {', '.join(self.plan.grid)}: "
            f"{counted(len(self.points), 'point')}, {counted(_runs(self.points), 'run')})"
        )


def _runs(points: Sequence[PointResult]) -> int:
    """Number of runs at all points."""
    return sum(len(row["runs"]) for point in points for row in point.schemes)


def settings_record(plan: SweepPlan, until: Precision | None) -> dict[str, Any]:
    """The settings that decide the result of a sweep, except the content of files."""
    return {**plan.record(), **({"precision": until.text()} if until is not None else {})}


def check_sweep_folder(folder: Path, plan: SweepPlan, until: Precision | None, resume: bool) -> None:
    """Raises `PathloomError` if a sweep would replace another result in the folder without `resume`."""
    record = read_record(folder)
    if record is None:
        return
    check_kind(folder, SWEEP, "--out ")
    settings = {key: value for key, value in record["settings"].items() if key != "files"}
    if settings != json.loads(json.dumps(settings_record(plan, until))) and not resume:
        raise bad_input(
            f"--out `{folder}`: holds a sweep of other settings; --resume replaces it and keeps its runs, or name "
            "another folder"
        )
