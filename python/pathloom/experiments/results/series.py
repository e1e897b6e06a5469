"""Series over time: values of links and flows in each step of a run, for `--series 10ms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.path_names import path_texts
from pathloom.fabrics import Fabric

LINK_SERIES_SCHEMA = {
    "scheme": pl.String,
    "run": pl.UInt32,
    "at_s": pl.Float64,
    "link": pl.UInt32,
    "source": pl.String,
    "target": pl.String,
    "rate_bps": pl.Float64,
    "mean_queue": pl.Float64,
    "dropped_packets": pl.UInt64,
}
"""Columns of the series of links: one row per step and link that sent, queued or dropped anything in it.

`at_s` is the end of the step. `rate_bps` is the rate at which the link sent, headers included, and `mean_queue` the
number of queued packets; both are means over the step.
"""
FLOW_SERIES_SCHEMA = {
    "scheme": pl.String,
    "run": pl.UInt32,
    "at_s": pl.Float64,
    "flow": pl.UInt32,
    "goodput_bps": pl.Float64,
    "window_bytes": pl.UInt64,
}
"""Columns of the series of flows: one row per step and flow that has a window at its end or received anything in it.

`window_bytes` is the congestion window at the end of the step, of all subflows together; 0 if the flow has ended.
"""


WAY_SERIES_SCHEMA = {
    "scheme": pl.String,
    "run": pl.UInt32,
    "at_s": pl.Float64,
    "flow": pl.UInt32,
    "src_port": pl.UInt16,
    "path": pl.String,
    "why": pl.String,
}
"""Columns of the series of ways (paths): one row per subflow and step in which its path, or the reason for it, changed.

`path` has the names of the nodes that data of the subflow would cross at the end of the step, or when it closed; null
if it is unknown, which occurs in the lab. `why` is the controller's reason for the path; null if it made no decision.
"""


def link_series(fabric: Fabric, outcomes: Sequence[RunOutcome]) -> pl.DataFrame:
    """The series of links."""
    names, links = np.array(fabric.names), fabric.links
    ends = {end: names[np.array(links[end], dtype=np.int64)] for end in ("source", "target")}
    rates_bps = np.array(links["rate_bps"], dtype=np.float64)

    def columns(series: Mapping[str, Any]) -> dict[str, Any]:
        which = series["link.link"]
        return {
            "at_s": series["link.at_s"],
            "link": which,
            **{end: column[which] for end, column in ends.items()},
            "rate_bps": series["link.busy_share"] * rates_bps[which],
            "mean_queue": series["link.mean_queue"],
            "dropped_packets": series["link.dropped_packets"],
        }

    return _table(outcomes, columns, LINK_SERIES_SCHEMA)


def flow_series(outcomes: Sequence[RunOutcome]) -> pl.DataFrame:
    """The series of flows: goodput and window."""
    names = ("at_s", "flow", "goodput_bps", "window_bytes")
    return _table(outcomes, lambda series: {name: series[f"flow.{name}"] for name in names}, FLOW_SERIES_SCHEMA)


def way_series(fabric: Fabric, outcomes: Sequence[RunOutcome]) -> pl.DataFrame:
    """The series of ways: the path of each subflow whenever it changed."""

    def columns(series: Mapping[str, Any]) -> dict[str, Any]:
        rows = series.get("ways", [])
        schema = {name: WAY_SERIES_SCHEMA[name] for name in ("at_s", "flow", "src_port", "path", "why")}
        data = {name: [row[place] for row in rows] for place, name in enumerate(schema)}
        data["path"] = path_texts(fabric, data["path"])
        return {name: pl.Series(data[name], dtype=kind) for name, kind in schema.items()}

    return _table(outcomes, columns, WAY_SERIES_SCHEMA)


def _table(outcomes: Sequence[RunOutcome], columns: Any, schema: Mapping[str, Any]) -> pl.DataFrame:
    frames = []
    for one in outcomes:
        series = one.outcome.get("series")
        if series:
            labels = [pl.lit(one.job.label).alias("scheme"), pl.lit(one.job.run).alias("run")]
            frame = pl.DataFrame(columns(series)).with_columns(labels)
            # The core uses -1 and NaN for what is not known.
            counts = [name for name in ("dropped_packets", "window_bytes") if name in frame.columns]
            frame = frame.with_columns(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in counts)
            frame = frame.with_columns(pl.col("mean_queue").fill_nan(None)) if "mean_queue" in frame.columns else frame
            frames.append(frame.select(pl.col(name).cast(kind) for name, kind in schema.items()))
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(schema))
