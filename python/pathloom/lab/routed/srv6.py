"""Paths as lists of segments (SRv6, RFC 8754): the host writes into each packet over which cables it goes.

Each router has an End.X segment (RFC 8986 §4.2) for each of its cables: it sends a packet with this segment over this
cable, whatever its routes are. The host's kernel inserts the segments of a path into the packets to an address. The
last router of the path forwards by its routes, as there is no segment left. Routers keep no state of paths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path as File

from pathloom.errors import bad_input, nearest_hint
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, HostPort, SwitchPort
from pathloom.lab.routed.entropy import Path, sources_of
from pathloom.lab.routed.numbering import host6, link_address6

SEGMENTS6 = IPv6Network("fd70:6c:0:5::/64")
"""Segments: that of the directed link n is the address with number n."""
MOST_SEGMENTS = 16
ANCHOR = "segments"
"""Interface that the routes of segments name. Packets leave by the cables. But if routes named the cables, the
kernel would delete those of a cable that goes down, and nobody would add them again."""
_SETTING = File("/proc/sys/net/ipv6/conf/all/seg6_enabled")
_HEADER_BYTES, _SEGMENT_BYTES = 8, 16


def is_possible() -> bool:
    """Returns whether this kernel knows segments."""
    return _SETTING.exists()


def sysctls(interfaces: Iterable[str]) -> dict[str, str]:
    """Returns the settings by which a router or host accepts packets with segments at these interfaces."""
    return {f"net.ipv6.conf.{one}.seg6_enabled": "1" for one in ("all", "default", *interfaces)}


def segment(link: int) -> IPv6Address:
    """Returns the segment that sends a packet over a directed link.

    >>> segment(300)
    IPv6Address('fd70:6c:0:5::12c')
    """
    return SEGMENTS6[link]


def segments(path: Path) -> list[IPv6Address]:
    """Returns the segments of a path from host to host: those of its links between routers.

    >>> segments((1, 32, 64, 30))
    [IPv6Address('fd70:6c:0:5::20'), IPv6Address('fd70:6c:0:5::40')]
    """
    return [segment(link) for link in path[1:-1]]


def overhead_bytes(count: int) -> int:
    """Returns by how much so many segments lengthen a packet: the header of RFC 8754 §2, which repeats the destination.

    >>> overhead_bytes(2), overhead_bytes(4)
    (56, 88)
    """
    return _HEADER_BYTES + _SEGMENT_BYTES * (count + 1)


def router_lines(ports: Iterable[SwitchPort], host_links: Iterable[int]) -> Iterator[str]:
    """Yields lines for `ip -batch` in a router's namespace: a segment for each cable to another router."""
    to_hosts = set(host_links)
    yield f"link add {ANCHOR} type veth peer name {ANCHOR}-end"
    yield from (f"link set {one} up" for one in (ANCHOR, f"{ANCHOR}-end"))
    for port in ports:
        if port.link not in to_hosts and port.shape.up:
            action = f"encap seg6local action End.X nh6 {link_address6(port.link ^ 1)}"
            yield f"route replace {segment(port.link)} {action} dev {ANCHOR}"


def host_lines(ports: Iterable[HostPort]) -> Iterator[str]:
    """Yields lines for `ip -batch` in a host's namespace: segments are reached by way of its routers."""
    for index, port in enumerate(ports):
        if port.shape.up:
            gateway = link_address6(port.link ^ 1)
            yield f"route replace {SEGMENTS6} via {gateway} dev {port.interface} onlink metric {100 + index}"


def path_line(blueprint: Blueprint, path: Path) -> str:
    """Returns the line for `ip -batch` that puts all packets to a host on a path, also those of open connections."""
    source, target = ends_of(blueprint, path)
    if not path[1:-1]:
        raise bad_input("srv6: both hosts are at one router, so there is one path only, without segments")
    listed = ",".join(map(str, segments(path)))
    gateway = link_address6(source.link ^ 1)
    where = f"via {gateway} dev {source.interface} onlink src {host6(source.address)} metric 10"
    return f"route replace {host6(target.address)}/128 encap seg6 mode inline segs {listed} {where}"


def ends_of(blueprint: Blueprint, path: Path) -> tuple[HostPort, HostPort]:
    """Returns the ports of hosts at which a path begins and ends. Raises `PathloomError`."""
    ports = {port.link: port for host in blueprint.hosts for port in host.ports}
    try:
        return ports[path[0]], ports[path[-1] ^ 1]
    except (KeyError, IndexError):
        raise bad_input(f"srv6: the links {list(path)} do not lead from host to host") from None


def path_via(blueprint: Blueprint, source: HostPort, target: HostPort, via: Sequence[str]) -> Path:
    """Returns the path between two ports of hosts over these routers, from the first ToR's neighbour to the last ToR.

    Of several parallel cables it takes the first one that is up. Raises `PathloomError` that names the first router
    which does not fit.
    """
    sources = sources_of(blueprint)
    known = {switch.name: switch.node for switch in blueprint.switches}
    names = {node: name for name, node in known.items()}
    at, end, path = sources[source.link ^ 1], sources[target.link ^ 1], [source.link]
    last = [] if via and via[-1] == names[end] else [names[end]]
    wanted = [*(via[1:] if via and via[0] == names[at] else via), *last]
    if at == end and not via:
        wanted = []
    for name in wanted:
        if name not in known:
            raise bad_input(f"--via: `{name}` is no router{nearest_hint(name, known)}")
        cables = sorted(
            port.link
            for port in blueprint.switch_ports
            if port.switch == at and port.shape.up and sources[port.link ^ 1] == known[name]
        )
        if not cables:
            raise bad_input(f"--via: no cable leads from {names[at]} to {name}")
        path.append(cables[0])
        at = known[name]
    if len(path) - 1 > MOST_SEGMENTS:
        raise bad_input(f"--via: {len(path) - 1} segments; expected at most {MOST_SEGMENTS}")
    return (*path, target.link ^ 1)


def put(blueprint: Blueprint, path: Path) -> None:
    """Puts all packets from a host to another one on a path, in one step. Raises `ToolError`."""
    source, _ = ends_of(blueprint, path)
    host, _ = blueprint.host_at(source.address)
    system.batch("ip", host.namespace, [path_line(blueprint, path)])


def paths_of(blueprint: Blueprint, source: HostPort) -> dict[str, list[IPv6Address]]:
    """Returns the segments that a host has for other hosts, by their IPv6 addresses. Raises `ToolError`."""
    host, _ = blueprint.host_at(source.address)
    rows = json.loads(system.run_tool(["ip", "-n", host.namespace, "-6", "-json", "route", "show"]))
    return {row["dst"]: [IPv6Address(one) for one in _listed(row)] for row in rows if row.get("encap") == "seg6"}


def remove(blueprint: Blueprint, source: HostPort, target: HostPort) -> bool:
    """Leaves the path between two hosts to the routers. Returns whether it had segments. Raises `ToolError`."""
    address = str(host6(target.address))
    if address not in paths_of(blueprint, source):
        return False
    host, _ = blueprint.host_at(source.address)
    system.batch("ip", host.namespace, [f"route del {address}/128 metric 10"])
    return True


def _listed(row: dict[str, object]) -> list[str]:
    """Returns the segments in a row of `ip -json route`, without the place of the destination."""
    found = row.get("segs", [])
    assert isinstance(found, list)
    return [str(one) for one in found if str(one) != "::"]
