"""Pictures of reproduced figures in the form of the paper: bars, lines over load, flows by rank, rates in time.

Published numbers are drawn as hollow marks next to the measured ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from pathloom.experiments.results.stats import mean, percentile
from pathloom.report.palette import FAINT, INK, Look, looks
from pathloom.report.plots import Plot as Picture
from pathloom.report.style import fitting_legend, new_figure, pathloom_style
from pathloom.reproduction.definitions import Measure
from pathloom.reproduction.measure import Line, Reproduced
from pathloom.reproduction.runs import key
from pathloom.reproduction.texts import number_text

MOST_RANKS = 400
"""Maximum number of points that are drawn of a curve by rank; more cannot be distinguished."""

MARKERS = {"exactly": "D", "up to": "d", "at least": "^", "at most": "v"}
"""Markers of published numbers. The arrow at a bound points to the values that it allows."""

WIDEST = 12
"""Maximum number of letters in one line of a label under a group of bars."""

ONE_SIZE = (1.8, 5.5)
"""Width of a line and size of its marks, in points, if each scheme has one line."""
NUMBER_HEIGHT = 0.05
"""Height of a number above a bar, as a share of the axis."""
SIZES = ((3.0, 8.0), (1.6, 5.0), (0.8, 3.0))
"""The same for schemes with several lines: the first variant is the thickest."""
SIDE = 0.012
"""Horizontal distance between two schemes at one place of a line picture, as a share of the x axis."""


def picture(result: Reproduced) -> Picture:
    """The picture of a figure."""
    makers: dict[str, Callable[[Axes, Reproduced, _Series], None]] = {
        "bars": _bars,
        "lines": _lines,
        "ranks": _ranks,
        "time": _in_time,
        "starts": _by_start,
    }
    figure, series = result.figure, _series(result)
    with pathloom_style():
        canvas = new_figure(_width(result), 3.7)
        axes = canvas.add_subplot()
        if figure.plot.log:
            # Before anything is drawn: limits of a linear axis mean nothing on a logarithmic one.
            axes.set_yscale("log")
        makers[figure.plot.kind](axes, result, series)
        axes.set_ylabel(figure.plot.y)
        if figure.plot.log:
            _label_log_axis(axes, result)
        elif figure.plot.kind in ("bars", "lines"):
            axes.set_ylim(bottom=min(0.0, _least(result)))
        if axes.get_legend_handles_labels()[1] or _bounds(result):
            _legend(axes, result)
    return Picture(figure.id.replace("/", "-"), figure.title, figure.source, canvas)


def _label_log_axis(axes: Axes, result: Reproduced) -> None:
    """Gives a logarithmic axis its ticks, and bars the power of ten below the least of them as their bottom."""
    least = _least(result, math.inf)
    if result.figure.plot.kind == "bars" and 0.0 < least < math.inf:
        axes.set_ylim(bottom=10.0 ** math.floor(math.log10(least)))
    first, last = (math.log10(end) for end in axes.get_ylim())
    if math.floor(last) - math.ceil(first) < 1:
        # One power of ten alone says little.
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    # Texts are drawn without TeX, so powers of ten in TeX notation would show dollar signs.
    axes.yaxis.set_major_formatter(lambda value, _place: f"{value:g}")


@dataclass(frozen=True)
class _Series:
    """The look of each scheme among all schemes of the figure, so that pictures of one paper agree."""

    of_scheme: Mapping[str, Look]


def _series(result: Reproduced) -> _Series:
    return _Series(looks(result.figure.schemes()))


def _width(result: Reproduced) -> float:
    if result.figure.plot.kind != "bars":
        return 7.2
    bars = len(_groups(result)) * max(1, len(_members(result)))
    return min(9.5, max(4.8, 2.2 + 0.42 * bars))


def _bounds(result: Reproduced) -> list[str]:
    """The kinds of published numbers in the picture, without duplicates."""
    if result.figure.plot.kind not in ("bars", "lines"):
        return []
    lines = [_published(result, *key) for key in _all_keys(result)]
    found = {line.bound for line in lines if line is not None}
    return [bound for bound in MARKERS if bound in found]


def _all_keys(result: Reproduced) -> list[tuple[Measure, str, str]]:
    measures = [measure for _, measure in result.figure.plot.measures()]
    return [(measure, plan.case.label, s) for measure in measures for plan in result.plans for s in _schemes_of(result)]


def _least(result: Reproduced, otherwise: float = 0.0) -> float:
    """The least value of the picture: axes start at zero unless a value is below. Without values, it is `otherwise`."""
    values = [result.value(*key).mean for key in _all_keys(result) if key[2] in result.schemes]
    return min((value for value in values if value is not None), default=otherwise)


def _schemes_of(result: Reproduced) -> list[str]:
    return result.figure.schemes()


def _published(result: Reproduced, measure: Measure, case: str, scheme: str) -> Line | None:
    """The line with the published number of a point of the picture; None if there is none."""
    only = len(result.figure.schemes()) == 1
    for row, line in zip(result.figure.rows, result.published, strict=True):
        same_scheme = row.scheme == scheme or (row.scheme is None and only)
        fits = row.measure is not None and key(row.measure) == key(measure) and row.case in (None, case)
        compared = row.over or row.over_case is not None
        if fits and same_scheme and not compared and line.published is not None:
            return line
    return None


# Bars: one group per case, and per variant if there are some; in a group one bar per scheme.


def _groups(result: Reproduced) -> list[tuple[str, Measure, str]]:
    """Label, measure and case of every group of bars."""
    measures, several = result.figure.plot.measures(), len(result.plans) > 1
    return [
        (
            label if not several else plan.case.label if not label else f"{plan.case.label}, {label}",
            measure,
            plan.case.label,
        )
        for plan in result.plans
        for label, measure in measures
    ]


def _members(result: Reproduced) -> list[str]:
    """Schemes with a bar, or with a published number, in any group."""
    shown = []
    for scheme in _schemes_of(result):
        points = [(measure, case, scheme) for _, measure, case in _groups(result)]
        if scheme in result.schemes or any(_published(result, *point) for point in points):
            shown.append(scheme)
    return shown


def _bars(axes: Axes, result: Reproduced, series: _Series) -> None:
    groups, members = _groups(result), _members(result)
    alone = len(groups) == 1
    width = 0.8 / max(1, 1 if alone else len(members))
    numbers: list[tuple[float, float, float | None, str]] = []
    for number, scheme in enumerate(members):
        look = series.of_scheme[scheme]
        for place, (_, measure, case) in enumerate(groups):
            x = float(number) if alone else place + width * (number - (len(members) - 1) / 2)
            value = result.value(measure, case, scheme)
            if value.mean is not None:
                label = result.figure.name_of(scheme) if place == 0 and not alone else None
                axes.bar(
                    x, value.mean, 0.62 if alone else 0.9 * width, yerr=value.ci95, color=look.colour, label=label,
                    capsize=2.5, error_kw={"elinewidth": 1.0, "ecolor": INK}, hatch=look.hatch,
                    edgecolor="white" if look.hatch else None,
                )  # fmt: skip
            line = _published(result, measure, case, scheme)
            if line is not None:
                _mark(axes, x, line, INK)
            if value.mean is not None and (alone or len(groups) * len(members) <= 10):
                digits = number_text(value.mean, result.figure.plot.unit).split()[0]
                numbers.append(
                    (x, value.mean + (value.ci95 or 0.0), _ends(line)[-1] if line is not None else None, digits)
                )
    _optimum_marks(axes, result, groups, alone)
    _number_bars(axes, numbers)
    if alone:
        unbuilt = [scheme for scheme in members if scheme not in result.schemes]
        names = [result.figure.name_of(scheme) + ("\n(not built)" if scheme in unbuilt else "") for scheme in members]
        axes.set_xticks(range(len(members)), names)
    else:
        labels = [label for label, _, _ in groups]
        if max(map(len, labels)) > WIDEST:
            labels = [label.replace(", ", ",\n") for label in labels]
        axes.set_xticks(range(len(groups)), labels)
        axes.set_xlabel(result.figure.plot.x)
    axes.grid(visible=False, axis="x")


def _number_bars(axes: Axes, numbers: Sequence[tuple[float, float, float | None, str]]) -> None:
    """Writes the value of each bar above it, or above its published number if that is in the way.

    A row has the place on the x axis, the end of the bar and its interval, the published number, and the text.
    """
    if not numbers:
        return
    lowest, highest = axes.get_ylim()
    height = NUMBER_HEIGHT * (highest - lowest)
    for x, end, published, digits in numbers:
        above = end
        if published is not None and end - height < published < end + 1.5 * height:
            above = max(end, published + 0.4 * height)
        axes.annotate(
            digits, (x, above), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=8, color=INK,
        )  # fmt: skip
        highest = max(highest, above + 1.3 * height)
    axes.set_ylim(lowest, highest)


def _optimum_marks(axes: Axes, result: Reproduced, groups: Sequence[tuple[str, Measure, str]], alone: bool) -> None:
    name = result.figure.plot.optimum
    if name is None or alone or not result.schemes:
        return
    for place, (_, measure, case) in enumerate(groups):
        value = result.value(measure.model_copy(update={"metric": name}), case, result.schemes[0])
        if value.mean is not None:
            label = "optimum" if place == 0 else "_"
            axes.hlines(
                value.mean, place - 0.46, place + 0.46, color=INK, linewidth=1.4, linestyle=(0, (3, 1.5)), label=label
            )


def _mark(axes: Axes, x: float, line: Line, colour: str) -> None:
    """A hollow mark at the published number, or at both ends of a published range."""
    ends = _ends(line)
    axes.plot([x] * len(ends), ends, **_hollow(line.bound, colour), zorder=5)


def _ends(line: Line) -> list[float]:
    """The published number, or the ends of the published range."""
    published = line.published if isinstance(line.published, tuple) else (line.published,)
    return [end for end in published if end is not None]


def _hollow(bound: str, colour: str) -> dict[str, Any]:
    return {
        "marker": MARKERS[bound], "markersize": 6.5, "markerfacecolor": "white", "markeredgecolor": colour,
        "markeredgewidth": 1.3, "linestyle": "none",
    }  # fmt: skip


def _order(look: Look) -> float:
    """Drawing order: broken lines are above solid lines, which would hide them."""
    return 2.0 if look.line == "solid" else 2.1


def _lines(axes: Axes, result: Reproduced, series: _Series) -> None:
    places = [plan.case.x for plan in result.plans if plan.case.x is not None]
    step = SIDE * (max(places, default=0.0) - min(places, default=0.0))
    for number, scheme in enumerate(result.schemes):
        look = series.of_scheme[scheme]
        aside = step * (number - (len(result.schemes) - 1) / 2)
        for variant, (label, measure) in enumerate(result.figure.plot.measures()):
            points = []
            for plan in result.plans:
                value = result.value(measure, plan.case.label, scheme)
                if value.mean is not None and plan.case.x is not None:
                    points.append((plan.case.x + aside, value.mean, value.ci95 or 0.0))
                line = _published(result, measure, plan.case.label, scheme)
                if line is not None and plan.case.x is not None:
                    _mark(axes, plan.case.x + aside, line, look.colour)
            if points:
                xs, ys, halves = zip(*points, strict=True)
                name = ", ".join(part for part in (result.figure.name_of(scheme), label) if part)
                width, size = SIZES[min(variant, len(SIZES) - 1)] if label else ONE_SIZE
                axes.errorbar(
                    xs, ys, yerr=halves if any(halves) else None, color=look.colour, marker=look.marker,
                    markersize=size, linewidth=width, linestyle=look.line, capsize=2.5, elinewidth=1.0, label=name,
                    zorder=_order(look),
                )  # fmt: skip
    axes.set_xlabel(result.figure.plot.x)
    axes.set_xticks(places)


def _ranks(axes: Axes, result: Reproduced, series: _Series) -> None:
    """Draws the throughput of the flows in ascending order: for each rank the mean over the runs."""
    curves = [
        (
            plan.case.label,
            scheme,
            _mean_curve([run.ranks.get(result.figure.plot.metric, []) for run in result.data[plan.case.label, scheme]]),
        )
        for plan in result.plans
        for scheme in plan.schemes
    ]
    several, by_case = len(result.plans) > 1, looks([plan.case.label for plan in result.plans])
    one_scheme = len(result.schemes) == 1
    share = several and len({len(curve) for _, _, curve in curves}) > 1
    for case, scheme, curve in curves:
        if not curve:
            continue
        look = by_case[case] if one_scheme and several else series.of_scheme[scheme]
        name = case if one_scheme and several else ", ".join(p for p in (result.figure.name_of(scheme), case) if p)
        count = len(curve)
        xs = [100.0 * (rank + 1) / count if share else rank + 1.0 for rank in range(count)]
        step = max(1, count // MOST_RANKS)
        axes.plot(
            [*xs[::step], xs[-1]], [*curve[::step], curve[-1]], color=look.colour, linestyle=look.line, label=name,
            zorder=_order(look),
        )  # fmt: skip
    axes.set_xlabel("flows in ascending order (%)" if share else "rank of flow")
    axes.set_ylim(0, 1.03 * max([100.0, *(curve[-1] for _, _, curve in curves if curve)]))


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean of ascending curves, rank by rank, or by percentiles if they differ in length."""
    curves = [curve for curve in curves if curve]
    if not curves:
        return []
    if len({len(curve) for curve in curves}) == 1:
        return [mean(values) or 0.0 for values in zip(*curves, strict=True)]
    count = min(len(curve) for curve in curves)
    shares = [rank / max(1, count - 1) for rank in range(count)]
    return [mean([percentile(curve, share) or 0.0 for curve in curves]) or 0.0 for share in shares]


