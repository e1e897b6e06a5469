"""Watches the flows of a controller after something was carried out, and measures them as the flows of a fork."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pathloom.errors import bad_input
from pathloom.twin.from_controller import HEADER_SHARE
from pathloom.twin.measures import UNDER_WAY_BEFORE_NS

MEASURABLE = ("mean-throughput", "worst-pair", "completion")
"""Measures that looks at the flows of a controller give. Small flows come and go between two looks."""
LONGEST = 6
"""A fork runs for at most this many times its duration: arrivals for one, and five more for what is under way."""
MOST_GAP_SHARE = 0.1
"""A watch with a longer gap, as a share of the duration, measures nothing: flows may have ended in the gap."""
LEAST_GAP_S = 1.5
"""A gap of this length is no gap: looks take place each half second."""

Flow = dict[str, Any]
"""`src` and `dst`; `start_s` and `end_s` from the decision on, the latter None while it is under way; `before` and
`bytes` on the wire; `size` of the payload, None if it was not announced."""


class Watch:
    """The flows since a decision. Its state can be stored, so a watch survives a restart."""

    def __init__(self, at_s: float, duration_s: float, state: Mapping[str, Any] | None = None) -> None:
        """`state` is what `state()` returned before a restart."""
        self.at_s, self.duration_s = at_s, duration_s
        known = state or {}
        self.flows: dict[str, Flow] = {str(name): dict(flow) for name, flow in known.get("flows", {}).items()}
        self._seen_s: float = known.get("seen_s", 0.0)
        self._gap_s: float = known.get("gap_s", 0.0)

    def state(self) -> dict[str, Any]:
        """What must survive a restart, as JSON."""
        return {"flows": self.flows, "seen_s": self._seen_s, "gap_s": self._gap_s}

    def look(self, rows: Iterable[Mapping[str, Any]], now_s: float) -> None:
        """Takes a look at all flows. Flows that are gone have ended at the last look, when their bytes were counted."""
        since_s = now_s - self.at_s
        self._gap_s = max(self._gap_s, since_s - self._seen_s)
        present = {str(row["id"]): row for row in rows}
        for name, row in present.items():
            flow = self.flows.get(name)
            if flow is None:
                start_s = row["since_s"] - self.at_s
                # Later flows are not those of the fork.
                if start_s > self.duration_s:
                    continue
                flow = {
                    "src": row["src_host"],
                    "dst": row["dst_host"],
                    "start_s": max(start_s, 0.0),
                    "end_s": None,
                    "before": row["bytes"] if start_s <= 0 and not self._seen_s else 0,
                    "size": row["size_bytes"],
                }
                self.flows[name] = flow
            flow["bytes"] = row["bytes"]
        for name, flow in self.flows.items():
            if flow["end_s"] is None and name not in present:
                # A flow that was seen only when it began has ended in the middle between two looks.
                middle_s = (self._seen_s + since_s) / 2
                flow["end_s"] = self._seen_s if self._seen_s > flow["start_s"] else max(middle_s, flow["start_s"])
        self._seen_s = since_s

    def is_over(self, now_s: float) -> bool:
        """Whether all has happened that a fork has too."""
        since_s = now_s - self.at_s
        all_ended = all(flow["end_s"] is not None for flow in self.flows.values())
        return since_s >= LONGEST * self.duration_s or (since_s >= self.duration_s and all_ended)

    def missed(self) -> str | None:
        """Why nothing can be said, or None."""
        if self._gap_s > max(MOST_GAP_SHARE * self.duration_s, LEAST_GAP_S):
            return f"the controller was not watched for {self._gap_s:.1f} s of the time"
        if not self.flows:
            return "there were no flows"
        return None

    def outcome(self, access_bps: Mapping[str, float]) -> dict[str, Any]:
        """The flows in the form of the outcome of a fork. `access_bps` is the rate of each host's link."""
        flows, end_s = list(self.flows.values()), max(self._seen_s, 1e-9)
        sent = [max(round((flow["bytes"] - flow["before"]) * HEADER_SHARE), 1) for flow in flows]
        sizes = [
            sent_bytes if flow["end_s"] is not None or flow["size"] is None else max(flow["size"], sent_bytes)
            for flow, sent_bytes in zip(flows, sent, strict=True)
        ]
        optimum_bps = [min(access_bps[flow["src"]], access_bps[flow["dst"]]) * HEADER_SHARE for flow in flows]
        ideal_s = [size * 8 / rate_bps for size, rate_bps in zip(sizes, optimum_bps, strict=True)]
        took_s = [
            max((end_s if flow["end_s"] is None else flow["end_s"]) - flow["start_s"], ideal)
            for flow, ideal in zip(flows, ideal_s, strict=True)
        ]
        hosts = {name: place for place, name in enumerate(sorted(access_bps))}
        begins_ns = [
            0 if flow["start_s"] <= 0 else max(round(flow["start_s"] * 1e9), UNDER_WAY_BEFORE_NS) for flow in flows
        ]
        columns = {
            "src": [hosts[flow["src"]] for flow in flows],
            "dst": [hosts[flow["dst"]] for flow in flows],
            "size_bytes": sizes,
            "start_ns": begins_ns,
            "finish_ns": [-1 if flow["end_s"] is None else round(flow["end_s"] * 1e9) for flow in flows],
            "delivered_bytes": sent,
            "throughput": [ideal / took for ideal, took in zip(ideal_s, took_s, strict=True)],
            "ideal_fct_ns": [ideal * 1e9 for ideal in ideal_s],
        }
        return {"flows": {name: np.array(of) for name, of in columns.items()}, "end_ns": round(end_s * 1e9)}


def access_rates(links: Iterable[Mapping[str, Any]], hosts: Iterable[str]) -> dict[str, float]:
    """The rate of each host's link, in b/s. Raises `PathloomError` if a host has none."""
    rates = {row["from"]: float(row["rate_bps"]) for row in links}
    for host in hosts:
        if host not in rates:
            raise bad_input(f"the controller lists no link of the host {host}")
    return {host: rates[host] for host in hosts}
