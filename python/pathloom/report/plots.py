"""The plots of a report. Each has a text that describes it; a scheme looks the same in all plots."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from pathloom.experiments.results.after_end import until_end
from pathloom.experiments.results.definitions import SIZE_BINS
from pathloom.experiments.results.stats import percentile
from pathloom.experiments.results.summary import unfinished
from pathloom.experiments.results.tables import link_windows_ns
from pathloom.quantities import FigureText, count_text, rate_text, share_figure, size_text, time_figure, time_text
from pathloom.report import rank_plots
from pathloom.report.dark import BUSY, with_dark_mode
from pathloom.report.drawing import MOST_VECTOR_CABLES, LinkValues, draw_fabric, name_nodes
from pathloom.report.layout import layout
from pathloom.report.matrix import blocks, draw_matrix, heights
from pathloom.report.palette import Look, looks, short_labels
from pathloom.report.style import fitting_legend, legend_above, new_figure, pathloom_style, save_figure
from pathloom.report.tables import AT_LEAST, AT_MOST

if TYPE_CHECKING:
    from pathloom.experiments.results.result import ResultData

MOST_STEPS = 600
"""Maximum number of steps that are drawn of a distribution function; more cannot be distinguished."""
MOST_SMALL_MAP = 60
"""A map with more switches than this takes the whole width of the heat map."""
FLAT_ASPECT = 2.5
"""Width over height of a tiered drawing in the heat map, in which several drawings are above each other."""
LANES_SAY = "A cable is two lines, one per direction, with traffic on the right-hand side as on a road; all drawings"
MATRIX_SAYS = (
    "Each cell is one link: a column per switch, pod by pod, and a row per link of the switch. "
    "Links that are down are red; the matrices"
)


@dataclass(frozen=True)
class Plot:
    """A picture of the report."""

    name: str
    title: str
    says: str
    figure: Figure

    @property
    def file_name(self) -> str:
        """Name in the results folder."""
        return f"{self.name}.svg"

    def write(self, path: Path) -> None:
        """Writes the picture in the format of the suffix: `.svg`, `.pdf` or `.png`."""
        kind = path.suffix[1:]
        if kind == "svg":
            path.write_bytes(self.svg)
        else:
            # Matplotlib has no clear error for a full disk.
            buffer = io.BytesIO()
            save_figure(self.figure, buffer, kind, dpi=220)
            path.write_bytes(buffer.getvalue())

    @cached_property
    def svg(self) -> bytes:
        """The picture as SVG, without the date, so that equal pictures make equal files."""
        buffer = io.BytesIO()
        save_figure(self.figure, buffer, "svg", dpi=220)
        return buffer.getvalue()

    def png_uri(self, dpi: int) -> str:
        """The picture in pixels as a data URI for an HTML page, much shorter than the SVG."""
        buffer = io.BytesIO()
        save_figure(self.figure, buffer, "png", dpi)
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")

    @property
    def data_uri(self) -> str:
        """The SVG as a data URI for an HTML page; it adapts to dark pages."""
        svg = with_dark_mode(self.svg.decode("utf-8"))
        return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")


def plots(result: ResultData, most: int | None = None) -> list[Plot]:
    """The pictures for which a result has data, in the order of the report: all, or the first `most`."""
    look = looks(result.settings.labels)
    makers: list[Callable[[ResultData, Mapping[str, Look]], Plot | None]] = [
        means,
        throughput_cdf,
        fct_by_size,
        slowdown_by_size,
        fct_cdf,
        link_heat_map,
        link_ranks,
        over_time,
        _ranks("rank-timeline", "Ranks over time", rank_plots.timeline),
        _ranks("rank-matrix", "Transfers by rank", rank_plots.matrix),
        _ranks("rank-steps", "Steps that wait", rank_plots.steps),
    ]
    with pathloom_style():
        made = (make(result, look) for make in makers)
        return list(islice((plot for plot in made if plot is not None), most))


def _ranks(
    name: str, title: str, make: Callable[[ResultData, Mapping[str, Look]], tuple[Figure, str] | None]
) -> Callable[[ResultData, Mapping[str, Look]], Plot | None]:
    """A maker of a picture of jobs."""

    def plot(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
        made = make(result, look)
        return None if made is None else Plot(name, title, made[1], made[0])

    return plot


def means(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Mean throughput and mean FCT of each scheme with 95 % confidence intervals."""
    rows = [row for row in result.summary["schemes"] if row["runs"]]
    if len(rows) < 2:
        return None  # The table is enough for one scheme.
    panels = [("throughput", "mean throughput (1 = ideal)", 1.0)]
    if any(row["fct_s"]["mean"] is not None for row in rows):
        scale, unit = _time_unit([row["fct_s"]["mean"] for row in rows])
        panels.append(("fct_s", f"mean FCT ({unit})", scale))
    figure = new_figure(4.6 * len(panels), 0.9 + 0.42 * len(rows))
    names = short_labels([row["scheme"] for row in rows])
    for place, (key, label, scale) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1)
        form = (share_figure, AT_MOST) if key == "throughput" else (time_figure, AT_LEAST)
        _dots(axes, [row[key] for row in rows], [look[row["scheme"]] for row in rows], scale, form)
        _cut_at(axes, 0.0, 1.0 if key == "throughput" else None)
        axes.set_xlabel(label)
        axes.set_yticks(range(len(rows)), names if place == 0 else [""] * len(rows))
    says = "Mean and 95 % confidence interval over the runs."
    if len(panels) > 1:
        says += " More throughput is better, and less time."
    says += _unfinished_text(result, "a hollow mark is the most that throughput can be, and the least that FCT can be")
    return Plot("means", "Mean throughput and FCT" if len(panels) > 1 else "Mean throughput", says, figure)


