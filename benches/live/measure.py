"""Measures the lab and the live controller: runs the tests marked `measure`, with controls taken in the same run.

`make bench-live` runs it, as root. Each measurement is one line of JSON in a file:

    {"commit", "date", "machine", "name", "test", "unit", "values", "median", "spread", "control", "ratio", "meanwhile"}

`values` has a value for each turn, `spread` the least and the largest of them. `control` says what was measured beside
it in the same test, and `ratio` is each value over its control. `meanwhile` says what this machine gave without
Pathloom: the share of a core that an empty loop got, and the round trip of a UDP probe over the loopback interface. The
exit code is 1 only if a measurement could not be made. No figure is judged here.

    python benches/live/measure.py --out results/live.jsonl [--turns 3] [--only EXPRESSION] [--long]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_S = 0.05
PAUSE_S = 0.2


def loop_share() -> float:
    """Share of a core that a loop without any work gets for a moment: 1.0 on a machine that does nothing else."""
    began, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < SAMPLE_S:
        pass
    return (time.thread_time() - used) / (time.perf_counter() - began)


def probe_s(there: socket.socket, back: socket.socket) -> float:
    """Round trip of a UDP probe over the loopback interface, which no switch and no scheme touches."""
    began = time.perf_counter()
    there.sendto(b"probe", back.getsockname())
    back.sendto(*back.recvfrom(16))
    there.recv(16)
    return time.perf_counter() - began


class Control(threading.Thread):
    """Samples the machine until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.shares: list[tuple[float, float]] = []
        self.round_trips_s: list[tuple[float, float]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        """Takes samples until the end."""
        with socket.socket(type=socket.SOCK_DGRAM) as there, socket.socket(type=socket.SOCK_DGRAM) as back:
            for door in (there, back):
                door.bind(("127.0.0.1", 0))
            while not self._ended.wait(PAUSE_S):
                self.shares.append((time.time(), loop_share()))
                self.round_trips_s.append((time.time(), probe_s(there, back)))

    def stop(self) -> None:
        """Ends the samples."""
        self._ended.set()
        self.join()

    def since(self, began: float) -> dict[str, Any]:
        """Median and worst sample since a time."""
        shares = [value for at, value in self.shares if at >= began] or [value for _, value in self.shares[-1:]]
        trips_s = [value for at, value in self.round_trips_s if at >= began] or [1.0]
        return {
            "loop_share": {"median": round(statistics.median(shares), 3), "least": round(min(shares), 3)},
            "loopback_rtt_us": {
                "median": round(1e6 * statistics.median(trips_s), 1),
                "most": round(1e6 * max(trips_s), 1),
            },
            "samples": len(shares),
        }


def machine() -> dict[str, Any]:
    """What identifies the machine without naming it."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cores": os.cpu_count(), "cpu": model, "kernel": platform.release()}


def commit() -> str:
    """The commit that is measured; `+` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def turn(marks: str, only: str | None) -> tuple[int, list[dict[str, Any]]]:
    """Runs all measurements once. Returns the exit code of pytest, and what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.jsonl"
        command = [sys.executable, "-m", "pytest", "--quiet", "-m", marks, "tests/lab", *(["-k", only] if only else [])]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATHLOOM_MEASUREMENTS": str(file)}, check=False)
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return done.returncode, [json.loads(line) for line in lines]


def summary(values: list[float]) -> dict[str, Any]:
    """Median, and the least and the largest value."""
    return {"values": values, "median": statistics.median(values), "spread": [min(values), max(values)]}


def summaries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each measurement, of what all turns have measured. A control of 0 gives no ratio."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["test"], row["name"]), []).append(row)
    lines = []
    for (test, name), of in found.items():
        ratios = [row["value"] / row["control"] for row in of if row["control"]]
        lines.append(
            {
                "name": name,
                "test": test,
                "unit": of[0]["unit"],
                **summary([row["value"] for row in of]),
                "control": {"what": of[0]["of"], **summary([row["control"] for row in of])},
                "ratio": summary(ratios) if len(ratios) == len(of) else None,
            }
        )
    return lines


def main() -> int:
    """Measures, and appends the lines. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines that is appended to")
    parser.add_argument("--turns", type=int, default=3, help="how often each measurement is made (default 3)")
    parser.add_argument("--only", help="expression of names of tests, as of pytest -k")
    parser.add_argument("--long", action="store_true", help="also the measurements that take minutes each")
    given = parser.parse_args()
    marks = "measure" if given.long else "measure and not long"
    head = {"commit": commit(), "machine": machine()}
    control, failed = Control(), False
    control.start()
    began, date = time.time(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rows: list[dict[str, Any]] = []
    for _ in range(given.turns):
        code, found = turn(marks, given.only)
        failed = failed or code != 0
        rows += found
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("a", encoding="utf-8") as out:
        for line in summaries(rows):
            out.write(json.dumps({**head, "date": date, **line, "meanwhile": control.since(began)}) + "\n")
    control.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
