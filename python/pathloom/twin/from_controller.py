"""Forks of running fabrics, by the API of their controller. Only reading is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pathloom._core import PathloomError
from pathloom.fabrics import Fabric
from pathloom.remote import Controller
from pathloom.twin.fork import Flows, Fork, port_keys
from pathloom.twin.learning import FlowRecord, learn_arrivals
from pathloom.twin.windows import RoundTrips, may_be_in_slow_start, window_bytes

POLL_S = 0.5
"""Time between two looks at the flows while arrivals are learned."""
OUT_OF_SERVICE = ("down", "drained", "draining")
"""States of links that carry nothing new."""
HEADER_SHARE = 1448 / 1514
"""Payload in the bytes that switches count."""


def fork_of_controller(
    controller: Controller,
    learn_s: float,
    control: str | None = None,
    transport: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Fork:
    """The state that a controller knows, after it was watched for `learn_s` seconds to learn arrivals.

    Raises `PathloomError` and `ToolError`.
    """
    state = controller.ask("GET", "/v1/state")
    from_s, seen = clock(), _Seen()
    until_s = from_s + learn_s
    flows = list(controller.pages("/v1/flows"))
    seen.look(flows)
    while clock() < until_s:
        sleep(min(POLL_S, max(until_s - clock(), 0.0)))
        flows = list(controller.pages("/v1/flows"))
        seen.look(flows)
    now_s = clock()
    links, switches = list(controller.pages("/v1/links")), list(controller.pages("/v1/switches"))
    graph, notes = graph_of(state["fabric"], switches, links)
    if learn_s <= 0:
        notes.append("arrivals were not learned: nothing new arrives in the fork; --learn 30s learns them")
    loads = {(row["from"], row["to"]): float(row["load_bps"] or 0) for row in links}
    return Fork(
        fabric=graph,
        scheme=state["scheme"],
        flows=_flows(flows, RoundTrips(graph, loads), now_s),
        arrivals=learn_arrivals(seen.records(), from_s, now_s),
        transport=transport,
        control=control,
        ports=port_keys(state["fabric"]),
        source={"kind": "controller", "at_s": now_s, "fabric": state["fabric"], "url": controller.url},
        notes=notes,
    )


class _Seen:
    """The flows that were seen while the controller was watched."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, Any]] = {}
        self._present: set[str] = set()

    def look(self, flows: Iterable[Mapping[str, Any]]) -> None:
        present = {row["id"]: row for row in flows}
        self._last.update(present)
        self._present = set(present)

    def records(self) -> list[FlowRecord]:
        """Flows that are gone have ended with about the bytes that were counted last."""
        return [
            FlowRecord(
                row["since_s"],
                row["src_host"],
                row["dst_host"],
                int(row["size_bytes"] or max(row["bytes"] * HEADER_SHARE, 1)),
                ended=row["size_bytes"] is not None or name not in self._present,
            )
            for name, row in self._last.items()
        ]


def _flows(rows: Sequence[Mapping[str, Any]], round_trips: RoundTrips, now_s: float) -> Flows:
    columns = Flows()
    for row in rows:
        age_s = max(now_s - row["since_s"], 1e-6)
        sent_bytes = int(row["bytes"] * HEADER_SHARE)
        counted_bps = row["rate_bps"] if row["rate_bps"] is not None else row["bytes"] * 8 / age_s
        rate_bps = counted_bps * HEADER_SHARE
        round_trip_s = round_trips.seconds(row["src_host"], row["path"], row["dst_host"])
        window = window_bytes(rate_bps, round_trip_s)
        columns.src.append(row["src_host"])
        columns.dst.append(row["dst_host"])
        columns.age_s.append(round(age_s, 6))
        columns.sent_bytes.append(sent_bytes)
        columns.size_bytes.append(row["size_bytes"])
        columns.endless.append(False)
        columns.rate_bps.append(round(rate_bps))
        columns.window_bytes.append(window)
        columns.slow_start.append(may_be_in_slow_start(sent_bytes, window))
        columns.path.append(row["path"])
    return columns


def graph_of(
    spec: str, switches: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """The fabric with the states of its links, and notes.

    The specification gives delays and buffers, if it can be read here and has the same cables. Otherwise they are those
    of Pathloom's defaults.
    """
    graph, notes = _graph_of_links(switches, links), []
    try:
        known = json.loads(Fabric(spec).to_node_link())
    except PathloomError:
        known = None
    if known is not None and _cables(known) == _cables(graph):
        graph = known
    else:
        notes.append(
            f"the fabric `{spec}` cannot be built here, so delays and buffers of links are Pathloom's defaults"
        )
    down = {frozenset((row["from"], row["to"])) for row in links if row["state"] in OUT_OF_SERVICE}
    for edge in graph["edges"]:
        if frozenset((edge["source"], edge["target"])) in down:
            edge["failed"] = True
    return graph, notes


def _cables(graph: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return sorted(tuple(sorted((edge["source"], edge["target"]))) for edge in graph["edges"])


def _graph_of_links(switches: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    tiers = {row["name"]: row["tier"] for row in switches}
    names = dict.fromkeys(row[end] for row in links for end in ("from", "to"))
    nodes = [{"id": name, "tier": tiers.get(name, "host")} for name in names]
    # Links come in pairs, one for each direction of a cable.
    edges = [
        {"source": row["from"], "target": row["to"], "key": place, "rate_bps": row["rate_bps"]}
        for place, row in enumerate(links[::2])
    ]
    return {"directed": False, "multigraph": True, "graph": {}, "nodes": nodes, "edges": edges}
