"""Means, percentiles and confidence intervals with the same result on every machine.

Sums are exact (`math.fsum`), so they do not depend on the order of the values or on the width of a vector unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean; None if there are no values."""
    return math.fsum(values) / len(values) if values else None


def percentile(ascending: Sequence[float], share: float) -> float | None:
    """The value below which `share` (0..1) of the ascending values lie, linear between neighbours; None without values.

    >>> percentile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    if not ascending:
        return None
    place = share * (len(ascending) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ascending) - 1)
    if place == low or ascending[low] == ascending[high]:
        return ascending[low]  # Returned directly, because the difference of infinite neighbours is not a number.
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)


def bounded_percentile(
    exact: Iterable[float], bounds: Sequence[float], limit: float, share: float
) -> tuple[float | None, bool | None]:
    """A percentile of values of which some are known only by a bound, and whether the percentile is only a bound.

    `exact` are the known values. Each of the `bounds` represents a value between it and `limit`. The percentile is
    exact if it is the same for both extremes: the censored flows are above its rank. Otherwise it is a bound on the
    same side as the `bounds`: a lower bound if `limit` is infinity. Without values both results are None.

    >>> bounded_percentile([1.0, 2.0, 4.0], [3.0], math.inf, 0.5)
    (2.5, True)
    >>> bounded_percentile([1.0, 2.0, 4.0], [5.0, 6.0], math.inf, 0.5)
    (4.0, False)
    """
    known = list(exact)
    at_bounds = at_limit = percentile(sorted([*known, *bounds]), share)
    if bounds:
        at_limit = percentile(sorted([*known, *(limit for _ in bounds)]), share)
    return at_bounds, None if at_bounds is None else at_bounds != at_limit


def ci95(values: Sequence[float]) -> float | None:
    """Half width of the 95 % confidence interval of the mean (Student's t); None for fewer than two values.

    It is 0 only if all values are equal, as those of deterministic runs are.

    >>> round(ci95([1.0, 2.0, 3.0]), 4), ci95([0.1, 0.1, 0.1])
    (2.4841, 0.0)
    """
    return t_quantile_975(len(values) - 1) * _standard_error(values) if len(values) > 1 else None


def t_test_p_value(values: Sequence[float]) -> float | None:
    """Probability of a mean this far from 0 if the true mean is 0 (two-sided t test); None for fewer than two values.

    >>> round(t_test_p_value([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    if len(values) < 2:
        return None
    return _p_value(math.fsum(values) / len(values), _standard_error(values), len(values) - 1)


def two_samples(one: Sequence[float], other: Sequence[float]) -> tuple[float | None, float | None]:
    """Compares the means of independent samples: half width of the 95 % interval of their difference, and probability.

    The degrees of freedom are those of the smaller sample, so the interval is no narrower than Welch's. Both results
    are None if a sample has fewer than two values.

    >>> half, p_value = two_samples([1.0, 2.0, 3.0], [2.5, 4.5])
    >>> round(half, 4), round(p_value, 4)
    (14.6719, 0.4177)
    """
    if min(len(one), len(other)) < 2:
        return None, None
    freedom = min(len(one), len(other)) - 1
    error = math.hypot(_standard_error(one), _standard_error(other))
    distance = math.fsum(other) / len(other) - math.fsum(one) / len(one)
    return t_quantile_975(freedom) * error, _p_value(distance, error, freedom)


def _standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean of two or more values; 0 only if all are equal."""
    if min(values) == max(values):
        return 0.0
    centre = math.fsum(values) / len(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def _p_value(distance: float, error: float, freedom: int) -> float:
    if error == 0.0:
        return 0.0 if distance else 1.0
    return max(0.0, 1.0 - _t_within(abs(distance) / error, freedom))


def holm(probabilities: Sequence[float | None]) -> list[float | None]:
    """Probabilities of several tests, corrected for their number (Holm, Scand. J. Statist. 6, 1979), in their order.

    None is the probability of a comparison without a test, and does not count.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    ascending = sorted(
        (probability, place) for place, probability in enumerate(probabilities) if probability is not None
    )
    corrected: list[float | None] = [None] * len(probabilities)
    least = 0.0
    for rank, (probability, place) in enumerate(ascending):
        least = max(least, min(1.0, (len(ascending) - rank) * probability))
        corrected[place] = least
    return corrected


def t_quantile_975(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution, by bisection of its distribution function.

    It is rounded to 9 decimals, so that it does not depend on the last bits of a machine's sine and cosine.

    >>> t_quantile_975(1), t_quantile_975(9)
    (12.706204736, 2.262157163)
    """
    return t_quantile(0.95, freedom)


def t_quantile(within: float, freedom: int) -> float:
    """The t with the probability `within` (0.5..0.95) that |T| < t, as `t_quantile_975`.

    >>> t_quantile(0.9, 1), t_quantile(0.9, 9)
    (6.313751515, 1.833112933)
    """
    low, high = 0.0, 64.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if _t_within(middle, freedom) < within:
            low = middle
        else:
            high = middle
    return round(low, 9)


def _t_within(t: float, freedom: int) -> float:
    """Probability that |T| < t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    if freedom % 2 == 1:
        term = math.cos(angle) if freedom > 1 else 0.0
        total = term
        for k in range(3, freedom - 1, 2):
            term *= cosine2 * (k - 1) / k
            total += term
        return 2 / math.pi * (angle + math.sin(angle) * total)
    term = total = 1.0
    for k in range(2, freedom - 1, 2):
        term *= cosine2 * (k - 1) / k
        total += term
    return math.sin(angle) * total
