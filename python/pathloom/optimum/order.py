"""Flow completion times in the best order: the flow with the least left is always served first.

Only the links of hosts are limits: each host sends to one host at a time, and receives from one. On one link this order
has the shortest mean (Schrage 1968). On many links it is a reference, not a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A flow of known size."""

    start_s: float
    src: str
    dst: str
    size_bytes: float


def completion_times(jobs: Sequence[Job], rate_bps: float) -> list[float]:
    """Completion times of the flows in seconds, in their order. All hosts have links of this rate, in payload bits.

    >>> completion_times([Job(0.0, "a", "b", 1000), Job(0.0, "a", "c", 250)], 8000.0)
    [1.25, 0.25]
    """
    bytes_per_s = rate_bps / 8.0
    arrivals = sorted(range(len(jobs)), key=lambda at: jobs[at].start_s)
    left: dict[int, float] = {}
    times = [0.0] * len(jobs)
    now, arrived = 0.0, 0
    while arrived < len(arrivals) or left:
        served = _matching(jobs, left)
        ends = min((now + left[at] / bytes_per_s for at in served), default=float("inf"))
        arrives = jobs[arrivals[arrived]].start_s if arrived < len(arrivals) else float("inf")
        then = min(ends, arrives)
        for at in served:
            left[at] -= (then - now) * bytes_per_s
            # Less than a byte is what rounding has left.
            if left[at] <= 1e-3:
                times[at] = then - jobs[at].start_s
                del left[at]
        now = then
        while arrived < len(arrivals) and jobs[arrivals[arrived]].start_s <= now:
            left[arrivals[arrived]] = jobs[arrivals[arrived]].size_bytes
            arrived += 1
    return times


def _matching(jobs: Sequence[Job], left: dict[int, float]) -> list[int]:
    """The flows that are served: the one with the least left first, each host only once in each direction."""
    senders: set[str] = set()
    receivers: set[str] = set()
    served = []
    for at in sorted(left, key=lambda at: (left[at], at)):
        src, dst = jobs[at].src, jobs[at].dst
        if src not in senders and dst not in receivers:
            senders.add(src)
            receivers.add(dst)
            served.append(at)
    return served
