"""Which path a connection takes: a map from source ports to the paths on which routers send them.

A router hashes the five-tuple. So a host that chooses its source port chooses among the paths, without any state in the
routers. A `PathMap` is filled by probes (`pathloom.lab.routed.prober`), which need nothing but the answers to packets
whose TTL has ended, or by `Lookups`, which asks the kernels of the lab's routers.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pathloom.errors import ToolError, bad_input
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, HostPort
from pathloom.lab.routed.numbering import host6

MOST_HOPS = 32
"""Routers on the longest path that is followed."""
_LINK = re.compile(r"l\d+\Z")
"""Name of an interface of a router that belongs to a link."""

Path = tuple[int, ...]
"""The directed links of a path, from the host's own link to the one that reaches the other host."""
Find = Callable[[Sequence[int]], Mapping[int, Path]]
"""Finds the paths of source ports: `Prober.find` or `Lookups.find`."""


class Flow(NamedTuple):
    """The part of a five-tuple that is the same for all source ports."""

    source: str
    target: str
    port: int
    """Destination port."""
    protocol: str = "tcp"


@dataclass
class PathMap:
    """The paths of the connections from one address to a port of another."""

    flow: Flow
    paths: dict[int, Path] = field(default_factory=dict)
    """Path by source port, as it was found last."""

    def by_path(self) -> dict[Path, list[int]]:
        """Returns the source ports of each path, paths and ports in ascending order."""
        found: dict[Path, list[int]] = {}
        for port, path in sorted(self.paths.items()):
            found.setdefault(path, []).append(port)
        return dict(sorted(found.items()))

    def ports(self, path: Sequence[int], used: Iterable[int] = ()) -> list[int]:
        """Returns the source ports that take a path and are not in use.

        >>> known = PathMap(Flow("10.0.0.1", "10.0.1.1", 5201), {40000: (1, 8), 40001: (1, 9), 40002: (1, 8)})
        >>> known.ports((1, 8), used=[40000])
        [40002]
        """
        taken = set(used)
        return [port for port in self.by_path().get(tuple(path), []) if port not in taken]

    def spread(self, count: int, used: Iterable[int] = ()) -> list[int]:
        """Returns source ports for `count` connections that share the paths equally.

        Raises `PathloomError` if fewer ports are known.

        >>> known = PathMap(Flow("10.0.0.1", "10.0.1.1", 5201), {1: (8,), 2: (8,), 3: (9,), 4: (8,)})
        >>> known.spread(3)
        [1, 3, 2]
        """
        taken = set(used)
        left = [[port for port in ports if port not in taken] for ports in self.by_path().values()]
        chosen: list[int] = []
        while len(chosen) < count and any(left):
            # A path from which more connections have been taken comes later, so each round takes one from each path.
            chosen += [ports.pop(0) for ports in left if ports]
        if len(chosen) < count:
            raise bad_input(
                f"paths from {self.flow.source} to {self.flow.target}: {len(chosen)} source ports are known and free, "
                f"{count} are needed; look more of them up"
            )
        return chosen[:count]

    def refresh(self, find: Find, ports: Sequence[int] | None = None) -> list[int]:
        """Looks source ports up again, all that are known if None. Returns those whose path is new, changed or gone.

        Ports without a path are taken out of the map.

        >>> known = PathMap(Flow("10.0.0.1", "10.0.1.1", 5201), {1: (8,), 2: (9,), 3: (8,)})
        >>> known.refresh(lambda ports: {1: (8,), 2: (8,)})
        [2, 3]
        """
        asked = sorted(self.paths) if ports is None else list(ports)
        found = find(asked)
        changed = [port for port in asked if self.paths.get(port) != found.get(port)]
        again = set(asked)
        self.paths = {port: path for port, path in self.paths.items() if port not in again} | dict(found)
        return changed

    def stale(self, links: Iterable[int]) -> list[int]:
        """Returns the source ports whose path has one of these links, such as those of a cable that went down."""
        gone = set(links)
        return [port for port, path in sorted(self.paths.items()) if gone & set(path)]


