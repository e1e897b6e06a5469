"""Results of other simulators: ns-3's FlowMonitor, and flows in CSV. They contain little but the ends of flows."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl

from pathloom.errors import bad_input, reason
from pathloom.experiments.results.censored import figures_by_size
from pathloom.experiments.results.definitions import size_class
from pathloom.experiments.results.stats import ci95
from pathloom.experiments.results.summary import flow_counts
from pathloom.quantities import count_text, counted

SUFFIXES = (".csv", ".xml")
"""Suffixes of the files that can be read."""
COLUMNS = {"flow": ("flow",), "start": ("start", "start_s"), "end": ("end", "end_s"), "bytes": ("bytes", "size_bytes")}
"""Columns that a CSV file must have, and the names that each may have. Times are in seconds."""
SCHEMA = {
    "flow": pl.String,
    "src": pl.String,
    "dst": pl.String,
    "size_bytes": pl.Int64,
    "size_class": pl.String,
    "start_s": pl.Float64,
    "fct_s": pl.Float64,
    "age_s": pl.Float64,
    "finished": pl.Boolean,
}
"""Columns of the table of flows, with the same meaning as in `pathloom.experiments.results.tables.FLOW_SCHEMA`."""
MOST_SIZE_BYTES = 2**63 - 1
MOST_TIME_S = 1e12
"""Times may count from any epoch."""
_NS_TIME = re.compile(r"\+?(-?[0-9.]+(?:[eE][+-]?[0-9]+)?)ns")
_CONTENT = re.compile(r'(?:[^"#]+|"[^"]*")*')
_FIVE_TUPLE = ("sourceAddress", "destinationAddress", "protocol", "sourcePort", "destinationPort")


@dataclass(frozen=True)
class Foreign:
    """A result of another simulator."""

    flows: pl.DataFrame
    notes: tuple[str, ...]

    def summary(self, path: Path) -> dict[str, Any]:
        """The content of a `result.json` for it, as far as known, with one run of one scheme."""
        figures, counts = figures_by_size(self.flows, "age_s"), flow_counts(self.flows)
        none = {"mean": None, "mean_censored": None, "ci95": None}
        run = {"run": 1, "seed": None, "throughput": none, "fct_s": figures, "flows": counts}
        return {
            "schema": 1,
            "complete": True,
            "settings": {"file": str(path)},
            "versions": {},
            "seed": None,
            "traffic": {
                "description": f"{count_text(self.flows.height)} flows of {path.name}",
                "notes": list(self.notes),
            },
            "schemes": [
                {
                    "scheme": path.stem,
                    "runs": [run],
                    "throughput": none,
                    "fct_s": {**figures, "ci95": ci95([])},
                    "flows": counts,
                }
            ],
        }


def read_foreign(path: Path) -> Foreign:
    """Reads FlowMonitor's XML or a CSV file. Raises a `PathloomError` that names the place of an error."""
    reader = {".csv": _read_csv, ".xml": _read_flow_monitor}.get(path.suffix.lower())
    if reader is None:
        raise bad_input(f"`{path}`: expected a results folder, a .csv file of flows, or FlowMonitor's .xml")
    try:
        return reader(path)
    except OSError as error:
        raise bad_input(f"`{path}`: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise bad_input(f"`{path}`: is not UTF-8 text: {error}") from None


def _read_csv(path: Path) -> Foreign:
    # Spreadsheets write a byte-order mark.
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            lines = list(csv.reader(_without_comments(file), strict=True))
        except csv.Error as error:
            raise bad_input(f"`{path}`: is not CSV: {error}") from None
    first = next((index for index, cells in enumerate(lines) if any(cell.strip() for cell in cells)), None)
    if first is None:
        raise bad_input(f"`{path}`: is empty; expected a heading flow,start,end,bytes and a line for each flow")
    heading = [cell.strip() for cell in lines[first]]
    places = _places(path, heading)
    rows, names = [], set[str]()
    for number, cells in enumerate(lines[first + 1 :], start=first + 2):
        if not any(cell.strip() for cell in cells):
            continue
        where = f"`{path}`, line {number}"
        if len(cells) != len(heading):
            raise bad_input(f"{where}: has {len(cells)} cells; expected {len(heading)}, as in the heading")
        name = cells[places["flow"]].strip()
        if name in names:
            raise bad_input(f"{where}: flow `{name}` occurs twice; give each flow one line")
        names.add(name)
        start_s = _number(where, "start", cells[places["start"]])
        end = cells[places["end"]].strip()
        end_s = _number(where, "end", end) if end else None
        if end_s is not None and end_s < start_s:
            raise bad_input(f"{where}: flow `{name}` ends at {end_s:g} s, before its start at {start_s:g} s")
        rows.append(
            {"flow": name, "size_bytes": _size(where, cells[places["bytes"]]), "start_s": start_s, "end_s": end_s}
        )
    if not rows:
        raise bad_input(f"`{path}`: has no flows; expected a line for each flow below the heading")
    return Foreign(_frame(rows), ())


def _without_comments(lines: Iterable[str]) -> Iterator[str]:
    """The lines, without what follows a `#` outside double quotes."""
    for line in lines:
        content = _CONTENT.match(line)
        is_whole = content is None or line[content.end() : content.end() + 1] != "#"
        yield line if content is None or is_whole else content[0] + "\n"


def _places(path: Path, heading: Sequence[str]) -> dict[str, int]:
    places = {}
    for column, names in COLUMNS.items():
        found = [place for place, cell in enumerate(heading) if cell in names]
        if len(found) != 1:
            problem = "is missing" if not found else "occurs twice"
            raise bad_input(f"`{path}`: column `{column}` {problem}; expected a heading such as flow,start,end,bytes")
        places[column] = found[0]
    return places


def _number(where: str, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MOST_TIME_S:
        raise bad_input(
            f"{where}: {column}: `{text.strip()}` is not a time; expected seconds, from 0 to {MOST_TIME_S:g}"
        )
    return value


def _size(where: str, text: str) -> int:
    size_bytes = _whole_number(text.strip())
    if size_bytes is None:
        raise bad_input(f"{where}: bytes: `{text.strip():.40}` is not a size; expected a whole number of bytes")
    return size_bytes


def _whole_number(text: str) -> int | None:
    """A number from 0 to `MOST_SIZE_BYTES`; None for any other text."""
    digits = text.lstrip("0") or text[:1]
    is_short = digits.isdecimal() and len(digits) <= len(str(MOST_SIZE_BYTES))
    number = int(digits) if is_short else MOST_SIZE_BYTES + 1
    return number if number <= MOST_SIZE_BYTES else None


def _read_flow_monitor(path: Path) -> Foreign:
    try:
        root = ElementTree.parse(path).getroot()
    # An encoding that the parser does not know is a ValueError or a LookupError.
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise bad_input(f"`{path}`: is not XML that can be read: {error}") from None
    stats = root.findall("FlowStats/Flow")
    classifier = [*root.findall("Ipv4FlowClassifier/Flow"), *root.findall("Ipv6FlowClassifier/Flow")]
    if root.tag != "FlowMonitor" or not stats:
        raise bad_input(
            f"`{path}`: is not a file of FlowMonitor: expected <FlowMonitor> with <FlowStats> and flows in it"
        )
    _check_unique(path, "FlowStats", stats)
    _check_unique(path, "classifier", classifier)
    tuples = {flow.get("flowId", ""): tuple(flow.get(key, "") for key in _FIVE_TUPLE) for flow in classifier}
    sent = {tuples[name]: _count(path, flow, "txBytes") for flow in stats if (name := flow.get("flowId", "")) in tuples}
    rows, silent = [], 0
    for flow in stats:
        name = flow.get("flowId", "")
        source, target, protocol, source_port, target_port = tuples.get(name, ("", "", "", "", ""))
        back = (target, source, protocol, target_port, source_port)
        # The reverse direction of a connection, with the acknowledgements, is a separate flow.
        if name in tuples and sent.get(back, -1) > _count(path, flow, "txBytes"):
            continue
        received = _count(path, flow, "rxBytes")
        silent += received == 0
        start_s = _ns_time(path, flow, "timeFirstTxPacket")
        end_s = _ns_time(path, flow, "timeLastRxPacket") if received else None
        if end_s is not None and end_s < start_s:
            raise bad_input(f"`{path}`, flow {name}: ends at {end_s!r} s, before its start at {start_s!r} s")
        rows.append(
            {"flow": name, "src": source, "dst": target, "size_bytes": received, "start_s": start_s, "end_s": end_s}
        )
    notes = [
        f"`{path}`: FlowMonitor has no sizes: a flow counts as finished with its last packet, and its size is what "
        "was received, headers included"
    ]
    if silent:
        each = "counts" if silent == 1 else "count"
        notes.append(f"`{path}`: {counted(silent, 'flow')} received nothing and {each} as unfinished")
    if unknown := sum(flow.get("flowId", "") not in tuples for flow in stats):
        notes.append(
            f"`{path}`: the five-tuples of {unknown} of {counted(len(stats), 'flow')} are not in the file, so "
            "acknowledgements cannot be told from data, and may count as flows"
        )
    return Foreign(_frame(rows), tuple(notes))


def _check_unique(path: Path, where: str, flows: Iterable[ElementTree.Element]) -> None:
    names = set[str]()
    for flow in flows:
        name = flow.get("flowId", "")
        if not name:
            raise bad_input(f"`{path}`: a flow in {where} has no flowId")
        if name in names:
            raise bad_input(f"`{path}`: flow {name} occurs twice in {where}; expected each flowId once")
        names.add(name)


def _count(path: Path, flow: ElementTree.Element, key: str) -> int:
    text = flow.get(key, "")
    number = _whole_number(text)
    if number is None:
        raise bad_input(f"`{path}`, flow {flow.get('flowId')}: {key}: `{text:.40}` is not a whole number of bytes")
    return number


def _ns_time(path: Path, flow: ElementTree.Element, key: str) -> float:
    text = flow.get(key, "")
    found = _NS_TIME.fullmatch(text)
    try:
        value = float(found.group(1)) / 1e9 if found is not None else math.nan
    except ValueError:
        value = math.nan
    if not abs(value) <= MOST_TIME_S:
        raise bad_input(f"`{path}`, flow {flow.get('flowId')}: {key}: `{text}` is not a time such as +1.5e+09ns")
    return value


def _frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The table of flows. The age of an unfinished flow is its time until the last event of all flows."""
    rows = list(rows)
    last_s = max(max(row["start_s"], row["end_s"] or 0.0) for row in rows)
    return pl.DataFrame(
        [
            {
                "flow": row["flow"],
                "src": row.get("src"),
                "dst": row.get("dst"),
                "size_bytes": row["size_bytes"],
                "size_class": size_class(row["size_bytes"]),
                "start_s": row["start_s"],
                "fct_s": row["end_s"] - row["start_s"] if row["end_s"] is not None else None,
                "age_s": (row["end_s"] if row["end_s"] is not None else last_s) - row["start_s"],
                "finished": row["end_s"] is not None,
            }
            for row in rows
        ],
        schema=SCHEMA,
    )
