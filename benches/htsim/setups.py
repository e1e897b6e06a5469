"""What both simulators are given: the fabric, the transfers, and the slow links, each written once.

The fabric is a fat tree with links of 100 Gbit/s and 1 us. Hosts, aggregation switches and cores count from 0.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from math import ceil

RATE_BPS = 100_000_000_000
DELAY_NS = 1_000
HEADER = 64
FRAME = 4150
"""Bytes of a full packet of ndp and eqds on the wire, with 64 of headers."""
QUEUE_PACKETS = 43
WINDOW_PACKETS = 43
TCP_PAYLOAD, TCP_FRAME = 1448, 1514
TCP_QUEUE_PACKETS = 200
TCP_MARK_PACKETS = 15
"""The threshold of the ports that htsim builds for DCTCP."""


@dataclass(frozen=True)
class Flow:
    """A transfer that starts at once.

    If it has one path, that is through this aggregation switch of the pod and this core of that switch.
    """

    source: int
    target: int
    size_bytes: int
    aggregation: int
    core: int


@dataclass(frozen=True)
class Slow:
    """The first links from cores to the first aggregation switch have a part of their rate. Queues keep their size."""

    links: int = 0
    factor: int = 10


@dataclass(frozen=True)
class Case:
    """A run of both simulators."""

    traffic: str
    transport: str
    """ndp-rand and ndp-perm (a path drawn for each packet, or all in turn), eqds, or dctcp (one path, drawn).

    In dctcp-marked, htsim's sender cuts its window only after marks.
    """
    k: int = 8
    slow: Slow = Slow()
    seed: int = 1
    held_out: bool = False
    """Whether nothing was changed after its first figures were seen."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        slow = f", {self.slow.links} links at 1/{self.slow.factor}" if self.slow.links else ""
        return f"{self.traffic}{slow}"

    @property
    def key(self) -> str:
        """Its name in the record."""
        return f"{self.name}, k={self.k}, {self.transport}, seed {self.seed}"

    @property
    def is_tcp(self) -> bool:
        """Whether each transfer has one path, and ports drop."""
        return self.transport.startswith("dctcp")

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """The transfers."""
        kind, _, count = self.traffic.partition(" ")
        hosts = self.k**3 // 4
        rng = random.Random(self.seed)
        if kind == "permutation":
            pairs, size_bytes = permutation(hosts, rng), 10_000_000 if "dctcp" in self.transport else 2_000_000
        else:
            senders = int(count.split(":")[0])
            pairs, size_bytes = [(source, 0) for source in rng.sample(range(1, hosts), senders)], 400_000
        half = self.k // 2
        return tuple(Flow(*pair, size_bytes, rng.randrange(half), rng.randrange(half)) for pair in pairs)

    def links_of(self, flow: Flow) -> int:
        """The number of links of a path of this flow."""
        half = self.k // 2
        if flow.source // half == flow.target // half:
            return 2
        return 4 if flow.source // half**2 == flow.target // half**2 else 6


def permutation(hosts: int, rng: random.Random) -> list[tuple[int, int]]:
    """Each host sends to one other, and receives from one."""
    while True:
        targets = rng.sample(range(hosts), hosts)
        if all(source != target for source, target in enumerate(targets)):
            return list(enumerate(targets))


def connection_matrix(case: Case) -> str:
    """The transfers as a file that both simulators read."""
    lines = [
        f"{flow.source}->{flow.target} id {number} start 0 size {flow.size_bytes}"
        for number, flow in enumerate(case.flows, start=1)
    ]
    return "\n".join([f"Nodes {case.k**3 // 4}", f"Connections {len(lines)}", *lines]) + "\n"


def tcp_packets(flow: Flow) -> int:
    """The number of TCP segments of a transfer."""
    return ceil(flow.size_bytes / TCP_PAYLOAD)


ALL = ("ndp-perm", "ndp-rand", "eqds", "dctcp", "dctcp-marked")
LOOKED_AT: tuple[Case, ...] = (
    *(Case("permutation", transport) for transport in ALL),
    *(Case("permutation", transport, slow=Slow(1)) for transport in ALL),
    *(Case(f"incast {senders}:1", "ndp-rand") for senders in (16, 64, 127)),
    Case("incast 64:1", "eqds"),
)
"""Cases whose figures were seen while something was changed."""
HELD_OUT: tuple[Case, ...] = tuple(
    Case(*words, slow=slow, k=k, seed=seed, held_out=True)
    for words, slow, k, seed in (
        *((("permutation", transport), Slow(), 8, 5) for transport in ALL),
        *((("permutation", transport), Slow(1), 8, 5) for transport in ALL),
        *((("permutation", transport), Slow(4, 4), 8, 6) for transport in ALL),
        *(((f"incast {senders}:1", "ndp-rand"), Slow(), 8, 7) for senders in (32, 100)),
        (("incast 100:1", "eqds"), Slow(), 8, 7),
        (("permutation", "eqds"), Slow(), 16, 8),
    )
)
"""Cases that were run once at the end."""
