"""Tools for the tests of program switches: a lab of them, frames made by hand, a connection that always sends."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from live import Switch as Toggle
from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.blueprint import Host
from pathloom.lab.hosts import host_stack
from pathloom.lab.lab import Lab
from pathloom.lab.program_switches import PathFindingSwitches
from support import PATIENCE_S

Value = TypeVar("Value")

K4 = "fat-tree:k=4,rate=50Mbps,buffer=150"
PORT = 7000
PATIENT = "newreno:min_rto=30s"
"""With this timer, TCP retransmits what is lost, and nothing because a processor stood still."""
WARM_UP_BYTES = 400_000
"""Bytes that open the window, so that a short outage does not stop the sender."""
_ICMP = struct.Struct("!BBHHH")


class Programs:
    """A lab whose switches find paths themselves."""

    def __init__(self, name: str, protocol: str, fabric: str, transport: str | None) -> None:
        self.lab = Lab(name)
        self.fabric = Fabric(fabric)
        self.blueprint = self.lab.up_with_programs(self.fabric, protocol, host_stack("newreno", transport))
        self.lab.release()
        found = self.lab.program_switches()
        assert found is not None
        self.switches: PathFindingSwitches = found
        self.hosts = self.blueprint.hosts

    def rows(self) -> dict[int, dict[str, Any]]:
        """Returns the output of `show` of each switch, by node."""
        return {int(row["name"].rpartition("-")[2]): row for row in self.switches.show()}

    def switch(self, node: int) -> Any:
        """Returns a switch by its node."""
        return next(one for one in self.blueprint.switches if one.node == node)

    def path(self, source: str) -> list[tuple[int, dict[str, Any]]]:
        """Returns switches and rows of a connection, named by its source's address and port, in no order."""
        rows = self.rows().items()
        return [(node, one) for node, row in rows for one in row["connections"] if one["source"] == source]

    def cables(self, source: str) -> list[int]:
        """Returns the links between switches that a connection uses towards its destination."""
        of_port = {(port.switch, port.number): port.link for port in self.blueprint.switch_ports}
        tiers, targets = [node["tier"] for node in self.fabric.nodes], self.fabric.links["target"]
        links = [of_port[node, one["to_destination"]] for node, one in self.path(source)]
        return sorted(link for link in links if tiers[targets[link]] != "host")

    @contextmanager
    def cut(self, link: int) -> Iterator[None]:
        """Takes a cable down inside the block."""
        toggle = system.inside(self.blueprint.namespace, lambda: Toggle(f"l{link}"))
        toggle.set(False)
        try:
            yield
        finally:
            toggle.set(True)
            toggle.__exit__()

    @contextmanager
    def muted(self, link: int) -> Iterator[None]:
        """Makes a link drop all packets inside the block. Its ports stay up, and the other direction works."""
        packets = next(port.shape.buffer_packets for port in self.blueprint.switch_ports if port.link == link)

        def limit(most: int) -> None:
            system.batch(
                "tc", self.blueprint.namespace, [f"qdisc change dev l{link} parent 1:1 handle 10: pfifo limit {most}"]
            )

        limit(0)
        try:
            yield
        finally:
            limit(packets)

    def neighbours(self, link: int) -> bool:
        """Returns whether the switch that sends by a link has a neighbour there."""
        port = next(port for port in self.blueprint.switch_ports if port.link == link)
        return any(one["port"] == port.number for one in self.rows()[port.switch]["neighbours"])


@contextmanager
def programs(
    name: str, protocol: str = "tcp-path", fabric: str = K4, transport: str | None = None
) -> Iterator[Programs]:
    """A lab of program switches; the fixture `name` takes it down."""
    yield Programs(name, protocol, fabric, transport)


def address(host: Host) -> str:
    """Address of a host."""
    return host.ports[0].address


def raw(host: Host) -> socket.socket:
    """Returns a socket that sends raw frames by a host's first port."""

    def make() -> socket.socket:
        door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        door.bind((host.ports[0].interface, 0))
        return door

    return system.inside(host.namespace, make)


def mac(text: str) -> bytes:
    """Bytes of an Ethernet address."""
    return bytes.fromhex(text.replace(":", ""))


def segment(src: str, dst: str, src_ip: str, dst_ip: str, src_port: int, flags: int = 2) -> bytes:
    """A TCP segment in its frame; a SYN by default."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, 6, 0, socket.inet_aton(src_ip), socket.inet_aton(dst_ip))
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    tcp = struct.pack("!HHIIBBHHH", src_port, 80, 1, 0, 0x50, flags, 1000, 0, 0)
    return mac(dst) + mac(src) + b"\x08\x00" + ip + tcp


def checksum(data: bytes) -> int:
    """The checksum of IP (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total >> 16) + (total & 0xFFFF)
    return ~total & 0xFFFF


