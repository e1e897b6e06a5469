"""Compares runs whose steady phases are skipped with packets: the second table of docs/fidelity.md.

`python benches/fidelity/skip.py [WORKLOAD …]` runs each workload with both fidelities, on the same flows, and prints a
row in Markdown: how much was skipped, how far flows differ, and the time of both runs. Flows with an end are compared
by their FCT, others by their goodput. The limits of the simulator were chosen on `WORKLOADS`. `--held-out` runs
others, on which nothing was chosen.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import polars as pols

import pathloom as pl

HEADING = (
    "| workload | scheme | transport | skipped | phases | mean | slowest 1 % | flow by flow | time, packets / skip |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
FOUR, TEN = "fat-tree:k=4,rate=1Gbps", "fat-tree:k=4,rate=10Gbps"


@dataclass(frozen=True)
class Workload:
    """Traffic under a scheme, and how long it arrives."""

    traffic: str
    scheme: str
    transport: str
    duration: str
    fabric: str = FOUR
    seed: int = 1


WORKLOADS = {
    "permutation 20 s": Workload("long-lived:pattern=permutation", "ecmp", "dctcp", "20s"),
    "permutation 20 s, spt": Workload("long-lived:pattern=permutation", "spt", "dctcp", "20s"),
    "permutation 20 s, ofpt": Workload("long-lived:pattern=permutation", "ofpt", "newreno", "20s"),
    "permutation 20 s, lessor": Workload("long-lived:pattern=permutation", "lessor", "newreno", "20s"),
    "permutation 20 s, drop-tail": Workload("long-lived:pattern=permutation", "ecmp", "newreno", "20s"),
    "permutation 20 s, cubic": Workload("long-lived:pattern=permutation", "ecmp", "cubic", "20s"),
    "permutation 4 s, 10 Gbit/s": Workload("long-lived:pattern=permutation", "hedera", "dctcp", "4s", TEN),
    "all-reduce of 1 GB": Workload("all-reduce:size=1GB", "ecmp", "dctcp", "1s"),
    "data mining 0.6": Workload("data-mining:load=0.6", "ecmp", "dctcp", "4s"),
    "web search 0.6": Workload("web-search:load=0.6", "ecmp", "dctcp", "1s"),
}

LEAVES = "leaf-spine:spines=4,leaves=6,hosts=6,rate=10Gbps"
HELD_OUT = {
    "permutation 20 s, k=6": Workload(
        "long-lived:pattern=permutation", "ecmp", "dctcp", "20s", "fat-tree:k=6,rate=1Gbps", 31
    ),
    "stride 20 s": Workload("long-lived:pattern=stride", "ecmp", "dctcp", "20s", seed=32),
    "random pairs 10 s": Workload("long-lived:pattern=random", "hedera", "dctcp", "10s", seed=33),
    "permutation 4 s, leaf-spine": Workload("long-lived:pattern=permutation", "ecmp", "dctcp", "4s", LEAVES, 34),
    "permutation 10 s, Jellyfish": Workload(
        "long-lived:pattern=permutation",
        "ofpt",
        "newreno",
        "10s",
        "jellyfish:switches=20,ports=6,hosts=20,rate=1Gbps",
        35,
    ),
    "all-reduce of 500 MB, leaf-spine": Workload("all-reduce:size=500MB", "ecmp", "dctcp", "1s", LEAVES, 36),
    "data mining 0.4": Workload("data-mining:load=0.4", "ecmp", "dctcp", "4s", seed=37),
    "data mining 0.6, ofpt": Workload("data-mining:load=0.6", "ofpt", "newreno", "4s", seed=38),
    "hadoop 0.5": Workload("hadoop:load=0.5", "ecmp", "dctcp", "500ms", seed=39),
}


def figures(skip: pols.DataFrame, packets: pols.DataFrame) -> list[float]:
    """Relative differences from packets: of the mean over flows, of the slowest 1 %, and in the mean flow by flow.

    The figure of a flow is its FCT, or its goodput if it has no end.
    """
    endless = packets["size_bytes"].null_count() > 0
    column = "throughput" if endless else "fct_s"
    both = skip.select("flow", skipped=column).join(packets.select("flow", exact=column), on="flow").drop_nulls()
    skipped, exact = (both[name].to_numpy() for name in ("skipped", "exact"))
    slowest = 0.01 if endless else 0.99
    return [
        float(skipped.mean() / exact.mean() - 1),
        float(np.quantile(skipped, slowest) / np.quantile(exact, slowest) - 1),
        float(np.abs(skipped / exact - 1).mean()),
    ]


def row(name: str, of: Workload) -> str:
    """The row of a workload."""
    endless = of.traffic.startswith("long-lived")
    skip, packets = (
        pl.run(
            fabric=of.fabric,
            traffic=of.traffic,
            scheme=of.scheme,
            transport=of.transport,
            duration=of.duration,
            until=None if endless else "finished",
            seed=of.seed,
            fidelity=fidelity,
        )
        for fidelity in ("skip", "packets")
    )
    summary, exact = (one.summary["schemes"][0] for one in (skip, packets))
    what, times = summary["skipped"], (exact["wall_s"], summary["wall_s"])
    mean, slowest, each = figures(skip.flows, packets.flows)
    cells = [
        name,
        of.scheme,
        of.transport,
        f"{what['share']:.1%}",
        str(what["jumps"]),
        f"{mean:+.1%}",
        f"{slowest:+.1%}",
        f"{each:.1%}",
        f"{times[0]:.1f} s / {times[1]:.2f} s = {times[0] / times[1]:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    named = [word for word in sys.argv[1:] if word != "--held-out"]
    known = HELD_OUT if "--held-out" in sys.argv else WORKLOADS
    print(HEADING, flush=True)
    for name in named or known:
        print(row(name, known[name]), flush=True)


if __name__ == "__main__":
    main()
