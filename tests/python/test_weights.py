"""Plans of weights: from schemes and files, as lines for routers, and as differences."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from pathloom._core import PathloomError
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.plan import Plan, plan_of, read_plan
from pathloom.lab.routed.routers import Routers
from pathloom.lab.routed.routes import FIRST_GROUP, Route
from pathloom.lab.routed.settings import RouterSettings
from pathloom.lab.routed.weights import change_lines, check_weights, differences

FABRIC = Fabric("leaf-spine:spines=2,leaves=2,hosts=2,rate=12Mbps,degrade=e0-c0:4Mbps")
BLUEPRINT = Blueprint.of("lab", FABRIC, routed=True)
PREFIX = IPv4Network("10.0.1.0/24")
(E0,) = (switch.node for switch in BLUEPRINT.switches if switch.name == "e0")
UP = {
    FABRIC.nodes[FABRIC.links["target"][port.link]]["name"]: port.link
    for port in BLUEPRINT.switch_ports
    if port.switch == E0
}
"""Link from e0 by the node that it leads to."""


def written(file: Path, *changes: dict[str, Any]) -> Path:
    """A file with a route of e0 for each set of changes."""
    hops = [{"to": "c0", "weight": 1}, {"to": "c1", "weight": 3}]
    rows = [{"switch": "e0", "prefix": str(PREFIX), "next_hops": hops, **change} for change in changes]
    file.write_text(json.dumps({"routes": rows}), encoding="utf-8")
    return file


def test_wcmp_weighs_next_hops_by_the_capacity_behind_them(tmp_path: Path) -> None:
    plan = plan_of(BLUEPRINT, FABRIC, "wcmp")
    wanted = Route(PREFIX, ((UP["c0"], 1), (UP["c1"], 3)))
    assert plan.routes[E0] == (wanted,)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan.to_dict(BLUEPRINT, FABRIC)), encoding="utf-8")
    again = read_plan(file, BLUEPRINT, FABRIC)
    assert {switch: own for switch, own in plan.routes.items() if own} == again.routes
    assert read_plan(written(file, {}), BLUEPRINT, FABRIC) == Plan({E0: (wanted,)}), "cables need no number"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"switch": "e00"}, "`e00` is no switch; did you mean `e0`"),
        ({"prefix": "10.0.9.0/24"}, "10.0.9.0/24 has no prefix of a ToR; did you mean"),
        ({"prefix": "10.0.1.1/24"}, "expected `switch`, `prefix`"),
        ({"next_hops": []}, "at least one next hop"),
        ({"next_hops": [{"to": "c0", "weight": 0}]}, "weight 0: expected 1 to 255"),
        ({"next_hops": [{"to": "c0", "weight": 256}]}, "weight 256: expected 1 to 255"),
        ({"next_hops": [{"to": "c0", "weight": 1.5}]}, "weight 1.5"),
        ({"next_hops": [{"to": "e1", "weight": 1}]}, "next hop `e1` of e0: no cable leads there"),
        ({"next_hops": [{"to": "c0", "weight": 1, "link": UP["c1"]}]}, "no cable leads there"),
        ({"next_hops": [{"to": "c0", "weight": 1}] * 2}, "each cable once"),
        ({"next_hops": {"to": "c0"}}, "expected `switch`, `prefix`"),
    ],
)
def test_routes_that_do_not_fit_the_fabric_are_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = written(tmp_path / "plan.json", {"switch": "e1", "prefix": "10.0.0.0/24"}, change)
    with pytest.raises(PathloomError, match=r"plan\.json: route 2: ") as refused:
        read_plan(file, BLUEPRINT, FABRIC)
    assert said in str(refused.value)


def test_files_that_are_no_plans_are_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for text in ("{", "[]", '{"routes": 1}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(PathloomError, match="expected JSON with a list `routes`"):
            read_plan(file, BLUEPRINT, FABRIC)
    with pytest.raises(PathloomError, match="route 2: e0 has another route"):
        read_plan(written(file, {}, {}), BLUEPRINT, FABRIC)


def test_new_groups_are_made_before_routes_take_them() -> None:
    other = Route(IPv4Network("10.0.2.0/24"), ((8, 1),))
    lines = change_lines([Route(PREFIX, ((8, 1), (10, 3))), other], FIRST_GROUP)
    assert lines == [
        "nexthop add id 2097152 group 9,1/11,3",
        "nexthop add id 2097153 group 1048585,1/1048587,3",
        "route replace 10.0.1.0/24 nhid 2097152",
        "route replace fd70:6c:0:a::a00:100/120 nhid 2097153",
        "route replace 10.0.2.0/24 nhid 9",
        "route replace fd70:6c:0:a::a00:200/120 nhid 1048585",
    ]


def test_only_routes_with_other_weights_are_differences() -> None:
    plan = Plan({E0: (Route(PREFIX, ((8, 1), (10, 3))),)})
    assert differences(BLUEPRINT, {E0: {str(PREFIX): ((8, 1), (10, 3))}}, plan) == []
    for before in ({}, {E0: {str(PREFIX): ((8, 1), (10, 1))}}):
        ((switch, prefix, found, planned),) = differences(BLUEPRINT, before, plan)
        assert (switch, prefix, planned) == ("e0", str(PREFIX), ((8, 1), (10, 3)))
        assert found == before.get(E0, {}).get(str(PREFIX), ())


def test_weights_are_for_static_routes(tmp_path: Path) -> None:
    assert RouterSettings.of("kernel", "wcmp").routes == "weighted"
    with pytest.raises(PathloomError, match="spt, ecmp and mptcp only"):
        RouterSettings.of("frr", "wcmp")
    with pytest.raises(PathloomError, match="BGP chooses the next hops"):
        check_weights(Routers(BLUEPRINT, tmp_path, RouterSettings.of("frr", "ecmp")))
