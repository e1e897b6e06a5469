"""Puts each transfer on the path that the judge gives it."""

from __future__ import annotations

import json
from pathlib import Path

from pathloom.scheme import Actions, Event, FlowArrived, Needs, Route, Scheme, SetDefaults, Started, View


class Pinned(Scheme):
    """Reads a file that names switches for each pair of hosts.

    Of the shortest paths, a flow takes the one with most of them: a flow within a pod passes no core.
    """

    def __init__(self, file: str) -> None:
        self.wanted: dict[str, list[str]] = json.loads(Path(file).read_text())

    def needs(self) -> Needs:
        """Hosts announce flows before their first packet."""
        return Needs(detection="announced", both_directions=True)

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        """Routes a flow as soon as it is known."""
        match event:
            case Started():
                yield SetDefaults("ecmp")
            case FlowArrived(flow):
                ends = view.flow(flow)
                source, target = (view.nodes[host].name for host in (ends.src_host, ends.dst_host))
                wanted = {view.find(name) for name in self.wanted[f"{source}-{target}"]}
                paths = view.paths(ends.src_tor, ends.dst_tor)
                path = max(paths, key=lambda links: len(wanted & {view.links[link].target for link in links}))
                if path:
                    yield Route(flow, path)
