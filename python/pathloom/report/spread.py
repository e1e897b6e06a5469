"""Positions on a map, for nodes without coordinates and for nodes that would cover each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

Position = tuple[float, float]

_ROUNDS = 200
_PUSHES = 60
_BESIDE = 0.06
"""Distance between a node and a neighbour that it would otherwise cover."""
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


def fill_in(known: Mapping[int, Position], neighbours: Mapping[int, Sequence[int]]) -> dict[int, Position]:
    """A position for every node: the known one, or the middle of its neighbours' positions.

    `neighbours` has an entry for every node; positions lie in the unit square. Nodes that are not connected to a node
    with a known position are in a row at the lower edge.
    """
    missing = [node for node in neighbours if node not in known]
    places = dict(known)
    while reached := [node for node in missing if node not in places and any(n in places for n in neighbours[node])]:
        places |= {node: _middle([places[n] for n in neighbours[node] if n in places]) for node in reached}
    unknown = [node for node in missing if node in places]
    for _ in range(_ROUNDS if len(unknown) > 1 else 0):
        for node in unknown:
            places[node] = _middle([places[other] for other in neighbours[node]])
    lost = [node for node in missing if node not in places]
    places |= {node: ((index + 0.5) / len(lost), 0.0) for index, node in enumerate(lost)}
    for node in unknown:
        places[node] = _beside(places, node, neighbours)
    return places


def _beside(places: Mapping[int, Position], node: int, neighbours: Mapping[int, Sequence[int]]) -> Position:
    """Position of a node: unchanged, or, if it covers a neighbour, on the side away from that neighbour's others."""
    x, y = places[node]
    near = [other for other in neighbours[node] if math.dist(places[node], places[other]) < _BESIDE / 2]
    if not near:
        return x, y
    others = [places[other] for other in neighbours[near[0]] if other != node]
    middle = _middle(others) if others else (x, y - 1)
    angle = math.atan2(y - middle[1], x - middle[0]) if math.dist(middle, (x, y)) > 1e-9 else math.pi / 2
    return x + _BESIDE * math.cos(angle), y + _BESIDE * math.sin(angle)


def _middle(places: Sequence[Position]) -> Position:
    return math.fsum(x for x, _ in places) / len(places), math.fsum(y for _, y in places) / len(places)


def apart(places: Mapping[int, Position], aspect: float, least: float) -> dict[int, Position]:
    """The same positions, moved as little as needed so that any two are at least about `least` heights apart.

    `aspect` is the width of the drawing over its height.
    """
    nodes = list(places)
    at = np.array([places[node] for node in nodes], dtype=float).reshape(-1, 2) * (aspect, 1.0)
    # Nodes at the same position are moved in different directions.
    shared = np.array([count > 1 for count in map(Counter(places.values()).__getitem__, places.values())])
    angles = np.arange(len(nodes)) * _GOLDEN_ANGLE
    at += least * 1e-3 * np.column_stack([np.cos(angles), np.sin(angles)]) * shared[:, None]
    for _ in range(_PUSHES):
        between = at[:, None, :] - at[None, :, :]
        distance = np.hypot(between[..., 0], between[..., 1])
        np.fill_diagonal(distance, np.inf)
        short = np.clip(least - distance, 0.0, None)
        if short.max(initial=0.0) < least * 0.02:
            break
        at += (between / distance[..., None] * short[..., None]).sum(axis=1) * 0.5
    return {node: (float(x) / aspect, float(y)) for node, (x, y) in zip(nodes, at, strict=True)}
