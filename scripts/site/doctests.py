"""Shows the doctests of docstrings as code in the Python reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

BLOCK = re.compile(r"(?:^>>> .*\n?(?:.+\n?)*)", re.MULTILINE)


def fenced(text: str) -> str:
    r"""Returns a docstring with its doctests in fences.

    >>> fenced("Adds.\n\n>>> 1 + 1\n2\n\nMore.")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.'
    """
    return BLOCK.sub(lambda found: f"```pycon\n{found.group().rstrip()}\n```\n", text).rstrip()


class Doctests(griffe.Extension):
    """Extension that mkdocstrings calls for each object that it reads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Puts doctests into fences."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
