"""Central schemes over routers: each connection gets the source port whose hash leads along the path of the scheme.

`port_maps` finds the ports of each pair of hosts before a run. `Bindings` asks the scheme when a connection is about to
open. The scheme runs in the process that opens the connections, so nothing waits for an answer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pathloom import _core
from pathloom.lab.transfers import infos

if TYPE_CHECKING:
    from pathloom.lab.blueprint import Blueprint
    from pathloom.lab.routed.entropy import Find, Flow, Path
    from pathloom.lab.transfers import Transfer

PORTS = range(20_000, 32_000)
"""Source ports that connections may get: below those that Linux chooses."""
AT_ONCE = 32
"""Ports of a pair that are looked up together."""
MOST_ASKED = 1024
"""Ports of a pair that are looked up at most."""
HEADER_BYTES = 66
"""Ethernet, IPv4 and TCP with timestamps: what switches count in addition to the payload."""
Key = tuple[str, int, str, int]


def is_bound(scheme: str) -> bool:
    """Whether a scheme has paths of its own for connections, and source ports can name them.

    >>> [is_bound(scheme) for scheme in ("ofpt", "ecmp", "hedera")]
    [True, False, False]
    """
    return verdict(scheme)["carried"] == "in part"


def verdict(scheme: str) -> dict[str, str]:
    """Whether source ports can carry a scheme, and why not. Raises `PathloomError` for an unknown one."""
    return next(row for row in _core.scheme_encodings(scheme) if row["name"] == "source ports")


class PortMaps:
    """The source ports of each pair of hosts, looked up once for all runs in a lab."""

    def __init__(self, blueprint: Blueprint, finder: Callable[[Flow], Find] | None = None) -> None:
        from pathloom.lab.routed.entropy import Flow, Lookups

        self._flow = Flow
        self._finder = finder or (lambda flow: Lookups(blueprint, flow).find)
        self._known: dict[Flow, dict[int, Path]] = {}
        self._asked: dict[Flow, int] = {}

    def of(self, offered: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns the maps that a run with these flows needs, as JSON. Raises `ToolError`.

        Each path of a pair has a port for each flow of the pair, unless `MOST_ASKED` ports have not that many.
        """
        wanted: dict[Flow, int] = {}
        for flow in offered:
            pair = self._flow(flow["src_address"], flow["dst_address"], flow["dst_port"])
            wanted[pair] = wanted.get(pair, 0) + 1
        return [
            {"source": pair.source, "target": pair.target, "port": pair.port, "paths": self._map(pair, count)}
            for pair, count in wanted.items()
        ]

    def _map(self, pair: Flow, each: int) -> dict[int, Path]:
        known, find = self._known.setdefault(pair, {}), self._finder(pair)
        fresh = not known
        while self._asked.get(pair, 0) < MOST_ASKED:
            by_path: dict[Path, int] = {}
            for path in known.values():
                by_path[path] = by_path.get(path, 0) + 1
            # A batch that shows no new path says that there are hardly any further ones.
            if not fresh and min(by_path.values(), default=0) >= each:
                break
            asked = self._asked.get(pair, 0)
            found = find(list(islice(PORTS, asked, asked + AT_ONCE)))
            fresh = not set(found.values()) <= set(by_path)
            known.update(found)
            self._asked[pair] = asked + AT_ONCE
        return known


class Bindings:
    """What the scheme has decided for the connections of a run."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        """`plan` has the fabric, the scheme, its seed and the maps of source ports."""
        name, text = plan["fabric"]
        fabric = _core.Fabric.from_spec(name) if text is None else _core.Fabric.from_node_link(text, name)
        self._binder = _core.Binder(fabric, plan["scheme"], plan["seed"])
        for one in plan["maps"]:
            paths = {int(port): path for port, path in one["paths"].items()}
            self._binder.set_ports(one["source"], one["target"], one["port"], paths)
        self._paths: dict[int, list[int]] = {}

    def open(self, transfer: Transfer, now_ns: int, open_from: Callable[[int], bool]) -> bool:
        """Opens a connection by `open_from` from a port of the path that the scheme wants.

        `open_from` returns False for a port that is in use. Returns False if no port of the path is known and free.
        """
        spec, key = transfer.spec, _key(transfer)
        port, path, _ = self._binder.open(max(now_ns, 0), key, bool(spec["dscp"]), spec["size_bytes"])
        while port is not None:
            if open_from(port):
                self._paths[transfer.index] = path
                return True
            port = self._binder.port_is_taken(key)
        return False

    def close(self, transfer: Transfer, now_ns: int) -> None:
        """Tells the scheme that a connection has ended."""
        self._binder.close(max(now_ns, 0), _key(transfer))

    def deadlines_ns(self) -> list[int]:
        """Returns when `advance` is due; empty for never."""
        at_ns = self._binder.poll_timeout()
        return [] if at_ns is None else [at_ns]

    def advance(self, now_ns: int, transfers: Iterable[Transfer]) -> None:
        """Gives the scheme the counters of open connections, if something is due: it may read them."""
        if all(now_ns < at_ns for at_ns in self.deadlines_ns()):
            return
        for transfer in transfers:
            if transfer.sender is not None:
                (info,) = infos(transfer.sender)
                packets, size_bytes = _sent(info)
                self._binder.sent(now_ns, _key(transfer), packets, size_bytes + HEADER_BYTES * packets)
        self._binder.advance(now_ns)

    def result(self) -> dict[str, Any]:
        """Counts, and the links of the path that each connection was given, by the number of its transfer."""
        return {"counts": self._binder.counts(), "paths": self._paths}


def take_bindings(offered: Sequence[dict[str, Any]], result: Mapping[str, Any]) -> dict[str, Any]:
    """Gives offered flows the ports and paths that they had. Returns what the scheme did, as runs count it."""
    paths: Mapping[str, list[int]] = result["bindings"]["paths"]
    for index, flow in enumerate(offered):
        path = paths.get(str(index))
        flow["pinned"] = path is not None
        if path is not None:
            flow["src_port"], flow["ways"] = result["flows"][index]["src_port"], [path, *flow["ways"][1:]]
    counts = result["bindings"]["counts"]
    return {
        "messages": counts["opened"],
        "routes": counts["chosen"],
        "polls": counts["polls"],
        "polling_period_s": counts["polling_period_s"],
    }


def not_carried(counts: Mapping[str, Any]) -> list[str]:
    """Says what the scheme wanted and source ports could not do."""
    said = []
    if counts["without_port"]:
        few = f"{counts['without_port']} of {counts['opened']} connections"
        said.append(f"{few} took other paths than the scheme's, since no free source port leads there")
    if counts["moves_refused"]:
        many = f"{counts['moves_refused']} moves of open connections were refused"
        said.append(f"{many}, since source ports choose the paths of new connections only")
    return said


def _key(transfer: Transfer) -> Key:
    """The five-tuple that the connection has in the simulator, by which the scheme knows it."""
    spec = transfer.spec
    return (spec["src_address"], spec["src_port"], spec["dst_address"], spec["dst_port"])


def _sent(info: bytes) -> tuple[int, int]:
    """Segments and payload bytes sent, by struct tcp_info (linux/tcp.h): tcpi_segs_out and tcpi_bytes_sent."""
    if len(info) < 208:
        return 0, 0
    (packets,), (size_bytes,) = struct.unpack_from("=I", info, 136), struct.unpack_from("=Q", info, 200)
    return packets, size_bytes
