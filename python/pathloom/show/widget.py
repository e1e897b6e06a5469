"""Results and fabrics as widgets in notebooks, with the page of `pathloom show`."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathloom.errors import bad_input
from pathloom.experiments.results.result import ResultData
from pathloom.experiments.results.saved import Loaded
from pathloom.extras import need
from pathloom.fabrics import Fabric
from pathloom.show import sources
from pathloom.show.answers import Answers, answer, answers_of_fabric, answers_of_result
from pathloom.show.page_files import Data, whole_page
from pathloom.show.results import Results

if TYPE_CHECKING:
    import anywidget

_PAGE = "page"
"""What the cell asks for to get the page itself. All other requests are addresses of the page."""
_LENGTH = re.compile(r"\d+(\.\d+)?(px|em|rem|vh|pt|cm|mm|in)")


def widget(what: ResultData | Loaded | Fabric | str | Path, *, height: str = "38rem") -> anywidget.AnyWidget:
    """A result or a fabric as a widget for a notebook: the page of `pathloom show` in a cell.

    The widget asks the kernel for what it shows, so it needs a running kernel, and waits while a cell is executed. It
    needs the extra `notebook`.

    Args:
        what: the result of `compare`, `run` or `load`, a results folder, or a fabric.
        height: height of the cell in units of CSS, such as `600px`.

    Raises:
        PathloomError: when `what` is none of these, or the result of a sweep.

    """
    need("notebook", "pathloom.widget")
    if not isinstance(height, str) or _LENGTH.fullmatch(height) is None:
        raise bad_input(f"height `{height}`: expected a length of CSS, such as `600px` or `38rem`")
    data, answers = _answers(what)
    return _widget(data, answers, height)


def _answers(what: object) -> tuple[Data, Answers]:
    if isinstance(what, Fabric):
        return "fabric", answers_of_fabric(what)
    if isinstance(what, ResultData):
        source = sources.in_memory(what)
    elif isinstance(what, Loaded):
        source = sources.saved(what)
    elif isinstance(what, str | Path):
        source = sources.folder(Path(what))
    else:
        expected = "expected the result of a comparison, its folder, or a fabric"
        raise bad_input(f"pathloom.widget: found a {type(what).__name__}; {expected}")
    return "results", answers_of_result(Results(source))


def _widget(data: Data, answers: Answers, height: str) -> anywidget.AnyWidget:
    import anywidget
    import traitlets

    class PageWidget(anywidget.AnyWidget):
        """The page in a frame. Its requests are messages `{view, id, path}`; an answer adds `status` and `body`."""

        _esm = (files("pathloom.web") / "widget.js").read_text(encoding="utf-8")
        height = traitlets.Unicode().tag(sync=True)

    made = PageWidget(height=height)
    made.on_msg(lambda _, content, __: made.send(_answered(data, answers, content)))
    return made


def _answered(data: Data, answers: Answers, asked: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a message of the cell."""
    path = str(asked.get("path", ""))
    status, body = (200, whole_page(data)) if path == _PAGE else answer(answers, f"/{path}")
    return {"view": asked.get("view"), "id": asked.get("id"), "status": status, "body": body}
