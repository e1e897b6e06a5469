"""Runs under the live controller: what it did is counted, written down, and done again by a pure one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest

from pathloom.native import program
from support import compared

FABRIC = "fat-tree:k=4,rate=4Mbps,buffer=150"
LIVE = ["--worlds", "lab", "--lab", "controller=pathloom", "--runs", "1"]


@pytest.mark.parametrize("scheme", ["ofpt", pytest.param("ecmp", marks=pytest.mark.long)])
def test_a_cable_fails_under_traffic_and_the_log_of_it_replays(tmp_path: Path, scheme: str) -> None:
    log = tmp_path / "events.jsonl"
    traffic = ["--fabric", FABRIC, "--traffic", "long-lived:pattern=stride", "--duration", "6s"]
    faults = ["--fault", "1s:down:e0_0-a0_0", "--fault", "4s:up:e0_0-a0_0"]
    content = compared(
        *traffic,
        *faults,
        "--scheme",
        scheme,
        *LIVE,
        "--event-log",
        str(log),
        "--out",
        str(tmp_path / "out"),
        verb="run",
    )
    (live,) = content["schemes"]
    assert live["control"]["rules_max"] > 5
    # The switches at both ends tell of each change, if nothing else; OFPT hears of all flows, and polls.
    assert live["control"]["messages"] >= (4 if scheme == "ecmp" else 100)
    assert 0 < live["control"]["busy_share"] < 1
    flows = pl.read_parquet(tmp_path / "out" / "flows.parquet")
    # Nobody stays in the black hole: with 3 of 6 s there, a flow would come to less by its time-outs alone.
    if scheme == "ofpt":
        assert flows["throughput"].min() > 0.4  # type: ignore[operator]
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert events[0]["start"]["epoch"] >= 0
    changes = [one["input"]["port_status"]["up"] for one in events[1:] if "port_status" in one.get("input", "")]
    # A switch may tell more often than need be that a port is up.
    assert changes.count(False) == 2
    assert changes[-2:] == [True, True]
    config = tmp_path / "controller.toml"
    config.write_text(f'[fabric]\nspec = "{FABRIC}"\n[scheme]\nspec = "{scheme}"\nseed = 1\n', encoding="ascii")
    replayed = subprocess.run([program(), "replay", config, log], capture_output=True, text=True, check=False)
    assert replayed.returncode == 0, replayed.stderr
    assert "the controller wants the same again" in replayed.stdout
    # Another scheme does something else.
    config.write_text(f'[fabric]\nspec = "{FABRIC}"\n[scheme]\nspec = "spt"\n', encoding="ascii")
    other = subprocess.run([program(), "replay", config, log], capture_output=True, text=True, check=False)
    assert other.returncode == 2
    assert "the log has" in other.stderr