def _dots(
    axes: Axes,
    figures: Sequence[Mapping[str, Any]],
    schemes: Sequence[Look],
    scale: float,
    form: tuple[FigureText, str],
) -> None:
    """Draws a mean and its interval per scheme. A mean that is only a bound is hollow.

    `form` is the format of the means, as in the tables, and the sign of a bound.
    """
    text, bound = form
    for place, (figure, look) in enumerate(zip(figures, schemes, strict=True)):
        if figure["mean"] is None:
            continue
        half = (figure["ci95"] or 0.0) * scale
        mean = figure["mean"] * scale
        is_bound = bool(figure.get("mean_censored"))
        axes.errorbar(
            mean,
            place,
            xerr=half or None,
            color=look.colour,
            marker=look.marker,
            markerfacecolor="white" if is_bound else look.colour,
            markersize=7,
            capsize=4,
            linewidth=1.6,
        )
        axes.annotate(
            f"{bound if is_bound else ''}{text(figure['mean'])}",
            (mean, place),
            (0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_ylim(len(figures) - 0.4, -0.75)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)


def _cut_at(axes: Axes, least: float, most: float | None) -> None:
    """Ends the axis where values end, even if intervals of few runs extend further."""
    left, right = axes.get_xlim()
    margin = 0.02 * (right - left)
    axes.set_xlim(max(left, least - margin), right if most is None else min(right, most + margin))


def throughput_cdf(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Distribution of the throughput of flows."""
    figure = _cdf(draw_throughput_cdf, result, look)
    says = "Share of flows with at most so much throughput: the lower and farther right a curve, the better."
    says += _unfinished_text(result, "an unfinished flow counts with the most that it can come to")
    return None if figure is None else Plot("throughput-cdf", "Throughput of flows (CDF)", says, figure)


def _cdf(
    draw: Callable[[Axes, ResultData, Mapping[str, Look]], bool], result: ResultData, look: Mapping[str, Look]
) -> Figure | None:
    """A figure with a distribution of each scheme; None if there is nothing to draw."""
    figure = new_figure(7.2, 3.7)
    axes = figure.add_subplot()
    if not draw(axes, result, look):
        return None
    legend_above(axes)
    return figure


def draw_throughput_cdf(axes: Axes, result: ResultData, look: Mapping[str, Look]) -> bool:
    """Draws the distribution of the throughput of flows. Returns whether there is any."""
    values = _by_scheme(result, "throughput")
    for scheme, ascending in values.items():
        xs, ys = _steps(ascending)
        axes.plot(xs, ys, color=look[scheme].colour, linestyle=look[scheme].line, label=look[scheme].label)
    axes.set_xlim(0, 1.005)
    _shares(axes)
    axes.set_xlabel("throughput of a flow (1 = ideal)")
    return bool(values)


def fct_cdf(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Distribution of flow completion times, on a logarithmic axis."""
    figure = _cdf(draw_fct_cdf, result, look)
    says = "Share of flows complete within so much time: the farther left a curve, the better."
    says += _unfinished_text(result, "unfinished flows keep a curve below 100 %")
    return None if figure is None else Plot("fct-cdf", "Flow completion time (CDF)", says, figure)


def draw_fct_cdf(axes: Axes, result: ResultData, look: Mapping[str, Look]) -> bool:
    """Draws the distribution of flow completion times. Returns whether there is any."""
    values = _by_scheme(result, "fct_s")
    if not values:
        return False
    sizes = _by_scheme(result, "size_bytes")
    for scheme, ascending in values.items():
        xs, ys = _steps(ascending, len(sizes[scheme]))
        axes.plot(xs, ys, color=look[scheme].colour, linestyle=look[scheme].line, label=look[scheme].label)
    axes.set_xscale("log")
    _shares(axes)
    log_times(axes, "x")
    axes.set_xlabel("flow completion time")
    return True


def fct_by_size(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Median and 95th percentile of FCT in each bin of flow sizes."""
    figure = _by_size(result, look, "age_s", ((0.50, "median"), (0.95, "95th percentile")), "flow completion time")
    if figure is None:
        return None
    log_times(figure.axes[0], "y")
    says = "Median and 95th percentile of the flow completion time, by flow size: lower is better."
    says += _unfinished_text(result, "an unfinished flow counts with the time it has had, and takes longer than that")
    return Plot("fct-by-size", "Flow completion time by flow size", says, figure)


def slowdown_by_size(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Median and 99th percentile of the slowdown in each bin of flow sizes."""
    figure = _by_size(result, look, "slowdown", ((0.50, "median"), (0.99, "99th percentile")), "FCT slowdown")
    if figure is None:
        return None
    log_times_over(figure.axes[0])
    says = (
        "Median and 99th percentile of the slowdown, by flow size: the FCT over the ideal FCT, which leaves out "
        "handshake and slow start, so short flows never reach 1. Throughput of such a flow is the inverse."
    )
    says += _unfinished_text(result, "an unfinished flow counts with the least that its slowdown can come to")
    return Plot("slowdown-by-size", "Slowdown by flow size", says, figure)


def _by_size(
    result: ResultData, look: Mapping[str, Look], column: str, panels: Sequence[tuple[float, str]], label: str
) -> Figure | None:
    """Percentiles of a column of the flows in each bin of flow sizes, on a logarithmic axis."""
    finite = result.flows.filter(pl.col(column).is_not_null())
    if finite.is_empty():
        return None
    figure = new_figure(9.2, 3.9)
    left = figure.add_subplot(1, 2, 1)
    right = figure.add_subplot(1, 2, 2, sharey=left)
    for axes, (share, title) in zip((left, right), panels, strict=True):
        draw_by_size(axes, result, look, column, share)
        axes.set_title(title, fontsize=9.5)
    left.set_ylabel(label)
    right.tick_params(axis="y", labelleft=False)
    handles, _ = left.get_legend_handles_labels()
    fitting_legend(figure, len(handles), handles=handles, loc="outside upper left", handlelength=2.6)
    return figure


def draw_by_size(axes: Axes, result: ResultData, look: Mapping[str, Look], column: str, share: float) -> bool:
    """Draws a percentile of a column of the flows by flow size; `share` is 0.5 for the median. Returns whether any."""
    finite = result.flows.filter(pl.col(column).is_not_null())
    bins = [(label, low, high) for label, low, high in SIZE_BINS if _in_bin(finite, low, high).height]
    if not bins:
        return False
    schemes = [scheme for scheme in look if finite.filter(pl.col("scheme") == scheme).height]
    for index, scheme in enumerate(schemes):
        own = finite.filter(pl.col("scheme") == scheme)
        values = [_in_bin(own, low, high)[column].sort().to_list() for _, low, high in bins]
        shift = 0.13 * (index - (len(schemes) - 1) / 2)
        xs = [place + shift for place in range(len(bins))]
        ys = [value if (value := percentile(some, share)) is not None else math.nan for some in values]
        axes.plot(
            xs,
            ys,
            color=look[scheme].colour,
            marker=look[scheme].marker,
            markersize=6,
            linewidth=0.9,
            linestyle=look[scheme].line,
            label=look[scheme].label,
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(bins)), [label for label, _, _ in bins])
    axes.tick_params(axis="x", labelsize=7.5)
    axes.set_xlabel("flow size")
    axes.grid(visible=False, axis="x")
    return True


def link_heat_map(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Mean utilisation of every link, drawn over the fabric, one drawing per scheme."""
    means_by_scheme = _link_means(result)
    if not means_by_scheme:
        return None
    most = max(max(values) for values in means_by_scheme.values())
    scale = Normalize(0.0, max(0.1, math.ceil(most * 10) / 10))
    drawn = {scheme: LinkValues(values, BUSY, scale) for scheme, values in means_by_scheme.items()}
    if len(result.fabric.links["source"]) // 2 > MOST_VECTOR_CABLES:
        figure, form = _matrices(result, look, drawn), MATRIX_SAYS
    else:
        figure, form = _fabrics(result, look, drawn), LANES_SAY
    says = f"Mean utilisation of every link over all runs, {_window_text(result)}. {form} share one scale."
    return Plot("link-heat-map", "Link utilisation", says, figure)


def _fabrics(result: ResultData, look: Mapping[str, Look], drawn: Mapping[str, LinkValues]) -> Figure:
    """One drawing of the fabric per scheme."""
    place = layout(result.fabric)
    switches = sum(node["tier"] != "host" for node in result.fabric.nodes)
    side_by_side = place.aspect <= 1.5 and (place.style != "map" or switches <= MOST_SMALL_MAP)
    columns = 2 if len(drawn) > 1 and side_by_side else 1
    rows = math.ceil(len(drawn) / columns)
    width = 4.6 if columns == 2 else 9.2
    height = width / (FLAT_ASPECT if place.style == "tiers" else place.aspect)
    figure = new_figure(width * columns, (height + 0.3) * rows + 0.7)
    drawings = []
    for number, (scheme, values) in enumerate(drawn.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
        drawings.append(draw_fabric(axes, result.fabric, place, width, height, values))
        axes.set_title(look[scheme].label, color=look[scheme].colour, fontweight="bold")
    _scale_bar(figure, [drawing.axes for drawing in drawings], next(iter(drawn.values())))
    name_nodes(figure, drawings)
    return figure


def _matrices(result: ResultData, look: Mapping[str, Look], drawn: Mapping[str, LinkValues]) -> Figure:
    """One matrix of all links per scheme."""
    shown = blocks(result.fabric)
    height = min(max(2.4, 0.07 * sum(heights(shown)) + 0.4), 6.0)
    figure = new_figure(9.2, (height + 0.4) * len(drawn) + 0.7)
    every = []
    for number, (scheme, values) in enumerate(drawn.items()):
        axes = figure.add_subplot(len(drawn), 1, number + 1)
        draw_matrix(axes, result.fabric, shown, values)
        axes.set_title(look[scheme].label, color=look[scheme].colour, fontweight="bold", pad=14)
        every.append(axes)
    _scale_bar(figure, every, next(iter(drawn.values())))
    return figure


def _scale_bar(figure: Figure, axes: Sequence[Axes], values: LinkValues) -> None:
    """The scale of utilisation, below the drawings."""
    bar = figure.colorbar(
        ScalarMappable(values.scale, values.colours),
        ax=list(axes),
        location="bottom",
        shrink=0.5,
        aspect=40,
        pad=0.01,
        anchor=(0.5, 1.0),
    )
    bar.set_label("utilisation")
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:.0%}"))
    bar.outline.set_visible(False)
    # Drawn as vectors, so that its colours can change with those of the lines on dark pages.
    assert bar.solids is not None, "the colours of a ScalarMappable"
    bar.solids.set(rasterized=False, edgecolor="face")


def _window_text(result: ResultData) -> str:
    """The time over which utilisation is computed, as part of a sentence."""
    times = sorted(window_ns / 1e9 for window_ns in link_windows_ns(result.outcomes).values())
    low, high = time_text(times[0]), time_text(times[-1])
    how_long = low if low == high else f"{low} to {high}"
    if len({one.job.label for one in result.outcomes}) == 1:
        return f"each over its whole time ({how_long})"
    return f"for all schemes over the same time: until the slowest has ended ({how_long})"


def link_ranks(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Mean utilisation of the links between switches, busiest first."""
    figure = new_figure(7.2, 3.4)
    axes = figure.add_subplot()
    if not draw_link_ranks(axes, result, look):
        return None
    legend_above(axes)
    says = (
        f"Mean utilisation over all runs, {_window_text(result)}. The flatter a curve, the more evenly a scheme "
        "spreads the traffic over the links between switches."
    )
    return Plot("link-ranks", "Link utilisation by rank", says, figure)


def draw_link_ranks(axes: Axes, result: ResultData, look: Mapping[str, Look]) -> bool:
    """Draws the mean utilisation of links between switches, busiest first. Returns whether there are any."""
    between = [link for link in range(len(result.fabric.links["source"])) if result.fabric.is_switch_link(link)]
    means_by_scheme = _link_means(result)
    if not means_by_scheme or len(between) < 2:
        return False
    for scheme, values in means_by_scheme.items():
        ranked = sorted((values[link] for link in between), reverse=True)
        axes.plot(
            range(1, len(ranked) + 1),
            ranked,
            color=look[scheme].colour,
            linestyle=look[scheme].line,
            label=look[scheme].label,
        )
    axes.set_ylim(0, None)
    axes.set_xlim(1, len(between))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:.0%}"))
    axes.set_xlabel("links between switches, busiest first")
    axes.set_ylabel("mean utilisation")
    return True


def over_time(result: ResultData, look: Mapping[str, Look]) -> Plot | None:
    """Values of flows and links in each step, in the first run of each scheme."""
    if result.settings.series is None:
        return None
    flows, links = result.flow_series, result.link_series
    windows = pl.col("window_bytes").filter(pl.col("window_bytes") > 0)
    panels: list[tuple[str, pl.DataFrame, pl.Expr, Callable[[float], str] | None]] = [
        ("goodput of all flows", flows, pl.col("goodput_bps").sum(), rate_text),
        ("mean window of open flows", flows, windows.mean(), size_text),
        ("rate of the busiest link", links, pl.col("rate_bps").max(), rate_text),
        ("longest queue (packets)", links, pl.col("mean_queue").max(), None),
        ("packets dropped", links, pl.col("dropped_packets").sum(), None),
    ]
    figure = new_figure(9.2, 7.6)
    whole_row = figure.add_subplot(3, 2, (1, 2))
    every = [whole_row, *(figure.add_subplot(3, 2, place, sharex=whole_row) for place in range(3, 7))]
    for axes, (label, table, value, text) in zip(every, panels, strict=True):
        for scheme, style in look.items():
            of_run = (pl.col("scheme") == scheme) & (pl.col("run") == 1)
            mine = until_end(table.filter(of_run), result.flows.filter(of_run))
            steps = mine.group_by("at_s").agg(value.alias("value")).drop_nulls().sort("at_s")
            axes.plot(
                steps["at_s"],
                steps["value"],
                color=style.colour,
                linestyle=style.line,
                label=style.label,
                linewidth=1.2,
            )
        if text is not None:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place, text=text: text(value)))
        axes.set_ylabel(label)
        axes.set_ylim(0, None)
    for axes in every[3:]:
        axes.set_xlabel("time (s)")
    handles, _ = whole_row.get_legend_handles_labels()
    fitting_legend(figure, len(handles), handles=handles, loc="outside upper left", handlelength=2.6)
    says = (
        f"The first run of each scheme, in steps of {result.settings.series}. Rates and queues are means over a step, "
        "drops are counts of a step on all links, windows are those at its end."
    )
    return Plot("over-time", "Flows and links over time", says, figure)


