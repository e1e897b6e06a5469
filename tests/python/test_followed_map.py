"""A map of source ports that is kept fresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pathloom.lab.routed.entropy import Flow, Path, PathMap
from pathloom.lab.routed.following import QUIET_S, Change, follow

LEFT, RIGHT = (0, 32, 2), (0, 34, 2)


@dataclass
class Script:
    """Events, and the times for which they were awaited."""

    events: list[set[str]]
    waits: list[float | None] = field(default_factory=list)

    def wait(self, patience_s: float | None) -> set[str]:
        """Returns the next event."""
        self.waits.append(patience_s)
        return self.events.pop(0)


def test_events_in_a_row_are_one_change_and_standing_connections_are_named() -> None:
    known = PathMap(Flow("10.0.0.1", "10.0.7.2", 7), {1: LEFT, 2: RIGHT, 3: LEFT})
    now: Mapping[int, Path] = {1: RIGHT, 2: RIGHT, 4: LEFT}
    asked: list[list[int]] = []

    def find(ports: Sequence[int]) -> Mapping[int, Path]:
        asked.append(list(ports))
        return {port: now[port] for port in ports if port in now}

    events = Script([{"e0_0"}, {"a0_0", "e0_0"}, set(), {"c0"}, set()])
    first, second = islice(follow(known, find, (1, 2, 3, 4), events, lambda: [1, 2, 9]), 2)
    assert first == Change(["a0_0", "e0_0"], {1: (LEFT, RIGHT), 3: (LEFT, None), 4: (None, LEFT)}, [1])
    assert second == Change(["c0"], {}, [])
    assert events.waits == [None, QUIET_S, QUIET_S, None, QUIET_S]
    assert asked == [[1, 2, 3, 4]] * 2, "ports without a path are looked up as well"
    assert known.paths == now
