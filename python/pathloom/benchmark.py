"""How fast the simulator is: one run in a process of its own, timed by its CPU time and, if wanted, by valgrind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any, Final

from pathloom import _core
from pathloom.errors import bad_input

FABRIC: Final = "fat-tree:k=8,rate=1Gbps,delay=1us,buffer=100"
TRAFFIC: Final = "long-lived:pattern=stride"
SCHEME: Final = "ecmp"
TRANSPORT: Final = "newreno:small_queues=off,acks=1"
"""The same work for as long as there are figures to compare with: with small queues more flows get through."""
DURATION: Final = "1s"

SHORT_SHARE, LONG_SHARE = 0.1, 0.2
"""The two run lengths, as shares of the duration, whose difference is counted in instructions."""
START_UP_SHARE: Final = 0.2
"""The part of a run in which flows find their rates; its goodput is told apart from that of the rest."""


def settings(fabric: str, traffic: str, scheme: str, transport: str, duration: str, seed: int) -> dict[str, Any]:
    """The settings of a run, checked. Raises `PathloomError`."""
    made: dict[str, Any] = {
        "fabric": fabric,
        "fabric_text": None,
        "traffic": traffic,
        "scheme": scheme,
        "transport": transport,
        "control": None,
        "duration": duration,
        "seed": seed,
        "faults": [],
        "pcap": None,
        "event_log": None,
    }
    _core.Simulation(json.dumps(made))
    return made


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Rates and memory of a run, as `pathloom bench sim --json` prints them."""
    row = _worker([sys.executable], run)[0]
    cpu_s = row["cpu_s"]
    return {
        "hops": row["hops"],
        "cpu_s": cpu_s,
        "hops_per_cpu_s": row["hops"] / cpu_s,
        "events_per_cpu_s": row["events"] / cpu_s,
        "instructions_per_hop": None,
        "goodput": row["goodput"],
        "goodput_bps": row["goodput_bps"],
        "goodput_start_up": row["goodput_start_up"],
        "goodput_after": row["goodput_after"],
        "peak_rss_mb": row["peak_rss_mb"],
        "interpreter_rss_mb": row["interpreter_rss_mb"],
        "settings": {key: run[key] for key in ("fabric", "traffic", "scheme", "transport", "duration", "seed")},
    }


def instructions_per_hop(run: dict[str, Any], duration: str) -> float:
    """Instructions of a longer run less those of a shorter one, over the difference of their packet-hops.

    What starting up costs cancels out, and the load on the machine does not matter. Raises `PathloomError` when
    valgrind is missing or fails.
    """
    if shutil.which("valgrind") is None:
        raise bad_input("--instructions: valgrind is not installed; install it with `apt-get install valgrind`")
    full_ns = round(_core.parse_time_s(duration) * 1e9)
    counts = []
    for share in (SHORT_SHARE, LONG_SHARE):
        part = {**run, "duration": f"{round(full_ns * share)}ns"}
        row, printed = _worker(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable], part)
        found = re.search(r"Collected : (\d+)", printed)
        if found is None:
            raise bad_input("--instructions: valgrind did not print a count of instructions; see `valgrind --version`")
        counts.append((int(found.group(1)), int(row["hops"])))
    (short, short_hops), (long, long_hops) = counts
    return (long - short) / (long_hops - short_hops)


def _worker(python: list[str], run: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Carries out a run in a process of its own; gives its figures and what it printed to stderr."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [*python, "-m", "pathloom.benchmark_worker", json.dumps(run), str(START_UP_SHARE)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout), done.stderr
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise bad_input(f"bench: the measuring process ended with {done.returncode}: {last}")
