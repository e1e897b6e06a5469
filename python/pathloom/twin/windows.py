"""Windows of connections whose hosts do not tell them: rate times round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

FRAME_BYTES, ACK_BYTES, MSS_BYTES = 1514, 66, 1448
FULL_SHARE = 0.9
"""A link with at least this share of its rate in use has a queue,"""
QUEUE_SHARE = 0.5
"""which takes this share of its buffer."""
SLOW_START_WINDOWS = 3
"""A flow that has sent less than this many windows may still be in slow start."""
DEFAULT_HOP_S = 20e-6
"""Round trip for each link if the path is not known."""
DEFAULT_HOPS = 6


class RoundTrips:
    """Round trips over the paths of a graph."""

    def __init__(self, graph: Mapping[str, Any], load_bps: Mapping[tuple[str, str], float]) -> None:
        """`load_bps` is the load of each direction of a cable, by the names of its ends."""
        self._edges: dict[tuple[str, str], Mapping[str, Any]] = {}
        for edge in graph["edges"]:
            self._edges[(str(edge["source"]), str(edge["target"]))] = edge
            self._edges[(str(edge["target"]), str(edge["source"]))] = edge
        self._load_bps = load_bps

    def seconds(self, src: str, path: Sequence[str] | None, dst: str) -> float:
        """Round trip between two hosts, with the queues that the loads of the links suggest."""
        nodes = [src, *(path or []), dst]
        hops = [hop for hop in pairwise(nodes) if hop in self._edges]
        if not path or len(hops) < len(nodes) - 1:
            return DEFAULT_HOPS * DEFAULT_HOP_S
        return sum(self._hop_s(hop) for hop in hops)

    def _hop_s(self, hop: tuple[str, str]) -> float:
        edge = self._edges[hop]
        rate_bps = max(float(edge.get("rate_bps", 1e9)), 1.0)
        frame_s, ack_s = FRAME_BYTES * 8 / rate_bps, ACK_BYTES * 8 / rate_bps
        full = self._load_bps.get(hop, 0.0) >= FULL_SHARE * rate_bps
        queue_s = QUEUE_SHARE * float(edge.get("buffer_packets", 100)) * frame_s if full else 0.0
        return 2 * float(edge.get("delay_ps", 1e6)) / 1e12 + frame_s + ack_s + queue_s


def window_bytes(rate_bps: float, round_trip_s: float) -> int:
    """The window that gives this rate over this round trip, at least two segments.

    >>> window_bytes(1e9, 100e-6), window_bytes(0, 1.0)
    (12500, 2896)
    """
    return max(round(rate_bps * round_trip_s / 8), 2 * MSS_BYTES)


def may_be_in_slow_start(sent_bytes: int, window: int) -> bool:
    """Whether a flow that has sent so much may still be in slow start: in slow start, it has sent about two windows.

    >>> may_be_in_slow_start(20_000, 10_000), may_be_in_slow_start(1_000_000, 10_000)
    (True, False)
    """
    return sent_bytes < SLOW_START_WINDOWS * window
