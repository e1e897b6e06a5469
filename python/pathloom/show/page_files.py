"""The files of the page, as `make web` builds them, for each source of data."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

Data = Literal["results", "fabric"]
_SOURCE = 'data-source="controller"'
"""Attribute of `index.html` that names the source of its data. The controller serves the file unchanged."""
_STYLE = '<link rel="stylesheet" href="app.css">'
_SCRIPT = '<script src="app.js" defer></script>'


def page_file(name: str, data: Data) -> str:
    """Returns the text of a file; `index.html` names its source of data."""
    text = (files("pathloom.web") / name).read_text(encoding="utf-8")
    return text.replace(_SOURCE, f'data-source="{data}"') if name == "index.html" else text


def whole_page(data: Data) -> str:
    """Returns the page as one file for a frame in a notebook, which asks through a message port and not over HTTP."""
    html = page_file("index.html", data).replace("<html ", '<html data-through="port" ')
    # Scripts inside a page end at the first end tag, also within a string.
    script = page_file("app.js", data).replace("</script", "<\\/script")
    inside = html.replace(_STYLE, f"<style>{page_file('app.css', data)}</style>").replace(_SCRIPT, "")
    return inside.replace("</body>", f"<script>{script}</script>\n</body>")
