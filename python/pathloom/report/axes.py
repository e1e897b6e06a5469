"""The pictures of a result, drawn into axes of matplotlib: `result.plot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from pathloom.errors import bad_input
from pathloom.report.palette import Look, looks
from pathloom.report.plots import (
    draw_by_size,
    draw_fct_cdf,
    draw_link_ranks,
    draw_throughput_cdf,
    log_times,
    log_times_over,
)
from pathloom.report.style import pathloom_style

if TYPE_CHECKING:
    from pathloom.experiments.results.result import ResultData

Drawn = Callable[[Axes, "ResultData", Mapping[str, Look]], bool]
"""Draws into axes. Returns whether there was anything to draw."""


class ResultPlots:
    """Draws the figures of a result, each scheme in its colour of the report.

    Each method takes the axes to draw into as `ax`, by default new ones of `matplotlib.pyplot`, and returns them. It
    raises `PathloomError` if the result has nothing to draw.

    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import pathloom as pl
    >>> result = pl.run(scheme="ecmp", fabric="diamond", traffic="long-lived", duration="50ms")
    >>> result.plot.throughput_cdf().get_xlabel()
    'throughput of a flow (1 = ideal)'
    """

    def __init__(self, result: ResultData) -> None:
        self._result = result

    def throughput_cdf(self, ax: Axes | None = None) -> Axes:
        """The distribution of the throughput of flows."""
        return self._draw("throughput_cdf", ax, draw_throughput_cdf)

    def fct_cdf(self, ax: Axes | None = None) -> Axes:
        """The distribution of flow completion times, on a logarithmic axis."""
        return self._draw("fct_cdf", ax, draw_fct_cdf)

    def fct_by_size(self, ax: Axes | None = None, quantile: float = 0.5) -> Axes:
        """A quantile of the flow completion time in each class of flow sizes; 0.5 is the median."""
        axes = self._by_size("fct_by_size", ax, "age_s", quantile)
        log_times(axes, "y")
        axes.set_ylabel("flow completion time")
        return axes

    def slowdown_by_size(self, ax: Axes | None = None, quantile: float = 0.5) -> Axes:
        """A quantile of the slowdown in each class of flow sizes; 0.5 is the median."""
        axes = self._by_size("slowdown_by_size", ax, "slowdown", quantile)
        log_times_over(axes)
        axes.set_ylabel("FCT slowdown")
        return axes

    def link_ranks(self, ax: Axes | None = None) -> Axes:
        """The mean utilisation of the links between switches, busiest first."""
        return self._draw("link_ranks", ax, draw_link_ranks)

    def _by_size(self, name: str, ax: Axes | None, column: str, quantile: float) -> Axes:
        if not 0.0 < quantile < 1.0:
            raise bad_input(f"plot.{name}: quantile: {quantile} is not valid; expected a share such as 0.99")
        return self._draw(name, ax, lambda axes, result, look: draw_by_size(axes, result, look, column, quantile))

    def _draw(self, name: str, ax: Axes | None, draw: Drawn) -> Axes:
        look = looks(self._result.settings.labels)
        with pathloom_style():
            axes = ax if ax is not None else _new_axes()
            if not draw(axes, self._result, look):
                raise bad_input(f"plot.{name}: the result has no such flows or links; run it longer, or draw another")
            axes.legend()
        return axes


def _new_axes() -> Axes:
    from matplotlib import pyplot

    _, axes = pyplot.subplots(layout="constrained")
    return axes
