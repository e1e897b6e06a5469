"""Tools for the lab's tests: command lines, and the remains of a lab."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pathloom.lab import system
from pathloom.lab.lab import RUN_DIRECTORY

PATHLOOM = [sys.executable, "-m", "pathloom"]
SMALL = "dumbbell:hosts=2,rate=10Mbps,buffer=50"
NOT_ROOT = """
import os, sys
import pathloom.cli.app, pathloom.cli.lab, pathloom.fabrics, pathloom.lab.hosts, pathloom.lab.lab
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
