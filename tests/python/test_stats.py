"""Means, percentiles and intervals, compared with values from other sources."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathloom.experiments.results.stats import bounded_percentile, ci95, mean, percentile, t_quantile_975

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50)

# Student's t, 97.5 %, from the table in NIST's e-Handbook of Statistical Methods, section 1.3.6.7.2.
NIST = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 19: 2.093, 30: 2.042, 50: 2.009, 100: 1.984}


@pytest.mark.parametrize(("freedom", "quantile"), NIST.items())
def test_t_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile_975(freedom) == pytest.approx(quantile, abs=6e-4)


def test_t_quantiles_fall_towards_the_normal_one() -> None:
    quantiles = [t_quantile_975(freedom) for freedom in (1, 2, 3, 10, 11, 99, 100, 999, 9999)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert quantiles[-1] == pytest.approx(1.96, abs=1e-3)


@given(VALUES)
def test_mean_and_percentiles_agree_with_other_libraries(values: list[float]) -> None:
    ascending = sorted(values)
    assert mean(values) == pytest.approx(statistics.fmean(values), abs=1e-6)
    for share in (0.0, 0.05, 0.5, 0.95, 0.99, 1.0):
        assert percentile(ascending, share) == pytest.approx(float(np.quantile(values, share)), abs=1e-3)


@given(VALUES)
def test_the_order_of_values_does_not_matter(values: list[float]) -> None:
    assert mean(values) == mean(values[::-1])
    assert ci95(values) == ci95(values[::-1])


def test_interval_of_ten_values_against_a_worked_example() -> None:
    # Mean 5.5, sample variance 9.1667: 2.262157 * sqrt(9.1667 / 10).
    assert ci95([float(value) for value in range(1, 11)]) == pytest.approx(2.165850, abs=1e-5)
    assert ci95([1.0]) is None
    assert ci95([2.0, 2.0]) == 0.0


def test_an_empty_list_has_no_mean() -> None:
    assert mean([]) is None
    assert percentile([], 0.5) is None


AGES = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.booleans()), min_size=1, max_size=40)


@given(AGES, st.sampled_from([0.0, 0.05, 0.5, 0.95, 0.99, 1.0]))
def test_percentiles_with_unfinished_flows_are_lower_bounds(
    flows: list[tuple[float, float, bool]], share: float
) -> None:
    """Each flow has an age, the further time until its end if it is unfinished, and whether it is unfinished."""
    exact = [age for age, _, cut in flows if not cut]
    ages = [age for age, _, cut in flows if cut]
    value, censored = bounded_percentile(exact, ages, math.inf, share)
    in_the_end = percentile(sorted([*exact, *(age + more for age, more, cut in flows if cut)]), share)
    assert value is not None and in_the_end is not None
    assert in_the_end >= value
    if not censored:
        assert in_the_end == value, "a percentile that is not marked is exact"


def test_a_percentile_is_a_bound_from_the_first_unfinished_flow_on() -> None:
    finished = [float(value) for value in range(1, 97)]
    cut = [200.0] * 4
    assert bounded_percentile(finished, cut, math.inf, 0.50) == (50.5, False)
    assert bounded_percentile(finished, cut, math.inf, 0.75) == (75.25, False)
    assert bounded_percentile(finished, cut, math.inf, 0.99) == (200.0, True)
    early = [0.5] * 4
    assert bounded_percentile(finished, early, math.inf, 0.50) == (46.5, True), (
        "they may still take longer than all others"
    )
    assert bounded_percentile(finished, [], math.inf, 0.99) == (percentile(finished, 0.99), False)
    assert bounded_percentile([], [], math.inf, 0.5) == (None, None)
    # Throughput is bounded from above: an unfinished flow may never end.
    assert bounded_percentile([0.5, 0.9], [0.7], 0.0, 0.0) == (0.5, True)
