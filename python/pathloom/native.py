"""The native programs: where they are."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pathloom.errors import bad_input

PROGRAM = "pathloom-controller"
BENCH = "pathloom-controller-bench"
"""What loads a controller and measures it."""


def program(name: str = PROGRAM) -> str:
    """A native program: beside the Python that runs, or on the PATH. Raises `PathloomError` if it is neither."""
    found = find(name)
    if found is None:
        raise bad_input(
            f"{name} is neither in {_beside(name).parent} nor on the PATH; wheels have it, and `make build` builds it"
        )
    return found


def find(name: str = PROGRAM) -> str | None:
    """A native program; None where there is none."""
    return str(_beside(name)) if _beside(name).is_file() else shutil.which(name)


def _beside(name: str) -> Path:
    return Path(sys.executable).with_name(name)
