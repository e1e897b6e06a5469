"""What an operator may want to be good: figures of one run of a fork."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pathloom.experiments.results.stats import percentile

UNDER_WAY_BEFORE_NS = 1_000_000
"""Flows that start within the first millisecond of a fork were under way; later ones have arrived."""
SMALL_BYTES = 100_000
"""Largest small flow."""


@dataclass(frozen=True)
class Measure:
    """A figure of a run, and whether more of it is better."""

    name: str
    about: str
    unit: str
    more_is_better: bool
    of: Callable[[Mapping[str, Any], float], float | None]
    """Of the outcome of the run and the duration in seconds; None if no flow counts."""


def _columns(outcome: Mapping[str, Any]) -> dict[str, list[Any]]:
    flows = outcome["flows"]
    names = ("src", "dst", "size_bytes", "start_ns", "finish_ns", "delivered_bytes", "throughput", "ideal_fct_ns")
    return {name: list(flows[name].tolist()) for name in names}


def _p99_fct_small(outcome: Mapping[str, Any], _duration_s: float) -> float | None:
    columns, end_ns = _columns(outcome), int(outcome["end_ns"])
    fcts = [
        (finish if finish >= 0 else end_ns) - start
        for size, start, finish in zip(columns["size_bytes"], columns["start_ns"], columns["finish_ns"], strict=True)
        if start >= UNDER_WAY_BEFORE_NS and 0 < size <= SMALL_BYTES
    ]
    found = percentile(sorted(fcts), 0.99)
    return None if found is None else found / 1e9


def _mean_throughput(outcome: Mapping[str, Any], _duration_s: float) -> float | None:
    columns, end_ns = _columns(outcome), int(outcome["end_ns"])
    shares = []
    for place, throughput in enumerate(columns["throughput"]):
        start_ns, ideal_ns = columns["start_ns"][place], columns["ideal_fct_ns"][place]
        if start_ns >= 0:
            # An unfinished flow has at most the throughput that it would have if it finished now.
            shares.append(ideal_ns / max(end_ns - start_ns, 1) if math.isnan(throughput) else throughput)
    return math.fsum(shares) / len(shares) if shares else None


def _worst_pair(outcome: Mapping[str, Any], duration_s: float) -> float | None:
    columns, end_ns = _columns(outcome), int(outcome["end_ns"])
    duration_ns = duration_s * 1e9
    sent: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, start_ns in enumerate(columns["start_ns"]):
        if not 0 <= start_ns < UNDER_WAY_BEFORE_NS:
            continue
        finish_ns = columns["finish_ns"][place]
        if finish_ns < 0:
            finish_ns = duration_ns if columns["size_bytes"][place] < 0 else end_ns
        pair = sent[(columns["src"][place], columns["dst"][place])]
        pair[0] += columns["delivered_bytes"][place] * 8
        pair[1] += max(finish_ns - start_ns, 1) / 1e9
    return min(bits / seconds for bits, seconds in sent.values()) if sent else None


def _completion(outcome: Mapping[str, Any], _duration_s: float) -> float | None:
    columns, end_ns = _columns(outcome), int(outcome["end_ns"])
    ends = [
        finish if finish >= 0 else end_ns
        for size, start, finish in zip(columns["size_bytes"], columns["start_ns"], columns["finish_ns"], strict=True)
        if size >= 0 and 0 <= start < UNDER_WAY_BEFORE_NS
    ]
    return max(ends) / 1e9 if ends else None


def unfinished_share(outcome: Mapping[str, Any]) -> float:
    """Share of the flows with an end that had not finished by the end of the run. They count with their age."""
    flows = outcome["flows"]
    started = (flows["start_ns"] >= 0) & (flows["size_bytes"] >= 0)
    count = int(started.sum())
    return int((started & (flows["finish_ns"] < 0)).sum()) / count if count else 0.0


MEASURES = {
    one.name: one
    for one in (
        Measure("p99-fct-small", "99th percentile of the FCT of new flows up to 100 KB", "s", False, _p99_fct_small),
        Measure(
            "worst-pair", "mean goodput of the flows under way of the slowest pair of hosts", "bps", True, _worst_pair
        ),
        Measure(
            "mean-throughput", "mean throughput of all flows, as a share of the optimum", "", True, _mean_throughput
        ),
        Measure("completion", "time until the last flow under way has finished", "s", False, _completion),
    )
}
"""All measures by name."""
