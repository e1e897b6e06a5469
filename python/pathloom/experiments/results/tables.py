"""Tables of flows and links, one row per flow or link and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pathloom.experiments.results.definitions import ELEPHANT_ABOVE_BYTES, MOUSE_BELOW_BYTES, SIZE_CLASSES
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.fabrics import Fabric

FLOW_SCHEMA = {
    "scheme": pl.String,
    "run": pl.UInt32,
    "flow": pl.UInt32,
    "src": pl.String,
    "dst": pl.String,
    "src_port": pl.UInt16,
    "dst_port": pl.UInt16,
    "size_bytes": pl.Int64,
    "size_class": pl.String,
    "start_s": pl.Float64,
    "fct_s": pl.Float64,
    "age_s": pl.Float64,
    "ideal_fct_s": pl.Float64,
    "finished": pl.Boolean,
    "delivered_bytes": pl.Int64,
    "throughput": pl.Float64,
    "slowdown": pl.Float64,
    "optimum_bps": pl.Float64,
    "retransmits": pl.UInt32,
    "timeouts": pl.UInt32,
    "timeout_wait_s": pl.Float64,
    "initial_wait_s": pl.Float64,
    "packets": pl.UInt64,
    "segments": pl.UInt32,
    "reordered": pl.UInt32,
    "coflow": pl.UInt32,
}
"""Columns of the table of flows.

`fct_s` is null if a flow has no FCT. `age_s` is the FCT of a finished flow, and the time since the start of an
unfinished flow. `segments` counts those that arrived with new data, and `reordered` those of them that arrived after a
later one. Both are null in the lab, which does not count them. `timeouts` is null if the kernel does not count them
(before Linux 6.7). `timeout_wait_s` is the time that the sender was silent before its time-outs. `initial_wait_s` is
the part of it before the first RTT sample, mostly for the SYN (null in the lab). With fidelity fluid, all figures about
packets and time-outs are null. `throughput` of an unfinished finite
flow is the most that it can reach. A flow that never started has neither `age_s` nor `throughput`. `slowdown` is
`age_s` over `ideal_fct_s`; for an unfinished flow it is the least that it can reach.
"""

LINK_SCHEMA = {
    "scheme": pl.String,
    "run": pl.UInt32,
    "link": pl.UInt32,
    "source": pl.String,
    "target": pl.String,
    "between_switches": pl.Boolean,
    "rate_bps": pl.UInt64,
    "sent_bytes": pl.UInt64,
    "sent_packets": pl.UInt64,
    "dropped_packets": pl.UInt64,
    "mean_queue": pl.Float64,
    "utilisation": pl.Float64,
    "pauses": pl.UInt64,
    "paused_s": pl.Float64,
}
"""Columns of the table of links, one row per direction of a cable.