def _in_time(axes: Axes, result: Reproduced, series: _Series) -> None:
    """Draws the goodput over time of the first run of every scheme and case.

    With several cases, each line ends with the name of its case: there may be more cases than distinct looks.
    """
    several, plot, top = len(result.plans) > 1, result.figure.plot, 0.0
    for plan in result.plans:
        for scheme in plan.schemes:
            curve = result.data[plan.case.label, scheme][0].goodput
            if not curve:
                continue
            times, rates = zip(*curve, strict=True)
            if several:
                axes.plot(times, rates, color=INK, linewidth=1.3)
                axes.annotate(
                    plan.case.label, (times[-1], rates[-1]), (5, 0), textcoords="offset points", va="center",
                    fontsize=8,
                )  # fmt: skip
            else:
                look = series.of_scheme[scheme]
                axes.plot(times, rates, color=look.colour, linestyle=look.line, label=result.figure.name_of(scheme))
            top = max(top, *rates)
    axes.set_xlabel(plot.x or "time (s)")
    axes.set_ylim(0, math.ceil(top * 1.15) or 1)
    if plot.moment is not None:
        axes.axvline(plot.moment, color=FAINT, linewidth=1.0, linestyle=(0, (3, 2)), label=plot.moment_label)


STROKES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)))
"""Line styles of the cases in a picture over starting times; schemes have colours."""


