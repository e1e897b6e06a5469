"""Compares Pathloom with ns-3, and its speed also with htsim; see `.venv/bin/python benches/ns3/compare.py --help`.

Exits with 1 if Pathloom misses a bar, 2 if the comparison cannot be made.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TextIO

import htsim
from running import HERE, ROOT, CannotCompareError, build_ns3, run
from setups import ACCESS_BPS, ACCESS_BUFFER, ACCESS_DELAY_NS, DUMBBELLS, Dumbbell
from speed import compare_speed

RECORD: Final = HERE / "recorded.json"

MOST_GOODPUT_ERROR: Final = 0.03
MOST_QUEUE_ERROR: Final = 3.0
Judge = Callable[[Dumbbell, int], dict[str, Any]]
"""The figures of `ours.run_dumbbell`, by ns-3, for a set-up and a seed."""


def main() -> int:
    """Reads the command line, runs the comparisons, and prints the verdict. Returns the exit code."""
    arguments = read_arguments()
    table = sys.stderr if arguments.json == "-" else sys.stdout
    try:
        figures = compare(arguments, table)
    except CannotCompareError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    if arguments.json == "-":
        print(json.dumps(figures, indent=2))
    elif arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return verdict(figures, table)


def read_arguments() -> argparse.Namespace:
    """Reads the command line; `what` lists the comparisons."""
    parser = argparse.ArgumentParser(description="Compare Pathloom's packet simulator with ns-3.")
    parser.add_argument("what", nargs="*", help="dumbbell, speed; both by default")
    parser.add_argument("--instructions", action="store_true", help="count instructions per hop too; takes minutes")
    parser.add_argument(
        "--htsim", metavar="DIR", type=Path, help="compare the speed with htsim too: a checkout of its sources"
    )
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
    if arguments.recorded is not None:
        if arguments.record or arguments.htsim or "speed" in arguments.what:
            parser.error("--recorded goes with dumbbell alone, and not with --record or --htsim")
        arguments.what = ["dumbbell"]
    arguments.what = arguments.what or ["dumbbell", "speed"]
    if arguments.htsim is not None and "speed" not in arguments.what:
        parser.error("--htsim goes with speed")
    return arguments


def compare(arguments: argparse.Namespace, table: TextIO) -> dict[str, Any]:
    """Runs the comparisons, prints them as tables, and returns their figures."""
    judge = ns3_dumbbell if arguments.recorded is None else recorded_dumbbell(Path(arguments.recorded))
    if arguments.htsim is not None:
        htsim.require(arguments.htsim)
    if arguments.recorded is None:
        build_ns3()
    figures: dict[str, Any] = {}
    if "dumbbell" in arguments.what:
        figures["dumbbell"] = compare_dumbbells(table, judge, arguments.jobs)
        if arguments.record:
            RECORD.write_text(record_of(figures["dumbbell"]), encoding="utf-8")
    if "speed" in arguments.what:
        figures["speed"] = compare_speed(table, arguments.instructions, arguments.htsim)
    return figures


def verdict(figures: dict[str, Any], table: TextIO) -> int:
    """Prints whether all bars are met. Returns the exit code."""
    failed = [row for row in figures.get("dumbbell", []) if row["problems"]]
    failed += [figures["speed"]] if figures.get("speed", {}).get("problems") else []
    print(f"\n{'FAILED: ' + str(len(failed)) + ' of the comparisons' if failed else 'All bars are met.'}", file=table)
    return 1 if failed else 0


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
        # With an acknowledgement per segment, ns-3's own NewReno grows as RFC 5681 requires; with fewer it does not.
        "byte-counting": int(setup.acks > 1 and setup.tcp == "newreno"),
        "congestion": setup.tcp,
        "sack": int(setup.sack),
    }
    if setup.mark is not None:
        options["mark"] = setup.mark
    if setup.ssthresh_bytes is not None:
        options["ssthresh"] = setup.ssthresh_bytes
    row, _ = run("dumbbell", *(f"--{name}={value}" for name, value in options.items()))
    return {
        "goodput_bps": row["goodput_bps"],
        "mean_queue": row["mean_queue"],
        "drops": row["drops"],
        "retransmits": sum(row["retransmits"]),
        "timeouts": sum(row["timeouts"]),
    }


def recorded_dumbbell(path: Path) -> Judge:
    """Returns a judge with the figures that `--record` wrote."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        rows: dict[str, dict[str, Any]] = {row.pop("setup"): row for row in listed}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotCompareError(f"{path}: {error}") from None

    def figures(setup: Dumbbell, _seed: int) -> dict[str, Any]:
        if setup.name not in rows:
            raise CannotCompareError(f"{path}: no figures for `{setup.name}`; record them again with --record")
        return rows[setup.name]

    return figures


def problems_of(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Returns the bars that a set-up misses; empty if none."""
    found = []
    if theirs["timeouts"]:
        found.append(f"not comparable: ns-3 had {theirs['timeouts']} time-outs, choose another set-up")
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
    """Returns ns-3's figures as the text of a file that tests read without ns-3."""
    record = [{"setup": row["setup"], **row["ns3"]} for row in rows]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in record) + "\n]\n"


if __name__ == "__main__":
    sys.exit(main())
