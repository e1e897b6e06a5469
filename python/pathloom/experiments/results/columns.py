"""The figures of a scheme or of a run as columns of a table, each named with its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pathloom.experiments.results.jobs import COLLECTIVE_FIGURES

LEFT_OUT = ("scheme", "world", "runs", "run", "seed", "unfinished", "jobs")
"""Keys that identify a row or whose values are lists."""
OPTIONAL = ("programs", "pauses")
"""Sections that may be None."""
_BOUNDED = ("mean", "p50", "p95", "p99", "mouse", "rabbit", "elephant")
FIXED = {
    "": ("scheme", "runs", "run", "seed", "delivered_bytes", "retransmits", "timeouts", "end_s", "failures"),
    "throughput": ("mean", "min", "p5", "ci95", "jain"),
    "fct_s": (*_BOUNDED, "ci95"),
    "slowdown": (*_BOUNDED, "ci95"),
    "completion_s": ("mean", "p50", "p95", "p99", "ci95", "of", "groups", "incomplete"),
    "collective": COLLECTIVE_FIGURES,
    "recovery_s": ("mean", "max", "faults", "unrecovered"),
    "flows": ("offered", "started", "finished", "unfinished", "long_lived"),
    "timeout_wait": ("initial_s", "sampled_s", "flows_s", "share"),
    "reordering": ("segments", "reordered", "ratio"),
    "packets": ("sent", "copied", "delivered", "misdelivered", "dropped", "in_flight", "trimmed", "hops", "events"),
    "control": ("messages", "routes", "reroutes", "polls", "rules_max", "polling_period_s", "busy_share"),
    "optimum_throughput": ("mean",),
    "optimum_fct_s": ("mean", "p50", "p95", "p99"),
    "of_optimum": ("throughput", "fct"),
}
"""Sections and keys whose columns have the same names in all results."""
OPEN = ("control_sizes_", "programs_", "pauses_", "kinds_", "skipped_")
"""Prefixes of the names of all other columns."""
RATIOS = "of_optimum"
"""A section of ratios, which have no unit."""
_MARK = "_censored"
_NO_UNIT = ("of", "groups", "incomplete", "faults", "unrecovered")
"""Keys of counts and words in sections of times."""


def figures_of(row: Mapping[str, Any]) -> dict[str, float | int | bool | str | None]:
    """All figures of a scheme or a run in `result.json`, except wall-clock times.

    A column name begins with the section and ends with its unit: `fct_s.p99` is `fct_p99_s`.

    >>> figures_of({"run": 1, "fct_s": {"p99": 0.5, "p99_censored": True}, "flows": {"started": 3}, "wall_s": 1.0})
    {'fct_p99_s': 0.5, 'fct_p99_censored': True, 'flows_started': 3}
    """
    columns: dict[str, float | int | bool | str | None] = {}
    for key, value in row.items():
        if key in LEFT_OUT or "wall" in key:
            continue
        if isinstance(value, Mapping):
            for name, part in value.items():
                if isinstance(part, Mapping):
                    columns.update({_column(f"{key}_{name}", inner): figure for inner, figure in part.items()})
                elif not isinstance(part, list):
                    columns[_column(key, name)] = part
        elif value is not None or not (key.endswith("_s") or key in OPTIONAL):
            columns[key] = value
    return columns


def _column(section: str, name: str) -> str:
    name = name.replace(" ", "_")
    if section == RATIOS:
        return f"{section}_{name.removesuffix('_s')}"
    if not section.endswith("_s"):
        return f"{section}_{name}"
    bare = section.removesuffix("_s")
    # Counts, marks and words have no unit.
    unit = "" if name.endswith(_MARK) or name in _NO_UNIT else "_s"
    return f"{bare}_{name}{unit}"


def is_column(name: str) -> bool:
    """Whether tables of results may have a column of this name.

    >>> is_column("scheme"), is_column("fct_p99_s"), is_column("fct_p99_censored"), is_column("load")
    (True, True, True, False)
    """
    fixed = {_column(section, key) if section else key for section, keys in FIXED.items() for key in keys}
    bare = name.removesuffix(_MARK)
    return name in fixed or (bare != name and bool({bare, f"{bare}_s"} & fixed)) or name.startswith(OPEN)


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A table of rows that may have different columns, in the order of their first occurrence."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame({name: pl.Series(name, [row.get(name) for row in rows], strict=False) for name in names})
