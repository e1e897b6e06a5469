"""The agent of hosts: programs that know nothing of it are labelled, announced, paced and held."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from machine import timing
from pathloom.fabrics import Fabric
from pathloom.lab import controller, hostd, system
from pathloom.lab.hosts import host_stack
from pathloom.lab.lab import Lab
from support import PATHLOOM, call, figures

FABRIC = "dumbbell:hosts=2,rate=20Mbps,buffer=100"
PACED_BPS = 4_000_000
PACES_KEPT_S = 15.0
LEASE_MS = 1500


class Fake:
    """A controller that tells the agent of a lab what a test wants."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(4)
        self._listener.settimeout(20)
        self.said: list[dict[str, Any]] = []

    def accept(self) -> None:
        """Waits for the agent, and welcomes it."""
        self.hang_up()
        self._peer, _ = self._listener.accept()
        self.said.clear()
        self._peer.settimeout(0.05)
        self._rest = b""
        self.wait("hello")
        self.say({"welcome": {"version": 1, "announce": True}})

    def say(self, what: dict[str, Any]) -> None:
        self._peer.sendall(json.dumps(what).encode() + b"\n")

    def wait(self, verb: str, patience_s: float = 20.0) -> dict[str, Any]:
        """The body of the next line with this verb."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            for number, line in enumerate(self.said):
                if verb in line:
                    found: dict[str, Any] = self.said.pop(number)[verb]
                    return found
            with suppress(TimeoutError):
                self._rest += self._peer.recv(1 << 16)
            *lines, self._rest = self._rest.split(b"\n")
            self.said += [json.loads(line) for line in lines if line]
        raise AssertionError(f"the agent said no `{verb}`, but {self.said}")

    def hang_up(self) -> None:
        """Ends as a killed controller does: nobody answers until `accept`."""
        with suppress(AttributeError):
            self._peer.close()

    def close(self) -> None:
        self.hang_up()
        self._listener.close()


@contextmanager
def lab_with_agent(name: str) -> Iterator[tuple[Lab, Fake]]:
    """A lab of two pairs of hosts with an agent, and a controller of the test's own."""
    lab = Lab(name)
    blueprint = lab.up(Fabric(FABRIC), None, "ecmp", host_stack("linux", None))
    lab.release()
    fake = Fake(lab.directory / controller.HOSTS_SOCKET)
    hostd.start(blueprint, lab.directory)
    fake.accept()
    try:
        yield lab, fake
    finally:
        fake.close()


@contextmanager
def iperf(name: str, lab: Lab, seconds: int = 60, *more: str) -> Iterator[Callable[[float], float]]:
    """A plain iperf3 from h0 to h2; yields what measures the rate of its payload over some seconds."""
    addresses = {host.name: host.ports[0].address for host in lab.blueprint().hosts}
    mine = [*PATHLOOM, "lab", "exec"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*mine, "h2", "--name", name, "--", "iperf3", "-s", "-1"], **quiet)  # type: ignore[call-overload]
    _until(lambda: "5201" in _sockets(lab, "h2", "-ltn"))
    command = [*mine, "h0", "--name", name, "--", "iperf3", "-c", addresses["h2"], "-t", str(seconds), *more]
    client = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    try:
        yield lambda span_s: _rate_bps(lab, "h0", span_s)
    finally:
        for process in (client, server):
            process.kill()
            process.wait()


