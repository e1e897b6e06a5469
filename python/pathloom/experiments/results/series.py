"""Series over time: values of links and flows in each step of a run, for `--series 10ms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pathloom import _core
from pathloom.experiments.results.path_names import path_texts
from pathloom.fabrics import Fabric

if TYPE_CHECKING:
    from pathloom.experiments.running.execution import RunOutcome

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


class Recorder:
    """Records the changes in each step of a run."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._taken = 0
        self._before_s = 0.0
        self._before: dict[str, np.ndarray[Any, Any]] | None = None
        self._rows: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._paths: dict[tuple[int, int], tuple[list[int], str | None]] = {}
        self._changed_paths: list[tuple[float, int, int, list[int], str | None]] = []

    @property
    def due_s(self) -> float:
        """Time when the next step ends. It is computed from the number of steps, so that errors do not add up."""
        return round((self._taken + 1) * self._step_s, 9)

    def take(self, simulation: _core.Simulation, now_s: float) -> None:
        """Records the step that ends now."""
        self._taken += 1
        took_s = now_s - self._before_s
        if took_s <= 0:
            return
        outcome = simulation.outcome()
        links, flows = outcome["links"], outcome["flows"]
        # Means of the core are over the time since the start.
        now = {
            "busy_s": links["utilisation"] * now_s,
            "waited": links["mean_queue"] * now_s,
            "dropped": links["dropped_packets"].astype(np.int64),
            # Bytes after a gap count when they arrive. If they counted when the gap closes, the rate of a step could
            # exceed that of the link.
            "arrived": flows["arrived_bytes"].astype(np.int64),
        }
        before = self._before or {name: np.zeros_like(column) for name, column in now.items()}
        # Sums of many numbers have rounding errors, so negative differences count as 0.
        step = {name: np.maximum(column - before[name], 0) for name, column in now.items()}
        used = np.flatnonzero((step["busy_s"] > 1e-12) | (step["waited"] > 1e-12) | (step["dropped"] > 0))
        arrived = np.flatnonzero((step["arrived"] > 0) | (flows["window_bytes"] > 0))
        self._add("link", now_s, used.astype(np.uint32), "link")
        self._append("link.busy_share", step["busy_s"][used] / took_s)
        self._append("link.mean_queue", step["waited"][used] / took_s)
        self._append("link.dropped_packets", step["dropped"][used])
        self._add("flow", now_s, flows["index"][arrived].astype(np.uint32), "flow")
        self._append("flow.goodput_bps", step["arrived"][arrived] * 8 / took_s)
        self._append("flow.window_bytes", flows["window_bytes"][arrived])
        self._before, self._before_s = now, now_s
        self._take_paths(simulation, now_s)

    def _take_paths(self, simulation: _core.Simulation, now_s: float) -> None:
        for flow, src_port, links, why in simulation.take_ways():
            known = self._paths.get((flow, src_port))
            # A subflow that closed in this step is reported without a reason.
            if known is None or known[0] != links or (why is not None and known[1] != why):
                self._paths[flow, src_port] = links, why
                self._changed_paths.append((now_s, flow, src_port, links, why))

    def _add(self, table: str, now_s: float, which: np.ndarray[Any, Any], name: str) -> None:
        self._append(f"{table}.at_s", np.full(len(which), now_s))
        self._append(f"{table}.{name}", which)

    def _append(self, name: str, column: np.ndarray[Any, Any]) -> None:
        self._rows.setdefault(name, []).append(column)

    def columns(self) -> dict[str, Any]:
        """All rows so far, by table and column; the rows of ways as tuples."""
        return {**{name: np.concatenate(parts) for name, parts in self._rows.items()}, "ways": self._changed_paths}


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
            frames.append(frame.select(pl.col(name).cast(kind) for name, kind in schema.items()))
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(schema))
