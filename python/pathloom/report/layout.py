"""Positions of the nodes of a fabric in a drawing.

Positions are in a unit square. `Layout.aspect` is the width over the height to which the square is stretched.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pathloom.report.spread import Position, apart, fill_in
from pathloom.tiers import SWITCH_LEVELS, FabricGraph

MOST_MOVED_APART = 1500
"""In maps of more switches than this, switches that cover each other are not moved."""
CIRCLES = ("jellyfish", "dragonfly", "slim-fly")
"""Fabrics that are drawn as a circle. Chords then show how their switches are joined."""
MOST_SPRING_SWITCHES = 300
"""Fabrics without positions and with more switches than this are drawn as a circle."""


@dataclass(frozen=True)
class Layout:
    """Positions by node number."""

    positions: list[Position]
    aspect: float
    style: str
    """`tiers`, `sides`, `map`, `circle` or `spring`."""
    pods: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Left and right end of each pod, in a drawing with tiers."""
    guessed: frozenset[int] = frozenset()
    """Switches of a map without coordinates, placed near their neighbours."""


class _Graph:
    """Neighbours of a fabric's nodes."""

    def __init__(self, fabric: FabricGraph) -> None:
        self.nodes = fabric.nodes
        self.tier = [node["tier"] for node in fabric.nodes]
        self.switches = [node for node, tier in enumerate(self.tier) if tier != "host"]
        self.hosts = [node for node, tier in enumerate(self.tier) if tier == "host"]
        self.neighbours: list[list[int]] = [[] for _ in fabric.nodes]
        for source, target in zip(fabric.links["source"], fabric.links["target"], strict=True):
            self.neighbours[source].append(target)
        self.hosts_of: dict[int, list[int]] = defaultdict(list)
        for host in self.hosts:
            self.hosts_of[self.neighbours[host][0]].append(host)

    @property
    def tors(self) -> list[int]:
        """Switches with hosts, in order."""
        with_hosts = {switch for host in self.hosts for switch in self.neighbours[host]}
        return [switch for switch in self.switches if switch in with_hosts]


def layout(fabric: FabricGraph) -> Layout:
    """Chooses a way to draw a fabric: in tiers, from side to side, as a map, by springs or in a circle."""
    graph = _Graph(fabric)
    middle = [switch for switch in graph.switches if switch not in set(graph.tors)]
    if len(graph.tors) == 2 and all(set(graph.neighbours[switch]) == set(graph.tors) for switch in middle):
        return _sides(graph, middle)
    placed = {switch: graph.nodes[switch]["position"] for switch in graph.switches if graph.nodes[switch]["position"]}
    are_apart = len(set(placed.values())) > 1
    if are_apart and len(placed) == len(graph.switches):
        return _map(graph, placed)
    if any(tier in ("aggregation", "core") for tier in graph.tier):
        return _tiers(graph)
    if are_apart and 2 * len(placed) >= len(graph.switches):
        return _map(graph, placed)
    if len(graph.switches) > MOST_SPRING_SWITCHES or fabric.spec.startswith(CIRCLES):
        return _circle(graph)
    return _spring(graph)


def _tiers(graph: _Graph) -> Layout:
    """Hosts at the bottom, then ToRs over their hosts, aggregation switches over their pods, cores on top."""
    slots = _host_slots(graph)
    width = max(max(slots.values(), default=0.0), 1.0)
    x = {host: slot / width for host, slot in slots.items()}
    for tor in graph.tors:
        own = [x[host] for host in graph.neighbours[tor] if host in x]
        x[tor] = math.fsum(own) / len(own)
    pods = _pod_spans(graph, x)
    by_tier = {tier: [n for n in graph.switches if graph.tier[n] == tier] for tier in SWITCH_LEVELS}
    _spread_rest(by_tier["tor"], x, pods, graph)
    _spread_rest(by_tier["aggregation"], x, pods, graph)
    _spread_rest(by_tier["core"], x, {}, graph)
    rows = ["host", *(tier for tier, switches in by_tier.items() if switches)]
    heights = dict(zip(rows, _row_heights(len(rows)), strict=True))
    positions = [(x[node], heights[graph.tier[node]]) for node in range(len(graph.nodes))]
    return Layout(positions, 1.9 if len(rows) > 3 else 2.3, "tiers", pods)


