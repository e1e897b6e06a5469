"""A result in the cell of a notebook: the main table and two pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from pathloom.experiments.results.notes import failures
from pathloom.extras import NO_PICTURES, is_installed
from pathloom.report.headline import runs_text
from pathloom.report.page import banner_block, colours_of, headline_block, scheme_table
from pathloom.report.tables import main_table

if TYPE_CHECKING:
    from pathloom.experiments.results.result import ResultData
    from pathloom.report.plots import Plot

SCOPE = "pathloom-result"
"""Class of the element to which all styles are limited."""
MOST_PICTURES = 2
PICTURE_DPI, CSS_DPI = 120, 84
"""Resolution of the pictures, and the resolution at which they are shown."""


def notebook_cell(result: ResultData, plots: Sequence[Plot]) -> str:
    """A part of an HTML page, whose styles apply only to itself.

    `ResultData.report()` and `ResultData.save` give the whole report.
    """
    settings, schemes = result.settings, result.summary["schemes"]
    css = files("pathloom.report").joinpath("notebook.css").read_text(encoding="utf-8")
    what = f"{settings.traffic} on {settings.fabric}, {runs_text(result)}"
    parts = [
        f"<style>\n{css}</style>",
        f'<p class="under">{escape(what)}</p>',
        banner_block(result),
        headline_block(schemes),
        scheme_table(main_table(schemes), colours_of(result), "Figures of each scheme"),
        *map(_figure, plots),
        "" if plots or is_installed("plot") else f'<p class="under">{escape(NO_PICTURES)}</p>',
        *(f'<p class="under">Note: {escape(note)}.</p>' for note in result.notes if note not in failures(result)),
        '<p class="under"><code>result.save("folder")</code> writes the whole report.</p>',
    ]
    return f'<div class="{SCOPE}">\n' + "\n".join(part for part in parts if part) + "\n</div>\n"


def _figure(plot: Plot) -> str:
    """A picture with its title; its description is the alternative text."""
    width = round(plot.figure.get_figwidth() * CSS_DPI)
    return (
        f"<figure><figcaption>{escape(plot.title)}</figcaption><img "
        f'src="{plot.png_uri(PICTURE_DPI)}" width="{width}" alt="{escape(plot.title)}: {escape(plot.says)}"></figure>'
    )
