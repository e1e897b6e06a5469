"""What both simulators are given: the fabric, the flows, and the settings of hosts and switches, each written once.

The fabric is `leaf_spine_128_100G_OS2` of the ConWeave artefact: 8 leaves with 16 hosts each, 8 spines, all links with
100 Gbit/s and 1 us.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate, pairwise

LEAVES, SPINES, HOSTS_PER_LEAF = 8, 8, 16
HOSTS = LEAVES * HOSTS_PER_LEAF
RATE_BPS = 100_000_000_000
DELAY_NS = 1_000
PAYLOAD = 1024
"""Payload of a full packet. The artefact has 1000, which is no MTU of InfiniBand."""
OVERSUBSCRIPTION = 2
BASE_RTT_NS = 8 * DELAY_NS + 4 * (PAYLOAD * 8_000_000_000 // RATE_BPS)
"""Round trip between leaves, as the artefact computes it: delays of eight links, and four times that of a payload."""
ALI_STORAGE = (
    (0, 0.0),
    (4_000, 22.93),
    (8_000, 69.21),
    (16_000, 80.61),
    (32_000, 90.47),
    (64_000, 93.53),
    (128_000, 96.77),
    (256_000, 97.53),
    (2_000_000, 100.0),
)
"""Sizes in bytes, and the percentage of flows up to them: AliStorage2019 of the artefact."""
START_S = 0.001
"""The first arrival in the files of flows."""


@dataclass(frozen=True)
class Flow:
    """A transfer. Hosts count from 0, leaf by leaf."""

    source: int
    target: int
    size_bytes: int
    start_ns: int

    @property
    def stays_in_leaf(self) -> bool:
        """Whether both hosts are at one leaf."""
        return self.source // HOSTS_PER_LEAF == self.target // HOSTS_PER_LEAF


@dataclass(frozen=True)
class Case:
    """An experiment: flows, the congestion control of hosts, and how switches choose among equal next hops."""

    name: str
    flows: tuple[Flow, ...]
    control: str = "dcqcn"
    balancer: str = "ecmp"


def drawn_bytes(rng: random.Random) -> int:
    """A size between two points of the distribution, linear in the share."""
    share = 100 * rng.random()
    place = next(place for place, (_, after) in enumerate(ALI_STORAGE) if after >= share and place)
    (low, before), (high, after) = ALI_STORAGE[place - 1], ALI_STORAGE[place]
    return max(1, int(low + (high - low) * (share - before) / (after - before)))


def mean_bytes() -> float:
    """The mean of the distribution."""
    steps = pairwise(ALI_STORAGE)
    return sum((low + high) / 2 * (after - before) / 100 for (low, before), (high, after) in steps)


def poisson(load: float, duration_ns: int, seed: int) -> tuple[Flow, ...]:
    """Flows between random hosts.

    The load is that of the links of the spines if all flows crossed them, as in the artefact.
    """
    rng = random.Random(seed)
    gap_ns = mean_bytes() * 8e9 / (RATE_BPS * load / OVERSUBSCRIPTION)
    flows = []
    for source in range(HOSTS):
        gaps = iter(lambda: rng.expovariate(1 / gap_ns), None)
        for at in accumulate(gaps):
            if at >= duration_ns:
                break
            target = (source + rng.randrange(1, HOSTS)) % HOSTS
            flows.append(Flow(source, target, drawn_bytes(rng), int(at)))
    return tuple(sorted(flows, key=lambda flow: (flow.start_ns, flow.source)))


def incast(senders: int, size_bytes: int, seed: int) -> tuple[Flow, ...]:
    """Hosts of other leaves that send to host 0 within 1 us."""
    rng = random.Random(seed)
    sources = rng.sample(range(HOSTS_PER_LEAF, HOSTS), senders)
    starts = sorted((rng.randrange(1_000), source) for source in sources)
    return tuple(Flow(source, 0, size_bytes, at) for at, source in starts)


def elephants_and_mice(seed: int) -> tuple[Flow, ...]:
    """Two elephants of 10 MB to host 0, and for 1.5 ms a mouse of 20 KB to it each 10 us or so."""
    rng = random.Random(seed)
    sources = rng.sample(range(HOSTS_PER_LEAF, HOSTS), 22)
    flows = [Flow(sources[place], 0, 10_000_000, place) for place in range(2)]
    mice = accumulate(iter(lambda: rng.expovariate(1 / 10_000), None))
    for at in mice:
        if at >= 1_500_000:
            break
        flows.append(Flow(rng.choice(sources[2:]), 0, 20_000, 100_000 + int(at)))
    return tuple(sorted(flows, key=lambda flow: (flow.start_ns, flow.source)))


def flow_file(flows: tuple[Flow, ...]) -> str:
    """The flows in the form that both simulators read. Priority 3 is that of the artefact."""
    lines = [f"{f.source} {f.target} 3 {f.size_bytes} {START_S + f.start_ns * 1e-9:.9f}" for f in flows]
    return f"{len(flows)}\n" + "\n".join(lines) + "\n"


def ideal_ns(flow: Flow, header: int) -> float:
    """The time of a flow that is alone, as the artefact computes it: base round trip and the time to send all bytes."""
    base = BASE_RTT_NS // 2 if flow.stays_in_leaf else BASE_RTT_NS
    packets = (flow.size_bytes - 1) // PAYLOAD + 1
    return base + (flow.size_bytes + packets * header) * 8e9 / RATE_BPS
