"""Flows and links of a run in the lab, with the columns of the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pathloom.fabrics import Fabric
from pathloom.lab.counters import Counters


def flow_columns(offered: list[dict[str, Any]], result: dict[str, Any], duration_s: float) -> dict[str, Any]:
    """Returns the table of flows. `result` is what the agent reported."""
    rows = result["flows"]

    def whole(values: Iterator[int | None]) -> np.ndarray[Any, Any]:
        return np.array([-1 if value is None else value for value in values], dtype=np.int64)

    throughput = [_throughput(flow, row, duration_s) for flow, row in zip(offered, rows, strict=True)]
    columns = {name: whole(flow[name] for flow in offered) for name in ("src", "dst", "size_bytes", "coflow")}
    columns["ideal_fct_ns"] = whole(flow["ideal_fct_ns"] for flow in offered)
    for name in (
        "start_ns",
        "finish_ns",
        "src_port",
        "dst_port",
        "delivered_bytes",
        "retransmits",
        "timeouts",
        "packets",
    ):
        columns[name] = whole(row[name] for row in rows)
    for name in ("segments", "reordered", "timeout_wait_ns", "initial_wait_ns"):  # Kernels do not report these.
        columns[name] = np.full(len(rows), -1, dtype=np.int64)
    columns["index"] = np.arange(len(rows))
    columns["optimum_bps"] = np.array([flow["optimum_bps"] for flow in offered])
    columns["throughput"] = np.array([np.nan if value is None else value for value in throughput])
    return columns


def _throughput(flow: dict[str, Any], row: dict[str, Any], duration_s: float) -> float | None:
    """Returns ideal FCT over FCT, or goodput over optimum, as the simulator does; None if there is none yet."""
    if row["start_ns"] < 0:
        return None
    if flow["size_bytes"] is None:
        seconds = duration_s - row["start_ns"] / 1e9
        return float(row["delivered_bytes"] * 8 / seconds / flow["optimum_bps"]) if seconds > 0 else None
    if row["finish_ns"] < 0:
        return None
    # Without a queue, HTB passes a packet on when its sending begins, so a very short flow may beat the ideal.
    return min(float(flow["ideal_fct_ns"] / max(row["finish_ns"] - row["start_ns"], 1)), 1.0)


def link_columns(fabric: Fabric, counts: Counters, waiting: dict[int, list[int]], end_s: float) -> dict[str, Any]:
    """Returns the table of links. `waiting`: sampled queue lengths in packets, by link."""
    rates = fabric.links["rate_bps"]
    none = (0, 0, 0, 0)
    rows = [counts.links.get(link, none) for link in range(len(rates))]
    capacity = np.maximum(np.array(rates, dtype=float) * end_s / 8, 1.0)
    sent = np.array([row[0] for row in rows], dtype=np.int64)
    queues = [float(np.mean(waiting[link])) if waiting.get(link) else np.nan for link in range(len(rates))]
    return {
        "sent_bytes": sent,
        "sent_packets": np.array([row[1] for row in rows], dtype=np.int64),
        "dropped_packets": np.array([row[2] for row in rows], dtype=np.int64),
        "mean_queue": np.array(queues),
        "utilisation": np.clip(sent / capacity, 0.0, 1.0),
    }
