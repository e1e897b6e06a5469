"""A lab of two pairs of hosts with the host agent, and a controller that the test plays."""

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

from pathloom.fabrics import Fabric
from pathloom.lab import controller, hostd, system
from pathloom.lab.hosts import host_stack
from pathloom.lab.lab import Lab
from pathloom.waiting import await_event
from support import PATHLOOM, PATIENCE_S

FABRIC = "dumbbell:hosts=2,rate=20Mbps,buffer=100"
PACED_BPS = 4_000_000
PACES_KEPT_S = 15.0
"""Longest time for which a pace lasts after the controller is lost."""
LEASE_MS = 1500
PROBE_S = 0.5
"""Time after which TCP tries again if its own host dropped a packet (TCP_RESOURCE_PROBE_INTERVAL of Linux)."""


class Fake:
    """A controller that sends the orders of a test to the agent of a lab."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(4)
        self._listener.settimeout(PATIENCE_S)
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

    def wait(self, verb: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Returns the body of the next line with this verb."""
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
        """Closes the connection, like a killed controller: nothing answers until `accept`."""
        with suppress(AttributeError):
            self._peer.close()

    def close(self) -> None:
        self.hang_up()
        self._listener.close()


@contextmanager
def lab_with_agent(name: str) -> Iterator[tuple[Lab, Fake]]:
    """A lab of two pairs of hosts with an agent, and a controller that the test plays."""
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
    """Runs a plain iperf3 from h0 to h2. Yields a function that measures its payload rate over some seconds."""
    addresses = {host.name: host.ports[0].address for host in lab.blueprint().hosts}
    mine = [*PATHLOOM, "lab", "exec"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*mine, "h2", "--name", name, "--", "iperf3", "-s", "-1"], **quiet)  # type: ignore[call-overload]
    until(lambda: "5201" in sockets(lab, "h2", "-ltn"))
    command = [*mine, "h0", "--name", name, "--", "iperf3", "-c", addresses["h2"], "-t", str(seconds), *more]
    client = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    try:
        yield lambda span_s: rate_of(lab, "h0", span_s)
    finally:
        for process in (client, server):
            process.kill()
            process.wait()


def until(true: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    assert await_event(true, patience_s, 0.05), "the condition was not true in time"


def sockets(lab: Lab, host: str, *options: str) -> str:
    namespace = next(one.namespace for one in lab.blueprint().hosts if one.name == host)
    return system.run_tool(["ip", "netns", "exec", namespace, "ss", *options])


def acked(lab: Lab, host: str) -> int:
    """Returns the acknowledged bytes of the connection that has sent most."""
    found = re.findall(r"bytes_acked:(\d+)", sockets(lab, host, "-tinH", "dport = 5201"))
    return max(map(int, found), default=0)


def rate_of(lab: Lab, host: str, span_s: float) -> float:
    before, began = acked(lab, host), time.monotonic()
    time.sleep(span_s)
    return (acked(lab, host) - before) * 8 / (time.monotonic() - began)


def label(lab: Lab, host: str) -> int:
    """Returns the largest DSCP of the connections."""
    text = sockets(lab, host, "-tnHi", "--tos", "dport = 5201")
    return max((int(tos, 16) >> 2 for tos in re.findall(r"tos:0x([0-9a-f]+)", text)), default=0)


def pace_limit_bps(lab: Lab, host: str) -> float | None:
    """Returns the maximum pacing rate of the connection to iperf3, in payload; None if it has none."""
    text = sockets(lab, host, "-tinH", "dport = 5201")
    found = re.search(r"pacing_rate [\d.]+\w*bps/([\d.]+)([KMG]?)bps", text)
    return None if found is None else float(found[1]) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[found[2]]


def kill_agent(lab: Lab) -> None:
    """Kills the agent of a lab, as a crash would."""
    process = hostd.running(lab.directory)
    assert process is not None
    os.kill(process, signal.SIGKILL)
