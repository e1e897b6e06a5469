"""The differences between two results: settings, and every figure with the certainty of its difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pathloom._core import PathloomError
from pathloom.errors import bad_input
from pathloom.experiments.results.saved import FOREIGN, Loaded
from pathloom.experiments.results.stats import ci95, holm, mean, t_test_p_value, two_samples
from pathloom.experiments.results.summary import difference_of
from pathloom.experiments.results.verdicts import Verdict, corrected_verdict, figure_of, is_bound
from pathloom.quantities import seeds_text

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
"""If these settings and all files except schemes are equal, runs of equal seeds have the same flows."""
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
    """Whether the value is a bound because of unfinished flows."""
    ci95: float | None
    """Half width of the 95 % confidence interval of the difference; None if there is none."""
    paired: bool
    """Whether the interval is that of the differences run by run."""
    p_value: float | None = None
    """Probability of such a difference by chance, corrected for the number of rows of this figure (Holm)."""

    @property
    def difference(self) -> float:
        """B minus A."""
        return self.b - self.a

    @property
    def share(self) -> float | None:
        """The difference over A; None if A is 0."""
        return self.difference / self.a if self.a else None

    @property
    def verdict(self) -> str:
        """The verdict, as `says` in docs/formats.md; empty for a percentile, which has no interval."""
        if self.bound_a or self.bound_b:
            return UNKNOWN
        if self.a == self.b:
            return SAME
        difference = difference_of(self.difference, self.ci95, max(abs(self.a), abs(self.b)))
        found = corrected_verdict(difference, self.p_value)
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
            "p_value": self.p_value,
            "paired": self.paired,
            "says": self.verdict,
        }


@dataclass(frozen=True)
class Diff:
    """A comparison of two results."""

    a: Loaded
    b: Loaded
    settings: tuple[tuple[str, Any, Any], ...]
    """Settings that differ: key, value in A, value in B; None for a missing value."""
    changes: tuple[Change, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    """Schemes and points that the other result lacks."""
    runs: tuple[str, ...] = ()
    """Sentences on results that ended early, and on what is compared if runs have no counterpart."""

    def record(self) -> dict[str, Any]:
        """The content of `diff --json`."""
        return {
            "schema": SCHEMA,
            "a": str(self.a.path),
            "b": str(self.b.path),
            "settings": [{"key": key, "a": a, "b": b} for key, a, b in self.settings],
            "runs": list(self.runs),
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "rows": [change.record() for change in self.changes],
        }


def diff(a: Loaded, b: Loaded) -> Diff:
    """Compares two results: points by their axes, schemes by their names.

    A result of another simulator is compared with every scheme of the other result. Raises `PathloomError` if the two
    results have nothing in common.
    """
    rows_a, rows_b = _rows(a), _rows(b)
    names = sorted({*a.summary["settings"], *b.summary["settings"]})
    values = [(key, a.summary["settings"].get(key), b.summary["settings"].get(key)) for key in names]
    # None and an empty list count as equal: an older version may lack the key.
    differ = [(key, one, other) for key, one, other in values if (one or None) != (other or None)]
    if FOREIGN in (a.kind, b.kind):
        pairs = [(one, other) for one in rows_a for other in rows_b]
    else:
        pairs = [(one, one) for one in rows_a if one in rows_b]
    if not pairs:
        raise _nothing_in_common(a, b)
    paired = not any(key in (*SAME_FLOWS, "file") for key, _, _ in differ) and _inputs(a) == _inputs(b)
    changes = [
        change
        for one, other in pairs
        for section, key in FIGURES
        if (change := _change(one, rows_a[one], other, rows_b[other], section, key, paired)) is not None
    ]
    both = {one for one, _ in pairs} | {other for _, other in pairs}
    only_a, only_b = (tuple(_name(key) for key in rows if key not in both) for rows in (rows_a, rows_b))
    return Diff(a, b, tuple(differ), _corrected(changes), only_a, only_b, _run_lines(a, b, pairs, paired))


def _corrected(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes with probabilities that are corrected for the number of changes of the same figure."""
    by_place: dict[int, float | None] = {}
    for figure in FIGURES:
        places = [place for place, change in enumerate(changes) if (change.section, change.key) == figure]
        by_place.update(zip(places, holm([changes[place].p_value for place in places]), strict=True))
    return tuple(replace(change, p_value=by_place[place]) for place, change in enumerate(changes))


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


def _listed(result: Loaded) -> list[str]:
    return list(dict.fromkeys(row["scheme"] for point in result.points for row in point["schemes"]))


