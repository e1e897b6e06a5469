"""Drawings of fabrics, plain or with a value on every link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from pathloom.errors import bad_input
from pathloom.fabrics import Fabric
from pathloom.report.layout import Layout, layout
from pathloom.report.style import FAINT, INK, new_figure, pathloom_style, save_figure
from pathloom.words import rate_text

TIER_COLOURS = {"host": "#c9ced6", "tor": "#cfe3f1", "aggregation": "#d5ebdf", "core": "#f7dfc6"}
TIER_EDGES = {"host": "#8a8f98", "tor": "#0072b2", "aggregation": "#009e73", "core": "#d55e00"}
TIER_WORDS = {"host": "hosts", "tor": "ToR", "aggregation": "aggregation", "core": "core"}
CABLE = "#9aa1ab"
FAILED = "#c8102e"
POD_FILL = "#f5f6f8"

SUFFIXES = (".svg", ".png", ".pdf")
MOST_SWITCH_NAMES = 90
MOST_HOST_NAMES = 40
MOST_VECTOR_CABLES = 1500
"""Larger fabrics are drawn as pixels inside the vector file, which otherwise takes megabytes."""


@dataclass(frozen=True)
class LinkValues:
    """A value per directed link, to be shown by colour."""

    values: Sequence[float]
    colours: Colormap
    scale: Normalize


@dataclass(frozen=True)
class _Canvas:
    """An axes of known size, on which inches can be told in drawing units."""

    axes: Axes
    place: Layout
    width: float
    height: float

    def inches(self, node: int) -> tuple[float, float]:
        x, y = self.place.positions[node]
        return x * self.width, y * self.height


def draw_to_file(fabric: Fabric, path: Path) -> None:
    """Writes a drawing of a fabric; the suffix of the path chooses the kind of file.

    Raises `PathloomError` when the suffix is not known or the file cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise bad_input(f"drawing `{path}`: the name must end in {', '.join(SUFFIXES)}")
    from pathloom.experiments.folder import write_whole

    figure = fabric_figure(fabric)
    write_whole(path, lambda partial: save_figure(figure, partial, path.suffix.lower()[1:]))


def fabric_figure(fabric: Fabric) -> Figure:
    """A drawing of a fabric with its name and sizes."""
    with pathloom_style():
        place = layout(fabric)
        width = _width(fabric, place)
        figure = new_figure(width, width / place.aspect + 0.9)
        axes = figure.add_subplot()
        draw_fabric(axes, fabric, place, width, width / place.aspect)
        axes.set_title(_caption(fabric), fontsize=10)
        _key(axes, fabric)
        return figure


def _width(fabric: Fabric, place: Layout) -> float:
    """Inches across: enough for the widest row of a drawing in tiers."""
    switches = sum(node["tier"] != "host" for node in fabric.nodes)
    if place.style == "tiers":
        rows = [[x for x, y in place.positions if y == row] for row in {y for _, y in place.positions if y > 0}]
        return min(max(8.0, 0.62 * max(len(row) for row in rows)), 24.0)
    return 7.0 if place.style == "sides" or switches <= 40 else min(7.0 + switches / 40, 14.0)


def _caption(fabric: Fabric) -> str:
    hosts = sum(node["tier"] == "host" for node in fabric.nodes)
    switches, cables = len(fabric.nodes) - hosts, len(fabric.links["source"]) // 2
    return f"{fabric.spec}\n{hosts} hosts, {switches} switches, {cables} cables"


def draw_fabric(
    axes: Axes, fabric: Fabric, place: Layout, width: float, height: float, values: LinkValues | None = None
) -> None:
    """Draws a fabric on an axes of about `width` x `height` inches.

    With values, each cable is two lines, one per direction, side by side as on a road with traffic on the right.
    """
    canvas = _Canvas(axes, place, width, height)
    around = {"circle": (0.01, 0.01), "map": (0.09, 0.09), "spring": (0.09, 0.09)}.get(place.style, (0.035, 0.09))
    axes.set_xlim(-around[0], 1 + around[0])
    axes.set_ylim(-around[1], 1 + min(around[1], 0.07))
    axes.set_axis_off()
    axes.grid(visible=False)
    _pods(canvas)
    pixels = len(fabric.links["source"]) // 2 > MOST_VECTOR_CABLES
    if values is None:
        _cables(canvas, fabric, pixels)
    else:
        _directions(canvas, fabric, values, pixels)
    _failed_cables(canvas, fabric)
    _nodes(canvas, fabric, small=values is not None)


