"""The host agent labels, announces, paces and holds connections of programs that do not know it."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hosted import FABRIC, PACED_BPS, acked, iperf, lab_with_agent, label, pace_limit_bps, sockets, until
from pathloom.lab import hostd, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.lab import Lab
from support import PATHLOOM, call, figures


def test_plain_iperf3_is_labelled_announced_paced_held_and_released(name: str) -> None:
    with lab_with_agent(name) as (lab, fake):
        if not hostd.enforces(lab.directory):
            pytest.fail(f"BPF is refused here: {hostd.warning(lab.directory)}")
        with iperf(name, lab, 60) as rate_bps:
            flow = fake.wait("announce")["flow"]
            assert (flow["src"], flow["dst_port"]) == (lab.blueprint().hosts[0].ports[0].address, 5201)
            assert label(lab, "h0") == 8
            before_bps = rate_bps(2)
            fake.say({"pace": {"flow": flow, "rate_bps": PACED_BPS}})
            until(lambda: pace_limit_bps(lab, "h0") is not None)
            time.sleep(1)
            paced_bps = rate_bps(3)
            fake.say({"hold": {"flow": flow, "lease_ms": 60_000}})
            time.sleep(0.5)
            assert rate_bps(2) == 0, "no bytes may pass while the connection is held"
            fake.say({"pace": {"flow": flow, "rate_bps": None}})
            began = time.monotonic()
            before = acked(lab, "h0")
            fake.say({"release": {"flow": flow}})
            until(lambda: acked(lab, "h0") > before)
            figures(
                "iperf3 that is paced, held and released",
                free_bps=before_bps,
                paced_of_rate=paced_bps / (PACED_BPS * 1448 / 1514),
                released_after_s=time.monotonic() - began,
            )
        fake.wait("finish")


def test_a_connection_is_long_by_what_waits_in_its_socket(name: str) -> None:
    sender = """
import socket, sys, time
connection = socket.socket()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
connection.connect((sys.argv[1], 5201))
connection.sendall(bytes(150_000))
time.sleep(60)
"""
    reader = """
