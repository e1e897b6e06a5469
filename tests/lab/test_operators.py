"""What docs/operators.md says: frames of ordinary and unusual hosts, and how they are handled."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import frames
from frames import EVERYBODY, IPV4, UDP, all_arrive, arrivals, dhcp, frame, ipv4, mac_of, udp
from live import K4, QUIET, Live, alive, finish, run_on, until
from support import PATIENCE_S

TOKEN = "0123456789abcdef0123456789abcdef"
ECHO = """
import socket, sys
door = socket.create_server((sys.argv[1], 7))
print("ready", flush=True)
while True:
    there, _ = door.accept()
    # A client that lost its patience has closed the connection. The server goes on for the next attempt.
    there.settimeout(1)
    try:
        there.sendall(there.recv(100))
    except OSError:
        pass
    there.close()
"""
ASK = """
import socket, sys, time
end = time.time() + float(sys.argv[3])
while True:
    try:
        there = socket.create_connection((sys.argv[2], 7), 1, (sys.argv[1], 0))
        there.sendall(b"here")
        print(there.recv(100).decode())
        break
    except OSError as error:
        if time.time() > end:
            print(error)
            break
        time.sleep(0.1)
"""


def on(live: Live, host: str, *command: str) -> str:
    """Runs a command on a host."""
    namespace = next(one for one in live.blueprint.hosts if one.name == host).namespace
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, *command], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def talks(live: Live, source: tuple[str, str], target: tuple[str, str], patience_s: float = PATIENCE_S) -> str:
    """Opens a TCP connection from a host and address to another. Returns the answer, or the error."""
    with run_on(live, target[0], ECHO, target[1]) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            asking = run_on(live, source[0], ASK, source[1], target[1], str(patience_s))
            return finish(asking, patience_s + PATIENCE_S).strip()
        finally:
            server.kill()


def with_api(folder: Path) -> str:
    """Returns a configuration with the API."""
    tokens = folder / "tokens"
    tokens.write_text(f"read test {TOKEN}\n", encoding="ascii")
    tokens.chmod(0o600)
    return f'[api]\naddress = "127.0.0.1:6680"\ntokens = "{tokens}"'


def scrape(live: Live) -> str:
    """Returns the metrics that Prometheus would read."""
    code = f"""
import urllib.request
asked = urllib.request.Request("http://127.0.0.1:6680/metrics", headers={{"Authorization": "Bearer {TOKEN}"}})
print(urllib.request.urlopen(asked, timeout=60).read().decode())
"""
    done = subprocess.run(
        ["ip", "netns", "exec", live.blueprint.namespace, "python3", "-c", code],
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    return done.stdout


@pytest.fixture(scope="module")
def shared(module_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A lab for the tests of this module that need no other configuration."""
    with alive(module_name, K4, QUIET, arp="proxy", more=with_api(tmp_path_factory.mktemp("api"))) as live:
        live.await_log("every cable is as configured")
        yield live


@pytest.fixture
def live(shared: Live) -> Iterator[Live]:
    """The shared lab. A test must leave its rules, groups and meters as it finds them."""
    before = shared.state()
    yield shared
    until(lambda: shared.state() == before, "the rules are as before")


def test_frames_that_hosts_must_not_send_are_dropped_counted_and_named(live: Live) -> None:
    mine, theirs = mac_of(live, "h0"), mac_of(live, "h15")
    there = ipv4("10.0.0.1", "10.0.7.2", UDP, udp(1, 2, b"MARK"))
    assert all_arrive(live, "h0", frame(theirs, mine, IPV4, there), "h15", b"MARK")
    # Tags of single flows (2 to 65), of labels (66 to 4094), of priority alone (0), and of providers.
    tags = [(frames.VLAN, tag) for tag in (0, 1, 2, 65, 66, 4094)] + [(frames.SERVICE_VLAN, 7)]
    for tag in tags:
        assert arrivals(live, "h0", frame(theirs, mine, IPV4, there, tag), "h15", b"MARK", 5) == 0, tag
    twice = frame(theirs, mine, IPV4, there, (frames.SERVICE_VLAN, 7), (frames.VLAN, 66))
    assert arrivals(live, "h0", twice, "h15", b"MARK", 5) == 0
    everywhere = udp(5, 5, b"MARK")
    refused = {
        "ipv6": frame(theirs, mine, frames.IPV6, bytes.fromhex("6000000000083aff") + bytes(32) + b"MARKMARK"),
        "multicast": frame(bytes.fromhex("01005e0000fb"), mine, IPV4, ipv4("10.0.0.1", "224.0.0.251", UDP, everywhere)),
        "broadcast": frame(EVERYBODY, mine, IPV4, ipv4("10.0.0.1", "255.255.255.255", UDP, everywhere)),
        "no_route": frame(theirs, mine, IPV4, ipv4("10.0.0.1", "8.8.8.8", UDP, everywhere)),
        "other_protocol": frame(theirs, mine, frames.MPLS, b"MARK" + bytes(60)),
    }
    for kind, sent in refused.items():
        assert arrivals(live, "h0", sent, "h15", b"MARK", 5) == 0, kind
    # If no host has an address of a rack's prefix, the switch of that rack refuses packets for it.
    nobody = frame(theirs, mine, IPV4, ipv4("10.0.0.1", "10.0.7.99", UDP, everywhere))
    assert arrivals(live, "h0", nobody, "h15", b"MARK", 5) == 0
    said = {kind: live.await_log(f'what="{kind}"') for kind in ("vlan_tagged", *refused)}
    assert 'switch="e0_0" port=1' in said["vlan_tagged"]
    seen = len(live.log())
    for tor in ("e0_0", "e3_1"):
        line = f'switch="{tor}",kind="no_route"}} 5'
        until(lambda line=line: line in scrape(live), f"frames without a route are counted: {line}")  # type: ignore[misc]
    counted = scrape(live)
    assert 'pathloom_frames_refused_total{switch="e0_0",kind="vlan_tagged"} 40' in counted
    for kind in refused:
        assert f'switch="e0_0",kind="{kind}"' in counted
    # The log has one line, however many such frames arrive.
    flood = frame(theirs, mine, IPV4, there, (frames.VLAN, 66))
    assert arrivals(live, "h0", flood, "h15", b"MARK", 200) == 0
    until(lambda: 'kind="vlan_tagged"} 240' in scrape(live), "200 frames more are counted")
    assert "vlan_tagged" not in live.log()[seen:]


