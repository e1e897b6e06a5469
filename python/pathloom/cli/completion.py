"""Shell completion of the names of fabrics, traffic, schemes and transports. In a list, it completes the last name."""

from __future__ import annotations

from collections.abc import Iterable

from pathloom import _core


def fabrics(incomplete: str) -> list[str]:
    """Returns the names of fabrics that begin with this text."""
    return _beginning(incomplete, (one["name"] for one in _core.fabrics()))


def traffics(incomplete: str) -> list[str]:
    """Returns the names of kinds of traffic that begin with this text."""
    return _beginning(incomplete, (one["name"] for one in _core.traffics()))


def transports(incomplete: str) -> list[str]:
    """Returns the names of transports that begin with this text."""
    return _beginning(incomplete, (one["name"] for one in _core.transports()))


def schemes(incomplete: str) -> list[str]:
    """Returns the names of schemes that begin with this text. In a list, it completes the last name.

    >>> schemes("spt,hedera-")
    ['spt,hedera-sa']
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, (one["name"] for one in _core.schemes()))]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
