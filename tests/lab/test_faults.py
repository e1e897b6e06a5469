"""Faults under traffic: numbered probes on long-lasting flows, and a record of each probe."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from live import K4, QUIET, Live, alive, finish, permutation, run_on, spoil, until
from pathloom.lab import controller, system
from pathloom.lab.probes import Track, summary
from pathloom.lab.runs import run_agent
from support import PATIENCE_S, figures, measured

STATE = '[state]\ndirectory = "{}"'


LONG = pytest.mark.long


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=LONG)])
def test_a_killed_controller_loses_no_packet_and_no_rule(name: str, times: int) -> None:
    with alive(name, K4, QUIET) as live:
        pairs = permutation(live, 8)
        with live.probes(pairs) as probes:
            paths = live.await_paths(pairs)
            before = live.state()
            # First a controller without a snapshot, which adopts rules, then one with a snapshot.
            for more in ("", STATE.format(live.lab.directory / "state")):
                live.configure(QUIET, more=more)
                # The first start with a snapshot directory finds no snapshot yet.
                for _ in range(times + bool(more)):
                    time.sleep(1)
                    live.kill()
                    time.sleep(0.5)
                    live.launch()
                # Old rules of paths are drained within 2 s.
                time.sleep(3)
                assert live.state() == before
                assert live.check_rules(pairs) == paths
            tracks = probes.stop()
        figures(f"{times} kills without memory, {times + 1} with", **summary(tracks))
        assert not spoil(tracks)
        assert sum(track.duplicated for track in tracks) == 0


HELD_PERIOD_S, HELD_POLLS = 0.3, 3
"""Period of OFPT's polls, in seconds, and the length of a lease in polls."""
ALONE_BYTES, HELD_BYTES = 3_000_000, 3_500_000
RATE_BPS = 10e6 * 1448 / 1514


@pytest.mark.long
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=LONG)])
def test_a_killed_controller_leaves_no_flow_held_and_no_rule(name: str, times: int) -> None:
    scheme = f"ofpt:sizes=announced,period={HELD_PERIOD_S}s"
    with alive(name, K4, scheme) as live:
        # Pairs between pods that the transfers do not use.
        pairs = permutation(live, 8)[4:]
        with live.probes(pairs) as probes:
            announce(live, pairs)
            rows = []
            for turn in range(times):
                rows += kill_while_held(live, 40_000 + 2 * turn)
                live.launch()
            # Rules of finished transfers are removed after their idle time-out.
            until(lambda: not live.rules_of("tcp"), "no rule of a transfer is left")
            live.await_paths(pairs)
            tracks = probes.stop()
        held_s = [row["held_ns"] / 1e9 for row in rows[1::2]]
        figures(
            f"{times} kills while a flow is held",
            held_s=[round(min(held_s), 2), round(max(held_s), 2)],
            **summary(tracks),
        )
        assert [row["error"] for row in rows] == [None] * len(rows)
        assert all(row["finish_ns"] > 0 for row in rows)
        assert not spoil(tracks)
        assert sum(track.duplicated for track in tracks) == 0
        # The longer transfer of each pair was held, and sent when its lease ended, before the other one could be done.
        # If the machine stands still, the controller may be killed before it has held the longer one.


def announce(live: Live, pairs: Sequence[tuple[str, str]]) -> None:
    """Announces the probes to the controller, as an agent of their hosts does."""
    addresses = {host.name: host.ports[0].address for host in live.blueprint.hosts}
    words: list[dict[str, Any]] = [{"hello": {"version": 1, "hosts": [addresses[source] for source, _ in pairs]}}]
    for index, (source, target) in enumerate(pairs):
        ports = {"proto": int(socket.IPPROTO_UDP), "src_port": 20_000 + index, "dst_port": 20_000 + index}
        flow = {"src": addresses[source], "dst": addresses[target], **ports}
        words.append({"announce": {"flow": flow, "size_bytes": None}})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(PATIENCE_S)
        door.connect(str(live.lab.directory / controller.HOSTS_SOCKET))
        door.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in words))
        live.await_paths(pairs)


