"""Keeps a map of source ports fresh: after each change of a router's links or routes, the paths are found again."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple, Protocol

from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.entropy import Find, Path, PathMap

QUIET_S = 0.1
"""Time without a further event after which routers are taken to be done."""
MOST_EVENTS = 50
"""Events after which paths are looked up although routers are not quiet."""
_GROUPS = (1, 7, 11, 32)
"""RTNLGRP_LINK, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE and RTNLGRP_NEXTHOP (linux/rtnetlink.h)."""
_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP = 270, 1


class Events(Protocol):
    """Tells which routers have changed."""

    def wait(self, patience_s: float | None) -> set[str]:
        """Returns the routers with an event, as soon as there is one; none after `patience_s`."""


class RouteEvents:
    """Events of the kernels of a lab's routers: links, routes, next hops. Needs root."""

    def __init__(self, blueprint: Blueprint) -> None:
        """Raises `OSError`."""
        self._names: dict[int, str] = {}
        self._sockets: dict[int, socket.socket] = {}
        with ExitStack() as opened:
            for switch in blueprint.switches:
                made = opened.enter_context(system.inside(switch.namespace, _listener))
                self._names[made.fileno()], self._sockets[made.fileno()] = switch.name, made
            self._opened = opened.pop_all()

    def __enter__(self) -> RouteEvents:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def wait(self, patience_s: float | None) -> set[str]:
        """Returns the routers with an event, as soon as there is one; none after `patience_s`."""
        ready = select.select(list(self._names), [], [], patience_s)[0]
        for descriptor in ready:
            # What the events say does not matter: paths are looked up anyway. ENOBUFS says that some were lost.
            with suppress(OSError):
                while os.read(descriptor, 1 << 16):
                    pass
        return {self._names[descriptor] for descriptor in ready}


def _listener() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    try:
        # The kernel's own messages come from port 0, and pass by sockets that have no other port.
        made.bind((0, 0))
        for group in _GROUPS:
            made.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)
    except BaseException:
        made.close()
        raise
    return made


class Change(NamedTuple):
    """What a change of routers did to a map."""

    routers: list[str]
    """Routers with events."""
    ports: dict[int, tuple[Path | None, Path | None]]
    """Path before and now of each source port that has another one; None without a path."""
    standing: list[int]
    """Those of the ports that an open connection has: it has moved with its packets."""


def follow(
    known: PathMap, find: Find, wanted: Collection[int], events: Events, connections: Callable[[], Collection[int]]
) -> Iterator[Change]:
    """Looks all wanted ports up again after each change, and yields what has changed in `known`, for ever.

    `connections` returns the source ports of open connections of the map's flow.
    """
    while True:
        routers = events.wait(None)
        for _ in range(MOST_EVENTS):
            more = events.wait(QUIET_S)
            if not more:
                break
            routers |= more
        before = dict(known.paths)
        changed = known.refresh(find, sorted(wanted))
        ports = {port: (before.get(port), known.paths.get(port)) for port in changed}
        yield Change(sorted(routers), ports, sorted(set(connections()) & ports.keys()))
