"""Values of a figure over flows of which unfinished ones give only a bound (right-censored data)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import polars as pl

from pathloom.experiments.results.definitions import SIZE_CLASSES
from pathloom.experiments.results.stats import bounded_percentile, mean

PERCENTILES: Final = (50, 95, 99)


class CensoredValues(NamedTuple):
    """The known values of a figure over flows or groups of flows, both ascending."""

    exact: Sequence[float]
    bounds: Sequence[float]
    """Of unfinished ones."""

    @classmethod
    def of(cls, flows: pl.DataFrame, column: str, size_class: str | None = None) -> CensoredValues:
        """The values of a column that are not null, of all flows or of those of a size class.

        >>> columns = {"size_bytes": [9, 9, None], "finished": [True, False, False], "age_s": [2.0, 3.0, 1.0]}
        >>> CensoredValues.of(pl.DataFrame(columns), "age_s")
        CensoredValues(exact=[1.0, 2.0], bounds=[3.0])
        """
        values, is_bound = flows[column], flows["size_bytes"].is_not_null() & ~flows["finished"]
        if size_class is not None:
            # A filter of the table would copy all its columns.
            is_of_class = flows["size_class"] == size_class
            values, is_bound = values.filter(is_of_class), is_bound.filter(is_of_class)
        exact, bounds = (values.filter(which).drop_nulls().sort().to_list() for which in (~is_bound, is_bound))
        return cls(exact, bounds)

    def mean(self, name: str) -> dict[str, float | bool | None]:
        """The mean as `name`, and whether it is only a bound as `NAME_censored`; both None without values.

        >>> CensoredValues([1.0, 2.0], [3.0]).mean("mean")
        {'mean': 2.0, 'mean_censored': True}
        """
        value = mean([*self.exact, *self.bounds])
        return marked(name, value, None if value is None else bool(self.bounds))

    def percentile(self, name: str, limit: float, share: float) -> dict[str, float | bool | None]:
        """The percentile of `share` (0..1) as `name`, and whether it is only a bound as `NAME_censored`.

        The true value of an unfinished flow lies between its bound and `limit` (`stats.bounded_percentile`).
        """
        return marked(name, *bounded_percentile(self.exact, self.bounds, limit, share))

    def percentiles(self) -> dict[str, float | bool | None]:
        """The percentiles of `PERCENTILES`, for times and other values of which unfinished ones have no upper limit.

        >>> CensoredValues([1.0, 2.0], []).percentiles()["p50"]
        1.5
        """
        found = [self.percentile(f"p{percent}", math.inf, percent / 100) for percent in PERCENTILES]
        return {key: value for one in found for key, value in one.items()}


def figures_by_size(flows: pl.DataFrame, column: str) -> dict[str, float | bool | None]:
    """The mean and the percentiles of a column over the flows that started, and means by size class.

    >>> columns = {"age_s": [2.0, 3.0], "finished": [True, False], "size_class": ["mouse", "elephant"]}
    >>> found = figures_by_size(pl.DataFrame({**columns, "size_bytes": [9_000, 9_000_000]}), "age_s")
    >>> found["mean"], found["mean_censored"], found["p50"]
    (2.5, True, 2.5)
    >>> found["mouse"], found["mouse_censored"], found["elephant_censored"], found["rabbit"]
    (2.0, False, True, None)
    """
    values = CensoredValues.of(flows, column)
    figures = {**values.mean("mean"), **values.percentiles()}
    for name in SIZE_CLASSES:
        figures.update(CensoredValues.of(flows, column, name).mean(name))
    return figures


def marked(name: str, value: float | None, censored: bool | None) -> dict[str, float | bool | None]:
    """A figure, and whether it is only a bound.

    >>> marked("p50", 3.0, False)
    {'p50': 3.0, 'p50_censored': False}
    """
    return {name: value, f"{name}_censored": censored}
