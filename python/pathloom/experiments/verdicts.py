"""Which scheme is best in a figure, and whether that may be said.

Runs of one seed meet the same flows under every scheme, so schemes are compared run by run (paired).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pathloom.experiments.stats import holm, t_test
from pathloom.experiments.summary import paired_differences

EQUAL_SHARE = 0.01
"""Figures that differ by this share of the larger one, or less, are called equal."""
SIGNIFICANT = 0.05
"""Differences are clear when chance gives them less often than this."""
_ROUNDING = 1e-9

Row = Mapping[str, Any]
"""What `result.json` says of a scheme, or of one of its runs."""


class Verdict(Enum):
    """What the runs say of a difference between two schemes."""

    EQUAL = "equal"
    """1 % or less."""
    CLEAR = "clear"
    """The paired 95 % confidence interval excludes 0."""
    UNCLEAR = "unclear"
    """It does not."""
    SINGLE = "single"
    """There is one run to compare, and so no interval."""


def verdict(difference: Mapping[str, float | None]) -> Verdict:
    """What to call a difference that `paired_differences` gives.

    >>> verdict({"mean": 0.2, "ci95": 0.1, "share": 0.3}), verdict({"mean": 0.2, "ci95": 0.1, "share": 0.01})
    (<Verdict.CLEAR: 'clear'>, <Verdict.EQUAL: 'equal'>)
    """
    mean, half, share = difference["mean"] or 0.0, difference["ci95"], difference["share"] or 0.0
    if _is_equal(share):
        return Verdict.EQUAL
    if half is None:
        return Verdict.SINGLE
    return Verdict.CLEAR if abs(mean) > half else Verdict.UNCLEAR


def _is_equal(share: float) -> bool:
    return share <= EQUAL_SHARE + _ROUNDING


@dataclass(frozen=True)
class Figure:
    """A figure in which schemes are compared."""

    of: Callable[[Row], float | None]
    """Its value, of a scheme or of a run."""
    high_is_better: bool
    is_bound: Callable[[Row], bool] = lambda _row: False
    """Whether unfinished flows make the value of a scheme a bound alone, better than the truth."""


def figure_of(row: Row, section: str, name: str) -> float | None:
    """A figure of a scheme or a run; None where there is none."""
    return (row.get(section) or {}).get(name)


def is_bound(row: Row, section: str, name: str) -> bool:
    """Whether unfinished flows make a figure of a scheme a bound alone."""
    return bool((row.get(section) or {}).get(f"{name}_censored"))


def _mean_of(section: str, high_is_better: bool) -> Figure:
    return Figure(
        lambda row: figure_of(row, section, "mean"), high_is_better, lambda row: is_bound(row, section, "mean")
    )


THROUGHPUT, FCT, COMPLETION = _mean_of("throughput", True), _mean_of("fct_s", False), _mean_of("completion_s", False)
"""The figures that the headline speaks of."""
HEADLINE = {"completion_s": COMPLETION, "throughput": THROUGHPUT, "fct_s": FCT}
"""They by their places in `result.json`."""


@dataclass(frozen=True)
class Pair:
    """Two schemes compared in a figure, run by run; the members are places in the list of schemes."""

    one: int
    other: int
    difference: Mapping[str, float | None]
    """As `paired_differences` gives it: of `other` to `one`."""
    chance: float | None
    """Probability of such a difference by chance, corrected for the number of pairs (Holm); None of a single run."""
    bound: bool
    """Whether unfinished flows may make up the lead of the better scheme."""

    @property
    def verdict(self) -> Verdict:
        """As of a single difference, but clear only where the corrected probability is below `SIGNIFICANT`."""
        found = verdict(self.difference)
        if found in (Verdict.EQUAL, Verdict.SINGLE) or self.chance is None:
            return found
        return Verdict.CLEAR if self.chance < SIGNIFICANT else Verdict.UNCLEAR


def all_pairs(schemes: Sequence[Row], figure: Figure) -> list[Pair]:
    """Every pair of schemes that have a value in common runs."""
    found = []
    for one in range(len(schemes)):
        differences = paired_differences(schemes, figure.of, one)
        for other in range(one + 1, len(schemes)):
            difference = differences[other]
            if difference is not None:
                found.append((one, other, difference, t_test(_paired_values(schemes, figure, one, other))))
    known = [chance for *_, chance in found if chance is not None]
    corrected = iter(holm(known))
    pairs = []
    for one, other, difference, chance in found:
        ahead = (difference["mean"] or 0.0) > 0
        better = schemes[other if ahead == figure.high_is_better else one]
        fair_chance = None if chance is None else next(corrected)
        pairs.append(Pair(one, other, difference, fair_chance, figure.is_bound(better)))
    return pairs


def _paired_values(schemes: Sequence[Row], figure: Figure, one: int, other: int) -> list[float]:
    of_one = {run["run"]: figure.of(run) for run in schemes[one]["runs"]}
    pairs = [(figure.of(run), of_one.get(run["run"])) for run in schemes[other]["runs"]]
    return [value - base for value, base in pairs if value is not None and base is not None]


@dataclass(frozen=True)
class Ranking:
    """How schemes compare in a figure; the members are places in the list of schemes."""

    best: int
    equal: tuple[int, ...]
    """Not to be told from the best: 1 % apart or less."""
    unclear: tuple[int, ...]
    """Not clearly different from the best over the runs."""
    clear: tuple[int, ...]
    """Clearly worse than the best."""
    single: bool
    """Whether a single run is all there is to compare."""
    bound: bool
    """Whether the best value is a bound alone, so that the true one may be worse."""

    @property
    def crowned(self) -> int | None:
        """The scheme that is clearly better than every other; None where there is none."""
        return self.best if self.clear and not (self.equal or self.unclear or self.bound) else None


def ranking(schemes: Sequence[Row], figure: Figure) -> Ranking | None:
    """Compares schemes in a figure; None where fewer than two have a value."""
    values = [figure.of(row) if row["runs"] else None for row in schemes]
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    value, best = (max if figure.high_is_better else min)(known, key=lambda pair: pair[0])
    sorted_out: dict[Verdict, list[int]] = {one: [] for one in Verdict}
    differences = paired_differences(schemes, figure.of, best)
    for other, place in known:
        difference = differences[place]
        if place == best:
            continue
        larger = max(abs(other), abs(value))
        if _is_equal(abs(other - value) / larger if larger else 0.0):
            sorted_out[Verdict.EQUAL].append(place)
            continue
        if difference is None:  # They have no run in common.
            sorted_out[Verdict.UNCLEAR].append(place)
            continue
        said = verdict(difference)
        behind = (difference["mean"] or 0.0) < 0 if figure.high_is_better else (difference["mean"] or 0.0) > 0
        # Figures of all runs together may rank otherwise than the runs do one by one.
        sorted_out[said if behind or said is Verdict.EQUAL else Verdict.UNCLEAR].append(place)
    unclear = tuple(sorted([*sorted_out[Verdict.UNCLEAR], *sorted_out[Verdict.SINGLE]]))
    return Ranking(
        best,
        tuple(sorted_out[Verdict.EQUAL]),
        unclear,
        tuple(sorted_out[Verdict.CLEAR]),
        single=bool(sorted_out[Verdict.SINGLE]),
        bound=figure.is_bound(schemes[best]),
    )
