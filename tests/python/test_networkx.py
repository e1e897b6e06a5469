"""Fabrics to and from networkx."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pathloom
from pathloom._core import PathloomError
from pathloom.fabrics import Fabric, fat_tree, jellyfish, parallel_paths, vl2


@pytest.mark.parametrize(
    "fabric",
    [fat_tree(k=4, fail=0.1), vl2(hosts=3), jellyfish(homes=2), parallel_paths(["9Mbps", "5Mbps"], ["1ms", "7ms"])],
    ids=lambda fabric: fabric.spec,
)
def test_conversion_to_networkx_and_back_keeps_the_fabric(fabric: Fabric) -> None:
    graph = fabric.to_networkx()
    assert graph.number_of_nodes() == len(fabric.nodes)
    assert graph.number_of_edges() == len(fabric.links["source"]) // 2
    again = Fabric.from_networkx(graph)
    assert again.nodes == fabric.nodes
    assert again.links == fabric.links


def test_networkx_agrees_on_shortest_paths() -> None:
    fabric = fat_tree(k=4)
    graph = fabric.to_networkx()
    for source, target in (("h0", "h1"), ("h0", "h2"), ("h0", "h15")):
        theirs = sorted(path[1:-1] for path in nx.all_shortest_paths(nx.Graph(graph), source, target))
        ours = fabric.paths(source, target)
        assert sorted(ours) == theirs
    assert fabric.summary()["diameter_hops"] == 4


def test_path_choices() -> None:
    fabric = fat_tree(k=4)
    assert len(fabric.paths("e0_0", "e1_0", "k-shortest", 6)) == 6
    disjoint = fabric.paths("e0_0", "e1_0", "k-edge-disjoint", 6)
    used = [frozenset(step) for path in disjoint for step in itertools.pairwise(path)]
    assert len(disjoint) == 2
    assert len(used) == len(set(used))
    assert all(len(path) <= 5 for path in fabric.paths("e0_0", "e0_1", "simple:4", 100))
    with pytest.raises(PathloomError, match=r"no node is called `e9_9`; did you mean"):
        fabric.paths("e9_9", "e0_0")
    with pytest.raises(PathloomError, match=r"`fastest` is not one of shortest"):
        fabric.paths("e0_0", "e1_0", "fastest")


def test_rates_and_delays_of_edges_are_taken() -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", rate="5Mbps", delay="3ms", buffer_packets=7)
    fabric = Fabric.from_networkx(graph, "two.json:hosts=2")
    between = [link for link in range(len(fabric.links["source"])) if fabric.is_switch_link(link)]
    for link in between:
        assert fabric.links["rate_bps"][link] == 5_000_000
        assert fabric.links["delay_ps"][link] == 3_000_000_000
        assert fabric.links["buffer_packets"][link] == 7
    assert sum(node["tier"] == "host" for node in fabric.nodes) == 4


def test_a_graph_can_be_simulated_as_it_is() -> None:
    graph = nx.cycle_graph(6)
    result = pathloom.compare(fabric=graph, traffic="long-lived", schemes=["spt"], duration="5ms", runs=1)
    assert result.flows.height == 6
    assert result.flows["delivered_bytes"].min() > 0  # type: ignore[operator]


@given(st.integers(2, 12), st.floats(0.2, 1.0), st.integers(0, 1000))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_random_graphs(switches: int, density: float, seed: int) -> None:
    graph = nx.gnp_random_graph(switches, density, seed=seed)
    if graph.number_of_edges() == 0:
        with pytest.raises(PathloomError, match="no edges"):
            Fabric.from_networkx(graph)
        return
    # Nodes with a single neighbour are switches here, which the key says.
    fabric = Fabric.from_networkx(graph, "fabric.json:hosts=1")
    again = Fabric.from_networkx(fabric.to_networkx())
    assert again.links == fabric.links
    for source, target in list(graph.edges)[:3]:
        first, last = f"n{source}", f"n{target}"
        assert fabric.paths(first, last, limit=1) == [[first, last]]


def test_attributes_that_are_no_json_are_refused() -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", rate=object())
    with pytest.raises(PathloomError, match="cannot be written as JSON"):
        Fabric.from_networkx(graph)


def test_a_graph_in_place_of_a_specification_is_named() -> None:
    with pytest.raises(PathloomError, match=r"found a DiGraph; for a networkx graph use Fabric.from_networkx"):
        Fabric(nx.DiGraph())
