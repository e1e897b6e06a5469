"""Series over time: what links and flows did in each step of a run, `--series 10ms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pathloom import _core
from pathloom.fabrics import Fabric

if TYPE_CHECKING:
    from pathloom.experiments.execution import RunOutcome

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

`at_s` is the end of the step; `rate_bps` is what the link sent, headers included, and `mean_queue` the packets that
waited, both in the mean over the step.
"""
FLOW_SERIES_SCHEMA = {
    "scheme": pl.String,
    "run": pl.UInt32,
    "at_s": pl.Float64,
    "flow": pl.UInt32,
    "goodput_bps": pl.Float64,
}
"""Columns of the series of flows: one row per step and flow of which anything arrived in it."""


class Recorder:
    """Notes what changed from step to step of a run."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._taken = 0
        self._before_s = 0.0
        self._before: dict[str, np.ndarray[Any, Any]] | None = None
        self._rows: dict[str, list[np.ndarray[Any, Any]]] = {}

    @property
    def due_s(self) -> float:
        """When the next step ends. Steps are counted, not added up, so that they stay where they belong."""
        return round((self._taken + 1) * self._step_s, 9)

    def take(self, simulation: _core.Simulation, now_s: float) -> None:
        """Notes the step that ends now."""
        self._taken += 1
        took_s = now_s - self._before_s
        if took_s <= 0:
            return
        outcome = simulation.outcome()
        links, flows = outcome["links"], outcome["flows"]
        # The core's means are over the time so far.
        now = {
            "busy_s": links["utilisation"] * now_s,
            "waited": links["mean_queue"] * now_s,
            "dropped": links["dropped_packets"].astype(np.int64),
            "arrived": flows["delivered_bytes"].astype(np.int64),
        }
        before = self._before or {name: np.zeros_like(column) for name, column in now.items()}
        # Sums of many numbers differ in their last bits: less than nothing is nothing.
        step = {name: np.maximum(column - before[name], 0) for name, column in now.items()}
        used = np.flatnonzero((step["busy_s"] > 1e-12) | (step["waited"] > 1e-12) | (step["dropped"] > 0))
        arrived = np.flatnonzero(step["arrived"] > 0)
        self._add("link", now_s, used.astype(np.uint32), "link")
        self._append("link.busy_share", step["busy_s"][used] / took_s)
        self._append("link.mean_queue", step["waited"][used] / took_s)
        self._append("link.dropped_packets", step["dropped"][used])
        self._add("flow", now_s, flows["index"][arrived].astype(np.uint32), "flow")
        self._append("flow.goodput_bps", step["arrived"][arrived] * 8 / took_s)
        self._before, self._before_s = now, now_s

    def _add(self, table: str, now_s: float, which: np.ndarray[Any, Any], name: str) -> None:
        self._append(f"{table}.at_s", np.full(len(which), now_s))
        self._append(f"{table}.{name}", which)

    def _append(self, name: str, column: np.ndarray[Any, Any]) -> None:
        self._rows.setdefault(name, []).append(column)

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """All rows so far, by table and column."""
        return {name: np.concatenate(parts) for name, parts in self._rows.items()}


def link_series(fabric: Fabric, outcomes: Sequence[RunOutcome]) -> pl.DataFrame:
    """What links did, step by step."""
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
    """What flows received, step by step."""
    names = ("at_s", "flow", "goodput_bps")
    return _table(outcomes, lambda series: {name: series[f"flow.{name}"] for name in names}, FLOW_SERIES_SCHEMA)


def _table(outcomes: Sequence[RunOutcome], columns: Any, schema: Mapping[str, Any]) -> pl.DataFrame:
    frames = []
    for one in outcomes:
        series = one.outcome.get("series")
        if series:
            labels = [pl.lit(one.job.label).alias("scheme"), pl.lit(one.job.run).alias("run")]
            frame = pl.DataFrame(columns(series)).with_columns(labels)
            frames.append(frame.select(pl.col(name).cast(kind) for name, kind in schema.items()))
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(schema))
