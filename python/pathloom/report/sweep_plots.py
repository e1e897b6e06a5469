"""Plots of a sweep: each figure along each axis, with a line per scheme and its 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.experiments.sweeps.plan import Value, place_text, value_text
from pathloom.quantities import time_text
from pathloom.report.palette import Look, looks
from pathloom.report.plots import Plot
from pathloom.report.style import fitting_legend, new_figure, pathloom_style
from pathloom.report.sweep_tables import Metric, metrics_of, plot_name

if TYPE_CHECKING:
    from pathloom.experiments.sweeps.result import PointResult, SweepData

MOST_PANELS = 12
"""Maximum number of combinations of the other axes in one picture."""
MOST_LETTERS = 32
"""Labels of an axis with more letters than this in total do not fit next to each other, and are rotated."""
COLUMNS = 3
"""Number of panels in a row."""


@dataclass(frozen=True)
class _Axis:
    """The places along an axis."""

    name: str
    values: tuple[Value, ...]
    places: tuple[float, ...]
    """Positions of the values on the axis."""
    is_numeric: bool
    """Whether positions are proportional to the values; otherwise they are equidistant, in the order of the grid."""


def plots(result: SweepData) -> list[Plot]:
    """Every figure along every axis that has two values or more."""
    series = list(dict.fromkeys(name for point in result.points for name in point.series))
    look = looks(series)
    grid, schemes = result.plan.grid, result.plan.scheme_axes
    axes = [_axis(name, values) for name, values in grid.items() if len(values) > 1 and name not in schemes]
    with pathloom_style():
        return [_plot(result, metric, axis, look) for axis in axes for metric in metrics_of(result)]


def _axis(name: str, values: Sequence[Value]) -> _Axis:
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) == len(values) and len(set(known)) == len(known):
        return _Axis(name, tuple(values), tuple(known), True)
    return _Axis(name, tuple(values), tuple(map(float, range(len(values)))), False)


def _number(value: Value) -> float | None:
    """A value as a number, for times in seconds; None for any other text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    try:
        return _core.parse_time_s(value)
    except PathloomError:
        return None


def _plot(result: SweepData, metric: Metric, axis: _Axis, look: Mapping[str, Look]) -> Plot:
    others = result.plan.others(axis.name)
    combinations = list(dict.fromkeys(tuple(point.at[name] for name in others) for point in result.points))
    shown = [dict(zip(others, values, strict=True)) for values in combinations[:MOST_PANELS]]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(6.4 if columns == 1 else 3.7 * columns, 3.4 * rows + 0.4)
    first: Axes | None = None
    for place, fixed in enumerate(shown):
        axes = figure.add_subplot(rows, columns, place + 1, sharex=first, sharey=first)
        first = first or axes
        points = [point for point in result.points if all(point.at[name] == fixed[name] for name in others)]
        _lines(axes, points, metric, axis, look)
        _label(axes, axis, MOST_LETTERS if columns > 1 else 2 * MOST_LETTERS)
        axes.set_title(place_text(fixed))
        if place % columns == 0:
            axes.set_ylabel(metric.title)
    assert first is not None
    first.set_ylim(0, None)
    handles, _ = first.get_legend_handles_labels()
    fitting_legend(figure, len(handles), handles=handles, loc="outside upper left", handlelength=2.6)
    says = f"A panel for each value of {', '.join(others)}. " if len(combinations) > 1 else ""
    says += (
        "Bars are 95 % confidence intervals over the runs."
        if metric.key == "mean"
        else "Percentiles are of the flows of all runs."
    )
    if any(metric.is_bound(row) for point in result.points for row in point.schemes):
        says += f" A hollow mark is a bound ({metric.bound_sign.strip()}): flows are unfinished."
    if len(combinations) > len(shown):
        says += f" The first {len(shown)} of {len(combinations)} panels are drawn; points.csv has all."
    title = f"{metric.title[0].upper()}{metric.title[1:]} by {axis.name}"
    return Plot(plot_name(metric, axis.name), title, says, figure)


def _lines(axes: Axes, points: Sequence[PointResult], metric: Metric, axis: _Axis, look: Mapping[str, Look]) -> None:
    for name, style in look.items():
        rows: list[tuple[float, Mapping[str, Any]]] = [
            (place, row)
            for place, value in sorted(zip(axis.places, axis.values, strict=True))
            for point in points
            if point.at[axis.name] == value
            for called, row in zip(point.series, point.schemes, strict=True)
            if called == name and metric.value(row) is not None
        ]
        if not rows:
            continue
        xs = [place for place, _ in rows]
        ys = [metric.value(row) or 0.0 for _, row in rows]
        halves = [metric.half(row) or 0.0 for _, row in rows]
        axes.errorbar(
            xs,
            ys,
            yerr=halves if any(halves) else None,
            color=style.colour,
            linestyle=style.line,
            marker="none",
            capsize=3,
            elinewidth=1.0,
            label="_line",
        )
        for is_bound in (False, True):
            chosen = [place for place, (_, row) in enumerate(rows) if metric.is_bound(row) == is_bound]
            axes.plot(
                [xs[place] for place in chosen],
                [ys[place] for place in chosen],
                linestyle="none",
                color=style.colour,
                marker=style.marker,
                markerfacecolor="white" if is_bound else style.colour,
                markersize=6,
                label="_marks",
            )
        axes.plot([], [], color=style.colour, linestyle=style.line, marker=style.marker, label=style.label)
    if metric.section.endswith("_s"):
        axes.yaxis.set_major_formatter(lambda value, _place: time_text(value) if value >= 0 else "")


def _label(axes: Axes, axis: _Axis, room: int) -> None:
    axes.set_xlabel(axis.name)
    if not axis.is_numeric:
        texts = [value_text(value) for value in axis.values]
        axes.set_xticks(axis.places, texts)
        if sum(map(len, texts)) > MOST_LETTERS:
            axes.tick_params(axis="x", labelsize=7, labelrotation=35)
            for tick in axes.get_xticklabels():
                tick.set(horizontalalignment="right", rotation_mode="anchor")
        return
    pairs = sorted(zip(axis.places, map(value_text, axis.values), strict=True))
    places = [place for place, _ in pairs]
    axes.set_xticks(places, _thinned(places, [text for _, text in pairs], room))


def _thinned(places: Sequence[float], texts: Sequence[str], room: int) -> list[str]:
    """Labels for ticks at these places, empty if they would touch another; the first and the last one are kept.

    >>> _thinned([0.2, 0.225, 0.25, 0.6], ["0.2", "0.225", "0.25", "0.6"], 32)
    ['0.2', '', '', '0.6']
    >>> _thinned([1, 2, 3, 4], ["1", "2", "3", "4"], 32)
    ['1', '2', '3', '4']
    """
    letter = (places[-1] - places[0]) / room

    def touch(one: int, other: int) -> bool:
        return abs(places[one] - places[other]) < letter * ((len(texts[one]) + len(texts[other])) / 2 + 1)

    last = len(places) - 1
    kept = [0]
    for place in range(1, last):
        if not touch(kept[-1], place) and not touch(place, last):
            kept.append(place)
    shown = {*kept, last}
    return [text if place in shown else "" for place, text in enumerate(texts)]