def _until(true: Callable[[], bool], patience_s: float = 20.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def _sockets(lab: Lab, host: str, *options: str) -> str:
    namespace = next(one.namespace for one in lab.blueprint().hosts if one.name == host)
    return system.run_tool(["ip", "netns", "exec", namespace, "ss", *options])


def _acked(lab: Lab, host: str) -> int:
    """Bytes of the connection that has sent most."""
    found = re.findall(r"bytes_acked:(\d+)", _sockets(lab, host, "-tinH", "dport = 5201"))
    return max(map(int, found), default=0)


def _rate_bps(lab: Lab, host: str, span_s: float) -> float:
    before, began = _acked(lab, host), time.monotonic()
    time.sleep(span_s)
    return (_acked(lab, host) - before) * 8 / (time.monotonic() - began)


def _label(lab: Lab, host: str) -> int:
    """DSCP of the connection that has sent most."""
    text = _sockets(lab, host, "-tnHi", "--tos", "dport = 5201")
    return max((int(tos, 16) >> 2 for tos in re.findall(r"tos:0x([0-9a-f]+)", text)), default=0)


def test_plain_iperf3_is_labelled_announced_paced_held_and_released(name: str) -> None:
    with lab_with_agent(name) as (lab, fake):
        if not hostd.enforces(lab.directory):
            pytest.fail(f"BPF is refused here: {hostd.warning(lab.directory)}")
        with iperf(name, lab, 60) as rate_bps:
            flow = fake.wait("announce")["flow"]
            assert (flow["src"], flow["dst_port"]) == (lab.blueprint().hosts[0].ports[0].address, 5201)
            assert _label(lab, "h0") == 8
            with timing():
                assert rate_bps(2) > 2 * PACED_BPS
            fake.say({"pace": {"flow": flow, "rate_bps": PACED_BPS}})
            time.sleep(1)
            with timing():
                assert rate_bps(3) == pytest.approx(PACED_BPS * 1448 / 1514, rel=0.08)
            fake.say({"hold": {"flow": flow, "lease_ms": 60_000}})
            time.sleep(0.5)
            assert rate_bps(2) == 0, "nothing may pass while it is held"
            fake.say({"pace": {"flow": flow, "rate_bps": None}})
            began = time.monotonic()
            before = _acked(lab, "h0")
            fake.say({"release": {"flow": flow}})
            _until(lambda: _acked(lab, "h0") > before, 5)
            with timing():
                assert time.monotonic() - began < 0.5
                assert rate_bps(2) > 2 * PACED_BPS
        fake.wait("finish")


def test_a_server_on_ipv6_sockets_is_labelled_too(name: str) -> None:
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 30, "-R"):
        flow = fake.wait("announce")["flow"]
        assert flow["src_port"] == 5201
        text = _sockets(lab, "h2", "-tnHi", "--tos", "sport = 5201")
        assert "tos:0x20" in text, text


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_a_killed_agent_leaves_nothing_held_or_paced(name: str, times: int) -> None:
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 3600) as rate_bps:
        flow = fake.wait("announce")["flow"]
        slowest_s = 0.0
        for turn in range(times):
            fake.say({"pace": {"flow": flow, "rate_bps": PACED_BPS}})
            fake.say({"hold": {"flow": flow, "lease_ms": LEASE_MS}})
            time.sleep(0.3)
            before, began = _acked(lab, "h0"), time.monotonic()
            process = hostd.running(lab.directory)
            assert process is not None
            os.kill(process, signal.SIGKILL)
            # Held until the lease ends, and paced after that, without anybody's help.
            _until(lambda before=before: _acked(lab, "h0") > before + 20_000, 10)  # type: ignore[misc]
            slowest_s = max(slowest_s, time.monotonic() - began)
            assert slowest_s < LEASE_MS / 1000 + 2.5
            if turn % 2 == 0:
                time.sleep(max(began + PACES_KEPT_S + 0.5 - time.monotonic(), 0))
                assert rate_bps(2) > 2 * PACED_BPS, "it is paced for longer than 15 s"
            # The next agent takes the programs over.
            hostd.start(lab.blueprint(), lab.directory)
            fake.accept()
            assert fake.wait("announce")["flow"] == flow
            assert _label(lab, "h0") == 8
        figures(f"agent killed {times} times", slowest_release_s=round(slowest_s, 2))
        programs = lab.directory / "bpf" / "pathloom-hostd-1"
        assert (programs / "link-hold").exists()
        hostd.stop(lab.directory)
        assert not programs.exists(), "the programs are gone with an agent that ends"


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_killed_controller_holds_and_paces_nobody_for_long(name: str, times: int) -> None:
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 3600) as rate_bps:
        for _ in range(times):
            flow = fake.wait("announce")["flow"]
            fake.say({"pace": {"flow": flow, "rate_bps": PACED_BPS}})
            fake.say({"hold": {"flow": flow, "lease_ms": LEASE_MS}})
            time.sleep(0.3)
            fake.hang_up()
            began = time.monotonic()
            time.sleep(LEASE_MS / 1000 + 1)
            assert 0 < rate_bps(2) < 1.5 * PACED_BPS, "the hold ends, the pace stays"
            time.sleep(max(began + PACES_KEPT_S + 0.5 - time.monotonic(), 0))
            assert rate_bps(2) > 2 * PACED_BPS
            fake.accept()


def test_the_lab_says_whether_the_agent_runs(name: str) -> None:
    call("up", FABRIC, "--name", name, "--controller", "pathloom", "--scheme", "ofpt")
    assert "host agent  labels, announces, paces and holds" in call("status", "--name", name).out
    agent = json.loads(call("status", "--name", name, "--json", "-").out)["labs"][0]["host_agent"]
    assert agent["process"] and agent["enforces"], agent


def test_an_agent_that_lies_is_limited_and_named(name: str) -> None:
    call("up", FABRIC, "--name", name, "--controller", "pathloom", "--scheme", "ofpt")
    lab = Lab(name)
    path = lab.directory / controller.HOSTS_SOCKET
    mine, other = (host.ports[0].address for host in lab.blueprint().hosts[:2])
    with socket.socket(socket.AF_UNIX) as liar:
        liar.connect(str(path))
        liar.settimeout(10)

        def say(what: dict[str, Any]) -> None:
            liar.sendall(json.dumps(what).encode() + b"\n")

        say({"hello": {"version": 1, "hosts": [mine]}})
        flow = {"src": mine, "dst": other, "proto": 6, "src_port": 1, "dst_port": 2}
        for port in range(3000):
            say({"announce": {"flow": {**flow, "src_port": port, "dst_port": port % 7}, "size_bytes": 1 << 60}})
        for _ in range(20):
            say({"announce": {"flow": {**flow, "src": other}, "size_bytes": 1}})
        said = b""
        with suppress(OSError):
            while got := liar.recv(1 << 16):
                said += got
    assert b"no host that this agent speaks for" in said
    log = (lab.directory / "controller.log").read_text(encoding="utf-8")
    assert "no host that this agent speaks for" in log
    # The agent of all other hosts is still served.
    assert controller.running(lab.directory) is not None and hostd.running(lab.directory) is not None
