"""Flow records from files of exporters: IPFIX messages, and sFlow datagrams in pcap files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathloom._core import PathloomError
from pathloom.cli.app import carry_out
from pathloom.fabrics import Fabric
from pathloom.twin.exported import CONTINUES, Damaged
from pathloom.twin.fork import read_fork
from pathloom.twin.from_exporters import flows_of
from pathloom.twin.from_records import fork_of_records, read_records
from pathloom.twin.ipfix import PAYLOAD_SHARE

PROTOCOL_FIELDS = [(8, 4), (12, 4), (4, 1), (7, 2), (11, 2), (1, 8), (2, 4), (152, 8), (153, 8), (136, 1)]


def message(*sets: bytes, domain: int = 1) -> bytes:
    body = b"".join(sets)
    return struct.pack(">HHIII", 10, 16 + len(body), 1_000_000, 0, domain) + body


def a_set(number: int, content: bytes) -> bytes:
    return struct.pack(">HH", number, 4 + len(content)) + content


def template(number: int, fields: list[tuple[int, int]]) -> bytes:
    return struct.pack(">HH", number, len(fields)) + b"".join(struct.pack(">HH", *one) for one in fields)


def flow(src: int, dst: int, sent: int, start_ms: int, end_ms: int, why: int = 1, packets: int = 10) -> bytes:
    return struct.pack(
        ">4B4BBHHQIQQB", 10, 0, 0, src, 10, 0, 0, dst, 6, 1000 + src, 80, sent, packets, start_ms, end_ms, why
    )


def test_flows_of_ipfix_messages_are_read_and_continued() -> None:
    first = message(a_set(2, template(256, PROTOCOL_FIELDS)))
    long = [flow(2, 3, 15_000, 1000, 61_000, CONTINUES), flow(2, 3, 30_000, 61_000, 90_000)]
    others = [flow(4, 5, 1500, 2000, 2500), flow(5, 4, 520, 2000, 2500)]
    flows, notes = flows_of(first + message(a_set(256, b"".join([*long, *others, b"\0" * 3]))))
    assert [(one.key[:2], one.start_s, one.end_s, round(one.bytes)) for one in flows] == [
        (("10.0.0.2", "10.0.0.3"), 1.0, 90.0, round(45_000 * PAYLOAD_SHARE)),
        (("10.0.0.4", "10.0.0.5"), 2.0, 2.5, 1448),
    ]
    assert notes == [
        "1 records of acknowledgements were left out",
        "1 records continue earlier ones of the same flow and were added to them",
    ]


def test_sampling_rates_of_options_scale_the_bytes() -> None:
    options = struct.pack(">HHH", 257, 2, 1) + struct.pack(">HHHH", 149, 4, 305, 4)
    rate = message(a_set(3, options), a_set(257, struct.pack(">II", 1, 100)), a_set(2, template(256, PROTOCOL_FIELDS)))
    data = a_set(256, flow(2, 3, 1500, 0, 1000, packets=1))
    flows, notes = flows_of(rate + message(data))
    assert flows[0].bytes == pytest.approx(144_800) and "1 in 100" in notes[0]
    other = message(a_set(2, template(256, PROTOCOL_FIELDS)), data, domain=9)
    assert flows_of(rate + other)[0][0].bytes == pytest.approx(1448), "a domain has a sampling rate of its own"


def test_times_lengths_and_fields_of_enterprises_may_differ() -> None:
    fields = struct.pack(">HH", 256, 5) + struct.pack(">HHHHHHHH", 8, 4, 12, 4, 85, 4, 154, 8)
    fields += struct.pack(">HHI", 0x8000 | 77, 0xFFFF, 42)
    ntp = (2_208_988_800 + 100) << 32 | 1 << 31
    record = struct.pack(">4B4BIQ", 10, 0, 0, 2, 10, 0, 0, 3, 1500, ntp) + b"\x03abc"
    found = flows_of(message(a_set(2, fields), a_set(256, record)))
    assert found == ([], ["1 records without IPv4 addresses, bytes or times were left out"]), "there is no end"
    both = struct.pack(">HH", 256, 5) + struct.pack(">HHHHHHHHHH", 8, 4, 12, 4, 1, 4, 154, 8, 155, 8)
    record = struct.pack(">4B4BIQQ", 10, 0, 0, 2, 10, 0, 0, 3, 1500, ntp, ntp + (1 << 32))
    (one,), _ = flows_of(message(a_set(2, both), a_set(256, record)))
    assert (one.start_s, one.end_s) == (100.5, 101.5)


def test_numbers_that_are_too_long_are_left_out() -> None:
    fields = struct.pack(">HH", 256, 5) + struct.pack(">HHHHHHHHHH", 8, 4, 12, 4, 1, 200, 152, 8, 153, 8)
    record = struct.pack(">4B4B", 10, 0, 0, 2, 10, 0, 0, 3) + b"\xff" * 200 + struct.pack(">QQ", 1, 2)
    assert flows_of(message(a_set(2, fields), a_set(256, record)))[0] == []


def pcap(*datagrams: tuple[float, bytes], port: int = 6343) -> bytes:
    content = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for at_s, payload in datagrams:
        udp = struct.pack(">HHHH", 50_000, port, 8 + len(payload), 0) + payload
        ip = struct.pack(">BBHHHBBH8B", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, 192, 168, 0, 1, 192, 168, 0, 2) + udp
        frame = b"\0" * 12 + b"\x08\x00" + ip
        content += struct.pack("<IIII", int(at_s), int(at_s % 1 * 1e6), len(frame), len(frame)) + frame
    return content


def datagram(*packets: tuple[int, int, int], rate: int = 1000) -> bytes:
    """A datagram of sFlow with samples of packets: source, destination and length."""
    samples = b""
    for src, dst, length in packets:
        header = b"\0" * 12 + b"\x81\x00\x00\x07\x08\x00"
        header += struct.pack(">BBHHHBBH8BHH", 0x45, 0, length, 0, 0, 64, 6, 0, 10, 0, 0, src, 10, 0, 0, dst, 1000, 80)
        record = struct.pack(">IIII", 1, length, 4, len(header)) + header + b"\0" * (-len(header) % 4)
        body = struct.pack(">IIIIIIII", 1, 0, rate, 0, 0, 1, 2, 1) + struct.pack(">II", 1, len(record)) + record
        samples += struct.pack(">II", 1, len(body)) + body
    return struct.pack(">II4BIIII", 5, 1, 10, 9, 9, 9, 0, 1, 0, len(packets)) + samples


def test_samples_of_sflow_become_flows() -> None:
    content = pcap((10.0, datagram((2, 3, 1518), (4, 5, 1518))), (12.5, datagram((2, 3, 1518), (3, 2, 70))))
    flows, notes = flows_of(content)
    assert [(one.key[:2], one.start_s, one.end_s, round(one.bytes)) for one in flows] == [
        (("10.0.0.2", "10.0.0.3"), 10.0, 12.5, 2 * 1448 * 1000),
        (("10.0.0.4", "10.0.0.5"), 10.0, 10.0, 1448 * 1000),
    ]
    assert "1 in 1000" in notes[0] and "1 records of acknowledgements" in notes[1]


def test_ipfix_in_a_pcap_file_is_that_of_a_file() -> None:
    parts = [message(a_set(2, template(256, PROTOCOL_FIELDS))), message(a_set(256, flow(2, 3, 1500, 0, 1000)))]
    assert flows_of(pcap(*((1.0, part) for part in parts), port=4739)) == flows_of(b"".join(parts))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    whole = message(a_set(2, template(256, PROTOCOL_FIELDS)))
    for content, words in [
        (whole[:-1], "bytes expected at byte"),
        (whole + b"\x00\x09\x00\x10" + b"\0" * 12, "has version 9"),
        (whole, "has no flows"),
        (pcap((1.0, datagram((2, 3, 1518))))[:-4], "is not complete"),
        (b"\x0a\x0d\x0d\x0a" + b"\0" * 40, "editcap"),
    ]:
        path = tmp_path / "flows"
        path.write_bytes(content)
        with pytest.raises(PathloomError, match=words):
            read_records(path)


WHOLE = [
    message(a_set(2, template(256, PROTOCOL_FIELDS)), a_set(256, flow(2, 3, 1500, 0, 1000) * 3)),
    pcap((10.0, datagram((2, 3, 1518), (4, 5, 1518)))),
]


@settings(max_examples=300, deadline=None)
@given(
    which=st.sampled_from(WHOLE),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    length=st.integers(0, 400),
)
def test_no_bytes_break_the_readers(which: bytes, changes: list[tuple[int, int]], length: int) -> None:
    content = bytearray(which[: max(length, 4)])
    for place, value in changes:
        if 4 <= place < len(content):
            content[place] = value
    try:
        flows, _ = flows_of(bytes(content))
    except Damaged:
        return
    assert all(one.bytes >= 0 and one.end_s >= one.start_s for one in flows)


@given(content=st.binary(max_size=200))
def test_messages_of_any_bytes_are_refused_or_read(content: bytes) -> None:
    for start in (b"", b"\x00\x0a", message()[:16], pcap()[:24]):
        try:
            flows_of(start + content)
        except Damaged:
            continue


def test_a_fork_of_an_ipfix_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flows = [flow(2, 130, 150_000, 1000 + 100 * number, 1050 + 100 * number) for number in range(40)]
    (tmp_path / "flows.ipfix").write_bytes(
        message(a_set(2, template(256, PROTOCOL_FIELDS)), a_set(256, b"".join(flows)))
    )
    records, notes = read_records(tmp_path / "flows.ipfix")
    fork = fork_of_records(records, Fabric("fat-tree:k=4"), "ecmp", 3.0, None, notes)
    assert fork.arrivals.flows_per_s > 0
    asked = ["twin", "fork", "--records", "flows.ipfix", "--fabric", "fat-tree:k=4", "--at", "3s", "--out", "f.plf"]
    assert carry_out(asked) == 0
    assert read_fork(tmp_path / "f.plf").source["kind"] == "records"
