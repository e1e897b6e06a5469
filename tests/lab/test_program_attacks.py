"""Attacks of hosts on switches that find paths themselves, and the effect of bad frames."""

from __future__ import annotations

import random
import socket
import struct
import time
from typing import Any

import pytest

from pathloom.lab import system
from programs import PATIENT, Programs, echo, mac, programs, raw, segment, talk, unanswered, wait_for
from support import figures

SWITCHES = "03:50:41:54:48:00"
ETH_PATH, ETH_HELLO = b"\x88\xb5", b"\x88\xb6"
FALSE = "06:00:00:00:00:01"
K4 = "fat-tree:k=4,rate=50Mbps"


def message(source: str, src: str, dst: str, kind: int = 1, number: int = 1 << 62) -> bytes:
    """Makes a path message without a packet, as a switch would send it."""
    head = struct.pack("!BBBBHQ", 1, kind, 1, 0, 0, number) + mac(src) + mac(dst)
    tuple_ = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.7.2") + struct.pack("!HHBB", 5000, 80, 6, 0)
    return mac(SWITCHES) + mac(source) + ETH_PATH + head + tuple_ + bytes(6)


def hello(source: str) -> bytes:
    """Makes a Hello of a switch that does not exist."""
    own = struct.pack("!BBH", 1, 3, 0) + mac(source) + struct.pack("!IQ", 1, 9)
    return mac(SWITCHES) + mac(source) + ETH_HELLO + own + bytes(18 + 6)