`utilisation` is over the time until the slowest scheme of the run ends, the same for all schemes. `mean_queue` is over
the time until the scheme itself ends. `pauses` counts how often flow control paused the sender of the link, and
`paused_s` is how long; both are 0 without flow control, and null in the lab.
"""

_NONE = -1
"""Value that the core uses for a missing number."""


def flow_table(fabric: Fabric, outcomes: Sequence[RunOutcome]) -> pl.DataFrame:
    """One row per flow and run."""
    names = np.array(fabric.names)
    return _concat([_flows_of(names, outcome) for outcome in outcomes], FLOW_SCHEMA)


def flows_by_run(flows: pl.DataFrame) -> Callable[[int], pl.DataFrame]:
    """A function that returns the flows of a run by its number. It divides the table once, for all runs."""
    runs, none = flows.partition_by("run", as_dict=True), flows.clear()
    return lambda run: runs.get((run,), none)


def link_table(fabric: Fabric, outcomes: Sequence[RunOutcome]) -> pl.DataFrame:
    """One row per directed link and run."""
    names = np.array(fabric.names)
    links = fabric.links
    ends = {end: names[np.array(links[end], dtype=np.int64)] for end in ("source", "target")}
    count = len(links["source"])
    between = np.array([fabric.is_switch_link(link) for link in range(count)], dtype=bool)
    frames = []
    windows_ns = link_windows_ns(outcomes)
    for one in outcomes:
        columns = one.outcome["links"]
        # The utilisation of the core is over the scheme's own time.
        share = int(one.outcome["end_ns"]) / windows_ns[one.job.run]
        frame = pl.DataFrame(
            {
                "link": np.arange(count, dtype=np.uint32),
                **ends,
                "between_switches": between,
                "rate_bps": np.array(links["rate_bps"], dtype=np.uint64),
                **{name: columns[name] for name in LINK_SCHEMA if name in columns},
                "utilisation": columns["utilisation"] * share,
            }
        )
        # The lab does not see pauses, nor the queues of hosts. Runs without packets have no counts of packets.
        counts = ("sent_packets", "dropped_packets", "pauses", "paused_s")
        unknown = [pl.lit(None).alias(name) for name in counts if name not in columns]
        frame = frame.with_columns(pl.col("mean_queue").fill_nan(None), *unknown)
        frames.append(_labelled(frame, one, LINK_SCHEMA))
    return _concat(frames, LINK_SCHEMA)


def link_windows_ns(outcomes: Sequence[RunOutcome]) -> dict[int, int]:
    """By run, the time until its slowest scheme ended: the time over which utilisation is computed."""
    windows_ns: dict[int, int] = {}
    for one in outcomes:
        windows_ns[one.job.run] = max(windows_ns.get(one.job.run, 1), int(one.outcome["end_ns"]))
    return windows_ns


def _flows_of(names: np.ndarray[Any, Any], one: RunOutcome) -> pl.DataFrame:
    columns: Mapping[str, Any] = one.outcome["flows"]
    raw = pl.DataFrame(
        {
            **columns,
            "flow": columns["index"],
            "src": names[columns["src"]],
            "dst": names[columns["dst"]],
        }
    )
    wanted = ["size_bytes", "start_ns", "finish_ns", "ideal_fct_ns", "src_port", "dst_port", "coflow"]
    wanted += ["segments", "reordered", "timeouts", "timeout_wait_ns", "initial_wait_ns", "retransmits", "packets"]
    frame = raw.with_columns(_null_if_none(name) for name in wanted)
    size, end_ns = pl.col("size_bytes"), int(one.outcome["end_ns"])
    finished = pl.col("finish_ns").is_not_null()
    frame = frame.with_columns(
        start_s=pl.col("start_ns") / 1e9,
        fct_s=(pl.col("finish_ns") - pl.col("start_ns")) / 1e9,
        age_s=pl.when(size.is_not_null()).then((pl.col("finish_ns").fill_null(end_ns) - pl.col("start_ns")) / 1e9),
        ideal_fct_s=pl.col("ideal_fct_ns") / 1e9,
        timeout_wait_s=pl.col("timeout_wait_ns") / 1e9,
        initial_wait_s=pl.col("initial_wait_ns") / 1e9,
        finished=finished,
        size_class=pl.when(size < MOUSE_BELOW_BYTES)
        .then(pl.lit(SIZE_CLASSES[0]))
        .when(size > ELEPHANT_ABOVE_BYTES)
        .then(pl.lit(SIZE_CLASSES[2]))
        .when(size.is_not_null())
        .then(pl.lit(SIZE_CLASSES[1])),
    )
    # The most that an unfinished flow can reach: as if it finished now.
    at_most = pl.min_horizontal(pl.col("ideal_fct_s") / pl.col("age_s"), pl.lit(1.0))
    known = pl.col("throughput").is_not_nan()
    throughput = pl.when(known).then(pl.col("throughput")).when(pl.col("age_s").is_not_null()).then(at_most)
    slowdown = pl.col("age_s") / pl.col("ideal_fct_s")
    slowdown = pl.when(pl.col("finished")).then(slowdown).otherwise(slowdown.clip(lower_bound=1.0))
    frame = frame.with_columns(throughput=throughput, slowdown=slowdown)
    return _labelled(frame, one, FLOW_SCHEMA)


def _null_if_none(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != _NONE).then(pl.col(name)).alias(name)


def _labelled(frame: pl.DataFrame, one: RunOutcome, schema: Mapping[str, Any]) -> pl.DataFrame:
    labels = [pl.lit(one.job.label).alias("scheme"), pl.lit(one.job.run).alias("run")]
    return frame.with_columns(labels).select(pl.col(name).cast(kind) for name, kind in schema.items())


def _concat(frames: list[pl.DataFrame], schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(schema))
