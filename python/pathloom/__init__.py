"""Pathloom puts the flows of a datacenter on the many paths of its fabric.

>>> import pathloom as pl
>>> result = pl.compare(
...     fabric=pl.fat_tree(k=4, rate="10Mbps"),
...     traffic=pl.web_search(load=0.4),
...     schemes=["ecmp", "hedera"],
...     duration="1s",
...     runs=1,
... )
>>> sorted(result.flows["scheme"].unique())
['ecmp', 'hedera']

`result.flows` and `result.links` are polars frames. `result.summary` is the content of `result.json`.
`result.save("results/")` writes all of them and a report.

A public name is imported when it is first used, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathloom._core import PathloomError, __version__
    from pathloom.api.comparison import compare, run
    from pathloom.api.results import Result, SweepResult
    from pathloom.api.sweep import sweep
    from pathloom.errors import SchemeError, SchemeWarning
    from pathloom.experiments.results.saved import Loaded, load
    from pathloom.experiments.settings.model import Settings
    from pathloom.fabrics import (
        Fabric,
        diamond,
        dragonfly,
        dumbbell,
        fat_tree,
        hammingmesh,
        jellyfish,
        leaf_spine,
        parallel_paths,
        rail_optimized,
        slim_fly,
        three_layer,
        torus,
        vl2,
    )
    from pathloom.scheme import Scheme
    from pathloom.show.widget import widget
    from pathloom.traffic import (
        all_gather,
        all_reduce,
        all_to_all,
        broadcast,
        coflows,
        data_mining,
        flow_sizes,
        flows,
        hadoop,
        incast,
        long_lived,
        moe,
        on_off,
        reduce,
        reduce_scatter,
        web_search,
        web_server,
    )

_EXPORTS = {
    "pathloom._core": ["PathloomError", "__version__"],
    "pathloom.errors": ["SchemeError", "SchemeWarning"],
    "pathloom.api.comparison": ["compare", "run"],
    "pathloom.experiments.results.saved": ["Loaded", "load"],
    "pathloom.experiments.settings.model": ["Settings"],
    "pathloom.api.sweep": ["sweep"],
    "pathloom.api.results": ["Result", "SweepResult"],
    "pathloom.fabrics": [
        "Fabric",
        "diamond",
        "dragonfly",
        "dumbbell",
        "fat_tree",
        "hammingmesh",
        "jellyfish",
        "leaf_spine",
        "parallel_paths",
        "rail_optimized",
        "slim_fly",
        "three_layer",
        "torus",
        "vl2",
    ],
    "pathloom.scheme": ["Scheme"],
    "pathloom.show.widget": ["widget"],
    "pathloom.traffic": [
        "all_gather",
        "all_reduce",
        "all_to_all",
        "broadcast",
        "coflows",
        "data_mining",
        "flow_sizes",
        "flows",
        "hadoop",
        "incast",
        "long_lived",
        "moe",
        "on_off",
        "reduce",
        "reduce_scatter",
        "web_search",
        "web_server",
    ],
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "Fabric",
    "Loaded",
    "PathloomError",
    "Result",
    "Scheme",
    "SchemeError",
    "SchemeWarning",
    "Settings",
    "SweepResult",
    "__version__",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "coflows",
    "compare",
    "data_mining",
    "diamond",
    "dragonfly",
    "dumbbell",
    "fat_tree",
    "flow_sizes",
    "flows",
    "hadoop",
    "hammingmesh",
    "incast",
    "jellyfish",
    "leaf_spine",
    "load",
    "long_lived",
    "moe",
    "on_off",
    "parallel_paths",
    "rail_optimized",
    "reduce",
    "reduce_scatter",
    "run",
    "slim_fly",
    "sweep",
    "three_layer",
    "torus",
    "vl2",
    "web_search",
    "web_server",
    "widget",
]


def __getattr__(name: str) -> Any:
    """Imports the module that defines a public name, when the name is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'pathloom' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