def unanswered(source: Host, targets: list[Host], patience_s: float = PATIENCE_S) -> list[str]:
    """Pings each host once. Returns those that do not answer."""

    def ping() -> list[str]:
        missing = []
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as door:
            for target in targets:
                head = _ICMP.pack(8, 0, 0, source.node, target.node)
                door.sendto(_ICMP.pack(8, 0, checksum(head), source.node, target.node), (address(target), 0))
                deadline = time.monotonic() + patience_s
                while True:
                    door.settimeout(max(deadline - time.monotonic(), 0.001))
                    try:
                        answer = door.recv(256)[20:]
                    except TimeoutError:
                        missing.append(target.name)
                        break
                    if answer[:1] == b"\0" and answer[4:8] == head[4:8]:
                        break
        return missing

    return system.inside(source.namespace, ping)


ECHO = """
import socket, sys, threading
door = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=256)
print("ready", flush=True)
def serve(peer):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while data := peer.recv(1 << 16):
            peer.sendall(data)
    except OSError:
        pass
    peer.close()
while True:
    threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()
"""

TALK = """
import array, select, socket, struct, sys, time
source, target, port, warm_up, period_ns = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
peer = socket.create_connection((target, port), source_address=(source, 0))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
peer.setblocking(False)
sent = got = 0
while got < warm_up:
    if sent < warm_up:
        try: sent += peer.send(bytes(min(1 << 16, warm_up - sent)))
        except BlockingIOError: pass
    select.select([peer], [peer] if sent < warm_up else [], [], 5)
    try: got += len(peer.recv(1 << 16))
    except BlockingIOError: pass
print(peer.getsockname()[1], flush=True)
peer.setblocking(False)
poll = select.poll()
poll.register(peer, select.POLLIN)
poll.register(sys.stdin.fileno(), select.POLLIN)
begun = arrived = time.monotonic_ns()
next_ns, longest, count, back, waits = begun, 0, 0, 0, 0
while True:
    now = time.monotonic_ns()
    if now >= next_ns:
        waits = max(waits, now - next_ns)
        try: count += peer.send(b"x" * 16)
        except BlockingIOError: pass  # the path has been silent for seconds
        next_ns = max(next_ns + period_ns, now)
    for descriptor, _ in poll.poll(max((next_ns - time.monotonic_ns()) / 1e6, 0)):
        if descriptor != peer.fileno():
            word = sys.stdin.readline().strip()
            info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            retransmits = struct.unpack_from("I", info, 100)[0]
            print(count // 16, back // 16, longest, retransmits, waits, flush=True)
            longest = waits = 0
            if word != "again":
                sys.exit()
            continue
        data = peer.recv(1 << 16)
        now = time.monotonic_ns()
        longest, arrived, back = max(longest, now - arrived), now, back + len(data)
"""


class Talk:
    """A connection on which the source sends a message every millisecond, and its peer returns it."""

    def __init__(self, lab: Programs, source: Host, target: Host, warm_up: int = 0) -> None:
        words = [address(source), address(target), str(PORT), str(warm_up), "1000000"]
        self.process = _program(lab, source, TALK, words)
        assert self.process.stdout is not None
        self.source = f"{address(source)}:{int(self.process.stdout.readline())}"

    def tell(self, word: str = "again") -> tuple[int, int, int, int, int]:
        """Returns the counts of sent and returned messages, the longest time without a return since the last call,
        the retransmitted segments, and how late the source itself was at most. Times are in nanoseconds."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        sent, back, longest, retransmits, late = map(int, self.process.stdout.readline().split())
        return sent, back, longest, retransmits, late

    def outstanding(self) -> int:
        """Messages that were sent and have not come back."""
        sent, back, _, _, _ = self.tell()
        return sent - back

    def end(self) -> None:
        """Ends the connection."""
        _end(self.process)


@contextmanager
def echo(lab: Programs, host: Host) -> Iterator[None]:
    """Runs a server that returns what it receives."""
    process = _program(lab, host, ECHO, [address(host), str(PORT)])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        _end(process)


@contextmanager
def talk(lab: Programs, source: Host, target: Host, warm_up: int = 0) -> Iterator[Talk]:
    """Yields a `Talk`, and ends it afterwards."""
    one = Talk(lab, source, target, warm_up)
    try:
        yield one
    finally:
        one.end()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _program(lab: Programs, host: Host, text: str, words: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [system.find_tool("ip") or "ip", "netns", "exec", host.namespace, sys.executable, "-c", text, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, system.MARK: str(lab.lab.directory)},
    )
    system.give_priority(process.pid)
    return process


def wait_for(what: Callable[[], Value], patience_s: float = PATIENCE_S) -> Value:
    """Waits until a function returns a true value, and returns it. Returns the last value after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        found = what()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def suspend(process: int, stopped: bool) -> None:
    """Stops a process, or lets it continue."""
    os.kill(process, signal.SIGSTOP if stopped else signal.SIGCONT)
