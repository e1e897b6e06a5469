"""Finds the paths of connections by packets whose TTL ends at each router in turn, as traceroute does.

A probe has the five-tuple of the connection that it stands for, so routers hash it to the same path. No probe reaches
the target: the last one ends at the target's ToR. Over IPv4 a router answers from the interface at which the probe
arrived (`icmp_errors_use_inbound_ifaddr`), which tells the cable. Over IPv6 the answer tells only the router, so paths
that differ by parallel cables cannot be told apart, and are left out.
"""

from __future__ import annotations

import secrets
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.entropy import MOST_HOPS, Flow, Path, port_of, sources_of
from pathloom.lab.routed.numbering import host6, link_of, router_address, router_address6

ATTEMPTS = 3
"""How often a probe is sent until it is answered."""
PATIENCE_S = 0.5
"""Longest wait for the answers to a round of probes."""
BURST = 64
"""Probes sent before answers are read, so that neither is lost in a short queue."""
_TCP, _UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP
_ACK = 0x10
_TIME_EXCEEDED, _TIME_EXCEEDED6 = 11, 3
_IPV6_CHECKSUM, _SOL_RAW = 7, 255
_DSCP_CS6 = 48 << 2
"""Class of network control (RFC 4594), as for the packets of BGP and BFD."""


class Answer(NamedTuple):
    """A router's answer to a probe."""

    source_port: int
    ttl: int
    router: str
    """The address from which it came."""


def segment(flow: Flow, source_port: int, ttl: int, nonce: int) -> bytes:
    """Returns the header of TCP or UDP of a probe, without a checksum.

    The first 8 bytes, which every answer repeats (RFC 792), have the ports and the TTL; with TCP also the 3 bytes of
    `nonce`, which distinguish probers.
    """
    if flow.protocol == "udp":
        return struct.pack("!HHHH", source_port, flow.port, 8 + ttl, 0) + bytes(ttl)
    return struct.pack("!HHIIBBHHH", source_port, flow.port, nonce << 8 | ttl, 0, 5 << 4, _ACK, 1024, 0, 0)


def answer_of(flow: Flow, nonce: int, quoted: bytes, router: str) -> Answer | None:
    """Reads the header of a probe that an answer repeats; None if it is none of this flow's."""
    if len(quoted) < 8:
        return None
    source_port, port, word = struct.unpack_from("!HHI", quoted)
    ttl = (word >> 16) - 8 if flow.protocol == "udp" else word & 0xFF
    if port != flow.port or (flow.protocol != "udp" and word >> 8 != nonce) or not 0 < ttl <= MOST_HOPS:
        return None
    return Answer(source_port, ttl, router)


def quoted4(message: bytes, protocol: int, target: str) -> bytes:
    """Returns what an ICMP message with its IPv4 header repeats of the transport header; nothing for other messages."""
    inner = message[(message[0] & 0xF) * 4 :] if message else b""
    if len(inner) < 28 or inner[0] != _TIME_EXCEEDED or inner[8 + 9] != protocol:
        return b""
    if inner[8 + 16 : 8 + 20] != socket.inet_aton(target):
        return b""
    return inner[8 + (inner[8] & 0xF) * 4 :]


def quoted6(message: bytes, protocol: int, target: str) -> bytes:
    """Returns what an ICMPv6 message repeats of the transport header; nothing for other messages."""
    if len(message) < 48 or message[0] != _TIME_EXCEEDED6 or message[8 + 6] != protocol:
        return b""
    return message[48:] if message[8 + 24 : 8 + 40] == socket.inet_pton(socket.AF_INET6, target) else b""


class Trace:
    """Puts the answers of routers together to paths. It sends nothing."""

    def __init__(self, blueprint: Blueprint, flow: Flow) -> None:
        """Raises `PathloomError` for an address that no host has."""
        self._sources = sources_of(blueprint)
        self._start, self._end = port_of(blueprint, flow.source), port_of(blueprint, flow.target)
        own = {str(router_address(one.node)): one.node for one in blueprint.switches}
        own6 = {str(router_address6(one.node)): one.node for one in blueprint.switches}
        self._routers = {**own, **own6}

    def begin(self) -> Path:
        """Returns the beginning of every path: the link of the host."""
        return (self._start.link,)

    def is_whole(self, path: Path) -> bool:
        """Returns whether a path has reached the ToR of the target."""
        return self._sources[path[-1] ^ 1] == self._sources[self._end.link ^ 1]

    def finished(self, path: Path) -> Path:
        """Returns a path that has reached the ToR of the target, with the link to the target."""
        return (*path, self._end.link ^ 1)

    def further(self, path: Path, router: str, first: bool) -> Path | None:
        """Returns a path with one router more; None if the answer does not fit.

        The first router is at the end of the host's own link, which the path has already.
        """
        link, at = link_of(router), self._sources[path[-1] ^ 1]
        node = self._routers.get(router) if link is None else self._sources.get(link)
        if node is None:
            return None
        if first:
            return path if at == node else None
        if link is not None and ":" not in router and self._sources.get(link ^ 1) == at:
            return (*path, link ^ 1)
        cables = [one for one, source in self._sources.items() if (source, self._sources[one ^ 1]) == (at, node)]
        return (*path, cables[0]) if len(cables) == 1 else None


