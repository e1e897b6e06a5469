"""The map of source ports and paths, as `pathloom lab paths` shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from pathloom.errors import ToolError, bad_input, reason
from pathloom.lab import system
from pathloom.lab.lab import Lab
from pathloom.lab.routed.entropy import Find, Flow, Lookups, Path, PathMap, sources_of
from pathloom.lab.routed.following import Change, RouteEvents, follow
from pathloom.lab.routed.numbering import host6
from pathloom.lab.routed.prober import Prober
from pathloom.quantities import listed
from pathloom.streams.source_ports import Ends, open_connections

THREAD_NET = File("/proc/thread-self/net")
"""Network state of the calling thread's namespace."""
_SHOWN = 6
"""Source ports of a path that the table shows."""


@dataclass(frozen=True)
class Question:
    """Whose paths are wanted."""

    source: str
    """Host, or one of its ports."""
    target: str
    port: int
    """Destination port."""
    ports: Sequence[int]
    """Source ports."""
    protocol: str = "tcp"
    ipv6: bool = False
    by: str = "probes"
    """`probes` or `routes`."""


class Paths:
    """The paths of source ports between two hosts of a lab of routers. It may stay open, to find them again."""

    def __init__(self, lab: Lab, asked: Question) -> None:
        """Raises `PathloomError` for unknown hosts and labs without routers, and `ToolError`."""
        self.blueprint = blueprint = lab.blueprint()
        self.asked = asked
        if lab.routers() is None:
            raise bad_input(
                f"lab `{lab.name}`: its switches are no routers; `lab up --switches kernel` or frr builds some"
            )
        if asked.ipv6 and asked.by == "routes":
            raise bad_input("lab paths: --by routes: routers answer for IPv4 only; leave --ipv6 or --by out")
        (host, start), (_, end) = blueprint.host_port(asked.source), blueprint.host_port(asked.target)
        if start.address == end.address:
            raise bad_input(f"lab paths: {asked.source} and {asked.target} are one host; name two")
        self.namespace = host.namespace
        flow = Flow(start.address, end.address, asked.port, asked.protocol)
        self.known = PathMap(flow)
        source, target = (str(host6(one)) if asked.ipv6 else one for one in (flow.source, flow.target))
        self.ends = Ends(source, target, flow.port)
        self._prober = None
        if asked.by == "routes":
            self._find: Find = Lookups(blueprint, flow).find
        else:
            with self._named():
                self._prober = Prober(blueprint, flow, asked.ipv6)
            self._find = self._prober.find

    def __enter__(self) -> Paths:
        return self

    def __exit__(self, *_: object) -> None:
        if self._prober is not None:
            self._prober.__exit__()

    def find(self, ports: Sequence[int]) -> Mapping[int, Path]:
        """Returns the paths of source ports. Raises `ToolError`."""
        with self._named():
            return self._find(ports)

    def refresh(self) -> None:
        """Finds the paths of all ports. Raises `ToolError`."""
        self.known.refresh(self.find, self.asked.ports)

    def open_ports(self) -> list[int]:
        """Returns the source ports of open TCP connections between the two hosts to the destination port."""
        found = system.inside(self.namespace, lambda: list(open_connections(THREAD_NET)))
        return [one.source_port for one in found if one.ends == self.ends]

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ToolError(f"lab paths: probes of {self.asked.source}: {reason(error)}") from None

    def to_json(self) -> dict[str, Any]:
        """Returns which of the source ports take which path."""
        rows = [
            {"links": list(path), "nodes": self.nodes(path), "source_ports": own}
            for path, own in self.known.by_path().items()
        ]
        return {
            "schema": 1,
            "flow": self.known.flow._asdict() | {"ipv6": self.asked.ipv6},
            "ends": {"source": self.ends.source, "target": self.ends.target},
            "by": self.asked.by,
            "paths": rows,
            "unknown": [one for one in self.asked.ports if one not in self.known.paths],
        }

    def nodes(self, path: Path) -> list[str]:
        """Returns the routers of a path."""
        names = {one.node: one.name for one in self.blueprint.switches}
        sources = sources_of(self.blueprint)
        return [names[sources[link]] for link in path[1:]]

    def follow(self) -> Iterator[str]:
        """Finds the paths again after each change of routers, for ever. Yields lines that say what has changed.

        Raises `ToolError`.
        """
        with self._named(), RouteEvents(self.blueprint) as events:
            self.refresh()
            yield "ready"
            for change in follow(self.known, self.find, self.asked.ports, events, self.open_ports):
                yield self._line(change)

    def _line(self, change: Change) -> str:
        text = f"{listed(change.routers)} changed: {len(change.ports)} ports have another path"
        moved = [f"{port} from {self._way(change.ports[port][0])} to {self._way(change.ports[port][1])}"
                 for port in change.standing]  # fmt: skip
        return f"{text}; open connections that moved: {', '.join(moved)}" if moved else text

    def _way(self, path: Path | None) -> str:
        return " ".join(self.nodes(path)) if path is not None else "no path"


def path_rows(content: dict[str, Any]) -> list[list[str]]:
    """Returns the rows of a table of `Paths.to_json`: path, number of source ports, and the first of them."""
    rows = []
    for row in content["paths"]:
        own = row["source_ports"]
        more = " …" if len(own) > _SHOWN else ""
        rows.append([" ".join(row["nodes"]), str(len(own)), " ".join(map(str, own[:_SHOWN])) + more])
    if content["unknown"]:
        rows.append(["unknown", str(len(content["unknown"])), " ".join(map(str, content["unknown"][:_SHOWN]))])
    return rows
