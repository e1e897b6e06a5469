"""Parts of a self-contained page: tables, pictures and lists of words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from pathloom.extras import NO_PICTURES, is_installed
from pathloom.report.palette import DARK
from pathloom.report.tables import Table

if TYPE_CHECKING:
    from pathloom.report.plots import Plot

MOST_UNBROKEN = 24
"""Maximum number of letters of a name that are kept on one line."""


def document(title: str, parts: Sequence[str]) -> str:
    """A whole page of these parts; empty ones are left out."""
    css = files("pathloom.report").joinpath("style.css").read_text(encoding="utf-8")
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} – Pathloom</title>\n<style>\n{css}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def plain_table(table: Table, label: str) -> str:
    """A table with its headings on top, as HTML, without empty columns; the label is for screen readers."""
    table = table.without_empty_columns()
    head = "".join(map(heading, table.headings))
    rows = [f"<tr><td>{breakable(row[0])}</td>{''.join(cell(text) for text in row[1:])}</tr>" for row in table.rows]
    return html_table(head, rows, label)


def heading(text: str) -> str:
    """The heading of a column; a column without one has an empty cell, which no screen reader announces."""
    return f'<th scope="col">{escape(text)}</th>' if text else "<td></td>"


def html_table(head: str, rows: Sequence[str], label: str, kind: str = "wide") -> str:
    """A table from headings and rows in HTML. A table that is wider than the page can be scrolled by keyboard."""
    body = "".join(rows)
    return (
        f'<div class="{kind}" role="group" tabindex="0" aria-label="{escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def digests(files: Mapping[str, str]) -> str:
    """A table of files with their checksums; lines may break anywhere in a checksum."""
    cells = "".join(
        f'<tr><td>{breakable(path)}</td><td class="text digest">{digest}</td></tr>' for path, digest in files.items()
    )
    return html_table(heading("file") + heading("SHA-256"), [cells], "Input files and their checksums")


def cell(text: str, best: bool = False) -> str:
    """A cell of a table, with its interval in a separate element."""
    value, plus_minus, half = text.partition(" ± ")
    after = f'<span class="half"> ± {escape(half)}</span>' if plus_minus else ""
    mark = ' class="best"' if best else ""
    return f"<td{mark}>{escape(value)}{after}</td>"


def breakable(name: str, mark: str = "") -> str:
    """The name of a scheme. Lines break only after `:`, `,` and `/`, unless a part of the name is very long.

    The mark, which is HTML, stays with the beginning of the name.
    """
    parts = re.findall(r"[^:,/]*[:,/]|[^:,/]+", name)
    marks = [mark, *("" for _ in parts[1:])]
    return "<wbr>".join(
        f"{mark}{escape(part)}" if len(part) > MOST_UNBROKEN else f'<span class="whole">{mark}{escape(part)}</span>'
        for part, mark in zip(parts, marks, strict=True)
    )


def swatch(colour: str | None) -> str:
    """A spot in a colour, or in its partner colour on dark pages; empty without a colour."""
    if not colour:
        return ""
    both = f"background:{colour};background:light-dark({colour},{DARK.get(colour, colour)})"
    return f'<span class="swatch" style="{both}"></span>'


def figure_blocks(plots: Sequence[Plot]) -> str:
    """Pictures with their titles and descriptions, or why there are none."""
    if not plots and not is_installed("plot"):
        return f'<p class="under">{escape(NO_PICTURES)}</p>'
    return "\n".join(map(_figure_block, plots))


def _figure_block(plot: Plot) -> str:
    return (
        f'<h2 id="{escape(plot.name)}">{escape(plot.title)}</h2>\n'
        f"<figure><figcaption>{escape(plot.says)}</figcaption>"
        f'<img src="{plot.data_uri}" alt="{escape(plot.title)}: {escape(plot.says)}"></figure>'
    )


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """A list of words and their meanings."""
    return "<dl>" + "".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in rows) + "</dl>"
