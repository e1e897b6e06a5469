"""Numbers, routes and configurations of a lab of routers, which need no root."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from conftest import Cli
from pathloom import _core
from pathloom.experiments.settings.model import LabSettings
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed import frr, numbering
from pathloom.lab.routed.routers import Routers
from pathloom.lab.routed.routes import (
    Route,
    longest,
    next_switches,
    prefixes_of_tors,
    route_lines,
    routes_of,
)
from pathloom.lab.routed.settings import RouterSettings, check_routed
from pathloom.lab.tables import default_tables

K4 = "fat-tree:k=4,rate=10Mbps,buffer=150"


def routed(spec: str, scheme: str = "ecmp") -> tuple[Fabric, Blueprint, dict[int, list[Route]]]:
    fabric = Fabric(spec)
    blueprint = Blueprint.of("x", fabric, routed=True)
    return fabric, blueprint, routes_of(blueprint, default_tables(fabric, scheme))


def numbers(spec: str) -> dict[str, int]:
    fabric, blueprint, routes = routed(spec)
    found = numbering.as_numbers(fabric, next_switches(blueprint, fabric, routes))
    return {fabric.nodes[node]["name"]: number - numbering.FIRST_AS for node, number in found.items()}


def walks(blueprint: Blueprint, fabric: Fabric, routes: dict[int, list[Route]], at: int, address: str) -> Iterator[int]:
    """The number of links of every way along routes from a switch to a host."""
    route = longest(routes[at], address)
    assert route is not None, f"switch {at} has no route to {address}"
    for link, _ in route.hops:
        further = fabric.links["target"][link]
        if fabric.nodes[further]["tier"] == "host":
            assert (address, further) in [(one, host) for one, host, _ in fabric._core.addresses()]
            yield 1
        else:
            yield from (1 + length for length in walks(blueprint, fabric, routes, further, address))


def test_each_router_has_a_namespace_of_its_own() -> None:
    _, blueprint, _ = routed(K4)
    assert len(set(blueprint.switch_namespaces)) == 20
    assert blueprint.switch_namespaces[0] == "pathloom.x.e0_0"
    assert all(len(blueprint.ports_in(switch.namespace)) == 4 for switch in blueprint.switches)
    assert Blueprint.from_dict(blueprint.to_dict()) == blueprint


def test_the_addresses_of_a_cable_are_a_subnet_and_name_their_link() -> None:
    for link in range(0, 300, 2):
        ends = [numbering.link_address(link), numbering.link_address(link + 1)]
        assert list(IPv4Network((ends[0], 31))) == ends
        assert [numbering.link_of(str(end)) for end in ends] == [link, link + 1]
        assert numbering.link_of(str(numbering.link_address6(link))) == link
    assert numbering.link_of(str(numbering.router_address(7))) is None
    assert len({numbering.mac_of_link(link) for link in range(300)}) == 300


def test_a_fabric_with_too_many_links_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    numbering.check_size(Fabric(K4))
    monkeypatch.setattr(numbering, "_LINKS", IPv4Network("172.24.0.0/28"))
    with pytest.raises(_core.PathloomError, match="has addresses for up to 16 directed links"):
        numbering.check_size(Fabric(K4))


def test_a_fat_tree_has_the_as_numbers_of_rfc_7938() -> None:
    # One for each ToR, one for the aggregation switches of each pod, one for all cores.
    found = numbers(K4)
    assert [found[f"e{pod}_{one}"] for pod in range(4) for one in range(2)] == list(range(8))
    assert [found[f"a{pod}_{one}"] for pod in range(4) for one in range(2)] == [8, 8, 9, 9, 10, 10, 11, 11]
    assert {found[f"c{one}"] for one in range(4)} == {12}


@pytest.mark.parametrize(
    "spec", ["jellyfish:switches=8,ports=5,hosts=8,seed=2", "vl2:d0=2,d1=4,d2=4,hosts=4", "diamond", "dumbbell:hosts=2"]
)
def test_no_shortest_path_has_an_as_number_twice(spec: str) -> None:
    # A router would refuse such a path.
    fabric, blueprint, routes = routed(spec)
    found = numbering.as_numbers(fabric, next_switches(blueprint, fabric, routes))
    for following in next_switches(blueprint, fabric, routes):
        for start in following:
            waiting = [[start]]
            while waiting:
                way = waiting.pop()
                assert len({found[switch] for switch in way}) == len(way), way
                waiting += [[*way, further] for further in following[way[-1]]]


@pytest.mark.parametrize(("scheme", "ways"), [("ecmp", 4), ("spt", 1)])
def test_routes_lead_to_every_host_on_shortest_paths(scheme: str, ways: int) -> None:
    fabric, blueprint, routes = routed(K4, scheme)
    for host in blueprint.hosts:
        for switch in (0, 5):
            tor = fabric.links["target"][host.ports[0].link]
            pod = fabric.nodes[tor]["pod"] == fabric.nodes[switch]["pod"]
            lengths = list(walks(blueprint, fabric, routes, switch, host.ports[0].address))
            expected = [1] if tor == switch else [3] * min(2, ways) if pod else [5] * ways
            assert lengths == expected, (host.name, switch)


def test_the_lines_of_routes_have_both_families_and_groups_of_next_hops() -> None:
    _, blueprint, routes = routed(K4)
    hosts = {port.link ^ 1 for host in blueprint.hosts for port in host.ports}
    lines = list(route_lines(blueprint.ports_in("pathloom.x.e0_0"), routes[0], hosts))
    assert "nexthop add id 33 via 172.24.0.33 dev l32" in lines
    (group,) = [line.split()[3] for line in lines if line.endswith("group 33,1/35,1")]
    assert f"route add 10.0.0.0/21 nhid {group}" in lines
    assert f"route add fd70:6c:0:a::a00:0/117 nhid {int(group) + 1}" in lines
    assert not [line for line in lines if "10.0.0.1/32" in line]


def test_rules_that_are_no_routes_are_refused() -> None:
    fabric = Fabric(K4)
    blueprint = Blueprint.of("x", fabric, routed=True)
    tables = default_tables(fabric, "ecmp")
    tables[3][1][-1]["matches"]["dst_port"] = 80
    with pytest.raises(_core.PathloomError, match="routers forward by destination only"):
        routes_of(blueprint, tables)


def test_the_configuration_of_bgp_has_neighbours_prefixes_and_bfd() -> None:
    fabric, blueprint, routes = routed(K4)
    settings = RouterSettings.of("frr", "ecmp")
    tor, aggregation = (Routers(blueprint, Path("/nowhere"), settings).routers(fabric, routes)[one] for one in (0, 8))
    text = frr.bgp_config(tor)
    first = numbering.FIRST_AS
    for line in (
        f"router bgp {first}", " bgp router-id 172.16.0.1", " bgp bestpath as-path multipath-relax",
        f" neighbor 172.24.0.33 remote-as {first + 8}", f" neighbor 172.24.0.35 remote-as {first + 8}",
        "  network 10.0.0.0/24", "  network fd70:6c:0:a::a00:0/120", "  maximum-paths 64",
        " neighbor FABRIC bfd profile fabric",
    ):  # fmt: skip
        assert line in text.splitlines(), line
    assert "network" not in frr.bgp_config(aggregation).replace("no bgp network import-check", "")
    assert len(aggregation.neighbours) == 4
    slow = Routers(blueprint, Path("/nowhere"), RouterSettings.of("frr:bfd=off", "spt")).routers(fabric, routes)[0]
    assert "bfd" not in frr.bgp_config(slow)
    assert "  maximum-paths 1" in frr.bgp_config(slow).splitlines()
    assert slow.daemons == ("zebra", "bgpd")


def test_tors_that_share_a_prefix_announce_single_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, blueprint, _ = routed(K4)
    assert prefixes_of_tors(blueprint, fabric)[3] == [IPv4Network("10.0.3.0/24")]
    links = dict(fabric.links)
    uplink = blueprint.hosts[0].ports[0].link
    links["target"] = [3 if link == uplink else end for link, end in enumerate(links["target"])]
    monkeypatch.setattr(fabric, "links", links)
    found = prefixes_of_tors(blueprint, fabric)
    assert found[0] == [IPv4Network("10.0.0.2/32")]
    assert found[3] == [IPv4Network("10.0.0.1/32"), IPv4Network("10.0.3.0/24")]


@pytest.mark.parametrize(
    ("lab", "scheme", "said"),
    [
        ("switches=kernel", "hedera", "scheme `hedera`: routers .kernel. choose paths by destination and hash"),
        ("switches=kernel,controller=pathloom", "ecmp", "leave controller= and daemons= out"),
        ("switches=kernel,daemons=2", "ecmp", "leave controller= and daemons= out"),
    ],
)
def test_what_routers_cannot_carry_is_refused(lab: str, scheme: str, said: str) -> None:
    with pytest.raises(_core.PathloomError, match=said):
        check_routed(LabSettings.parse(lab), [scheme])
    check_routed(LabSettings.parse("switches=kernel"), ["ecmp", "spt"])


def test_a_missing_frr_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frr, "BINARIES", tmp_path)
    with pytest.raises(_core.PathloomError, match=r"zebra is missing; on Debian: scripts/prepare.sh lab, or apt-get"):
        check_routed(LabSettings.parse("switches=frr"), ["ecmp"])


def test_bad_switches_are_named_with_the_valid_ones(cli: Cli) -> None:
    wrong = cli("lab", "up", K4, "--switches", "quagga")
    assert (wrong.code, "expected one of kernel, frr, frr:bfd=off, tcp-path" in wrong.err) == (2, True)
    both = cli("lab", "up", K4, "--switches", "kernel", "--daemons", "2")
    assert (both.code, "leave out --controller, --arp and --daemons" in both.err) == (2, True)
    central = cli("lab", "up", K4, "--switches", "kernel", "--scheme", "ofpt")
    assert (central.code, "scheme `ofpt`: routers" in central.err) == (2, True)
