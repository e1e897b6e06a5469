"""The result of a sweep: figures at every point, tables, plots, report, and the folder for them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pathloom import _core
from pathloom.experiments.results.columns import figures_of, frame_of
from pathloom.experiments.results.output_files import PLOT_KINDS, Writer, replace_files
from pathloom.experiments.results.parquet import parquet_writer
from pathloom.experiments.settings.identity import versions
from pathloom.experiments.settings.model import Settings
from pathloom.experiments.sweeps.plan import SweepPlan, Value, place_text
from pathloom.quantities import counted

if TYPE_CHECKING:
    from pathloom.experiments.sweeps.precision import Precision

SCHEMA = 1
"""Version of a sweep's `result.json`. Keys may be added within a version, but not renamed or removed."""
RESULT = "result.json"
FILES = (RESULT, "report.html", "points.csv", "points.tex", "runs.parquet")
"""Files of a sweep except its plots."""
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
class SweepResult:
    """The result of a sweep."""

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

    def save(self, folder: str | Path, kinds: Sequence[str] = PLOT_KINDS[:1]) -> list[Path]:
        """Writes tables, plots in these kinds (`svg`, `pdf`, `png`), report and `result.json`; returns their paths.

        A previous result of a sweep in the folder is replaced completely; finished runs are kept. Raises
        `PathloomError` if the folder holds the result of a comparison, or if a file cannot be written. The previous
        result is then kept.
        """
        from pathloom.experiments.results.record import SWEEP, check_kind
        from pathloom.report.latex import latex
        from pathloom.report.sweep_page import page
        from pathloom.report.sweep_plots import plots
        from pathloom.report.sweep_tables import points_table

        folder = Path(folder)
        check_kind(folder, SWEEP)
        folder.mkdir(parents=True, exist_ok=True)
        figures = plots(self)
        texts = [
            ("points.tex", latex(points_table(self))),
            ("report.html", page(self, figures)),
            (RESULT, self.json()),
        ]
        files: list[tuple[str, Writer]] = [
            ("points.csv", self.table.write_csv),
            ("runs.parquet", parquet_writer(self.runs)),
            *((f"{figure.name}.{kind}", figure.write) for figure in figures for kind in kinds),
            *((name, partial(Path.write_text, data=text, encoding="utf-8")) for name, text in texts),
        ]
        return replace_files(folder, files, [*FILES, *_old_plots(folder)])

    def __repr__(self) -> str:
        names = dict.fromkeys(name for point in self.points for name in point.series)
        return (
            f"SweepResult({', '.join(names)} over {', '.join(self.plan.grid)}: "
            f"{counted(len(self.points), 'point')}, {counted(_runs(self.points), 'run')})"
        )


def _old_plots(folder: Path) -> list[str]:
    """Names that plots of the previous result in the folder may have. Other pictures in the folder are the user's."""
    from pathloom.experiments.results.record import read_record
    from pathloom.report.sweep_plots import plot_names

    try:
        record = read_record(folder) or {}
        axes = {str(axis) for point in record.get("points", []) for axis in point["at"]}
    except (_core.PathloomError, TypeError, KeyError):
        return []
    return [f"{name}.{kind}" for name in plot_names(axes) for kind in PLOT_KINDS]


def _runs(points: Sequence[PointResult]) -> int:
    """Number of runs at all points."""
    return sum(len(row["runs"]) for point in points for row in point.schemes)


def settings_record(plan: SweepPlan, until: Precision | None) -> dict[str, Any]:
    """The settings that decide the result of a sweep, except the content of files."""
    return {**plan.record(), **({"precision": until.text()} if until is not None else {})}
