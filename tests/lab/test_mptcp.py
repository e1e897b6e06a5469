"""MPTCP of the kernel: the agent of the hosts opens subflows, and the controller puts them on different paths."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from live import Live, alive, finish, listens, run_on, until
from pathloom.lab import hostd, hosts, system
from pathloom.lab.lab import Lab
from pathloom.lab.transfers import Transfer, count, window_bytes
from support import PATHLOOM, SIMULATOR, Outcome, call, compared, figures, measured

SIZE = 16_777_216
LONGEST_S = 7.906
"""The Linux kernel's own limit for this many bytes over 20 Mbit/s (selftests/net/mptcp/simult_flows.sh)."""
TWO_PATHS = "parallel-paths:rates={},hosts=1,host_rate=100Mbps,buffer=100"
RATE_BPS = 10_000_000
JELLYFISH = f"jellyfish:switches=12,ports=5,hosts=12,rate={RATE_BPS}bps,buffer=100"
PORT = 5001
PEER = f"""
import hashlib, json, random, socket, sys, time
role, address, sends, size = sys.argv[1], sys.argv[2], sys.argv[3] == "sends", int(sys.argv[4])
door = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP)
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if role == "accepts":
    door.bind(("", {PORT}))
    door.listen(1)
    peer = door.accept()[0]
else:
    peer = door
    peer.connect((address, {PORT}))
began_ns, digest, moved = time.monotonic_ns(), hashlib.sha256(), 0
while sends and moved < size:
    data = random.Random(moved).randbytes(min(1 << 20, size - moved))
    peer.sendall(data)
    digest.update(data)
    moved += len(data)
if sends:
    peer.shutdown(socket.SHUT_WR)
while data := peer.recv(1 << 18):
    digest.update(data)
    moved += len(data)
row = {{"began_ns": began_ns, "ended_ns": time.monotonic_ns(), "bytes": moved, "sha256": digest.hexdigest()}}
print(json.dumps(row))
"""


@contextmanager
def managed(name: str, spec: str, scheme: str) -> Iterator[Live]:
    """A lab with a controller and an agent that opens the subflows of a scheme."""
    with alive(name, spec, scheme) as live:
        live.lab.start_hostd(subflows=hosts.subflows_of(scheme, None))
        live.lab.set_subflows(hosts.host_stack("newreno", None), True)
        yield live


def namespace_of(live: Live, host: str) -> str:
    """The namespace of a host."""
    return next(one.namespace for one in live.blueprint.hosts if one.name == host)


def subflows(live: Live, host: str) -> dict[tuple[str, str], int]:
    """Returns the acknowledged bytes of each subflow, by its two ends."""
    text = system.run_tool(["ip", "netns", "exec", namespace_of(live, host), "ss", "-tinHO", f"dport = {PORT}"])
    found = {}
    for line in text.splitlines():
        words = line.split()
        acked = re.search(r"bytes_acked:(\d+)", line)
        if words[0] == "ESTAB":
            found[words[3], words[4]] = int(acked[1]) if acked else 0
    return found


@contextmanager
def transfer(live: Live, ends: tuple[str, str], size: int, up: bool = True) -> Iterator[Callable[[float], float]]:
    """Runs a transfer from the first host, which opens the connection, to the second, or in the other direction.

    Yields a function that waits for its end, checks that the received bytes are those sent, and returns the time taken.
    """
    address = next(host.ports[0].address for host in live.blueprint.hosts if host.name == ends[1])
    roles = ("sends", "receives") if up else ("receives", "sends")
    server = run_on(live, ends[1], PEER, "accepts", address, roles[1], str(size))
    until(lambda: f":{PORT}" in listening(live, ends[1]), "the server listens")
    client = run_on(live, ends[0], PEER, "connects", address, roles[0], str(size))

    def wait(patience_s: float) -> float:
        rows = [json.loads(finish(process, patience_s)) for process in (client, server)]
        assert [row["bytes"] for row in rows] == [size, size]
        assert rows[0]["sha256"] == rows[1]["sha256"]
        sender, receiver = rows if up else rows[::-1]
        took_ns: int = receiver["ended_ns"] - min(rows[0]["began_ns"], sender["began_ns"])
        return took_ns / 1e9

    try:
        yield wait
    finally:
        for process in (client, server):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def listening(live: Live, host: str) -> str:
    """The sockets of a host that wait for connections."""
    return system.run_tool(["ip", "netns", "exec", namespace_of(live, host), "ss", "-ltnH"])


