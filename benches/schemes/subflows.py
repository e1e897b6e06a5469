"""What decides the worst flow of MPTCP: prints the table of docs/schemes.md.

Usage: python benches/schemes/subflows.py [--duration 30ms] [--runs 10] [--jobs 1]

The permutation is on a k=8 FatTree of 10 Gbit/s with one core cable of 1 Gbit/s. Each connection has eight uncoupled
subflows. A row is a run:

- packets: the mean and the worst flow as the simulator has them, without SYN exchange;
- fair: the worst flow if every subflow has its max-min fair rate (`--fidelity fluid`);
- possible: the largest rate that all flows can have at once on these paths, if each divides it freely.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import highspy
import polars as pl

FABRIC = "fat-tree:k=8,rate=10Gbps,degrade=c0-a0_0:1Gbps"
RATE_BPS = 10e9


def compare(out: Path, fidelity: str, options: argparse.Namespace) -> None:
    """Runs one comparison into a folder."""
    command = [str(Path(sys.executable).parent / "pathloom"), "compare", "--fabric", FABRIC]
    command += ["--traffic", "long-lived:pattern=permutation", "--schemes", "mptcp:subflows=8,cc=uncoupled"]
    command += ["--transport", "mptcp:handshake=off", "--duration", options.duration, "--runs", str(options.runs)]
    command += ["--seed", "1", "--jobs", str(options.jobs), "--fidelity", fidelity, "--out", str(out)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def possible(subflows: pl.DataFrame, links: pl.DataFrame) -> float:
    """The largest rate that all flows can have at once, as a share of a host's rate.

    Args:
        subflows: The subflows of a run, with the nodes of their paths.
        links: The links of the run, with their rates in bit/s.

    """
    rows = zip(links["source"], links["target"], links["rate_bps"], strict=True)
    capacity = {(source, target): rate / RATE_BPS for source, target, rate in rows}
    over_link: dict[tuple[str, str], list[int]] = defaultdict(list)
    of_flow: dict[int, list[int]] = defaultdict(list)
    for number, (flow, path) in enumerate(zip(subflows["flow"], subflows["path"], strict=True)):
        of_flow[flow].append(number)
        for hop in pairwise(path.split()):
            over_link[hop].append(number)
    program: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    program.setOptionValue("output_flag", False)
    rates = [program.addVariable(lb=0) for _ in range(subflows.height)]
    least = program.addVariable(lb=0, ub=1, obj=-1)
    for hop, numbers in over_link.items():
        program.addConstr(sum(rates[number] for number in numbers) <= capacity[hop])
    for numbers in of_flow.values():
        total = sum(rates[number] for number in numbers)
        program.addConstr(total <= 1)
        program.addConstr(total - least >= 0)
    program.run()
    return float(program.getSolution().col_value[subflows.height])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duration", default="30ms")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    print("| run | packets: mean | packets: worst | fair: worst | possible |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        packets, fluid = Path(folder, "packets"), Path(folder, "fluid")
        compare(packets, "packets", options)
        compare(fluid, "fluid", options)
        flows = {kind: pl.read_parquet(kind / "flows.parquet") for kind in (packets, fluid)}
        subflows, links = pl.read_parquet(fluid / "subflows.parquet"), pl.read_parquet(fluid / "links.parquet")
        for run in range(1, options.runs + 1):
            of_run = pl.col("run") == run
            measured, fair = (flows[kind].filter(of_run)["throughput"].to_list() for kind in (packets, fluid))
            mean = sum(measured) / len(measured)
            bound = possible(subflows.filter(of_run), links.filter(of_run))
            print(f"| {run} | {mean:.3f} | {min(measured):.2f} | {min(fair):.2f} | {bound:.2f} |")


if __name__ == "__main__":
    main()
