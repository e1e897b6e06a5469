"""Links keep their rate and buffer, switches have the agreed numbers, and hosts have the settings of the transport."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from live import listens
from pathloom.lab.blueprint import mac_of
from pathloom.lab.lab import Lab
from pathloom.lab.status import link_counters
from support import PATHLOOM, SMALL, Outcome, figures, measured, unmanaged_bps

LabCommand = Callable[..., Outcome]
BLAST = """
import socket, time
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
target = socket.gethostbyname("h2"), 9
end = time.time() + 3
while time.time() < end:
    door.sendto(bytes(1472), target)
    time.sleep(0.0003)
"""
HERE = Path(__file__).resolve().parent


@pytest.mark.measure
def test_iperf3_measures_the_rate_of_a_link(lab: LabCommand, name: str) -> None:
    assert lab("up", SMALL, "--scheme", "spt").code == 0
    server = subprocess.Popen(
        [*PATHLOOM, "lab", "exec", "h2", "--name", name, "--", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL
    )
    listens(Lab(name).blueprint(), "h2", 5201)
    client = lab("exec", "h0", "--", "iperf3", "--json", "--time", "5", "--client", "h2")
    assert client.code == 0, client.out
    assert server.wait(60) == 0
    rate_bps = json.loads(client.out)["end"]["sum_received"]["bits_per_second"]
    # Frames of 1514 bytes carry 1448 bytes of payload.
    control_bps = unmanaged_bps(10e6 * 1448 / 1514)
    measured("iperf3 over a link of 10 Mbit/s", "bit/s", rate_bps, control_bps, "iperf3 over loopback at that rate")


def test_a_queue_holds_exactly_its_buffer(lab: LabCommand, name: str) -> None:
    # Two hosts send more than the link between the switches carries. Waiting and lost packets are counted there.
    assert lab("up", SMALL, "--scheme", "spt").code == 0
    senders = [
        subprocess.Popen([*PATHLOOM, "lab", "exec", host, "--name", name, "--", "python3", "-c", BLAST])
        for host in ("h0", "h1")
    ]
    most = 0
    blueprint = Lab(name).blueprint()
    while any(sender.poll() is None for sender in senders):
        most = max(most, *(waiting for *_, waiting in link_counters(blueprint).values()))
    (row,) = json.loads(lab("status", "--json", "-").out)["labs"]
    assert most <= 50
    assert [sender.returncode for sender in senders] == [0, 0]
    sends, receives = zip(*Lab(name).open_vswitch().buffers(), strict=True)
    assert min(sends) > 100_000_000
    assert min(receives) > 10_000_000
    figures(
        "a queue of 50 packets that two hosts fill",
        most=most,
        dropped=sum(link["dropped_packets"] for link in row["links"]),
    )


@pytest.mark.long
def test_a_host_keeps_unsent_data_in_its_sockets_and_not_in_its_interface(lab: LabCommand, name: str) -> None:
    # As in the simulator, an interface holds two segments of a connection, each in a packet, for any window.
    assert lab("up", SMALL, "--scheme", "spt").code == 0
    card = ["tc", "-n", Lab(name).blueprint().hosts[0].namespace, "-s", "-json", "qdisc", "show"]
    sink = "import socket\ns = socket.create_server(('', 7)).accept()[0]\nwhile s.recv(1 << 16): pass"
    source = "import socket\nsocket.create_connection(('h2', 7), 5).sendall(bytes(2_000_000))"
    server = subprocess.Popen([*PATHLOOM, "lab", "exec", "h2", "--name", name, "--", "python3", "-c", sink])
    listens(Lab(name).blueprint(), "h2", 7)
    client = subprocess.Popen([*PATHLOOM, "lab", "exec", "h0", "--name", name, "--", "python3", "-c", source])
    waiting, backlog_bytes = [], []
    while client.poll() is None:
        rows = json.loads(subprocess.run(card, capture_output=True, text=True, check=True).stdout)
        (row,) = [row for row in rows if row["kind"] == "pfifo"]
        waiting.append(row["qlen"])
        backlog_bytes.append(row["backlog"])
    assert client.returncode == 0
    assert server.wait(60) == 0
    # The answers to SYN and FIN are packets too.
    assert max(waiting) <= 3
    assert max(backlog_bytes) <= 2 * 1514 + 66


def test_hosts_have_the_settings_of_the_transport(lab: LabCommand) -> None:
    names = ["congestion_control", "sack", "recovery", "early_retrans", "frto"]
    show = ["sysctl", "-n", *(f"net.ipv4.tcp_{name}" for name in names)]
    assert lab("up", SMALL, "--transport", "newreno:iw=6KB,min_rto=300ms").code == 0
    assert lab("exec", "h1", "--", *show).out.split() == ["reno", "0", "0", "0", "0"]
    route = lab("exec", "h1", "--", "ip", "route").out
    assert "initcwnd 4" in route
    assert "rto_min lock 300ms" in route
    neighbours = lab("exec", "h1", "--", "ip", "neighbour").out
    assert f"10.0.1.1 dev eth0 lladdr {mac_of(4, 1)} PERMANENT" in neighbours
    features = lab(
        "exec", "h1", "--", "python3", "-c", "print(open('/proc/sys/net/ipv6/conf/all/disable_ipv6').read())"
    )
    assert features.out.strip() == "1"
    assert lab("down").code == 0
    assert lab("up", SMALL, "--hosts", "linux").code == 0
    assert lab("exec", "h1", "--", *show).out.split()[1] == "1"
    assert "congctl cubic" in lab("exec", "h1", "--", "ip", "route").out


def test_switches_have_the_agreed_numbers_at_their_controller(lab: LabCommand, name: str, tmp_path: Path) -> None:
    assert lab("up", "fat-tree:k=4,rate=10Mbps", "--controller", "tcp:127.0.0.1:6653").code == 0
    heard = tmp_path / "heard.json"
    listener = lab("exec", "switches", "--", sys.executable, str(HERE / "listener.py"), "6653", "20", str(heard))
    assert listener.code == 0, listener.err
    found = json.loads(heard.read_text(encoding="ascii"))
    assert sorted(found) == [f"{number:016x}" for number in range(1, 21)]
    blueprint = Lab(name).blueprint()
    for switch in blueprint.switches:
        ports = {str(port.number): port.interface for port in blueprint.switch_ports if port.switch == switch.node}
        assert {number: one for number, one in found[switch.dpid].items() if one != switch.bridge} == ports
    # Fail-secure: without rules, nothing is forwarded.
    reach = "import socket; socket.create_connection(('h15', 7), 1)"
    assert "timed out" in lab("exec", "h0", "--", "python3", "-c", reach).err


@pytest.mark.long
def test_hosts_with_two_ports_use_both(lab: LabCommand, name: str) -> None:
    assert lab("up", "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=10Mbps").code == 0
    blueprint = Lab(name).blueprint()
    one, other = blueprint.hosts[0], blueprint.hosts[-1]
    answer = "import socket\ns = socket.create_server(('', 7))\nfor _ in range(4):\n    s.accept()"
    server = subprocess.Popen([*PATHLOOM, "lab", "exec", other.name, "--name", name, "--", "python3", "-c", answer])
    listens(blueprint, other.name, 7)
    for source in one.ports:
        for target in other.ports:
            reach = f"import socket; socket.create_connection(('{target.address}', 7), 5, ('{source.address}', 0))"
            outcome = lab("exec", one.name, "--", "python3", "-c", reach)
            assert outcome.code == 0, (source.address, target.address, outcome.err)
    assert server.wait(60) == 0
