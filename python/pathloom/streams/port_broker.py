"""`pathloom with-paths --map`: connections get source ports whose path a map knows. No controller is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pathloom.streams.source_ports import Connection, Ends, SourcePorts
from pathloom.streams.with_paths import Ports

_NOT_SERVED = {
    "ipv6": "the kernel chose the port of a connection over IPv6, which did not open it through the C library",
    "mptcp": "the kernel chooses the ports of MPTCP connections",
    "port": "no source port could be bound for a connection",
}


class PortBroker:
    """Offers source ports of a map, and counts the connections that took one."""

    environment: Mapping[str, str] = {"PATHLOOM_SOURCE_PORTS": "map"}
    """Has the library ask for ports before it binds a socket."""

    def __init__(self, ports: SourcePorts, say: Callable[[str], None]) -> None:
        self._ports, self._say = ports, say
        self._lock = threading.Lock()
        self._said: set[object] = set()
        self.unreported: str | None = None

    @property
    def claimed(self) -> int:
        """Connections that took a port of a map."""
        return self._ports.chosen

    @property
    def without_path(self) -> int:
        """Other connections."""
        return self._ports.other

    def choose(self, src: str, dst: str, dst_port: int) -> list[int]:
        """Returns the source ports to try for a connection, the best one first."""
        ends = Ends(src, dst, dst_port)
        found = self._ports.choose(ends)
        if not found and ends in self._ports.maps:
            self._warn(ends, f"all source ports of the map from {src} to {dst}, port {dst_port}, are in use")
        elif not found:
            self._warn(ends, f"no map has connections from {src} to {dst}, port {dst_port}")
        return found

    def claim(self, src: str, dst: str, ports: Ports) -> bool:
        """Notes the source port of a connection. Returns whether it was chosen from a map."""
        return self._ports.took(Connection(Ends(src, dst, ports.dst_port or ports.opens_to or 0), ports.src_port))

    def not_served(self, cause: str, dst: str) -> None:
        """Counts a connection without a chosen port, and names the first one of each cause."""
        self._ports.missed()
        self._warn(cause, f"{_NOT_SERVED[cause]} (first: to {dst})")

    def lost(self, count: int) -> None:
        """Counts connections that the kernel could not report."""
        self._ports.missed(count)

    def release(self) -> None:
        """Nothing stays anywhere."""

    def _warn(self, about: object, text: str) -> None:
        with self._lock:
            new = about not in self._said
            self._said.add(about)
        if new:
            self._say(f"{text}; the routers choose its path")
