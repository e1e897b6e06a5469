"""Pictures of reproduced figures in the form of the paper: bars, lines over load, flows by rank, rates in time.

What the paper prints as a number is drawn beside what was measured, as a hollow diamond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pathloom.experiments.stats import mean, percentile
from pathloom.report.plots import Plot as Picture
from pathloom.report.style import FAINT, INK, Look, looks, new_figure, pathloom_style
from pathloom.reproduction.definitions import Measure
from pathloom.reproduction.measure import Line, Reproduced
from pathloom.reproduction.runs import key

MOST_RANKS = 400
"""Points of a curve by rank that are drawn: as many as can be told apart."""


def picture(result: Reproduced) -> Picture:
    """The picture of a figure."""
    makers: dict[str, Callable[[Axes, Reproduced, _Series], None]] = {
        "bars": _bars,
        "lines": _lines,
        "ranks": _ranks,
        "time": _in_time,
    }
    figure, series = result.figure, _series(result)
    with pathloom_style():
        canvas = new_figure(_width(result), 3.7)
        axes = canvas.add_subplot()
        makers[figure.plot.kind](axes, result, series)
        axes.set_ylabel(figure.plot.y)
        if figure.plot.log:
            axes.set_yscale("log")
        elif figure.plot.kind in ("bars", "lines"):
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if axes.get_legend_handles_labels()[1] or _has_published(result):
            _legend(axes, result)
    return Picture(figure.id.replace("/", "-"), figure.title, figure.source, canvas)


@dataclass(frozen=True)
class _Series:
    """How each scheme looks, among all schemes of the figure, so that pictures of one paper agree."""

    of_scheme: Mapping[str, Look]


def _series(result: Reproduced) -> _Series:
    return _Series(looks(result.figure.schemes()))


def _width(result: Reproduced) -> float:
    if result.figure.plot.kind != "bars":
        return 7.2
    bars = len(_groups(result)) * max(1, len(_members(result)))
    return min(9.5, max(4.8, 2.2 + 0.42 * bars))


def _has_published(result: Reproduced) -> bool:
    return result.figure.plot.kind in ("bars", "lines") and any(_published(result, *key) for key in _all_keys(result))


def _all_keys(result: Reproduced) -> list[tuple[Measure, str, str]]:
    measures = [measure for _, measure in result.figure.plot.measures()]
    return [(measure, plan.case.label, s) for measure in measures for plan in result.plans for s in _schemes_of(result)]


def _schemes_of(result: Reproduced) -> list[str]:
    return result.figure.schemes()


def _published(result: Reproduced, measure: Measure, case: str, scheme: str) -> Line | None:
    """What the paper prints for a point of the picture."""
    only = len(result.figure.schemes()) == 1
    for row, line in zip(result.figure.rows, result.published, strict=True):
        same_scheme = row.scheme == scheme or (row.scheme is None and only)
        fits = row.measure is not None and key(row.measure) == key(measure) and row.case in (None, case)
        if fits and same_scheme and not row.over and line.published is not None:
            return line
    return None


# Bars: one group per case, or per variant where there are some; in a group one bar per scheme.


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
    for number, scheme in enumerate(members):
        look = series.of_scheme[scheme]
        for place, (_, measure, case) in enumerate(groups):
            x = float(number) if alone else place + width * (number - (len(members) - 1) / 2)
            value = result.value(measure, case, scheme)
            if value.mean is not None:
                label = result.figure.name_of(scheme) if place == 0 and not alone else None
                axes.bar(
                    x, value.mean, 0.62 if alone else 0.9 * width, yerr=value.ci95, color=look.colour, label=label,
                    capsize=2.5, error_kw={"elinewidth": 1.0, "ecolor": INK},
                )  # fmt: skip
                if alone or len(groups) * len(members) <= 10:
                    axes.annotate(
                        f"{value.mean:.3g}", (x, 0), (0, 4), textcoords="offset points", ha="center", fontsize=8,
                        color="white", fontweight="bold",
                    )  # fmt: skip
            line = _published(result, measure, case, scheme)
            if line is not None:
                _mark(axes, x, line)
    _optimum_marks(axes, result, groups, alone)
    if alone:
        axes.set_xticks(range(len(members)), [result.figure.name_of(scheme) for scheme in members])
    else:
        axes.set_xticks(range(len(groups)), [label for label, _, _ in groups])
        axes.set_xlabel(result.figure.plot.x)
    axes.grid(visible=False, axis="x")


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


def _mark(axes: Axes, x: float, line: Line) -> None:
    """A hollow diamond at the published number; an arrow at a bound points to where it allows the value to be."""
    if line.published is None:
        return
    marker = {"exactly": "D", "at least": "^", "at most": "v"}[line.bound]
    axes.plot(
        [x], [line.published], marker=marker, markersize=6.5, markerfacecolor="white", markeredgecolor=INK,
        markeredgewidth=1.3, linestyle="none", zorder=5,
    )  # fmt: skip


def _lines(axes: Axes, result: Reproduced, series: _Series) -> None:
    for scheme in result.schemes:
        look = series.of_scheme[scheme]
        for label, measure in result.figure.plot.measures():
            points = []
            for plan in result.plans:
                value = result.value(measure, plan.case.label, scheme)
                if value.mean is not None and plan.case.x is not None:
                    points.append((plan.case.x, value.mean, value.ci95 or 0.0))
                line = _published(result, measure, plan.case.label, scheme)
                if line is not None and plan.case.x is not None:
                    _mark(axes, plan.case.x, line)
            if points:
                xs, ys, halves = zip(*points, strict=True)
                name = ", ".join(part for part in (result.figure.name_of(scheme), label) if part)
                axes.errorbar(
                    xs, ys, yerr=halves if any(halves) else None, color=look.colour, marker=look.marker, markersize=5.5,
                    linestyle=look.line, capsize=2.5, elinewidth=1.0, label=name,
                )  # fmt: skip
    axes.set_xlabel(result.figure.plot.x)


def _ranks(axes: Axes, result: Reproduced, series: _Series) -> None:
    """Throughput of the flows in ascending order: the mean over the runs of the flow of each rank."""
    curves = [
        (
            plan.case.label,
            scheme,
            _mean_curve([run.ranks.get(result.figure.plot.metric, []) for run in result.data[plan.case.label, scheme]]),
        )
        for plan in result.plans
        for scheme in plan.settings.schemes
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
            [*xs[::step], xs[-1]], [*curve[::step], curve[-1]], color=look.colour, linestyle=look.line, label=name
        )
    axes.set_xlabel("flows in ascending order (%)" if share else "rank of flow")
    axes.set_ylim(0, 103)


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean, rank by rank, of ascending curves; of percentiles where they differ in length."""
    curves = [curve for curve in curves if curve]
    if not curves:
        return []
    if len({len(curve) for curve in curves}) == 1:
        return [mean(values) or 0.0 for values in zip(*curves, strict=True)]
    count = min(len(curve) for curve in curves)
    shares = [rank / max(1, count - 1) for rank in range(count)]
    return [mean([percentile(curve, share) or 0.0 for curve in curves]) or 0.0 for share in shares]


