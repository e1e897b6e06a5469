"""Source ports for connections in fabrics of routers: which path each takes is known from a map.

A router chooses among equal next hops by a hash of the five-tuple, so the source port decides the path. `SourcePorts`
reads maps that `pathloom lab paths --json` has written, and chooses the ports of new connections. No controller is
asked.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pathloom import _core
from pathloom.errors import bad_input, reason
from pathloom.waiting import SYSTEM, Clock

PortPolicy = Literal["spread", "least-used"]
PORT_POLICIES = get_args(PortPolicy)
MOST_OFFERED = 16
"""Source ports that are offered for a connection: other sockets may have the first ones."""
PENDING_S = 5.0
"""Time in which a connection appears in the kernel's list after a port was offered for it."""
_CLOSED_STATES = {"06", "07", "0A"}
"""TIME_WAIT, CLOSE and LISTEN in /proc/net/tcp: sockets that carry no bytes."""


class Ends(NamedTuple):
    """What all connections of a map have in common."""

    source: str
    target: str
    port: int
    """Destination port."""


class Connection(NamedTuple):
    """A connection from a source port."""

    ends: Ends
    source_port: int


def open_connections(folder: Path = Path("/proc/self/net")) -> Iterator[Connection]:
    """Yields the TCP connections of this network namespace, over IPv4 and IPv6."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] not in _CLOSED_STATES:
                (source, source_port), (target, port) = (_end_of(word) for word in words[1:3])
                yield Connection(Ends(source, target, port), source_port)


def _end_of(word: str) -> tuple[str, int]:
    """Reads an end such as 0100000A:1451: words of 32 bits in the byte order of x86 and ARM, then the port.

    >>> _end_of("0100000A:1451")
    ('10.0.0.1', 5201)
    """
    digits, _, port = word.partition(":")
    words = [bytes.fromhex(digits[place : place + 8])[::-1] for place in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)


Maps = Mapping[Ends, Mapping[int, tuple[int, ...]]]
"""Directed links of the path of each source port, by the ends of connections."""


@dataclass
class _Offer:
    """Ports that were offered for one connection."""

    ends: Ends
    links: tuple[int, ...]
    """Links of the path on which the connection is expected."""
    paths: Mapping[int, tuple[int, ...]]
    """Links of the path of each port."""
    until_s: float


@dataclass
class SourcePorts:
    """Chooses source ports by the paths that they take."""

    maps: Maps
    """Directed links of the path of each source port."""
    policy: PortPolicy = "spread"
    connections: Callable[[], Iterable[Connection]] = open_connections
    clock: Clock = SYSTEM
    renew: Callable[[], Maps | None] = lambda: None
    """Returns new maps if there are any. It is called before each decision."""
    seed: int = field(default_factory=lambda: secrets.randbits(64))
    """Decides between paths that are equally good. If all hosts took the same one, they would meet on its links."""
    chosen: int = 0
    """Connections that took an offered port."""
    other: int = 0
    """Connections that have no path of a map."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._offers: dict[Connection, _Offer] = {}
        self._claimed: dict[Connection, float] = {}
        self._count: dict[Ends, Counter[tuple[int, ...]]] = {}

    def choose(self, ends: Ends) -> list[int]:
        """Returns source ports for a connection, the best one first; none if no map has these ends.

        `spread` takes the path of the map that got the fewest connections. `least-used` takes the path whose busiest
        link carries the fewest open connections of this host. Of equal paths it takes any.
        """
        with self._lock:
            self.maps = self.renew() or self.maps
            known = self.maps.get(ends)
            if not known:
                return []
            self._forget_old()
            loads = self._loads()
            rank = self._ranks(ends, known, loads)
            taken = self._offers.keys() | self._claimed.keys()
            free = [port for port in known if Connection(ends, port) not in taken]
            found = sorted(free, key=lambda port: (rank[known[port]], port))[:MOST_OFFERED]
            if found:
                links = known[found[0]]
                offer = _Offer(ends, links, {port: known[port] for port in found}, self.clock.now_s() + PENDING_S)
                self._offers |= {Connection(ends, port): offer for port in found}
                self._count.setdefault(ends, Counter())[links] += 1
        return found

    def took(self, one: Connection) -> bool:
        """Notes which port a connection has. Returns whether it is one that was offered."""
        with self._lock:
            offer = self._offers.get(one)
            if offer is None:
                self.other += 1
                return False
            self._offers = {key: other for key, other in self._offers.items() if other is not offer}
            self._claimed[one] = self.clock.now_s() + PENDING_S
            count, path = self._count[one.ends], offer.paths[one.source_port]
            count[offer.links] -= 1
            count[path] += 1
            self.chosen += 1
        return True

    def missed(self, count: int = 1) -> None:
        """Counts connections that have no path of a map."""
        with self._lock:
            self.other += count

    def _ranks(
        self, ends: Ends, known: Mapping[int, tuple[int, ...]], loads: Counter[int]
    ) -> dict[tuple[int, ...], tuple[object, ...]]:
        """Returns what decides between the paths; the least is best."""
        ranks: dict[tuple[int, ...], tuple[object, ...]] = {}
        for path in set(known.values()):
            # Every path has the links of the two hosts.
            shared = sorted((loads[link] for link in path[1:-1]), reverse=True)
            count = self._count.get(ends, Counter())[path]
            chance = hashlib.blake2b(f"{self.seed} {path}".encode(), digest_size=8).digest()
            ranks[path] = (count, shared, chance) if self.policy == "spread" else (shared, count, chance)
        return ranks

    def _loads(self) -> Counter[int]:
        """Returns how many connections each link carries: open ones if the policy asks for them, and expected ones."""
        loads: Counter[int] = Counter()
        if self.policy == "spread":
            for counts in self._count.values():
                for path, count in counts.items():
                    loads.update(dict.fromkeys(path, count))
            return loads
        carried = set(self.connections()) | self._claimed.keys()
        for one in carried:
            loads.update(self.maps.get(one.ends, {}).get(one.source_port, ()))
        for offer in {id(offer): offer for offer in self._offers.values()}.values():
            loads.update(offer.links)
        return loads

    def _forget_old(self) -> None:
        now_s = self.clock.now_s()
        for offer in {id(one): one for one in self._offers.values() if one.until_s <= now_s}.values():
            self._count[offer.ends][offer.links] -= 1
        self._offers = {one: offer for one, offer in self._offers.items() if offer.until_s > now_s}
        self._claimed = {one: until_s for one, until_s in self._claimed.items() if until_s > now_s}


