"""Tools for the lab's tests: command lines, and the remains of a lab."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from pathloom.lab import system
from pathloom.lab.lab import RUN_DIRECTORY

PATHLOOM = [sys.executable, "-m", "pathloom"]
SMALL = "dumbbell:hosts=2,rate=10Mbps,buffer=50"
NOT_ROOT = """
import os, sys
import pathloom.cli.app, pathloom.cli.lab, pathloom.fabrics, pathloom.lab.hosts, pathloom.lab.lab
pathloom.cli.app.application()
os.setuid(65534)
sys.exit(pathloom.cli.run(sys.argv[1:]))
"""
"""Runs without root. Modules in a folder that only root may read are loaded before the rights are given up."""
K4 = "fat-tree:k=4,rate=10Mbps,buffer=150"


PATIENCE_S = 60.0
"""Longest wait for an event. Only a defect makes a test wait that long."""
FIGURES: list[str] = []
"""Figures of the test that runs, as JSON."""


def figures(what: str, **values: object) -> None:
    """Records figures of a test, for the summary and for `make bench-live`."""
    FIGURES.append(json.dumps({"what": what, "values": values}))


SIMULATOR = "the simulator, same flows"
"""The control of a measurement that both worlds make."""


def measured(name: str, unit: str, value: float, control: float, of: str) -> None:
    """Records a measurement beside its control from the same run; `of` says what the control is."""
    row = {"name": name, "unit": unit, "value": float(value), "control": float(control), "of": of}
    FIGURES.append(json.dumps(row))


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in listening]


def loop_share(seconds: float = 0.5) -> float:
    """Share of a core that a loop without any work gets: 1.0 if nobody takes processor time from it."""
    began, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        pass
    return (time.thread_time() - used) / (time.perf_counter() - began)


def unmanaged_bps(rate_bps: float, seconds: int = 5) -> float:
    """What iperf3 measures over the loopback interface, which no switch touches, when it sends at a rate."""
    command = ["iperf3", "--port", "5299", "--json"]
    with subprocess.Popen([*command, "--server", "--one-off"], stdout=subprocess.PIPE) as server:
        time.sleep(0.5)
        sending = [*command, "--client", "127.0.0.1", "--bitrate", f"{rate_bps:.0f}", "--time", str(seconds)]
        said = json.loads(subprocess.run(sending, capture_output=True, text=True, check=True).stdout)
        server.communicate(timeout=PATIENCE_S)
    received: float = said["end"]["sum_received"]["bits_per_second"]
    return received


class Outcome(NamedTuple):
    """Exit code, output and time of a command line."""

    code: int
    out: str
    err: str
    took_s: float


def call(*arguments: str, command: Sequence[str] = PATHLOOM) -> Outcome:
    """Runs `pathloom lab …`."""
    started = time.monotonic()
    done = subprocess.run([*command, "lab", *arguments], capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - started)


def left_of(name: str) -> list[str]:
    """Returns the remains of a lab on this machine: namespaces, files, processes."""
    prefix, directory = f"pathloom.{name}.", RUN_DIRECTORY / name
    found = [f"namespace {one}" for one in system.namespaces_of(prefix)]
    found += [f"process {one}: {_command(one)}" for one in system.processes_of(directory, prefix)]
    return found + ([f"directory {directory}"] if directory.exists() else [])


def machine_links() -> set[str]:
    """Names of the interfaces of the machine itself."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


def compared(*arguments: str, verb: str = "compare") -> dict[str, Any]:
    """Returns the JSON of a `pathloom compare` or `run`."""
    command = [*PATHLOOM, verb, *arguments, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8").replace("\0", " ")
    except OSError:
        return "gone"
