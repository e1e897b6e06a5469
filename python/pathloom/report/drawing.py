"""Drawings of fabrics, plain or with a value on every link."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from pathloom.errors import bad_input
from pathloom.quantities import rate_text
from pathloom.report.layout import Layout, layout
from pathloom.report.names import Name, Namer
from pathloom.report.spread import Position
from pathloom.report.style import fitting_legend, new_figure, pathloom_style, renderer_of, save_figure
from pathloom.tiers import FabricGraph, Words, tier_words

TIER_COLOURS = {"host": "#c9ced6", "tor": "#cfe3f1", "aggregation": "#d5ebdf", "core": "#f7dfc6"}
TIER_EDGES = {"host": "#8a8f98", "tor": "#0072b2", "aggregation": "#009e73", "core": "#d55e00"}
CABLE = "#9aa1ab"
FURTHER_HOME = "#7b5ea7"
FURTHER_HOME_DASHES = (0, (5, 2))
FAILED = "#c8102e"
POD_FILL = "#f5f6f8"

SUFFIXES = (".svg", ".png", ".pdf")
MOST_BOXES = 90
"""Drawings of more switches than this have dots without names; maps name as many as there is room for."""
MOST_HOST_NAMES = 40
COARSE_DPI = 80
"""Resolution of the pixels in a notebook; at a finer one, a drawing of k=16 takes 6 MB."""
MOST_VECTOR_CABLES = 1500
"""Cables of larger fabrics are drawn as pixels in the vector file, which otherwise takes megabytes."""


@dataclass(frozen=True)
class LinkValues:
    """A value per directed link, shown by colour."""

    values: Sequence[float]
    colours: Colormap
    scale: Normalize


@dataclass(frozen=True)
class _Canvas:
    """An axes of known size, to convert between inches and drawing units."""

    axes: Axes
    place: Layout
    width: float
    height: float

    def inches(self, node: int) -> tuple[float, float]:
        x, y = self.place.positions[node]
        return x * self.width, y * self.height


def draw_to_file(fabric: FabricGraph, path: Path) -> None:
    """Writes a drawing of a fabric; the suffix of the path chooses the kind of file.

    Raises `PathloomError` when the suffix is not known or the file cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise bad_input(f"drawing `{path}`: the name must end in {', '.join(SUFFIXES)}")
    from pathloom.experiments.results.output_files import write_atomically

    figure = fabric_figure(fabric)
    write_atomically(path, lambda partial: save_figure(figure, partial, path.suffix.lower()[1:]))


def fabric_svg(fabric: FabricGraph) -> str:
    """A drawing of a fabric as SVG text without the date, so that equal fabrics give equal texts."""
    buffer = BytesIO()
    save_figure(fabric_figure(fabric), buffer, "svg", dpi=COARSE_DPI)
    svg = buffer.getvalue().decode("utf-8")
    # Inside a page, an SVG has neither an XML declaration nor a document type.
    return svg[svg.index("<svg") :]


def fabric_figure(fabric: FabricGraph) -> Figure:
    """A drawing of a fabric with its name and sizes."""
    with pathloom_style():
        place = layout(fabric)
        width = _width(fabric, place)
        figure = new_figure(width, width / place.aspect + 0.9)
        axes = figure.add_subplot()
        drawing = draw_fabric(axes, fabric, place, width, width / place.aspect)
        title = axes.set_title(_caption(fabric, width), fontsize=10)
        _key(axes, fabric, place)
        named, switches = name_nodes(figure, [drawing])[0]
        if 0 < named < switches:
            title.set_text(f"{title.get_text()}; names of {named}, where there is room")
        return figure


def _width(fabric: FabricGraph, place: Layout) -> float:
    """Width in inches, enough for the widest row of a drawing in tiers."""
    switches = sum(node["tier"] != "host" for node in fabric.nodes)
    if place.style == "tiers":
        rows = [[x for x, y in place.positions if y == row] for row in {y for _, y in place.positions if y > 0}]
        return min(max(8.0, 0.62 * max(len(row) for row in rows)), 24.0)
    return 7.0 if place.style == "sides" or switches <= 40 else min(7.0 + switches / 40, 14.0)


