"""sFlow version 5 (sflow.org, July 2004): the packets that agents sample, from the datagrams in a pcap file."""

from __future__ import annotations

from dataclasses import dataclass, field

from pathloom.twin.exported import ACK_BYTES, TCP, UDP, Damaged, Exported, Found, Reader, address, ipv4_of

VERSION = 5
FLOW_SAMPLE, EXPANDED_FLOW_SAMPLE = 1, 3
RAW_HEADER = 1
ETHERNET, IPV4 = 1, 11
ADDRESS_BYTES = {1: 4, 2: 16}
PAYLOAD_SHARE = 1448 / 1518
"""Payload in the bytes of frames, with their check sequence."""


@dataclass
class Sflow:
    """Reads datagrams."""

    found: Found = field(default_factory=Found)

    def read(self, at_s: float, datagram: bytes) -> None:
        """Reads a datagram that arrived at a time. Raises `Damaged`."""
        reader = Reader(datagram, "sflow")
        version = reader.number(4)
        if version != VERSION:
            raise Damaged(f"sflow: version {version}; expected {VERSION}")
        kind = reader.number(4)
        if kind not in ADDRESS_BYTES:
            raise Damaged(f"sflow: address type {kind}; expected 1 or 2")
        # Address and number of the agent, number of the datagram, time since the start of the agent.
        reader.take(ADDRESS_BYTES[kind] + 12)
        for _ in range(reader.number(4)):
            of, length = reader.number(4), reader.number(4)
            part = reader.part(length, f"sflow: sample of type {of}")
            if of in (FLOW_SAMPLE, EXPANDED_FLOW_SAMPLE):
                self._sample(part, of == EXPANDED_FLOW_SAMPLE, at_s)

    def _sample(self, reader: Reader, is_expanded: bool, at_s: float) -> None:
        # Number of the sample, and the source of the data.
        reader.take(12 if is_expanded else 8)
        rate = reader.number(4)
        # Pool, drops, and the ports.
        reader.take(8 + (16 if is_expanded else 8))
        for _ in range(reader.number(4)):
            of, length = reader.number(4), reader.number(4)
            part = reader.part(length, f"sflow: record of type {of}")
            if of == RAW_HEADER:
                self._header(part, max(rate, 1), at_s)

    def _header(self, reader: Reader, rate: int, at_s: float) -> None:
        protocol, length = reader.number(4), reader.number(4)
        reader.number(4)
        header = reader.take(reader.number(4))
        packet = ipv4_of(header) if protocol == ETHERNET else header if protocol == IPV4 else None
        if packet is None or len(packet) < 20 or packet[0] >> 4 != 4:
            self.found.skipped += 1
            return
        if packet[9] == TCP and length <= ACK_BYTES:
            self.found.acks += 1
            return
        if rate > 1:
            self.found.sampling.add(rate)
        start = (packet[0] & 15) * 4
        ports = packet[start : start + 4] if packet[9] in (TCP, UDP) else b""
        key = (
            address(packet[12:16]),
            address(packet[16:20]),
            packet[9],
            int.from_bytes(ports[:2], "big"),
            int.from_bytes(ports[2:4], "big"),
        )
        self.found.records.append(Exported(key, at_s, at_s, length * rate * PAYLOAD_SHARE))
