"""Nothing in a picture covers a text, and no text is cut off. The tests use the rectangles of drawn texts."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import synthetic
from geometry import FINE_DPI, drawn_texts, troubles
from pathloom.fabrics import Fabric, dumbbell, fat_tree, jellyfish, leaf_spine, parallel_paths, three_layer, vl2
from pathloom.report.drawing import fabric_figure
from pathloom.report.layout import layout
from pathloom.report.palette import short_labels
from pathloom.report.plots import plots

EIGHT = (
    "spt",
    "ecmp",
    "hedera",
    "hedera-sa",
    "ofpt",
    "lessor",
    "hedera:period=100ms,threshold=0.2",
    "ofpt:sizes=announced,rules=path,enforce=none",
)
ZOO = sorted((Path(__file__).resolve().parents[3] / "shared/data/topologies").glob("*.graphml"))


def crowded_map(nodes: int) -> Fabric:
    """Towns with long names. Some of them are at the same place, and one has no coordinates."""
    graph = nx.random_regular_graph(4, nodes, seed=3)
    for node in graph.nodes:
        # Groups of three nodes share their coordinates.
        graph.nodes[node]["Longitude"] = 5.0 + 0.5 * (node // 3)
        graph.nodes[node]["Latitude"] = 45.0 + (node // 3) ** 2 % 7
    del graph.nodes[7]["Longitude"]
    return Fabric.from_networkx(nx.relabel_nodes(graph, {node: f"Somewhere_{node}_by_the_sea" for node in graph.nodes}))


def tiers_with_long_names() -> Fabric:
    graph: nx.Graph[str] = nx.Graph()
    for leaf in range(24):
        name = f"rack-{leaf}-top-of-rack-switch"
        graph.add_node(name, tier="tor")
        graph.add_edges_from((name, f"spine-{spine}") for spine in range(2))
        for host in range(2):
            graph.add_node(f"server-{leaf}-{host}", tier="host")
            graph.add_edge(name, f"server-{leaf}-{host}")
    for spine in range(2):
        graph.nodes[f"spine-{spine}"]["tier"] = "core"
    return Fabric.from_networkx(graph)


FABRICS = [
    fat_tree(k=4),
    fat_tree(k=8),
    fat_tree(k=16),
    vl2(),
    leaf_spine(),
    leaf_spine(spines=16, leaves=40, hosts=1),
    three_layer(),
    jellyfish(),
    jellyfish(switches=90, ports=6, hosts=90),
    dumbbell(hosts=20),
    parallel_paths(["10Mbps", "20Mbps", "30Mbps", "40Mbps"] * 5),
    Fabric.from_networkx(nx.petersen_graph()),
    crowded_map(60),
    crowded_map(120),
    tiers_with_long_names(),
    *(Fabric(f"{path}:rate=1Gbps") for path in ZOO),
]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.spec)
def test_no_text_of_a_drawing_covers_another_or_is_cut_off(fabric: Fabric) -> None:
    assert troubles(fabric_figure(fabric)) == []


def names_in(fabric: Fabric) -> set[str]:
    return {text for text, _ in drawn_texts(fabric_figure(fabric))} & set(fabric.names)


def test_names_are_left_out_only_where_there_is_no_room() -> None:
    for fabric in (fat_tree(k=4), jellyfish(), dumbbell(hosts=5)):
        switches = {node["name"] for node in fabric.nodes if node["tier"] != "host"}
        assert switches <= names_in(fabric)
    assert names_in(fat_tree(k=4)) == set(fat_tree(k=4).names), "hosts as well"
    crowded = crowded_map(60)
    named = names_in(crowded)
    assert 15 < len(named) < 60
    (caption,) = [text for text, _ in drawn_texts(fabric_figure(crowded)) if "cables" in text]
    assert f"names of {len(named)}, where there is room" in caption


def test_a_name_on_a_map_covers_no_other_node() -> None:
    fabric = crowded_map(60)
    figure = fabric_figure(fabric)
    axes, place = figure.axes[0], layout(fabric)
    texts = dict(drawn_texts(figure))
    figure.dpi = FINE_DPI
    switches = [node for node, record in enumerate(fabric.nodes) if record["tier"] != "host"]
    dots = [axes.transData.transform(place.positions[node]) for node in switches]
    assert len(dots) == 60
    for name in set(fabric.names) & set(texts):
        assert not any(texts[name].contains(x, y) for x, y in dots), name


def test_boxes_on_a_map_cover_no_host() -> None:
    graph: nx.Graph[str] = nx.Graph([("Here", "A_town_with_a_long_name"), ("A_town_with_a_long_name", "There")])
    for place, node in enumerate(graph.nodes):
        graph.nodes[node].update(Longitude=10.0 * place, Latitude=5.0 * (place % 2))
    fabric = Fabric.from_networkx(graph)
    figure = fabric_figure(fabric)
    texts = dict(drawn_texts(figure))
    figure.dpi = FINE_DPI
    place_of = layout(fabric).positions
    for node, record in enumerate(fabric.nodes):
        x, y = figure.axes[0].transData.transform(place_of[node])
        if record["tier"] == "host":
            assert not any(texts[name].contains(x, y) for name in graph.nodes)


@pytest.mark.parametrize(
    ("fabric", "schemes"),
    [(fat_tree(k=4), EIGHT), (fat_tree(k=8), EIGHT[:2]), (crowded_map(30), EIGHT[-3:])],
    ids=["k4", "k8", "map"],
)
def test_no_text_of_a_report_covers_another_or_is_cut_off(fabric: Fabric, schemes: tuple[str, ...]) -> None:
    speeds = {scheme: 0.4 + 0.2 * place for place, scheme in enumerate(schemes)}
    for plot in plots(synthetic.result(fabric, speeds, runs=2, flows=300)):
        assert troubles(plot.figure) == [], plot.name
        if plot.name == "fct-by-size":
            legend = {text for text, _ in drawn_texts(plot.figure)}
            assert set(short_labels(schemes)) <= legend


def test_an_unfinished_flow_is_never_drawn_as_complete() -> None:
    finished = synthetic.result(fat_tree(k=2), {"ecmp": 1.0}, runs=1, flows=100)
    cut = synthetic.result(fat_tree(k=2), {"ecmp": 1.0}, runs=1, flows=100, unfinished=20)
    shares = {}
    for name, result in (("finished", finished), ("cut", cut)):
        (plot,) = [plot for plot in plots(result) if plot.name == "fct-cdf"]
        shares[name] = np.asarray(plot.figure.axes[0].lines[0].get_ydata())[-1]
        assert ("20 flows are unfinished" in plot.says) == (name == "cut")
    assert shares == {"finished": 1.0, "cut": 0.8}
    for plot in plots(cut):
        assert ("unfinished" in plot.says) == (plot.name not in ("link-heat-map", "link-ranks")), plot.name


def test_intervals_do_not_stretch_an_axis_beyond_possible_values() -> None:
    result = synthetic.result(fat_tree(k=2), {"spt": 0.2, "ecmp": 1.0}, runs=2, flows=3)
    (means,) = [plot for plot in plots(result) if plot.name == "means"]
    throughput, fct = means.figure.axes
    assert throughput.get_xlim()[0] > -0.1
    assert throughput.get_xlim()[1] < 1.1
    assert fct.get_xlim()[0] > -0.1 * fct.get_xlim()[1]


def test_names_of_files_are_shown_unchanged() -> None:
    result = synthetic.result(fat_tree(k=2), {"a$\\frac{$.py:X": 1.0, "_b.py:Y": 1.0}, runs=2, flows=30)
    for plot in plots(result):
        assert {"a$\\frac{$.py:X", "./_b.py:Y"} <= {text for text, _ in drawn_texts(plot.figure)}, plot.name


def test_letters_that_the_font_lacks_cause_no_error(tmp_path: Path) -> None:
    graph: nx.Graph[str] = nx.Graph([("東京", "Łódź"), ("Łódź", "Zürich")])
    # Two of the three nodes have a single neighbour, so the key says that they are switches.
    fabric = Fabric.from_networkx(graph, "fabric.json:hosts=1")
    fabric.draw(tmp_path / "it.svg")
    fabric.draw(tmp_path / "it.png")
