"""The paths of connections during a run in the lab, from the event log of its controller.

The controller logs its inputs and outputs. A replay of the log tells when, and why, each connection came onto its path.
The path on the default routes is known where rules pin the connection to the path that the simulator computed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathloom.lab.orders import Key

PathRow = tuple[float, int, int, list[int] | None, str | None]
"""A row of the series of paths: end of the step, flow, source port, links (None if unknown), and the reason."""


@dataclass(frozen=True, slots=True)
class PathChange:
    """A decision of the controller about the path of a connection."""

    at_ns: int
    """Time of the run."""
    key: Key
    links: list[int] | None
    """Links from host to host; None on the default routes."""
    why: str


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection of a transfer, or one of its streams or subflows."""

    flow: int
    key: Key
    start_ns: int
    end_ns: int
    default_links: list[int] | None
    """Its path on the default routes; None if it is unknown."""
    default_until_ns: int | None = None
    """Time of the first fault, after which its path on the default routes is unknown; None without faults."""
    of_several: bool = False
    """Whether it is a stream or a subflow."""

    def default_at(self, at_ns: int) -> list[int] | None:
        """Its path on the default routes at a time."""
        return None if self.default_until_ns is not None and at_ns >= self.default_until_ns else self.default_links


class RunClock:
    """Converts times of the controller to times of the run."""

    def __init__(self) -> None:
        self._zero_ns: int | None = None

    def begin(self, zero_ns: int) -> None:
        """`zero_ns`: time 0 of the run by the monotonic clock. Further calls have no effect."""
        if self._zero_ns is None:
            self._zero_ns = zero_ns + time.time_ns() - time.monotonic_ns()

    def run_ns(self, unix_ns: int) -> int:
        """The time of the run at a time since 1970."""
        return unix_ns - (self._zero_ns or 0)


def read_changes(text: str, clock: RunClock) -> list[PathChange]:
    """Reads the output of `pathloom-controller paths`."""
    found = []
    for line in text.splitlines():
        row = json.loads(line)
        flow = row["flow"]
        key = (flow["src"], flow["src_port"], flow["dst"], flow["dst_port"])
        found.append(PathChange(clock.run_ns(row["at_ns"]), key, row["links"], row["why"]))
    return found


def connections(
    offered: Sequence[Mapping[str, Any]], result: Mapping[str, Any], pinned: bool, fault_ns: int | None
) -> list[Connection]:
    """The connections that a run has opened.

    `pinned`: rules keep offered connections on their computed paths until the first fault, at `fault_ns`.
    """
    found = []
    for index, (flow, row) in enumerate(zip(offered, result["flows"], strict=True)):
        if row["start_ns"] < 0 or row["src_port"] < 0:
            continue
        planned = (flow["src_address"], flow["src_port"], flow["dst_address"], flow["dst_port"])
        own = (flow["src_address"], row["src_port"], flow["dst_address"], row["dst_port"])
        parts = [tuple(part[:4]) for part in row["subflows"]]
        for key in parts or [own]:
            default = list(flow["ways"][0]) if pinned and flow.get("pinned", True) and key == planned else None
            found.append(Connection(index, key, row["start_ns"], row["end_ns"], default, fault_ns, bool(parts)))
    return found


class PathHistory:
    """The paths of all connections of a run."""

    def __init__(self, opened: Iterable[Connection], changes: Iterable[PathChange]) -> None:
        by_key: dict[Key, list[PathChange]] = {}
        for change in changes:
            by_key.setdefault(change.key, []).append(change)
        self._steps = [(one, _steps(one, by_key.get(one.key, ()))) for one in opened]

    def rows(self, step_s: float) -> list[PathRow]:
        """One row per connection and step in which its path, or the reason for its path, changed; one when it began."""
        found = []
        for one, steps in self._steps:
            at_end: dict[int, tuple[list[int] | None, str | None]] = {}
            for at_ns, links, why in steps:
                at_end[int(max(at_ns, 0) / 1e9 / step_s) + 1] = links, why
            last: tuple[list[int] | None, str | None] | None = None
            for step, state in at_end.items():
                if state != last:
                    found.append((round(step * step_s, 9), one.flow, one.key[1], *state))
                last = state
        return sorted(found, key=lambda row: row[:3])

    def last_links(self) -> dict[tuple[int, Key], list[int] | None]:
        """The last path of each connection, by flow and five-tuple; None if it is unknown."""
        return {(one.flow, one.key): steps[-1][1] for one, steps in self._steps}


def _steps(one: Connection, changes: Sequence[PathChange]) -> list[tuple[int, list[int] | None, str | None]]:
    """Times, links and reasons. Another connection may have had the same five-tuple earlier, or get it later."""
    states: list[tuple[int, list[int] | None, str | None]] = [(one.start_ns, None, None)]
    states += (
        (change.at_ns, change.links, change.why) for change in changes if one.start_ns <= change.at_ns <= one.end_ns
    )
    fault_ns = one.default_until_ns
    if fault_ns is not None and one.start_ns < fault_ns <= one.end_ns:
        before = max(index for index, (at_ns, _, _) in enumerate(states) if at_ns <= fault_ns)
        states.insert(before + 1, (fault_ns, *states[before][1:]))
    return [(at_ns, one.default_at(at_ns) if links is None else links, why) for at_ns, links, why in states]


def subflow_columns(result: Mapping[str, Any], history: PathHistory) -> dict[str, list[Any]]:
    """Columns of the subflows and streams of a run, as the simulator gives them."""
    last = history.last_links()
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "flow", "src_address", "dst_address", "src_port", "delivered_bytes", "retransmits", "timeouts", "links"
        )
    }  # fmt: skip
    for index, row in enumerate(result["flows"]):
        for src, src_port, dst, dst_port, delivered_bytes, retransmits, timeouts in row["subflows"]:
            links = last.get((index, (src, src_port, dst, dst_port)))
            cells = (index, src, dst, src_port, delivered_bytes, retransmits, timeouts, links)
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
    return columns
