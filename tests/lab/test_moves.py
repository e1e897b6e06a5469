"""Seamless flow migration on real switches: the diamond of OFPT's Fig. 10, where a flow moves there and back.

Controller and scheme are those of the simulator. The same test there is `PATHLOOM_TEST_SCHEMES=1 pathloom run --scheme
move:period=200ms,times=100`.
"""

from __future__ import annotations

import json
import time

import pytest

from live import Live, alive, finish, listens, run_on, spoil
from pathloom.lab.probes import summary
from support import call, figures, measured

DIAMOND = "diamond:hosts=1,rate=10Mbps,buffer=1000"
PAIR = ("h0", "h1")
FRAME_BYTES = 1514
"""Frame of a UDP packet with 1472 bytes, and of a full TCP segment without MPTCP."""

SENDER = """
import json, socket, struct, sys, time
seconds, rate = float(sys.argv[1]), int(sys.argv[2])
door = socket.socket()
door.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8 << 2)
if rate:
    door.setsockopt(socket.SOL_SOCKET, 47, rate)
door.connect(("10.0.1.1", 5001))
info = lambda: door.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
end, sent = time.time() + seconds, 0
door.settimeout(5)
while time.time() < end:
    sent += door.send(bytes(1 << 14))
data = info()
row = {"sent_bytes": sent, "retransmits": struct.unpack_from("=I", data, 100)[0],
       "timeouts": struct.unpack_from("=H", data, 240)[0] if len(data) >= 242 else None}
print(json.dumps(row))
"""
RECEIVER = """
import socket
door = socket.create_server(("", 5001))
peer, _ = door.accept()
while peer.recv(1 << 16):
    pass
"""


@pytest.mark.parametrize(
    ("times", "migration"),
    [
        (20, "sfmm"),
        pytest.param(100, "sfmm", marks=pytest.mark.long),
        pytest.param(100, "tagged", marks=pytest.mark.long),
    ],
)
def test_udp_loses_nothing_in_moves(name: str, times: int, migration: str) -> None:
    scheme = f"move:period=200ms,times={times},migration={migration}"
    with alive(name, DIAMOND, scheme) as live:
        live.kill()
        with live.probes([PAIR], payload_bytes=FRAME_BYTES - 42) as probes:
            live.configure(scheme)
            live.launch()
            seen = {tuple(path) for path in watch(live, times * 0.2 + 2)}
            tracks = probes.stop()
        figures(f"{times} moves of UDP, {migration}", **summary(tracks))
        assert not spoil(tracks)
        assert sum(track.duplicated for track in tracks) == 0
        # Rules are read from one switch after another, so a move may come between. Then they lead to no host.
        hosts = {host.node for host in live.blueprint.hosts}
        whole = {path for path in seen if live.links["target"][path[-1]] in hosts}
        assert len(whole) == 2, f"the flow went by {seen}"


def watch(live: Live, seconds: float) -> list[list[int]]:
    """Returns the paths of the flow that are seen during a time."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        for rules in live.flow_rules().values():
            path = live.path(rules, PAIR[0])
            found += [path] if len(path) > 1 else []
        time.sleep(0.05)
    return found


def tcp(name: str, scheme: str, seconds: float, rate_bytes: int) -> dict[str, int]:
    """Runs a labelled connection over the diamond for a time. Returns the counts of its kernel."""
    with alive(name, DIAMOND, scheme) as live:
        receiver = run_on(live, "h1", RECEIVER)
        listens(live.blueprint, "h1", 5001)
        sender = run_on(live, "h0", SENDER, str(seconds), str(rate_bytes))
        row: dict[str, int] = json.loads(finish(sender, seconds + 20))
        receiver.kill()
        receiver.communicate()
        return row


@pytest.mark.measure
@pytest.mark.parametrize("moves_wanted", [15, pytest.param(100, marks=pytest.mark.long)])
def test_tcp_with_an_empty_queue_retransmits_nothing_because_of_a_move(name: str, moves_wanted: int) -> None:
    seconds = moves_wanted * 0.2 + 1
    still = tcp(name, "move:period=1h", seconds, rate_bytes=500_000)
    assert call("down", "--name", name).code == 0
    row = tcp(name, f"move:period=200ms,times={moves_wanted}", seconds, rate_bytes=500_000)
    what = f"retransmitted segments in {moves_wanted} moves, queue empty"
    measured(what, "segments", row["retransmits"], still["retransmits"], "no move")


@pytest.mark.measure
@pytest.mark.parametrize("moves_wanted", [8, pytest.param(100, marks=pytest.mark.long)])
def test_tcp_with_a_full_queue_has_no_time_out_because_of_a_move(name: str, moves_wanted: int) -> None:
    seconds = moves_wanted * 0.4 + 1
    still = tcp(name, "move:period=1h", seconds, rate_bytes=0)
    assert call("down", "--name", name).code == 0
    row = tcp(name, f"move:period=400ms,times={moves_wanted}", seconds, rate_bytes=0)
    for key, unit in (("sent_bytes", "bytes"), ("retransmits", "segments"), ("timeouts", "time-outs")):
        measured(f"{key} in {moves_wanted} moves, queue full", unit, row[key], still[key], "no move")
