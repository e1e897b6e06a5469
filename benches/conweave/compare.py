"""Compares Pathloom's RoCE hosts and load balancers with the ns-3 of the ConWeave artefact, on the same flows.

Usage: python benches/conweave/compare.py balance|rates [--judge DIR [--record]] [--seeds 3] [--only TEXT]

`balance` runs ecmp, letflow, conga and drill (and in the artefact conweave) at loads 0.5 and 0.8. `rates` runs
DCQCN, HPCC and TIMELY on incasts, and on elephants and mice. Without `--judge` the artefact's figures are those in
recorded.json. README.md says how to build it, and what is made equal. The tables have the slowdown of flows: FCT over
that of a lone flow.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import judge
import ours
from setups import Case, elephants_and_mice, incast, poisson

RECORDED = Path(__file__).with_name("recorded.json")
DURATION_NS = 2_000_000
LOADS = (0.5, 0.8)
COLUMNS = ("mean", "p50", "p95", "p99", "most")
Figures = dict[str, float]


def balance(seed: int) -> Iterator[Case]:
    """The cases of load balancing."""
    for load in LOADS:
        flows = poisson(load, DURATION_NS, seed)
        for balancer in judge.BALANCERS:
            yield Case(f"load {load}", flows, balancer=balancer)


def rates(seed: int) -> Iterator[Case]:
    """The cases of congestion control."""
    works = {f"incast {senders}:1 of 500 KB": incast(senders, 500_000, seed) for senders in (16, 64)}
    works["elephants and mice"] = elephants_and_mice(seed)
    for name, flows in works.items():
        for control in judge.CONTROLS:
            yield Case(name, flows, control=control)


def figures(slowdowns: list[float]) -> Figures:
    """What is recorded of a run."""
    ranked = sorted(slowdowns)
    shares = {f"p{share}": ranked[len(ranked) * share // 100] for share in (50, 95, 99)}
    named = {"mean": statistics.fmean(ranked), **shares, "most": ranked[-1]}
    return {"flows": len(ranked), **{name: round(value, 3) for name, value in named.items()}}


def both(case: Case, slowdowns: list[float]) -> list[list[float]]:
    """The slowdowns as they are, or with elephants those of mice and of elephants."""
    large = [flow.size_bytes >= 1_000_000 for flow in case.flows]
    if "elephants" not in case.name:
        return [slowdowns]
    return [[x for x, is_large in zip(slowdowns, large, strict=True) if is_large == wanted] for wanted in (False, True)]


def key(case: Case, seed: int) -> str:
    """The name of a run in the record."""
    return f"{case.name}, {case.control}, {case.balancer}, seed {seed}"


def figures_of(case: Case, slowdowns: list[float]) -> list[Figures]:
    """The figures of each kind of flows of a run."""
    return [figures(part) for part in both(case, slowdowns)]


def row(who: str, of: list[Figures]) -> str:
    """A row of the table: the mean over the seeds, and the least and greatest of them."""

    def cell(which: str) -> str:
        values = [run[which] for run in of]
        spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.2f}{spread}"

    return f"| {who} | {' | '.join(map(cell, COLUMNS))} |"


def main() -> None:
    """Runs the cases and prints a table of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("balance", "rates"))
    parser.add_argument("--judge", type=Path, help="folder of the artefact, built as README.md says")
    parser.add_argument("--record", action="store_true", help="keep its figures in recorded.json")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    options = parser.parse_args()
    recorded: dict[str, list[Figures]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found: dict[tuple[str, int, str], dict[str, list[Figures]]] = {}
    for seed in range(1, options.seeds + 1):
        for case in {"balance": balance, "rates": rates}[options.what](seed):
            name = key(case, seed)
            if options.only not in name:
                continue
            if options.judge:
                recorded[name] = figures_of(case, judge.run(case, options.judge))
            if options.judge and options.record:
                RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
            runs = {"ns-3": recorded.get(name, [])}
            if case.balancer in ours.BALANCERS:
                runs["Pathloom"] = figures_of(case, ours.run(case))
            choice = case.balancer if options.what == "balance" else case.control
            for who, parts in runs.items():
                for part, of in enumerate(parts):
                    found.setdefault((case.name, part, choice), {}).setdefault(who, []).append(of)
    show(found)


def show(found: dict[tuple[str, int, str], dict[str, list[Figures]]]) -> None:
    """Prints a table for each case, and where a case has elephants, one for them and one for the mice."""
    title = None
    for (name, part, choice), by_who in sorted(found.items(), key=lambda item: item[0][:2]):
        if (name, part) != title:
            title = (name, part)
            kind = f": {('mice', 'elephants')[part]}" if "elephants" in name else ""
            print(f"\n{name}{kind}\n\n| | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 1)}")
        for who, of in by_who.items():
            print(row(f"{choice}, {who}, {len(of)} seeds", of))


if __name__ == "__main__":
    main()
