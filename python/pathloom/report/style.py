"""The style of pictures: one colour, marker and line per scheme, the same in every picture, and no decoration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure

INK = "#222222"
FAINT = "#8a8f98"
GRID = "#e3e6ea"

# Okabe and Ito's palette, distinguishable with every common colour blindness; yellow is left out on white.
_LOOKS: tuple[tuple[str, str, str | tuple[float, tuple[float, ...]]], ...] = (
    ("#7f7f7f", "s", (0, (4, 1.5))),
    ("#0072b2", "o", "solid"),
    ("#d55e00", "^", "solid"),
    ("#009e73", "D", (0, (6, 1.5, 1.5, 1.5))),
    ("#cc79a7", "v", (0, (4, 1.5))),
    ("#56b4e9", "P", (0, (1.5, 1.5))),
    ("#e69f00", "X", (0, (6, 1.5, 1.5, 1.5))),
    ("#222222", "*", (0, (1.5, 1.5))),
)
# Well-known schemes keep their colour from report to report.
_FAVOURITES = {
    "spt": 0,
    "ecmp": 1,
    "hedera": 2,
    "hedera-sa": 3,
    "ofpt": 4,
    "lessor": 6,
    "mptcp": 5,
    "tcp-path": 7,
}

MOST_LABEL_LETTERS = 34
"""Names of schemes that are longer than this are shortened in pictures."""
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


@dataclass(frozen=True)
class Look:
    """Label of a scheme in a picture, and its colour, marker and line style."""

    label: str
    colour: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]


def looks(schemes: Sequence[str]) -> dict[str, Look]:
    """A look for each scheme: its usual one, unless the same scheme with other settings already has it."""
    taken: dict[str, int] = {}
    for scheme in schemes:
        favourite = _FAVOURITES.get(scheme.split(":", 1)[0])
        if favourite is not None and favourite not in taken.values():
            taken[scheme] = favourite
    free = iter([index for index in range(len(_LOOKS)) if index not in taken.values()])
    for scheme in schemes:
        if scheme not in taken:
            taken[scheme] = next(free, len(taken) % len(_LOOKS))
    labels = short_labels(schemes)
    return {scheme: Look(label, *_LOOKS[taken[scheme]]) for scheme, label in zip(schemes, labels, strict=True)}


def short_labels(schemes: Sequence[str]) -> list[str]:
    """Labels of schemes in pictures: the middle of long specifications is cut, unless two labels would then be equal.

    Matplotlib omits labels that begin with an underscore, so such file names get the prefix `./`.

    >>> short_labels(["ecmp", "experiments/my-schemes/greedy.py:Greedy:period=100ms"])
    ['ecmp', 'experiments/my-s…eedy:period=100ms']
    """
    schemes = [f"./{one}" if one.startswith("_") else one for one in schemes]
    head = (MOST_LABEL_LETTERS - 1) // 2
    tail = MOST_LABEL_LETTERS - 1 - head
    cut = [one if len(one) <= MOST_LABEL_LETTERS else f"{one[:head]}…{one[-tail:]}" for one in schemes]
    return cut if len(set(cut)) == len(cut) else list(schemes)


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
