"""Set-ups for Pathloom and ns-3: dumbbells with different properties, so that nothing is tuned to one of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

MSS_BYTES: Final = 1448
FRAME_BYTES: Final = 1514
ACCESS_BPS: Final = 1_000_000_000
ACCESS_DELAY_NS: Final = 1_000
ACCESS_BUFFER: Final = 1_000
"""Delay and buffer of host cables. These are faster than the shared cable, so that queues form only there."""
START_SPREAD_S: Final = 0.1


@dataclass(frozen=True)
class Dumbbell:
    """Long-lived flows that share one cable, all in one direction."""

    flows: int
    rate_bps: int
    delay_ms: int
    """One-way delay of the shared cable."""
    buffer: int
    """Packets that may wait for the shared cable."""
    duration_s: int
    acks: int = 1
    """Full segments per acknowledgement."""
    min_rto_ms: int = 200
    slow_start: bool = False
    """Whether slow start continues to the first loss, or only to half of what the path and the buffer hold.

    It is used only if few segments are lost at its end: after a time-out, ns-3 is not comparable (see README.md).
    """
    tcp: str = "newreno"
    """Congestion control: newreno, cubic or dctcp."""
    sack: bool = False
    """Whether selective acknowledgements are used."""
    mark: int | None = None
    """Packets that may wait for the shared cable before arriving packets are marked (K of RFC 8257)."""

    @property
    def name(self) -> str:
        """Short description of the set-up."""
        rtt, rate = 2 * self.delay_ms, self.rate_bps // 1_000_000
        more = [
            f"{self.acks} segments/ack" if self.acks > 1 else "",
            f"RTO ≥ {self.min_rto_ms} ms" if self.min_rto_ms != 200 else "",
            "slow start" if self.slow_start else "",
            self.tcp if self.tcp != "newreno" else "",
            "SACK" if self.sack else "",
            f"K = {self.mark}" if self.mark is not None else "",
        ]
        parts = [f"{self.flows} × {rate} Mbit/s", f"{rtt} ms", f"{self.buffer} packets", *filter(None, more)]
        return ", ".join(parts)

    @property
    def packets_on_the_way(self) -> float:
        """Bandwidth times round-trip time, in packets."""
        round_trip_s = 2 * (self.delay_ms * 1e-3 + 2 * ACCESS_DELAY_NS * 1e-9)
        return self.rate_bps * round_trip_s / 8 / FRAME_BYTES

    @property
    def ssthresh_bytes(self) -> int | None:
        """Slow-start threshold at the start: half of the largest share of a flow."""
        if self.slow_start:
            return None
        return max(4, int((self.packets_on_the_way + self.buffer) / 2 / self.flows)) * MSS_BYTES

    @property
    def most_goodput_bps(self) -> float:
        """Payload rate of the shared cable."""
        return self.rate_bps * MSS_BYTES / FRAME_BYTES

    def starts_s(self, seed: int) -> list[float]:
        """When each flow starts; the same for both simulators."""
        rng = random.Random(seed)
        return [round(rng.uniform(0, START_SPREAD_S), 6) for _ in range(self.flows)]


DUMBBELLS: Final = [
    # Buffer larger than the path: the cable is never idle, and only the queue counts.
    Dumbbell(1, 10_000_000, 1, 100, 60),
    Dumbbell(1, 100_000_000, 5, 150, 15),
    Dumbbell(2, 10_000_000, 10, 20, 60),
    Dumbbell(2, 100_000_000, 2, 50, 15),
    Dumbbell(2, 10_000_000, 1, 100, 60),
    Dumbbell(8, 100_000_000, 5, 100, 15),
    # Buffer smaller than the path: the cable is idle after each loss, so goodput counts.
    Dumbbell(1, 10_000_000, 10, 10, 60),
    Dumbbell(1, 100_000_000, 10, 40, 15),
    Dumbbell(2, 100_000_000, 10, 60, 15),
    Dumbbell(8, 100_000_000, 10, 150, 15),
    Dumbbell(8, 100_000_000, 10, 60, 15),
    # A slow start that ends with about ten losses of one window.
    Dumbbell(1, 100_000_000, 1, 20, 15, slow_start=True),
    Dumbbell(1, 10_000_000, 1, 30, 60, slow_start=True, min_rto_ms=1000),
    # Delayed acknowledgements.
    Dumbbell(1, 10_000_000, 5, 50, 60, acks=2),
    Dumbbell(2, 10_000_000, 5, 50, 60, acks=2),
    Dumbbell(8, 100_000_000, 5, 100, 15, acks=2),
    # Round trips of 140 ms, in which a recovery from some losses takes longer than 200 ms.
    Dumbbell(8, 10_000_000, 10, 100, 60, min_rto_ms=1000),
    # Selective acknowledgements.
    Dumbbell(1, 10_000_000, 10, 10, 60, sack=True),
    Dumbbell(2, 100_000_000, 2, 50, 15, sack=True),
    Dumbbell(8, 100_000_000, 10, 150, 15, sack=True),
    Dumbbell(2, 10_000_000, 5, 50, 60, sack=True, acks=2),
    # CUBIC where the cubic function decides. Two more set-ups miss the bar for the queue (see README.md).
    Dumbbell(1, 100_000_000, 50, 200, 60, tcp="cubic", sack=True),
    # DCTCP: thresholds below, around and above the packets in flight.
    Dumbbell(1, 100_000_000, 1, 200, 15, tcp="dctcp", sack=True, mark=20),
    Dumbbell(2, 100_000_000, 1, 200, 15, tcp="dctcp", sack=True, mark=40),
    Dumbbell(8, 100_000_000, 1, 200, 15, tcp="dctcp", sack=True, mark=40),
    Dumbbell(2, 100_000_000, 5, 300, 15, tcp="dctcp", sack=True, mark=20),
]


@dataclass(frozen=True)
class FatTree:
    """The work of the speed comparison: stride(N/2) over a FatTree with 1 Gbit/s and 1 µs on every cable."""

    k: int = 8
    duration_ms: int = 15
    buffer: int = 100
    receive_window_bytes: int = 176 * MSS_BYTES
    """Enough to fill any path. With more, a sender in recovery has so many segments outstanding that ns-3, which
    searches all of them at each acknowledgement, is even slower."""

    @property
    def fabric(self) -> str:
        """The fabric as a value of `--fabric`."""
        return f"fat-tree:k={self.k},rate=1Gbps,delay=1us,buffer={self.buffer}"

    @property
    def transport(self) -> str:
        """The transport as a value of `--transport`."""
        return f"newreno:small_queues=off,acks=1,rwnd={self.receive_window_bytes}B"
