"""Measures time and memory of large steps of training, with a release build.

Usage: python benches/training/speed.py [--ranks 1024] [--total 64MB] [--ring 8192] [--runs 3]

The first case is an all-to-all in which each rank sends `--total` in equal parts to all others, at 400 Gbit/s under
reps. The second one is a step of a ring: each rank sends 64 MB divided by the number of ranks to the next one, but at
least 8 KB. Each run is a process of its own, so that its peak memory can be read. `--ranks` and `--ring` are numbers of
hosts of a FatTree: 16, 128, 1024, 8192 (k = 4, 8, 16, 32).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PORTS = {16: 4, 128: 8, 1024: 16, 8192: 32}
"""Ports of the switches of a FatTree, by its hosts."""
RATE = "400Gbps"
LEAST_BYTES = 8192
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def size_bytes(text: str) -> int:
    """A size such as 64MB, in bytes."""
    number, unit = text[:-2], text[-2:]
    if unit not in UNITS or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: expected a size such as 64MB")
    return int(number) * UNITS[unit]


def fabric(hosts: int) -> str:
    """A FatTree with this many hosts whose full queues cut packets to headers."""
    return f"fat-tree:k={PORTS[hosts]},rate={RATE},delay=500ns,queue_bytes=1MB,ecn=200KB/800KB,trim=on"


def ring(hosts: int, folder: Path) -> str:
    """Writes a step of a ring, and returns its specification."""
    size = max(64 * 10**6 // hosts, LEAST_BYTES)
    rows = [f"0,h{host},h{(host + 1) % hosts},{size}" for host in range(hosts)]
    path = folder / "ring.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return f"flows:file={path}"


def measured(case: tuple[str, str]) -> dict[str, Any]:
    """Runs one case. Returns wall-clock time, simulated time, packet-hops and peak memory."""
    where, traffic = case
    command = [str(Path(sys.executable).parent / "pathloom"), "run", "--fabric", where, "--traffic", traffic]
    command += ["--scheme", "reps", "--duration", "10ms", "--until", "finished", "--runs", "1", "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    row = json.loads(done.stdout)["schemes"][0]
    peak_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "wall_s": row["wall_s"],
        "flows": row["flows"]["finished"],
        "completion_s": row["fct_s"]["p99"],
        "hops": row["packets"]["hops"],
        "peak_gb": peak_kb * 1024 / 1e9,
    }


def main() -> None:
    """Prints a line for each run, as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, choices=PORTS, default=1024)
    parser.add_argument("--total", type=size_bytes, default="64MB")
    parser.add_argument("--ring", type=int, choices=PORTS, default=8192)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    each = options.total // (options.ranks - 1)
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Pool(1, maxtasksperchild=1) as pool:
        cases = {
            f"all-to-all of {options.ranks}": (fabric(options.ranks), f"all-to-all:algorithm=direct,size={each}B"),
            f"ring step of {options.ring}": (fabric(options.ring), ring(options.ring, Path(folder))),
        }
        for name, case in cases.items():
            for _ in range(options.runs):
                print(json.dumps({"case": name, **pool.apply(measured, (case,))}), flush=True)


if __name__ == "__main__":
    main()