def _pods(canvas: _Canvas) -> None:
    """A light ground under each pod: its hosts, ToRs and aggregation switches."""
    spans = canvas.place.pods
    rows = sorted({y for _, y in canvas.place.positions})
    if len(spans) < 2 or len(rows) < 3:
        return
    top = rows[-2] if len(rows) > 3 else rows[-1]
    margin = min(0.018, 0.3 / len(canvas.place.positions) + 0.006)
    for pod, (left, right) in spans.items():
        ground = FancyBboxPatch(
            (left - margin, -0.045),
            right - left + 2 * margin,
            top + 0.045 + 0.075,
            boxstyle="round,pad=0,rounding_size=0.012",
            mutation_aspect=canvas.place.aspect,
            facecolor=POD_FILL,
            edgecolor="none",
            zorder=0,
        )
        canvas.axes.add_patch(ground)
        if len(spans) <= 16:
            canvas.axes.text((left + right) / 2, -0.053, f"pod {pod}", ha="center", va="top", fontsize=8, color=FAINT)


def _cables(canvas: _Canvas, fabric: Fabric, pixels: bool) -> None:
    links, positions = fabric.links, canvas.place.positions
    alive = [link for link in range(0, len(links["source"]), 2) if links["up"][link]]
    lines = [[positions[links["source"][link]], positions[links["target"][link]]] for link in alive]
    widths = _widths([links["rate_bps"][link] for link in alive])
    collection = LineCollection(lines, linewidths=widths, colors=CABLE, zorder=1, rasterized=pixels)
    canvas.axes.add_collection(collection)


def _widths(rates_bps: Sequence[int]) -> list[float]:
    """Line widths that grow with the logarithm of the rate; all alike where the rates are."""
    low, high = min(rates_bps, default=1), max(rates_bps, default=1)
    thin = 0.9 if len(rates_bps) < 400 else 0.35
    if low == high:
        return [thin] * len(rates_bps)
    return [thin + 1.8 * math.log(rate / low) / math.log(high / low) for rate in rates_bps]


def _directions(canvas: _Canvas, fabric: Fabric, values: LinkValues, pixels: bool) -> None:
    """Two coloured lines per cable; the busiest are drawn last."""
    links = fabric.links
    count = len(links["source"])
    shift = 0.022 if count <= 400 else 0.008
    thickness = 2.1 if count <= 400 else 0.8
    alive = [link for link in range(count) if links["up"][link]]
    alive.sort(key=lambda link: values.values[link])
    lines = [_shifted(canvas, links["source"][link], links["target"][link], shift) for link in alive]
    collection = LineCollection(lines, linewidths=thickness, zorder=1, rasterized=pixels, capstyle="butt")
    collection.set_array([values.values[link] for link in alive])
    collection.set_cmap(values.colours)
    collection.set_norm(values.scale)
    canvas.axes.add_collection(collection)


def _shifted(canvas: _Canvas, source: int, target: int, shift: float) -> list[tuple[float, float]]:
    """The line from source to target, moved by `shift` inches to its right-hand side."""
    (ax, ay), (bx, by) = canvas.inches(source), canvas.inches(target)
    length = math.hypot(bx - ax, by - ay) or 1.0
    dx, dy = (by - ay) / length * shift, -(bx - ax) / length * shift
    return [
        ((ax + dx) / canvas.width, (ay + dy) / canvas.height),
        ((bx + dx) / canvas.width, (by + dy) / canvas.height),
    ]


