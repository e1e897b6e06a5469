"""Pathloom and ns-3 side by side: `.venv/bin/python benches/ns3/compare.py --help` says how.

Exits with 1 if Pathloom misses a bar, 2 if the comparison cannot be made.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TextIO

from setups import ACCESS_BPS, ACCESS_BUFFER, ACCESS_DELAY_NS, DUMBBELLS, Dumbbell, FatTree

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
BUILD: Final = ROOT / "target" / "ns3"
RECORD: Final = HERE / "recorded.json"

MOST_GOODPUT_ERROR: Final = 0.03
MOST_QUEUE_ERROR: Final = 3.0
MOST_WORK_ERROR: Final = 0.2
"""How far apart goodput on the FatTree may be for the same work; each side draws paths and starts of its own."""

LONGEST_S: Final = 300
"""No run of ns-3 takes as long as this, even on a busy machine."""


Judge = Callable[[Dumbbell, int], dict[str, Any]]
"""The figures of `ours.run_dumbbell`, by ns-3, for a set-up and a seed."""


class CannotCompareError(Exception):
    """ns-3 is missing or fails. Its text is one line."""


def main() -> int:
    """Reads the command line, runs what it asks for, says how it went."""
    parser = argparse.ArgumentParser(description="Compare Pathloom's packet simulator with ns-3.")
    parser.add_argument("what", nargs="*", help="dumbbell, speed; both if nothing is said")
    parser.add_argument("--instructions", action="store_true", help="count instructions per hop too; takes minutes")
    parser.add_argument("--record", action="store_true", help=f"write what ns-3 gives to {RECORD.relative_to(ROOT)}")
    parser.add_argument(
        "--recorded",
        metavar="FILE",
        nargs="?",
        const=str(RECORD),
        help="compare the dumbbells with what was recorded, without running ns-3",
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures as JSON; - is standard output")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    arguments = parser.parse_args()
    unknown = set(arguments.what) - {"dumbbell", "speed"}
    if unknown:
        parser.error(f"{min(unknown)}: expected dumbbell or speed")
    what = arguments.what or ["dumbbell", "speed"]
    if arguments.recorded is not None:
        if arguments.record or "speed" in arguments.what:
            parser.error("--recorded goes with dumbbell alone, and not with --record")
        what = ["dumbbell"]
    table = sys.stderr if arguments.json == "-" else sys.stdout
    try:
        judge = ns3_dumbbell if arguments.recorded is None else recorded_dumbbell(Path(arguments.recorded))
        if arguments.recorded is None:
            build()
        figures: dict[str, Any] = {}
        if "dumbbell" in what:
            figures["dumbbell"] = compare_dumbbells(table, judge, arguments.jobs)
            if arguments.record:
                RECORD.write_text(record_of(figures["dumbbell"]), encoding="utf-8")
        if "speed" in what:
            figures["speed"] = compare_speed(table, arguments.instructions)
    except CannotCompareError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    if arguments.json == "-":
        print(json.dumps(figures, indent=2))
    elif arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return verdict(figures, table)


def verdict(figures: dict[str, Any], table: TextIO) -> int:
    """Says whether all bars are met; gives the exit code."""
    failed = [row for row in figures.get("dumbbell", []) if row["problems"]]
    failed += [figures["speed"]] if figures.get("speed", {}).get("problems") else []
    print(f"\n{'FAILED: ' + str(len(failed)) + ' of the comparisons' if failed else 'All bars are met.'}", file=table)
    return 1 if failed else 0


def build() -> None:
    """Builds the ns-3 programs."""
    if shutil.which("make") is None or not Path("/usr/include/ns3/core-module.h").exists():
        raise CannotCompareError("ns-3 is not installed; install it with `apt-get install make g++ libns3-dev`")
    done = subprocess.run(
        ["make", "--directory", str(HERE), f"BUILD={BUILD}"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CannotCompareError(f"the ns-3 programs do not build: {last}")


def ns3(program: str, *options: str, under: list[str] | None = None) -> tuple[dict[str, Any], str]:
    """Runs one of the programs; gives its figures and what it wrote to stderr."""
    command = [*(under or []), str(BUILD / program), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompareError(f"{program}: {error}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CannotCompareError(f"{program} ended with {done.returncode}: {last}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures, done.stderr


def ns3_dumbbell(setup: Dumbbell, seed: int) -> dict[str, Any]:
    """Runs ns-3 on a set-up."""
    options = {
        "starts-s": ",".join(map(str, setup.starts_s(seed))),
        "rate-bps": setup.rate_bps,
        "delay-ns": setup.delay_ms * 1_000_000,
        "buffer": setup.buffer,
        "access-bps": ACCESS_BPS,
        "access-delay-ns": ACCESS_DELAY_NS,
        "access-buffer": ACCESS_BUFFER,
        "duration-s": setup.duration_s,
        "acks": setup.acks,
        "min-rto-ms": setup.min_rto_ms,
        # With an acknowledgement per segment ns-3's own NewReno grows as RFC 5681 says; with fewer it does not.
        "byte-counting": int(setup.acks > 1 and setup.tcp == "newreno"),
        "congestion": setup.tcp,
        "sack": int(setup.sack),
    }
    if setup.mark is not None:
        options["mark"] = setup.mark
    if setup.ssthresh_bytes is not None:
        options["ssthresh"] = setup.ssthresh_bytes
    row, _ = ns3("dumbbell", *(f"--{name}={value}" for name, value in options.items()))
    return {
        "goodput_bps": row["goodput_bps"],
        "mean_queue": row["mean_queue"],
        "drops": row["drops"],
        "retransmits": sum(row["retransmits"]),
        "timeouts": sum(row["timeouts"]),
    }


def recorded_dumbbell(path: Path) -> Judge:
    """Gives the figures that `--record` wrote."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        rows: dict[str, dict[str, Any]] = {row.pop("setup"): row for row in listed}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotCompareError(f"{path}: {error}") from None

    def figures(setup: Dumbbell, _seed: int) -> dict[str, Any]:
        if setup.name not in rows:
            raise CannotCompareError(f"{path}: no figures for `{setup.name}`; record them anew with --record")
        return rows[setup.name]

    return figures


