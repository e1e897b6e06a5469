"""A small sweep, and what tests of sweeps share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from synthetic import numbers

COMMAND = [sys.executable, "-m", "pathloom"]
TOML = """
fabric = "diamond:rate={rate}"
traffic = "hadoop:load={load}"
schemes = ["spt", "ecmp"]
duration = "1s"
runs = 2

[grid]
load = [0.3, 0.6]
rate = ["10Mbps", "20Mbps"]
"""
SCHEME = """
from helper import PATH
from pathloom.scheme import FlowArrived, Route, Scheme

class Own(Scheme):
    def handle(self, now_ns, event, view):
        if isinstance(event, FlowArrived):
            flow = view.flow(event.flow)
            yield Route(flow.id, view.paths(flow.src_tor, flow.dst_tor)[PATH])
"""


def content(folder: Path) -> Any:
    """`result.json` without wall-clock times."""
    return numbers((folder / "result.json").read_text(encoding="utf-8"))


def stamps(folder: Path) -> dict[str, int]:
    """Returns when each run was stored."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}


def in_new_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=120)


def runs_in(folder: Path) -> int:
    """Returns the number of complete stored runs. A file that a killed process was writing has a hidden name."""
    return len(list((folder / "out/runs").glob("[!.]*.npz"))) if (folder / "out/runs").is_dir() else 0
