"""Malicious hosts and switches are limited and named in the log, and all others are not affected."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live import CABLE, K4, QUIET, Live, alive, finish, permutation, run_on, spoil, until
from pathloom.fabrics import Fabric
from pathloom.lab import controller, management, system
from pathloom.lab.probes import LABEL_DSCP, summary
from pathloom.native import program
from support import Outcome, figures

LabCommand = Callable[..., Outcome]
PORT = "6653"


@contextmanager
def undisturbed(live: Live, what: str, skip: int = 1) -> Iterator[list[list[int]]]:
    """Checks that probes between other hosts lose nothing inside the block, and that the controller does not end.

    Yields the paths of the probes.
    """
    pairs = permutation(live, 8)[skip:]
    with live.probes(pairs) as probes:
        yield live.await_paths(pairs)
        assert live.process is not None
        assert live.process.poll() is None, live.log()[-2000:]
        tracks = probes.stop()
        figures(what, **summary(tracks))
        assert not spoil(tracks)


def test_a_fabric_is_up_discovered_and_forwarding_without_arp_entries(lab: LabCommand, name: str) -> None:
    reach = "import socket; socket.create_connection(('h15', 7), 5)"
    answer = "import socket; s = socket.create_server(('', 7)); s.accept()"
    up = lab("up", K4, "--controller", "pathloom", "--arp", "proxy")
    assert (up.code, up.err) == (0, "")
    started = time.monotonic()
    server = subprocess.Popen(
        [sys.executable, "-m", "pathloom", "lab", "exec", "h15", "--name", name, "--", "python3", "-c", answer]
    )
    until(lambda: lab("exec", "h0", "--", "python3", "-c", reach).code == 0, "h0 reaches h15")
    figures("k=4 with ARP proxy", up_s=round(up.took_s, 2), connected_s=round(time.monotonic() - started, 2))
    assert server.wait(60) == 0
    found = lab("exec", "h0", "--", "ip", "neighbour").out.splitlines()
    # The cable to the controller is not part of the fabric, and has a static entry.
    neighbours = "\n".join(line for line in found if f"dev {management.INTERFACE} " not in line)
    assert "PERMANENT" not in neighbours
    assert "10.0.7.2" in neighbours


@pytest.mark.long
def test_a_host_that_claims_the_address_of_another_is_ignored_and_named(name: str) -> None:
    code = """
import socket, time
door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
door.bind(("eth0", 0))
mine, victim, to = bytes.fromhex("020000001601"), bytes([10, 0, 7, 2]), bytes([10, 0, 3, 1])
for operation, target in ((2, b"\\xff" * 6), (1, bytes(6))):
    head = b"\\xff" * 6 + mine + bytes.fromhex("0806000108000604") + bytes([0, operation])
    frame = head + mine + victim + target + to
    for _ in range(50):
        door.send(frame + bytes(18))
        time.sleep(0.01)
"""
    with alive(name, K4, QUIET, arp="proxy") as live:
        with undisturbed(live, "ARP spoofing", skip=2):
            # h6 asks for h15 first, so that it has an entry that could be poisoned.
            pairs = [("h6", "h15")]
            with live.probes(pairs, first_port=21_000, rate_hz=200) as probes:
                time.sleep(1)
                finish(run_on(live, "h1", code))
                (track,) = probes.stop()
        assert track.sent - track.lost > 100
        live.await_log("claims 10.0.7.2")
        neighbours = subprocess.run(
            ["ip", "-n", live.blueprint.hosts[6].namespace, "neighbour"], capture_output=True, text=True, check=True
        ).stdout
        victim = live.blueprint.hosts[15].ports[0].mac
        assert f"10.0.7.2 dev eth0 lladdr {victim}" in neighbours


def test_a_host_that_opens_flows_as_fast_as_it_can_disturbs_no_other(name: str) -> None:
    code = """
import socket, time
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
door.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8 << 2)
end, number = time.time() + 3, 0
while time.time() < end:
    try:
        door.sendto(b"x", ("10.0.7.1", 1024 + number % 60000))
    except OSError:
        pass
    number += 1
print(number)
"""
    # Open vSwitch always sends more packet-ins per second than this limit.
    with alive(name, K4, QUIET, more="[limits]\npacket_ins_per_port = 200") as live:
        seen = len(live.log())
        with undisturbed(live, "a host that opens flows"):
            figures("a host that opens flows", per_s=int(finish(run_on(live, "h0", code))) / 3)
        live.await_log("a port sends too many packets", since=seen)


@pytest.mark.parametrize("dscp", [LABEL_DSCP, pytest.param(0, marks=pytest.mark.long)], ids=["labelled", "unlabelled"])
def test_udp_flows_are_found_placed_and_metered(name: str, dscp: int) -> None:
    with alive(name, K4, "ofpt:headroom=0.5,period=2s") as live:
        pairs = permutation(live, 2)
        # 1.5 times the rate of half a link.
        with live.probes(pairs, rate_hz=620, payload_bytes=1458, dscp=dscp) as probes:
            live.await_paths(pairs)
            time.sleep(4)
            meters = live.switches.dump("dump-meters")
            rules = [line for lines in live.switches.dump("dump-flows").values() for line in lines if "meter" in line]
            tracks = probes.stop()
        shares = [round(1 - track.lost / track.sent, 3) for track in tracks]
        figures(f"meters, dscp {dscp}", meters=sum(map(len, meters.values())), rules=len(rules), arrived=shares)
        assert len(rules) == len(pairs)
        assert "refused" not in live.log()


def test_a_survey_describes_the_existing_fabric(name: str, tmp_path: Path) -> None:
    live = Live(name, K4, QUIET, arp="proxy", address=True)
    survey = [program(), "survey", controller.ADDRESS, f"link:{CABLE}"]
    environment = {**os.environ, system.MARK: str(live.lab.directory)}
    command = ["ip", "netns", "exec", live.blueprint.namespace, *survey]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    # The survey prints what it waits for before any switch has connected.
    first = [process.stderr.readline() for _ in range(2)]
    started = time.monotonic()
    # Hosts are found when they send: each asks for the next one until it gets an answer.
    names = [host.name for host in live.blueprint.hosts]
    with live.probes(list(zip(names, [*names[1:], names[0]], strict=True)), rate_hz=5):
        said, heard = process.communicate(timeout=60)
    assert process.returncode == 0, heard
    assert b"waiting: " in first[1], first
    figures("a survey of k=4", took_s=round(time.monotonic() - started, 1))
    file = tmp_path / "found.json"
    file.write_bytes(said)
    found, wanted = Fabric(str(file)), live.fabric
    columns = ("source", "source_port", "target", "target_port", "rate_bps", "buffer_packets")
    ends = [
        {tuple(fabric.links[column][link] for column in columns) for link in range(len(fabric.links["source"]))}
        for fabric in (found, wanted)
    ]
    assert ends[0] == ends[1]
    assert [node["tier"] for node in found.nodes] == [node["tier"] for node in wanted.nodes]