def test_fragments_and_other_protocols_use_the_default_routes(live: Live) -> None:
    mine, theirs = mac_of(live, "h0"), mac_of(live, "h15")
    for protocol in (1, frames.GRE, frames.ESP, frames.OSPF, frames.SCTP):
        sent = frame(theirs, mine, IPV4, ipv4("10.0.0.1", "10.0.7.2", protocol, b"MARK" + bytes(40)))
        assert all_arrive(live, "h0", sent, "h15", b"MARK"), protocol
    # Open vSwitch reports no ports for any fragment of a datagram, not even the first. Before, fragments seemed to
    # be a flow between two ports 0, and each was sent to the controller until that flow had a path.
    with live.probes([("h0", "h15")], rate_hz=100, payload_bytes=4000) as probes:
        time.sleep(2)
        assert live.flow_rules() == {}
        (track,) = probes.stop()
    assert track.sent > 100
    assert track.lost == 0


def test_any_address_is_learnt_at_any_port_and_may_move(name: str) -> None:
    with alive(name, K4, QUIET, arp="proxy") as live:
        # A second address in the fabric's prefix, and addresses of another network, several of them at one port.
        on(live, "h15", "ip", "address", "add", "10.0.7.77/8", "dev", "eth0")
        assert talks(live, ("h0", "10.0.0.1"), ("h15", "10.0.7.77")) == "here"
        for host, address in (("h0", "192.168.5.1"), ("h9", "192.168.5.9"), ("h9", "192.168.5.10")):
            on(live, host, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        for address in ("192.168.5.9", "192.168.5.10"):
            assert talks(live, ("h0", "192.168.5.1"), ("h9", address)) == "here"
        # A machine moves with its address to a port of another host, and the first port stays up.
        on(live, "h9", "ip", "address", "del", "192.168.5.10/24", "dev", "eth0")
        on(live, "h4", "ip", "address", "add", "192.168.5.10/24", "dev", "eth0")
        assert talks(live, ("h4", "192.168.5.10"), ("h0", "192.168.5.1")) == "here"
        # A host of the fabric moves to the place of another.
        on(live, "h5", "ip", "address", "del", "10.0.2.2/8", "dev", "eth0")
        on(live, "h12", "ip", "address", "add", "10.0.2.2/8", "dev", "eth0")
        assert talks(live, ("h12", "10.0.2.2"), ("h0", "10.0.0.1")) == "here"
        # The controller is restarted. Hosts know each other's hardware addresses, so they send no requests.
        live.kill()
        live.launch()
        assert talks(live, ("h0", "192.168.5.1"), ("h4", "192.168.5.10")) == "here"
        assert talks(live, ("h0", "10.0.0.1"), ("h12", "10.0.2.2")) == "here"


def test_a_router_at_the_edge_gets_packets_for_all_other_addresses(name: str) -> None:
    more = '[[addresses]]\nat = "h15"\nprefixes = ["0.0.0.0/0"]\n[[addresses]]\nat = "h3"\nprefixes = ["172.20.0.0/16"]'
    with alive(name, K4, QUIET, arp="proxy", more=more) as live:
        mine, router = mac_of(live, "h0"), mac_of(live, "h15")
        out = frame(router, mine, IPV4, ipv4("10.0.0.1", "8.8.8.8", UDP, udp(1, 2, b"MARK")))
        assert all_arrive(live, "h0", out, "h15", b"MARK")
        back = frame(mine, router, IPV4, ipv4("8.8.8.8", "10.0.0.1", UDP, udp(1, 2, b"MARK")))
        assert all_arrive(live, "h15", back, "h0", b"MARK")
        longer = frame(mac_of(live, "h3"), mine, IPV4, ipv4("10.0.0.1", "172.20.3.4", UDP, udp(1, 2, b"MARK")))
        assert all_arrive(live, "h0", longer, "h3", b"MARK")
        # The router does not get broadcasts, multicasts, or packets for an unused address of the fabric.
        for target in ("224.0.0.9", "255.255.255.255", "10.0.7.99"):
            sent = frame(router, mine, IPV4, ipv4("10.0.0.1", target, UDP, udp(1, 2, b"MARK")))
            assert arrivals(live, "h0", sent, "h15", b"MARK", 5) == 0, target


def test_dhcp_is_passed_to_servers_and_back_to_the_client(live: Live) -> None:
    # A port counts as a host port when discovery has found no switch there.
    live.await_log("every cable is as configured")
    client, server = mac_of(live, "h0"), mac_of(live, "h15")
    asked = dhcp(1, client, (client, EVERYBODY), ("0.0.0.0", "255.255.255.255"), (68, 67))
    until(lambda: arrivals(live, "h0", asked, "h15", b"MARK", 1) == 1, "the ports are known to face hosts")
    time.sleep(1)  # Earlier requests count for the limit per second.
    assert all_arrive(live, "h0", asked, "h15", b"MARK", 5)
    assert all_arrive(live, "h0", asked, "h1", b"MARK", 5)
    for target, to in (("255.255.255.255", EVERYBODY), ("10.0.0.200", client)):
        sent = dhcp(2, client, (server, to), ("10.0.7.2", target), (67, 68))
        assert all_arrive(live, "h15", sent, "h0", b"MARK", 5)
        assert arrivals(live, "h15", sent, "h1", b"MARK", 5) == 0
    # More requests than an honest client sends are not forwarded.
    assert arrivals(live, "h0", asked, "h15", b"MARK", 200, wait_s=0) < 200


def test_a_port_that_the_fabric_does_not_have_is_refused_and_named(name: str) -> None:
    with alive(name, K4, QUIET, arp="proxy") as live:
        tor = next(switch for switch in live.blueprint.switches if switch.node == 0)
        inside = ["ip", "-n", tor.namespace]
        subprocess.run([*inside, "link", "add", "stray", "type", "veth", "peer", "name", "eth0"], check=True)
        try:
            for interface in ("stray", "eth0"):
                subprocess.run([*inside, "link", "set", interface, "up"], check=True)
            daemon = live.switches.daemon_of(tor.bridge)
            daemon.vsctl(["add-port", tor.bridge, "stray", "--", "set", "Interface", "stray", "ofport_request=40"])
            sent = frame(
                mac_of(live, "h15"), b"\2\0\0\0\0\x99", IPV4, ipv4("10.0.9.9", "10.0.7.2", UDP, udp(1, 2, b"MARK"))
            )
            with frames.sniffing(live, "h15", b"MARK") as counted:
                command = [
                    "ip",
                    "netns",
                    "exec",
                    tor.namespace,
                    "python3",
                    "-c",
                    frames.SEND,
                    sent.hex(),
                    "100",
                    "0.02",
                ]
                subprocess.run(command, check=True, timeout=60)
                assert counted(0) == 0
            assert "port=40" in live.await_log('what="port_not_in_fabric"')
        finally:
            subprocess.run([*inside, "link", "del", "stray"], check=False)


def test_a_host_on_two_ports_is_reached_at_both_of_its_addresses(name: str) -> None:
    homes = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=10Mbps,buffer=150"
    with alive(name, homes, QUIET, arp="proxy") as live:
        live.await_log("every cable is as configured")
        here, there = live.blueprint.hosts[0], live.blueprint.hosts[-1]
        assert len(there.ports) == 2
        for port in there.ports:
            target = (there.name, str(port.address))
            assert talks(live, (here.name, str(here.ports[0].address)), target) == "here"


@pytest.mark.long
def test_a_bond_of_two_ports_that_both_claim_one_address_is_refused_and_named(name: str) -> None:
    homes = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=10Mbps,buffer=150"
    claim = """
import socket, sys, time
address, (interface, mac) = socket.inet_aton(sys.argv[1]), sys.argv[2:]
door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
door.bind((interface, 0))
mac = bytes.fromhex(mac.replace(":", ""))
# Like a balancing bond, each port claims the address.
for _ in range(40):
    head = bytes.fromhex("0806000108000604") + bytes([0, 1])
    door.send(bytes([255] * 6) + mac + head + mac + address + bytes(6) + address + bytes(18))
    time.sleep(0.1)
"""
    with alive(name, homes, QUIET, arp="proxy") as live:
        live.await_log("every cable is as configured")
        here, there = live.blueprint.hosts[0], live.blueprint.hosts[-1]
        first, second = there.ports
        source = (here.name, str(here.ports[0].address))
        assert talks(live, source, (there.name, first.address)) == "here"
        finish(run_on(live, there.name, claim, first.address, second.interface, second.mac))
        live.await_log(f"claims {first.address}")
        # The address is still reached at its first port.
        assert talks(live, source, (there.name, first.address)) == "here"
        assert talks(live, source, (there.name, second.address)) == "here"
