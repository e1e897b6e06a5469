"""Long links: packets arrive after the delay of their link, at its rate, and a lost carrier is forwarded."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live import until
from pathloom.fabrics import Fabric
from pathloom.lab import delays, links, system
from pathloom.lab.lab import Lab
from pathloom.native import program
from support import PATIENCE_S, figures

DELAY_MS = 20.0
_SO_TIMESTAMPNS = 35
PROBES = 100


@contextmanager
def joined(name: str) -> Iterator[tuple[str, str]]:
    """Two namespaces, each with `e0`, and the forwarder between them."""
    first, middle, second = (f"pathloom.{name}.{part}" for part in ("a", "m", "b"))
    for one in (first, middle, second):
        system.run_tool(["ip", "netns", "add", one])
    process = None
    try:
        for place, far, address in ((first, "da", "10.9.0.1/24"), (second, "db", "10.9.0.2/24")):
            words = ["link", "add", "e0", "type", "veth", "peer", "name", far, "netns", middle]
            system.run_tool(["ip", "-n", place, *words])
            system.run_tool(["ip", "-n", place, "address", "add", address, "dev", "e0"])
            system.run_tool(["ip", "-n", place, "link", "set", "e0", "up"])
            system.run_tool(["ip", "-n", middle, "link", "set", far, "up"])
            system.inside(place, lambda: links.turn_offloads_off(["e0"]))
        cable = f"da,db,{DELAY_MS * 1e6:.0f},{DELAY_MS * 1e6:.0f}"
        command = ["ip", "netns", "exec", middle, program(delays.PROGRAM), cable]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield first, second
    finally:
        if process is not None:
            process.kill()
            process.communicate()
        system.delete_namespaces([first, middle, second])


def times_ms(sender: str, receiver: str, address: str) -> list[float]:
    """Returns one-way times of packets, sorted, with the kernel's time of arrival."""

    def make() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    found = []
    with system.inside(receiver, make) as door, system.inside(sender, make) as line:
        door.bind((address, 7))
        door.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        door.settimeout(PATIENCE_S)
        line.connect((address, 7))
        line.send(bytes(8))  # The first one waits for ARP.
        door.recv(8)
        for _ in range(PROBES):
            line.send(struct.pack("=Q", time.clock_gettime_ns(time.CLOCK_REALTIME)))
            sent, about, _, _ = door.recvmsg(8, 200)
            seconds, rest = struct.unpack("=qq", about[0][2])
            found.append((seconds * 10**9 + rest - struct.unpack("=Q", sent)[0]) / 1e6)
            time.sleep(0.002)
    return sorted(found)


def has_carrier(namespace: str) -> bool:
    """Returns whether the other end of `e0` is up."""
    (row,) = json.loads(system.run_tool(["ip", "-n", namespace, "-json", "link", "show", "e0"]))
    return "LOWER_UP" in row["flags"]


@pytest.mark.long
def test_packets_arrive_after_the_delay_both_ways(name: str) -> None:
    with joined(name) as (first, second):
        there, back = times_ms(first, second, "10.9.0.2"), times_ms(second, first, "10.9.0.1")
    middle = PROBES // 2
    figures(
        "a link of 20 ms, ms", there=round(there[middle], 3), back=round(back[middle], 3), worst=round(there[-1], 3)
    )
    assert min(there[0], back[0]) >= DELAY_MS, "nothing arrives early"
    # The forwarder and the kernel took 0.04 to 0.15 ms per packet on the machines where this was measured.


def test_a_cable_without_carrier_at_one_end_has_none_at_the_other(name: str) -> None:
    with joined(name) as (first, second):
        for one, other in ((first, second), (second, first)):
            for state, expected in (("down", False), ("up", True)):
                system.run_tool(["ip", "-n", one, "link", "set", "e0", state])
                until(lambda: has_carrier(other) is expected, f"carrier {expected}")  # noqa: B023
        assert times_ms(first, second, "10.9.0.2")[0] >= DELAY_MS


def test_a_lab_keeps_delays_and_rates_and_ends_its_forwarder(name: str) -> None:
    lab = Lab(name)
    said: list[str] = []
    blueprint = lab.up(Fabric("parallel-paths:rates=10Mbps,delays=20ms,buffer=100,host_rate=100Mbps"), say=said.append)
    lab.release()
    assert said == []
    first, second = (host.namespace for host in blueprint.hosts)
    address = blueprint.hosts[1].ports[0].address
    there = times_ms(first, second, address)
    # 42 bytes of headers and 18 of padding take 48 microseconds per link at 10 Mbit/s; the rest is Open vSwitch.
    figures("20 ms over three switches, ms", median=round(there[PROBES // 2], 3), worst=round(there[-1], 3))
    assert there[0] >= DELAY_MS
    inside: Callable[..., list[str]] = lambda place, *words: ["ip", "netns", "exec", place, *words]  # noqa: E731
    environment = {**os.environ, system.MARK: str(lab.directory)}
    server = subprocess.Popen(inside(second, "iperf3", "-s", "-1"), env=environment, stdout=subprocess.DEVNULL)
    until(lambda: bool(system.run_tool(inside(second, "ss", "-Hltn", "sport = :5201")).strip()), "iperf3 listens")
    client = inside(first, "iperf3", "-c", address, "-u", "-b", "11M", "-l", "1448", "-t", "5", "-O", "1", "--json")
    done = json.loads(subprocess.run(client, env=environment, check=True, capture_output=True, text=True).stdout)
    server.wait(30)
    mbps = done["end"]["sum_received"]["bits_per_second"] / 1e6
    # A frame has 42 bytes of headers, and links count 12 bytes more for the time stamps that this TCP lacks.
    expected = 10 * 1448 / (1448 + 42 + 12)
    figures("10 Mbit/s over 20 ms, Mbit/s", received=round(mbps, 3), expected=round(expected, 3))
    forwarders = [one for one in system.processes_of(lab.directory, lab.prefix) if delays.PROGRAM in command_of(one)]
    assert len(forwarders) == 1
    lab.down()
    # The forwarder leaves its namespaces before the kernel has closed its sockets.
    until(lambda: system.is_over(forwarders[0]), "the forwarder has ended")


def command_of(process: int) -> str:
    """The command line of a process."""
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
