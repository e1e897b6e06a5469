"""Finds the native programs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pathloom.errors import bad_input

PROGRAM = "pathloom-controller"
BENCH = "pathloom-controller-bench"
"""Program that puts load on a controller and measures it."""


def program(name: str = PROGRAM) -> str:
    """Path of a native program: beside the Python interpreter, or on the PATH. Raises `PathloomError` if not found."""
    found = find(name)
    if found is None:
        raise bad_input(
            f"{name} is neither in {_beside(name).parent} nor on the PATH; install a wheel, or run `make build`"
        )
    return found


def find(name: str = PROGRAM) -> str | None:
    """Path of a native program; None if it is not found."""
    return str(_beside(name)) if _beside(name).is_file() else shutil.which(name)


def _beside(name: str) -> Path:
    return Path(sys.executable).with_name(name)