def _row_heights(rows: int) -> list[float]:
    """Heights of the rows: hosts are close to their ToRs, the other rows have equal distances."""
    step = 1 / (rows - 1.45)
    return [0.0, *(step * (row - 0.45) for row in range(1, rows))]


def _host_slots(graph: _Graph) -> dict[int, float]:
    """Hosts from left to right, with a gap between ToRs and a wider one between pods."""
    slots: dict[int, float] = {}
    place, last_pod = 0.0, None
    pods = {node["pod"] for node in graph.nodes} - {None}
    pod_gap = max(2.2, 0.12 * len(graph.hosts) / max(len(pods), 1))
    for tor in sorted(graph.tors, key=lambda tor: _pod_key(graph, tor)):
        pod = graph.nodes[tor]["pod"]
        if slots:
            place += pod_gap if pod != last_pod else 1.0 if pod is None else 0.6
        for host in graph.hosts_of[tor]:
            slots[host] = place
            place += 1.0
        last_pod = pod
    return slots


def _pod_key(graph: _Graph, node: int) -> tuple[int, int]:
    pod = graph.nodes[node]["pod"]
    return (pod if pod is not None else len(graph.nodes), node)


def _pod_spans(graph: _Graph, x: dict[int, float]) -> dict[int, tuple[float, float]]:
    spans: dict[int, tuple[float, float]] = {}
    for node, place in x.items():
        pod = graph.nodes[node]["pod"]
        if pod is not None:
            left, right = spans.get(pod, (place, place))
            spans[pod] = (min(left, place), max(right, place))
    return dict(sorted(spans.items()))


def _spread_rest(
    switches: Sequence[int], x: dict[int, float], pods: dict[int, tuple[float, float]], graph: _Graph
) -> None:
    """Places switches that have no place yet: evenly over their pod, or over the whole width."""
    groups: dict[int | None, list[int]] = defaultdict(list)
    for switch in switches:
        if switch not in x:
            pod = graph.nodes[switch]["pod"]
            groups[pod if pod in pods else None].append(switch)
    for pod, members in groups.items():
        left, right = pods[pod] if pod is not None else (0.0, 1.0)
        below = sorted(x[tor] for tor in graph.tors if tor in x and graph.nodes[tor]["pod"] == pod)
        evenly = [left + (right - left) * (index + 0.5) / len(members) for index in range(len(members))]
        # If there are as many as ToRs in the pod, they are straight above the ToRs.
        places = below if pod is not None and len(below) == len(members) else evenly
        x.update(zip(members, places, strict=True))


def _sides(graph: _Graph, middle: Sequence[int]) -> Layout:
    """Two ToRs left and right, their hosts outside, and the switches between them in the middle."""
    positions: list[Position] = [(0.5, 0.5)] * len(graph.nodes)
    for tor, tor_x, host_x in zip(graph.tors, (0.27, 0.73), (0.0, 1.0), strict=True):
        positions[tor] = (tor_x, 0.5)
        for host, y in zip(graph.hosts_of[tor], _even(len(graph.hosts_of[tor])), strict=True):
            positions[host] = (host_x, y)
    for switch, y in zip(middle, _even(len(middle)), strict=True):
        positions[switch] = (0.5, y)
    rows = max(len(middle), *(len(graph.hosts_of[tor]) for tor in graph.tors))
    return Layout(positions, 2.6 if rows <= 4 else 1.7, "sides")


def _even(count: int) -> list[float]:
    """Positions from top to bottom; a few are close to the middle."""
    reach = min(1.0, 0.34 * max(count - 1, 0))
    return [0.5 + reach / 2 - reach * index / max(count - 1, 1) for index in range(count)]


