"""SVG pictures that adapt to a light or a dark page.

Every colour of the SVG becomes a CSS variable. Its value on light pages is the colour itself. On dark pages it is the
partner in `DARK` or in the scale of utilisation. The files of a results folder keep plain colours, for programs without
CSS variables. Printed pages are always light.
"""

from __future__ import annotations

import re
from functools import cache

from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex

from pathloom.report.palette import DARK

LIGHT_STEPS = ("#c9ced6", "#e8c98a", "#e3aa58", "#d6853f", "#bf5f43", "#994049", "#6b2b47", "#3c1835")
DARK_STEPS = ("#3d4653", "#5f4456", "#8a4a58", "#b3574f", "#d4753f", "#e39c4c", "#efc679", "#fdf3c0")
"""The steps of utilisation on the page of `pathloom show` (web/src/colours.ts)."""
BUSY = LinearSegmentedColormap.from_list("busy", LIGHT_STEPS)
"""The scale of utilisation on a light background: the busier a link, the darker."""
_DARK_BUSY = LinearSegmentedColormap.from_list("dark busy", DARK_STEPS)
"""The same on a dark background: the busier a link, the brighter."""

_COLOUR = re.compile(r"(?<=[:\" ])#[0-9a-f]{6}(?=[;\"])")
_OPENING = re.compile(r"<svg\b[^>]*>")


def with_dark_mode(svg: str) -> str:
    """The same picture, but dark on dark pages. A picture that contains pixel images is not changed.

    >>> text = with_dark_mode('<svg><path style="fill: #ffffff"/></svg>')
    >>> '<path style="fill: var(--cffffff)"/>' in text, "--cffffff:#16191e" in text
    (True, True)
    """
    if "<image" in svg:
        return svg
    used = sorted(set(_COLOUR.findall(svg)))
    partners = _partners()
    light = ";".join(f"--c{colour[1:]}:{colour}" for colour in used)
    dark = ";".join(f"--c{colour[1:]}:{partners[colour]}" for colour in used if colour in partners)
    style = f"<style>svg{{{light}}}@media screen and (prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    with_variables = _COLOUR.sub(lambda found: f"var(--c{found[0][1:]})", svg)
    return _OPENING.sub(lambda found: found[0] + style, with_variables, count=1)


@cache
def _partners() -> dict[str, str]:
    return {**dict(zip(_colours(BUSY), _colours(_DARK_BUSY), strict=True)), **DARK}


def _colours(scale: Colormap) -> list[str]:
    return [to_hex(scale(step)) for step in range(256)]
