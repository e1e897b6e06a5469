"""The map of source ports and paths, and the packets of its prober, which need no root."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from conftest import Cli
from pathloom import _core
from pathloom.errors import ToolError
from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.entropy import Find, Flow, Lookups, PathMap, port_of, sources_of
from pathloom.lab.routed.numbering import host6, link_address, link_address6, router_address, router_address6
from pathloom.lab.routed.pinning import pin_by_ports
from pathloom.lab.routed.prober import Trace, answer_of, quoted4, quoted6, segment

K4 = "fat-tree:k=4,rate=10Mbps,buffer=150"
FLOW = Flow("10.0.0.1", "10.0.7.2", 5201)
WAYS = {1: (8, 2), 2: (8, 4), 3: (8, 2), 4: (8, 2), 5: (8, 4)}


def blueprint_of(spec: str = K4) -> Blueprint:
    return Blueprint.of("x", Fabric(spec), routed=True)


def test_connections_are_spread_equally_over_paths() -> None:
    known = PathMap(FLOW, dict(WAYS))
    assert known.by_path() == {(8, 2): [1, 3, 4], (8, 4): [2, 5]}
    assert known.ports((8, 2), used=[3]) == [1, 4]
    assert known.ports((9, 9)) == []
    assert known.spread(5) == [1, 2, 3, 5, 4]
    assert known.spread(2, used=[1, 2]) == [3, 5]
    with pytest.raises(_core.PathloomError, match="5 source ports are known and free, 6 are needed"):
        known.spread(6)


def test_a_map_is_refreshed_after_a_change_of_cabling() -> None:
    known = PathMap(FLOW, dict(WAYS))
    assert known.stale([4, 5]) == [2, 5]
    # Port 2 takes another path now, and port 5 none.
    asked: list[Sequence[int]] = []

    def find(ports: Sequence[int]) -> dict[int, tuple[int, ...]]:
        asked.append(ports)
        return {2: (8, 2)}

    assert known.refresh(find, known.stale([4, 5])) == [2, 5]
    assert asked == [[2, 5]]
    assert known.paths == {1: (8, 2), 2: (8, 2), 3: (8, 2), 4: (8, 2)}
    assert known.refresh(lambda ports: dict.fromkeys(ports, (8, 2))) == []


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("ipv6", [False, True])
def test_an_answer_names_the_probe_that_it_is_for(protocol: str, ipv6: bool) -> None:
    flow = FLOW._replace(protocol=protocol)
    number = socket.IPPROTO_UDP if protocol == "udp" else socket.IPPROTO_TCP
    probe = segment(flow, 40007, 3, 0xABCDEF)
    assert struct.unpack_from("!HH", probe) == (40007, 5201)
    if ipv6:
        ends = [socket.inet_pton(socket.AF_INET6, str(host6(one))) for one in (flow.source, flow.target)]
        inner = struct.pack("!IHBB", 6 << 28, len(probe), number, 1) + b"".join(ends)
        message, quoted, target = bytes([3, 0]) + bytes(6) + inner + probe, quoted6, str(host6(flow.target))
    else:
        ends = [socket.inet_aton(one) for one in (flow.source, flow.target)]
        inner = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(probe), 1, 0, 1, number, 0) + b"".join(ends)
        outer = struct.pack("!BBHHHBBH", 0x45, 0, 0, 1, 0, 60, socket.IPPROTO_ICMP, 0) + bytes(8)
        message, quoted, target = outer + bytes([11, 0]) + bytes(6) + inner + probe[:8], quoted4, flow.target
    answer = answer_of(flow, 0xABCDEF, quoted(message, number, target), "router")
    assert answer == (40007, 3, "router")
    # Answers to other targets, ports or probers, other messages and cut ones are no answers.
    other = "fd00::1" if ipv6 else "10.0.0.9"
    assert quoted(message, number, other) == b""
    assert answer_of(flow._replace(port=80), 0xABCDEF, quoted(message, number, target), "router") is None
    assert protocol == "udp" or answer_of(flow, 0x123456, quoted(message, number, target), "router") is None
    for length in range(len(message)):
        cut = answer_of(flow, 0xABCDEF, quoted(message[:length], number, target), "router")
        assert cut in (None, answer)
    assert quoted(bytes(len(message)), number, target) == b""


def test_answers_are_put_together_to_a_path() -> None:
    blueprint = blueprint_of()
    names = {one.name: one.node for one in blueprint.switches}
    sources = sources_of(blueprint)
    trace = Trace(blueprint, FLOW)

    def link(one: str, other: str) -> int:
        return next(at for at, node in sources.items() if (node, sources[at ^ 1]) == (names[one], names[other]))

    path, way = trace.begin(), ["e0_0", "a0_1", "c2", "a3_1", "e3_1"]
    # The first router answers from its interface to the host, the others from the interface to the one before.
    answers = [path[0] ^ 1, *(link(other, one) for one, other in pairwise(way))]
    for number, answered in enumerate(answers):
        assert not trace.is_whole(path)
        further = trace.further(path, str(link_address(answered)), first=number == 0)
        assert further is not None
        assert trace.further(path, "10.0.0.9", first=number == 0) is None
        path = further
    assert trace.is_whole(path)
    end = port_of(blueprint, FLOW.target)
    assert trace.finished(path) == (path[0], *(link(*ends) for ends in pairwise(way)), end.link ^ 1)
    # Over IPv6, and from the address of a router itself, only the router is known.
    first = trace.begin()
    expected = (first[0], link("e0_0", "a0_1"))
    for address in (link_address6(link("a0_1", "c3")), router_address6(names["a0_1"]), router_address(names["a0_1"])):
        assert trace.further(first, str(address), first=False) == expected
    assert trace.further(first, str(router_address(names["c3"])), first=False) is None
    assert trace.further(first, str(router_address(names["a0_1"])), first=True) is None


def test_routers_that_are_asked_lead_to_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    blueprint = blueprint_of("leaf-spine:spines=2,leaves=2,hosts=1,rate=10Mbps")
    target = blueprint.hosts[1].ports[0]
    uplinks = [port.interface for port in blueprint.ports_in("pathloom.x.e0") if port.interface != "l0"]
    last = [port.interface for port in blueprint.ports_in("pathloom.x.e1") if port.link == target.link ^ 1]

    def answer(command: Sequence[str], text: str = "") -> str:
        lines = text.splitlines()
        odd = [int(line.split()[line.split().index("sport") + 1]) % 2 for line in lines]
        name = command[2].rpartition(".")[2]
        if name == "c1":
            raise ToolError("`ip`: RTNETLINK answers: No route to host")
        to = {port.interface for port in blueprint.ports_in("pathloom.x.c0")}
        down = next(one for one in sorted(to) if sources_of(blueprint)[int(one[1:]) ^ 1] == 1)
        devices = {"e0": [uplinks[one] for one in odd], "c0": [down] * len(odd), "e1": last * len(odd)}[name]
        return "".join(f'[{{"dst":"10.0.1.1","dev":"{device}","flags":[],"cache":[]}}]\n' for device in devices)

    monkeypatch.setattr(system, "run_tool", answer)
    found = Lookups(blueprint, Flow("10.0.0.1", "10.0.1.1", 80)).find([10, 11, 12, 13])
    assert sorted(found) == [10, 12]
    assert found[10] == found[12]
    assert found[10][-1] == target.link ^ 1
    with pytest.raises(_core.PathloomError, match=r"`10.0.9.9`: no host of leaf-spine.* has this address"):
        Lookups(blueprint, Flow("10.0.0.1", "10.0.9.9", 80))


def test_bad_ports_and_words_are_named(cli: Cli) -> None:
    assert "source ports end at 65535" in cli("lab", "paths", "h0", "h1", "--first", "65530").err
    assert "--protocol tcp or udp" in cli("lab", "paths", "h0", "h1", "--protocol", "sctp").err


def test_flows_get_the_source_ports_of_their_paths() -> None:
    # Ports that are even lead by (1, 2), odd ones by (1, 3), and none by (1, 4).
    def finder(flow: Flow) -> Find:
        assert flow.port == 5001
        return lambda ports: {port: (1, 2 + port % 2) for port in ports}

    def flow(source: str, target: str, *path: int) -> dict[str, Any]:
        ends = {"src_address": source, "dst_address": target, "dst_port": 5001, "src_port": 40000}
        return {**ends, "ways": [list(path), [9, 9]]}

    offered = [
        flow("a", "b", 1, 3),
        flow("a", "b", 1, 3),
        flow("a", "b", 1, 4),
        flow("a", "c", 1, 3),
        flow("d", "b", 1, 2),
    ]
    assert pin_by_ports(blueprint_of(), offered, finder) == [2]
    assert [one["src_port"] for one in offered] == [20001, 20003, 40000, 20005, 20000]
    assert [one.get("pinned", True) for one in offered] == [True, True, False, True, True]
