"""The table of a sweep as rows of text, for the page, the terminal and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathloom.experiments.results.verdicts import Figure, figure_of, is_bound, ranking
from pathloom.experiments.settings.model import FINISHED
from pathloom.experiments.sweeps.plan import value_text
from pathloom.quantities import FigureText, counted, rate_figure, share_figure, time_figure, times_figure
from pathloom.report.tables import AT_LEAST, AT_MOST, NOTHING, Table, best_text

if TYPE_CHECKING:
    from pathloom.experiments.sweeps.result import SweepData

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """A figure that sweeps show."""

    name: str
    """Name of the figure in file names."""
    title: str
    section: str
    key: str
    """Keys of the figure in `result.json`."""
    text: FigureText
    high_is_better: bool = False

    @property
    def figure(self) -> Figure:
        """The figure for comparisons of schemes."""
        return Figure(self.value, self.high_is_better, self.is_bound)

    @property
    def bound_sign(self) -> str:
        """Sign before a value that is a bound because of unfinished flows."""
        return AT_MOST if self.high_is_better else AT_LEAST

    def value(self, row: Row) -> float | None:
        """The value of a scheme or of a run."""
        return figure_of(row, self.section, self.key)

    def half(self, row: Row) -> float | None:
        """Half width of the 95 % confidence interval of a mean."""
        return figure_of(row, self.section, "ci95") if self.key == "mean" else None

    def is_bound(self, row: Row) -> bool:
        """Whether the value is a bound because of unfinished flows."""
        return is_bound(row, self.section, self.key)

    def cell(self, row: Row) -> str:
        """The value as a cell of a table."""
        value, half = self.value(row), self.half(row)
        if value is None:
            return NOTHING
        return f"{self.bound_sign if self.is_bound(row) else ''}{self.text(value, half)}"


METRICS = (
    Metric("throughput", "mean throughput", "throughput", "mean", share_figure, high_is_better=True),
    Metric("fct", "mean FCT", "fct_s", "mean", time_figure),
    Metric("slowdown", "mean slowdown", "slowdown", "mean", times_figure),
    Metric("p99-slowdown", "p99 slowdown", "slowdown", "p99", times_figure),
    Metric("completion", "completion time", "completion_s", "mean", time_figure),
    Metric("busbw", "bus bandwidth", "collective", "busbw_bps", rate_figure, high_is_better=True),
    Metric("over-ideal", "time over the ideal", "collective", "slowdown", times_figure),
)


def plot_names(axes: Iterable[str]) -> list[str]:
    """Names of all plots that a sweep over these axes may have, without the suffix."""
    return [plot_name(metric, axis) for axis in axes for metric in METRICS]


def plot_name(metric: Metric, axis: str) -> str:
    """Name of the plot of a figure along an axis, without the suffix."""
    return f"{metric.name}-by-{re.sub('[^A-Za-z0-9_-]', '-', axis)}"


def metrics_of(result: SweepData) -> list[Metric]:
    """The figures for which any scheme at any point has a value."""
    rows = [row for point in result.points for row in point.schemes]
    return [metric for metric in METRICS if any(metric.value(row) is not None for row in rows)]


def points_table(result: SweepData) -> Table:
    """A row per point and scheme: axes, scheme, runs, and every figure with its interval.

    A star marks a value that is clearly the best of its point.
    """
    metrics = metrics_of(result)
    axes = _shown_axes(result)
    rows = []
    for point in result.points:
        best = [_best(point.schemes, metric) for metric in metrics]
        for place, row in enumerate(point.schemes):
            marked = [
                f"{metric.cell(row)}{' *' if place == first else ''}"
                for metric, first in zip(metrics, best, strict=True)
            ]
            unfinished = row["flows"]["unfinished"]
            at = [value_text(point.at[name]) for name in axes]
            rows.append([*at, row["scheme"], str(len(row["runs"])), *marked, str(unfinished)])
    headings = [*axes, "scheme", "runs", *(metric.title for metric in metrics), "unfinished"]
    return Table(headings, rows, [None] * len(headings))


def _shown_axes(result: SweepData) -> list[str]:
    """The axes of the table. Those that name schemes are left out, unless a scheme is at several of their values."""
    axes = [name for name in result.plan.grid if name not in result.plan.scheme_axes]
    rows = [(*map(point.at.get, axes), row["scheme"]) for point in result.points for row in point.schemes]
    return axes if len(set(rows)) == len(rows) else list(result.plan.grid)


def _best(schemes: Sequence[Row], metric: Metric) -> int | None:
    found = ranking(schemes, metric.figure)
    clear_best = found.clear_best if found is not None else None
    return None if clear_best is None or schemes[clear_best].get("failures") else clear_best


def legend_lines(result: SweepData, table: Table) -> list[str]:
    """The meaning of the marks that the table contains."""
    cells = [cell for row in table.rows for cell in row]
    lines = []
    if any(cell.endswith(" *") for cell in cells):
        lines.append(f"* {best_text('at its point', max((point.schemes for point in result.points), key=len))}")
    if any(cell.startswith((AT_LEAST, AT_MOST)) for cell in cells):
        lines.append("≥ and ≤: some flows are unfinished, so the figure is a bound.")
    if any(" ± " in cell for cell in cells):
        lines.append("± is the half width of the 95 % confidence interval over the runs.")
    elif any(len(point.schemes) > 1 for point in result.points):
        lines.append(
            "One run of each scheme: no value is marked as the best, for it may be chance; set runs = 3 or more."
        )
    return [*lines, *until_lines(result)]


def until_lines(result: SweepData) -> list[str]:
    """The certainty that the points reach, if it was requested."""
    if result.until is None:
        return []
    asked = [point.until for point in result.points if point.until is not None]
    missed, bounds = (sum(one[key] is value for one in asked) for key, value in (("reached", False), ("bounds", True)))
    wanted = f"{100 * result.until.share:g} %"
    if missed:
        lines = [
            f"{missed} of {len(asked)} points are not known to ± {wanted} after the most runs that were allowed; "
            "raise most in --until."
        ]
    elif bounds:
        lines = [f"The interval of every difference to the best scheme of its point is ± {wanted} or narrower."]
    else:
        lines = [f"Every difference to the best scheme of its point is known to ± {wanted} or better."]
    if bounds:
        lines.append(
            f"At {bounds} of {counted(len(asked), 'point')}, flows are unfinished, so figures are bounds (≥ or ≤), "
            f'however many runs there are; until = "{FINISHED}" in the file lets every flow finish.'
        )
    return lines
