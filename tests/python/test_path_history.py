"""The paths of connections in the lab: what the controller's log and the rules of switches tell about them."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any, cast

import polars as pl

import synthetic
from pathloom.experiments.results.series import way_series
from pathloom.experiments.results.subflows import subflow_table
from pathloom.experiments.running.store import OutcomeCodec
from pathloom.experiments.settings.model import Job
from pathloom.fabrics import Fabric
from pathloom.lab.path_history import (
    Connection,
    PathChange,
    PathHistory,
    RunClock,
    connections,
    read_changes,
    subflow_columns,
)
from pathloom.report.subflows import overview, slowest

KEY = ("10.0.0.1", 40_000, "10.0.1.1", 5001)
DEFAULT, FIRST, SECOND = [0, 4, 9], [0, 6, 9], [0, 8, 9]
MS = 1_000_000


def change(at_ms: float, links: list[int] | None, why: str = "moved") -> PathChange:
    return PathChange(round(at_ms * MS), KEY, links, why)


def connection(start_ms: int = 0, end_ms: int = 1000, default: list[int] | None = DEFAULT) -> Connection:
    return Connection(0, KEY, start_ms * MS, end_ms * MS, default)


def test_a_step_has_the_last_path_of_its_changes() -> None:
    changes = [change(110, FIRST), change(190, SECOND), change(450, None, "rescued")]
    history = PathHistory([connection()], changes)
    assert history.rows(0.1) == [
        (0.1, 0, 40_000, DEFAULT, None),
        (0.2, 0, 40_000, SECOND, "moved"),
        (0.5, 0, 40_000, DEFAULT, "rescued"),
    ]
    assert history.last_links() == {(0, KEY): DEFAULT}


def test_a_decision_that_keeps_path_and_reason_is_no_change() -> None:
    history = PathHistory([connection()], [change(110, FIRST), change(210, FIRST), change(310, FIRST, "again")])
    assert [row[0] for row in history.rows(0.1)] == [0.1, 0.2, 0.4]


def test_an_unknown_default_path_stays_unknown() -> None:
    history = PathHistory([connection(default=None)], [change(110, FIRST), change(210, None)])
    assert [row[3] for row in history.rows(0.1)] == [None, FIRST, None]


def test_the_default_path_is_unknown_after_the_first_fault() -> None:
    def paths(*changes: PathChange, start_ms: int = 0) -> list[tuple[float, list[int] | None]]:
        one = Connection(0, KEY, start_ms * MS, 1000 * MS, DEFAULT, 250 * MS)
        return [(row[0], row[3]) for row in PathHistory([one], changes).rows(0.1)]

    assert paths() == [(0.1, DEFAULT), (0.3, None)]
    assert paths(change(110, FIRST), change(410, None)) == [(0.1, DEFAULT), (0.2, FIRST), (0.5, None)]
    assert paths(change(110, FIRST), change(210, None, "a"), change(220, None, "b")) == [
        (0.1, DEFAULT),
        (0.2, FIRST),
        (0.3, None),
    ]
    assert paths(start_ms=260) == [(0.3, None)]


def test_a_later_connection_with_the_same_five_tuple_has_a_history_of_its_own() -> None:
    first, second = connection(0, 400), Connection(1, KEY, 500 * MS, 900 * MS, DEFAULT)
    history = PathHistory([first, second], [change(100, FIRST), change(450, SECOND), change(600, SECOND)])
    assert history.last_links() == {(0, KEY): FIRST, (1, KEY): SECOND}


def test_times_of_the_controller_become_times_of_the_run() -> None:
    clock = RunClock()
    clock.begin(time.monotonic_ns() - 1000 * MS)
    clock.begin(0)
    flow = {"src": KEY[0], "dst": KEY[2], "proto": 6, "src_port": KEY[1], "dst_port": KEY[3]}
    line = {"at_ns": time.time_ns(), "flow": flow, "path": ["h0", "s0", "h1"], "links": [0, 3], "why": "ecmp did"}
    (found,) = read_changes(json.dumps(line) + "\n", clock)
    assert (found.key, found.links, found.why) == (KEY, [0, 3], "ecmp did")
    assert 1000 * MS <= found.at_ns < 60_000 * MS
    assert read_changes("", clock) == []


def row(**values: Any) -> dict[str, Any]:
    return {"start_ns": 0, "end_ns": 77, "src_port": KEY[1], "dst_port": KEY[3], "subflows": [], **values}


def test_only_a_connection_with_the_planned_port_has_the_planned_path() -> None:
    offered = [
        {"src_address": KEY[0], "src_port": KEY[1], "dst_address": KEY[2], "dst_port": KEY[3], "ways": [DEFAULT, []]}
    ] * 4
    other = [KEY[0], 50_000, KEY[2], KEY[3]]
    rows = [row(), row(src_port=40_001), row(start_ns=-1), row(subflows=[[*KEY, 7, 1, 0], [*other, 9, 0, None]])]
    result = {"flows": rows}
    opened = connections(offered, result, pinned=True, fault_ns=None)
    assert [(one.flow, one.key[1], one.default_links) for one in opened] == [
        (0, 40_000, DEFAULT),
        (1, 40_001, None),
        (3, 40_000, DEFAULT),
        (3, 50_000, None),
    ]
    assert {one.end_ns for one in opened} == {77}
    assert all(one.default_links is None for one in connections(offered, result, pinned=False, fault_ns=None))
    columns = subflow_columns(result, PathHistory(opened, []))
    assert columns["links"] == [DEFAULT, None] and columns["delivered_bytes"] == [7, 9]
    assert columns["flow"] == [3, 3] and columns["timeouts"] == [0, None]


def test_unknown_paths_and_counts_pass_through_the_store_and_the_report() -> None:
    fabric = Fabric("diamond")
    run = synthetic.outcome(fabric, Job("mptcp", 1, 1, "lab", "mptcp@lab"), 3, 1.0)
    parts = [("10.0.0.1", 40_000 + part, "10.0.1.1", 5001, 500, 1, None) for part in range(2)]
    rows = [row(subflows=[]), row(subflows=parts), row(subflows=[])]
    history = PathHistory([Connection(1, parts[0][:4], 0, MS, [0, 4]), Connection(1, parts[1][:4], 0, MS, None)], [])
    run.outcome["subflows"] = subflow_columns({"flows": rows}, history)
    run.outcome["series"] = {"ways": history.rows(0.1)}
    kept = OutcomeCodec().decode(OutcomeCodec().encode(run))
    assert kept is not None
    table = subflow_table(fabric, [kept])
    assert table["path"].is_null().to_list() == [False, True]
    assert table["timeouts"].to_list() == [None, None] and table["share"].to_list() == [0.5, 0.5]
    ways = way_series(fabric, [kept])
    assert ways["path"].is_null().to_list() == [False, True] and ways["why"].null_count() == 2
    flows = (
        table.select("scheme", "run", "flow")
        .unique()
        .with_columns(src=pl.lit("h0"), dst=pl.lit("h1"), throughput=pl.lit(0.5))
    )
    result = cast(Any, SimpleNamespace(subflows=table, flows=flows, settings=SimpleNamespace(labels=["mptcp@lab"])))
    seen = overview(result)
    # A connection with an unknown path does not count as one on a single path.
    assert seen is not None and seen.rows == [["mptcp@lab", "1", "2", "", "0.5", ""]]
    assert [line[5] for line in slowest(result).rows][1] == "unknown"