def kill_while_held(live: Live, port: int) -> list[dict[str, Any]]:
    """Starts two transfers between two hosts. OFPT holds the longer one, and the controller is killed meanwhile."""
    addresses = {host.name: host.ports[0].address for host in live.blueprint.hosts}
    namespaces = {host.ports[0].address: host.namespace for host in live.blueprint.hosts}
    ends = {"src_address": addresses["h0"], "dst_address": addresses["h2"], "dst_port": 5001, "dscp": 8, "after": []}
    flows = [
        {**ends, "start_ns": start_ns, "size_bytes": size_bytes, "src_port": port + index}
        for index, (start_ns, size_bytes) in enumerate(((0, ALONE_BYTES), (350_000_000, HELD_BYTES)))
    ]
    plan = {"duration_ns": 2_000_000_000, "drain": 10, "namespaces": namespaces, "flows": flows}
    plan["orders"] = str(live.lab.directory / controller.HOSTS_SOCKET)

    def report(now_s: float) -> None:
        # By now the second transfer is held. The controller has not read counters often enough to call the first one
        # idle, as it may do if Open vSwitch has not updated them.
        if now_s > 0.4 and live.process is not None and live.process.poll() is None:
            live.kill()

    rows: list[dict[str, Any]] = run_agent(live.lab, plan, report)["flows"]
    return rows


def cut_and_mend(live: Live, pairs: Sequence[tuple[str, str]], links: Sequence[int]) -> list[tuple[int, int]]:
    """Cuts cables one after another for a time. Returns the spans."""
    spans = []
    for link in links:
        start_ns = live.set_cable(link, False)
        time.sleep(2)
        spans.append((start_ns, live.set_cable(link, True)))
        # A link that failed a few times recently is used again only after a quiet time.
        time.sleep(2)
    return spans


