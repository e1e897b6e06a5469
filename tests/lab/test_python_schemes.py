"""Schemes written in Python run in the lab, in a process beside the controller."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pathloom import native
from pathloom.lab import management
from support import K4, compared

GREEDY = Path(__file__).parents[2] / "examples" / "greedy.py"


def test_a_scheme_in_python_places_flows_on_real_switches(tmp_path: Path) -> None:
    traffic = ["--fabric", K4, "--traffic", "long-lived:pattern=stride", "--scheme", f"{GREEDY}:Greedy:paths=8"]
    log = tmp_path / "events.jsonl"
    options = ["--duration", "6s", "--runs", "1", "--worlds", "lab", "--lab", "controller=pathloom"]
    content = compared(*traffic, *options, "--event-log", str(log), verb="run")
    (live,) = content["schemes"]
    # Each of the 16 flows of the pattern gets a path of its own. On a busy machine, probes of cables may be late. Then
    # a flow leaves a cable that is taken for dead, and gets another path.
    assert live["control"]["routes"] >= 16
    asked = re.findall(r'"ask":\{"event":\{"route_confirmed":\{"flow":(\d+)', log.read_text(encoding="utf-8"))
    assert len(set(asked)) == 16
    # A replay has the answers from the log. It starts the process only for its needs.
    config = tmp_path / "controller.toml"
    config.write_text(
        f'[fabric]\nspec = "{K4}"\n[scheme]\nspec = "{GREEDY}:Greedy:paths=8"\npython = "{sys.executable}"\n'
        # With [paths], the controller of the lab reads the counters of ports as well.
        f'seed = 1\n[paths]\naddress = "{management.place()}"\n',
        encoding="utf-8",
    )
    command = [native.program(), "replay", str(config), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "outputs agree" in done.stdout
