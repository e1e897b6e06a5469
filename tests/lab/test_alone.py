"""A fabric without its controller: kernels refresh and find their neighbours, and DHCP works."""

from __future__ import annotations

import re
import subprocess
import time

from frames import EVERYBODY, arrivals, dhcp, mac_of
from live import K4, QUIET, Live, alive, permutation, until
from pathloom.lab.blueprint import Host

REFRESHED_S = 2
"""Seconds after which a kernel of this test asks for a neighbour again; Linux's default is 30."""
ALONE_S = 25
"""Long enough that every kernel refreshes every entry several times."""


def age_fast(host: Host) -> None:
    """Makes the kernel of a host ask for its neighbours often."""
    settings = {
        "base_reachable_time_ms": REFRESHED_S * 1000,
        "gc_stale_time": 1,
        "delay_first_probe_time": 1,
    }
    lines = [f"net.ipv4.neigh.{host.ports[0].interface}.{key}={value}" for key, value in settings.items()]
    subprocess.run(["ip", "netns", "exec", host.namespace, "sysctl", "-qw", *lines], check=True)


def forget(live: Live, name: str) -> None:
    """Removes all entries of neighbours from a host."""
    host = next(host for host in live.blueprint.hosts if host.name == name)
    subprocess.run(["ip", "-n", host.namespace, "neigh", "flush", "all"], check=True)


def forwarded(live: Live) -> int:
    """Counts the frames that ToRs have forwarded by the rules for ARP of known hosts."""
    bridges = [switch.bridge for switch in live.blueprint.switches if switch.name.startswith("e")]
    rows = "".join(live.switches.daemon_of(bridge).ofctl("dump-flows", bridge, "table=1,arp") for bridge in bridges)
    return sum(int(count) for count in re.findall(r"n_packets=(\d+).*arp_sha", rows))


def dhcp_arrives(live: Live) -> None:
    """Asserts that a client without an address, and one that renews its own, get replies of a server."""
    client, server = mac_of(live, "h0"), mac_of(live, "h15")
    anybody, own, of_server = ("0.0.0.0", "255.255.255.255"), "10.0.0.1", "10.0.7.2"
    to_server, to_client = (68, 67), (67, 68)
    messages = [
        ("h0", "h15", dhcp(1, client, (client, EVERYBODY), anybody, to_server)),
        ("h15", "h0", dhcp(2, client, (server, EVERYBODY), (of_server, anybody[1]), to_client)),
        ("h0", "h15", dhcp(1, client, (client, server), (own, of_server), to_server)),
        ("h15", "h0", dhcp(2, client, (server, client), (of_server, own), to_client)),
    ]
    # Frames in the trees arrive twice.
    counts = [arrivals(live, source, sent, target, b"MARK", 1) for source, target, sent in messages]
    assert all(count in (1, 2) for count in counts), counts


def test_hosts_find_each_other_without_a_controller_and_lose_nothing(name: str) -> None:
    with alive(name, K4, QUIET, arp="proxy") as live:
        for host in live.blueprint.hosts:
            age_fast(host)
        pairs = permutation(live, 6)
        # Queues of kernels hold the packets that wait for an answer.
        with live.probes(pairs, rate_hz=20) as probes:
            until(lambda: forwarded(live) > 0, "switches forward ARP between known hosts")
            live.kill()
            time.sleep(ALONE_S)
            dhcp_arrives(live)
            forget(live, pairs[0][0])
            forget(live, pairs[1][1])
            time.sleep(3)
            live.launch()
            time.sleep(5)
            tracks = probes.stop()
        lost = {f"{track.source}->{track.target}": (track.lost, track.sent) for track in tracks if track.lost}
        assert not lost, f"lost, sent: {lost}"
        assert not [track for track in tracks if track.duplicated or track.sent < 20 * ALONE_S]
        assert "were missing and are restored" not in live.log()
