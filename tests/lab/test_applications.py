"""Real applications: unlabelled flows, both directions, silent times, and connections from before the scheme."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from live import Live, alive, listens, permutation, run_on, until
from pathloom.lab import system
from support import PATIENCE_S, measured, unmanaged_bps

K4 = "fat-tree:k=4,rate=10Mbps,buffer=150"
PAYLOAD_MBPS = 10 * 1448 / 1514
"""Payload rate of TCP over a link of 10 Mbit/s."""
SINK = """
import socket, sys
door = socket.create_server(("", int(sys.argv[1])))
one, _ = door.accept()
while one.recv(1 << 16):
    pass
"""
TALKER = """
import socket, sys, time
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for seconds, send in ((1, True), (float(sys.argv[3]), False), (8, True)):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if send:
            line.sendall(bytes(30_000))
        time.sleep(0.05)
"""


def iperf3(live: Live, host: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts iperf3 on a host."""
    chosen = next(one for one in live.blueprint.hosts if one.name == host)
    command = ["ip", "netns", "exec", chosen.namespace, "iperf3", "--json", *arguments]
    environment = {**os.environ, system.MARK: str(live.lab.directory)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def address_of(live: Live, host: str) -> str:
    """Returns the address of a host."""
    return next(one.ports[0].address for one in live.blueprint.hosts if one.name == host)


def carried_mbps(live: Live, seconds: int, after_s: int, reverse: bool) -> float:
    """Returns the total rate of eight connections across the fabric from `after_s` on."""
    pairs = permutation(live, 8)
    servers = [iperf3(live, target, "-s", "-1") for _, target in pairs]
    for _, target in pairs:
        listens(live.blueprint, target, 5201)
    more = ["-R"] if reverse else []
    words = ["-t", str(seconds), "-i", "1", *more]
    clients = [iperf3(live, source, "-c", address_of(live, target), *words) for source, target in pairs]
    total = 0.0
    for client in clients:
        said = json.loads(client.communicate(timeout=seconds + PATIENCE_S)[0])
        late = [one["sum"]["bits_per_second"] for one in said["intervals"] if one["sum"]["start"] >= after_s - 0.5]
        total += sum(late) / max(1, len(late)) / 1e6
    for server in servers:
        server.communicate(timeout=PATIENCE_S)
    return total


LONG = pytest.mark.long


@pytest.mark.parametrize("reverse", [True, pytest.param(False, marks=LONG)], ids=["down", "up"])
def test_unlabelled_connections_get_paths_of_their_own(name: str, reverse: bool) -> None:
    with alive(name, K4, "ofpt") as live:
        pairs = permutation(live, 8)
        servers = [iperf3(live, target, "-s", "-1") for _, target in pairs]
        for _, target in pairs:
            listens(live.blueprint, target, 5201)
        words = ["-t", "600", *(["-R"] if reverse else [])]
        clients = [iperf3(live, source, "-c", address_of(live, target), *words) for source, target in pairs]
        senders = {address_of(live, target if reverse else source) for source, target in pairs}

        def found() -> bool:
            lines = [line for line in live.rules_of("tcp") if "5201" in line]
            return all(any(f"nw_src={one}," in line for line in lines) for one in senders)

        until(found, "a rule for each connection")
        for process in [*clients, *servers]:
            process.kill()
            process.communicate()


@pytest.mark.measure
@pytest.mark.parametrize(
    ("scheme", "reverse"),
    [
        pytest.param("hedera:period=2s", False, id="hedera-up", marks=LONG),
        pytest.param("hedera:period=2s", True, id="hedera-down", marks=LONG),
        pytest.param("ofpt", False, id="ofpt-up", marks=LONG),
        pytest.param("ofpt", True, id="ofpt-down"),
        pytest.param("lessor", False, id="lessor-up", marks=LONG),
        pytest.param("lessor", True, id="lessor-down", marks=LONG),
    ],
)
def test_rate_of_unlabelled_connections_under_a_scheme(name: str, scheme: str, reverse: bool) -> None:
    with alive(name, K4, scheme) as live:
        carried = carried_mbps(live, 20, 14, reverse)
        control = 8 * unmanaged_bps(PAYLOAD_MBPS * 1e6) / 1e6
        what = f"8 x iperf3{' -R' if reverse else ''} under {scheme}"
        measured(what, "Mbit/s", carried, control, "8 times iperf3 over loopback at the rate of a link")


@pytest.mark.long
def test_a_connection_is_found_again_after_a_silence(name: str) -> None:
    with alive(name, K4, "hedera:period=1s", more="[control]\nidle_timeout_s = 3\n[flows]\nsweep = '2s'\n") as live:
        (source, target), *_ = permutation(live, 1)
        sink = run_on(live, target, SINK, "7000")
        listens(live.blueprint, target, 7000)
        talker = run_on(live, source, TALKER, address_of(live, target), "7000", "7")
        own = "tp_dst=7000"
        # The program sends for 1 s, is silent for 7 s, and sends for 8 s. A rule that comes later is not found.
        until(lambda: any(own in line for line in live.rules_of("tcp")), "its rule")
        until(lambda: not any(own in line for line in live.rules_of("tcp")), "its rule gone")
        until(lambda: any(own in line for line in live.rules_of("tcp")), "its rule again")
        for process in (talker, sink):
            process.kill()
            process.communicate()


@pytest.mark.long
def test_existing_connections_are_found_after_a_change_of_scheme(name: str) -> None:
    with alive(name, K4, "ecmp") as live:
        pairs = permutation(live, 4)
        servers = [iperf3(live, target, "-s", "-1") for _, target in pairs]
        for _, target in pairs:
            listens(live.blueprint, target, 5201)
        clients = [iperf3(live, source, "-c", address_of(live, target), "-t", "600") for source, target in pairs]
        time.sleep(3)
        assert live.rules_of("tcp") == [], "ecmp does not look for flows"
        live.configure("hedera:period=1s")
        assert live.process is not None
        live.process.send_signal(signal.SIGHUP)
        sources = {address_of(live, source) for source, _ in pairs}

        def found() -> bool:
            lines = live.rules_of("tcp")
            return all(any(f"nw_src={one}," in line and "tp_dst=5201" in line for line in lines) for one in sources)

        until(found, "a rule for each connection")
        for process in [*clients, *servers]:
            process.kill()
            process.communicate()