def _in_time(axes: Axes, result: Reproduced, series: _Series) -> None:
    """The goodput in time of the first run of every scheme, or of every case where there is one scheme."""
    several, by_case = len(result.plans) > 1, looks([plan.case.label for plan in result.plans])
    top = 0.0
    for plan in result.plans:
        for scheme in plan.settings.schemes:
            curve = result.data[plan.case.label, scheme][0].goodput
            if not curve:
                continue
            look = by_case[plan.case.label] if several else series.of_scheme[scheme]
            name = plan.case.label if several else result.figure.name_of(scheme)
            axes.plot(
                [at for at, _ in curve], [rate for _, rate in curve], color=look.colour, linestyle=look.line, label=name
            )
            top = max(top, *(rate for _, rate in curve))
    axes.set_xlabel(result.figure.plot.x or "time (s)")
    axes.set_ylim(0, math.ceil(top * 1.15) or 1)


def _legend(axes: Axes, result: Reproduced) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if result.figure.plot.kind == "bars" and len(_groups(result)) > 1:
        for scheme in [one for one in _members(result) if one not in result.schemes]:
            handles.append(Patch(facecolor="white", edgecolor=FAINT))
            labels.append(f"{result.figure.name_of(scheme)} (not built)")
    if _has_published(result):
        handles.append(
            Line2D([], [], marker="D", markersize=6.5, markerfacecolor="white", markeredgecolor=INK, linestyle="none")
        )
        labels.append("published")
    axes.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.3, handlelength=2.2
    )
