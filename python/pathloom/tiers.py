"""Names for the nodes of a fabric, tier by tier: leaves and spines, ToRs and cores, or routers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class FabricGraph(Protocol):
    """What drawings and names need to know of a `pathloom.fabrics.Fabric`, which draws itself with them."""

    @property
    def spec(self) -> str:
        """The specification that the fabric was built from."""
        ...

    @property
    def from_file(self) -> bool:
        """Whether the fabric was read from a file or a networkx graph."""
        ...

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """One dict per node: name, tier, pod, position."""
        ...

    @property
    def links(self) -> dict[str, list[Any]]:
        """Columns of the directed links."""
        ...


class Words(NamedTuple):
    """The singular and the plural of a noun."""

    one: str
    many: str

    def counted(self, number: int) -> str:
        """A number with the noun.

        >>> Words("leaf", "leaves").counted(1), Words("leaf", "leaves").counted(4)
        ('1 leaf', '4 leaves')
        """
        return f"{number} {self.one if number == 1 else self.many}"


TOR = Words("ToR", "ToRs")
"""A switch with hosts, if nothing else is known about it."""
_CLOS = {
    "host": Words("host", "hosts"),
    "tor": TOR,
    "aggregation": Words("aggregation", "aggregation"),
    "core": Words("core", "cores"),
}
LEVELS = tuple(_CLOS)
"""The tiers, from the hosts up."""
SWITCH_LEVELS = LEVELS[1:]
_BY_FABRIC = {
    "leaf-spine": {"tor": Words("leaf", "leaves"), "core": Words("spine", "spines")},
    "three-layer": {"core": Words("spine", "spines")},
    "diamond": {"core": Words("middle switch", "middle switches")},
    "parallel-paths": {"core": Words("middle switch", "middle switches")},
    "jellyfish": {"tor": Words("switch", "switches")},
    "dragonfly": {"tor": Words("switch", "switches")},
    "slim-fly": {"tor": Words("switch", "switches")},
    "hammingmesh": {"tor": Words("accelerator", "accelerators"), "core": Words("row or column", "rows and columns")},
    "torus": {"tor": Words("switch", "switches")},
}
_ROUTER, _SWITCH = Words("router", "routers"), Words("switch", "switches")


def tier_words(fabric: FabricGraph) -> dict[str, Words]:
    """Names for the nodes of each tier (host, tor, aggregation, core), from the hosts up.

    If a file does not distinguish tiers, its switches are called routers if it has coordinates, as files of wide-area
    networks do. Without coordinates they are called switches.

    >>> from pathloom.fabrics import leaf_spine
    >>> [words.many for words in tier_words(leaf_spine()).values()]
    ['hosts', 'leaves', 'spines']
    """
    tiers = [tier for tier in _CLOS if any(node["tier"] == tier for node in fabric.nodes)]
    words = {**_CLOS, **_BY_FABRIC.get(fabric.spec.split(":", 1)[0], {})}
    if fabric.from_file and tiers == ["host", "tor"]:
        placed = any(node["position"] is not None for node in fabric.nodes if node["tier"] == "tor")
        words["tor"] = _ROUTER if placed else _SWITCH
    return {tier: words[tier] for tier in tiers}
