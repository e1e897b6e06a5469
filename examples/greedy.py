"""Gives every long flow the shortest path whose most loaded link carries the fewest long flows.

pathloom compare --fabric fat-tree:k=4,rate=10Mbps --traffic long-lived:pattern=stride --schemes ecmp,examples/greedy.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pathloom.scheme import (
    Actions,
    Event,
    FlowArrived,
    FlowFinished,
    LinkChanged,
    Needs,
    Route,
    Scheme,
    SetDefaults,
    Started,
    View,
)


class Greedy(Scheme):
    """Places flows one by one, and places a flow again if a link of its path fails."""

    def __init__(self, paths: int = 16) -> None:
        self.most_paths = paths
        self.flows_on: Counter[int] = Counter()
        self.placed: dict[int, Sequence[int]] = {}

    def needs(self) -> Needs:
        return Needs(detection="label")

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        match event:
            case Started():
                yield SetDefaults("ecmp")
            case FlowArrived(flow):
                yield from self.place(flow, view)
            case FlowFinished(flow):
                self.take_off(flow)
            case LinkChanged(link, up=False):
                for flow in [flow for flow, path in self.placed.items() if link in path]:
                    yield from self.place(flow, view)

    def place(self, flow: int, view: View) -> Actions:
        self.take_off(flow)
        ends = view.flow(flow)
        paths = view.paths(ends.src_tor, ends.dst_tor, limit=self.most_paths)
        if paths:
            best = min(paths, key=lambda path: max((self.flows_on[link] for link in path), default=0))
            self.placed[flow] = best
            self.flows_on.update(best)
            yield Route(flow, best)

    def take_off(self, flow: int) -> None:
        self.flows_on.subtract(self.placed.pop(flow, ()))
