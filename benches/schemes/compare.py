"""Compares the schemes that choose paths without a central controller, and prints the table of docs/schemes.md.

Usage: python benches/schemes/compare.py [--duration 20ms] [--runs 1] [--jobs 1] [--k 8]

It runs `pathloom compare` for a permutation and for web search at load 0.6, on a healthy FatTree and with failed
cables. Each scheme runs over DCTCP, except those that bring a transport of their own. The time of a run stands beside
that of ecmp in the same comparison. Only such a ratio has a meaning on another machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

GROUPS = {
    "dctcp:min_rto=2ms,initial_rto=10ms": (
        "ecmp wcmp rps drb ethereal presto drill letflow conga hula flowcut vlb plb flowbender "
        "oblivious bitmap reps mixed loom"
    ),
    "newreno:sack=on,min_rto=2ms,initial_rto=10ms": "ecmp mptcp:subflows=8",
}
"""The schemes by the transport that is requested for them; the first of each group is the reference of time."""
TRAFFICS = {
    "permutation": "long-lived:pattern=permutation",
    "web search": "web-search:load=0.6,pattern=random,max_size=1MB",
}
FAILURES = {"healthy": "", "failed": ",fail=0.05,fail_seed=1"}


def compare(
    fabric: str, traffic: str, transport: str, schemes: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The schemes of one comparison, as in the JSON of `pathloom compare`."""
    command = [str(Path(sys.executable).parent / "pathloom"), "compare", "--fabric", fabric, "--traffic", traffic]
    command += ["--transport", transport, "--schemes", ",".join(schemes.split()), "--duration", options.duration]
    command += ["--runs", str(options.runs), "--seed", "1", "--jobs", str(options.jobs), "--json", "-"]
    if "long-lived" not in traffic:
        command += ["--until", "finished"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return list(json.loads(done.stdout)["schemes"])


def measure(options: argparse.Namespace) -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    """The results by scheme, traffic and failures. The ecmp of the first group is the one that counts."""
    found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for transport, schemes in GROUPS.items():
        for traffic, traffic_spec in TRAFFICS.items():
            for failures, keys in FAILURES.items():
                fabric = f"fat-tree:k={options.k},rate=1Gbps{keys}"
                rows = compare(fabric, traffic_spec, transport, schemes, options)
                for row in rows:
                    row["time_ratio"] = row["wall_s"] / rows[0]["wall_s"]
                    found.setdefault(row["scheme"], {}).setdefault((traffic, failures), row)
    return found


def line(scheme: str, of: dict[tuple[str, str], dict[str, Any]]) -> str:
    """The row of a scheme; the two figures of a cell are for the healthy fabric and with failures."""

    def pair(traffic: str, text: Any) -> str:
        return ", ".join(text(of[traffic, failures]) for failures in FAILURES)

    def fct_ms(row: dict[str, Any], which: str) -> str:
        left = row["flows"]["started"] - row["flows"]["finished"]
        return f"{'≥ ' if left else ''}{row['fct_s'][which] * 1e3:.1f}"

    def reordered(row: dict[str, Any]) -> float:
        return float((row["reordering"] or {}).get("ratio") or 0)

    cells = [
        pair("permutation", lambda row: f"{row['throughput']['mean']:.3f}"),
        pair("permutation", lambda row: f"{row['throughput']['min']:.2f}"),
        pair("web search", lambda row: fct_ms(row, "mean")),
        pair("web search", lambda row: fct_ms(row, "p99")),
        ", ".join(f"{100 * reordered(of[traffic, 'healthy']):.1f}" for traffic in TRAFFICS),
        ", ".join(f"{of[traffic, 'healthy']['time_ratio']:.1f}" for traffic in TRAFFICS),
    ]
    return f"| {scheme} | {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--duration", default="20ms", help="time in which flows arrive")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--k", type=int, default=8, help="ports of a switch of the FatTree")
    found = measure(parser.parse_args())
    heads = [
        "scheme",
        "permutation: mean throughput",
        "the lowest",
        "web search: mean FCT (ms)",
        "99th percentile (ms)",
    ]
    heads += ["reordered (%), permutation and web search, healthy", "time of a run, ecmp = 1, the same"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for scheme, of in found.items():
        print(line(scheme, of))


if __name__ == "__main__":
    main()
