"""Makes the pictures of docs/gallery.md: carries out the code that stands on the page."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/gallery.md"
PLACE = "images/gallery"
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(rf"^!\[.+\]\({PLACE}/([\w-]+)\.svg\)\n\n(?=```python\n)", re.MULTILINE)
"""A picture, with the code that makes it below."""


def pictures(folder: Path) -> dict[str, bytes]:
    """Carries out the code of the page in a folder. Returns its pictures by name.

    Raises `ValueError` if the code below a picture does not write a file of its name.
    """
    text = PAGE.read_text(encoding="utf-8")
    names = {found.end(): found[1] for found in PICTURE.finditer(text)}
    made: dict[str, bytes] = {}
    space: dict[str, Any] = {}
    mpl.use("agg")
    from matplotlib import pyplot

    with contextlib.chdir(folder), mpl.rc_context({"svg.hashsalt": "pathloom"}):
        for code in CODE.finditer(text):
            exec(compile(code[1], str(PAGE), "exec"), space)
            pyplot.close("all")
            name = names.get(code.start())
            if name is None:
                continue
            file = next(folder.rglob(f"{name}.svg"), None)
            if file is None:
                raise ValueError(f"{PAGE}: the code below {name}.svg writes no file of this name")
            made[name] = file.read_bytes()
            file.unlink()
    return made
