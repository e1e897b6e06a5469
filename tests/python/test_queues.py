"""The counters of queues, as the kernel describes them."""

from __future__ import annotations

import struct

from pathloom.lab.queues import messages, pfifo_counts


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def qdisc(name: bytes, packets64: int | None = None) -> bytes:
    """The description of a qdisc of interface 7: 5 GB and 3 packets sent, 2 packets dropped, 4 waiting."""
    basic = attribute(1, struct.pack("=QI4x", 5_000_000_000, 3))
    queue = attribute(3, struct.pack("=IIIII", 4, 6000, 2, 0, 9))
    wide = attribute(8, struct.pack("=Q", packets64)) if packets64 is not None else b""
    stats = attribute(0x8000 | 7, basic + wide + queue)
    return struct.pack("=BxxxiIII", 0, 7, 0x100000, 0x10001, 2) + attribute(1, name + b"\0") + attribute(2, b"") + stats


def test_the_counters_of_a_queue_are_read() -> None:
    assert pfifo_counts(qdisc(b"pfifo")) == (7, (5_000_000_000, 3, 2, 4))
    assert pfifo_counts(qdisc(b"pfifo", 1 << 40)) == (7, (5_000_000_000, 1 << 40, 2, 4))
    assert pfifo_counts(qdisc(b"htb")) is None


def test_several_messages_in_a_datagram_are_told_apart() -> None:
    parts = [(36, b"first"), (36, b"second12"), (3, b"")]
    data = b"".join(
        struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body + bytes(-len(body) % 4) for kind, body in parts
    )
    assert list(messages(data)) == parts


def test_cut_messages_give_nothing_or_the_same() -> None:
    whole = qdisc(b"pfifo")
    for length in range(len(whole)):
        assert pfifo_counts(whole[:length]) in (None, pfifo_counts(whole))
    one = struct.pack("=IHHII", 16 + len(whole), 36, 2, 1, 0) + whole
    for length in range(len(one)):
        assert list(messages(one[:length])) == []
    assert list(messages(struct.pack("=IHHII", 3, 36, 2, 1, 0))) == []
