"""Intervals and rankings of paired runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pathloom.experiments.results.stats import ci95, holm, mean, t_quantile, t_test_p_value

COVERAGE = 0.9
"""Probability with which a prediction interval should contain the outcome."""
SIGNIFICANT = 0.05


def prediction_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The interval that has a further fork with a probability of 90 % (Student's t); None for fewer than two values.

    >>> [round(end, 3) for end in prediction_interval([1.0, 2.0, 3.0])]
    [-1.372, 5.372]
    """
    count = len(values)
    if count < 2:
        return None
    centre = math.fsum(values) / count
    variance = math.fsum((value - centre) ** 2 for value in values) / (count - 1)
    half = t_quantile(COVERAGE, count - 1) * math.sqrt(variance * (1 + 1 / count))
    return centre - half, centre + half


@dataclass(frozen=True)
class Difference:
    """How an alternative differs from another one over the same forks."""

    mean: float
    ci95: float | None
    """Half width of the 95 % interval of the mean difference; None with fewer than two forks."""
    p_value: float | None
    """Corrected for the number of alternatives (Holm); None without a test."""

    @property
    def told_apart(self) -> bool:
        """Whether the two can be told apart."""
        return self.p_value is not None and self.p_value < SIGNIFICANT


def differences(values: Sequence[Sequence[float]], others: Sequence[float]) -> list[Difference]:
    """The difference of each alternative to others, fork by fork, with probabilities corrected by Holm's method.

    >>> [one.told_apart for one in differences([[2.0, 2.1, 2.2], [1.0, 3.0, 2.0]], [1.0, 1.1, 1.2])]
    [True, False]
    """
    pairs = [[one - other for one, other in zip(row, others, strict=True)] for row in values]
    # Differences that are equal but for rounding are no proof that they are exact.
    corrected = holm([t_test_p_value(row) for row in pairs])
    return [Difference(mean(row) or 0.0, ci95(row), p_value) for row, p_value in zip(pairs, corrected, strict=True)]
