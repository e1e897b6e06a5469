"""Streams of transfers in the lab: how they are spread over paths, and how they divide a transfer."""

from __future__ import annotations

import socket

import pytest

import pathloom as pl
from pathloom.lab.parallel import StreamSettings
from pathloom.lab.transfers import BLOCK_BYTES, CHUNK_BYTES, Transfer, window_bytes

FABRIC = "parallel-paths:rates=50Mbps/10Mbps/30Mbps,delays=1ms/20ms/3ms,host_rate=100Mbps"
ROWS = [
    {"rate_bps": 50e6, "round_trip_s": 0.002},
    {"rate_bps": 10e6, "round_trip_s": 0.04},
    {"rate_bps": 30e6, "round_trip_s": 0.006},
]
"""The paths of the fabric as the controller describes them."""


@pytest.mark.parametrize(
    "keys", ["policy=single", "policy=round-robin", "policy=optimal,a=0.01", "ratio=1/3/1", "ratio=0/2", "paths=2"]
)
def test_streams_take_the_paths_that_they_take_in_the_simulator(keys: str) -> None:
    scheme = f"parallel-tcp:paths=3,streams=7,{keys}" if "paths" not in keys else f"parallel-tcp:streams=7,{keys}"
    settings = StreamSettings.of_scheme(scheme)
    assert settings is not None
    result = pl.compare(fabric=FABRIC, traffic="long-lived", schemes=[scheme], duration="300ms", runs=1)
    flow = result.subflows.filter(result.subflows["flow"] == 0).sort("subflow")
    simulated = [path.split()[2] for path in flow["path"].to_list()]
    spread = settings.spread(ROWS[: settings.paths_requested])
    assert len(spread) == 7
    assert [f"c{path}" for path in spread] == simulated


def transfer(size: int | None, streams: int = 0) -> Transfer:
    spec = {"src_address": "10.0.0.1", "dst_address": "10.0.1.1", "size_bytes": size}
    made = Transfer(0, spec, 0)
    made.streams = [Transfer(0, spec, 0, whole=made) for _ in range(streams)]
    return made


def test_a_stream_takes_the_next_block_when_it_has_sent_its_last() -> None:
    whole = transfer(2 * BLOCK_BYTES + 100, 2)
    fast, slow = whole.streams
    assert [fast.room(), slow.room()] == [BLOCK_BYTES, BLOCK_BYTES]
    fast.sent += BLOCK_BYTES - 1
    assert fast.room() == 1
    fast.sent += 1
    assert fast.room() == 100
    fast.sent += 100
    assert [fast.room(), slow.room(), whole.taken] == [0, BLOCK_BYTES, 2 * BLOCK_BYTES + 100]
    for part, count in ((fast, BLOCK_BYTES + 100), (slow, BLOCK_BYTES - 1)):
        part.note_received(count)
    assert not whole.delivered
    slow.note_received(1)
    assert (whole.delivered, whole.received, slow.received) == (True, 2 * BLOCK_BYTES + 100, BLOCK_BYTES)


def test_a_long_lived_transfer_has_blocks_without_end() -> None:
    whole = transfer(None, 1)
    (stream,) = whole.streams
    for _ in range(3):
        stream.sent += stream.room()
    assert (stream.sent, whole.delivered) == (3 * BLOCK_BYTES, False)
    single = transfer(None)
    assert (single.room(), single.connections) == (CHUNK_BYTES, [single])


def test_a_row_sums_what_the_streams_counted() -> None:
    whole = transfer(100, 2)
    whole.streams[0].src_port, whole.streams[0].dst_port = 40_000, 5001
    for number, stream in enumerate(whole.streams):
        stream.retransmits, stream.timeouts, stream.packets = number, 2 * number, 10 + number
    row = whole.row()
    assert [row[name] for name in ("src_port", "dst_port", "retransmits", "timeouts", "packets")] == [
        40_000, 5001, 1, 2, 21,
    ]  # fmt: skip
    whole.streams[1].timeouts = None
    assert whole.row()["timeouts"] is None


def test_windows_of_streams_are_added() -> None:
    whole = transfer(None, 2)
    for stream in whole.streams:
        stream.sender = socket.socket()
    single = transfer(None)
    single.sender = whole.streams[0].sender
    try:
        assert window_bytes(whole) == 2 * window_bytes(single) > 0
        assert window_bytes(transfer(None)) == 0
    finally:
        for stream in whole.streams:
            assert stream.sender is not None
            stream.sender.close()