class MapFiles:
    """Files of `pathloom lab paths --json`. A later file replaces an earlier one with the same ends."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._read: tuple[object, ...] = ()

    def read(self) -> dict[Ends, dict[int, tuple[int, ...]]]:
        """Reads all files. Raises `PathloomError` for files that are no maps."""
        self._read = self._versions()
        return dict(map(read_map, self._files))

    def renew(self) -> dict[Ends, dict[int, tuple[int, ...]]] | None:
        """Returns the maps if a file has changed since they were read; None otherwise, or if one cannot be read."""
        if self._versions() == self._read:
            return None
        with suppress(_core.PathloomError):
            return self.read()
        return None

    def _versions(self) -> tuple[object, ...]:
        found: list[object] = []
        for file in self._files:
            with suppress(OSError):
                state = file.stat()
                found.append((file, state.st_ino, state.st_mtime_ns, state.st_size))
        return tuple(found)


def read_map(file: Path) -> tuple[Ends, dict[int, tuple[int, ...]]]:
    """Reads a file of `pathloom lab paths --json`. Raises `PathloomError`."""
    writes = "`pathloom lab paths HOST HOST --json FILE` writes one"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "is not JSON"
        raise bad_input(f"--map {file}: {why}; {writes}") from None
    try:
        ends, ports = _map_of(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise bad_input(f"--map {file}: is no map of source ports; {writes}") from None
    if ends is None:
        raise bad_input(f"--map {file}: is a map for UDP; with-paths serves TCP, so leave --protocol udp out")
    return ends, ports


def _map_of(content: Any) -> tuple[Ends | None, dict[int, tuple[int, ...]]]:
    """Returns the ends and the paths of a map; None as ends if it is for another protocol than TCP."""
    flow, ends = content["flow"], content["ends"]
    source, target = (str(ipaddress.ip_address(ends[end])) for end in ("source", "target"))
    ports = {int(port): tuple(map(int, row["links"])) for row in content["paths"] for port in row["source_ports"]}
    if not all(0 < port < 65536 for port in (*ports, int(flow["port"]))):
        raise ValueError
    return Ends(source, target, int(flow["port"])) if flow["protocol"] == "tcp" else None, dict(sorted(ports.items()))