def problems_of(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Which bars a set-up misses; empty if none."""
    found = []
    if theirs["timeouts"]:
        found.append(f"no judge: ns-3 had {theirs['timeouts']} time-outs, choose another set-up")
    goodput_error = ours["goodput_bps"] / theirs["goodput_bps"] - 1
    if abs(goodput_error) > MOST_GOODPUT_ERROR:
        found.append(f"goodput differs by {goodput_error:+.1%}")
    queue_error = ours["mean_queue"] - theirs["mean_queue"]
    if abs(queue_error) > MOST_QUEUE_ERROR:
        found.append(f"mean queue differs by {queue_error:+.1f} packets")
    return found


def compare_dumbbells(table: TextIO, judge: Judge, jobs: int) -> list[dict[str, Any]]:
    """Runs all set-ups on both simulators and prints a line for each."""
    from ours import run_dumbbell

    def both(numbered: tuple[int, Dumbbell]) -> dict[str, Any]:
        seed, setup = numbered
        ours, theirs = run_dumbbell(setup, seed), judge(setup, seed)
        row = {"setup": setup.name, "most_goodput_bps": setup.most_goodput_bps, "pathloom": ours, "ns3": theirs}
        return {**row, "problems": problems_of(ours, theirs)}

    print(
        f"TCP on a dumbbell; bars: goodput within {MOST_GOODPUT_ERROR:.0%}, mean queue within {MOST_QUEUE_ERROR:g} "
        f"packets\n{'':61}{'goodput, % of the cable':>27}{'mean queue, packets':>27}\n"
        f"{'flows × rate, round trip, buffer':61}" + f"{'Pathloom':>9}{'ns-3':>8}{'diff':>8}  " * 2,
        file=table,
    )
    rows = []
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        for row in pool.map(both, enumerate(DUMBBELLS, start=1)):
            rows.append(row)
            (ours, theirs), most = (row["pathloom"], row["ns3"]), row["most_goodput_bps"]
            a, b = 100 * ours["goodput_bps"] / most, 100 * theirs["goodput_bps"] / most
            p, q = ours["mean_queue"], theirs["mean_queue"]
            verdict = "; ".join(row["problems"]) or "ok"
            shown = f"{a:9.2f}{b:8.2f}{a / b - 1:+8.2%}  {p:9.2f}{q:8.2f}{p - q:+8.2f}  {verdict}"
            print(f"{row['setup']:61}{shown}", file=table, flush=True)
    return rows


def record_of(rows: list[dict[str, Any]]) -> str:
    """What ns-3 gave, as the text of a file that tests read where there is no ns-3."""
    record = [{"setup": row["setup"], **row["ns3"]} for row in rows]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in record) + "\n]\n"


def compare_speed(table: TextIO, instructions: bool) -> dict[str, Any]:
    """The FatTree on both, one after the other, so that neither slows the other down."""
    work = FatTree()
    theirs = ns3_fat_tree(work)
    command = [sys.executable, "-m", "pathloom", "bench", "sim", "--json", "-", "--fabric", work.fabric]
    command += ["--transport", work.transport, "--duration", f"{work.duration_ms}ms"]
    command += ["--instructions"] if instructions else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotCompareError(f"pathloom bench sim: {done.stderr.strip()}")
    ours = json.loads(done.stdout)
    if instructions:
        theirs["instructions_per_hop"] = ns3_instructions_per_hop(work)
    off = ours["goodput_bps"] / theirs["goodput_bps"] - 1
    problems = [f"goodput differs by {off:+.0%}: not the same work"] if abs(off) > MOST_WORK_ERROR else []
    ratio = ours["hops_per_cpu_s"] / theirs["hops_per_cpu_s"]
    lines = [
        ("packet-hops", f"{ours['hops']:,}", f"{theirs['hops']:,}"),
        ("goodput, Gbit/s", f"{ours['goodput_bps'] / 1e9:.1f}", f"{theirs['goodput_bps'] / 1e9:.1f}"),
        ("CPU time, s", f"{ours['cpu_s']:.3f}", f"{theirs['cpu_s']:.1f}"),
        ("million packet-hops per CPU second", *(f"{x['hops_per_cpu_s'] / 1e6:.3f}" for x in (ours, theirs))),
        ("peak memory, MB", f"{ours['peak_rss_mb']:.0f}", f"{theirs['peak_rss_mb']:.0f}"),
    ]
    if instructions:
        lines.append(("instructions per packet-hop", *(f"{x['instructions_per_hop']:,.0f}" for x in (ours, theirs))))
    print(f"\n{work.fabric}, stride(N/2), ecmp, {work.transport}, {work.duration_ms} ms simulated", file=table)
    for label, a, b in [("", "Pathloom", "ns-3"), *lines]:
        print(f"{label:37}{a:>14}{b:>14}", file=table)
    print(f"Pathloom is {ratio:.0f} times as fast. {'; '.join(problems)}", file=table, flush=True)
    return {"pathloom": ours, "ns3": theirs, "ratio": ratio, "problems": problems}


def ns3_fat_tree(work: FatTree, duration_ms: float | None = None, under: list[str] | None = None) -> dict[str, Any]:
    """Figures of ns-3 on the FatTree, as `pathloom bench sim --json` names them."""
    return _fat_tree(work, duration_ms or work.duration_ms, under)[0]


def _fat_tree(work: FatTree, duration_ms: float, under: list[str] | None) -> tuple[dict[str, Any], str]:
    options = [f"--k={work.k}", f"--duration-s={duration_ms / 1000}", f"--buffer={work.buffer}"]
    return ns3("fat_tree", *options, f"--rwnd={work.receive_window_bytes}", under=under)


def ns3_instructions_per_hop(work: FatTree) -> float:
    """Instructions of a longer run less those of a shorter one, over the difference of their packet-hops."""
    if shutil.which("valgrind") is None:
        raise CannotCompareError("--instructions needs valgrind; install it with `apt-get install valgrind`")
    counts = []
    for duration_ms in (2.0, 3.0):
        row, printed = _fat_tree(work, duration_ms, ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"])
        found = re.search(r"Collected : (\d+)", printed)
        if found is None:
            raise CannotCompareError("valgrind did not print a count of instructions; see `valgrind --version`")
        counts.append((int(found.group(1)), int(row["hops"])))
    (short, short_hops), (long, long_hops) = counts
    return (long - short) / (long_hops - short_hops)


if __name__ == "__main__":
    sys.exit(main())
