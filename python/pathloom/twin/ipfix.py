"""IPFIX messages (RFC 7011), as in files of RFC 5655 or in datagrams: the fields by which flows are known."""

from __future__ import annotations

from dataclasses import dataclass, field

from pathloom.twin.exported import ACK_BYTES, TCP, Damaged, Exported, Found, Reader, address

VERSION = 10
PAYLOAD_SHARE = 1448 / 1500
"""Payload in the bytes of IP packets, which exporters count."""
HEADER_BYTES = 16
TEMPLATES, OPTIONS, FIRST_DATA = 2, 3, 256
VARIABLE = 0xFFFF
MOST_NUMBER_BYTES = 8
NTP_S = 2_208_988_800
"""Seconds from 1900, where NTP time begins, to 1970."""

# Numbers of information elements (IANA, IPFIX Information Elements).
OCTETS, PACKETS, PROTOCOL, SRC_PORT, SRC, DST_PORT, DST = 1, 2, 4, 7, 8, 11, 12
LAST_UPTIME, FIRST_UPTIME, SAMPLING, END_REASON, BOOT_MS, SAMPLING_PACKETS = 21, 22, 34, 136, 160, 305
OCTETS_TOTAL, LAYER2_OCTETS = 85, 352
TIMES = {
    # Start, end, and how a value becomes seconds.
    "seconds": (150, 151),
    "milliseconds": (152, 153),
    "microseconds": (154, 155),
    "nanoseconds": (156, 157),
}


@dataclass(frozen=True)
class Template:
    """The fields of a record: number of the element (None for those of enterprises), and length."""

    fields: tuple[tuple[int | None, int], ...]

    @property
    def least_bytes(self) -> int:
        """The length of the shortest record."""
        return sum(1 if length == VARIABLE else length for _, length in self.fields)


@dataclass
class Ipfix:
    """Reads messages in their order. Templates hold for the messages of their observation domain that follow."""

    found: Found = field(default_factory=Found)
    _templates: dict[tuple[int, int], Template] = field(default_factory=dict)
    _options: set[tuple[int, int]] = field(default_factory=set)
    _rates: dict[int, int] = field(default_factory=dict)
    """Sampling rate of each domain, from options."""

    def read_all(self, content: bytes) -> None:
        """Reads messages that follow each other. Raises `Damaged`."""
        reader = Reader(content, "ipfix")
        while reader.left:
            at = reader.place
            version, length = reader.number(2), reader.number(2)
            if version != VERSION or length < HEADER_BYTES:
                raise Damaged(
                    f"ipfix: the message at byte {at} has version {version} and length {length}; expected version "
                    f"{VERSION} and at least {HEADER_BYTES} bytes"
                )
            self._message(reader.part(length - 4, f"ipfix: message at byte {at}"))

    def _message(self, reader: Reader) -> None:
        exported_s = reader.number(4)
        reader.number(4)
        domain = reader.number(4)
        while reader.left:
            at, number, length = reader.place, reader.number(2), reader.number(2)
            if length < 4:
                raise Damaged(f"ipfix: the set at byte {at} of a message has length {length}; expected at least 4")
            part = reader.part(length - 4, f"ipfix: set {number}")
            if number in (TEMPLATES, OPTIONS):
                self._learn(part, domain, number == OPTIONS)
            elif number >= FIRST_DATA and (domain, number) in self._templates:
                self._data(part, domain, number, exported_s)
            elif number >= FIRST_DATA:
                # The template came before the capture began.
                self.found.skipped += 1

    def _learn(self, reader: Reader, domain: int, is_options: bool) -> None:
        least = 6 if is_options else 4
        while reader.left >= least:
            number, count = reader.number(2), reader.number(2)
            if is_options and count:
                reader.number(2)
            fields = []
            for _ in range(count):
                element, length = reader.number(2), reader.number(2)
                if element & 0x8000:
                    reader.number(4)
                fields.append((None if element & 0x8000 else element, length))
            # A template without fields withdraws the one before (RFC 7011, §8.1).
            self._options.discard((domain, number))
            if not fields:
                self._templates.pop((domain, number), None)
                continue
            template = Template(tuple(fields))
            if not template.least_bytes:
                raise Damaged(f"ipfix: the template {number} has records without bytes")
            self._templates[(domain, number)] = template
            if is_options:
                self._options.add((domain, number))

    def _data(self, reader: Reader, domain: int, number: int, exported_s: int) -> None:
        template = self._templates[(domain, number)]
        # What is shorter than a record is padding.
        while reader.left >= template.least_bytes:
            values: dict[int, bytes] = {}
            for element, length in template.fields:
                size = length
                if length == VARIABLE:
                    size = reader.number(1)
                    size = reader.number(2) if size == 255 else size
                value = reader.take(size)
                if element is not None:
                    values[element] = value
            if (domain, number) in self._options:
                rate = _number(values, SAMPLING_PACKETS) or _number(values, SAMPLING)
                if rate:
                    self._rates[domain] = rate
            else:
                self._flow(values, domain, exported_s)

    def _flow(self, values: dict[int, bytes], domain: int, exported_s: int) -> None:
        sent = next((found for one in (OCTETS, OCTETS_TOTAL, LAYER2_OCTETS) if (found := _number(values, one))), None)
        times = _times(values)
        src, dst = values.get(SRC), values.get(DST)
        if not sent or times is None or src is None or dst is None or len(src) != 4 or len(dst) != 4:
            self.found.skipped += 1
            return
        packets = _number(values, PACKETS)
        if _number(values, PROTOCOL) == TCP and packets and sent <= ACK_BYTES * packets:
            self.found.acks += 1
            return
        rate = _number(values, SAMPLING) or _number(values, SAMPLING_PACKETS) or self._rates.get(domain, 1)
        if rate > 1:
            self.found.sampling.add(rate)
        ports = [_number(values, one) or 0 for one in (PROTOCOL, SRC_PORT, DST_PORT)]
        key = (address(src), address(dst), ports[0], ports[1], ports[2])
        start_s, end_s = times
        record = Exported(key, start_s, max(end_s, start_s), sent * rate * PAYLOAD_SHARE, _number(values, END_REASON))
        self.found.records.append(record)


def _number(values: dict[int, bytes], element: int) -> int | None:
    """The value of an element; None if the record has none, or one of more than eight bytes, which no element has."""
    value = values.get(element)
    return int.from_bytes(value, "big") if value and len(value) <= MOST_NUMBER_BYTES else None


def _times(values: dict[int, bytes]) -> tuple[float, float] | None:
    """Start and end in seconds since 1970; None if the record has none."""
    for kind, (start, end) in TIMES.items():
        one, other = values.get(start), values.get(end)
        if one and other and max(len(one), len(other)) <= MOST_NUMBER_BYTES:
            return _seconds(kind, one), _seconds(kind, other)
    boot_ms = _number(values, BOOT_MS)
    first_ms, last_ms = _number(values, FIRST_UPTIME), _number(values, LAST_UPTIME)
    if boot_ms is None or first_ms is None or last_ms is None:
        return None
    return (boot_ms + first_ms) / 1e3, (boot_ms + last_ms) / 1e3


def _seconds(kind: str, value: bytes) -> float:
    number = int.from_bytes(value, "big")
    match kind:
        case "seconds":
            return float(number)
        case "milliseconds":
            return number / 1e3
        case _:
            # NTP time in 64 bits (RFC 7011, §6.1.9 and §6.1.10).
            return (number >> 32) - NTP_S + (number & 0xFFFFFFFF) / 2**32
