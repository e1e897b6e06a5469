"""Loads saved results, and results of other simulators, for Python and for `pathloom diff`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from pathloom.errors import bad_input, reason
from pathloom.experiments.results.columns import figures_of, frame_of
from pathloom.experiments.results.foreign import SUFFIXES, read_foreign
from pathloom.experiments.results.record import RESULT, SCHEMA, SWEEP, kind_of, read_record
from pathloom.quantities import counted

FOREIGN = "foreign"
FIGURE_SECTIONS = ("throughput", "fct_s", "slowdown", "completion_s", "flows")
"""Sections of `result.json` whose values are numbers or null, except `NAMES`."""
NAMES = ("of",)


@dataclass(frozen=True, repr=False)
class Loaded:
    """A saved result.

    `summary` is the content of `result.json`, `table` has a row per scheme and point, `runs` a row per run. `flows` and
    `links` are the tables of a comparison; a sweep has none.
    """

    path: Path
    kind: str
    """`comparison`, `sweep` or `foreign`."""
    summary: Mapping[str, Any]
    _flows: pl.DataFrame | None = field(default=None, repr=False)

    @property
    def points(self) -> list[Mapping[str, Any]]:
        """The points of a sweep; any other result is one point without axes."""
        if self.kind == SWEEP:
            return list(self.summary["points"])
        return [{"at": {}, "schemes": self.summary["schemes"]}]

    @cached_property
    def flows(self) -> pl.DataFrame:
        """One row per flow and run. Raises `PathloomError` if there is no such table."""
        return self._flows if self._flows is not None else self._parquet("flows.parquet")

    @cached_property
    def links(self) -> pl.DataFrame:
        """One row per link and run. Raises `PathloomError` if there is no such table."""
        return self._parquet("links.parquet")

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per point and scheme: axes, scheme and figures."""
        rows = [(point, row) for point in self.points for row in point["schemes"]]
        return frame_of(
            [
                {**point["at"], "scheme": row["scheme"], "runs": len(row["runs"]), **figures_of(row)}
                for point, row in rows
            ]
        )

    @cached_property
    def runs(self) -> pl.DataFrame:
        """One row per point, scheme and run."""
        rows = [(point, row, run) for point in self.points for row in point["schemes"] for run in row["runs"]]
        return frame_of(
            [
                {**point["at"], "scheme": row["scheme"], "run": run["run"], "seed": run["seed"], **figures_of(run)}
                for point, row, run in rows
            ]
        )

    def __repr__(self) -> str:
        rows = [row for point in self.points for row in point["schemes"]]
        names = ", ".join(dict.fromkeys(row["scheme"] for row in rows))
        points = f"{counted(len(self.points), 'point')}, " if self.kind == SWEEP else ""
        runs = counted(sum(len(row["runs"]) for row in rows), "run")
        return f"Loaded({self.kind} `{self.path}`: {names}; {points}{runs})"

    def _parquet(self, name: str) -> pl.DataFrame:
        path = self.path / name
        if not path.is_file():
            raise bad_input(f"`{self.path}`: has no {name}; only results of compare and run have this file")
        try:
            return pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise bad_input(f"`{path}`: cannot be read: {reason(error)}") from None


def load(path: str | Path) -> Loaded:
    """Reads a result from a folder, or a result of another simulator from a file.

    Args:
        path: a results folder, its `result.json`, a CSV file with the columns flow, start, end, bytes (seconds), or
            the XML of ns-3's FlowMonitor.

    Raises:
        PathloomError: when it is none of these, with one line that says why.

    """
    path = Path(path)
    if path.name == RESULT:
        path = path.parent
    if path.is_dir():
        record = read_record(path)
        if record is None:
            raise bad_input(f"`{path}`: has no {RESULT}; expected the folder of a result")
        return Loaded(path, str(kind_of(record)), _checked(record, path))
    if not path.exists():
        files = " or ".join(SUFFIXES)
        raise bad_input(f"`{path}`: no such file or directory; expected a results folder, or a {files} file")
    foreign = read_foreign(path)
    return Loaded(path, FOREIGN, foreign.summary(path), foreign.flows)


def _check_numbers(row: Mapping[str, Any]) -> None:
    """Raises `TypeError` if a figure of a scheme or of a run is not a number."""
    for section in FIGURE_SECTIONS:
        for key, value in (row.get(section) or {}).items():
            if key not in NAMES and not isinstance(value, int | float | None):
                raise TypeError(f"{section}.{key}: `{value}` is not a number")


def _checked(record: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Checks that a record has all required keys. Raises `PathloomError`."""
    if record.get("schema", SCHEMA) != SCHEMA:
        raise bad_input(
            f"`{path / RESULT}`: has schema {record['schema']}, and this version of Pathloom reads {SCHEMA}; use the "
            "version that wrote it"
        )
    try:
        points = record["points"] if kind_of(record) == SWEEP else [record]
        for point in points:
            dict(point.get("at", {}))
            for row in point["schemes"]:
                str(row["scheme"])
                for run in row["runs"]:
                    int(run["run"])
                    dict(run["flows"])
                for section in ("throughput", "fct_s", "flows"):
                    dict(row[section])
                for one in (row, *row["runs"]):
                    _check_numbers(one)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise bad_input(
            f"`{path / RESULT}`: is damaged, or was written by another version of Pathloom: {what}"
        ) from None
    return record