class Lookups:
    """Finds paths over IPv4 by asking every router of a lab for the next hop of a connection. Sends no packets.

    For IPv6, Linux answers by another hash than the one that it forwards by, so only probes find those paths.
    """

    def __init__(self, blueprint: Blueprint, flow: Flow) -> None:
        """Raises `PathloomError` for an address that no host has."""
        self._flow = flow
        self._sources = sources_of(blueprint)
        self._start, self._end = port_of(blueprint, flow.source), port_of(blueprint, flow.target)
        self._namespaces = {switch.node: switch.namespace for switch in blueprint.switches}

    def find(self, ports: Sequence[int]) -> dict[int, Path]:
        """Returns the path of each source port; ports without one are left out. Raises `ToolError`."""
        found: dict[int, Path] = {}
        start: Path = (self._start.link,)
        waiting = dict.fromkeys(ports, start)
        for _ in range(MOST_HOPS):
            at: dict[tuple[int, int], list[int]] = {}
            for port, path in waiting.items():
                at.setdefault((self._sources[path[-1] ^ 1], path[-1]), []).append(port)
            further: dict[int, Path] = {}
            for (node, arrived), own in at.items():
                for port, link in zip(own, self._next(node, arrived, own), strict=True):
                    if link is not None:
                        further[port] = (*waiting[port], link)
            found |= {port: path for port, path in further.items() if path[-1] == self._end.link ^ 1}
            waiting = {port: path for port, path in further.items() if port not in found}
        return {port: found[port] for port in ports if port in found}

    def _next(self, node: int, arrived: int, ports: Sequence[int]) -> list[int | None]:
        """Returns the link by which a router sends each source port on; None without a route."""
        lines = [self._question(arrived, port) for port in ports]
        command = ["ip", "-n", self._namespaces[node], "-json", "-batch", "-"]
        try:
            said = system.run_tool(command, "".join(f"{line}\n" for line in lines))
        except ToolError:
            # Without a route, the tool ends at the first line, or at a later one if only some ports have none.
            return [None] if len(ports) == 1 else [self._next(node, arrived, [port])[0] for port in ports]
        devices = [row["dev"] for answer in _arrays(said) for row in answer]
        return [int(device[1:]) if _LINK.match(device) else None for device in devices]

    def _question(self, arrived: int, port: int) -> str:
        ends = f"route get {self._flow.target} from {self._flow.source} iif l{arrived ^ 1}"
        return f"{ends} ipproto {self._flow.protocol} sport {port} dport {self._flow.port}"


def sources_of(blueprint: Blueprint) -> dict[int, int]:
    """Returns the node that each directed link leaves. The link back has the same number but for the last bit."""
    switches = {port.link: port.switch for port in blueprint.switch_ports}
    return switches | {port.link: host.node for host in blueprint.hosts for port in host.ports}


def port_of(blueprint: Blueprint, address: str) -> HostPort:
    """Returns the port of a host that has an address. Raises `PathloomError`."""
    return blueprint.host_at(address)[1]


def connect(flow: Flow, source_port: int, timeout_s: float | None = None, ipv6: bool = False) -> socket.socket:
    """Opens a TCP connection from a source port of the map, in the calling thread's namespace.

    With `ipv6`, the addresses of the flow stand for the IPv6 addresses of the same ports. Raises `OSError`, for example
    if the port is in use.
    """
    source, target = (str(host6(one)) if ipv6 else one for one in (flow.source, flow.target))
    end = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.settimeout(timeout_s)
        end.bind((source, source_port))
        end.connect((target, flow.port))
    except BaseException:
        end.close()
        raise
    return end


def _arrays(text: str) -> list[list[dict[str, str]]]:
    """Returns the JSON arrays that a text has one after another."""
    decoder, found, place = json.JSONDecoder(), [], 0
    while (place := text.find("[", place)) >= 0:
        value, place = decoder.raw_decode(text, place)
        found.append(value)
    return found