def _by_scheme(result: ResultData, column: str) -> dict[str, list[float]]:
    """Ascending values of a column of the flows, of each scheme that has any."""
    known = result.flows.filter(pl.col(column).is_not_null())
    values = {
        scheme: known.filter(pl.col("scheme") == scheme)[column].sort().to_list() for scheme in result.settings.labels
    }
    return {scheme: ascending for scheme, ascending in values.items() if ascending}


def _in_bin(flows: pl.DataFrame, low: int, high: int | None) -> pl.DataFrame:
    size = pl.col("size_bytes")
    return flows.filter((size >= low) & (size < high) if high is not None else size >= low)


def _unfinished_text(result: ResultData, what: str) -> str:
    """The effect of unfinished flows on a picture, as an additional sentence; empty if there are none."""
    count = unfinished(result.flows).height
    return f" {count_text(count)} flow{'s are' if count > 1 else ' is'} unfinished: {what}." if count else ""


def _steps(ascending: Sequence[float], flows: int | None = None) -> tuple[list[float], list[float]]:
    """The distribution function of ascending values, thinned if it has more than `MOST_STEPS` steps.

    `flows` is the number of flows, by default that of the values. Flows without a value count as above all values.
    """
    count = len(ascending)
    known = count / (flows or count)
    if count <= MOST_STEPS:
        xs = [ascending[0], *(value for value in ascending for _ in range(2))][:-1]
        ys = [known * share / count for share in range(count) for _ in range(2)]
        return [*xs, ascending[-1]], [*ys, known]
    shares = [step / MOST_STEPS for step in range(MOST_STEPS + 1)]
    return [percentile(ascending, share) or 0.0 for share in shares], [known * share for share in shares]


