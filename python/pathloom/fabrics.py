"""Fabrics: built by name, from a file or from networkx, and queries on them."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.extras import need
from pathloom.specs import spec_text

if TYPE_CHECKING:
    import networkx as nx

FABRIC_FILES = (".graphml", ".json", ".csv", ".topo")
"""Endings of the files that describe a fabric."""


class Fabric:
    """Hosts, switches and the cables between them.

    >>> fabric = Fabric("fat-tree:k=4")
    >>> fabric
    Fabric('fat-tree:k=4': 16 hosts, 20 switches, 48 cables)
    >>> fabric.paths("h0", "h4", limit=2)
    [['e0_0', 'a0_0', 'c0', 'a1_0', 'e1_0'], ['e0_0', 'a0_0', 'c1', 'a1_0', 'e1_0']]
    """

    def __init__(self, spec: str) -> None:
        """Builds a specification, `fat-tree:k=4`, or reads a file: `FILE.graphml`, `.json`, `.csv` or `.topo`."""
        if not isinstance(spec, str):
            raise bad_input(
                f"fabric: expected a specification such as `fat-tree:k=4`, found a {type(spec).__name__}; for a "
                "networkx graph use Fabric.from_networkx"
            )
        self._core = _core.Fabric.from_spec(spec)
        self.text: str | None = None
        """Node-link JSON that the fabric was built from; None if it was built from a specification or a file."""

    @classmethod
    def from_node_link(cls, text: str, name: str = "fabric.json") -> Fabric:
        """Builds a fabric from node-link JSON text. `name` may have keys: `mine.json:hosts=2,rate=1Gbps`."""
        fabric = cls.__new__(cls)
        fabric._core = _core.Fabric.from_node_link(text, name)
        fabric.text = text
        return fabric

    @classmethod
    def from_networkx(cls, graph: nx.Graph[Any], name: str = "fabric.json") -> Fabric:
        """Builds a fabric from a networkx graph.

        Nodes may have `tier` (host, tor, aggregation, core), `pod`, `x` and `y`; edges `rate_bps` or `rate`
        (`10Mbps`), `delay_ps` or `delay` (`1us`) and `buffer_packets`. Numbers under `capacity`, `bandwidth`, `bw` or
        `speed` are Mbit/s. Each direction of a directed graph keeps its own settings. If a graph has no hosts, each
        node gets one. `notes` lists what was guessed.

        >>> import networkx as nx
        >>> Fabric.from_networkx(nx.cycle_graph(5), "ring.json:rate=100Mbps")
        Fabric('ring.json:rate=100Mbps': 5 hosts, 5 switches, 10 cables)
        """
        need("networkx", "Fabric.from_networkx")
        import networkx as nx

        try:
            text = json.dumps(nx.node_link_data(graph, edges="edges"))
        except (TypeError, ValueError) as error:
            raise bad_input(f"networkx graph: an attribute cannot be written as JSON: {error}") from None
        return cls.from_node_link(text, name)

    def to_networkx(self) -> nx.MultiGraph[Any]:
        """The fabric as an undirected multigraph. `from_networkx` converts it back to an equal fabric.

        >>> fabric = fat_tree(k=4)
        >>> Fabric.from_networkx(fabric.to_networkx()).to_networkx().edges == fabric.to_networkx().edges
        True
        """
        need("networkx", "Fabric.to_networkx")
        import networkx as nx

        graph: nx.MultiGraph[Any] = nx.node_link_graph(json.loads(self.to_node_link()), edges="edges")
        return graph

    def to_node_link(self) -> str:
        """Node-link JSON text."""
        return self._core.to_node_link()

    def to_graphml(self) -> str:
        """GraphML text."""
        return self._core.to_graphml()

    @property
    def core(self) -> _core.Fabric:
        """The fabric as an object of the native module `pathloom._core`."""
        return self._core

    @property
    def spec(self) -> str:
        """The specification that the fabric was built from."""
        return self._core.spec

    @property
    def from_file(self) -> bool:
        """Whether the fabric was read from a file or a networkx graph, and not built from a name such as `fat-tree`."""
        return re.search(r"\.(graphml|json|csv|topo)(:|$)", self.spec, re.IGNORECASE) is not None

    @cached_property
    def nodes(self) -> list[dict[str, Any]]:
        """One dict per node, in order: name, tier, pod, position."""
        return self._core.nodes()

    @cached_property
    def links(self) -> dict[str, list[Any]]:
        """Columns of the directed links: source, target (node numbers), rate_bps, delay_ps, buffer_packets, up.

        Links 2n and 2n + 1 are the two directions of one cable.
        """
        return {name: column.tolist() for name, column in self._core.links().items()}

    @property
    def names(self) -> list[str]:
        """Names of the nodes, in order."""
        return [node["name"] for node in self.nodes]

    def _repr_svg_(self) -> str:
        """Drawing for notebooks, with the sizes of the fabric and the meaning of the colours."""
        need("plot", "drawing a fabric")
        from pathloom.report.drawing import fabric_svg

        return fabric_svg(self)

    @property
    def notes(self) -> list[str]:
        """What was left out, renamed or guessed when the fabric was read from a file."""
        return self._core.notes

    def is_switch_link(self, link: int) -> bool:
        """Whether both ends of a directed link are switches."""
        ends = self.links["source"][link], self.links["target"][link]
        return all(self.nodes[end]["tier"] != "host" for end in ends)

    def paths(self, source: str, target: str, how: str = "shortest", limit: int = 16) -> list[list[str]]:
        """Up to `limit` paths between two switches, or the ToRs of two hosts, as names of switches.

        `how` is `shortest` (all shortest paths), `k-shortest`, `k-edge-disjoint`, or `simple:N` for all simple paths of
        at most N hops.
        """
        return self._core.paths(source, target, how, limit)

    def summary(self) -> dict[str, Any]:
        """The numbers that `pathloom fabric show --json` prints.

        >>> fat_tree(k=4).summary()["shortest_paths"]
        {'min': 2, 'median': 4, 'max': 4}
        """
        return {**self._core.summary(), "notes": self.notes}

    def round_trip_ps(self) -> tuple[int, int] | None:
        """Longest round trip between hosts on different ToRs over shortest paths: with empty and with full queues.

        None if no two ToRs reach each other. This takes less time than `summary()`, which has the same numbers.

        >>> fat_tree(k=4, rate="1Gbps", delay="1us", buffer=10).round_trip_ps()
        (157344000, 1610784000)
        """
        return self._core.round_trip_ps()

    def draw(self, path: str | Path) -> None:
        """Writes a drawing; the suffix chooses SVG, PNG or PDF."""
        need("plot", "drawing a fabric")
        from pathloom.report.drawing import draw_to_file

        draw_to_file(self, Path(path))

    def __repr__(self) -> str:
        hosts = sum(node["tier"] == "host" for node in self.nodes)
        switches, cables = len(self.nodes) - hosts, len(self.links["source"]) // 2
        return f"Fabric('{self.spec}': {hosts} hosts, {switches} switches, {cables} cables)"


def fat_tree(k: int = 4, **keys: object) -> Fabric:
    """A k-ary FatTree. Every fabric takes rate=, delay=, buffer=, fail= and more: see `pathloom fabric list`.

    >>> fat_tree(k=4, rate="10Mbps").spec
    'fat-tree:k=4,rate=10Mbps'
    """
    return Fabric(spec_text("fat-tree", k=k, **keys))


def vl2(d0: int = 2, d1: int = 4, d2: int = 4, hosts: int = 20, **keys: object) -> Fabric:
    """A VL2 fabric. ToRs have d0, aggregation switches d1 and core switches d2 ports to other switches."""
    return Fabric(spec_text("vl2", d0=d0, d1=d1, d2=d2, hosts=hosts, **keys))


def leaf_spine(spines: int = 4, leaves: int = 4, hosts: int = 20, **keys: object) -> Fabric:
    """A cable from every leaf to every spine, and `hosts` hosts per leaf."""
    return Fabric(spec_text("leaf-spine", spines=spines, leaves=leaves, hosts=hosts, **keys))


def three_layer(**keys: object) -> Fabric:
    """Pods and planes as in Facebook's Altoona: pods=, tors=, planes=, spines=, hosts=."""
    return Fabric(spec_text("three-layer", **keys))


