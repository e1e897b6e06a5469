"""A load generator without code of the controller, which repeats the measurements of `pathloom-controller bench`.

It implements OpenFlow 1.3 with `struct` only, over non-blocking sockets in one thread, and starts the controllers of
`pathloom-controller bench serve`. It measures times from when a packet is due until its answer is read. So they include
the time that this program takes. It also prints how busy it was itself.

    python benches/openflow/load.py answers --switches 16 --outstanding 128
    python benches/openflow/load.py paths --scheme ofpt --outstanding 128   open requests at a time, for each ToR
    python benches/openflow/load.py paths --scheme ofpt --rate 10000        flows a second, without waiting for answers
"""

from __future__ import annotations

import argparse
import ipaddress
import selectors
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.native import program

HEADER = struct.Struct(">BBHI")
HELLO, ECHO, ECHOED, FEATURES, FEATURES_ARE, CONFIG, CONFIG_IS = 0, 2, 3, 5, 6, 7, 8
PACKET_IN, PACKET_OUT, FLOW_MOD, MULTIPART, MULTIPART_IS, BARRIER, BARRIER_DONE = 10, 13, 14, 18, 19, 20, 21
ROLE, ROLE_IS = 24, 25
FLOW_TABLE = 1
"""The table with rules of single flows."""
FIELDS = [bytes.fromhex(field) for field in ("80001604", "80001a02", "80001c02")]
"""Headers of the match fields IPv4 source, TCP source and TCP destination (OpenFlow 1.3.5, A.2.3.7)."""
PATIENCE_S = 60.0


def message(kind: int, body: bytes = b"", xid: int = 0) -> bytes:
    """Makes a message of OpenFlow 1.3."""
    return HEADER.pack(4, kind, 8 + len(body), xid) + body


