"""Places the names of nodes in a drawing, so that they cover neither each other nor other nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties
from matplotlib.patheffects import withStroke

from pathloom.report.palette import FAINT, INK

SIZES_PT = (7.5, 6.0, 5.5, 5.0)
"""Font sizes that are tried, the largest first."""
_PAD = 0.28
"""Space around the name in a box, as a multiple of the font size."""
_GAP_PX = 1.0
"""Least distance between any two names, in pixels."""
_FINE_DPI = 720
"""Resolution at which texts are measured; at a coarse one, letters are aligned to pixels."""
_WIDER = 1.03
"""Factor for the width of texts, because such letters may need a little more room."""
_MARGIN_PT = 6.0
"""Distance by which names may extend beyond the axes, in points."""
_AROUND = tuple(
    (math.cos(angle), math.sin(angle)) for angle in (math.radians(45 * turn) for turn in (0, 4, 2, 6, 1, 7, 3, 5))
)
"""Possible directions from a node to its name: beside it, above, below, and the corners."""


class Rect(NamedTuple):
    """A rectangle in pixels."""

    left: float
    low: float
    right: float
    high: float

    @staticmethod
    def around(x: float, y: float, width: float, height: float) -> Rect:
        """The rectangle with this centre."""
        return Rect(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def lies_in(self, other: Rect) -> bool:
        """Whether the rectangle is completely inside the other."""
        inside = self.left >= other.left and self.right <= other.right
        return inside and self.low >= other.low and self.high <= other.high


@dataclass(frozen=True)
class Name:
    """The name of a node."""

    text: str
    at: tuple[float, float]
    """Position of the node, in the coordinates of the axes."""
    face: str
    edge: str
    """Colours of its box."""
    weight: int = 0
    """If not all names have room, names with a larger weight are placed first."""


class Namer:
    """Writes names into a drawing of fixed size: nothing may change the layout of the figure afterwards."""

    def __init__(self, axes: Axes, renderer: RendererAgg) -> None:
        self.axes = axes
        self.taken: list[Rect] = []
        """Rectangles that no further name may cover."""
        self._fine: Any = RendererAgg(1, 1, _FINE_DPI)  # type: ignore[no-untyped-call]
        self._px_per_pt = renderer.dpi / 72
        box, margin, edge = axes.get_window_extent(renderer), _MARGIN_PT * self._px_per_pt, 2 * _GAP_PX
        self._page = Rect(
            max(box.x0 - margin, edge),
            max(box.y0 - margin, edge),
            min(box.x1 + margin, renderer.width - edge),
            min(box.y1 + margin, renderer.height - edge),
        )
        self._segments: npt.NDArray[np.float64] = np.empty((0, 4))

    def dots(self, points: Iterable[tuple[float, float]], diameter_pt: float) -> list[Rect]:
        """The rectangles that dots of this size cover."""
        side = diameter_pt * self._px_per_pt
        return [Rect.around(x, y, side, side) for x, y in self._pixels(points)]

    def avoid(self, lines: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Makes names beside their nodes avoid the sides with many of these lines."""
        ends = self._pixels([point for line in lines for point in line])
        self._segments = np.array(ends, dtype=float).reshape(-1, 4)

    def boxes(self, groups: Sequence[Sequence[Name]], start_pt: float, clear: Sequence[Rect] = ()) -> list[bool]:
        """Writes names in boxes on their nodes, in the largest size up to `start_pt` in which all fit.

        If no size fits all, the groups that fit in the smallest size are written. The boxes do not cover `clear`.
        Returns which groups were written.
        """
        sizes = [size for size in SIZES_PT if size <= start_pt] or [start_pt]
        for size in sizes:
            taken, fits = list(self.taken), []
            for group in groups:
                rects = self._boxes(group, size)
                fits.append(_free(rects, [*taken, *clear], self._page))
                taken += rects if fits[-1] else []
            if all(fits):
                break
        for group, fit in zip(groups, fits, strict=True):
            for name in group if fit else ():
                self._write_box(name, size)
        self.taken = taken
        return fits

    def line_up(self, names: Sequence[Name], size_pt: float, offset_pt: tuple[float, float], ha: str, va: str) -> bool:
        """Writes names on the same side of their positions, or none of them if two would overlap."""
        rects = [self._beside(name, size_pt, offset_pt, ha, va) for name in names]
        if not _free(rects, self.taken, self._page):
            return False
        for name in names:
            self._write(name, size_pt, offset_pt, ha, va, FAINT)
        self.taken += rects
        return True

    def beside(self, names: Sequence[Name], size_pt: float, distance_pt: float) -> int:
        """Writes each name on a free side of its node. Returns how many names were written."""
        written = 0
        for name in sorted(names, key=lambda one: -one.weight):
            found = []
            for turn, (dx, dy) in enumerate(_AROUND):
                offset = (dx * distance_pt, dy * distance_pt)
                ha = "left" if dx > 0.1 else "right" if dx < -0.1 else "center"
                va = "bottom" if dy > 0.1 else "top" if dy < -0.1 else "center"
                rect = self._beside(name, size_pt, offset, ha, va)
                if _free([rect], self.taken, self._page):
                    found.append((self._crossings(rect), turn, rect, offset, ha, va))
            if found:
                _, _, rect, offset, ha, va = min(found, key=lambda one: one[:2])
                self._write(name, size_pt, offset, ha, va, INK, halo=True)
                self.taken.append(rect)
                written += 1
        return written

    def _pixels(self, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        found = np.array(list(points), dtype=float).reshape(-1, 2)
        return [(float(x), float(y)) for x, y in self.axes.transData.transform(found)]

    def _size(self, text: str, size_pt: float) -> tuple[float, float]:
        """Width and height of a text in pixels."""
        font = FontProperties(family=["DejaVu Sans"], size=size_pt)
        measure: Callable[[str, FontProperties, bool], tuple[float, float, float]]
        measure = self._fine.get_text_width_height_descent
        width, height, _ = measure(text, font, False)
        height, scale = max(height, measure("lp", font, False)[1]), self._px_per_pt * 72 / _FINE_DPI
        return _WIDER * width * scale, height * scale

    def _boxes(self, names: Sequence[Name], size_pt: float) -> list[Rect]:
        pad = 2 * _PAD * size_pt * self._px_per_pt + 1
        sizes = [self._size(name.text, size_pt) for name in names]
        places = self._pixels(name.at for name in names)
        return [Rect.around(x, y, w + pad, h + pad) for (x, y), (w, h) in zip(places, sizes, strict=True)]

    def _beside(self, name: Name, size_pt: float, offset_pt: tuple[float, float], ha: str, va: str) -> Rect:
        (x, y), (width, height) = self._pixels([name.at])[0], self._size(name.text, size_pt)
        x += offset_pt[0] * self._px_per_pt + {"left": 0.5, "center": 0.0, "right": -0.5}[ha] * width
        y += offset_pt[1] * self._px_per_pt + {"bottom": 0.5, "center": 0.0, "top": -0.5}[va] * height
        return Rect.around(x, y, width, height)

    def _crossings(self, rect: Rect) -> int:
        """Number of lines that cross a rectangle, by the separating axis theorem."""
        if not len(self._segments):
            return 0
        ax, ay, bx, by = self._segments.T
        half_x, half_y = (rect.right - rect.left) / 2, (rect.high - rect.low) / 2
        mid_x, mid_y = (ax + bx) / 2 - (rect.left + half_x), (ay + by) / 2 - (rect.low + half_y)
        dx, dy = (bx - ax) / 2, (by - ay) / 2
        near = (np.abs(mid_x) <= half_x + np.abs(dx)) & (np.abs(mid_y) <= half_y + np.abs(dy))
        through = np.abs(dx * mid_y - dy * mid_x) <= half_x * np.abs(dy) + half_y * np.abs(dx)
        return int((near & through).sum())

    def _write_box(self, name: Name, size_pt: float) -> None:
        box = {
            "boxstyle": f"round,pad={_PAD},rounding_size=0.15",
            "facecolor": name.face,
            "edgecolor": name.edge,
            "linewidth": 0.8,
        }
        text = self.axes.text(
            *name.at, name.text, fontsize=size_pt, ha="center", va="center", bbox=box, zorder=3, color=INK
        )
        text.set_in_layout(False)

    def _write(
        self,
        name: Name,
        size_pt: float,
        offset_pt: tuple[float, float],
        ha: Any,
        va: Any,
        colour: str,
        halo: bool = False,
    ) -> None:
        text = self.axes.annotate(
            name.text,
            name.at,
            offset_pt,
            textcoords="offset points",
            fontsize=size_pt,
            ha=ha,
            va=va,
            color=colour,
            zorder=4,
            path_effects=[withStroke(linewidth=1.8, foreground="white")] if halo else None,
        )
        text.set_in_layout(False)


def _free(rects: Sequence[Rect], taken: Sequence[Rect], page: Rect) -> bool:
    """Whether rectangles overlap neither each other nor taken ones, and are inside the page."""
    if not all(rect.lies_in(page) for rect in rects):
        return False
    own = np.array(rects, dtype=float).reshape(-1, 4)
    others = np.array([*taken, *rects], dtype=float).reshape(-1, 4)
    met = (
        (own[:, None, 0] < others[None, :, 2] + _GAP_PX)
        & (others[None, :, 0] < own[:, None, 2] + _GAP_PX)
        & (own[:, None, 1] < others[None, :, 3] + _GAP_PX)
        & (others[None, :, 1] < own[:, None, 3] + _GAP_PX)
    )
    # Each rectangle overlaps itself.
    return int(met.sum()) == len(rects)
