"""The style of pictures, without decoration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure

from pathloom.report.palette import FAINT, GRID, INK

_LEGEND_ROOM_PT = 60.0
"""Width left and right of the axes, in points: ticks, their labels and the name of the axis."""

_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.8,
    "text.color": INK,
    # Names and specifications may contain dollar signs.
    "text.parse_math": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "pathloom",
}


@contextmanager
def pathloom_style() -> Iterator[None]:
    """Matplotlib settings for all pictures, undone afterwards."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; a warning about them would not help.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches, without a windowing system."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, target: Path | BytesIO, kind: str, dpi: int = 160) -> None:
    """Writes a figure as `svg`, `png` or `pdf`, without the date, so that equal figures make equal files."""
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with pathloom_style():
        figure.savefig(target, format=kind, dpi=dpi, metadata=metadata)


def renderer_of(figure: Figure) -> RendererAgg:
    """The renderer that measures texts of a figure."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg), "made by new_figure"
    return cast(RendererAgg, canvas.get_renderer())  # type: ignore[no-untyped-call]


def fitting_legend(place: Axes | Figure, most_columns: int, **keys: Any) -> None:
    """Draws a legend in as many columns as fit into the width of the figure."""
    figure = place if isinstance(place, Figure) else place.figure
    assert isinstance(figure, Figure), "no part of pathloom draws into sub-figures"
    room = figure.bbox.width - _LEGEND_ROOM_PT * figure.dpi / 72 * (place is not figure)
    for columns in range(max(most_columns, 1), 0, -1):
        legend = place.legend(ncols=columns, **keys)
        if columns == 1 or legend.get_window_extent(renderer_of(figure)).width <= room:
            return
        legend.remove()


def legend_above(axes: Axes, columns: int = 4) -> None:
    """Draws a legend above the plot, where it covers nothing."""
    fitting_legend(axes, columns, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3, handlelength=2.6)