import socket, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listener.bind(("", 5201))
listener.listen()
connection, _ = listener.accept()
time.sleep(60)
"""
    with lab_with_agent(name) as (lab, fake):
        address = next(host.ports[0].address for host in lab.blueprint().hosts if host.name == "h2")
        mine = [*PATHLOOM, "lab", "exec"]
        server = subprocess.Popen([*mine, "h2", "--name", name, "--", "python3", "-c", reader])
        until(lambda: "5201" in sockets(lab, "h2", "-ltn"))
        client = subprocess.Popen([*mine, "h0", "--name", name, "--", "python3", "-c", sender, address])
        try:
            assert fake.wait("announce")["flow"]["dst"] == address
            assert acked(lab, "h0") < 100_000, "the receiver reads nothing"
        finally:
            for process in (client, server):
                process.kill()
                process.wait()


@pytest.mark.long
def test_a_server_on_ipv6_sockets_is_labelled_too(name: str) -> None:
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 30, "-R"):
        flow = fake.wait("announce")["flow"]
        assert flow["src_port"] == 5201
        text = sockets(lab, "h2", "-tnHi", "--tos", "sport = 5201")
        assert "tos:0x20" in text, text


def test_what_others_remove_is_put_back_or_named(name: str) -> None:
    with lab_with_agent(name) as (lab, fake):
        log = lab.directory / "hostd.log"

        def said(*words: str) -> bool:
            return any(all(word in line for word in words) for line in log.read_text(encoding="utf-8").splitlines())

        # Systemd does this when it restarts a unit. The kernel then forgets the programs of the cgroup.
        group = lab.directory / "cgroup" / f"pathloom-{name}"
        group.rmdir()
        group.mkdir()
        until(lambda: said("created their cgroup anew", "attached again"))
        with iperf(name, lab, 30):
            assert fake.wait("announce")["flow"]["dst_port"] == 5201
        (lab.directory / "bpf" / "pathloom-hostd-1" / "link-hold").unlink()
        until(lambda: said("has removed pins of the agent"))
        host = lab.blueprint().hosts[3]
        within = ["ip", "-n", host.namespace]
        system.run_tool([*within, "address", "flush", "dev", host.ports[0].interface])
        until(lambda: said(f"{host.ports[0].address}: no interface has this address"))
        system.run_tool(["ip", "netns", "delete", host.namespace])
        until(lambda: said(f"namespace /run/netns/{host.namespace}"))
        system.run_tool(["ip", "netns", "add", host.namespace])
        until(lambda: said(f"namespace /run/netns/{host.namespace}", "was created anew"))


def test_what_others_remove_is_noticed_without_the_periodic_look(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = hostd._write_config

    def write_rarely(blueprint: Blueprint, directory: Path, *more: Any) -> None:
        write(blueprint, directory, *more)
        config = directory / "hostd.toml"
        config.write_text(config.read_text().replace("[kernel]", "[kernel]\nlook_s = 3600"))

    monkeypatch.setattr(hostd, "_write_config", write_rarely)
    with lab_with_agent(name) as (lab, _):
        log = lab.directory / "hostd.log"

        def said(words: str) -> bool:
            return words in log.read_text(encoding="utf-8")

        group = lab.directory / "cgroup" / f"pathloom-{name}"
        group.rmdir()
        group.mkdir()
        until(lambda: said("created their cgroup anew"))
        (lab.directory / "bpf" / "pathloom-hostd-1" / "link-hold").unlink()
        until(lambda: said("has removed pins of the agent"))
        gone, deleted = lab.blueprint().hosts[2:4]
        within = ["ip", "-n", gone.namespace]
        system.run_tool([*within, "address", "flush", "dev", gone.ports[0].interface])
        until(lambda: said(f"{gone.ports[0].address}: no interface has this address"))
        again = f"{gone.ports[0].address}/32"
        system.run_tool([*within, "address", "add", again, "dev", gone.ports[0].interface])
        until(lambda: said(f"no longer: {gone.ports[0].address}: no interface has this address"))
        system.run_tool(["ip", "netns", "delete", deleted.namespace])
        until(lambda: said(f"namespace /run/netns/{deleted.namespace}"))


def test_lab_status_shows_whether_the_agent_runs(name: str) -> None:
    call("up", FABRIC, "--name", name, "--controller", "pathloom", "--scheme", "ofpt")
    assert "host agent  labels, announces, paces and holds" in call("status", "--name", name).out
    agent = json.loads(call("status", "--name", name, "--json", "-").out)["labs"][0]["host_agent"]
    assert agent["process"] and agent["enforces"], agent


@pytest.mark.long
def test_hosts_have_small_tables_of_connections_and_the_machine_keeps_its_setting(name: str) -> None:
    """Two labs that start at the same time do not affect each other, since neither changes the machine's setting."""
    setting = Path("/proc/sys/net/ipv4/tcp_child_ehash_entries")
    before = setting.read_text(encoding="ascii")
    seen, over = set(), threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(setting.read_text(encoding="ascii"))

    watcher = threading.Thread(target=look)
    watcher.start()
    names = [name, f"{name}-b"]
    try:
        with ThreadPoolExecutor(2) as pool:
            ups = list(pool.map(lambda one: call("up", FABRIC, "--name", one), names))
        assert [up.code for up in ups] == [0, 0], ups
        for one in names:
            for host in Lab(one).blueprint().hosts:
                size = system.inside(host.namespace, lambda: _sysctl("tcp_ehash_entries"))
                assert size == hostd.BUCKETS, f"{host.name} of {one}: {size}"
    finally:
        over.set()
        watcher.join()
        Lab(names[1]).down()
    assert seen == {before}


def _sysctl(name: str) -> int:
    return int(Path("/proc/sys/net/ipv4", name).read_text(encoding="ascii"))
