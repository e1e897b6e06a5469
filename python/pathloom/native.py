"""The native `pathloom-controller`: where it is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pathloom.errors import bad_input

PROGRAM = "pathloom-controller"


def program() -> str:
    """The native program: beside the Python that runs, or on the PATH. Raises `PathloomError` if it is neither."""
    found = find()
    if found is None:
        raise bad_input(f"{PROGRAM} is neither in {_beside().parent} nor on the PATH; `make build` puts it there")
    return found


def find() -> str | None:
    """The native program; None where there is none."""
    return str(_beside()) if _beside().is_file() else shutil.which(PROGRAM)


def _beside() -> Path:
    return Path(sys.executable).with_name(PROGRAM)
