"""The lock of the environment: Pathloom and the libraries that it uses, each with the version that is installed."""

from __future__ import annotations

import platform
import re
from collections.abc import Collection
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from pathloom import _core
from pathloom.extras import EXTRAS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def lock_lines(wheel: str | None = None) -> list[str]:
    """The lines of `requirements.lock`. `wheel` is a file beside it that has Pathloom.

    >>> [line.partition("==")[0] for line in lock_lines() if line.startswith(("pathloom", "pydantic="))]
    ['pathloom', 'pydantic']
    """
    libraries = {name.lower(): found.version for name, found in _libraries().items()}
    return [
        f"# Python {platform.python_version()}, {platform.system()} on {platform.machine()}",
        f"./{wheel}" if wheel else f"pathloom=={_core.__version__}",
        *(f"{name}=={libraries[name]}" for name in sorted(libraries)),
    ]


def _libraries() -> dict[str, Distribution]:
    """The installed libraries that Pathloom needs, directly or not, with those of its extras, except clusters."""
    found: dict[str, Distribution] = {}
    waiting = _needed("pathloom", EXTRAS.keys() - {"cluster"})
    while waiting:
        name = waiting.pop()
        if name in found or name == "pathloom":
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # An extra that is not installed, or a library for another system.
        waiting |= _needed(name, ())
    return found


def _needed(name: str, extras: Collection[str]) -> set[str]:
    """The normalised names of the libraries that a library requires, with those of these extras."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return set()
    names = set()
    for line in lines:
        extra = re.search(r"extra *== *['\"]([^'\"]+)", line)
        match = _NAME.match(line)
        if match is not None and (extra is None or extra[1] in extras):
            names.add(re.sub(r"[-_.]+", "-", match[0]).lower())
    return names
