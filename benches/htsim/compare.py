"""Compares Pathloom's ndp, eqds and dctcp with csg-htsim, on the same transfers over the same fat tree.

Usage: python benches/htsim/compare.py [--judge DIR [--record]] [--only TEXT]

Without `--judge`, htsim's figures are those in recorded.json. README.md says how to build it, and what is made equal.
The table has the FCT in us, until the last acknowledgement is back: mean, 99th percentile and last of each, and their
ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import judge
import ours
from setups import HELD_OUT, LOOKED_AT, Case

RECORDED = Path(__file__).with_name("recorded.json")
COLUMNS = ("mean", "p99", "last")
Figures = dict[str, float]


def figures(times_us: list[float]) -> Figures:
    """What is recorded of a run."""
    ranked = sorted(times_us)
    named = {"mean": statistics.fmean(ranked), "p99": ranked[len(ranked) * 99 // 100], "last": ranked[-1]}
    return {"flows": len(ranked), **{name: round(value, 1) for name, value in named.items()}}


def row(case: Case, theirs: Figures | None, own: Figures) -> str:
    """A row of the table."""
    cells = [case.name, case.transport, f"k={case.k}, seed {case.seed}", "yes" if case.held_out else "no"]
    for column in COLUMNS:
        if theirs is None:
            cells += ["", f"{own[column]:.1f}", ""]
        else:
            cells += [f"{theirs[column]:.1f}", f"{own[column]:.1f}", f"{own[column] / theirs[column]:.3f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Runs the cases and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--judge", type=Path, help="folder of csg-htsim, built as README.md says")
    parser.add_argument("--record", action="store_true", help="keep its figures in recorded.json")
    parser.add_argument("--only", default="", help="only cases whose key or group (looked-at, held-out) has this text")
    options = parser.parse_args()
    recorded: dict[str, Figures] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    heads = [f"{column}: {part}" for column in COLUMNS for part in ("htsim", "Pathloom", "ratio")]
    print(f"| case | transport | run | held out | {' | '.join(heads)} |\n|{' --- |' * (len(heads) + 4)}")
    for case in (*LOOKED_AT, *HELD_OUT):
        if options.only not in f"{'held-out' if case.held_out else 'looked-at'}, {case.key}":
            continue
        if options.judge:
            recorded[case.key] = figures(judge.run(case, options.judge.resolve()))
        if options.judge and options.record:
            RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
        print(row(case, recorded.get(case.key), figures(ours.run(case))), flush=True)


if __name__ == "__main__":
    main()
