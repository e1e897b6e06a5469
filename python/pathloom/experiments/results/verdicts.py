"""Finds the best scheme in a figure, and whether the runs are enough to say so.

Runs of one seed have the same flows under every scheme, so schemes are compared run by run (paired).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pathloom.experiments.results.stats import holm, t_test_p_value
from pathloom.experiments.results.summary import paired_differences

EQUAL_SHARE = 0.01
"""Figures that differ by this share of the larger one, or less, are called equal."""
SIGNIFICANT = 0.05
"""A difference is clear if its probability by chance is below this."""
_ROUNDING = 1e-9

Row = Mapping[str, Any]
"""The entry of a scheme in `result.json`, or of one of its runs."""


class Verdict(Enum):
    """What the runs show about a difference between two schemes."""

    EQUAL = "equal"
    """The whole paired 95 % confidence interval lies within 1 %."""
    CLEAR = "clear"
    """The interval excludes 0, and the difference is over 1 %."""
    SMALL = "small"
    """The interval excludes 0 and reaches beyond 1 %, but the difference itself is 1 % or less."""
    UNCLEAR = "unclear"
    """The interval reaches beyond 1 % and does not exclude 0."""
    SINGLE = "single"
    """There is only one run to compare, so there is no interval."""


def verdict(difference: Mapping[str, float | None]) -> Verdict:
    """Classifies a difference that `paired_differences` returns.

    >>> verdict({"mean": 0.2, "ci95": 0.1, "share": 0.3, "share_ci95": 0.15})
    <Verdict.CLEAR: 'clear'>
    >>> verdict({"mean": 0.002, "ci95": 0.006, "share": 0.002, "share_ci95": 0.006})
    <Verdict.EQUAL: 'equal'>
    >>> verdict({"mean": 0.002, "ci95": 0.8, "share": 0.002, "share_ci95": 0.8})
    <Verdict.UNCLEAR: 'unclear'>
    """
    mean, half, share = difference["mean"] or 0.0, difference["ci95"], difference["share"] or 0.0
    if half is None:
        return Verdict.SINGLE
    if _is_equal(share + (difference["share_ci95"] or 0.0)):
        return Verdict.EQUAL
    if abs(mean) <= half:
        return Verdict.UNCLEAR
    return Verdict.SMALL if _is_equal(share) else Verdict.CLEAR


def corrected_verdict(difference: Mapping[str, float | None], p_value: float | None) -> Verdict:
    """As `verdict`, but `UNCLEAR` if the probability, corrected for the number of tests, is not below `SIGNIFICANT`.

    >>> corrected_verdict({"mean": 0.2, "ci95": 0.1, "share": 0.3, "share_ci95": 0.15}, 0.06)
    <Verdict.UNCLEAR: 'unclear'>
    """
    found = verdict(difference)
    if found in (Verdict.EQUAL, Verdict.SINGLE) or p_value is None:
        return found
    return found if p_value < SIGNIFICANT else Verdict.UNCLEAR


def _is_equal(share: float) -> bool:
    return share <= EQUAL_SHARE + _ROUNDING


@dataclass(frozen=True)
class Figure:
    """A figure in which schemes are compared."""

    of: Callable[[Row], float | None]
    """Returns the value of a scheme or of a run."""
    high_is_better: bool
    is_bound: Callable[[Row], bool] = lambda _row: False
    """Whether the value of a scheme is only a bound, better than the true value, because of unfinished flows."""


def figure_of(row: Row, section: str, name: str) -> float | None:
    """A figure of a scheme or a run; None if there is none."""
    return (row.get(section) or {}).get(name)


def is_bound(row: Row, section: str, name: str) -> bool:
    """Whether a figure of a scheme is only a bound because of unfinished flows."""
    return bool((row.get(section) or {}).get(f"{name}_censored"))


def _mean_of(section: str, high_is_better: bool) -> Figure:
    return Figure(
        lambda row: figure_of(row, section, "mean"), high_is_better, lambda row: is_bound(row, section, "mean")
    )


THROUGHPUT, FCT, COMPLETION = _mean_of("throughput", True), _mean_of("fct_s", False), _mean_of("completion_s", False)
"""The figures in the headline of a report."""
HEADLINE = {"completion_s": COMPLETION, "throughput": THROUGHPUT, "fct_s": FCT}
"""The same figures by their keys in `result.json`."""


@dataclass(frozen=True)
class Pair:
    """Two schemes compared in a figure, run by run. `one` and `other` are indices in the list of schemes."""

    one: int
    other: int
    difference: Mapping[str, float | None]
    """The difference of `other` to `one`, as `paired_differences` returns it."""
    p_value: float | None
    """Probability of such a difference by chance, corrected for the number of pairs (Holm); None for a single run."""
    bound: bool
    """Whether the lead of the better scheme may be due to unfinished flows only."""

    @property
    def verdict(self) -> Verdict:
        """What the runs show, corrected for the number of pairs."""
        return corrected_verdict(self.difference, self.p_value)


def all_pairs(schemes: Sequence[Row], figure: Figure) -> list[Pair]:
    """Every pair of schemes that have a value in common runs."""
    found = []
    for one in range(len(schemes)):
        differences = paired_differences(schemes, figure.of, one)
        for other in range(one + 1, len(schemes)):
            difference = differences[other]
            if difference is not None:
                found.append((one, other, difference, t_test_p_value(_paired_values(schemes, figure, one, other))))
    pairs = []
    for (one, other, difference, _), p_value in zip(found, holm([alone for *_, alone in found]), strict=True):
        ahead = (difference["mean"] or 0.0) > 0
        better = schemes[other if ahead == figure.high_is_better else one]
        pairs.append(Pair(one, other, difference, p_value, figure.is_bound(better)))
    return pairs


def _paired_values(schemes: Sequence[Row], figure: Figure, one: int, other: int) -> list[float]:
    of_one = {run["run"]: figure.of(run) for run in schemes[one]["runs"]}
    pairs = [(figure.of(run), of_one.get(run["run"])) for run in schemes[other]["runs"]]
    return [value - base for value, base in pairs if value is not None and base is not None]


@dataclass(frozen=True)
class Ranking:
    """How schemes compare in a figure, corrected for the number of pairs. Numbers are indices of schemes."""

    best: int
    equal: tuple[int, ...]
    """Equal to the best: the interval lies within 1 %, or a single run differs by 1 % or less."""
    small: tuple[int, ...]
    """Worse than the best, but by 1 % or less."""
    unclear: tuple[int, ...]
    """Not clearly different from the best over the runs, or compared by a single run."""
    clear: tuple[int, ...]
    """Clearly worse than the best."""
    single: tuple[int, ...]
    """Compared with the best by a single run only; these are also in `equal` or `unclear`."""
    bound: bool
    """Whether the best value is only a bound, so that the true value may be worse."""

    @property
    def clear_best(self) -> int | None:
        """The scheme that is clearly better than every other; None if there is none."""
        others = (*self.equal, *self.small, *self.unclear)
        return self.best if self.clear and not (others or self.bound) else None


def ranking(schemes: Sequence[Row], figure: Figure) -> Ranking | None:
    """Compares schemes in a figure; None if fewer than two have a value."""
    values = [figure.of(row) if row["runs"] else None for row in schemes]
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    value, best = (max if figure.high_is_better else min)(known, key=lambda pair: pair[0])
    differences = paired_differences(schemes, figure.of, best)
    by_chance = {
        pair.one + pair.other - best: pair for pair in all_pairs(schemes, figure) if best in (pair.one, pair.other)
    }
    sorted_out: dict[Verdict, list[int]] = {one: [] for one in Verdict}
    single = []
    for other, place in known:
        if place == best:
            continue
        larger = max(abs(other), abs(value))
        near = _is_equal(abs(other - value) / larger if larger else 0.0)
        said = _place_of(differences[place], near, figure.high_is_better)
        if said in (Verdict.CLEAR, Verdict.SMALL) and by_chance[place].verdict is Verdict.UNCLEAR:
            said = Verdict.UNCLEAR
        if said is Verdict.SINGLE:
            single.append(place)
            said = Verdict.EQUAL if near else Verdict.UNCLEAR
        sorted_out[said].append(place)
    return Ranking(
        best,
        tuple(sorted_out[Verdict.EQUAL]),
        tuple(sorted_out[Verdict.SMALL]),
        tuple(sorted_out[Verdict.UNCLEAR]),
        tuple(sorted_out[Verdict.CLEAR]),
        tuple(single),
        bound=figure.is_bound(schemes[best]),
    )


def _place_of(difference: Mapping[str, float | None] | None, near: bool, high_is_better: bool) -> Verdict:
    """Compares a scheme with the best; `near` tells that their figures of all runs together differ by 1 % or less."""
    if difference is None:  # They have no run in common.
        return Verdict.UNCLEAR
    said = verdict(difference)
    if said in (Verdict.EQUAL, Verdict.SINGLE):
        return said
    mean = difference["mean"] or 0.0
    # Figures of all runs together may rank schemes differently from the paired runs.
    if not (mean < 0 if high_is_better else mean > 0):
        return Verdict.UNCLEAR
    return Verdict.SMALL if near and said is Verdict.CLEAR else said