def port_of(row: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns the counters of a port."""
    found: dict[str, Any] = next(port for port in row["ports"] if port["number"] == number)
    return found


def refusals(one: Programs, node: int, number: int, expected: int) -> int:
    """Waits until a port has refused at least `expected` frames. Returns how many it refused."""
    wait_for(lambda: port_of(one.rows()[node], number)["refused"] >= expected)
    refused: int = port_of(one.rows()[node], number)["refused"]
    return refused


def edge_of(one: Programs, index: int) -> tuple[int, int]:
    """Returns the switch of a host, and the port of the host."""
    peer = one.hosts[index].ports[0].peer
    port = next(port for port in one.blueprint.switch_ports if port.interface == peer)
    return port.switch, port.number


def test_a_flood_of_syns_is_bounded_and_its_port_is_named(name: str) -> None:
    with programs(name, fabric=K4, transport=PATIENT) as one, echo(one, one.hosts[15]):
        attacker, victim = one.hosts[0], one.hosts[1]
        own = attacker.ports[0]
        # Both hosts are at the same switch, which does most of the work.
        assert edge_of(one, 0)[0] == edge_of(one, 1)[0]
        with talk(one, victim, one.hosts[15]) as talking, raw(attacker) as door:
            assert unanswered(attacker, [one.hosts[15]]) == []
            talking.tell()
            began, sent = time.monotonic(), 0
            # A busy machine takes longer to send this many.
            while time.monotonic() - began < 3 or (sent <= 10_000 and time.monotonic() - began < 10):
                for _ in range(200):
                    source = f"10.{random.randrange(256)}.{random.randrange(256)}.{random.randrange(1, 255)}"
                    target = one.hosts[15].ports[0]
                    door.send(segment(own.mac, target.mac, source, target.address, random.randrange(1024, 65536)))
                    sent += 1
                time.sleep(0.01)
            node, number = edge_of(one, 0)
            row = one.rows()[node]
            port = port_of(row, number)
            figures("SYNs of one host", sent=sent, refused=port["refused"], limited=port["limited"],
                    entries=row["connection_entries"])  # fmt: skip
            # 100 explorations a second that no connection follows, twice as many after a pause; each lives for 3 s. The
            # victim has two entries.
            assert row["connection_entries"] <= 2 * 100 + 100 * 5 + 2
            assert all(each["connection_entries"] <= 2 * 100 + 100 * 5 + 2 for each in one.rows().values())
            assert sent > 10_000
            assert (port["refused"] > 1000, port["refused_last"]) == (True, "rate-limited")
            assert port_of(row, edge_of(one, 1)[1])["refused"] == 0
            assert wait_for(lambda: f"port {number} ({own.peer}): refused" in one.switches.log(one.switch(node)))
            # The connection of the neighbour continues, and it can open another one.
            assert wait_for(lambda: talking.outstanding() < 100)
            assert talking.tell()[3] == 0, "retransmitted segments"
            with talk(one, victim, one.hosts[15]) as another:
                assert another.tell("end")[3] == 0


def test_forged_messages_stolen_addresses_and_foreign_tags_change_nothing(name: str) -> None:
    with programs(name, fabric=K4, transport=PATIENT) as one, echo(one, one.hosts[15]):
        attacker, victim, far = one.hosts[0], one.hosts[1], one.hosts[15]
        assert unanswered(victim, [far]) == []
        assert unanswered(attacker, [far]) == []
        own, its = attacker.ports[0], victim.ports[0]
        node, number = edge_of(one, 0)
        before = one.rows()
        with talk(one, victim, far) as talking, raw(attacker) as door:
            expected = 0
            for frame in (
                hello(own.mac),
                message(own.mac, its.mac, far.ports[0].mac, kind=3),
                message(own.mac, its.mac, far.ports[0].mac),
                segment(its.mac, far.ports[0].mac, its.address, far.ports[0].address, 4000),
                segment("01:00:5e:00:00:01", far.ports[0].mac, own.address, far.ports[0].address, 4000),
                segment(own.mac, far.ports[0].mac, own.address, far.ports[0].address, 4000)[:12]
                + b"\x81\x00\x0f\xfe\x08\x00"
                + segment(own.mac, far.ports[0].mac, own.address, far.ports[0].address, 4000)[14:],
            ):
                for _ in range(10):
                    door.send(frame)
                expected += 10
                assert refusals(one, node, number, expected) >= expected, frame
            after = one.rows()
            assert wait_for(lambda: talking.outstanding() < 100)
            assert talking.tell()[3] == 0, "retransmitted segments"
        assert after[node]["neighbours"] == before[node]["neighbours"]
        places = {row["mac"]: row["port"] for row in after[node]["hosts"] if row["local"]}
        assert (places[own.mac], places[its.mac]) == (number, edge_of(one, 1)[1])
        assert after[node]["dropped"]["forged"] >= 40
        assert after[node]["dropped"]["stolen-address"] >= 10
        assert after[node]["dropped"]["invalid"] >= 10


@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
def test_truncated_and_mutated_frames_from_a_neighbour_crash_no_switch(name: str, seed: int) -> None:
    draw = random.Random(seed)
    with programs(name, fabric=K4) as one:
        assert unanswered(one.hosts[0], [one.hosts[15]]) == []
        # Frames are sent by the interface of an edge switch, to its neighbour above.
        node, _ = edge_of(one, 0)
        link = next(
            port for port in one.blueprint.switch_ports
            if port.switch == node and one.fabric.nodes[one.fabric.links["target"][port.link]]["tier"] != "host"
        )  # fmt: skip
        above, its_port = (one.fabric.links[key][link.link] for key in ("target", "target_port"))

        def make() -> socket.socket:
            door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            door.bind((link.interface, 0))
            return door

        hosts = [host.ports[0] for host in one.hosts]
        with system.inside(one.blueprint.namespace, make) as door:
            for count in range(3000):
                kind = message(
                    "06:00:00:00:00:01", hosts[0].mac, hosts[15].mac, draw.randrange(7), draw.getrandbits(63)
                )
                frame = bytearray(kind if count % 3 else hello(FALSE))
                for _ in range(draw.randrange(4)):
                    frame[draw.randrange(12, len(frame))] = draw.randrange(256)
                door.send(bytes(frame[: draw.randrange(14, len(frame) + 1)]))
                if count % 100 == 0:
                    time.sleep(0.01)
        unknown = bytearray(hello(FALSE))
        unknown[14] = 9
        with system.inside(one.blueprint.namespace, make) as door:
            door.send(bytes(unknown))
        assert one.switches.runs()
        port = port_of(one.rows()[above], its_port)
        assert port["refused"] > 500
        figures(
            "3001 mutated frames of a neighbour", refused=port["refused"], unreadable=one.rows()[above]["unreadable"]
        )
        # Hellos of the real neighbour correct the entries of the false ones.
        assert wait_for(lambda: unanswered(one.hosts[0], [one.hosts[15]], 1.0) == [])
