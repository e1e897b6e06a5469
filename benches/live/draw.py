"""Draws the lines that `measure.py` wrote: the ratios to their controls over commits, with median and spread.

python benches/live/draw.py results/live.jsonl --out results/live.svg
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLUMNS = 3
Series = dict[str, dict[str, list[float]]]


def read(lines: list[str]) -> tuple[list[str], Series]:
    """Returns the commits in order, and the ratios of each measurement by commit; its values if it has no ratio."""
    commits: list[str] = []
    found: Series = {}
    for row in map(json.loads, lines):
        if row["commit"] not in commits:
            commits.append(row["commit"])
        title = f"{row['name']}, over {row['control']['what']}" if row["ratio"] else f"{row['name']}, {row['unit']}"
        found.setdefault(title, {}).setdefault(row["commit"], []).extend((row["ratio"] or row)["values"])
    return commits, found


def draw(commits: list[str], series: Series, file: Path) -> None:
    """Draws one small picture for each value."""
    rows = -(-len(series) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(5 * COLUMNS, 2 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(series) :]:
        axis.axis("off")
    for axis, (title, by_commit) in zip(axes.flat, series.items(), strict=False):
        places = [place for place, commit in enumerate(commits) if commit in by_commit]
        values = [by_commit[commits[place]] for place in places]
        medians = [statistics.median(one) for one in values]
        below = [median - min(one) for median, one in zip(medians, values, strict=True)]
        above = [max(one) - median for median, one in zip(medians, values, strict=True)]
        axis.errorbar(places, medians, yerr=[below, above], marker="o", capsize=3)
        axis.set_title(title, fontsize=7, wrap=True)
        axis.set_xticks(range(len(commits)), commits, fontsize=6, rotation=30)
        axis.tick_params(axis="y", labelsize=6)
        axis.set_ylim(bottom=min(0.0, *medians))
    figure.savefig(file)
    plt.close(figure)


def main() -> int:
    """Draws a file of measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    lines = given.measurements.read_text(encoding="utf-8").splitlines() if given.measurements.exists() else []
    if not lines:
        print(f"draw: {given.measurements} has no measurements; run measure.py first", file=sys.stderr)
        return 2
    draw(*read(lines), given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
