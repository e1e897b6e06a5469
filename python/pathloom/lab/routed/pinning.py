"""Puts the flows of a run on the paths of the simulator, by their source ports.

The hash of the lab's routers is not that of the simulator. A flow gets a source port that leads its packets where the
simulator's switches would send them. Acknowledgements are not pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.entropy import Find, Flow, Lookups, Path

PORTS = range(20_000, 32_000)
"""Source ports that flows may get: below those that Linux and the simulator choose."""
AT_ONCE = 32
"""Ports of a pair that are looked up together."""
MOST_ASKED = 512
"""Ports of a pair that are looked up at most."""
MOST_FLOWS = 500
"""Largest number of flows for which ports are found in reasonable time."""


def pin_by_ports(
    blueprint: Blueprint, offered: Sequence[dict[str, Any]], finder: Callable[[Flow], Find] | None = None
) -> list[int]:
    """Gives flows the source ports of their paths, in place. Returns the numbers of the flows for which there is none.

    `offered` are the flows of the simulator, with their paths in `ways`. A flow without a port keeps its own, and has
    `pinned` false. No two flows of a host get the same port. Raises `ToolError`.
    """
    finder = finder or (lambda flow: Lookups(blueprint, flow).find)
    pairs: dict[Flow, list[int]] = {}
    for index, flow in enumerate(offered):
        pairs.setdefault(Flow(flow["src_address"], flow["dst_address"], flow["dst_port"]), []).append(index)
    used: dict[str, set[int]] = {}
    unpinned = []
    for pair, indices in pairs.items():
        own = used.setdefault(pair.source, set())
        wanted: dict[Path, list[int]] = {}
        for index in indices:
            wanted.setdefault(tuple(offered[index]["ways"][0]), []).append(index)
        for index, port in _matched(wanted, finder(pair), own).items():
            offered[index]["src_port"] = port
        left = sorted(index for indices in wanted.values() for index in indices)
        for index in left:
            offered[index]["pinned"] = False
        unpinned += left
    return sorted(unpinned)


def _matched(wanted: dict[Path, list[int]], find: Find, used: set[int]) -> dict[int, int]:
    """Returns a source port for each flow that has one, and takes these flows out of `wanted`, by path."""
    found: dict[int, int] = {}
    free = (port for port in PORTS if port not in used)
    for _ in range(MOST_ASKED // AT_ONCE):
        if not any(wanted.values()):
            break
        for port, path in find(list(islice(free, AT_ONCE))).items():
            if wanted.get(path):
                found[wanted[path].pop(0)] = port
    used.update(found.values())
    return found
