"""Transfers of a run in the lab: what an agent knows about each, and what the kernel counts for its connections."""

from __future__ import annotations

import ctypes
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
_SOL_MPTCP, _MPTCP_TCPINFO = 284, 2
_SUBFLOW_DATA = struct.Struct("=IIII")
_INFO_BYTES = 256
_libc = ctypes.CDLL(None, use_errno=True)


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
            "retransmits": sum(part.retransmits for part in parts),
            "timeouts": None if None in timeouts else sum(part.timeouts or 0 for part in parts),
            "packets": sum(part.packets for part in parts),
            "error": self.error,
            "held_ns": self.held_ns,
            "leases_ended": self.leases_ended,
            "delivered_bytes": self.received,
        }


def count(transfer: Transfer, end: socket.socket) -> None:
    """Adds what the kernel has counted at one end of a connection."""
    for info in infos(end):
        # Offsets in struct tcp_info (linux/tcp.h). Newer kernels have appended fields to it.
        if len(info) >= 140:
            transfer.retransmits += struct.unpack_from("=I", info, 100)[0]
            transfer.packets += struct.unpack_from("=I", info, 136)[0]
        if len(info) < 242:
            transfer.timeouts = None
        elif transfer.timeouts is not None:
            transfer.timeouts += struct.unpack_from("=H", info, 240)[0]


def window_bytes(transfer: Transfer) -> int:
    """The congestion windows of all connections and subflows of a transfer together."""
    total = 0
    for info in [info for part in transfer.connections if part.sender is not None for info in infos(part.sender)]:
        # The maximum segment size and the window in segments, in struct tcp_info.
        (segment_bytes,), (segments,) = struct.unpack_from("=I", info, 16), struct.unpack_from("=I", info, 80)
        total += segment_bytes * segments
    return total


def infos(end: socket.socket) -> list[bytes]:
    """The struct tcp_info of a connection, or of each open subflow of an MPTCP connection."""
    if end.proto != socket.IPPROTO_MPTCP:
        return [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)]
    # struct mptcp_subflow_data (linux/mptcp.h), then the subflows. The kernel reads the lengths from it.
    data = ctypes.create_string_buffer(_SUBFLOW_DATA.size + MOST_SUBFLOWS * _INFO_BYTES)
    _SUBFLOW_DATA.pack_into(data, 0, _SUBFLOW_DATA.size, 0, 0, _INFO_BYTES)
    length = ctypes.c_uint32(len(data))
    # The connection may have fallen back to plain TCP.
    if _libc.getsockopt(end.fileno(), _SOL_MPTCP, _MPTCP_TCPINFO, data, ctypes.byref(length)) != 0:
        return []
    _, number, known, _ = _SUBFLOW_DATA.unpack_from(data)
    own = range(_SUBFLOW_DATA.size, length.value, _INFO_BYTES)[:number]
    return [data.raw[offset : offset + min(known, _INFO_BYTES)] for offset in own]
