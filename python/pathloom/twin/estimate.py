"""First estimates of alternatives: max-min fair rates of the flows under way, without packets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pathloom import _core
from pathloom.experiments.running.simulation import RunFiles, simulation
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.twin.measures import UNDER_WAY_BEFORE_NS

PAYLOAD_SHARE = 1448 / 1514
NO_ESTIMATE: dict[str, float | None] = {"mean_bps": None, "worst_pair_bps": None}
SHORT = "2ms"
"""Duration of the runs that are prepared and not carried out: the flows under way start in it."""


def estimate(settings: Settings, fabric_text: str) -> dict[str, float | None]:
    """The mean rate of the flows under way and the rate of the slowest pair, in b/s, if all of them had data for ever.

    The paths are those of the default routes of the scheme, before it moves flows. None without flows under way.
    """
    short = settings.model_copy(update={"duration": SHORT, "runs": 1, "faults": ()})
    run = simulation(short, fabric_text, short.jobs("sim")[0], RunFiles())
    flows = [flow for flow in run.offered() if not flow["after"] and flow["start_ns"] < UNDER_WAY_BEFORE_NS]
    fabric = Fabric.from_node_link(fabric_text, settings.fabric)
    return rates_of(fabric, flows)


def rates_of(fabric: Fabric, flows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Mean max-min rate of flows, and of the slowest pair, in b/s of payload. Flows without a path have a rate of 0."""
    targets, nodes = fabric.links["target"], fabric.nodes
    reach = [flow for flow in flows if flow["ways"][0] and nodes[targets[flow["ways"][0][-1]]]["tier"] == "host"]
    if not flows:
        return NO_ESTIMATE
    capacity = [rate * PAYLOAD_SHARE for rate in fabric.links["rate_bps"]]
    rates = _core.max_min_rates(capacity, [list(flow["ways"][0]) for flow in reach]).tolist()
    pairs: dict[tuple[int, int], list[float]] = defaultdict(list)
    for flow, rate in zip(reach, rates, strict=True):
        pairs[(flow["src"], flow["dst"])].append(rate)
    worst = min(sum(of) / len(of) for of in pairs.values()) if len(reach) == len(flows) else 0.0
    return {"mean_bps": sum(rates) / len(flows), "worst_pair_bps": worst}
