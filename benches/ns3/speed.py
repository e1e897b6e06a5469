"""The speed of Pathloom, ns-3 and, if its sources are given, htsim: the same FatTree, one after the other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

import htsim
from running import CannotCompareError, run
from setups import FatTree

MOST_WORK_ERROR: Final = 0.2
"""Largest difference of goodput for the same work on the FatTree; each side draws its own paths and starts."""

FIRST_MS, LAST_MS = 2.0, 3.0
"""The two lengths of runs whose difference in instructions is counted."""

Simulator = Callable[[FatTree, float, list[str] | None], tuple[dict[str, Any], str]]
"""Runs the FatTree for a number of simulated milliseconds, under valgrind if asked. Returns figures with the names of
`pathloom bench sim`, and the output on stderr."""


def compare_speed(table: TextIO, instructions: bool, sources: Path | None) -> dict[str, Any]:
    """Runs the FatTree on all simulators, one after the other. `sources`: sources of htsim, if it is wanted."""
    work = FatTree()
    judges: dict[str, Simulator] = {"ns-3": ns3_fat_tree}
    if sources is not None:
        htsim.build(sources)
        judges["htsim"] = htsim.fat_tree
    figures = {"Pathloom": pathloom_fat_tree(work, instructions)}
    for name, simulate in judges.items():
        figures[name] = simulate(work, work.duration_ms, None)[0]
        if instructions:
            figures[name]["instructions_per_hop"] = instructions_per_hop(work, simulate)
    print(f"\n{work.fabric}, stride(N/2), ecmp, {work.transport}, {work.duration_ms} ms simulated", file=table)
    for label, *cells in lines_of(figures, instructions):
        print(f"{label:37}" + "".join(f"{cell:>14}" for cell in cells), file=table)
    ours = figures.pop("Pathloom")
    result: dict[str, Any] = {"pathloom": ours, "ratio": {}, "problems": []}
    for name, theirs in figures.items():
        key = name.replace("-", "")
        result[key] = theirs
        result["ratio"][key] = ours["hops_per_cpu_s"] / theirs["hops_per_cpu_s"]
        result["problems"] += problems_of(name, ours, theirs)
        print(f"Pathloom is {result['ratio'][key]:.1f} times as fast as {name}.", file=table)
    for problem in result["problems"]:
        print(problem, file=table, flush=True)
    return result


def problems_of(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Returns a message if the work was not the same; otherwise an empty list."""
    off = ours["goodput_bps"] / theirs["goodput_bps"] - 1
    return [f"{name}: goodput differs by {off:+.0%}: not the same work"] if abs(off) > MOST_WORK_ERROR else []


def lines_of(figures: dict[str, dict[str, Any]], instructions: bool) -> list[list[str]]:
    """Returns the lines of the table: a label, and a cell for each simulator."""
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("packet-hops", lambda of: f"{of['hops']:,}"),
        ("goodput, Gbit/s", lambda of: f"{of['goodput_bps'] / 1e9:.1f}"),
        ("CPU time, s", lambda of: f"{of['cpu_s']:.3f}"),
        ("million packet-hops per CPU second", lambda of: f"{of['hops_per_cpu_s'] / 1e6:.3f}"),
        ("peak memory, MB", lambda of: f"{of['peak_rss_mb']:.0f}"),
    ]
    if instructions:
        rows.append(("instructions per packet-hop", lambda of: f"{of['instructions_per_hop']:,.0f}"))
    return [["", *figures], *([label, *map(cell, figures.values())] for label, cell in rows)]


def pathloom_fat_tree(work: FatTree, instructions: bool) -> dict[str, Any]:
    """Returns the figures of Pathloom, from `pathloom bench sim`."""
    command = [sys.executable, "-m", "pathloom", "bench", "sim", "--json", "-", "--fabric", work.fabric]
    command += ["--transport", work.transport, "--duration", f"{work.duration_ms}ms"]
    command += ["--instructions"] if instructions else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotCompareError(f"pathloom bench sim: {done.stderr.strip()}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def ns3_fat_tree(work: FatTree, duration_ms: float, under: list[str] | None) -> tuple[dict[str, Any], str]:
    """Runs ns-3."""
    options = [f"--k={work.k}", f"--duration-s={duration_ms / 1000}", f"--buffer={work.buffer}"]
    return run("fat_tree", *options, f"--rwnd={work.receive_window_bytes}", under=under)


def instructions_per_hop(work: FatTree, simulate: Simulator) -> float:
    """Returns the difference in instructions of a longer and a shorter run, per packet-hop of their difference."""
    if shutil.which("valgrind") is None:
        raise CannotCompareError("--instructions needs valgrind; install it with `apt-get install valgrind`")
    counts = []
    for duration_ms in (FIRST_MS, LAST_MS):
        callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        row, printed = simulate(work, duration_ms, callgrind)
        found = re.search(r"Collected : (\d+)", printed)
        if found is None:
            raise CannotCompareError("valgrind did not print a count of instructions; see `valgrind --version`")
        counts.append((int(found.group(1)), int(row["hops"])))
    (short, short_hops), (long, long_hops) = counts
    return (long - short) / (long_hops - short_hops)
