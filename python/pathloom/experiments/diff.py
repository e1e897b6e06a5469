"""What differs between two results: settings, and every figure with how sure its difference is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathloom.errors import bad_input
from pathloom.experiments.loading import FOREIGN, Loaded
from pathloom.experiments.stats import ci95
from pathloom.experiments.summary import difference_of
from pathloom.experiments.verdicts import Verdict, figure_of, is_bound, verdict

SCHEMA = 1
FIGURES = (
    ("throughput", "mean"),
    ("throughput", "p5"),
    ("fct_s", "mean"),
    ("fct_s", "p50"),
    ("fct_s", "p95"),
    ("fct_s", "p99"),
    ("slowdown", "mean"),
    ("slowdown", "p99"),
    ("completion_s", "mean"),
    ("flows", "unfinished"),
)
"""Sections and keys of `result.json` that are compared."""
SAME_FLOWS = ("fabric", "traffic", "duration", "until")
"""Where these settings are equal, and so are files but schemes, runs of equal seeds have the same flows."""
UNKNOWN, SAME = "unknown", "same"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A figure of a scheme in both results."""

    at: Mapping[str, Any]
    scheme_a: str
    scheme_b: str
    section: str
    key: str
    a: float
    b: float
    bound_a: bool
    bound_b: bool
    """Whether unfinished flows make the value a bound."""
    ci95: float | None
    """Half width of the 95 % confidence interval of the difference; None where there is none."""
    paired: bool
    """Whether the interval is of the differences run by run."""

    @property
    def difference(self) -> float:
        """B less A."""
        return self.b - self.a

    @property
    def share(self) -> float | None:
        """The difference over A; None where A is 0."""
        return self.difference / self.a if self.a else None

    @property
    def says(self) -> str:
        """What may be said of it, as `says` in docs/formats.md; nothing of a percentile, which has no interval."""
        if self.bound_a or self.bound_b:
            return UNKNOWN
        if self.a == self.b:
            return SAME
        found = verdict(difference_of(self.difference, self.ci95, max(abs(self.a), abs(self.b))))
        return found.value if found is not Verdict.SINGLE or self.key == "mean" else ""

    def record(self) -> dict[str, Any]:
        """A row of `diff --json`."""
        return {
            "at": dict(self.at),
            "scheme_a": self.scheme_a,
            "scheme_b": self.scheme_b,
            "figure": f"{self.section}.{self.key}",
            "a": self.a,
            "b": self.b,
            "a_censored": self.bound_a,
            "b_censored": self.bound_b,
            "difference": self.difference,
            "share": self.share,
            "ci95": self.ci95,
            "paired": self.paired,
            "says": self.says,
        }


@dataclass(frozen=True)
class Diff:
    """Two results beside each other."""

    a: Loaded
    b: Loaded
    settings: tuple[tuple[str, Any, Any], ...]
    """Settings that differ: key, value in A, value in B; None where there is none."""
    changes: tuple[Change, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    """Schemes and points that the other result lacks."""

    def record(self) -> dict[str, Any]:
        """The content of `diff --json`."""
        return {
            "schema": SCHEMA,
            "a": str(self.a.path),
            "b": str(self.b.path),
            "settings": [{"key": key, "a": a, "b": b} for key, a, b in self.settings],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "rows": [change.record() for change in self.changes],
        }


def diff(a: Loaded, b: Loaded) -> Diff:
    """Compares two results: points by their axes, schemes by their names.

    The result of another simulator is compared with every scheme of the other one. Raises `PathloomError` when they
    have nothing in common.
    """
    rows_a, rows_b = _rows(a), _rows(b)
    names = sorted({*a.summary["settings"], *b.summary["settings"]})
    values = [(key, a.summary["settings"].get(key), b.summary["settings"].get(key)) for key in names]
    # Nothing, and a list of nothing, are the same: a key that an older version did not have.
    differ = [(key, one, other) for key, one, other in values if (one or None) != (other or None)]
    if FOREIGN in (a.kind, b.kind):
        pairs = [(one, other) for one in rows_a for other in rows_b]
    else:
        pairs = [(one, one) for one in rows_a if one in rows_b]
    if not pairs:
        raise bad_input(f"`{a.path}` and `{b.path}`: have no scheme in common; they have {_listed(a)} and {_listed(b)}")
    paired = not any(key in (*SAME_FLOWS, "file") for key, _, _ in differ) and _inputs(a) == _inputs(b)
    changes = [
        change
        for one, other in pairs
        for section, key in FIGURES
        if (change := _change(one, rows_a[one], other, rows_b[other], section, key, paired)) is not None
    ]
    both = {one for one, _ in pairs} | {other for _, other in pairs}
    only = [tuple(_name(key) for key in rows if key not in both) for rows in (rows_a, rows_b)]
    return Diff(a, b, tuple(differ), tuple(changes), *only)


_Key = tuple[tuple[tuple[str, Any], ...], str]
"""Axes and their values, and a scheme."""


def _rows(result: Loaded) -> dict[_Key, Row]:
    return {
        (tuple(sorted(point["at"].items())), row["scheme"]): row for point in result.points for row in point["schemes"]
    }


def _inputs(result: Loaded) -> dict[str, str]:
    """Digests of the files of fabric and traffic."""
    files: Mapping[str, str] = result.summary["settings"].get("files") or {}
    return {path: digest for path, digest in files.items() if not path.endswith(".py")}


def _name(key: _Key) -> str:
    at, scheme = key
    return ", ".join([*(f"{name}={value}" for name, value in at), scheme])


def _listed(result: Loaded) -> str:
    return ", ".join(dict.fromkeys(row["scheme"] for point in result.points for row in point["schemes"]))


def _change(one: _Key, a: Row, other: _Key, b: Row, section: str, key: str, paired: bool) -> Change | None:
    values = figure_of(a, section, key), figure_of(b, section, key)
    if values[0] is None or values[1] is None:
        return None
    half, by_run = _interval(a, b, section, key, paired) if key == "mean" else (None, False)
    return Change(
        at=dict(one[0]) or dict(other[0]),
        scheme_a=one[1],
        scheme_b=other[1],
        section=section,
        key=key,
        a=values[0],
        b=values[1],
        bound_a=is_bound(a, section, key),
        bound_b=is_bound(b, section, key),
        ci95=half,
        paired=by_run,
    )


def _interval(a: Row, b: Row, section: str, key: str, paired: bool) -> tuple[float | None, bool]:
    """The half width for a difference of means: run by run where both have the same flows, else of both sides.

    The latter adds the squares of both half widths, so it is no narrower than Welch's interval.
    """
    of_a, of_b = (_by_seed(row["runs"], section, key) for row in (a, b))
    if paired and of_a.keys() == of_b.keys():
        return ci95([of_b[seed] - of_a[seed] for seed in of_a]), True
    halves = [ci95(list(values.values())) for values in (of_a, of_b)]
    known = [half for half in halves if half is not None]
    return (math.hypot(*known) if len(known) == len(halves) else None), False


def _by_seed(runs: Sequence[Row], section: str, key: str) -> dict[Any, float]:
    return {run.get("seed"): value for run in runs if (value := figure_of(run, section, key)) is not None}