def _by_start(axes: Axes, result: Reproduced, series: _Series) -> None:
    """Draws the metric of the flows that start at a time or later: the mean over the runs, by scheme and case."""
    for plan, stroke in zip(result.plans, itertools.cycle(STROKES), strict=False):
        for scheme in plan.schemes:
            points = [
                ((measure.level or 0.0) * plan.settings.duration_s, value.mean)
                for _, measure in result.figure.plot.measures()
                if (value := result.value(measure, plan.case.label, scheme)).mean is not None
            ]
            if not points:
                continue
            name = ", ".join(part for part in (result.figure.name_of(scheme), plan.case.label) if part)
            times, values = zip(*points, strict=True)
            axes.plot(times, values, color=series.of_scheme[scheme].colour, linestyle=stroke, linewidth=1.6, label=name)
    axes.set_xlabel(result.figure.plot.x or "start of flows after (s)")
    axes.set_ylim(bottom=0.0)


def _legend(axes: Axes, result: Reproduced) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if result.figure.plot.kind == "bars" and len(_groups(result)) > 1:
        for scheme in [one for one in _members(result) if one not in result.schemes]:
            handles.append(Patch(facecolor="white", edgecolor=FAINT))
            labels.append(f"{result.figure.name_of(scheme)} (not built)")
    for bound in _bounds(result):
        handles.append(Line2D([], [], **_hollow(bound, INK)))
        labels.append("published" if bound == "exactly" else f"published: {bound}")
    place: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (0.0, 1.0),
        "borderaxespad": 0.3,
        "handlelength": 2.2,
    }
    fitting_legend(axes, 3 if result.figure.plot.kind == "starts" else 5, handles=handles, labels=labels, **place)
