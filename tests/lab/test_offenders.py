"""Malicious hosts and switches are limited and named in the log, and all others are not affected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from live import CABLE, HERE, K4, QUIET, Live, alive, finish, permutation, run_on, spoil, until
from machine import timing
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


def rogue(live: Live, how: str, seconds: float, *more: str) -> dict[str, int]:
    """Lets a malicious switch connect from the namespace of the switches. Returns its counts."""
    command = ["ip", "netns", "exec", live.blueprint.namespace, sys.executable, str(HERE / "rogue.py"), PORT, how]
    environment = {**os.environ, system.MARK: str(live.lab.directory)}
    done = subprocess.run(
        [*command, str(seconds), *more], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


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
    with timing():
        assert up.took_s < 10


def test_discovery_confirms_the_cabling_and_names_wrong_cables(name: str) -> None:
    with alive(name, K4, QUIET) as live:
        live.await_log("every cable is as configured")
        # Uplinks of ToRs in two pods are swapped: each leads to a switch that is not a configured neighbour.
        switches = {switch.node: switch for switch in live.blueprint.switches}
        pods = {node: switch.name.split("_")[0] for node, switch in switches.items()}
        first = next(port for port in live.blueprint.switch_ports if port.switch == 0 and port.number > 2)
        second = next(
            port
            for port in live.blueprint.switch_ports
            if pods[port.switch].startswith("e")
            and pods[port.switch] != pods[0]
            and port.number == first.number
            and port.namespace == first.namespace
        )
        swap = ["del-port", switches[first.switch].bridge, first.interface]
        swap += ["--", "del-port", switches[second.switch].bridge, second.interface]
        for here, there in ((first, second), (second, first)):
            swap += ["--", "add-port", switches[here.switch].bridge, there.interface]
            swap += ["--", "set", "Interface", there.interface, f"ofport_request={here.number}"]
        seen = len(live.log())
        live.switches.daemon_of(switches[first.switch].bridge).vsctl(swap)
        live.await_log("it belongs to", 4, since=seen)
        live.await_log("it is not used", 2, since=seen)


def test_forged_lldp_from_a_host_makes_no_link_and_is_named(name: str) -> None:
    code = """
import socket, sys, time
door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
door.bind(("eth0", 0))
head = bytes.fromhex("0180c200000e020000001501") + b"\\x88\\xcc"
text = lambda kind, value: ((kind << 9) | (len(value) + 1)).to_bytes(2, "big") + b"\\x07" + value
whence = time.time_ns().to_bytes(8, "big") + (2).to_bytes(8, "big") + (1).to_bytes(4, "big")
ours = bytes.fromhex("524c4d0101") + bytes(8) + whence
own = ((127 << 9) | (len(ours) + 16)).to_bytes(2, "big") + ours + bytes(16)
frame = head + text(1, b"0000000000000002") + text(2, b"1") + bytes.fromhex("06020004") + own + bytes(2)
end = time.time() + 3
while time.time() < end:
    door.send(frame)
    time.sleep(0.002)
"""
    with alive(name, K4, QUIET) as live:
        live.await_log("every cable is as configured")
        seen = len(live.log())
        with undisturbed(live, "forged LLDP"):
            finish(run_on(live, "h0", code))
        assert "port 1" in live.await_log("claims to be a probe", since=seen)
        live.await_log("sends more LLDP than a port is allowed to", since=seen)
        assert "cabling:" not in live.log()[seen:]
        assert len([line for line in live.log()[seen:].splitlines() if "WARN" in line]) < 10


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


def test_ports_that_flap_100_times_a_second_are_held_back_and_named(name: str) -> None:
    with alive(name, K4, QUIET) as live:
        live.await_log("every cable is as configured")
        # A rogue switch replaces the first ToR and reports a flapping port; no probe passes it.
        tor = next(switch for switch in live.blueprint.switches if switch.node == 0)
        live.disconnect(tor.bridge)
        time.sleep(1)
        seen = len(live.log())
        pairs = permutation(live, 8)[2:]
        with live.probes(pairs) as probes, ThreadPoolExecutor(1) as beside:
            # A cable that no flow uses flaps too, as often as the kernel can.
            used = {min(link, link ^ 1) for path in live.await_paths(pairs) for link in path}
            far = {host.node for host in live.blueprint.hosts} | {tor.node}
            ends = zip(live.links["source"], live.links["target"], strict=True)
            between = [link for link, both in enumerate(ends) if not far & set(both)]
            idle = next(link for link in between if link % 2 == 0 and link not in used)
            flaps = beside.submit(live.flap, idle, 100, 4)
            before_s = cpu_s(live)
            counts = rogue(live, "flap", 4, tor.dpid, "3")
            used_s = cpu_s(live) - before_s
            tracks = probes.stop()
        per_s = {"port_per_s": counts["sent"] / 2 / 4, "cable_per_s": flaps.result() / 4}
        figures("ports that flap", **per_s, busy_share=round(used_s / 5, 3), **summary(tracks))
        assert counts["sent_away"] == 0
        assert not spoil(tracks)
        live.await_log("times in a row; must stay up", 2, since=seen)
        assert len(live.log()[seen:].splitlines()) < 100
        assert live.process is not None
        assert live.process.poll() is None
        with timing():
            assert counts["sent"] / 2 / 4 > 95


def test_100_000_packets_a_second_from_one_port_are_limited(name: str) -> None:
    with alive(name, K4, QUIET) as live:
        # A rogue switch replaces the first ToR and sends far too many packet-ins; no probe passes it.
        tor = next(switch for switch in live.blueprint.switches if switch.node == 0)
        live.disconnect(tor.bridge)
        time.sleep(1)
        seen = len(live.log())
        pairs = permutation(live, 8)[2:6]
        with live.probes(pairs) as probes:
            time.sleep(1)
            before_s = cpu_s(live)
            counts = rogue(live, "flood", 3, tor.dpid, "1")
            used_s = cpu_s(live) - before_s
            tracks = probes.stop()
        figures("flood", per_s=counts["sent"] / 3, busy_share=round(used_s / 4, 3), **summary(tracks))
        assert not spoil(tracks)
        live.await_log("a port sends too many packets", since=seen)
        assert len(live.log()[seen:].splitlines()) < 100
        with timing():
            assert counts["sent"] > 60_000
            assert used_s < 2


def cpu_s(live: Live) -> float:
    """Returns the processor time of the controller, in seconds."""
    assert live.process is not None
    fields = Path(f"/proc/{live.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def test_invalid_messages_and_a_duplicate_switch_are_disconnected_and_named(name: str) -> None:
    with alive(name, K4, QUIET) as live:
        first = len(live.log())
        with undisturbed(live, "nonsense"):
            kinds = ("random", "mutated", "lengths")
            with ThreadPoolExecutor(len(kinds) + 1) as pool:
                double = pool.submit(rogue, live, "duplicate", 9, live.blueprint.switches[3].dpid)
                heard = list(pool.map(lambda how: rogue(live, how, 5), kinds))
            for how, counts in zip(kinds, heard, strict=True):
                figures(how, **counts)
                assert counts["connections"] > 3
                assert counts["sent_away"] > 0
            live.await_log("a connection is closed", len(kinds), since=first)
            assert double.result()["sent_away"] >= 2
            assert "connected from" in live.await_log("is connected from", since=first)
        # The sessions of the switches did not end.
        assert live.log()[first:].count("a session is up") == 0


@pytest.mark.parametrize("dscp", [LABEL_DSCP, 0], ids=["labelled", "unlabelled"])
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
        assert all(share < 0.95 for share in shares)


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