def placed(live: Live, host: str) -> list[tuple[int, ...]]:
    """Returns the links between switches along which the rules of each subflow lead, if it has such rules."""
    rules = live.flow_rules("tcp")
    found = []
    for local, _ in subflows(live, host):
        address, port = local.rsplit(":", 1)
        found.append(tuple(live.path(rules.get((address, int(port)), {}), host)[:-1]))
    return [links for links in found if links]


@pytest.mark.long
@pytest.mark.parametrize("rates", ["10Mbps/10Mbps", pytest.param("15Mbps/5Mbps", marks=pytest.mark.long)])
def test_two_paths_carry_the_sum_of_their_rates(name: str, rates: str) -> None:
    with managed(name, TWO_PATHS.format(rates), "mptcp-aware:subflows=2") as live:
        took_s = []
        for up in (True, False):
            with transfer(live, ("h0", "h1"), SIZE, up) as wait:
                took_s.append(wait(60))
        figures(f"{SIZE} bytes over {rates}, both directions", took_s=took_s)


@pytest.mark.long
def test_every_byte_arrives_while_links_go_down_and_up(name: str) -> None:
    spec = TWO_PATHS.format("20Mbps/20Mbps/20Mbps")
    with managed(name, spec, "mptcp-aware:subflows=3") as live:
        with transfer(live, ("h0", "h1"), 100_000_000) as wait:
            until(lambda: len(subflows(live, "h0")) == 3, "three subflows stand")
            middle = [
                link for link, node in enumerate(live.links["source"]) if live.fabric.nodes[node]["tier"] == "core"
            ]
            cuts = 0
            while len(subflows(live, "h0")) >= 1 and cuts < 8:
                link = middle[2 * cuts % len(middle)]
                live.set_cable(link, False)
                time.sleep(1)
                live.set_cable(link, True)
                time.sleep(1)
                cuts += 1
            took_s = wait(240)
        figures("100 MB over three paths of 20 Mbit/s", cuts=cuts, took_s=took_s)
        assert cuts >= 4


def test_a_killed_controller_loses_nothing_and_the_next_subflow_takes_a_free_path(name: str) -> None:
    # A reset subflow sends no FIN, so for 5 s the controller counts it on its path. The fourth path is free.
    spec = TWO_PATHS.format("5Mbps/5Mbps/5Mbps/5Mbps")
    with managed(name, spec, "mptcp-aware:subflows=3") as live, transfer(live, ("h0", "h1"), SIZE) as wait:
        until(lambda: len(placed(live, "h0")) == 3, "three subflows have paths")
        before = subflows(live, "h0")
        assert len(set(placed(live, "h0"))) == 3
        live.kill()
        until(lambda: sum(subflows(live, "h0").values()) > sum(before.values()) + 1_000_000, "it goes on")
        live.launch()
        (local, remote), _ = list(before.items())[1]
        ends = ["src", local, "dst", remote]
        system.run_tool(["ip", "netns", "exec", namespace_of(live, "h0"), "ss", "-K", *ends])
        until(lambda: (local, remote) not in subflows(live, "h0"), "the subflow is gone")
        until(lambda: len(subflows(live, "h0")) == 3, "another one stands")
        after = subflows(live, "h0")
        until(lambda: len(placed(live, "h0")) == 3, "all have paths again")
        assert len(set(placed(live, "h0"))) == 3
        assert len(set(before) & set(after)) == 2
        wait(120)