class Prober:
    """Probes the paths of one flow from the namespace of its host. Needs root."""

    def __init__(self, blueprint: Blueprint, flow: Flow, ipv6: bool = False) -> None:
        """With `ipv6`, the addresses of the flow stand for the IPv6 addresses of the same ports.

        Raises `PathloomError` for an address that no host has, and `OSError` without the right to open raw sockets.
        """
        self._flow, self._ipv6 = flow, ipv6
        self._trace = Trace(blueprint, flow)
        self._protocol = _UDP if flow.protocol == "udp" else _TCP
        self._ends = [str(host6(one)) if ipv6 else one for one in (flow.source, flow.target)]
        self._nonce = secrets.randbits(24)
        namespace = blueprint.host_at(flow.source)[0].namespace
        with ExitStack() as opened:
            self._out, self._in = system.inside(namespace, lambda: self._open(opened))
            self._opened = opened.pop_all()

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _open(self, opened: ExitStack) -> tuple[socket.socket, socket.socket]:
        family = socket.AF_INET6 if self._ipv6 else socket.AF_INET
        icmp = socket.IPPROTO_ICMPV6 if self._ipv6 else socket.IPPROTO_ICMP
        out = opened.enter_context(socket.socket(family, socket.SOCK_RAW, self._protocol))
        back = opened.enter_context(socket.socket(family, socket.SOCK_RAW, icmp))
        out.bind((self._ends[0], 0))
        if self._ipv6:
            place = 6 if self._protocol == _UDP else 16
            out.setsockopt(socket.IPPROTO_IPV6, _IPV6_CHECKSUM, place)
            out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _DSCP_CS6)
        else:
            out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _DSCP_CS6)
        back.setblocking(False)
        return out, back

    def find(self, ports: Sequence[int]) -> dict[int, Path]:
        """Returns the path of each source port; ports whose probes are not answered are left out. Raises `OSError`."""
        found: dict[int, Path] = {}
        waiting = {port: self._trace.begin() for port in ports}
        for ttl in range(1, MOST_HOPS + 1):
            if not waiting:
                break
            answers = self._round(ttl, list(waiting))
            further = {port: self._trace.further(waiting[port], router, ttl == 1) for port, router in answers.items()}
            reached = {port: path for port, path in further.items() if path is not None}
            found |= {port: self._trace.finished(path) for port, path in reached.items() if self._trace.is_whole(path)}
            waiting = {port: path for port, path in reached.items() if port not in found}
        return {port: found[port] for port in ports if port in found}

    def _round(self, ttl: int, ports: Sequence[int]) -> dict[int, str]:
        """Sends probes with this TTL, and returns the router that has answered, by source port."""
        found: dict[int, str] = {}
        for _ in range(ATTEMPTS):
            missing = [port for port in ports if port not in found]
            for place in range(0, len(missing), BURST):
                burst = missing[place : place + BURST]
                self._send(ttl, burst)
                self._receive(ttl, set(burst), found)
        return found

    def _send(self, ttl: int, ports: Sequence[int]) -> None:
        level, name = (
            (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) if self._ipv6 else (socket.IPPROTO_IP, socket.IP_TTL)
        )
        self._out.setsockopt(level, name, ttl)
        for port in ports:
            self._out.sendto(segment(self._flow, port, ttl, self._nonce), (self._ends[1], 0))

    def _receive(self, ttl: int, ports: set[int], found: dict[int, str]) -> None:
        """Reads answers until all of these source ports have one, or none has come for `PATIENCE_S`."""
        quoted = quoted6 if self._ipv6 else quoted4
        until_s = time.monotonic() + PATIENCE_S
        while not ports <= found.keys() and (left_s := until_s - time.monotonic()) > 0:
            if not select.select([self._in], [], [], left_s)[0]:
                return
            message, (router, *_) = self._in.recvfrom(2048)
            answer = answer_of(self._flow, self._nonce, quoted(message, self._protocol, self._ends[1]), router)
            if answer is not None and answer.ttl == ttl and answer.source_port in ports:
                found[answer.source_port] = answer.router
