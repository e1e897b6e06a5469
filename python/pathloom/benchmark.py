"""Speed of the simulator: the CPU time of one run in a separate process and, on request, its instruction count."""

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
"""Fixed, so that new figures stay comparable with older ones: with small queues, more flows make progress."""
DURATION: Final = "1s"

SHORT_SHARE, LONG_SHARE = 0.1, 0.2
"""Lengths of the two runs whose instruction counts are subtracted, as shares of the duration."""
ADVANCE: Final = "pathloom_sim::simulation::Simulation<T>::advance"
"""Name of the simulator's main loop in callgrind. It is never inlined, and no function that it calls has this name."""
START_UP_SHARE: Final = 0.2
"""First part of a run, in which flows find their rates. Its goodput is reported apart from that of the rest."""


def settings(fabric: str, traffic: str, scheme: str, transport: str, duration: str, seed: int) -> dict[str, Any]:
    """Makes the settings of a run and checks them. Raises `PathloomError`."""
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
    row = _worker(run)
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
    """Instructions per packet-hop inside the simulator's main loop, in the installed module.

    The instructions of a longer and of a shorter run are counted. The cost of starting up cancels out in their
    difference. Neither the interpreter nor the load on the machine matters. Raises `PathloomError` when valgrind is
    missing or fails.
    """
    full_ns = round(_core.parse_time_s(duration) * 1e9)
    counts = []
    for share in (SHORT_SHARE, LONG_SHARE):
        part = {**run, "duration": f"{round(full_ns * share)}ns"}
        count, printed = count_instructions([sys.executable, *_worker_arguments(part)])
        counts.append((count, int(json.loads(printed)["hops"])))
    (short, short_hops), (long, long_hops) = counts
    return (long - short) / (long_hops - short_hops)


def count_instructions(command: list[str]) -> tuple[int, str]:
    """Instructions that a command executes inside the simulator's main loop, and the text that it printed.

    Raises `PathloomError` when valgrind is missing or fails, or does not find the main loop.
    """
    if shutil.which("valgrind") is None:
        raise bad_input("--instructions: valgrind is not installed; install it with `apt-get install valgrind`")
    callgrind = ["valgrind", "--tool=callgrind", f"--toggle-collect={ADVANCE}", "--callgrind-out-file=/dev/null"]
    done = _measured([*callgrind, *command])
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise bad_input("--instructions: valgrind did not print a count of instructions; see `valgrind --version`")
    if found.group(1) == "0":
        raise bad_input(
            f"--instructions: valgrind did not find `{ADVANCE}` in {command[0]}: its symbols are stripped; "
            "build it without --strip, as `make build` does"
        )
    return int(found.group(1)), done.stdout


def _worker(run: dict[str, Any]) -> dict[str, Any]:
    """Carries out a run in a separate process and returns its figures."""
    figures: dict[str, Any] = json.loads(_measured([sys.executable, *_worker_arguments(run)]).stdout)
    return figures


def _worker_arguments(run: dict[str, Any]) -> list[str]:
    return ["-m", "pathloom.benchmark_worker", json.dumps(run), str(START_UP_SHARE)]


def _measured(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode == 0:
        return done
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise bad_input(f"bench: the measuring process ended with {done.returncode}: {last}")
