"""Moves every flow to another path once, by seamless flow migration: the experiment of OFPT §6.2.5."""

from __future__ import annotations

from pathloom.scheme import (
    SECOND_NS,
    Actions,
    Event,
    FlowArrived,
    Needs,
    Route,
    Scheme,
    SetDefaults,
    Started,
    Timeout,
    View,
)


class Move(Scheme):
    """Puts a flow on the first path between its ToRs, and on the second one when `at_s` has come."""

    def __init__(self, at_s: float = 5.0) -> None:
        self._at_ns = round(at_s * SECOND_NS)
        self._moved = False

    def needs(self) -> Needs:
        """Long flows by their label; moves by SFMM (OFPT Algorithm 4)."""
        return Needs(detection="label", migration="sfmm")

    def poll_timeout(self) -> int | None:
        """The moment of the move."""
        return None if self._moved else self._at_ns

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        """Routes what arrives, moves what stands."""
        match event:
            case Started():
                yield SetDefaults("single_path")
            case FlowArrived(flow=flow):
                known = view.flow(flow)
                yield Route(flow, view.paths(known.src_tor, known.dst_tor)[0])
            case Timeout() if now_ns >= self._at_ns:
                self._moved = True
                for known in view.long_flows():
                    yield Route(known.id, view.paths(known.src_tor, known.dst_tor)[1])
