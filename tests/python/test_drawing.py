"""Fabrics are drawn as what they are."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import networkx as nx
import pytest

from pathloom._core import PathloomError
from pathloom.fabrics import (
    Fabric,
    diamond,
    dumbbell,
    fat_tree,
    jellyfish,
    leaf_spine,
    parallel_paths,
    three_layer,
    vl2,
)
from pathloom.report.layout import layout

ALL = [
    fat_tree(k=4),
    fat_tree(k=8),
    vl2(),
    leaf_spine(fail=0.1),
    three_layer(),
    jellyfish(),
    jellyfish(switches=20, ports=6, hosts=20, homes=2),
    dumbbell(hosts=5),
    diamond(),
    parallel_paths(["100Mbps", "50Mbps", "10Mbps"], ["1ms", "5ms", "20ms"]),
    Fabric.from_networkx(nx.petersen_graph()),
]


@pytest.mark.parametrize("fabric", ALL, ids=lambda fabric: fabric.spec)
def test_every_fabric_has_places_of_its_own_for_all_nodes(fabric: Fabric) -> None:
    place = layout(fabric)
    assert len(place.positions) == len(fabric.nodes)
    assert all(-0.15 <= x <= 1.15 and -0.15 <= y <= 1.15 for x, y in place.positions)
    switches = [n for n, node in enumerate(fabric.nodes) if node["tier"] != "host"]
    places = {(round(place.positions[n][0], 4), round(place.positions[n][1], 4)) for n in switches}
    assert len(places) == len(switches)
    assert place == layout(fabric), "the same fabric is drawn the same way"


@pytest.mark.parametrize("fabric", ALL, ids=lambda fabric: fabric.spec)
def test_every_fabric_is_drawn(fabric: Fabric, tmp_path: Path) -> None:
    fabric.draw(tmp_path / "it.svg")
    assert ET.parse(tmp_path / "it.svg").getroot().tag.endswith("svg")
    assert [path.name for path in tmp_path.iterdir()] == ["it.svg"]


def test_a_fat_tree_stands_in_tiers_with_its_pods_apart() -> None:
    fabric = fat_tree(k=4)
    place = layout(fabric)
    heights = {
        tier: {place.positions[n][1] for n, node in enumerate(fabric.nodes) if node["tier"] == tier}
        for tier in ("host", "tor", "aggregation", "core")
    }
    assert all(len(rows) == 1 for rows in heights.values())
    order = [next(iter(heights[tier])) for tier in ("host", "tor", "aggregation", "core")]
    assert order == sorted(order)
    spans = list(place.pods.values())
    assert len(spans) == 4
    assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))
    for pod, (left, right) in place.pods.items():
        inside = [place.positions[n][0] for n, node in enumerate(fabric.nodes) if node["pod"] == pod]
        assert all(left <= x <= right for x in inside)
    x_of = {name: place.positions[n][0] for n, name in enumerate(fabric.names)}
    assert x_of["h0"] < x_of["e0_0"] < x_of["h1"], "a ToR stands over its hosts"
    assert x_of["a0_0"] == x_of["e0_0"]


def test_a_graph_with_coordinates_is_a_map() -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_node("west", Longitude=-10.0, Latitude=50.0)
    graph.add_node("east", Longitude=30.0, Latitude=50.0)
    graph.add_node("south", Longitude=10.0, Latitude=40.0)
    graph.add_edges_from([("west", "east"), ("east", "south"), ("south", "west")])
    fabric = Fabric.from_networkx(graph)
    place = layout(fabric)
    assert place.style == "map"
    at = {name: place.positions[n] for n, name in enumerate(fabric.names)}
    assert at["west"][0] < at["south"][0] < at["east"][0]
    assert at["south"][1] < at["west"][1] == at["east"][1]


def test_jellyfish_is_a_circle() -> None:
    fabric = jellyfish()
    place = layout(fabric)
    assert place.style == "circle"
    radii = {round(math.dist(place.positions[n], (0.5, 0.5)), 6) for n, node in enumerate(fabric.nodes)}
    assert len(radii) == 2, "switches on one circle, hosts on another"


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PathloomError, match=r"must end in \.svg, \.png, \.pdf"):
        diamond().draw(tmp_path / "it.txt")
    assert list(tmp_path.iterdir()) == []
