"""Frames as hosts send them, good ones and others, and what arrives of them."""

from __future__ import annotations

import socket
import struct

from live import Live, finish, run_on

SNIFF = """
import socket, sys, time
door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
door.bind(("eth0", 0))
door.settimeout(0.1)
print("ready", flush=True)
mark, end, seen = sys.argv[1].encode(), time.time() + float(sys.argv[2]), 0
while time.time() < end:
    try:
        frame, address = door.recvfrom(4096)
    except TimeoutError:
        continue
    # What the host itself sends comes by here too.
    seen += mark in frame and address[2] != 4
print(seen)
"""
SEND = """
import socket, sys, time
door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
door.bind(("eth0", 0))
for _ in range(int(sys.argv[2])):
    door.send(bytes.fromhex(sys.argv[1]))
    time.sleep(0.02)
"""
EVERYBODY = b"\xff" * 6
IPV4, IPV6, ARP, MPLS, VLAN, SERVICE_VLAN = 0x0800, 0x86DD, 0x0806, 0x8847, 0x8100, 0x88A8
UDP, GRE, ESP, OSPF, SCTP = 17, 47, 50, 89, 132
SENT = 20


def mac_of(live: Live, host: str) -> bytes:
    """Hardware address of a host's first port."""
    mac = next(one for one in live.blueprint.hosts if one.name == host).ports[0].mac
    return bytes.fromhex(mac.replace(":", ""))


def udp(source: int, target: int, payload: bytes) -> bytes:
    """A UDP datagram without checksum."""
    return struct.pack(">HHHH", source, target, 8 + len(payload), 0) + payload


def ipv4(source: str, target: str, protocol: int, payload: bytes, fragment: int = 0) -> bytes:
    """An IPv4 packet."""
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 1, fragment, 64, protocol, 0) + ends
    total = sum(struct.unpack(">10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", 0xFFFF - total) + head[12:] + payload


def frame(target: bytes, source: bytes, kind: int, payload: bytes, *tags: tuple[int, int]) -> bytes:
    """An Ethernet frame with tags, each of a kind and an identifier."""
    marks = b"".join(struct.pack(">HH", *tag) for tag in tags)
    return target + source + marks + struct.pack(">H", kind) + payload


def arrivals(live: Live, source: str, sent: bytes, target: str, mark: bytes, count: int = SENT) -> int:
    """Sends a frame so many times from one host, and counts what comes to another with the mark in it."""
    sniffer = run_on(live, target, SNIFF, mark.decode(), str(count * 0.02 + 1.5))
    assert sniffer.stdout is not None
    assert sniffer.stdout.readline() == b"ready\n"
    finish(run_on(live, source, SEND, sent.hex(), str(count)))
    return int(finish(sniffer))
