"""Central schemes over routers: which can be carried, maps of source ports, and ports for connections."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conftest import Cli
from pathloom import _core
from pathloom.experiments.settings.model import LabSettings
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.central import (
    AT_ONCE,
    MOST_ASKED,
    PORTS,
    Bindings,
    PortMaps,
    is_bound,
    not_carried,
    take_bindings,
)
from pathloom.lab.routed.entropy import Find, Flow, Path
from pathloom.lab.routed.settings import RouterSettings, check_routed
from pathloom.lab.transfers import Transfer

K4 = "fat-tree:k=4,rate=10Mbps,buffer=150"
KERNEL = LabSettings.parse("switches=kernel")


def test_schemes_that_decide_when_a_connection_opens_are_carried(cli: Cli) -> None:
    for scheme in ("ofpt", "lessor:period=1s", "vlb"):
        assert is_bound(scheme)
        check_routed(KERNEL, [scheme, "ecmp"])
        assert RouterSettings.of_run("kernel", scheme) == RouterSettings.of("kernel", "ecmp")
    shown = cli("scheme", "show", "ofpt").out
    assert "in part: new connections take shortest paths" in shown
    assert "source ports" in shown
    assert "no: it moves open connections" in cli("scheme", "show", "hedera").out


@pytest.mark.parametrize(
    ("lab", "scheme", "faults", "said"),
    [
        ("switches=kernel", "hedera", False, "cannot carry it either: it moves open connections"),
        ("switches=kernel", "mptcp-aware", False, "the kernel draws the source ports of subflows"),
        ("switches=kernel,pin=off", "ofpt", False, "leave pin=off out"),
        ("switches=kernel", "lessor", True, "do not find them again after a fault"),
    ],
)
def test_what_source_ports_cannot_carry_is_refused(lab: str, scheme: str, faults: bool, said: str) -> None:
    with pytest.raises(_core.PathloomError, match=said):
        check_routed(LabSettings.parse(lab), [scheme], faults)


def offered(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"src_address": src, "dst_address": dst, "dst_port": 5001} for src, dst in pairs]


def test_each_path_gets_a_port_for_each_flow_and_ports_are_asked_for_once() -> None:
    asked: list[int] = []

    def finder(_: Flow) -> Find:
        # One port in eight takes the second path, so four of 32 do.
        def find(ports: Sequence[int]) -> dict[int, Path]:
            asked.extend(ports)
            return {port: (1, 2 + (port % 8 == 0)) for port in ports}

        return find

    maps = PortMaps(Blueprint.of("x", Fabric(K4), routed=True), finder)
    (few,) = maps.of(offered(*[("a", "b")] * 3))
    # The first batch shows both paths, the second one that there are no more.
    assert asked == list(PORTS[: 2 * AT_ONCE])
    assert (few["source"], few["target"], few["port"]) == ("a", "b", 5001)
    assert maps.of(offered(*[("a", "b")] * 8)) == [few]
    assert len(asked) == 2 * AT_ONCE
    (many,) = maps.of(offered(*[("a", "b")] * 9))
    assert list(many["paths"].values()).count((1, 3)) == 12
    assert asked == list(PORTS[: 3 * AT_ONCE])
    maps.of(offered(*[("a", "b")] * 1000))
    assert len(asked) == MOST_ASKED, "more ports were asked for than allowed"


def paths_between(source: str, target: str) -> dict[int, list[int]]:
    """Source ports of the shortest paths between two hosts, eight of each, as links."""
    fabric = Fabric(K4)
    ends = list(zip(fabric.links["source"], fabric.links["target"], strict=True))
    number = {node["name"]: index for index, node in enumerate(fabric.nodes)}
    found: dict[int, list[int]] = {}
    for first, names in enumerate(fabric._core.paths(source, target)):
        nodes = [number[source], *(number[name] for name in names), number[target]]
        links = [ends.index(pair) for pair in pairwise(nodes)]
        found |= {20_000 + 8 * first + further: links for further in range(8)}
    return found


def transfer(index: int, source: str, target: str) -> Transfer:
    addresses = {Fabric(K4).nodes[host]["name"]: address for address, host, _ in Fabric(K4)._core.addresses()}
    ends = {"src_address": addresses[source], "dst_address": addresses[target], "dst_port": 5001}
    spec = {**ends, "src_port": 40_000 + index, "dscp": 8, "size_bytes": None}
    return cast("Transfer", SimpleNamespace(index=index, spec=spec, sender=None))


def test_connections_of_one_pair_take_different_paths_and_avoid_ports_in_use() -> None:
    paths = paths_between("h0", "h15")
    assert len(paths) == 32
    transfers = [transfer(index, "h0", "h15") for index in range(4)]
    spec = transfers[0].spec
    ends = {"source": spec["src_address"], "target": spec["dst_address"], "port": 5001}
    bindings = Bindings({"fabric": (K4, None), "scheme": "ofpt", "seed": 1, "maps": [{**ends, "paths": paths}]})
    used: list[int] = []

    def open_from(port: int) -> bool:
        # Every other attempt finds a port in use.
        used.append(port)
        return len(used) % 2 == 0

    for one in transfers:
        assert bindings.open(one, 0, open_from)
    got = used[1::2]
    assert len(set(used)) == len(used) == 8
    result = bindings.result()
    assert [paths[port] for port in got] == [result["paths"][index] for index in range(4)]
    # All share the link of their host, so ofpt spreads them over its ToR's links.
    assert len({tuple(path) for path in result["paths"].values()}) > 1
    counts = result["counts"]
    assert (counts["opened"], counts["chosen"], counts["without_port"], counts["moves_refused"]) == (4, 4, 0, 0)
    for one in transfers:
        bindings.close(one, 1)
    while (at_ns := min(bindings.deadlines_ns(), default=None)) is not None and at_ns < 30 * 10**9:
        bindings.advance(at_ns, [])
    assert bindings.open(transfers[0], 30 * 10**9, lambda _: True)


def test_a_connection_without_a_free_port_is_counted() -> None:
    one = transfer(0, "h0", "h15")
    bindings = Bindings({"fabric": (K4, None), "scheme": "ofpt", "seed": 1, "maps": []})
    assert not bindings.open(one, 0, lambda _: True)
    result = bindings.result()
    assert (result["counts"]["without_port"], result["paths"]) == (1, {})


def test_results_have_the_ports_and_paths_of_connections() -> None:
    flows = [{"src_port": 40_000 + index, "ways": [[1, 3], [2, 4]]} for index in range(2)]
    counts: dict[str, Any] = {
        "opened": 2,
        "chosen": 2,
        "without_port": 1,
        "moves_refused": 7,
        "polls": 3,
        "polling_period_s": 5.0,
    }
    result = {
        "flows": [{"src_port": 20_001}, {"src_port": 40_001}],
        "bindings": {"counts": counts, "paths": {"0": [1, 5]}},
    }
    done = take_bindings(flows, result)
    assert done == {"messages": 2, "routes": 2, "polls": 3, "polling_period_s": 5.0}
    assert flows == [
        {"src_port": 20_001, "ways": [[1, 5], [2, 4]], "pinned": True},
        {"src_port": 40_001, "ways": [[1, 3], [2, 4]], "pinned": False},
    ]
    few, moves = not_carried(counts)
    assert few.startswith("1 of 2 connections took other paths")
    assert moves.startswith("7 moves of open connections were refused")
    assert not_carried({**counts, "without_port": 0, "moves_refused": 0}) == []


def test_flows_without_a_path_of_their_own_take_those_of_the_simulator() -> None:
    settings: dict[str, Any] = {
        "fabric": K4, "fabric_text": None, "traffic": "hadoop:load=0.3", "scheme": "ecmp", "transport": None,
        "control": None, "duration": "500ms", "seed": 3, "faults": [], "pcap": None, "event_log": None,
    }  # fmt: skip
    flows = _core.Simulation(json.dumps(settings)).offered()
    binder = _core.Binder(_core.Fabric.from_spec(K4), "ofpt", 1)
    short = [flow for flow in flows if flow["dscp"] == 0]
    assert len(short) > 10
    for now_ns, flow in enumerate(short):
        key = (flow["src_address"], flow["src_port"], flow["dst_address"], flow["dst_port"])
        assert binder.open(now_ns, key, False, flow["size_bytes"]) == (None, flow["ways"][0], False)