def _map(graph: _Graph, placed: Mapping[int, Position]) -> Layout:
    """Switches at the coordinates of the file, other switches near their neighbours, hosts around their switches."""
    xs, ys = [x for x, _ in placed.values()], [y for _, y in placed.values()]
    # Degrees of longitude are shorter away from the equator; for other coordinates this changes little.
    middle_y = (min(ys) + max(ys)) / 2
    squeeze = math.cos(math.radians(middle_y)) if abs(middle_y) < 80 else 1.0
    width, height = (max(xs) - min(xs)) * squeeze, max(ys) - min(ys)
    aspect = min(max(width / height if height else 2.0, 0.8), 2.2)
    known = {switch: (_share(x, xs), _share(y, ys)) for switch, (x, y) in placed.items()}
    neighbours = {a: [b for b in graph.neighbours[a] if graph.tier[b] != "host"] for a in graph.switches}
    unit = fill_in(known, neighbours)
    if len(unit) <= MOST_MOVED_APART:
        unit = apart(unit, aspect, min(0.018, 0.4 / math.sqrt(len(unit))))
    layout = _fan_out(graph, unit, aspect, "map")
    return replace(layout, guessed=frozenset(unit.keys() - placed.keys()))


def _share(value: float, values: Sequence[float]) -> float:
    low, high = min(values), max(values)
    return (value - low) / (high - low) if high > low else 0.5


def _circle(graph: _Graph) -> Layout:
    """Switches on a circle, hosts on a wider one outside."""
    count = len(graph.switches)
    around = {switch: 2 * math.pi * (index / count) + math.pi / 2 for index, switch in enumerate(graph.switches)}
    unit = {switch: (0.5 + 0.4 * math.cos(angle), 0.5 + 0.4 * math.sin(angle)) for switch, angle in around.items()}
    positions = [unit.get(node, (0.5, 0.5)) for node in range(len(graph.nodes))]
    for switch, hosts in graph.hosts_of.items():
        step = 2 * math.pi / count / (len(hosts) + 1)
        for index, host in enumerate(hosts):
            angle = around[switch] + step * (index - (len(hosts) - 1) / 2)
            positions[host] = (0.5 + 0.48 * math.cos(angle), 0.5 + 0.48 * math.sin(angle))
    return Layout(positions, 1.0, "circle")


def _spring(graph: _Graph) -> Layout:
    """Springs between neighbours (Fruchterman and Reingold), always the same for the same fabric."""
    import networkx as nx

    edges = [(a, b) for a in graph.switches for b in graph.neighbours[a] if graph.tier[b] != "host"]
    drawn: nx.Graph[int] = nx.Graph()
    drawn.add_nodes_from(graph.switches)
    drawn.add_edges_from(edges)
    places = nx.spring_layout(drawn, seed=1, iterations=200)
    xs, ys = [float(p[0]) for p in places.values()], [float(p[1]) for p in places.values()]
    unit = {switch: (_share(float(p[0]), xs), _share(float(p[1]), ys)) for switch, p in places.items()}
    return _fan_out(graph, unit, 1.4, "spring")


def _fan_out(graph: _Graph, unit: dict[int, Position], aspect: float, style: str) -> Layout:
    """Puts the hosts of each switch on the side away from its neighbours."""
    positions = [unit.get(node, (0.5, 0.5)) for node in range(len(graph.nodes))]
    reach = min(0.08, 0.4 / math.sqrt(max(len(unit), 1)))
    for switch, hosts in graph.hosts_of.items():
        x, y = unit[switch]
        others = [unit[other] for other in graph.neighbours[switch] if other in unit]
        away_x = math.fsum((x - other[0]) * aspect for other in others)
        away_y = math.fsum(y - other[1] for other in others)
        middle = math.atan2(away_y, away_x) if others else math.pi / 2
        step = min(0.6, 2 * math.pi / max(len(hosts), 1))
        for index, host in enumerate(hosts):
            angle = middle + step * (index - (len(hosts) - 1) / 2)
            positions[host] = (x + reach / aspect * math.cos(angle), y + reach * math.sin(angle))
    return Layout(positions, aspect, style)
