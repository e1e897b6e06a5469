"""Learns how flows arrive from records of flows: rate, sizes with their tail, pairs, burstiness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pathloom.twin.fork import Arrivals

MOST_QUANTILES = 400
"""Points of the table of sizes. The upper tenth of the flows has half of them."""
LEAST_TAIL, DEFAULT_TAIL_EXPONENT = 10, 1.5
"""Flows from which a tail exponent is estimated, and the exponent if there are fewer."""
TAIL_EXPONENTS = (0.5, 10.0)
BINS, FLOWS_PER_BIN = 50, 5
"""Most bins for the dispersion of counts, and the least mean number of flows in one."""


@dataclass(frozen=True)
class FlowRecord:
    """A flow that started in the time of observation."""

    start_s: float
    src: str
    dst: str
    bytes: int
    """Its size, or what it has sent if it is still under way."""
    ended: bool = True


def learn_arrivals(records: Sequence[FlowRecord], from_s: float, to_s: float) -> Arrivals:
    """The arrivals that flows show which started between two times. Flows under way are larger than what they sent.

    >>> records = [FlowRecord(number / 10, "h0", "h1", 1000 * (1 + number % 4)) for number in range(100)]
    >>> arrivals = learn_arrivals(records, 0.0, 10.0)
    >>> arrivals.flows_per_s, arrivals.sizes["bytes"][0], arrivals.sizes["bytes"][-1], arrivals.pairs["share"]
    (10.0, 1000.0, 4000.0, [1.0])
    """
    known = [one for one in records if from_s <= one.start_s < to_s and one.bytes > 0]
    if not any(one.ended for one in known) or to_s <= from_s:
        return Arrivals.none()
    batch_flows, batch_s = burstiness([one.start_s for one in known], from_s, to_s)
    sizes = size_quantiles([one.bytes for one in known if one.ended], [one.bytes for one in known if not one.ended])
    return Arrivals(
        flows_per_s=len(known) / (to_s - from_s),
        sizes=sizes,
        pairs=pair_shares(Counter((one.src, one.dst) for one in known)),
        batch_flows=batch_flows,
        batch_s=batch_s,
    )


def size_quantiles(ended: Sequence[int], under_way: Sequence[int]) -> dict[str, object]:
    """Quantiles of sizes by Kaplan and Meier (J. Am. Stat. Assoc. 53, 1958): flows under way are censored.

    Without that, long flows would be missing: few of them end in a short time of observation.

    >>> size_quantiles([1, 2, 4], [3])["share"]
    [0.0, 0.25, 0.5, 1.0]
    """
    sizes = sorted([(size, False) for size in ended] + [(size, True) for size in under_way])
    left, beyond = len(sizes), 1.0
    points = [(float(sizes[0][0]), 0.0)]
    for size, censored in sizes:
        if not censored:
            beyond *= 1 - 1 / left
            points.append((float(size), 1 - beyond))
        left -= 1
    tail_exponent = hill([float(size) for size in ended])
    if beyond > 0:
        # The largest flows are under way: the rest of the distribution is the Pareto tail.
        points.extend(_tail_points(points[-1][0], beyond, tail_exponent))
    else:
        points[-1] = (points[-1][0], 1.0)
    chosen = _thinned(_distinct(points))
    return {
        "bytes": [size for size, _ in chosen],
        "share": [share for _, share in chosen],
        "tail_exponent": tail_exponent,
    }


def _tail_points(size: float, beyond: float, exponent: float) -> list[tuple[float, float]]:
    parts = [0.5, 0.25, 0.125, 0.0625, 0.03]
    return [(size * part ** (-1 / exponent), 1 - beyond * part) for part in parts] + [
        (size * 0.01 ** (-1 / exponent), 1.0)
    ]


def _distinct(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points with the last share of each size, after the first point."""
    found = [points[0]]
    for size, share in points[1:]:
        if len(found) > 1 and found[-1][0] == size:
            found[-1] = (size, share)
        else:
            found.append((size, share))
    return found


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MOST_QUANTILES:
        return points
    half = MOST_QUANTILES // 2
    wanted = [0.9 * step / half for step in range(half)] + [1 - 0.1 * 0.97**step for step in range(half)]
    kept, place = [points[0]], 0
    for share in wanted:
        while place < len(points) - 1 and points[place][1] < share:
            place += 1
        if points[place][1] > kept[-1][1]:
            kept.append(points[place])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def hill(sizes: Sequence[float]) -> float:
    """Exponent of a Pareto tail by Hill's estimator (Ann. Stat. 3, 1975) over the largest flows, √n of them.

    >>> round(hill([100 * (1 - number / 30_000) ** (-1 / 1.2) for number in range(30_000)]), 1)
    1.2
    """
    count = max(LEAST_TAIL, math.isqrt(len(sizes)))
    if len(sizes) <= count:
        return DEFAULT_TAIL_EXPONENT
    largest = sorted(sizes)[-count - 1 :]
    total = math.fsum(math.log(size / largest[0]) for size in largest[1:])
    return min(max(count / total if total > 0 else TAIL_EXPONENTS[1], TAIL_EXPONENTS[0]), TAIL_EXPONENTS[1])


def pair_shares(counts: Counter[tuple[str, str]]) -> dict[str, list[object]]:
    """Shares of pairs of hosts.

    With few flows for each pair, the pairs that were seen say more about senders and receivers than about pairs. So the
    counts are mixed with independent senders and receivers, which weigh as much as one flow for each of these pairs.

    >>> shares = pair_shares(Counter({("h0", "h1"): 3, ("h1", "h0"): 1}))
    >>> list(zip(shares["src"], shares["dst"], shares["share"]))
    [('h0', 'h1', 0.8), ('h1', 'h0', 0.2)]
    """
    senders: Counter[str] = Counter()
    receivers: Counter[str] = Counter()
    for (src, dst), count in counts.items():
        senders[src] += count
        receivers[dst] += count
    total, prior = counts.total(), len(counts)
    independent = {
        (src, dst): sent * received
        for src, sent in senders.items()
        for dst, received in receivers.items()
        if src != dst
    }
    whole = sum(independent.values())
    weights = {
        pair: (counts[pair] + prior * weight / whole) / (total + prior) for pair, weight in sorted(independent.items())
    }
    return {
        "src": [src for src, _ in weights],
        "dst": [dst for _, dst in weights],
        "share": [round(weight, 9) for weight in weights.values()],
    }


def burstiness(starts_s: Sequence[float], from_s: float, to_s: float) -> tuple[float, float]:
    """Mean number of flows that arrive together, and the time over which they are spread.

    It follows from the index of dispersion of counts. If a Poisson process may have that index, flows arrive alone.

    >>> burstiness([number / 10 for number in range(100)], 0.0, 10.0)
    (1.0, 0.0)
    """
    bins = min(BINS, len(starts_s) // FLOWS_PER_BIN)
    if bins < 10:
        return 1.0, 0.0
    width_s = (to_s - from_s) / bins
    counts = [0] * bins
    for start_s in starts_s:
        counts[min(int((start_s - from_s) / width_s), bins - 1)] += 1
    mean = len(starts_s) / bins
    dispersion = sum((count - mean) ** 2 for count in counts) / (bins - 1) / mean
    # The index of a Poisson process has the variance 2 / (bins - 1).
    if dispersion <= 1 + 2 * math.sqrt(2 / (bins - 1)):
        return 1.0, 0.0
    return round((dispersion + 1) / 2, 3), width_s / 10
