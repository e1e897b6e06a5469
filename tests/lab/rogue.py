"""A malicious OpenFlow 1.3 switch.

Usage: rogue.py PORT HOW SECONDS [DPID [FROM_PORT]]; HOW is one of

- duplicate: connects as switch DPID again and again, like a real one;
- random: connections with random bytes;
- mutated: a proper handshake as DPID 0xbad0001, then messages with changed, removed and inserted bytes;
- lengths: the same, but messages with wrong lengths in headers and counts;
- flap: switch DPID, whose port FROM_PORT goes down and up again 100 times a second;
- flood: switch DPID, which sends 100,000 packet-ins a second from FROM_PORT, each of a new flow.

Prints one line of JSON: connections made, messages or chunks sent, and how often it was disconnected.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time
from contextlib import suppress

VERSION, HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY = 4, 0, 1, 2, 3, 5, 6
PACKET_IN, FLOW_REMOVED, PORT_STATUS, MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST = 10, 11, 12, 18, 19, 20
PORT_DESCRIPTION = 13
PORTS = 4
FLOOD_PER_S = 100_000
FLAPS_PER_S = 100
BATCH = 500
STRANGER = 0xBAD0001


def message(kind: int, body: bytes = b"", xid: int = 1, length: int | None = None) -> bytes:
    return struct.pack(">BBHI", VERSION, kind, 8 + len(body) if length is None else length, xid) + body


def port(number: int, link_down: bool = False) -> bytes:
    state = [0, int(link_down)] + [0] * 6
    return struct.pack(">I4x6s2x16s8I", number, bytes([2, 0xEE, 0, 0, 0, number]), b"p", *state)


def answer(kind: int, xid: int, body: bytes, dpid: int) -> bytes:
    if kind == ECHO_REQUEST:
        return message(ECHO_REPLY, body, xid)
    if kind == FEATURES_REQUEST:
        return message(FEATURES_REPLY, struct.pack(">QIBB2xII", dpid, 0, 8, 0, 0x4F, 0), xid)
    if kind == MULTIPART_REQUEST:
        (what,) = struct.unpack_from(">H", body)
        ports = b"".join(port(number) for number in range(1, PORTS + 1)) if what == PORT_DESCRIPTION else b""
        # A description of the switch is 1056 bytes.
        return message(MULTIPART_REPLY, struct.pack(">HH4x", what, 0) + (bytes(1056) if what == 0 else ports), xid)
    return message(BARRIER_REQUEST + 1, b"", xid) if kind == BARRIER_REQUEST else b""


class Session:
    """One connection that answers requests."""

    def __init__(self, place: int, dpid: int) -> None:
        self.door = socket.create_connection(("127.0.0.1", place), 5)
        self.door.setblocking(False)
        self.dpid = dpid
        self.heard = b""
        self.handshakes = 0
        self.send(message(HELLO))

    def send(self, data: bytes) -> None:
        self.door.setblocking(True)
        self.door.settimeout(5)
        self.door.sendall(data)
        self.door.setblocking(False)

    def serve(self, seconds: float) -> bool:
        """Answers requests for a time. Returns whether the connection is still open."""
        end = time.monotonic() + seconds
        while True:
            try:
                data = self.door.recv(1 << 16)
                if not data:
                    return False
                self.heard += data
            except ConnectionError:
                return False
            except BlockingIOError:
                if time.monotonic() >= end:
                    return True
                time.sleep(0.001)
            while len(self.heard) >= 8:
                _, kind, length, xid = struct.unpack(">BBHI", self.heard[:8])
                if len(self.heard) < length:
                    break
                body, self.heard = self.heard[8:length], self.heard[length:]
                self.handshakes += kind == MULTIPART_REQUEST
                if reply := answer(kind, xid, body, self.dpid):
                    self.send(reply)
            if time.monotonic() >= end:
                return True


def sample(chance: random.Random, dpid: int) -> bytes:
    """Returns a message that a switch might send."""
    frame = chance.randbytes(12) + b"\x08\x00" + chance.randbytes(chance.randrange(120))
    match = struct.pack(">HHI I4x", 1, 12, 0x80000004, chance.randrange(1, 5))
    bodies = {
        PACKET_IN: struct.pack(">IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 7) + match + b"\0\0" + frame,
        FLOW_REMOVED: struct.pack(">QHBBIIHHQQ", 0xA << 60, 1000, 0, 1, 1, 1, 10, 0, 1, 1) + match,
        PORT_STATUS: struct.pack(">B7x", 2) + port(chance.randrange(1, 9)),
        MULTIPART_REPLY: struct.pack(">HH4x", chance.randrange(14), chance.randrange(2)) + chance.randbytes(64),
        ERROR: struct.pack(">HH", chance.randrange(14), chance.randrange(10)) + chance.randbytes(20),
        FEATURES_REPLY: struct.pack(">QIBB2xII", dpid, 0, 8, 0, 0x4F, 0),
        ECHO_REQUEST: chance.randbytes(8),
        HELLO: chance.randbytes(8),
    }
    kind = chance.choice(list(bodies))
    return message(kind, bodies[kind], chance.randrange(1 << 32))


def mutate(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        if not changed:
            break
        at = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                changed.insert(at, chance.randrange(256))
            case 2:
                del changed[at]
            case _:
                changed += changed[at:]
    return bytes(changed)


def lie(chance: random.Random, data: bytes) -> bytes:
    length = chance.choice([0, 1, 7, 8, len(data) - 1, len(data) + 1, 2 * len(data), 65535, chance.randrange(65536)])
    changed = bytearray(data)
    # The length in the header, or a number after the header.
    at = 2 if chance.random() < 0.5 or len(data) < 12 else chance.randrange(8, len(data) - 2)
    struct.pack_into(">H", changed, at, length & 0xFFFF)
    return bytes(changed)


def spoiled(chance: random.Random, how: str, dpid: int) -> bytes:
    """Returns bytes to send."""
    if how == "random":
        return chance.randbytes(chance.randrange(1, 400))
    made = sample(chance, dpid)
    return mutate(chance, made) if how == "mutated" else lie(chance, made)


def attack(place: int, how: str, seconds: float, dpid: int) -> dict[str, int]:
    chance = random.Random(5)
    counts = {"connections": 0, "sent": 0, "sent_away": 0}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError):
            session = Session(place, dpid)
            counts["connections"] += 1
            if how == "duplicate":
                counts["sent_away"] += not session.serve(min(4.0, max(0.0, end - time.monotonic())))
                session.door.close()
                continue
            if how != "random":
                session.serve(0.05)
            for _ in range(200):
                data = spoiled(chance, how, dpid)
                session.send(data)
                counts["sent"] += 1
                if not session.serve(0):
                    counts["sent_away"] += 1
                    break
            else:
                counts["sent_away"] += not session.serve(0.2)
            session.door.close()
    return counts


def flood(place: int, seconds: float, dpid: int, from_port: int) -> dict[str, int]:
    session = Session(place, dpid)
    session.serve(1.0)
    batch = []
    for number in range(BATCH):
        payload = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 8 << 2, 40, 0, 0, 64, 6, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 7, 1])
        )
        payload += struct.pack(">HHIIBBHHH", 1000 + number, 80, 1, 0, 5 << 4, 2, 1000, 0, 0)
        frame = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]) + payload
        match = struct.pack(">HHI I4x", 1, 12, 0x80000004, from_port)
        batch.append(
            message(PACKET_IN, struct.pack(">IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 7) + match + b"\0\0" + frame)
        )
    data = b"".join(batch)
    counts = {"connections": 1, "sent": 0, "sent_away": 0}
    start = time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        if counts["sent"] > passed * FLOOD_PER_S:
            session.serve(0.001)
            continue
        session.send(data)
        counts["sent"] += BATCH
        session.serve(0)
    return counts


def flap(place: int, seconds: float, dpid: int, which: int) -> dict[str, int]:
    session = Session(place, dpid)
    session.serve(1.0)
    counts = {"connections": 1, "sent": 0, "sent_away": 0}
    start = time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        # Down and up are two messages.
        if counts["sent"] <= passed * FLAPS_PER_S * 2:
            session.send(message(PORT_STATUS, struct.pack(">B7x", 2) + port(which, counts["sent"] % 2 == 0)))
            counts["sent"] += 1
        if not session.serve(0 if counts["sent"] <= passed * FLAPS_PER_S * 2 else 0.001):
            counts["sent_away"] += 1
            break
    return counts


def main() -> None:
    place, how, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    dpid = int(sys.argv[4], 16) if len(sys.argv) > 4 else STRANGER
    if how in ("flood", "flap"):
        counts = (flood if how == "flood" else flap)(place, seconds, dpid, int(sys.argv[5]))
    else:
        counts = attack(place, how, seconds, dpid)
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
