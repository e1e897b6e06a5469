"""Forks from records of flows.

They are files of exporters, or Parquet or CSV files with the start, the end, the hosts and the bytes of each flow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pathloom.errors import bad_input, reason
from pathloom.fabrics import Fabric
from pathloom.twin.fork import Flows, Fork, port_keys
from pathloom.twin.from_exporters import is_exported, read_exported
from pathloom.twin.learning import FlowRecord, learn_arrivals
from pathloom.twin.windows import RoundTrips, may_be_in_slow_start, window_bytes

COLUMNS = {
    "start_s": ("start_s", "start", "ts", "flow_start"),
    "src": ("src", "source", "src_host", "sa", "srcaddr"),
    "dst": ("dst", "destination", "dst_host", "da", "dstaddr"),
    "bytes": ("bytes", "size_bytes", "size", "ibyt"),
    "end_s": ("end_s", "end", "te", "flow_end"),
}
"""Columns that records have, and the names that each may have. Times are in seconds, from any epoch."""
SHOWN_NAMES = 3


def read_records(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Reads records with the columns of `COLUMNS`, in order of time, and notes about them. Raises `PathloomError`."""
    try:
        with path.open("rb") as file:
            beginning = file.read(4)
        if is_exported(beginning):
            return read_exported(path, path.read_bytes())
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise bad_input(
            f"--records `{path}`: cannot be read: {reason(error)}; expected Parquet, CSV, IPFIX or pcap"
        ) from None
    lower = {name.lower(): name for name in frame.columns}
    chosen = []
    for column, names in COLUMNS.items():
        found = next((lower[name] for name in names if name in lower), None)
        if found is None:
            raise bad_input(
                f"--records `{path}`: has no column {column}; expected {', '.join(COLUMNS)} (found: "
                f"{', '.join(frame.columns)})"
            )
        kind = pl.Float64 if column.endswith("_s") else pl.Int64 if column == "bytes" else pl.String
        try:
            chosen.append(frame[found].cast(kind).alias(column))
        except pl.exceptions.PolarsError as error:
            raise bad_input(f"--records `{path}`: {found}: {reason(error)}; expected numbers") from None
    records = pl.DataFrame(chosen)
    for column in ("start_s", "src", "dst", "bytes"):
        if records[column].null_count():
            place = records[column].is_null().arg_true()[0]
            raise bad_input(f"--records `{path}`: row {place + 1} has no {column}; leave the row out")
    return records.sort("start_s"), []


def fork_of_records(
    records: pl.DataFrame, fabric: Fabric, scheme: str, at_s: float, transport: str | None, notes: list[str]
) -> Fork:
    """The state that records of flows show at a time, `at_s` seconds after the first flow. Raises `PathloomError`.

    Flows that had not ended then are under way, at their mean rates. Their paths are not known.
    """
    if records.is_empty():
        raise bad_input("--records: has no flows")
    first_s = float(records["start_s"][0])
    hosts = _Hosts(fabric)
    graph = json.loads(fabric.to_node_link())
    round_trips = RoundTrips(graph, {})
    columns, known = Flows(), []
    for row in _started(records, first_s + at_s):
        src, dst = hosts.name(row["src"]), hosts.name(row["dst"])
        start_s = row["start_s"] - first_s
        ends_s = None if row["end_s"] is None else row["end_s"] - first_s
        if src == dst:
            continue
        if ends_s is not None and ends_s <= at_s:
            known.append(FlowRecord(start_s, src, dst, row["bytes"]))
            continue
        age_s = at_s - start_s
        whole_s = (ends_s - start_s) if ends_s is not None else age_s
        rate_bps = row["bytes"] * 8 / max(whole_s, 1e-9)
        sent_bytes = max(round(rate_bps * age_s / 8), 1)
        known.append(FlowRecord(start_s, src, dst, sent_bytes, ended=False))
        window = window_bytes(rate_bps, round_trips.seconds(src, None, dst))
        columns.src.append(src)
        columns.dst.append(dst)
        columns.age_s.append(round(age_s, 9))
        columns.sent_bytes.append(sent_bytes)
        columns.size_bytes.append(None)
        columns.endless.append(False)
        columns.rate_bps.append(round(rate_bps))
        columns.window_bytes.append(window)
        columns.slow_start.append(may_be_in_slow_start(sent_bytes, window))
        columns.path.append(None)
    if not known:
        raise bad_input(f"--at {at_s:g}s: no flow of the records started before; choose a later time")
    return Fork(
        fabric=graph,
        scheme=scheme,
        flows=columns,
        arrivals=learn_arrivals(known, 0.0, at_s),
        transport=transport,
        ports=port_keys(fabric.spec),
        source={"kind": "records", "at_s": at_s},
        notes=[*notes, *hosts.notes()],
    )


def _started(records: pl.DataFrame, by_s: float) -> Iterator[dict[str, Any]]:
    return records.filter(pl.col("start_s") < by_s).iter_rows(named=True)


class _Hosts:
    """Hosts by name or address. Unknown names get the hosts that no record names, in the order of their occurrence."""

    def __init__(self, fabric: Fabric) -> None:
        self._names: list[str] = [node["name"] for node in fabric.nodes if node["tier"] == "host"]
        self._known: dict[str, str] = {name: name for name in self._names}
        self._known |= {address: fabric.names[host] for address, host, _ in fabric.core.addresses()}
        self._given: dict[str, str] = {}

    def name(self, text: str) -> str:
        if text in self._known:
            return self._known[text]
        if text not in self._given:
            if len(self._given) == len(self._names):
                raise bad_input(
                    f"--records: names more than the {len(self._names)} hosts of the fabric; expected names or "
                    "addresses of its hosts"
                )
            self._given[text] = self._names[len(self._given)]
        return self._given[text]

    def notes(self) -> list[str]:
        if not self._given:
            return []
        shown = ", ".join(list(self._given)[:SHOWN_NAMES])
        return [f"{len(self._given)} names of the records are no hosts of the fabric and got hosts in turn: {shown}"]
