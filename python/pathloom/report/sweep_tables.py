"""The table of a sweep, as rows of text: the page, the terminal and LaTeX print the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathloom.experiments.sweep_plan import value_text
from pathloom.experiments.verdicts import Figure, figure_of, is_bound, ranking
from pathloom.report.tables import AT_LEAST, AT_MOST, NOTHING, Table
from pathloom.words import FigureText, share_figure, time_figure, times_figure

if TYPE_CHECKING:
    from pathloom.experiments.sweep_result import SweepResult

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """A figure that sweeps show."""

    name: str
    """In names of files."""
    title: str
    section: str
    key: str
    """Its place in `result.json`."""
    text: FigureText
    high_is_better: bool = False

    @property
    def figure(self) -> Figure:
        """As schemes are compared in it."""
        return Figure(self.value, self.high_is_better, self.is_bound)

    @property
    def bound_sign(self) -> str:
        """Stands before a value that unfinished flows make a bound."""
        return AT_MOST if self.high_is_better else AT_LEAST

    def value(self, row: Row) -> float | None:
        """Its value, of a scheme or of a run."""
        return figure_of(row, self.section, self.key)

    def half(self, row: Row) -> float | None:
        """Half width of the 95 % confidence interval of a mean."""
        return figure_of(row, self.section, "ci95") if self.key == "mean" else None

    def is_bound(self, row: Row) -> bool:
        """Whether unfinished flows make its value a bound."""
        return is_bound(row, self.section, self.key)

    def cell(self, row: Row) -> str:
        """Its value in a table."""
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
)


def metrics_of(result: SweepResult) -> list[Metric]:
    """The figures that any scheme at any point has."""
    rows = [row for point in result.points for row in point.schemes]
    return [metric for metric in METRICS if any(metric.value(row) is not None for row in rows)]


def points_table(result: SweepResult) -> Table:
    """A row per point and scheme: axes, scheme, runs, and every figure with its interval.

    A value with a star is clearly the best of its point.
    """
    metrics = metrics_of(result)
    axes = [name for name in result.plan.grid if name not in result.plan.scheme_axes]
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


def _best(schemes: Sequence[Row], metric: Metric) -> int | None:
    found = ranking(schemes, metric.figure)
    crowned = found.crowned if found is not None else None
    return None if crowned is None or schemes[crowned].get("failures") else crowned


def legend_lines(result: SweepResult, table: Table) -> list[str]:
    """What the marks in the table mean, as far as there are any."""
    cells = [cell for row in table.rows for cell in row]
    lines = []
    if any(cell.endswith(" *") for cell in cells):
        lines.append(
            "* clearly the best at its point: more than 1 % ahead of every other scheme there, and the 95 % confidence "
            "interval of the difference, taken run by run, excludes 0."
        )
    if any(cell.startswith((AT_LEAST, AT_MOST)) for cell in cells):
        lines.append("≥ and ≤: some flows are unfinished, so the figure is a bound.")
    if any(" ± " in cell for cell in cells):
        lines.append("± is the half width of the 95 % confidence interval over the runs.")
    elif any(len(point.schemes) > 1 for point in result.points):
        lines.append(
            "One run of each scheme: no value is marked as the best, for it may be chance; set runs = 3 or more."
        )
    return [*lines, *until_lines(result)]


def until_lines(result: SweepResult) -> list[str]:
    """How sure the points are, where that was asked for."""
    if result.until is None:
        return []
    asked = [point for point in result.points if point.until is not None]
    missed = [point for point in asked if point.until is not None and not point.until["reached"]]
    wanted = f"{100 * result.until.share:g} %"
    if not missed:
        return [f"Every difference to the best scheme of its point is known to ± {wanted} or better."]
    return [
        f"{len(missed)} of {len(asked)} points are not known to ± {wanted} after the most runs that were allowed; "
        "raise most in --until."
    ]