def packet_in(port: int, frame: bytes) -> bytes:
    """Makes the message that sends a frame to the controller."""
    match = struct.pack(">HHII", 1, 12, 0x80000004, port) + bytes(4)
    return message(PACKET_IN, struct.pack(">IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0) + match + bytes(2) + frame)


class Switch:
    """A session of a switch that answers all requests."""

    def __init__(self, port: int, dpid: int, ports: int) -> None:
        """Connects to the controller on a port of this machine."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.dpid, self.ports = dpid, ports
        self.left, self.out = b"", bytearray(message(HELLO))
        self.stands = False

    def messages(self) -> Iterator[tuple[int, memoryview, int]]:
        """Yields received complete messages: kind, bytes, number. Answers those that all switches answer alike."""
        try:
            data = self.left + self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        at, end, view = 0, len(data), memoryview(data)
        while at + 8 <= end:
            _, kind, length, xid = HEADER.unpack_from(data, at)
            if at + length > end:
                break
            if kind == BARRIER:
                self.out += message(BARRIER_DONE, b"", xid)
            elif kind not in (FLOW_MOD, PACKET_OUT):
                self.answer(kind, data[at + 8 : at + length], xid)
            else:
                yield kind, view[at : at + length], xid
            at += length
        self.left = data[at:]

    def answer(self, kind: int, body: bytes, xid: int) -> None:
        """Answers a request like any switch."""
        if kind == FEATURES:
            self.out += message(FEATURES_ARE, struct.pack(">QIBB2xI4x", self.dpid, 0, 254, 0, 0x4F), xid)
            self.stands = True
        elif kind == ECHO:
            self.out += message(ECHOED, body, xid)
        elif kind == CONFIG:
            self.out += message(CONFIG_IS, bytes(4), xid)
        elif kind == ROLE:
            self.out += message(ROLE_IS, body, xid)
        elif kind == MULTIPART:
            what = struct.unpack_from(">H", body)[0]
            rows = b"".join(self.port(number) for number in range(1, self.ports + 1)) if what == 13 else b""
            rows = bytes(1056) if what == 0 else rows
            self.out += message(MULTIPART_IS, struct.pack(">HH4x", what, 0) + rows, xid)

    def port(self, number: int) -> bytes:
        """Makes the description of a port that is up."""
        name, mac = f"p{number}".encode(), bytes([2, 0, 0, 0, 0, number])
        return struct.pack(">I4x6s2x16sIIIIIIII", number, mac, name, 0, 4, 0, 0, 0, 0, 0, 0)

    def flush(self) -> None:
        """Sends as many bytes as the socket accepts."""
        if self.out:
            with suppress(BlockingIOError):
                del self.out[: self.socket.send(self.out)]


class Learner:
    """A switch whose two hosts send each other numbered packets through the controller."""

    def __init__(self, switch: Switch, outstanding: int) -> None:
        """`outstanding`: packets without an answer at a time. The controller learns where both hosts are."""
        self.switch, self.outstanding, self.next = switch, outstanding, 0
        self.sent: deque[float] = deque()
        self.frames = [self.frame(2, 1), self.frame(1, 2)]

    def frame(self, dst: int, src: int) -> bytes:
        """Makes a UDP frame from one host to the other, without the number at its end."""
        ip = struct.pack(">BBHHHBBH4B4B", 0x45, 0, 46, 0, 0, 64, 17, 0, 10, 0, 0, src, 10, 0, 0, dst)
        mac = [bytes([2, 0, 0, 0, 1, last]) for last in (dst, src)]
        return mac[0] + mac[1] + b"\x08\x00" + ip + struct.pack(">HHHH", 7, 7, 26, 0) + bytes(10)

    def begin(self) -> None:
        """Sends a packet of each host, so that the controller learns both, and then `outstanding` packets."""
        self.switch.out += packet_in(2, self.frames[1] + bytes(8)) + packet_in(1, self.frames[0] + bytes(8))
        self.ask(self.outstanding, time.monotonic())

    def ask(self, count: int, now: float) -> None:
        """Sends `count` more packets."""
        for _ in range(count):
            self.next += 1
            self.switch.out += packet_in(1, self.frames[0] + self.next.to_bytes(8))
            self.sent.append(now)

    def work(self, times: list[float]) -> None:
        """Reads answers, which arrive in order, and sends the same number of packets."""
        answers = 0
        for kind, view, _ in self.switch.messages():
            if kind == PACKET_OUT and int.from_bytes(view[-8:]) > 0:
                answers += 1
        now = time.monotonic()
        times.extend(now - self.sent.popleft() for _ in range(answers))
        self.ask(answers, now)


class Tor:
    """A ToR whose hosts open labelled connections to hosts of other ToRs."""

    def __init__(self, switch: Switch, hosts: list[tuple[int, bytes]], others: list[bytes]) -> None:
        """`hosts`: ports and addresses of hosts at this ToR. `others`: addresses of hosts at other ToRs."""
        self.switch, self.hosts, self.others = switch, hosts, others
        self.next = 0
        self.sent: dict[bytes, float] = {}

    def open(self, due: float) -> None:
        """Sends the first packet of another connection, which was due at this time."""
        port, src = self.hosts[self.next % len(self.hosts)]
        dst = self.others[self.next % len(self.others)]
        ports = struct.pack(">HH", 1024 + self.next % 60_000, 80 + self.next // 60_000)
        self.next += 1
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 8 << 2, 40, 0, 0, 64, 6, 0, src, dst)
        tcp = ports + struct.pack(">IIBBHHH", 0, 0, 5 << 4, 2, 0, 0, 0)
        self.switch.out += packet_in(port, b"\2\0\0\0\0\2\2\0\0\0\0\1\x08\x00" + ip + tcp)
        self.sent[src + ports] = due

    def work(self, times: list[float]) -> int:
        """Records the paths whose last rule, the one at the source's ToR, has arrived. Returns how many."""
        finished, now = 0, time.monotonic()
        for kind, view, _ in self.switch.messages():
            if kind != FLOW_MOD or view[24] != FLOW_TABLE or view[25] != 0:
                continue
            rule = bytes(view)
            places = [rule.find(field, 56) for field in FIELDS]
            if min(places) < 0:
                continue
            src, src_port, dst_port = places
            key = rule[src + 4 : src + 8] + rule[src_port + 4 : src_port + 6] + rule[dst_port + 4 : dst_port + 6]
            sent = self.sent.pop(key, None)
            if sent is not None:
                times.append(now - sent)
                finished += 1
        return finished


def serve(what: str) -> tuple[subprocess.Popen[str], int]:
    """Starts a controller. Returns its process and its port."""
    command = [program(), "bench", "serve", what]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    # The first number is the port for switches, the second the one for applications that ask for paths.
    return process, int(process.stdout.readline().split()[0])


def turn(selector: selectors.BaseSelector, switches: list[Switch]) -> list[Switch]:
    """Sends waiting messages. Returns the switches whose sockets have data, after at most a millisecond."""
    for switch in switches:
        switch.flush()
    return [key.data for key, _ in selector.select(0.001)]


def connect(port: int, sizes: list[int]) -> tuple[selectors.BaseSelector, list[Switch]]:
    """Opens sessions of switches with these numbers of ports. Returns when no more messages come for half a second."""
    selector, switches = selectors.DefaultSelector(), [Switch(port, dpid + 1, size) for dpid, size in enumerate(sizes)]
    for switch in switches:
        selector.register(switch.socket, selectors.EVENT_READ, switch)
    last = time.monotonic()
    while time.monotonic() - last < 0.5 or not all(switch.stands for switch in switches):
        for switch in turn(selector, switches):
            list(switch.messages())
            last = time.monotonic()
    return selector, switches


def told(what: str, times: list[float], seconds: float, busy_s: float) -> None:
    """Prints a line: rate per second, median, 99th percentile, and how busy this program was."""
    times.sort()
    p50, p99 = (times[int(len(times) * part)] * 1e3 for part in (0.5, 0.99))
    rate = len(times) / seconds
    print(f"{what}: {rate:,.0f} a second, p50 {p50:.2f} ms, p99 {p99:.2f} ms; generator busy {busy_s / seconds:.0%}")


def answers(port: int, switches: int, outstanding: int, seconds: float) -> None:
    """Measures a learning switch."""
    selector, sessions = connect(port, [4] * switches)
    learners = {id(session): Learner(session, outstanding) for session in sessions}
    for learner in learners.values():
        learner.begin()
    times: list[float] = []
    begun, busy = time.monotonic(), time.process_time()
    while time.monotonic() - begun < seconds:
        for session in turn(selector, sessions):
            learners[id(session)].work(times)
    told(f"{switches} x {outstanding}", times, time.monotonic() - begun, time.process_time() - busy)


def tors(port: int, fabric: Fabric) -> tuple[selectors.BaseSelector, list[Switch], dict[int, Tor]]:
    """Opens sessions of the switches of a fabric. Returns them, and the ToRs by `id` of their session."""
    blueprint = Blueprint.of("load", fabric)
    links = fabric.links
    size = {switch.node: 0 for switch in blueprint.switches}
    for end in blueprint.switch_ports:
        size[end.switch] += 1
    assert [int(switch.dpid, 16) for switch in blueprint.switches] == list(range(1, len(size) + 1))
    selector, sessions = connect(port, [size[switch.node] for switch in blueprint.switches])
    hosts: dict[int, list[tuple[int, bytes]]] = {}
    for host in blueprint.hosts:
        for own in host.ports:
            address = ipaddress.IPv4Address(own.address).packed
            hosts.setdefault(int(links["target"][own.link]), []).append((int(links["target_port"][own.link]), address))
    found = {}
    for switch, session in zip(blueprint.switches, sessions, strict=True):
        if switch.node in hosts:
            others = [address for tor, all_of in hosts.items() if tor != switch.node for _, address in all_of]
            found[id(session)] = Tor(session, hosts[switch.node], others)
    return selector, sessions, found


def paths(port: int, fabric: Fabric, standing: int, flows: int, more: Callable[[list[Tor], int], int]) -> None:
    """Measures paths after `standing` flows have paths. `more` opens the flows that are due, at most those left."""
    selector, sessions, by_session = tors(port, fabric)
    every = list(by_session.values())

    def run(count: int, opens: Callable[[list[Tor], int], int]) -> tuple[list[float], float, float]:
        times: list[float] = []
        left, last, begun, busy = count, time.monotonic(), time.monotonic(), time.process_time()
        while len(times) < count:
            left -= opens(every, left)
            for session in turn(selector, sessions):
                tor = by_session.get(id(session))
                if tor is not None:
                    last = time.monotonic() if tor.work(times) else last
                else:
                    list(session.messages())
            assert time.monotonic() - last < PATIENCE_S, f"{count - len(times)} paths never came"
        return times, time.monotonic() - begun, time.process_time() - busy

    run(standing, closed(32))
    told(f"{standing} flows standing", *run(flows, more))


def closed(outstanding: int) -> Callable[[list[Tor], int], int]:
    """Returns a function that keeps `outstanding` requests open at each ToR."""

    def more(every: list[Tor], left: int) -> int:
        opened, now = 0, time.monotonic()
        for tor in every:
            count = min(outstanding - len(tor.sent), left - opened)
            for _ in range(count):
                tor.open(now)
            opened += max(count, 0)
        return opened

    return more


def at_rate(rate_hz: float) -> Callable[[list[Tor], int], int]:
    """Returns a function that opens `rate_hz` flows a second, in turn at all ToRs, without waiting for answers."""
    begun: float | None = None
    total = 0

    def more(every: list[Tor], left: int) -> int:
        nonlocal begun, total
        now = time.monotonic()
        begun = now if begun is None else begun
        count = min(int((now - begun) * rate_hz) - total, left)
        for number in range(total, total + count):
            every[number % len(every)].open(begun + number / rate_hz)
        total += count
        return count

    return more


def main() -> None:
    """Runs the measurement of the command line."""
    parser = argparse.ArgumentParser(description="Load a controller and measure it.")
    parser.add_argument("work", choices=["answers", "paths"])
    parser.add_argument("--switches", type=int, default=16)
    parser.add_argument("--outstanding", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--scheme", default="ofpt")
    parser.add_argument("--fabric", default="fat-tree:k=8")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--standing", type=int, default=10_000)
    parser.add_argument("--flows", type=int, default=40_000)
    words = parser.parse_args()
    process, port = serve("learning" if words.work == "answers" else f"fabric:{words.scheme}:{words.fabric}")
    try:
        if words.work == "answers":
            answers(port, words.switches, words.outstanding, words.seconds)
        else:
            more = closed(words.outstanding) if words.rate is None else at_rate(words.rate)
            paths(port, Fabric(words.fabric), words.standing, words.flows, more)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
