"""Flow records as exporters give them, and their merging into flows."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CONTINUES = 2
"""flowEndReason of a record that ends only because the flow is long (RFC 5102, §5.11.3: active time-out)."""
SAME_FLOW_GAP_S, SAMPLED_GAP_S = 1.0, 5.0
"""Records of one five-tuple with at most this gap are one flow, if the exporter does not say why a record ended; the
second one if packets were sampled."""
TCP, UDP = 6, 17
ACK_BYTES = 100
"""TCP packets up to this length carry no data: they are acknowledgements of the flow in the other direction."""

FiveTuple = tuple[str, str, int, int, int]
"""Addresses, protocol, ports."""


class Damaged(Exception):
    """A file that is not what its beginning says. The text says where and what."""


@dataclass(frozen=True)
class Exported:
    """A record of an exporter, or one sampled packet."""

    key: FiveTuple
    start_s: float
    end_s: float
    bytes: float
    """Payload, scaled by the sampling rate."""
    end_reason: int | None = None


@dataclass
class Found:
    """What a file has."""

    records: list[Exported] = field(default_factory=list)
    sampling: set[int] = field(default_factory=set)
    """Sampling rates that were applied, other than 1."""
    skipped: int = 0
    """Records without addresses, bytes or times, and sampled packets other than IPv4."""
    acks: int = 0
    """Records and samples of packets that only acknowledge."""

    def flows(self) -> list[Exported]:
        """The records, merged into flows."""
        return merged(self.records, SAMPLED_GAP_S if self.sampling else SAME_FLOW_GAP_S)

    def notes(self, continued: int) -> list[str]:
        """What a reader of the fork should know, with the number of records that continue others."""
        notes = []
        if self.sampling:
            rates = ", ".join(f"1 in {rate}" for rate in sorted(self.sampling))
            notes.append(
                f"packets were sampled ({rates}): bytes are scaled, small flows are missing or too large, and times "
                "are those of the first and the last sample"
            )
        if self.skipped:
            notes.append(f"{self.skipped} records without IPv4 addresses, bytes or times were left out")
        if self.acks:
            notes.append(f"{self.acks} records of acknowledgements were left out")
        if continued:
            notes.append(f"{continued} records continue earlier ones of the same flow and were added to them")
        return notes


def merged(records: Iterable[Exported], gap_s: float = SAME_FLOW_GAP_S) -> list[Exported]:
    """Flows, in order of their starts: records of one five-tuple that follow each other are one flow.

    >>> key = ("10.0.0.1", "10.0.0.2", 6, 1, 2)
    >>> [(one.start_s, one.end_s, one.bytes) for one in merged([Exported(key, 0, 1, 10), Exported(key, 1.5, 2, 5),
    ...                                                         Exported(key, 9, 10, 7)])]
    [(0, 2, 15), (9, 10, 7)]
    """
    by_key: dict[FiveTuple, list[Exported]] = defaultdict(list)
    for one in records:
        by_key[one.key].append(one)
    flows = []
    for of in by_key.values():
        of.sort(key=lambda one: (one.start_s, one.end_s))
        last = of[0]
        for one in of[1:]:
            goes_on = last.end_reason == CONTINUES or (last.end_reason is None and one.start_s - last.end_s <= gap_s)
            if goes_on:
                end_s, total = max(last.end_s, one.end_s), last.bytes + one.bytes
                last = Exported(last.key, last.start_s, end_s, total, one.end_reason)
            else:
                flows.append(last)
                last = one
        flows.append(last)
    return sorted(flows, key=lambda one: (one.start_s, one.key))


class Reader:
    """Reads big-endian numbers from bytes. Each method raises `Damaged` if there are not enough left."""

    def __init__(self, content: bytes, what: str) -> None:
        self.content, self.place, self._what = content, 0, what

    @property
    def left(self) -> int:
        """Bytes that are left."""
        return len(self.content) - self.place

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > self.left:
            raise Damaged(f"{self._what}: {count} bytes expected at byte {self.place}, {self.left} are left")
        self.place += count
        return self.content[self.place - count : self.place]

    def number(self, size: int) -> int:
        """The next number of this many bytes."""
        return int.from_bytes(self.take(size), "big")

    def part(self, count: int, what: str) -> Reader:
        """A reader of the next bytes."""
        return Reader(self.take(count), what)


def address(of: bytes) -> str:
    """An IPv4 address as text.

    >>> address(bytes([10, 0, 0, 1]))
    '10.0.0.1'
    """
    return ".".join(str(byte) for byte in of)


def udp_payloads(content: bytes) -> Iterator[tuple[float, bytes]]:
    """Times and payloads of the UDP datagrams over IPv4 in a pcap file. Raises `Damaged`."""
    order, unit_s = {
        b"\xd4\xc3\xb2\xa1": ("<", 1e-6),
        b"\xa1\xb2\xc3\xd4": (">", 1e-6),
        b"\x4d\x3c\xb2\xa1": ("<", 1e-9),
        b"\xa1\xb2\x3c\x4d": (">", 1e-9),
    }[content[:4]]
    if len(content) < 24:
        raise Damaged("pcap: the header is not complete")
    (link,) = struct.unpack_from(f"{order}I", content, 20)
    if link & 0xFFFF not in (1, 101):
        raise Damaged(f"pcap: has link type {link & 0xFFFF}; expected Ethernet (1) or raw IP (101)")
    place = 24
    while place < len(content):
        if len(content) - place < 16:
            raise Damaged(f"pcap: the packet at byte {place} has no complete header")
        seconds, parts, kept, _ = struct.unpack_from(f"{order}IIII", content, place)
        place += 16
        if kept > len(content) - place:
            raise Damaged(f"pcap: the packet at byte {place} is not complete")
        payload = _udp(content[place : place + kept], link & 0xFFFF == 1)
        place += kept
        if payload is not None:
            yield seconds + parts * unit_s, payload


def _udp(frame: bytes, is_ethernet: bool) -> bytes | None:
    packet = ipv4_of(frame) if is_ethernet else frame
    if packet is None or len(packet) < 28 or packet[0] >> 4 != 4 or packet[9] != 17:
        return None
    header = (packet[0] & 15) * 4
    length = int.from_bytes(packet[header + 4 : header + 6], "big")
    return packet[header + 8 : header + max(length, 8)]


def ipv4_of(frame: bytes) -> bytes | None:
    """The IPv4 packet in an Ethernet frame, which may have VLAN tags; None if it has another one."""
    place = 12
    while frame[place : place + 2] in (b"\x81\x00", b"\x88\xa8"):
        place += 4
    return frame[place + 2 :] if frame[place : place + 2] == b"\x08\x00" else None