@pytest.mark.long
def test_hosts_with_two_addresses_use_every_pair(name: str) -> None:
    spec = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=10Mbps,buffer=100"
    with managed(name, spec, "mptcp-aware:subflows=1,manager=fullmesh") as live:
        with transfer(live, ("h0", "h3"), SIZE) as wait:
            until(lambda: len(subflows(live, "h0")) == 4, "four subflows stand")
            until(lambda: min(subflows(live, "h0").values()) > 50_000, "every subflow carries data")
            found = subflows(live, "h0")
            assert len({(local.rsplit(":", 1)[0], remote) for local, remote in found}) == 4
            took_s = wait(60)
        rate_bps = SIZE * 8 / took_s
        figures("a transfer between hosts with two addresses of 10 Mbit/s", rate_mbps=rate_bps / 1e6)


@pytest.mark.long
def test_ordinary_programs_use_subflows(name: str, lab: Callable[..., Outcome]) -> None:
    assert shutil.which("mptcpize"), "apt-get install mptcpize"
    done = call("up", JELLYFISH, "--controller", "pathloom", "--scheme", "mptcp-aware:subflows=4", "--name", name)
    assert done.code == 0, done.err
    mine = [*PATHLOOM, "lab", "exec"]
    server = subprocess.Popen([*mine, "h5", "--name", name, "--", "mptcpize", "run", "iperf3", "-s", "-1", "-J"])
    listens(Lab(name).blueprint(), "h5", 5201)
    said = lab("exec", "h0", "--", "mptcpize", "run", "iperf3", "-c", "h5", "-t", "4", "-J")
    server.wait(60)
    assert said.code == 0, said.out
    log = lab("exec", "h0", "--", "nstat", "-asz", "MPTcpExtMPJoinSynAckRx")
    joined = int(log.out.split()[-2])
    # iperf3 has a connection for control and one for data.
    assert joined == 6, log.out


@pytest.mark.long
def test_too_few_free_ports_leave_a_connection_with_fewer_subflows(name: str) -> None:
    with managed(name, TWO_PATHS.format("20Mbps/20Mbps"), "mptcp-aware:subflows=8") as live:
        values = {"net.ipv4.ip_local_port_range": "40000 40003"}
        system.inside(namespace_of(live, "h0"), lambda: system.write_sysctls(values))
        with transfer(live, ("h0", "h1"), SIZE) as wait:
            time.sleep(2)
            assert 1 <= len(subflows(live, "h0")) <= 4
            wait(60)
        assert hostd.running(live.lab.directory) is not None


def test_impossible_settings_are_refused_before_anything_is_built(lab: Callable[..., Outcome]) -> None:
    for scheme, text in (
        ("mptcp:subflows=0", "subflows"),
        ("mptcp-aware:subflows=65", "subflows"),
        ("mptcp:manager=fullmesh", "every host has a single address"),
    ):
        done = lab("up", JELLYFISH, "--scheme", scheme)
        assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
        assert text in done.err


