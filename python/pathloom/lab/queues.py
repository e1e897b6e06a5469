"""Reads the counters of queues by rtnetlink. A process of `tc` for each namespace takes ten times as long.

A lab of routers has as many namespaces as switches, and a run reads all of them four times a second.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from pathloom.errors import ToolError, reason
from pathloom.lab import system

QueueCounts = tuple[int, int, int, int]
"""Bytes and packets sent, packets dropped, packets waiting."""

_RTM_GETQDISC, _NLM_F_REQUEST, _NLM_F_DUMP = 38, 1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_HEADER, _TCMSG, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BxxxiIII"), struct.Struct("=HH")
"""struct nlmsghdr, tcmsg and nlattr (linux/netlink.h, linux/rtnetlink.h)."""
_KIND, _STATS2, _BASIC, _QUEUE, _PACKETS64 = 1, 7, 1, 3, 8
"""Attributes TCA_… of a qdisc, and TCA_STATS_… within TCA_STATS2 (linux/gen_stats.h)."""
_TYPE = 0x3FFF
_BUFFER_BYTES = 1 << 18


def queue_counters(namespace: str) -> dict[str, QueueCounts]:
    """Returns the counters of every `pfifo` in a namespace, by interface. Raises `ToolError`."""
    try:
        return system.inside(namespace, _read)
    except OSError as error:
        raise ToolError(f"counters of {namespace}: {reason(error)}") from None


def _read() -> dict[str, QueueCounts]:
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as door:
        body = _TCMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        flags = _NLM_F_REQUEST | _NLM_F_DUMP
        door.sendto(_HEADER.pack(_HEADER.size + len(body), _RTM_GETQDISC, flags, 1, 0) + body, (0, 0))
        over = False
        while not over:
            for kind, message in messages(door.recv(_BUFFER_BYTES)):
                if kind == _NLMSG_ERROR:
                    number = -int.from_bytes(message[:4], "little", signed=True)
                    raise OSError(number, os.strerror(number), "qdisc counters")
                over = over or kind == _NLMSG_DONE
                if kind not in (_NLMSG_DONE, _NLMSG_ERROR) and (counts := pfifo_counts(message)) is not None:
                    index, own = counts
                    found[socket.if_indextoname(index)] = own
    return found


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields type and payload of the netlink messages in a datagram. An incomplete one ends them."""
    place = 0
    while place + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, place)
        if not _HEADER.size <= length <= len(data) - place:
            return
        yield kind, data[place + _HEADER.size : place + length]
        place += (length + 3) & ~3


def pfifo_counts(message: bytes) -> tuple[int, QueueCounts] | None:
    """Returns the interface's index and the counters from the description of a qdisc; None if it is no `pfifo`."""
    if len(message) < _TCMSG.size:
        return None
    index = _TCMSG.unpack_from(message)[1]
    own = dict(_attributes(message[_TCMSG.size :]))
    if own.get(_KIND, b"").rstrip(b"\0") != b"pfifo":
        return None
    stats = dict(_attributes(own.get(_STATS2, b"")))
    basic, queue = stats.get(_BASIC, b""), stats.get(_QUEUE, b"")
    if len(basic) < 12 or len(queue) < 12:
        return None
    sent_bytes, packets = struct.unpack_from("=QI", basic)
    if len(stats.get(_PACKETS64, b"")) == 8:
        (packets,) = struct.unpack("=Q", stats[_PACKETS64])
    waiting, _, drops = struct.unpack_from("=III", queue)
    return index, (sent_bytes, packets, drops, waiting)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, place)
        if not _ATTRIBUTE.size <= length <= len(data) - place:
            return
        yield kind & _TYPE, data[place + _ATTRIBUTE.size : place + length]
        place += (length + 3) & ~3
