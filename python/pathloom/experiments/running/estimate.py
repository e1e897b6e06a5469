"""Estimates how long runs will take, from the likely number of simulated packet-hops.

An estimate is good enough to decide whether to run a figure now or at night, and to tell how much of the work of a list
of runs is done. At first it may be wrong by a factor of two. It improves with the figures that the same call has
carried out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

import polars as pl

from pathloom.experiments.settings.model import Job, Settings
from pathloom.fabrics import Fabric
from pathloom.specs import LAB

HOPS_PER_S = 1.8e7
"""Packet-hops that a thread simulates in a second, used before anything is measured (docs/measurements.md)."""
FRAME_BITS = 1500 * 8
ACKNOWLEDGED = 1.65
"""Packets per data packet: the packet, its share of a delayed acknowledgement, and retransmissions."""
START_UP_S = 0.3
"""Seconds of a run besides the simulation, for its fabric, flows and tables."""
LIVE_OVERHEAD_S = 15.0
"""Seconds of a run in the lab besides its duration."""


@lru_cache(maxsize=1024)
def _sizes(fabric: str) -> tuple[float, float]:
    """Bits per second that all hosts together can send, and the number of links of a path."""
    built = Fabric(fabric)
    summary = built.summary()
    hosts = sum(node["tier"] == "host" for node in built.nodes)
    return float(min(summary["host_rate_bps"] or [0])) * hosts, (summary["diameter_hops"] or 2) + 2.0


def work_s(settings: Settings, jobs: Sequence[Job]) -> float:
    """Seconds that these runs take one after the other.

    >>> settings = Settings.of({"fabric": "fat-tree:k=4,rate=10Mbps", "traffic": "long-lived", "schemes": ("ecmp",)})
    >>> job = settings.jobs("sim")[0]
    >>> 0.1 < work_s(settings, [job]) < 10
    True
    >>> busier = settings.model_copy(update={"fabric": "fat-tree:k=8,rate=1Gbps"})
    >>> work_s(busier, [job]) > 100 * work_s(settings, [job])
    True
    """
    if LAB in settings.worlds:
        return len(jobs) * (settings.duration_s + LIVE_OVERHEAD_S)
    bits_per_s, hops = _sizes(settings.fabric)
    found = re.search(r"\bload=([0-9.]+)", settings.traffic)
    load = min(float(found[1]), 1.0) if found is not None else 1.0
    bits = min(bits_per_s * load * settings.duration_s, _listed_bits(settings.traffic))
    return len(jobs) * (START_UP_S + bits / FRAME_BITS * hops * ACKNOWLEDGED / HOPS_PER_S)


@lru_cache(maxsize=32)
def _listed_bits(traffic: str) -> float:
    """Bits of the flows that a file lists; infinite for a file with a long-lived flow, and if this is unknown."""
    found = re.match(r"flows:file=([^,]+)", traffic)
    if found is None or "+" in traffic:
        return math.inf
    try:
        sizes = pl.read_csv(found[1], comment_prefix="#")["size_bytes"].cast(pl.Float64, strict=False)
    except (OSError, pl.exceptions.PolarsError):
        # The simulator reads other forms as well, such as files without a heading.
        return math.inf
    return math.inf if sizes.null_count() else 8.0 * float(sizes.sum())


class EstimateFactor:
    """The ratio of measured to estimated time of the figures of a call."""

    def __init__(self) -> None:
        """Starts without any measurement."""
        self._estimated_s = self._taken_s = 0.0

    def note(self, estimated_s: float, taken_s: float) -> None:
        """Records a finished figure: its estimated work, and the time that all threads took."""
        self._estimated_s += estimated_s
        self._taken_s += taken_s

    def wall_s(self, estimated_s: float, threads: int) -> float:
        """Wall-clock time for this amount of estimated work.

        >>> factor = EstimateFactor()
        >>> factor.wall_s(600.0, 2)
        300.0
        >>> factor.note(100.0, 150.0)
        >>> factor.wall_s(600.0, 2)
        450.0
        """
        factor = self._taken_s / self._estimated_s if self._estimated_s > 0 else 1.0
        return estimated_s * factor / threads