def _link_means(result: ResultData) -> dict[str, list[float]]:
    """Mean utilisation of each directed link over the runs, in the order of links, of each scheme with runs."""
    table: dict[str, list[float]] = {}
    for scheme in result.settings.labels:
        own = result.links.filter(pl.col("scheme") == scheme)
        if own.height:
            # Does not use group_by, whose threads may add the values in any order.
            by_link = own.sort("link", "run")["utilisation"].to_numpy()
            table[scheme] = by_link.reshape(own["link"].n_unique(), -1).mean(axis=1).tolist()
    return table


def _shares(axes: Axes) -> None:
    axes.set_ylim(0, 1.005)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:.0%}"))
    axes.set_ylabel("share of flows")


def _time_unit(times_s: Sequence[float | None]) -> tuple[float, str]:
    """Factor and name of the unit that suits these times best."""
    most = max(time for time in times_s if time is not None)
    for least, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs")):
        if most >= least:
            return factor, unit
    raise AssertionError("every time is at least 0")


def log_times_over(axes: Axes) -> None:
    """Sets the ticks of a logarithmic axis of slowdowns, from 1 on, with labels as in tables."""
    low, high = axes.get_ylim()
    low = min(low, 0.95)
    decades = [10.0**power for power in range(math.ceil(math.log10(high)) + 1)]
    few = len([tick for tick in decades if tick <= high]) < 3
    ticks = [tick * step for tick in decades for step in ((1, 2, 5) if few else (1,)) if tick * step <= high]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g} x"))
    axes.set_ylim(low, high)


def log_times(axes: Axes, which: str) -> None:
    """Sets the ticks of a logarithmic axis of seconds at 1, 10 and 100 µs, ms and s, with units in the labels."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    decades = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    few = len([tick for tick in decades if low <= tick <= high]) < 3
    ticks = sorted({tick * step for tick in decades for step in ((1, 2, 5) if few else (1,))})
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _place: time_text(value)))
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