def _failed_cables(canvas: _Canvas, fabric: Fabric) -> None:
    links, positions = fabric.links, canvas.place.positions
    failed = [link for link in range(0, len(links["source"]), 2) if not links["up"][link]]
    lines = [[positions[links["source"][link]], positions[links["target"][link]]] for link in failed]
    canvas.axes.add_collection(
        LineCollection(lines, linewidths=1.2, colors=FAILED, linestyles=[(0, (3, 2))], zorder=1.5)
    )


def _nodes(canvas: _Canvas, fabric: Fabric, small: bool) -> None:
    by_tier: dict[str, list[int]] = {}
    for node, record in enumerate(fabric.nodes):
        by_tier.setdefault(record["tier"], []).append(node)
    switches = len(fabric.nodes) - len(by_tier["host"])
    crowded = switches > MOST_SWITCH_NAMES
    for tier, nodes in by_tier.items():
        xs, ys = zip(*(canvas.place.positions[node] for node in nodes), strict=True)
        is_host = tier == "host"
        in_rows = canvas.place.style in ("tiers", "sides")
        named = (in_rows and len(nodes) <= MOST_HOST_NAMES) if is_host else not crowded
        size: float = (20 if named else 6 if len(nodes) < 300 else 2) if is_host else 14 if crowded else 60
        canvas.axes.scatter(
            xs,
            ys,
            s=size,
            marker="o" if is_host or crowded or named else "s",
            facecolor=TIER_COLOURS[tier],
            edgecolor=TIER_EDGES[tier],
            linewidths=0.8 if size > 10 else 0.3,
            zorder=2,
            alpha=1.0 if is_host or crowded or not named else 0.0,
        )
        if named:
            _names(canvas, fabric, nodes, is_host, small)


def _names(canvas: _Canvas, fabric: Fabric, nodes: Sequence[int], is_host: bool, small: bool) -> None:
    """Switches are boxes with their names; names of hosts stand outside of them."""
    crowd = len(fabric.nodes)
    size = (6.0 if small else 7.5) if crowd < 60 else 5.5
    for node in nodes:
        record = fabric.nodes[node]
        x, y = canvas.place.positions[node]
        if not is_host:
            box = {
                "boxstyle": "round,pad=0.28,rounding_size=0.15",
                "facecolor": TIER_COLOURS[record["tier"]],
                "edgecolor": TIER_EDGES[record["tier"]],
                "linewidth": 0.8,
            }
            canvas.axes.text(
                x, y, record["name"], fontsize=size, ha="center", va="center", bbox=box, zorder=3, color=INK
            )
            continue
        dx, dy, ha, va = _host_name_side(canvas.place, x)
        canvas.axes.annotate(
            record["name"],
            (x, y),
            (dx, dy),
            textcoords="offset points",
            fontsize=size - 0.5,
            ha=ha,
            va=va,
            color=FAINT,
        )


def _host_name_side(place: Layout, x: float) -> tuple[float, float, Any, Any]:
    """Offset and alignment of a host's name."""
    match place.style:
        case "sides":
            return (-6, 0, "right", "center") if x < 0.5 else (6, 0, "left", "center")
        case _:
            return (0, -5, "center", "top")


def _key(axes: Axes, fabric: Fabric) -> None:
    """What the colours mean, below the drawing, for fabrics of more than one tier."""
    tiers = [tier for tier in TIER_WORDS if any(node["tier"] == tier for node in fabric.nodes)]
    entries = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="none",
            color=TIER_EDGES[t],
            markerfacecolor=TIER_COLOURS[t],
            label=w,
        )
        for t, w in TIER_WORDS.items()
        if t in tiers
    ]
    if not all(fabric.links["up"]):
        entries.append(Line2D([], [], color=FAILED, linestyle=(0, (3, 2)), label="failed"))
    rates = sorted(set(fabric.links["rate_bps"]))
    thin_to_thick = _widths(rates)
    if 1 < len(rates) <= 4:
        entries += [
            Line2D([], [], color=CABLE, linewidth=width, label=rate_text(rate))
            for rate, width in zip(rates, thin_to_thick, strict=True)
        ]
    axes.legend(handles=entries, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=len(entries), fontsize=8)
