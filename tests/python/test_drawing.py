"""Drawings of fabrics: positions of nodes, tiers, maps and names."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import networkx as nx
import pytest

from conftest import Cli
from geometry import drawn_texts
from pathloom._core import PathloomError
from pathloom.fabrics import (
    Fabric,
    diamond,
    dumbbell,
    fat_tree,
    hammingmesh,
    jellyfish,
    leaf_spine,
    parallel_paths,
    three_layer,
    vl2,
)
from pathloom.report.drawing import fabric_figure
from pathloom.report.layout import layout
from pathloom.tiers import tier_words

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
def test_all_switches_of_a_fabric_have_different_positions(fabric: Fabric) -> None:
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


def test_a_fat_tree_is_drawn_in_tiers_with_separate_pods() -> None:
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
    assert x_of["h0"] < x_of["e0_0"] < x_of["h1"], "a ToR is above its hosts"
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


def test_a_node_without_coordinates_is_drawn_near_its_neighbours() -> None:
    graph: nx.Graph[str] = nx.Graph()
    for name, x, y in (("west", -10.0, 50.0), ("east", 30.0, 50.0), ("south", 10.0, 40.0), ("north", 10.0, 60.0)):
        graph.add_node(name, Longitude=x, Latitude=y)
    graph.add_edges_from([("west", "north"), ("north", "east"), ("east", "south"), ("south", "west")])
    graph.add_edges_from([("unknown", "west"), ("unknown", "south"), ("far", "east"), ("farther", "far")])
    fabric = Fabric.from_networkx(graph)
    place = layout(fabric)
    assert place.style == "map"
    at = {name: place.positions[n] for n, name in enumerate(fabric.names)}
    assert {fabric.names[node] for node in place.guessed} == {"unknown", "far", "farther"}
    assert at["unknown"] == pytest.approx((0.25, 0.25), abs=0.02)
    for one, other in itertools.combinations(graph.nodes, 2):
        assert math.dist(at[one], at[other]) > 0.01, (one, other)
    assert math.dist(at["far"], at["east"]) < 0.15
    (key,) = [text for text, _ in drawn_texts(fabric_figure(fabric)) if "coordinates" in text]
    assert key == "without coordinates"


def test_boards_of_a_hamming_mesh_are_drawn_as_squares() -> None:
    fabric = hammingmesh(board="2x2", boards="2x2")
    place = layout(fabric)
    assert place.style == "map", "rows and columns of accelerators, not tiers"
    at = {name: place.positions[n] for n, name in enumerate(fabric.names)}
    width = {(a, b): at[b][0] - at[a][0] for a, b in itertools.pairwise(["e0_0", "e0_1", "e0_2", "e0_3", "r0"])}
    assert width["e0_0", "e0_1"] == pytest.approx(width["e0_2", "e0_3"])
    assert width["e0_1", "e0_2"] > 1.5 * width["e0_0", "e0_1"], "a gap between boards"
    assert width["e0_3", "r0"] > width["e0_0", "e0_1"]
    assert at["c0"][1] < at["e3_0"][1] < at["e0_0"][1]


def test_few_coordinates_make_no_map() -> None:
    graph = nx.cycle_graph(5)
    graph.nodes[0].update(Longitude=1.0, Latitude=2.0)
    graph.nodes[1].update(Longitude=3.0, Latitude=4.0)
    assert layout(Fabric.from_networkx(graph)).style == "spring"


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        (fat_tree(k=4), ["hosts", "ToRs", "aggregation", "cores"]),
        (leaf_spine(), ["hosts", "leaves", "spines"]),
        (three_layer(), ["hosts", "ToRs", "aggregation", "spines"]),
        (diamond(), ["hosts", "ToRs", "middle switches"]),
        (Fabric.from_networkx(nx.petersen_graph()), ["hosts", "switches"]),
        (Fabric.from_node_link(fat_tree(k=4).to_node_link()), ["hosts", "ToRs", "aggregation", "cores"]),
    ],
    ids=lambda value: value.spec if isinstance(value, Fabric) else "",
)
def test_tiers_have_their_usual_names(fabric: Fabric, words: list[str]) -> None:
    assert [one.many for one in tier_words(fabric).values()] == words
    assert set(words) <= {text for text, _ in drawn_texts(fabric_figure(fabric))}


def test_nodes_of_a_wide_area_network_are_routers() -> None:
    graph = nx.cycle_graph(4)
    for node in graph:
        graph.nodes[node].update(Longitude=float(node), Latitude=float(node % 2))
    fabric = Fabric.from_networkx(graph)
    texts = [text for text, _ in drawn_texts(fabric_figure(fabric))]
    assert any("4 hosts, 4 routers, 8 cables" in text for text in texts)
    assert not any("ToR" in text for text in texts)


def test_a_fabric_without_a_tier_of_tors_is_shown_and_drawn(cli: Cli, tmp_path: Path) -> None:
    graph: nx.Graph[str] = nx.Graph([("a", "h0"), ("b", "h1"), ("a", "b")])
    nx.set_node_attributes(graph, {"a": "core", "b": "core", "h0": "host", "h1": "host"}, "tier")
    (tmp_path / "cores.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")), encoding="utf-8")
    shown = cli("fabric", "show", "cores.json")
    assert shown.code == 0
    assert "4 (2 hosts, 2 cores)" in shown.out
    assert cli("fabric", "draw", "cores.json").code == 0


def test_names_of_tiers_fit_the_kind_of_fabric(cli: Cli) -> None:
    shown = cli("fabric", "show", "leaf-spine").out
    assert "88 (80 hosts, 4 leaves, 4 spines)" in shown
    assert "between two leaves" in shown
    assert "at the worst leaf" in shown


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


def test_further_homes_of_hosts_are_drawn_differently(tmp_path: Path) -> None:
    texts = {}
    for homes in (1, 2):
        fabric = jellyfish(switches=12, ports=6, hosts=12, homes=homes)
        fabric.draw(tmp_path / "it.svg")
        texts[homes] = (tmp_path / "it.svg").read_text()
    assert "further homes of hosts" in texts[2] and "further homes of hosts" not in texts[1]
    # One dashed line for each host, and one in the key.
    assert texts[2].count("stroke: #7b5ea7") == 12 + 1
