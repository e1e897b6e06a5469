"""What came of an alternative in a simulated run that takes the place of the real fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pathloom.twin.measures import UNDER_WAY_BEFORE_NS


def outcome_since(before: Mapping[str, Any], after: Mapping[str, Any], at_s: float) -> dict[str, Any]:
    """The outcome of a run since a time, in the form of the outcome of a fork: `MEASURES` apply to it.

    `before` is the outcome of the run at that time. Flows under way then have what they had left to send.
    """
    at_ns = round(at_s * 1e9)
    flows = {name: np.array(column) for name, column in after["flows"].items()}
    known = before["flows"]
    start_ns, finish_ns, size = flows["start_ns"], flows["finish_ns"], flows["size_bytes"]
    kept = (start_ns >= 0) & ((finish_ns < 0) | (finish_ns > at_ns))
    under_way = (start_ns >= 0) & (start_ns < at_ns)
    sent = known["delivered_bytes"].astype(np.int64)
    left = np.where(size >= 0, np.maximum(size - np.where(under_way, sent, 0), 1), size)
    began = np.where(under_way, 0, np.maximum(start_ns - at_ns, UNDER_WAY_BEFORE_NS))
    ended = np.where(finish_ns >= 0, finish_ns - at_ns, finish_ns)
    share = left / np.maximum(size, 1)
    ideal_ns = np.where(size >= 0, flows["ideal_fct_ns"] * share, flows["ideal_fct_ns"])
    end_ns = int(after["end_ns"]) - at_ns
    goodput = (flows["delivered_bytes"].astype(np.int64) - sent) * 8e9 / max(end_ns, 1) / flows["optimum_bps"]
    throughput = np.where(ended >= 0, ideal_ns / np.maximum(ended - began, 1), np.where(size < 0, goodput, np.nan))
    columns = {
        "src": flows["src"],
        "dst": flows["dst"],
        "size_bytes": left,
        "start_ns": began,
        "finish_ns": ended,
        "delivered_bytes": flows["delivered_bytes"].astype(np.int64) - np.where(under_way, sent, 0),
        "throughput": throughput,
        "ideal_fct_ns": ideal_ns,
    }
    return {"flows": {name: column[kept] for name, column in columns.items()}, "end_ns": end_ns}