def _caption(fabric: FabricGraph, width: float) -> str:
    counts = {tier: sum(node["tier"] == tier for node in fabric.nodes) for tier in ("host", "tor")}
    words, switches = tier_words(fabric), len(fabric.nodes) - counts["host"]
    own = words["tor"] if counts["tor"] == switches and fabric.from_file else Words("switch", "switches")
    parts = [words["host"].counted(counts["host"]), own.counted(switches)]
    parts.append(Words("cable", "cables").counted(len(fabric.links["source"]) // 2))
    # A letter of this size is about 0.09 inches wide.
    return "\n".join([*textwrap.wrap(fabric.spec, int(width / 0.09)), ", ".join(parts)])


@dataclass(frozen=True)
class Drawing:
    """A fabric drawn on an axes, still without names."""

    axes: Axes
    fabric: FabricGraph
    place: Layout
    small: bool
    """Whether the drawing is one of several in a picture."""


def draw_fabric(
    axes: Axes, fabric: FabricGraph, place: Layout, width: float, height: float, values: LinkValues | None = None
) -> Drawing:
    """Draws a fabric on an axes of about `width` x `height` inches. Call `name_nodes` when everything is drawn.

    With values, each cable is two parallel lines, one per direction, as on a road with traffic on the right.
    """
    canvas = _Canvas(axes, place, width, height)
    around = {"circle": (0.01, 0.01), "map": (0.05, 0.05), "spring": (0.05, 0.05), "sides": (0.09, 0.09)}.get(
        place.style, (0.035, 0.09)
    )
    xs, ys = zip(*place.positions, strict=True)
    axes.set_xlim(min(0.0, *xs) - around[0], max(1.0, *xs) + around[0])
    axes.set_ylim(min(0.0, *ys) - around[1], max(1.0, *ys) + min(around[1], 0.07))
    axes.set_axis_off()
    axes.grid(visible=False)
    _pods(canvas)
    pixels = len(fabric.links["source"]) // 2 > MOST_VECTOR_CABLES
    if values is None:
        _cables(canvas, fabric, pixels)
    else:
        _directions(canvas, fabric, values, pixels)
    _failed_cables(canvas, fabric)
    _nodes(canvas, fabric)
    return Drawing(axes, fabric, place, small=values is not None)


def _pods(canvas: _Canvas) -> None:
    """Draws a light background for each pod: its hosts, ToRs and aggregation switches."""
    if not _shows_pods(canvas.place):
        return
    spans = canvas.place.pods
    rows = sorted({y for _, y in canvas.place.positions})
    top = rows[-2] if len(rows) > 3 else rows[-1]
    margin = min(0.018, 0.3 / len(canvas.place.positions) + 0.006)
    for left, right in spans.values():
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


def _shows_pods(place: Layout) -> bool:
    return len(place.pods) > 1 and len({y for _, y in place.positions}) > 2


def _cables(canvas: _Canvas, fabric: FabricGraph, pixels: bool) -> None:
    links, positions = fabric.links, canvas.place.positions
    alive = [link for link in range(0, len(links["source"]), 2) if links["up"][link]]
    lines = [[positions[links["source"][link]], positions[links["target"][link]]] for link in alive]
    widths = _widths([links["rate_bps"][link] for link in alive])
    further = _further_homes(fabric)
    colours = [FURTHER_HOME if link in further else CABLE for link in alive]
    styles = [FURTHER_HOME_DASHES if link in further else "solid" for link in alive]
    collection = LineCollection(
        lines, linewidths=widths, colors=colours, linestyles=styles, zorder=1, rasterized=pixels
    )
    canvas.axes.add_collection(collection)


def _further_homes(fabric: FabricGraph) -> set[int]:
    """The cables of hosts except the first cable of each host, by the even link number of the cable."""
    hosts = {node for node, record in enumerate(fabric.nodes) if record["tier"] == "host"}
    seen: set[int] = set()
    further: set[int] = set()
    for link in range(0, len(fabric.links["source"]), 2):
        for host in hosts & {fabric.links["source"][link], fabric.links["target"][link]}:
            if host in seen:
                further.add(link)
            seen.add(host)
    return further


def _widths(rates_bps: Sequence[int]) -> list[float]:
    """Line widths that grow with the logarithm of the rate; all equal if the rates are equal."""
    low, high = min(rates_bps, default=1), max(rates_bps, default=1)
    thin = 0.9 if len(rates_bps) < 400 else 0.35
    if low == high:
        return [thin] * len(rates_bps)
    return [thin + 1.8 * math.log(rate / low) / math.log(high / low) for rate in rates_bps]


def _directions(canvas: _Canvas, fabric: FabricGraph, values: LinkValues, pixels: bool) -> None:
    """Draws two coloured lines per cable, the busiest last."""
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


def _failed_cables(canvas: _Canvas, fabric: FabricGraph) -> None:
    links, positions = fabric.links, canvas.place.positions
    failed = [link for link in range(0, len(links["source"]), 2) if not links["up"][link]]
    lines = [[positions[links["source"][link]], positions[links["target"][link]]] for link in failed]
    canvas.axes.add_collection(
        LineCollection(lines, linewidths=1.2, colors=FAILED, linestyles=[(0, (3, 2))], zorder=1.5)
    )


def _nodes(canvas: _Canvas, fabric: FabricGraph) -> None:
    """Draws a dot for every node; boxes with names are drawn on top."""
    by_tier: dict[str, list[int]] = {}
    for node, record in enumerate(fabric.nodes):
        by_tier.setdefault(record["tier"], []).append(node)
    for tier, nodes in by_tier.items():
        size = _host_points(canvas.place, len(nodes)) if tier == "host" else _switch_points(fabric)
        xs, ys = zip(*(canvas.place.positions[node] for node in nodes), strict=True)
        canvas.axes.scatter(
            xs,
            ys,
            s=size**2,
            marker="o",
            facecolor=["white" if node in canvas.place.guessed else TIER_COLOURS[tier] for node in nodes],
            edgecolor=TIER_EDGES[tier],
            linewidths=0.8 if size > 3 else 0.3,
            zorder=2,
        )


def _host_points(place: Layout, hosts: int) -> float:
    """Diameter of a host's dot."""
    if hosts <= MOST_HOST_NAMES and place.style in ("tiers", "sides"):
        return 4.5
    return 2.5 if hosts < 300 else 1.4


def _switch_points(fabric: FabricGraph) -> float:
    """Diameter of a switch's dot."""
    switches = sum(node["tier"] != "host" for node in fabric.nodes)
    return 5.0 if switches <= MOST_BOXES else 3.7


def name_nodes(figure: Figure, drawings: Sequence[Drawing]) -> list[tuple[int, int]]:
    """Writes names of nodes where there is room. Returns named and all switches of each drawing.

    This fixes the layout of the figure, so everything else must be drawn before.
    """
    # The second pass uses the sizes that the first pass has found.
    for _ in range(2):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return [_name_one(drawing, renderer_of(figure)) for drawing in drawings]


def _name_one(drawing: Drawing, renderer: RendererAgg) -> tuple[int, int]:
    fabric, place = drawing.fabric, drawing.place
    by_tier: dict[str, list[Name]] = {}
    cables = Counter(fabric.links["source"])
    for node, record in enumerate(fabric.nodes):
        tier = record["tier"]
        face = "white" if node in place.guessed else TIER_COLOURS[tier]
        name = Name(record["name"], place.positions[node], face, TIER_EDGES[tier], cables[node])
        by_tier.setdefault(tier, []).append(name)
    hosts = by_tier.pop("host", [])
    switches = [name for names in by_tier.values() for name in names]
    namer = Namer(drawing.axes, renderer)
    start_pt = (6.0 if drawing.small else 7.5) if len(fabric.nodes) < 60 else 5.5
    named, spread = 0, place.style in ("map", "spring")
    if len(switches) <= MOST_BOXES:
        groups = list(by_tier.values())
        clear = namer.dots([name.at for name in hosts], _host_points(place, len(hosts))) if spread else []
        fits = namer.boxes(groups, start_pt, clear)
        named = sum(len(group) for group, fit in zip(groups, fits, strict=True) if fit)
    if spread and not named:
        namer.taken += namer.dots([name.at for name in switches], _switch_points(fabric) + 1)
        namer.avoid(_lines(fabric, place))
        named = namer.beside(switches, 5.5 if drawing.small or len(switches) > MOST_BOXES else 6.5, 4.0)
    _name_pods(namer, place)
    _name_hosts(namer, place, hosts, start_pt - 0.5)
    return named, len(switches)


def _lines(fabric: FabricGraph, place: Layout) -> list[tuple[Position, Position]]:
    """All cables, from end to end."""
    ends = zip(fabric.links["source"][::2], fabric.links["target"][::2], strict=True)
    return [(place.positions[source], place.positions[target]) for source, target in ends]


def _name_pods(namer: Namer, place: Layout) -> None:
    """Writes the number of each pod below it."""
    if not _shows_pods(place):
        return
    middles = {pod: ((left + right) / 2, -0.053) for pod, (left, right) in place.pods.items()}
    for size_pt, form in ((8.0, "pod {}"), (6.0, "pod {}"), (6.0, "{}")):
        names = [Name(form.format(pod), at, "", "") for pod, at in middles.items()]
        if namer.line_up(names, size_pt, (0, 0), "center", "top"):
            return


def _name_hosts(namer: Namer, place: Layout, hosts: Sequence[Name], size_pt: float) -> None:
    """Writes names of hosts outside the drawing, if it has the hosts in rows or columns."""
    if len(hosts) > MOST_HOST_NAMES or place.style not in ("tiers", "sides"):
        return
    if place.style == "tiers":
        namer.line_up(hosts, size_pt, (0, -5), "center", "top")
        return
    for side, offset, ha in ((-1, (-6.0, 0.0), "right"), (1, (6.0, 0.0), "left")):
        own = [name for name in hosts if (name.at[0] - 0.5) * side > 0]
        namer.line_up(own, size_pt, offset, ha, "center")


def _key(axes: Axes, fabric: FabricGraph, place: Layout) -> None:
    """Draws the meaning of the colours and lines below the drawing."""
    entries = [_dot(words.many, TIER_COLOURS[tier], TIER_EDGES[tier]) for tier, words in tier_words(fabric).items()]
    if place.guessed:
        entries.append(_dot("without coordinates", "white", TIER_EDGES["tor"]))
    if not all(fabric.links["up"]):
        entries.append(Line2D([], [], color=FAILED, linestyle=(0, (3, 2)), label="failed"))
    if _further_homes(fabric):
        dashed = Line2D([], [], color=FURTHER_HOME, linestyle=FURTHER_HOME_DASHES, label="further homes of hosts")
        entries.append(dashed)
    rates = sorted(set(fabric.links["rate_bps"]))
    thin_to_thick = _widths(rates)
    if 1 < len(rates) <= 4:
        entries += [
            Line2D([], [], color=CABLE, linewidth=width, label=rate_text(rate))
            for rate, width in zip(rates, thin_to_thick, strict=True)
        ]
    fitting_legend(axes, len(entries), handles=entries, loc="upper center", bbox_to_anchor=(0.5, -0.01), fontsize=8)


def _dot(label: str, face: str, edge: str) -> Line2D:
    """An entry of the key."""
    return Line2D([], [], marker="o", linestyle="none", color=edge, markerfacecolor=face, label=label)
