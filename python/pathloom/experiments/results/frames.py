"""A note if hosts send frames of different sizes under different schemes."""

from __future__ import annotations

import polars as pl

from pathloom.experiments.results.facts import Facts
from pathloom.quantities import listed

LEAST_SEGMENTS = 20
"""Flows with fewer segments have too few full ones to tell the size."""
NOTED_RATIO = 1.2
"""Ratio between the largest and the smallest payload from which on there is a note."""


def frame_notes(result: Facts) -> list[str]:
    """A note if full frames carry more payload under one scheme than under another: fewer headers share the links."""
    # The kernels of the lab do not count segments: their column has nulls only.
    long = result.flows.filter(pl.col("segments") >= LEAST_SEGMENTS)
    payload = (pl.col("delivered_bytes") / pl.col("segments")).max().round().cast(pl.Int64)
    sizes = dict(long.group_by("scheme", maintain_order=True).agg(payload).iter_rows())
    if not sizes or max(sizes.values()) < NOTED_RATIO * min(sizes.values()):
        return []
    by_size: dict[int, list[str]] = {}
    for scheme, size in sizes.items():
        by_size.setdefault(size, []).append(scheme)
    parts = [f"{size} bytes under {listed(schemes)}" for size, schemes in sorted(by_size.items())]
    return [f"frames carry up to {', '.join(parts)}: larger frames spend less of each link on headers"]
