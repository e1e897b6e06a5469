"""Finds faults that have no effect: repairs of what works, and failures of what has already failed.

Failures are tracked by the item that a fault names, as in the simulator. A switch that comes up does not repair a cable
that was cut separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pathloom import _core
from pathloom.experiments.settings.fault_times import fault_time_s
from pathloom.fabrics import Fabric

Item = tuple[str, int | str]
"""An item that may fail: a node, a cable, the quality of a cable, or a session."""
MENDS = {"up": "down or flap", "restore": "degrade or loss", "session-up": "session-down"}
"""Faults that repair something, and the faults that they repair."""
_WITH_VALUE = ("degrade", "loss", "flap")


@dataclass
class _State:
    """The items that have failed so far."""

    failed: set[Item] = field(default_factory=set)
    flaps_until_s: dict[Item, float] = field(default_factory=dict)
    """Time until which an item flaps. Until then, a fault of the item may or may not have an effect."""

    def flaps(self, items: Sequence[Item], at_s: float) -> bool:
        return any(at_s <= self.flaps_until_s.get(item, -1.0) for item in items)


def idle_faults(fabric: Fabric, faults: Sequence[str]) -> dict[str, str]:
    """The faults that have no effect, and why."""
    names, state = _Names(fabric), _State()
    # Cables that are down from the start can be brought up.
    state.failed.update(("cable", cable) for cable, up in enumerate(fabric.links["up"][::2]) if not up)
    found = {}
    for fault in sorted(faults, key=fault_time_s):
        why = _why_idle(fault, names, state)
        if why is not None:
            found[fault] = why
    return {fault: found[fault] for fault in faults if fault in found}


def _why_idle(fault: str, names: _Names, state: _State) -> str | None:
    """Why a fault has no effect; None if it has one. Records the effect in `state`."""
    at_s = fault_time_s(fault)
    _, verb, what = (part.strip() for part in f"{fault}::".split(":", 2))
    what = what.rstrip(":")
    value = ""
    if verb in _WITH_VALUE:
        what, _, value = what.rpartition(":")
    items = list(names.items(verb, what.strip()))
    if not items:
        return None
    uncertain = state.flaps(items, at_s)
    failed = [item in state.failed for item in items]
    if verb == "flap":
        down, up, times = value.split("/")
        down_s, up_s = _core.parse_time_s(down), _core.parse_time_s(up)
        until_s = at_s + (int(times) - 1) * (down_s + up_s) + down_s
        state.flaps_until_s.update((item, max(until_s, state.flaps_until_s.get(item, 0.0))) for item in items)
        state.failed.difference_update(items)
        return None
    if verb in MENDS:
        state.failed.difference_update(items)
        idle = not any(failed)
        return f"there was no {MENDS[verb]} of {what} left to mend" if idle and not uncertain else None
    if not uncertain:
        state.failed.update(items)
    already = verb in ("down", "session-down") and all(failed) and not uncertain
    return f"{what} was down already" if already else None


class _Names:
    """Finds the items that the names in faults refer to."""

    def __init__(self, fabric: Fabric) -> None:
        self._nodes = {str(node["name"]): index for index, node in enumerate(fabric.nodes)}
        self._between: dict[tuple[int | None, int | None], list[int]] = {}
        links: Mapping[str, Sequence[int]] = fabric.links
        for link, ends in enumerate(zip(links["source"], links["target"], strict=True)):
            self._between.setdefault(ends, []).append(link // 2)

    def items(self, verb: str, what: str) -> Iterator[Item]:
        """The items that a fault names, if they can fail and be repaired."""
        if verb in ("session-down", "session-up"):
            yield "session", what
        elif verb in ("down", "up", "flap", "degrade", "loss", "restore"):
            whole = self._target(what)
            targets = [whole] if whole else [self._target(part.strip()) for part in what.split("+")]
            for node, cables in filter(None, targets):
                if verb in ("degrade", "loss", "restore"):
                    yield from (("quality", cable) for cable in cables)
                elif node is not None:
                    yield "node", node
                else:
                    yield from (("cable", cable) for cable in cables)

    def _target(self, name: str) -> tuple[int | None, list[int]] | None:
        """A node and its cables, or the cables that are named; None if nothing has this name."""
        node = self._nodes.get(name)
        if node is not None:
            return node, [cable for (source, _), cables in self._between.items() if source == node for cable in cables]
        pair, _, number = name.partition("#") if re.search(r"#\d+$", name) else (name, "", "")
        # A name may contain a dash itself.
        for dash in re.finditer("-", pair):
            ends = self._nodes.get(pair[: dash.start()]), self._nodes.get(pair[dash.end() :])
            cables = self._between.get(ends)
            if cables:
                return None, [cables[int(number) - 1]] if number else cables
        return None