def jellyfish(switches: int = 60, ports: int = 8, hosts: int = 120, **keys: object) -> Fabric:
    """A random regular graph. homes=2 connects every host to two switches; seed= draws another graph."""
    return Fabric(spec_text("jellyfish", switches=switches, ports=ports, hosts=hosts, **keys))


def rail_optimized(servers: int = 8, gpus: int = 8, **keys: object) -> Fabric:
    """GPUs as hosts: a switch in each server, a leaf for GPU i of all servers. segments=, spines=, planes=, nvlink=."""
    return Fabric(spec_text("rail-optimized", servers=servers, gpus=gpus, **keys))


def dragonfly(routers: int = 4, **keys: object) -> Fabric:
    """Groups of fully meshed switches with cables to all other groups: groups=, global=, hosts= (per switch).

    >>> dragonfly().summary()["switches"]
    36
    """
    return Fabric(spec_text("dragonfly", routers=routers, **keys))


def slim_fly(q: int = 5, **keys: object) -> Fabric:
    """2*q*q switches that are at most two hops apart. q is an odd prime; hosts= is the number per switch."""
    return Fabric(spec_text("slim-fly", q=q, **keys))


def torus(dims: str = "4x4x4", hosts: int = 1, **keys: object) -> Fabric:
    """A grid of switches with cables to the next one in each dimension. With wrap="off" it is a mesh."""
    return Fabric(spec_text("torus", dims=dims, hosts=hosts, **keys))


def hammingmesh(board: str = "2x2", boards: str = "4x4", **keys: object) -> Fabric:
    """Boards of accelerators in a mesh, whose edges are joined by a switch for each row and column of the machine.

    >>> hammingmesh().summary()["switches"]
    80
    """
    return Fabric(spec_text("hammingmesh", board=board, boards=boards, **keys))


def dumbbell(hosts: int = 2, **keys: object) -> Fabric:
    """Two ToRs with one cable between them, and `hosts` hosts per side."""
    return Fabric(spec_text("dumbbell", hosts=hosts, **keys))


def diamond(hosts: int = 1, **keys: object) -> Fabric:
    """Two ToRs with two switches between them, and `hosts` hosts per side."""
    return Fabric(spec_text("diamond", hosts=hosts, **keys))


def parallel_paths(rates: list[str] | None = None, delays: list[str] | None = None, **keys: object) -> Fabric:
    """Two ToRs with one switch per path between them; each path has its own rate and one-way delay.

    >>> parallel_paths(["100Mbps", "50Mbps"], ["1ms", "20ms"]).spec
    'parallel-paths:rates=100Mbps/50Mbps,delays=1ms/20ms'
    """
    return Fabric(spec_text("parallel-paths", rates=rates, delays=delays, **keys))
