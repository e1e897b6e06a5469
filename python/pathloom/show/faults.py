"""Computes which links were down, and when, from the faults of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathloom import _core


def changes_of_links(faults: Sequence[str], names: Sequence[str], links: Mapping[str, Sequence[int]]) -> list[Any]:
    """Returns `[seconds, [links that are down from then on]]` for each time at which that changes.

    A fault of a node takes all its links down. Faults of sessions and of the controller take none down.

    >>> links = {"source": [0, 1, 1, 2], "target": [1, 0, 2, 1]}
    >>> changes_of_links(["2s:up:b", "1s:down:b", "1500ms:down:b-c"], ["a", "b", "c"], links)
    [[1.0, [0, 1, 2, 3]], [1.5, [0, 1, 2, 3]], [2.0, [2, 3]]]
    """
    numbers = {name: number for number, name in enumerate(names)}
    ends = list(zip(links["source"], links["target"], strict=True))
    dead: set[int] = set()
    cut: set[frozenset[int]] = set()
    moments: list[Any] = []
    for at_s, kind, what in sorted((_parts(fault) for fault in faults), key=lambda parts: parts[0]):
        cable = _cable(what, numbers)
        if kind not in ("down", "up") or (what not in numbers and cable is None):
            continue
        if what in numbers:
            (dead.add if kind == "down" else dead.discard)(numbers[what])
        elif cable is not None:
            (cut.add if kind == "down" else cut.discard)(cable)
        down = [link for link, pair in enumerate(ends) if dead & set(pair) or frozenset(pair) in cut]
        if moments and moments[-1][0] == at_s:
            moments.pop()
        moments.append([at_s, down])
    return moments


def _parts(fault: str) -> tuple[float, str, str]:
    at, _, rest = fault.partition(":")
    kind, _, what = rest.partition(":")
    return _core.parse_time_s(at.strip()), kind.strip(), what.strip()


def _cable(what: str, numbers: Mapping[str, int]) -> frozenset[int] | None:
    """Returns both ends of `a-b`; names of nodes may have hyphens too."""
    words = what.split("-")
    for place in range(1, len(words)):
        pair = "-".join(words[:place]).strip(), "-".join(words[place:]).strip()
        if all(end in numbers for end in pair):
            return frozenset(numbers[end] for end in pair)
    return None
