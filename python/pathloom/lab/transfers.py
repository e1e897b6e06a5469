"""Transfers of a run in the lab: what an agent knows about each, and what the kernel counts for its connections."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from pathloom.lab.orders import Key

CHUNK_BYTES = 1 << 18
"""The most that a socket is given at a time."""
BLOCK_BYTES = 262_144 // 1448 * 1448
"""What one of several streams takes at a time, as in the simulator: GridFTP's 256 KiB, in full segments."""
MOST_SUBFLOWS = 64
"""The most subflows that the kernel is asked about."""
_SOL_MPTCP, _MPTCP_TCPINFO, _MPTCP_SUBFLOW_ADDRS = 284, 2, 3
_SUBFLOW_DATA = struct.Struct("=IIII")
_INFO_BYTES = 256
_ADDRESS_BYTES = 128
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Subflow:
    """What a subflow of an MPTCP connection, or one of several streams, has carried."""

    delivered_bytes: int = 0
    """Payload that arrived. Bytes that arrived on two subflows count twice."""
    retransmits: int = 0
    timeouts: int | None = 0
    """None if the kernel does not count them."""


@dataclass(eq=False)
class Transfer:
    """A transfer of a run, or one of its streams if it has several."""

    index: int
    """Number of the transfer; its streams have the same."""
    spec: dict[str, Any]
    waits_for: int
    """Number of transfers that must finish first."""
    sender: socket.socket | None = None
    receiver: socket.socket | None = None
    src_port: int = -1
    dst_port: int = -1
    sent: int = 0
    received: int = 0
    start_ns: int = -1
    finish_ns: int = -1
    """When the last byte has arrived; -1 if it has not."""
    end_ns: int = -1
    """When its connections were closed."""
    retransmits: int = 0
    timeouts: int | None = 0
    """None if the kernel does not count them (before Linux 6.7)."""
    packets: int = 0
    held_until_ns: int = 0
    held_since_ns: int = 0
    held_ns: int = 0
    leases_ended: int = 0
    paced: bool = False
    error: str | None = None
    streams: list[Transfer] = field(default_factory=list)
    """Its streams if it has several; the transfer itself then has no connection."""
    whole: Transfer | None = None
    """The transfer that this stream is a part of."""
    taken: int = 0
    """Bytes in the blocks that streams have taken: of a stream its own, of a transfer those of all streams."""
    subflows: dict[Key, Subflow] = field(default_factory=dict)
    """What subflows of an MPTCP connection have carried, by their five-tuples."""
    fell_back: bool = False
    """Whether its MPTCP connection has become plain TCP (RFC 8684 §3.7)."""

    @property
    def size(self) -> int | None:
        """Payload bytes of the transfer; None for a long-lived one."""
        size: int | None = self.spec["size_bytes"]
        return size

    @property
    def key(self) -> Key:
        """The five-tuple of its connection."""
        return (self.spec["src_address"], self.src_port, self.spec["dst_address"], self.dst_port)

    @property
    def transfer(self) -> Transfer:
        """The transfer that this belongs to: itself, or of a stream the transfer that it is a part of."""
        return self.whole or self

    @property
    def connections(self) -> list[Transfer]:
        """What has a connection: its streams if it has several, or itself."""
        return self.streams or [self]

    @property
    def delivered(self) -> bool:
        """Whether the last byte has arrived; never true of a long-lived transfer."""
        return self.size is not None and self.received >= self.size

    def room(self) -> int:
        """Number of bytes that may be sent next, at most `CHUNK_BYTES`; 0 when all are sent.

        A stream that has sent its block takes the next one, so a fast path carries more blocks.
        """
        if self.whole is None:
            return CHUNK_BYTES if self.size is None else min(CHUNK_BYTES, self.size - self.sent)
        if self.sent == self.taken:
            whole = self.whole
            block = BLOCK_BYTES if whole.size is None else min(BLOCK_BYTES, whole.size - whole.taken)
            self.taken += block
            whole.taken += block
        return self.taken - self.sent

    def note_received(self, received: int) -> None:
        """Counts bytes that have arrived."""
        self.received += received
        if self.whole is not None:
            self.whole.received += received

    def row(self) -> dict[str, Any]:
        """The row of the transfer in the result of the agent."""
        parts = self.connections
        timeouts = [part.timeouts for part in parts]
        return {
            "src_port": parts[0].src_port,
            "dst_port": parts[0].dst_port,
            "start_ns": self.start_ns,
            "finish_ns": self.finish_ns,
            "end_ns": self.end_ns,
            "retransmits": sum(part.retransmits for part in parts),
            "timeouts": None if None in timeouts else sum(part.timeouts or 0 for part in parts),
            "packets": sum(part.packets for part in parts),
            "error": self.error,
            "held_ns": self.held_ns,
            "leases_ended": self.leases_ended,
            "delivered_bytes": self.received,
            "fell_back": self.fell_back,
            "subflows": [[*key, one.delivered_bytes, one.retransmits, one.timeouts] for key, one in self.parts()],
        }

    def parts(self) -> list[tuple[Key, Subflow]]:
        """The five-tuples of its subflows or streams and what each has carried; empty if it has not several."""
        streams = [stream for stream in self.streams if stream.src_port >= 0]
        own = [(one.key, Subflow(one.received, one.retransmits, one.timeouts)) for one in streams]
        parts = own or list(self.subflows.items())
        return parts if len(parts) > 1 else []


