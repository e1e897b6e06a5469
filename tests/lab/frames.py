"""Good and bad frames of hosts, and counts of those that arrive."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from live import Live, finish, run_on
from support import PATIENCE_S

SNIFF = """
import signal, socket, sys
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))
door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
door.bind(("eth0", 0))
door.settimeout(0.1)
print("ready", flush=True)
mark = sys.argv[1].encode()
while True:
    try:
        frame, address = door.recvfrom(4096)
    except (TimeoutError, BlockingIOError):
        # Whatever had come when it was told to end has been read.
        if over:
            break
        continue
    if over:
        # Others may send all the time.
        door.settimeout(0)
    # What the host itself sends comes by here too.
    if mark in frame and address[2] != 4:
        print(".", end="", flush=True)
"""
"""Prints a full stop for each frame with a mark in it, until SIGTERM."""
SEND = """
import socket, sys, time
door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
door.bind(("eth0", 0))
for _ in range(int(sys.argv[2])):
    door.send(bytes.fromhex(sys.argv[1]))
    time.sleep(float(sys.argv[3]))
"""
EVERYBODY = b"\xff" * 6
IPV4, IPV6, ARP, MPLS, VLAN, SERVICE_VLAN = 0x0800, 0x86DD, 0x0806, 0x8847, 0x8100, 0x88A8
UDP, GRE, ESP, OSPF, SCTP = 17, 47, 50, 89, 132
SENT = 20
SETTLE_S = 0.8
"""Time in which frames that must not arrive would arrive."""


def mac_of(live: Live, host: str) -> bytes:
    """Hardware address of a host's first port."""
    mac = next(one for one in live.blueprint.hosts if one.name == host).ports[0].mac
    return bytes.fromhex(mac.replace(":", ""))


def udp(source: int, target: int, payload: bytes) -> bytes:
    """Makes a UDP datagram without checksum."""
    return struct.pack(">HHHH", source, target, 8 + len(payload), 0) + payload


def ipv4(source: str, target: str, protocol: int, payload: bytes, fragment: int = 0) -> bytes:
    """Makes an IPv4 packet."""
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 1, fragment, 64, protocol, 0) + ends
    total = sum(struct.unpack(">10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", 0xFFFF - total) + head[12:] + payload


def frame(target: bytes, source: bytes, kind: int, payload: bytes, *tags: tuple[int, int]) -> bytes:
    """Makes an Ethernet frame with tags; each has a kind and an identifier."""
    marks = b"".join(struct.pack(">HH", *tag) for tag in tags)
    return target + source + marks + struct.pack(">H", kind) + payload


def dhcp(
    operation: int, client: bytes, ends: tuple[bytes, bytes], addresses: tuple[str, str], ports: tuple[int, int]
) -> bytes:
    """A message of DHCP about a client, with the mark MARK. Operation: 1 asks, 2 replies. Ends: hardware addresses."""
    (source, target), (src, dst) = ends, addresses
    body = bytes([operation, 1, 6, 0]) + bytes(24) + client + bytes(10) + b"MARK" + bytes(190)
    return frame(target, source, IPV4, ipv4(src, dst, UDP, udp(*ports, body)))


def arrivals(
    live: Live,
    source: str,
    sent: bytes,
    target: str,
    mark: bytes,
    count: int = SENT,
    least: int = 0,
    wait_s: float = 0.02,
) -> int:
    """Sends a frame `count` times from one host, and counts the frames with the mark that arrive at another.

    Waits for `least` frames to arrive, and between two frames for `wait_s`.
    """
    with sniffing(live, target, mark) as counted:
        finish(run_on(live, source, SEND, sent.hex(), str(count), str(wait_s)))
        return counted(least)


def all_arrive(live: Live, source: str, sent: bytes, target: str, mark: bytes, count: int = SENT) -> bool:
    """Sends a frame `count` times. Returns whether each of them arrives, and arrives once."""
    return arrivals(live, source, sent, target, mark, count, least=count) == count


@contextmanager
def sniffing(live: Live, host: str, mark: bytes) -> Iterator[Callable[[int], int]]:
    """Captures the frames that arrive at a host.

    Yields a function that waits for a number of frames with the mark, and returns how many came in the end.
    """
    sniffer = run_on(live, host, SNIFF, mark.decode())

    def counted(least: int) -> int:
        assert sniffer.stdout is not None
        seen, pipe = b"", sniffer.stdout.fileno()
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < least and time.monotonic() < deadline:
            if select.select([pipe], [], [], 1)[0]:
                seen += os.read(pipe, 4096)
        time.sleep(SETTLE_S)
        sniffer.terminate()
        return len(seen) + len(finish(sniffer))

    try:
        assert sniffer.stdout is not None
        assert sniffer.stdout.readline() == b"ready\n"
        yield counted
    finally:
        sniffer.kill()
        sniffer.communicate()
