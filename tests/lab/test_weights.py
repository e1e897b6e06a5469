"""Weights of next hops in a lab of static routes: shares of flows, changes without loss, and back to equal ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.lab import Lab
from pathloom.lab.probes import Probes
from pathloom.lab.routed.entropy import Flow
from pathloom.lab.routed.plan import plan_of
from pathloom.lab.routed.prober import Prober
from pathloom.lab.routed.routers import Routers
from pathloom.lab.routed.weights import apply, present
from support import call

SPEC = "leaf-spine:spines=2,leaves=2,hosts=2,rate=12Mbps,buffer=100,degrade=e0-c0:4Mbps"
FABRIC = Fabric(SPEC)
PORTS = range(40000, 40400)
CHANGES = 40
"""Even, so that the last one makes all weights equal."""


def shares(lab: Lab, ipv6: bool) -> list[int]:
    """How many of the source ports take each path from h0 to h2, the fewest first."""
    blueprint = lab.blueprint()
    flow = Flow(blueprint.hosts[0].ports[0].address, blueprint.hosts[2].ports[0].address, 5201)
    with Prober(blueprint, flow, ipv6) as prober:
        found = prober.find(PORTS)
    assert len(found) == len(PORTS)
    return sorted(Counter(found.values()).values())


def routers_of(lab: Lab) -> Routers:
    routers = lab.routers()
    assert routers is not None
    return routers


def test_flows_take_next_hops_by_weight_and_no_packet_is_lost_by_a_change(name: str, tmp_path: Path) -> None:
    assert call("up", SPEC, "--switches", "kernel", "--name", name).code == 0
    lab, plan = Lab(name), tmp_path / "plan.json"
    before = present(routers_of(lab))
    dry = call("weights", "--scheme", "wcmp", "--dry-run", "--name", name, "--json", str(plan))
    assert (dry.code, "2 routes would change" in dry.out) == (0, True), dry.err
    assert present(routers_of(lab)) == before
    assert call("weights", "--plan", str(plan), "--name", name).code == 0
    for ipv6 in (False, True):
        fewest, most = shares(lab, ipv6)
        # Four standard deviations of 400 draws with 1 in 4.
        assert fewest == pytest.approx(len(PORTS) / 4, abs=35)
        assert fewest + most == len(PORTS)

    weighted, equal = (plan_of(lab.blueprint(), FABRIC, scheme) for scheme in ("wcmp", "ecmp"))
    with Probes(lab.blueprint(), lab.directory, [("h0", "h2"), ("h3", "h1")] * 4, rate_hz=200) as probes:
        for number in range(CHANGES):
            apply(routers_of(lab), equal if number % 2 else weighted)
        tracks = probes.stop()
    assert all(track.sent > CHANGES for track in tracks)
    assert [track.lost for track in tracks] == [0] * 8
    assert call("weights", "--clear", "--name", name).code == 0
    assert present(routers_of(lab)) == before
    groups = system.run_tool(["ip", "-n", lab.blueprint().switches[0].namespace, "nexthop", "show"])
    assert groups.count("group") == 2, "old groups are gone"
    assert call("down", "--name", name).code == 0
