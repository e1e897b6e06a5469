"""Configurations for SONiC: tables of CONFIG_DB by the YANG models, weights for APPL_DB, and names of ports."""

from __future__ import annotations

import json
from ipaddress import IPv6Network, ip_address, ip_interface, ip_network
from pathlib import Path

import pytest

from conftest import Cli
from pathloom._core import PathloomError
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.plan import plan_of
from pathloom.lab.routed.sonic import Export, PortNames, exports_of

FABRIC = Fabric("leaf-spine:spines=2,leaves=2,hosts=2,rate=12Mbps,degrade=e0-c0:4Mbps")
BLUEPRINT = Blueprint.of("export", FABRIC, routed=True)


def exported(scheme: str = "wcmp", names: PortNames | None = None) -> dict[str, Export]:
    """The configurations by switch."""
    plan = plan_of(BLUEPRINT, FABRIC, scheme)
    return {one.switch: one for one in exports_of(BLUEPRINT, plan, names or PortNames({}), True)}


def test_both_ends_of_a_cable_have_addresses_of_one_prefix_and_are_next_hops_of_each_other() -> None:
    found = exported()
    own = {
        ip_interface(key.split("|")[1]): (name, key.split("|")[0])
        for name, one in found.items()
        for key in one.config["INTERFACE"]
        if "|" in key
    }
    assert len(own) == 2 * 2 * 4, "four cables, two ends, two families"
    at = {str(end.ip): place for end, place in own.items()}
    for end, place in own.items():
        (other,) = (place_of for far, place_of in own.items() if far.network == end.network and far != end)
        assert other[0] != place[0]
    for name, one in found.items():
        for key, fields in one.config["STATIC_ROUTE"].items():
            vrf, prefix = key.split("|")
            assert vrf == "default"
            hops, ports = fields["nexthop"].split(","), fields["ifname"].split(",")
            assert len(hops) == len(ports) >= 1
            for hop, port in zip(hops, ports, strict=True):
                assert ip_address(hop).version == ip_network(prefix).version
                (link,) = (
                    end for end, place in own.items() if place == (name, port) and ip_address(hop) in end.network
                )
                assert str(link.ip) != hop
                assert at[hop][0] != name


def test_weights_are_entries_of_appl_db_beside_plain_routes() -> None:
    e0 = exported()["e0"]
    assert [row["OP"] for row in e0.routes] == ["SET", "SET"]
    fields = e0.routes[0]["ROUTE_TABLE:10.0.1.0/24"]
    plain = e0.config["STATIC_ROUTE"]["default|10.0.1.0/24"]
    assert fields == {**plain, "weight": "1,3"}
    assert all("weight" not in row for row in e0.config["STATIC_ROUTE"].values()), "CONFIG_DB has no weights"
    assert sorted(e0.files()) == ["config_db.json", "routes.json"]
    equal = exported("ecmp")["e0"]
    assert equal.config == e0.config
    assert sorted(equal.files()) == ["config_db.json"]


def test_each_switch_has_a_segment_and_one_for_each_cable() -> None:
    seen: set[IPv6Network] = set()
    for one in exported().values():
        locator = one.config["SRV6_MY_LOCATORS"]["pathloom"]
        lengths = [int(locator[key]) for key in ("block_len", "node_len", "func_len")]
        sids = {IPv6Network(key.split("|")[1]): row for key, row in one.config["SRV6_MY_SIDS"].items()}
        (node,) = (prefix for prefix, row in sids.items() if row["action"] == "uN")
        assert (str(node.network_address), node.prefixlen) == (locator["prefix"], sum(lengths[:2]))
        cables = {prefix: row["interface"] for prefix, row in sids.items() if row["action"] == "uA"}
        assert all(prefix.subnet_of(node) and prefix.prefixlen == sum(lengths) for prefix in cables)
        assert sorted(cables.values()) == sorted(key for key in one.config["INTERFACE"] if "|" not in key)
        assert not seen & sids.keys()
        seen |= sids.keys()


def test_names_of_ports_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    file.write_text('{"e0": {"3": "Ethernet100", "4": "Ethernet104"}}', encoding="utf-8")
    found = exported(names=PortNames.read(file))
    assert found["e0"].config["STATIC_ROUTE"]["default|10.0.1.0/24"]["ifname"] == "Ethernet100,Ethernet104"
    assert "Ethernet8" in found["e1"].config["INTERFACE"]
    for text, said in (
        ('{"e0": {"3": "eth0"}}', "`eth0` is no port such as Ethernet48"),
        ('{"e0": {"3": "Ethernet0", "4": "Ethernet0"}}', "two ports are called Ethernet0"),
        ("[]", "expected JSON such as"),
        ('{"e0": {"3": "Ethernet0"}}', "e0 has no name for port 4"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(PathloomError) as refused:
            exported(names=PortNames.read(file))
        assert said in str(refused.value)


def test_the_command_writes_a_folder_for_each_switch_or_nothing(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "configurations"
    outcome = cli("export", "sonic", FABRIC.spec, "--scheme", "wcmp", "--dry-run")
    assert outcome.code == 0
    assert list(tmp_path.iterdir()) == []
    assert cli("export", "sonic", FABRIC.spec, "--scheme", "wcmp", "--out", str(out)).code == 0
    assert sorted(one.name for one in out.iterdir()) == ["c0", "c1", "e0", "e1"]
    assert json.loads((out / "e0" / "config_db.json").read_text(encoding="utf-8")).keys() == {
        "INTERFACE",
        "STATIC_ROUTE",
    }
    again = cli("export", "sonic", FABRIC.spec, "--out", str(out))
    assert (again.code, "expected a new folder" in again.err) == (2, True)
    for wrong in ((), ("--dry-run", "--scheme", "hedera:x=1"), ("--dry-run", "--scheme", "ecmp", "--plan", "x")):
        assert cli("export", "sonic", FABRIC.spec, *wrong).code == 2
    assert Export("../x", {}, [], 7).folder == "switch7"