@pytest.mark.measure
@pytest.mark.parametrize("cuts", [2, pytest.param(24, marks=LONG)])
def test_flows_on_a_cable_that_is_cut_move_at_once(name: str, cuts: int) -> None:
    with alive(name, K4, QUIET) as live:
        pairs = permutation(live, 8)
        shorts = permutation(live, 8)
        with live.probes(pairs) as probes, live.probes(shorts, dscp=0, first_port=21_000) as defaults:
            paths = live.await_paths(pairs)
            used = sorted({min(link, link ^ 1) for path in paths for link in path[:-1]})
            chosen = (used * cuts)[:: max(1, len(used) // cuts)][:cuts]
            spans = cut_and_mend(live, pairs, chosen)
            time.sleep(3)
            live.await_paths(pairs)
            for what, tracks in (("flows", probes.stop()), ("defaults", defaults.stop())):
                judge(what, tracks, spans)


def judge(what: str, tracks: Sequence[Track], spans: Sequence[tuple[int, int]]) -> None:
    """Asserts that no flow stays in a black hole after cuts. Measures the outages."""
    outages = []
    for start_ns, mended_ns in spans:
        for track in tracks:
            outage = track.outage_ns(start_ns, mended_ns)
            assert outage is not None, f"{what}: {track.source}->{track.target} stayed black-holed"
            if outage:
                outages.append(outage / 1e6)
    shares = {f"p{part}_ms": round(float(np.percentile(outages, part)), 1) for part in (50, 95, 100) if outages}
    figures(f"{len(spans)} cuts, {what}", hit=len(outages), lost=sum(track.lost for track in tracks), **shares)
    if outages:
        pause_ms = max(track.longest_pause_ns for track in tracks) / 1e6
        name = f"median outage of {what}, {len(spans)} cuts"
        measured(name, "ms", shares["p50_ms"], pause_ms, "the longest pause of the probes' sender")
    # After the cuts nothing is lost, not even by the repair.
    calm = sum(int(np.sum(track.sent_ns[track.missing()] > spans[-1][1] + 2_500_000_000)) for track in tracks)
    assert calm == 0


TALKER = """
import socket, struct, sys, time
door = socket.socket()
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
door.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
door.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[3]) << 2)
door.bind(("", int(sys.argv[2])))
door.connect((sys.argv[1], 5001))
door.settimeout(30)
while True:
    door.sendall(bytes(200))
    time.sleep(0.02)
"""
"""Sends until it is ended. It closes the connection with a reset, so its port can be used again at once."""
LISTENER = """
import json, socket, time
door = socket.create_server(("", 5001))
print("ready", flush=True)
for connection in range(2):
    peer, _ = door.accept()
    times = []
    peer.settimeout(30)
    try:
        while peer.recv(1 << 16):
            times.append(time.time_ns())
    except (TimeoutError, ConnectionResetError):
        pass
print(json.dumps(times))
"""
"""Accepts two connections, one after the other. Prints when bytes of the second one arrived."""
DEAD_S, GIVE_UP_S = 8.0, 15.0
"""Time, in seconds, after which a sender without a controller has left a dead path: 4 times `path_idle_timeout_s`."""


@pytest.mark.long
@pytest.mark.parametrize("acks", ["path", pytest.param("default", marks=LONG)])
def test_without_a_controller_connections_leave_dead_paths(name: str, acks: str) -> None:
    """Two cables are cut on the way up, where switches avoid them on the default routes without a controller.

    On the way down there is no other path without a controller. So a connection is not judged if its acknowledgements
    come down by one of the two cables on the default routes. To find these connections, each is first opened without
    the label of long flows, from the same port.
    """
    with alive(name, K4, f"ofpt:detect=label,acks={acks}") as live, ExitStack() as started:
        pairs = permutation(live, 8)
        listeners = [started.enter_context(run_on(live, target, LISTENER)) for _, target in pairs]
        for listener in listeners:
            started.callback(listener.kill)
            assert listener.stdout is not None
            assert listener.stdout.readline() == b"ready\n"
        unlabelled = talk(live, started, pairs, dscp=0)
        time.sleep(1)
        answers = acknowledged_by(live, pairs)
        end(unlabelled)
        labelled = talk(live, started, pairs, dscp=8)
        paths = await_connections(live, pairs)
        ups, cut, deaf = choose_cables(live, paths, answers)
        live.kill()
        time.sleep(0.5)
        start_ns = min(live.set_cable(link, False) for link in ups)
        time.sleep(GIVE_UP_S + 1)
        end(labelled)
        arrivals = [json.loads(finish(listener, 90)) for listener in listeners]
    stood_s = {}
    for index, times_ns in enumerate(arrivals):
        late_ns = [start_ns, *(one for one in times_ns if one > start_ns)]
        gaps_ns = [after - before for before, after in itertools.pairwise(late_ns)]
        stood_s[index] = round(max(gaps_ns) / 1e9, 2) if times_ns[-1] > start_ns + GIVE_UP_S * 1e9 else None
    what = f"two cables cut without a controller, acks={acks}"
    figures(what, stood_s=stood_s, cut=sorted(cut), answers_cut_off=sorted(deaf))
    judged = {index: stood for index, stood in stood_s.items() if index not in deaf}
    assert cut - deaf, "there is no flow to judge"
    stood = [one for one in judged.values() if one is not None]
    assert len(stood) == len(judged), "a connection that never left its dead path"


def end(talkers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends connections, and checks that none of them failed before."""
    for talker in talkers:
        talker.terminate()
    assert [talker.wait(60) for talker in talkers] == [-signal.SIGTERM] * len(talkers)


def talk(live: Live, started: ExitStack, pairs: Sequence[tuple[str, str]], dscp: int) -> list[subprocess.Popen[bytes]]:
    """Opens a connection for each pair, from ports 30,000 on."""
    addresses = {host.name: host.ports[0].address for host in live.blueprint.hosts}
    talkers = []
    for index, (source, target) in enumerate(pairs):
        words = (addresses[target], str(30_000 + index), str(dscp))
        talker = started.enter_context(run_on(live, source, TALKER, *words))
        started.callback(talker.kill)
        talkers.append(talker)
    return talkers


def await_connections(live: Live, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
    """Waits until each TCP connection from ports 30,000 on has its own path. Returns the paths."""
    addresses = {host.name: host.ports[0].address for host in live.blueprint.hosts}

    def paths() -> list[list[int]]:
        found = live.flow_rules("tcp")
        return [
            live.path(found.get((addresses[source], 30_000 + index), {}), source)
            for index, (source, _) in enumerate(pairs)
        ]

    until(lambda: all(len(path) == 5 for path in paths()), "every connection has a path of its own")
    return paths()


def choose_cables(
    live: Live, paths: Sequence[Sequence[int]], answers: dict[int, set[int]]
) -> tuple[tuple[int, ...], set[int], set[int]]:
    """Returns two cables on the way up, the flows that use one of them, and the flows whose answers come down by one.

    `answers` has the flows whose answers come by each uplink. The cables are at different switches, so that each switch
    has another uplink. Of all such pairs, this one is used by the most flows whose answers come by other cables.
    """

    def outcome(ups: tuple[int, ...]) -> tuple[set[int], set[int]]:
        cut = {index for index, path in enumerate(paths) if path[1] in ups}
        return cut, set.union(*(answers[link] for link in ups))

    apart = [
        ups
        for ups in itertools.combinations(sorted({path[1] for path in paths}), 2)
        if len({live.links["source"][link] for link in ups}) == len(ups)
    ]
    best = max(apart, key=lambda ups: len(set.difference(*outcome(ups))))
    return best, *outcome(best)


def acknowledged_by(live: Live, pairs: Sequence[tuple[str, str]]) -> dict[int, set[int]]:
    """Returns, for each cable from aggregation to core, the connections whose acknowledgements come down by it."""
    hosts = {host.node for host in live.blueprint.hosts}
    ends = list(zip(live.links["source"], live.links["target"], strict=True))
    tors = {target for source, target in ends if source in hosts}
    aggregations = {target for source, target in ends if source in tors} - hosts
    ups = [link for link, (source, target) in enumerate(ends) if source in aggregations and target not in tors]
    with ThreadPoolExecutor(len(ups)) as pool:
        found = list(pool.map(lambda link: answers_by(live, link), ups))
    answers = {link: {port - 30_000 for port in ports} for link, ports in zip(ups, found, strict=True)}
    assert set.union(*answers.values()) == set(range(len(pairs))), answers
    return answers


def answers_by(live: Live, link: int) -> set[int]:
    """Returns destination ports of the TCP segments that arrive at the first end of a link within a second."""

    def listen() -> set[int]:
        ports, end = set(), time.monotonic() + 1
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as door:
            door.bind((f"l{link}", 3))
            door.settimeout(0.1)
            while time.monotonic() < end:
                try:
                    frame, (_, _, kind, *_) = door.recvfrom(2000)
                except TimeoutError:
                    continue
                head = frame.find(b"\x08\x00\x45", 12, 20) + 2
                if kind != socket.PACKET_OUTGOING and head > 1 and frame[head + 9] == socket.IPPROTO_TCP:
                    ports.add(int.from_bytes(frame[head + 22 : head + 24], "big"))
        return ports

    return {port for port in system.inside(live.place_of(link), listen) if 30_000 <= port < 30_100}


def middle(live: Live) -> set[int]:
    """Switches without hosts."""
    hosts = {host.node for host in live.blueprint.hosts}
    tors = {live.links["source"][link] for link, node in enumerate(live.links["target"]) if node in hosts}
    return {switch.node for switch in live.blueprint.switches} - tors
