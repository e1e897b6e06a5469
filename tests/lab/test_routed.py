"""Labs of routers: static routes and BGP carry IPv4 and IPv6, a cut cable is routed around, killed runs are named."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from pathloom.lab import system
from pathloom.lab.faults import FaultSchedule
from pathloom.lab.lab import Lab, known_labs
from pathloom.lab.routed import srv6
from pathloom.lab.routed.entropy import Flow, Lookups, PathMap, connect, sources_of
from pathloom.lab.routed.numbering import host6
from pathloom.lab.routed.prober import Prober
from pathloom.lab.routed.routers import Routers
from pathloom.lab.status import link_counters
from pathloom.streams.source_ports import read_map
from pathloom.waiting import await_event
from support import K4, PATHLOOM, PATIENCE_S, SMALL, call, compared, left_of

BULK_BYTES = 300_000
ANSWER = """
import socket, sys
door = socket.create_server(("::", 7), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    end, _ = door.accept()
    end.sendall(end.recv(100))
    while end.recv(1 << 16):
        pass
    end.close()
"""
ASK = """
import socket, sys
end = socket.create_connection((sys.argv[1], 7), 20)
end.sendall(b"over routers")
end.shutdown(socket.SHUT_WR)
sys.exit(0 if end.recv(100) == b"over routers" else 1)
"""


@pytest.fixture(scope="module")
def routed(module_name: str) -> Iterator[Lab]:
    """A lab of routers with BGP, and a host that answers."""
    outcome = call("up", K4, "--switches", "frr", "--name", module_name)
    assert outcome.code == 0, outcome.err
    command = [*PATHLOOM, "lab", "exec", "h15", "--name", module_name, "--", "python3", "-c", ANSWER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield Lab(module_name)
        server.kill()


def reaches(lab: Lab, source: str, target: str) -> bool:
    """Whether a host gets an answer from port 7 of an address."""
    return call("exec", source, "--name", lab.name, "--", "python3", "-c", ASK, target).code == 0


def set_link(lab: Lab, link: int, state: str) -> None:
    """Sets a router's end of a cable up or down, as `--fault` does."""
    (port,) = (port for port in lab.blueprint().switch_ports if port.link == link)
    FaultSchedule(lab.blueprint(), [(0, state == "up", [link])], routed=True).set_ends({port: state == "up"})


def routers_of(lab: Lab) -> Routers:
    routers = lab.routers()
    assert routers is not None
    return routers


def await_hops(lab: Lab, router: str, prefix: str, hops: set[str]) -> None:
    """Waits until a router has exactly these next hops to a prefix."""
    switch = next(one for one in lab.blueprint().switches if one.name == router)
    routers, found = routers_of(lab), set[str]()

    def has_hops() -> bool:
        nonlocal found
        found = routers.next_hops(switch).get(prefix, set())
        return found == hops

    assert await_event(has_hops, PATIENCE_S, 0.02), (router, prefix, found)


def test_routers_of_bgp_carry_both_families_and_route_around_a_cut_cable(routed: Lab) -> None:
    blueprint = routed.blueprint()
    addresses = {host.name: host.ports[0].address for host in blueprint.hosts}
    assert all(reaches(routed, source, addresses["h15"]) for source in ("h0", "h13", "h14"))
    assert reaches(routed, "h0", str(host6(addresses["h15"])))
    # The cores above a0_0 have no other way to e0_0, so a3_0, whose cores they are, gets none either.
    for state, upwards, downwards in (("down", {"l34"}, set[str]()), ("up", {"l32", "l34"}, {"l88", "l90"})):
        set_link(routed, 33, state)
        await_hops(routed, "e0_0", "10.0.7.0/24", upwards)
        await_hops(routed, "a3_0", "10.0.0.0/24", downwards)
        assert reaches(routed, "h0", addresses["h15"])
        assert reaches(routed, "h0", str(host6(addresses["h15"])))


def test_a_killed_run_leaves_a_lab_that_is_shown_as_orphaned() -> None:
    # The lab of a run has the name of its process.
    command = [*PATHLOOM, "lab", "run", "--fabric", SMALL, "--traffic", "long-lived:pattern=random", "--schemes"]
    command += ["ecmp", "--duration", "60s", "--runs", "1", "--lab", "switches=kernel"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lab = Lab(f"run-{run.pid}")

    def is_up() -> bool:
        assert run.poll() is None
        return (lab.state() or {}).get("state") == "up"

    assert await_event(is_up, PATIENCE_S, 0.02)

    def state() -> tuple[str, str]:
        (row,) = json.loads(call("status", "--name", lab.name, "--json", "-").out)["labs"]
        return row["state"], row.get("way_out", "")

    try:
        assert state() == ("up", "")
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        assert state()[0] == "orphaned"
        assert f"`pathloom lab down --name {lab.name}` removes it" in state()[1]
        assert lab.name in known_labs()
    finally:
        run.kill()
        assert call("down", "--name", lab.name).code == 0
    assert left_of(lab.name) == []


def test_a_start_that_is_killed_while_daemons_start_is_removed_by_down(name: str) -> None:
    command = [*PATHLOOM, "lab", "up", "leaf-spine:spines=2,leaves=2,hosts=2", "--switches", "frr", "--name", name]
    start = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def daemons_start() -> bool:
        assert start.poll() is None
        return (Lab(name).directory / "frr" / "1" / "zserv").exists()

    assert await_event(daemons_start, PATIENCE_S, 0.005)
    start.kill()
    start.wait()
    assert left_of(name) != []
    assert call("down", "--name", name).code == 0
    assert left_of(name) == []


def test_a_run_on_static_routes_accounts_for_every_packet() -> None:
    content = compared(
        *("--fabric", "leaf-spine:spines=2,leaves=2,hosts=2,rate=10Mbps,buffer=50", "--traffic", "hadoop:load=0.2"),
        *("--schemes", "ecmp,spt,mptcp:subflows=2", "--worlds", "lab", "--duration", "2s", "--runs", "1"),
        *("--lab", "switches=kernel"),
    )
    for scheme in content["schemes"]:
        packets, flows = scheme["packets"], scheme["flows"]
        assert flows["finished"] == flows["started"] > 0
        assert packets["sent"] >= packets["hops"] / 4 > 0


def test_packets_of_connections_take_the_paths_of_a_central_scheme(tmp_path: Path) -> None:
    compared(
        *("--fabric", K4, "--traffic", "long-lived:pattern=stride", "--schemes", "ofpt,lessor", "--worlds", "lab"),
        *("--duration", "4s", "--runs", "1", "--series", "1s", "--lab", "switches=kernel", "--out", str(tmp_path)),
    )
    ways, links, flows = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("way-series", "links", "flows"))
    for scheme in ("ofpt", "lessor"):
        paths = ways.filter(pl.col("scheme") == scheme).sort("flow")["path"].to_list()
        received = flows.filter(pl.col("scheme") == scheme).sort("flow")["delivered_bytes"].to_list()
        assert len(paths) == len(received) == 16
        carried: dict[tuple[str, str], int] = {}
        for path, size_bytes in zip(paths, received, strict=True):
            names = path.split()
            for ends in pairwise(names):
                carried[ends] = carried.get(ends, 0) + size_bytes
        for row in links.filter(pl.col("scheme") == scheme, pl.col("between_switches")).iter_rows(named=True):
            sent, wanted = row["sent_bytes"], carried.get((row["source"], row["target"]), 0)
            # Headers come on top. A flow on another path would be missing here.
            assert sent > wanted or wanted == 0, (scheme, row)


def test_programs_take_the_paths_of_a_map(routed: Lab, tmp_path: Path) -> None:
    code = """
import socket, sys
lines = [socket.create_connection((sys.argv[1], 7), 20) for _ in range(4)]
print(*(line.getsockname()[1] for line in lines))
"""
    addresses = {host.name: host.ports[0].address for host in routed.blueprint().hosts}
    file = tmp_path / "map.json"
    for own, target in (((), addresses["h15"]), (("--ipv6",), str(host6(addresses["h15"])))):
        asked = ("h0", "h15", "--port", "7", "--name", routed.name, "--json", str(file), *own)
        assert call("paths", *asked).code == 0
        command = [*PATHLOOM, "with-paths", "--map", str(file), "-v", "--", "python3", "-c", code, target]
        done = call("exec", "h0", "--name", routed.name, "--", *command)
        assert done.code == 0, done.err
        assert "4 connections had a path of their own, 0 had none" in done.err
        _, found = read_map(file)
        assert len({found[port] for port in map(int, done.out.split())}) == 4, done.out


def test_a_followed_map_has_the_paths_after_a_cut_and_names_connections_that_moved(routed: Lab, tmp_path: Path) -> None:
    blueprint, file = routed.blueprint(), tmp_path / "map.json"
    flow = Flow(blueprint.hosts[0].ports[0].address, blueprint.hosts[15].ports[0].address, 7)
    asked = ["h0", "h15", "--port", "7", "--name", routed.name, "--json", str(file), "--follow"]
    # Without a buffer, `select` sees every line that has not been read.
    with subprocess.Popen([*PATHLOOM, "lab", "paths", *asked], stdout=subprocess.PIPE, bufsize=0) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == b"ready\n"
            _, before = read_map(file)
            port = next(port for port, path in before.items() if path[1] == 32)
            with system.inside(blueprint.hosts[0].namespace, lambda: connect(flow, port, PATIENCE_S)) as standing:
                router = next(one for one in blueprint.switches if one.node == sources_of(blueprint)[32])
                for state, hops in (("down", {"l34"}), ("up", {"l32", "l34"})):
                    set_link(routed, 32, state)
                    await_hops(routed, router.name, "10.0.7.0/24", hops)
                    moved = ""
                    while f" {port} from " not in moved:
                        assert select.select([following.stdout], [], [], PATIENCE_S)[0], "no line of the port's change"
                        moved = following.stdout.readline().decode()
                        assert moved, "the command has ended"
                    _, after = read_map(file)
                    assert (32 in after[port]) == (state == "up"), moved
                standing.sendall(b"x")
                assert standing.recv(1) == b"x"
        finally:
            following.kill()


def links_used(lab: Lab, flow: Flow, port: int, ipv6: bool) -> set[int]:
    """The links between routers that carry the bytes of a connection. Routers tell each other much less."""
    blueprint = lab.blueprint()
    before = link_counters(blueprint)

    def send() -> None:
        with connect(flow, port, PATIENCE_S, ipv6) as end:
            end.sendall(bytes(BULK_BYTES))
            end.shutdown(socket.SHUT_WR)
            while end.recv(1 << 16):
                pass

    system.inside(blueprint.hosts[0].namespace, send)
    sources, switches = sources_of(blueprint), {one.node for one in blueprint.switches}
    sent = {int(name[1:]): count[0] - before[name][0] for name, count in link_counters(blueprint).items()}
    return {link for link, size in sent.items() if size > BULK_BYTES and sources[link ^ 1] in switches}


def test_source_ports_take_the_paths_of_the_map_also_after_a_cut(routed: Lab) -> None:
    blueprint = routed.blueprint()
    flow = Flow(blueprint.hosts[0].ports[0].address, blueprint.hosts[15].ports[0].address, 7)
    ports = range(40000, 40032)
    for one in (flow._replace(protocol="udp"), flow):
        with Prober(blueprint, one) as prober:
            found = prober.find(ports)
        assert found == Lookups(blueprint, one).find(ports)
        assert sorted(found) == list(ports)
    known = PathMap(flow, found)
    assert len(known.by_path()) == 4
    for ipv6 in (True, False):
        with Prober(blueprint, flow, ipv6) as prober:
            known = PathMap(flow, prober.find(ports))
        for path, (port, *_) in known.by_path().items():
            assert links_used(routed, flow, port, ipv6) == set(path[1:-1]), (ipv6, port)

    # Only ports whose path had the cable take another path.
    sources = sources_of(blueprint)
    path = next(iter(known.by_path()))
    cable = (path[1], path[1] ^ 1)
    expected = known.stale(cable)
    router = next(one for one in blueprint.switches if one.node == sources[path[1]])
    others = {f"l{one}" for one in (32, 34) if one not in cable}
    with Prober(blueprint, flow) as prober:
        for state, hops in (("down", others), ("up", {"l32", "l34"})):
            set_link(routed, path[1], state)
            await_hops(routed, router.name, "10.0.7.0/24", hops)
            if state == "down":
                assert known.refresh(prober.find) == expected
                assert known.stale(cable) == []


def test_packets_take_exactly_the_path_of_their_segments_and_move_with_it(routed: Lab) -> None:
    blueprint = routed.blueprint()
    start, end = blueprint.hosts[0].ports[0], blueprint.hosts[15].ports[0]
    flow = Flow(start.address, end.address, 7)
    ways = ["a0_0,c0,a3_0", "a0_0,c1,a3_0", "a0_1,c2,a3_1"]
    paths = {way: srv6.path_via(blueprint, start, end, way.split(",")) for way in ways}
    # Segments lead over any cables, also where no shortest path does.
    paths["detour"] = srv6.path_via(blueprint, start, end, ["a0_1", "c2", "a1_1", "c3", "a3_1"])
    for way in ways:
        assert call("srv6", "h0", "h15", "--via", way, "--name", routed.name).code == 0
        assert links_used(routed, flow, 40100, ipv6=True) == set(paths[way][1:-1]), way
    srv6.put(blueprint, paths["detour"])
    assert links_used(routed, flow, 40101, ipv6=True) == set(paths["detour"][1:-1])
    assert srv6.paths_of(blueprint, start) == {str(host6(end.address)): srv6.segments(paths["detour"])}

    # An open connection moves with the path, and routers drop nothing of it.
    def move() -> None:
        with connect(flow, 40102, PATIENCE_S, ipv6=True) as line:
            for path in [*paths.values()] * 5:
                srv6.put(blueprint, path)
                line.sendall(bytes(10_000))
            line.shutdown(socket.SHUT_WR)
            assert line.recv(100) == bytes(100)
            assert line.recv(100) == b"", "the other host has read everything"

    before = routers_of(routed).drops()
    system.inside(blueprint.hosts[0].namespace, move)
    assert routers_of(routed).drops() == before
    assert call("srv6", "h0", "h15", "--clear", "--name", routed.name).code == 0
    assert srv6.paths_of(blueprint, start) == {}
    assert reaches(routed, "h0", str(host6(end.address)))
