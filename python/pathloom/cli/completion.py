"""What the shell completes: names of fabrics, traffic, schemes and transports; in lists, the last one."""

from __future__ import annotations

from collections.abc import Iterable

from pathloom import _core


def fabrics(incomplete: str) -> list[str]:
    """Fabrics that begin so."""
    return _beginning(incomplete, (one["name"] for one in _core.fabrics()))


def traffics(incomplete: str) -> list[str]:
    """Kinds of traffic that begin so."""
    return _beginning(incomplete, (one["name"] for one in _core.traffics()))


def transports(incomplete: str) -> list[str]:
    """Transports that begin so."""
    return _beginning(incomplete, (one["name"] for one in _core.transports()))


def schemes(incomplete: str) -> list[str]:
    """Schemes that begin so; behind a comma, those that begin like what follows it.

    >>> schemes("spt,hedera-")
    ['spt,hedera-sa']
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, (one["name"] for one in _core.schemes()))]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