def _nothing_in_common(a: Loaded, b: Loaded) -> PathloomError:
    """Why two results cannot be compared."""
    place = f"`{a.path}` and `{b.path}`: have"
    names_a, names_b = _listed(a), _listed(b)
    if not set(names_a) & set(names_b):
        have_a, have_b = (", ".join(names) or "none" for names in (names_a, names_b))
        return bad_input(f"{place} no scheme in common; they have {have_a} and {have_b}")
    over_a, over_b = (", ".join(side.points[0]["at"]) or "nothing" for side in (a, b))
    if over_a == over_b:
        return bad_input(f"{place} no point in common; both are over {over_a}, but with other values or schemes")
    return bad_input(
        f"{place} no point in common: A is over {over_a}, B over {over_b}; compare results with the same axes"
    )


def _run_lines(a: Loaded, b: Loaded, pairs: Sequence[tuple[_Key, _Key]], paired: bool) -> tuple[str, ...]:
    """Sentences on runs that one of the two results lacks, on failed schemes, and on versions."""
    lines = []
    for name, side, compared in (("A", a, {one for one, _ in pairs}), ("B", b, {other for _, other in pairs})):
        if side.summary.get("complete") is False:
            each = [f"{row['scheme']} has {seeds_text(_seeds(row))}" for row in side.summary["schemes"]]
            lines.append(f"{name} ended early: {', '.join(each)}")
        failed = [row["scheme"] for key, row in _rows(side).items() if row.get("failures") and key in compared]
        if failed:
            schemes = ", ".join(dict.fromkeys(failed))
            lines.append(f"the code of {schemes} failed in {name}: its figures are not what the scheme would do")
    if FOREIGN not in (a.kind, b.kind):
        lines += _version_lines(a.summary.get("versions") or {}, b.summary.get("versions") or {})
    rows_a, rows_b = _rows(a), _rows(b)
    if paired and any(_seeds(rows_a[one]) != _seeds(rows_b[other]) for one, other in pairs):
        lines.append(
            "A and B differ in their seeds: means and counts of flows are of the seeds that both have, percentiles of "
            "all runs"
        )
    return tuple(lines)


def _version_lines(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """A sentence on the programs that made two results, if they differ."""
    of_a, of_b = (of.get("pathloom", "an unknown version") for of in (a, b))
    if of_a != of_b:
        return [f"different versions of Pathloom made A ({of_a}) and B ({of_b})"]
    programs = {of["program"] for of in (a, b) if "program" in of}
    return [f"different builds of Pathloom {of_a} made A and B"] if len(programs) > 1 else []


def _seeds(row: Row) -> list[Any]:
    return [run.get("seed") for run in row["runs"]]


@dataclass(frozen=True)
class _Sides:
    """A figure in both results."""

    a: float | None
    b: float | None
    bound_a: bool
    bound_b: bool
    half: float | None = None
    p_value: float | None = None
    paired: bool = False


def _change(one: _Key, a: Row, other: _Key, b: Row, section: str, key: str, paired: bool) -> Change | None:
    found = _sides(a, b, section, key, paired)
    if found.a is None or found.b is None:
        return None
    return Change(
        at=dict(one[0]) or dict(other[0]),
        scheme_a=one[1],
        scheme_b=other[1],
        section=section,
        key=key,
        a=found.a,
        b=found.b,
        bound_a=found.bound_a,
        bound_b=found.bound_b,
        ci95=found.half,
        paired=found.paired,
        p_value=found.p_value,
    )


def _sides(a: Row, b: Row, section: str, key: str, paired: bool) -> _Sides:
    """A figure of both results with the half width for its difference.

    If both have the same flows, means are compared run by run, and counts are of the same runs. Runs that one result
    lacks are left out. Otherwise the runs are independent samples.
    """
    bounds = is_bound(a, section, key), is_bound(b, section, key)
    whole = _Sides(figure_of(a, section, key), figure_of(b, section, key), *bounds)
    of_a, of_b = (_by_seed(row["runs"], section, key) for row in (a, b))
    common = [seed for seed in of_a if seed in of_b] if paired else []
    in_a, in_b = ([float(of[seed][section][key]) for seed in common or of] for of in (of_a, of_b))
    same_runs = of_a.keys() == of_b.keys()
    if key != "mean":
        counts = section == "flows" and common and not same_runs
        return replace(whole, a=math.fsum(in_a), b=math.fsum(in_b)) if counts else whole
    if not common:
        half, p_value = two_samples(in_a, in_b)
        return replace(whole, half=half, p_value=p_value)
    differences = [two - one for one, two in zip(in_a, in_b, strict=True)]
    found = replace(whole, half=ci95(differences), p_value=t_test_p_value(differences), paired=True)
    if same_runs:
        return found
    bounds = (
        any(is_bound(of_a[seed], section, key) for seed in common),
        any(is_bound(of_b[seed], section, key) for seed in common),
    )
    return replace(found, a=mean(in_a), b=mean(in_b), bound_a=bounds[0], bound_b=bounds[1])


def _by_seed(runs: Sequence[Row], section: str, key: str) -> dict[Any, Row]:
    """The runs that have a figure, by seed."""
    return {run.get("seed"): run for run in runs if figure_of(run, section, key) is not None}
