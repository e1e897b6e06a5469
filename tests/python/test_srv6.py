"""Paths as lists of segments: which links and lines a list of routers gives."""

from __future__ import annotations

import pytest

from pathloom._core import PathloomError
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed import srv6
from pathloom.lab.routed.entropy import sources_of

BLUEPRINT = Blueprint.of("lab", Fabric("fat-tree:k=4"), routed=True)
(_, START), (_, END), (_, NEAR) = (BLUEPRINT.host_port(name) for name in ("h0", "h15", "h1"))


def names(path: tuple[int, ...]) -> list[str]:
    """The routers of a path."""
    known = {switch.node: switch.name for switch in BLUEPRINT.switches}
    return [known[sources_of(BLUEPRINT)[link]] for link in path[1:]]


@pytest.mark.parametrize("via", [["a0_0", "c1", "a3_0"], ["e0_0", "a0_0", "c1", "a3_0", "e3_1"]])
def test_a_path_leads_over_the_named_routers(via: list[str]) -> None:
    path = srv6.path_via(BLUEPRINT, START, END, via)
    assert names(path) == ["e0_0", "a0_0", "c1", "a3_0", "e3_1"]
    assert (path[0], path[-1]) == (START.link, END.link ^ 1)
    assert srv6.ends_of(BLUEPRINT, path) == (START, END)
    line = srv6.path_line(BLUEPRINT, path)
    assert line.startswith("route replace fd70:6c:0:a::a00:702/128 encap seg6 mode inline segs fd70:6c:0:5::")
    assert line.count(",") == 3
    assert [f"{srv6.segment(link)}" in line for link in path] == [False, True, True, True, True, False]


def test_a_path_need_not_be_short() -> None:
    via = ["a0_1", "c2", "a1_1", "c3", "a3_1"]
    assert names(srv6.path_via(BLUEPRINT, START, END, via)) == ["e0_0", *via, "e3_1"]
    assert names(srv6.path_via(BLUEPRINT, START, NEAR, ["a0_0"])) == ["e0_0", "a0_0", "e0_0"]


@pytest.mark.parametrize(
    ("via", "said"),
    [
        (["a0_0", "c2", "a3_0"], "no cable leads from a0_0 to c2"),
        (["a0_0", "c1"], "no cable leads from c1 to e3_1"),
        (["a00"], "`a00` is no router; did you mean `a0_0`"),
        (["h1"], "`h1` is no router"),
        (["a0_0", "e0_0"] * 8, "segments; expected at most 16"),
    ],
)
def test_routers_that_do_not_fit_are_named(via: list[str], said: str) -> None:
    target = NEAR if len(via) > 8 else END
    with pytest.raises(PathloomError) as refused:
        srv6.path_via(BLUEPRINT, START, target, [*via, "a0_0"] if target == NEAR else via)
    assert said in str(refused.value)


def test_hosts_at_one_router_have_one_path() -> None:
    path = srv6.path_via(BLUEPRINT, START, NEAR, [])
    assert path == (START.link, NEAR.link ^ 1)
    with pytest.raises(PathloomError, match="one path only"):
        srv6.path_line(BLUEPRINT, path)
    with pytest.raises(PathloomError, match="do not lead from host to host"):
        srv6.path_line(BLUEPRINT, (START.link, 32))


def test_each_router_has_a_segment_for_each_cable_to_another_one() -> None:
    to_hosts = {port.link ^ 1 for host in BLUEPRINT.hosts for port in host.ports}
    (tor,) = (switch for switch in BLUEPRINT.switches if switch.name == "e0_0")
    *made, first, second = list(srv6.router_lines(BLUEPRINT.ports_in(tor.namespace), to_hosts))
    assert len(made) == 3
    for line, other in zip((first, second), ("a0_0", "a0_1"), strict=True):
        (link,) = srv6.path_via(BLUEPRINT, START, NEAR, [other])[1:2]
        assert line.startswith(f"route replace {srv6.segment(link)} encap seg6local action End.X ")
        assert line.endswith(f" dev {srv6.ANCHOR}")
