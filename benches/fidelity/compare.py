"""Compares flows as rates with packets: the table of docs/fidelity.md.

`python benches/fidelity/compare.py [WORKLOAD …]` runs each workload under each scheme with both fidelities, on the same
flows, and prints a row for each pair, in Markdown. A row has the differences of rates from packets.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pathloom as pl

EIGHT, FOUR = "fat-tree:k=8,rate=1Gbps", "fat-tree:k=4,rate=1Gbps"
SCHEMES = (
    "spt",
    "ecmp",
    "hedera:period=10ms",
    "ofpt:period=10ms",
    "lessor:min_period=5ms,period=10ms",
    "mptcp",
)
HEADING = (
    "| workload | scheme | mean FCT | p50 | p99 | throughput | waited for time-outs | time, packets / rates |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True)
class Workload:
    """Traffic, and how long it arrives."""

    traffic: str
    duration: str
    fabric: str = EIGHT
    schemes: tuple[str, ...] = SCHEMES
    transport: str | None = None


WORKLOADS = {
    "permutation": Workload("long-lived:pattern=permutation", "200ms"),
    "stride": Workload("long-lived:pattern=stride", "200ms"),
    "web search 0.3": Workload("web-search:load=0.3", "100ms"),
    "web search 0.6": Workload("web-search:load=0.6", "100ms"),
    "web search 0.8": Workload("web-search:load=0.8", "100ms"),
    "data mining 0.6": Workload("data-mining:load=0.6,max_size=100MB", "200ms"),
    "hadoop 0.6": Workload("hadoop:load=0.6", "20ms"),
    "all-to-all": Workload("all-to-all:size=1MB", "1s", FOUR),
    "all-reduce, 2 of 16 MB": Workload("all-reduce:size=16MB,iterations=2", "1s", FOUR),
    "web search 0.6, dctcp": Workload("web-search:load=0.6", "100ms", schemes=("ecmp",), transport="dctcp"),
    "hadoop 0.6, dctcp": Workload("hadoop:load=0.6", "20ms", schemes=("ecmp",), transport="dctcp"),
}


def times(flows: object) -> list[float]:
    """Mean, median and 99th percentile of the FCTs, if there are any."""
    known = flows["fct_s"].drop_nulls()  # type: ignore[index]
    return [known.mean(), known.quantile(0.5), known.quantile(0.99)] if len(known) else []


def change(rates: float, packets: float) -> str:
    """The difference from packets, in percent."""
    return f"{100 * (rates / packets - 1):+.0f} %"


def row(name: str, of: Workload, scheme: str) -> str:
    """The row of a workload under a scheme."""
    endless = of.traffic.startswith("long-lived")
    both = [
        pl.run(
            fabric=of.fabric,
            traffic=of.traffic,
            scheme=scheme,
            transport=of.transport,
            duration=of.duration,
            until=None if endless else "finished",
            fidelity=fidelity,
        )
        for fidelity in ("fluid", "packets")
    ]
    summaries = [one.summary["schemes"][0] for one in both]
    fcts = [times(one.flows) for one in both]
    cells = [change(*pair) for pair in zip(*fcts, strict=True)] or ["", "", ""]
    cells.append(change(*(one["throughput"]["mean"] for one in summaries)))
    share = summaries[1]["timeout_wait"]["share"]
    cells.append("" if share is None else f"{100 * share:.0f} %")
    fluid_s, packets_s = (one["wall_s"] for one in summaries)
    cells.append(f"{packets_s:.1f} s / {fluid_s:.2f} s = {packets_s / fluid_s:.0f}")
    return f"| {name} | {scheme.partition(':')[0]} | {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    wanted = sys.argv[1:] or list(WORKLOADS)
    print(HEADING, flush=True)
    for name in wanted:
        for scheme in WORKLOADS[name].schemes:
            print(row(name, WORKLOADS[name], scheme), flush=True)


if __name__ == "__main__":
    main()
