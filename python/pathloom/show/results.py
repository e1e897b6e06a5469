"""Answers the page's requests about a result from its tables, in small pieces."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from pathloom import _core
from pathloom.experiments.results.after_end import end_of_flows_s, steps_with_flows
from pathloom.show.faults import changes_of_links
from pathloom.show.sources import Source

UNKNOWN = 65535
"""Value of an unknown utilisation; known ones are in per mille."""
MOST_FRAMES = 64
"""Steps of a series in one answer, at most."""
MOST_FLOWS = 200
"""Flows in one answer, at most."""
MOST_POINTS = 2000
"""Points of a distribution in one answer, at most."""
_FLOW_COLUMNS = [
    "flow", "src", "dst", "src_port", "dst_port", "size_bytes", "size_class", "start_s", "fct_s", "age_s",
    "finished", "delivered_bytes", "throughput", "slowdown", "retransmits", "timeouts", "reordered",
]  # fmt: skip
_ORDERS = {"flow": False, "age_s": True, "slowdown": True, "throughput": False, "retransmits": True, "start_s": False}
"""By which columns flows are sorted, and whether the largest value comes first."""

_PICTURE = re.compile(r'<h2 id="([\w-]+)">([^<]+)</h2>')
"""The heading of a picture in a report: its name and its title."""


class NotFound(Exception):
    """The page asked for something that the result does not have."""


class Results:
    """A result. Several threads may use it."""

    def __init__(self, source: Source) -> None:
        """Answers from the tables of a source; see `pathloom.show.sources`."""
        self.record, self.report = source.record, source.report
        self._source = source
        self._lock = threading.RLock()
        self._tables: dict[str, pl.DataFrame | None] = {}
        self._pieces: dict[tuple[str, str, int], pl.DataFrame] = {}
        self._fabric = source.fabric

    def about(self) -> dict[str, Any]:
        """Returns what was run, and the figures of each scheme."""
        settings = self.record["settings"]
        runs = sorted({run["run"] for scheme in self.record["schemes"] for run in scheme["runs"]})
        return {
            "name": self._source.name,
            "fabric": settings["fabric"],
            "spec": settings["traffic"],
            "traffic": self.record["traffic"]["description"],
            "notes": self.record["traffic"]["notes"],
            "faults": settings["faults"],
            "version": self.record["versions"]["pathloom"],
            "complete": self.record["complete"],
            "series_s": _core.parse_time_s(settings["series"]) if settings.get("series") else None,
            "has_ways": self._table("way-series") is not None,
            "runs": runs,
            "schemes": [_figures(scheme) for scheme in self.record["schemes"]],
            "report": self.report is not None,
            "pictures": _PICTURE.findall((self.report or b"").decode(errors="replace")),
            "down": self._down,
        }

    def fabric(self) -> Mapping[str, Any]:
        """Returns nodes and links, in the form of the controller's API."""
        return self._fabric

    def links(self, scheme: str, run: int) -> dict[str, Any]:
        """Returns utilisation (per mille of the rate), drops and mean queue of each link over the whole run."""
        rows = self._piece("links", scheme, run)
        count = len(self._fabric["links"]["source"])
        values = np.full(count, UNKNOWN, dtype=np.int64)
        values[rows["link"].to_numpy()] = np.rint(rows["utilisation"].to_numpy() * 1000)
        by_link = rows.sort("link")
        return {
            "utilisation": values.tolist(),
            "dropped_packets": by_link["dropped_packets"].to_list(),
            "mean_queue": by_link["mean_queue"].round(2).to_list(),
        }

    def frames(self, scheme: str, run: int, first: int, count: int) -> dict[str, Any]:
        """Returns steps of the series of links: utilisation by step and link, in per mille of the rate."""
        rates_bps = np.array(self._fabric["links"]["rate_bps"], dtype=np.float64)
        rows = self._piece("link-series", scheme, run)
        at_s = np.array(self._steps(scheme, run))
        shown = at_s[first : first + min(count, MOST_FRAMES)]
        frames = np.zeros((len(shown), len(rates_bps)), dtype=np.int64)
        if len(shown):
            some = rows.filter(pl.col("at_s").is_between(shown[0], shown[-1]))
            step, link = np.searchsorted(shown, some["at_s"].to_numpy()), some["link"].to_numpy()
            share = some["rate_bps"].to_numpy() / np.maximum(rates_bps[link], 1)
            frames[step, link] = np.clip(np.rint(share * 1000), 0, 1000)
        return {"first": first, "utilisation": frames.tolist()}

    def times(self, scheme: str, run: int) -> dict[str, Any]:
        """Returns the ends of the steps of a run, and the total goodput of its flows in each step."""
        at_s, flows = self._steps(scheme, run), self._piece("flow-series", scheme, run)
        total = flows.group_by("at_s").agg(pl.col("goodput_bps").sum())
        joined = pl.DataFrame({"at_s": at_s}).join(total, on="at_s", how="left", maintain_order="left")
        return {"at_s": at_s, "goodput_bps": joined["goodput_bps"].fill_null(0).round().to_list()}

    def flows(self, scheme: str, run: int, asked: Mapping[str, str]) -> dict[str, Any]:
        """Returns flows, page by page: all of them, those on a link (`link`) at some time (`at_s`), or of a pair."""
        rows = self._piece("flows", scheme, run)
        on_link = asked.get("link")
        if on_link is not None:
            link, at_s = _whole(on_link, "link"), asked.get("at_s")
            rows = self._on_link(rows, scheme, run, link, None if at_s is None else _number(at_s, "at_s"))
        if word := asked.get("word", "").strip().lower():
            text = pl.concat_str(["flow", "src", "dst"], separator=" ").str.to_lowercase()
            rows = rows.filter(text.str.contains(word, literal=True))
        for end in ("src", "dst"):
            if end in asked:
                rows = rows.filter(pl.col(end) == asked[end])
        order = asked.get("order", "flow")
        if order not in _ORDERS:
            raise NotFound(f"flows are not sorted by `{order}`; expected one of {', '.join(_ORDERS)}")
        rows = rows.sort(order, "flow", descending=[_ORDERS[order], False], nulls_last=True)
        first, count = _whole(asked.get("first", "0"), "first"), _whole(asked.get("count", "100"), "count")
        shown = rows.slice(first, min(count, MOST_FLOWS)).select(_FLOW_COLUMNS)
        return {"total": rows.height, "first": first, "items": [_plain(row) for row in shown.iter_rows(named=True)]}

    def flow(self, scheme: str, run: int, flow: int) -> dict[str, Any]:
        """Returns a flow: its figures, its paths and their reasons, its subflows, and its goodput over time."""
        found = self._piece("flows", scheme, run).filter(pl.col("flow") == flow).select(_FLOW_COLUMNS)
        if found.height == 0:
            raise NotFound(f"run {run} of {scheme} has no flow {flow}")
        parts = {
            name: self._rows_of(table, scheme, run, flow)
            for name, table in (("ways", "way-series"), ("subflows", "subflows"), ("series", "flow-series"))
        }
        return {"flow": _plain(found.row(0, named=True)), **parts}

    def progress(self, scheme: str, run: int) -> dict[str, Any]:
        """Returns FCTs and ends of finished flows, sorted by FCT, and the throughputs of long-lived flows."""
        rows = self._piece("flows", scheme, run)
        finished = rows.filter(pl.col("finished") & pl.col("fct_s").is_not_null()).sort("fct_s")
        shown = _thinned(finished)
        long_lived = rows.filter(pl.col("size_bytes").is_null()).sort("throughput")
        return {
            "finite": rows.filter(pl.col("size_bytes").is_not_null()).height,
            "finished": finished.height,
            "fct_s": shown["fct_s"].to_list(),
            "end_s": (shown["start_s"] + shown["fct_s"]).to_list(),
            "throughput": _thinned(long_lived)["throughput"].to_list(),
        }

    def _steps(self, scheme: str, run: int) -> list[float]:
        """Returns the ends of the steps of a run, until its last flow has ended.

        The series have no rows for steps in which nothing was sent.
        """
        known = set(self._piece("link-series", scheme, run)["at_s"]) | set(
            self._piece("flow-series", scheme, run)["at_s"]
        )
        step_s = _core.parse_time_s(self.record["settings"]["series"])
        # Computed as in the simulator, so that the values are equal to the last bit.
        known |= {round((number + 1) * step_s, 9) for number in range(int(max(known, default=0.0) / step_s))}
        return steps_with_flows(sorted(known), end_of_flows_s(self._piece("flows", scheme, run)))

    @cached_property
    def _down(self) -> list[Any]:
        names = [node["name"] for node in self._fabric["nodes"]]
        moments = changes_of_links(self.record["settings"]["faults"], names, self._fabric["links"])
        failed = self._fabric["links"].get("up", [])
        always = [link for link, up in enumerate(failed) if not up]
        return [[0.0, always], *([at_s, sorted({*down, *always})] for at_s, down in moments)]

    def _rows_of(self, table: str, scheme: str, run: int, flow: int) -> list[dict[str, Any]] | None:
        if self._table(table) is None:
            return None
        rows = self._piece(table, scheme, run).filter(pl.col("flow") == flow).drop("scheme", "run", "flow")
        return [_plain(row) for row in rows.iter_rows(named=True)]

    def _on_link(self, flows: pl.DataFrame, scheme: str, run: int, link: int, at_s: float | None) -> pl.DataFrame:
        """Returns the flows whose paths cross a link: in the step that ends at `at_s`, or at any time if it is None."""
        links = self._fabric["links"]
        if link >= len(links["source"]):
            raise NotFound(f"the fabric has no link {link}")
        source, target = (self._fabric["nodes"][links[end][link]]["name"] for end in ("source", "target"))
        crosses = pl.concat_str([pl.lit(" "), pl.col("path"), pl.lit(" ")]).str.contains(
            f" {source} {target} ", literal=True
        )
        if self._table("way-series") is None:
            if self._table("subflows") is None:
                raise NotFound("the ways of flows were not recorded; run again with --series 100ms")
            paths = self._piece("subflows", scheme, run)
            return flows.join(paths.filter(crosses).select("flow").unique(), on="flow", how="semi")
        paths = self._piece("way-series", scheme, run)
        if at_s is not None:
            known = paths.filter(pl.col("at_s") <= at_s + 1e-9).sort("at_s")
            paths = known.group_by("flow", "src_port", maintain_order=True).last()
            series_s = _core.parse_time_s(self.record["settings"]["series"])
            end_s = pl.col("start_s") + pl.col("age_s")
            flows = flows.filter((pl.col("start_s") <= at_s) & (end_s > at_s - series_s))
        return flows.join(paths.filter(crosses).select("flow").unique(), on="flow", how="semi")

    def _table(self, name: str) -> pl.DataFrame | None:
        with self._lock:
            if name not in self._tables:
                self._tables[name] = self._source.table(name)
            return self._tables[name]

    def _piece(self, name: str, scheme: str, run: int) -> pl.DataFrame:
        """Returns the rows of one run."""
        with self._lock:
            key = name, scheme, run
            if key not in self._pieces:
                table = self._table(name)
                if table is None:
                    raise NotFound(f"the result has no {name}.parquet; run again with --series 100ms")
                rows = table.filter((pl.col("scheme") == scheme) & (pl.col("run") == run))
                if name in ("flows", "links") and rows.height == 0:
                    raise NotFound(f"the result has no run {run} of {scheme}")
                self._pieces[key] = rows
            return self._pieces[key]


def _figures(scheme: Mapping[str, Any]) -> dict[str, Any]:
    control = scheme.get("control") or {}
    return {
        "name": scheme["scheme"],
        "runs": [{"run": run["run"], "seed": run["seed"], "end_s": run.get("end_s")} for run in scheme["runs"]],
        "throughput_mean": scheme["throughput"].get("mean"),
        "fct_mean_s": scheme["fct_s"].get("mean"),
        "fct_p99_s": scheme["fct_s"].get("p99"),
        "fct_p99_censored": scheme["fct_s"].get("p99_censored"),
        "flows": scheme["flows"],
        "reroutes": control.get("reroutes"),
        "retransmits": scheme.get("retransmits"),
    }


def _thinned(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns at most `MOST_POINTS` evenly spaced rows, with the first and the last one."""
    if rows.height <= MOST_POINTS:
        return rows
    return rows[np.unique(np.linspace(0, rows.height - 1, MOST_POINTS).astype(np.int64))]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row for JSON: NaN and infinite numbers become null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _whole(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise NotFound(f"{what} `{text}` is not a whole number")
    return int(text)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise NotFound(f"{what} `{text}` is not a number")
    return value
