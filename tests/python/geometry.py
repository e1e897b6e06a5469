"""Positions of the texts that a figure really draws, and texts that cover each other or leave the page."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

TOLERANCE_PX = 0.5
PNG_DPI, FINE_DPI = 160.0, 720.0
"""Resolution of pictures of pixels, and one at which letters have the same positions as in vector files."""


def drawn_texts(figure: Figure, dpi: float = FINE_DPI) -> list[tuple[str, Bbox]]:
    """Returns each drawn text with its rectangle in pixels, including its box."""
    found: list[Text] = []
    plain = Text.draw

    def noting(self: Text, renderer: Any) -> None:
        if self.get_text().strip() and self.get_visible():
            found.append(self)
        plain(self, renderer)

    old_dpi, figure.dpi = figure.dpi, dpi
    renderer = RendererAgg(1, 1, dpi)  # type: ignore[no-untyped-call]
    with pytest.MonkeyPatch.context() as patch, renderer._draw_disabled():  # type: ignore[attr-defined]
        patch.setattr(Text, "draw", noting)
        figure.draw(renderer)
    places = [
        (text.get_text(), (text.get_bbox_patch() or text).get_window_extent(renderer)) for text in dict.fromkeys(found)
    ]
    figure.dpi = old_dpi
    return places


def troubles(figure: Figure) -> list[str]:
    """Returns pairs of texts that cover each other, and texts that are cut off at the edge of the page."""
    found = []
    for dpi in (PNG_DPI, FINE_DPI):
        texts = drawn_texts(figure, dpi)
        page = Bbox.from_bounds(0, 0, figure.get_figwidth() * dpi, figure.get_figheight() * dpi)
        found += [f"{text!r} leaves the page at {dpi:.0f} dpi" for text, box in texts if not _inside(box, page)]
        found += [
            f"{one!r} and {other!r} meet at {dpi:.0f} dpi"
            for (one, box), (other, second) in itertools.combinations(texts, 2)
            if _meet(box, second)
        ]
    return found


def _inside(box: Bbox, page: Bbox) -> bool:
    return bool(
        box.x0 >= page.x0 - TOLERANCE_PX
        and box.x1 <= page.x1 + TOLERANCE_PX
        and box.y0 >= page.y0 - TOLERANCE_PX
        and box.y1 <= page.y1 + TOLERANCE_PX
    )


def _meet(one: Bbox, other: Bbox) -> bool:
    return bool(
        one.x0 < other.x1 - TOLERANCE_PX
        and other.x0 < one.x1 - TOLERANCE_PX
        and one.y0 < other.y1 - TOLERANCE_PX
        and other.y0 < one.y1 - TOLERANCE_PX
    )
