"""Runs that do not fit into memory are refused, and the memory of a run is estimated well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from pathloom.experiments.running import memory

MEASURE = """
import json, sys
from pathlib import Path
from pathloom import _core
from pathloom.experiments.running.memory import run_bytes

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

_core.Fabric.from_spec("dumbbell").links()
before = resident("VmRSS")
simulation = _core.Simulation(sys.argv[1])
estimate = run_bytes(simulation)[1]
simulation.advance(simulation.end_s)
outcome = simulation.outcome()
print(json.dumps({"estimate": estimate, "peak": resident("VmHWM") - before}))
"""

ALL_TO_ALL = "all-to-all:algorithm=direct,size=10KB"
"""16,256 transfers on k=8, all under way at once."""


@pytest.mark.parametrize(
    ("fabric", "traffic", "duration", "scheme", "transport"),
    [
        ("fat-tree:k=16", "long-lived:pattern=stride", "1ms", "ecmp", None),
        ("fat-tree:k=24", "long-lived:pattern=stride", "1ms", "ecmp", None),
        ("fat-tree:k=4,rate=10Gbps", "hadoop:load=0.05", "2s", "ecmp", None),
        ("fat-tree:k=8,rate=400Gbps", ALL_TO_ALL, "1ms", "reps", None),
        ("fat-tree:k=8,rate=400Gbps", ALL_TO_ALL, "1ms", "rps", "dctcp"),
        ("fat-tree:k=8,rate=400Gbps", ALL_TO_ALL, "1ms", "ecmp", "mptcp:subflows=8"),
    ],
)
def test_the_estimate_is_near_the_peak_of_the_resident_memory(
    fabric: str, traffic: str, duration: str, scheme: str, transport: str | None
) -> None:
    settings: dict[str, Any] = {
        "fabric": fabric,
        "fabric_text": None,
        "traffic": traffic,
        "scheme": scheme,
        "transport": transport,
        "control": None,
        "duration": duration,
        "drain": 0,
        "seed": 1,
        "faults": [],
        "pcap": None,
        "event_log": None,
    }
    command = [sys.executable, "-c", MEASURE, json.dumps(settings)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 0.6 * found["peak"] < found["estimate"] < 1.7 * found["peak"], found


def test_a_run_that_does_not_fit_is_refused_before_it_starts(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2_000_000)
    words = ["--fabric", "diamond", "--traffic", "long-lived", "--duration", "10ms", "--out", "out"]
    outcome = cli("compare", *words, "--schemes", "ecmp,spt")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "run 1 of ecmp (seed 1) and 1 more: needs about " in outcome.err
    assert "2 MB are free" in outcome.err
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert cli("compare", *words, "--schemes", "ecmp,spt").code == 0


def test_the_memory_of_this_machine_is_known() -> None:
    available = memory.available_bytes()
    assert available is not None
    assert 10_000_000 < available < 2**50