def count(transfer: Transfer, end: socket.socket) -> None:
    """Adds what the kernel has counted at one end of a connection."""
    found, keys = infos(end), subflow_keys(end)
    transfer.fell_back |= keys is None and end.proto == socket.IPPROTO_MPTCP
    # A subflow may have closed between the two calls. It is then unknown which one.
    known = keys if keys is not None and len(keys) == len(found) else [None] * len(found)
    sends = end is transfer.sender
    for ends, info in zip(known, found, strict=True):
        retransmits, packets, timeouts = _counts(info)
        transfer.retransmits += retransmits
        transfer.packets += packets
        transfer.timeouts = _sum(transfer.timeouts, timeouts)
        if ends is None:
            continue
        source, target = ends if sends else ends[::-1]
        one = transfer.subflows.setdefault((*source, *target), Subflow())
        one.delivered_bytes += 0 if sends else _received_bytes(info)
        one.retransmits += retransmits
        one.timeouts = _sum(one.timeouts, timeouts)


# Offsets in struct tcp_info (linux/tcp.h). Newer kernels have appended fields to it.


def _counts(info: bytes) -> tuple[int, int, int | None]:
    """Retransmissions, packets sent, and time-outs; None for time-outs if the kernel does not count them."""
    retransmits, packets = 0, 0
    if len(info) >= 140:
        (retransmits,), (packets,) = struct.unpack_from("=I", info, 100), struct.unpack_from("=I", info, 136)
    return retransmits, packets, struct.unpack_from("=H", info, 240)[0] if len(info) >= 242 else None


def _received_bytes(info: bytes) -> int:
    received: int = struct.unpack_from("=Q", info, 128)[0] if len(info) >= 136 else 0
    return received


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def window_bytes(transfer: Transfer) -> int:
    """The congestion windows of all connections and subflows of a transfer together."""
    total = 0
    for info in [info for part in transfer.connections if part.sender is not None for info in infos(part.sender)]:
        # The maximum segment size and the window in segments.
        (segment_bytes,), (segments,) = struct.unpack_from("=I", info, 16), struct.unpack_from("=I", info, 80)
        total += segment_bytes * segments
    return total


def infos(end: socket.socket) -> list[bytes]:
    """The struct tcp_info of a connection, or of each open subflow of an MPTCP connection."""
    rows = _of_subflows(end, _MPTCP_TCPINFO, _INFO_BYTES)
    return [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)] if rows is None else rows


def subflow_keys(end: socket.socket) -> list[tuple[tuple[str, int], tuple[str, int]]] | None:
    """Own and other address and port of each open subflow, in the order of `infos`; None for plain TCP."""
    rows = _of_subflows(end, _MPTCP_SUBFLOW_ADDRS, 2 * _ADDRESS_BYTES)
    if rows is None:
        return None
    return [(_address(row[:_ADDRESS_BYTES]), _address(row[_ADDRESS_BYTES:])) for row in rows]


def _address(stored: bytes) -> tuple[str, int]:
    """Address and port in a struct sockaddr_in (netinet/in.h)."""
    return socket.inet_ntoa(stored[4:8]), int.from_bytes(stored[2:4], "big")


def _of_subflows(end: socket.socket, option: int, size: int) -> list[bytes] | None:
    """A struct of at most `size` bytes for each open subflow; None if the connection is plain TCP, or has become so."""
    if end.proto != socket.IPPROTO_MPTCP:
        return None
    # struct mptcp_subflow_data (linux/mptcp.h), then the subflows. The kernel reads the lengths from it.
    data = ctypes.create_string_buffer(_SUBFLOW_DATA.size + MOST_SUBFLOWS * size)
    _SUBFLOW_DATA.pack_into(data, 0, _SUBFLOW_DATA.size, 0, 0, size)
    length = ctypes.c_uint32(len(data))
    if _libc.getsockopt(end.fileno(), _SOL_MPTCP, option, data, ctypes.byref(length)) != 0:
        # Sockets of plain TCP do not know the options of MPTCP.
        return None if ctypes.get_errno() in (errno.EOPNOTSUPP, errno.ENOPROTOOPT) else []
    _, number, known, _ = _SUBFLOW_DATA.unpack_from(data)
    own = range(_SUBFLOW_DATA.size, length.value, size)[:number]
    return [data.raw[offset : offset + min(known, size)] for offset in own]
