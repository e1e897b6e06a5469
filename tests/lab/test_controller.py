"""Runs under the live controller: its actions are counted, logged, and replayed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import polars as pl
import pytest

from live import K4, alive, permutation, spoil
from pathloom.lab import controller, management, system
from pathloom.native import program
from support import PATHLOOM, compared, figures

FABRIC = "fat-tree:k=4,rate=2Mbps,buffer=150"
"""At this rate, a machine with slow timers and interrupts still forwards every packet."""
TOKEN = "0123456789abcdef0123456789abcdef"
LIVE = ["--worlds", "lab", "--lab", "controller=pathloom", "--runs", "1"]


@pytest.mark.parametrize("scheme", ["ofpt", pytest.param("ecmp", marks=pytest.mark.long)])
def test_a_cable_fails_under_traffic_and_the_event_log_can_be_replayed(tmp_path: Path, scheme: str) -> None:
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
    # At least the switches at both ends report each change. OFPT also gets reports of all flows, and polls.
    assert live["control"]["messages"] >= (4 if scheme == "ecmp" else 100)
    assert live["control"]["busy_share"] > 0
    flows = pl.read_parquet(tmp_path / "out" / "flows.parquet")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert events[0]["start"]["epoch"] >= 0
    changes = [one["input"]["port_status"] for one in events[1:] if "port_status" in one.get("input", "")]
    # A switch may report the state of a port more often than necessary.
    ended = {(one["switch"], one["port"]): one["up"] for one in changes}
    assert len({(one["switch"], one["port"]) for one in changes if not one["up"]}) == 2
    assert all(ended.values())
    config = tmp_path / "controller.toml"
    # With [paths], the controller of the lab reads the counters of ports as well.
    paths = f'[paths]\naddress = "{management.place()}"\n'
    config.write_text(f'[fabric]\nspec = "{FABRIC}"\n[scheme]\nspec = "{scheme}"\nseed = 1\n{paths}', encoding="ascii")
    replayed = subprocess.run([program(), "replay", config, log], capture_output=True, text=True, check=False)
    assert replayed.returncode == 0, replayed.stderr
    assert "the controller's outputs are the same" in replayed.stdout
    # Another scheme gives other outputs.
    config.write_text(f'[fabric]\nspec = "{FABRIC}"\n[scheme]\nspec = "spt"\n', encoding="ascii")
    other = subprocess.run([program(), "replay", config, log], capture_output=True, text=True, check=False)
    assert other.returncode == 2
    assert "the log has" in other.stderr
    # A flow that stayed in the black hole for 3 of 6 s would have less than 0.4.
    figures(f"{scheme}: throughput when a cable fails", least=round(flows["throughput"].min(), 3))  # type: ignore[arg-type]


@pytest.mark.long
def test_the_event_log_continues_over_changes_of_scheme(name: str) -> None:
    with alive(name, K4, "ofpt") as live:
        tokens = live.lab.directory / "tokens"
        tokens.write_text(f"operate test {TOKEN}\n", encoding="ascii")
        tokens.chmod(0o600)
        # The scheme changes to lessor by SIGHUP, to ecmp by the API, and back.
        live.kill()
        live.configure("ofpt", more=f'[api]\naddress = "127.0.0.1:6680"\ntokens = "{tokens}"')
        live.launch()
        pairs = permutation(live, 4)
        with live.probes(pairs) as probes:
            live.await_paths(pairs)
            assert live.process is not None
            live.configure("lessor", more=f'[api]\naddress = "127.0.0.1:6680"\ntokens = "{tokens}"')
            live.process.send_signal(signal.SIGHUP)
            live.await_log("another scheme is in charge")
            for count, scheme in enumerate(("ecmp", "ofpt:period=1s"), 2):
                inside = ["ip", "netns", "exec", live.blueprint.namespace, *PATHLOOM, "controller", "scheme", scheme]
                environment = {**os.environ, "PATHLOOM_TOKEN": TOKEN, system.MARK: str(live.lab.directory)}
                subprocess.run(inside, check=True, env=environment, stdout=subprocess.DEVNULL)
                live.await_log("another scheme is in charge", count)
            live.await_paths(pairs)
            tracks = probes.stop()
        controller.stop(live.process)
        assert not spoil(tracks)
        log = live.lab.directory / controller.EVENTS
        changes = [
            json.loads(line)["scheme"]["spec"] for line in log.read_text("utf-8").splitlines() if '"scheme":{' in line
        ]
        assert changes == ["lessor", "ecmp", "ofpt:period=1s"]
        # With the configuration of its start, the replay takes the same steps.
        live.configure("ofpt")
        assert "the controller's outputs are the same" in controller.replay(live.lab.directory)