def test_results_have_the_path_and_the_bytes_of_every_subflow(tmp_path: Path) -> None:
    schemes = "mptcp:subflows=3,mptcp-aware:subflows=3"
    traffic = ["--fabric", JELLYFISH, "--traffic", "long-lived:pattern=permutation", "--schemes", schemes]
    options = ["--duration", "3s", "--runs", "1", "--worlds", "lab", "--lab", "controller=pathloom"]
    content = compared(*traffic, *options, "--out", str(tmp_path))
    # A kernel gives MPTCP up for a connection if the third packet of the handshake and the first data are lost, or
    # overtaken by the second data (RFC 8684 §3.7). Two processors can reorder packets when they are busy.
    notes = "\n".join(content["traffic"]["notes"])
    plain = sum(map(int, re.findall(r"(\d+) of 12 MPTCP connections became plain TCP", notes)))
    figures("connections that became plain TCP", plain=plain)
    subflows = pl.read_parquet(tmp_path / "subflows.parquet")
    flows = pl.read_parquet(tmp_path / "flows.parquet").select("scheme", "flow", "src", "dst", whole="delivered_bytes")
    by_flow = subflows.group_by("scheme", "flow").agg(pl.len(), pl.col("delivered_bytes").sum(), pl.col("path"))
    by_flow = by_flow.join(flows, on=["scheme", "flow"])
    single = flows.join(by_flow, on=["scheme", "flow"], how="anti")
    assert (single.height, flows.height) == (plain, 24), (single.rows(), notes)
    assert (by_flow["len"] == 3).all(), by_flow.rows()
    # Subflows also count what was sent twice, and what waits at the receiver for a lost segment of another subflow. A
    # slow connection can have as much of this as of delivered data.
    ratio = by_flow["delivered_bytes"] / by_flow["whole"]
    figures("bytes of subflows over bytes of connections", least=ratio.min(), median=ratio.median(), most=ratio.max())
    assert (ratio >= 1).all()
    for row in by_flow.filter(pl.col("scheme") == "mptcp-aware:subflows=3").iter_rows(named=True):
        ends = [(path.split()[0], path.split()[-1]) for path in row["path"]]
        assert ends == [(row["src"], row["dst"])] * 3
        assert len(set(row["path"])) > 1, "a connection has all subflows on one path"
    # The source ports of further subflows are random, and switches spread them by a hash of their own.
    hashed = subflows.filter(pl.col("scheme") == "mptcp:subflows=3").group_by("flow").agg(pl.col("path").null_count())
    assert hashed["path"].to_list() == [2] * (12 - single.filter(pl.col("scheme") == "mptcp:subflows=3").height)


def test_a_connection_that_became_plain_tcp_is_counted_as_such() -> None:
    for accepts in (socket.IPPROTO_TCP, socket.IPPROTO_MPTCP):
        one = counted_transfer(accepts)
        assert one.fell_back == (accepts == socket.IPPROTO_TCP)
        assert one.packets > 0


def counted_transfer(accepts: int) -> Transfer:
    """A transfer over MPTCP to a socket of a protocol, with what the kernel counted."""
    size = 100_000
    with ExitStack() as opened:
        door = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, accepts))
        door.bind(("127.0.0.1", 0))
        door.listen()
        sender = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP))
        sender.connect(door.getsockname())
        receiver = opened.enter_context(door.accept()[0])
        with sender.dup() as writer:
            sending = threading.Thread(target=writer.sendall, args=(bytes(size),))
            sending.start()
            received = 0
            while received < size:
                received += len(receiver.recv(size))
            sending.join()
        one = Transfer(0, {"size_bytes": size}, 0, sender, receiver)
        for end in (sender, receiver):
            count(one, end)
        assert window_bytes(one) > 0
        return one


@pytest.mark.measure
@pytest.mark.long
def test_simulator_and_lab_agree_on_the_gain_of_placed_subflows() -> None:
    schemes = ["mptcp:subflows=4,cc=uncoupled", "mptcp-aware:subflows=4,cc=uncoupled"]
    traffic = ["--fabric", JELLYFISH, "--traffic", "long-lived:pattern=permutation", "--schemes", ",".join(schemes)]
    options = ["--duration", "30s", "--runs", "3", "--worlds", "sim,lab", "--lab", "controller=pathloom"]
    content = compared(*traffic, *options)
    means: dict[str, Any] = {row["scheme"]: row["throughput"]["mean"] for row in content["schemes"]}
    for scheme in schemes:
        what = f"mean goodput under {scheme}"
        measured(what, "share of the link", means[f"{scheme}@lab"], means[scheme], SIMULATOR)
