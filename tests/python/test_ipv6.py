"""Fabrics whose hosts have IPv6 addresses: in results, and refused where rules are for IPv4."""

from __future__ import annotations

from ipaddress import IPv6Address
from pathlib import Path

import polars as pl

from conftest import Cli
from pathloom.fabrics import Fabric
from pathloom.lab.routed import numbering

K4, K4_V6 = "fat-tree:k=4,rate=100Mbps", "fat-tree:k=4,rate=100Mbps,addresses=ipv6"


def test_hosts_have_the_addresses_that_labs_of_routers_give_them() -> None:
    before, now = (Fabric(spec).core.addresses() for spec in (K4, K4_V6))
    assert [row[1:] for row in before] == [row[1:] for row in now]
    for (of_v4, _, _), (of_v6, _, _) in zip(before, now, strict=True):
        assert IPv6Address(of_v6) == numbering.host6(of_v4) in numbering.HOSTS6
    assert now[0][0] == "fd70:6c:0:a::a00:1"


def test_results_have_addresses_of_ipv6(cli: Cli, tmp_path: Path) -> None:
    setup = ["--traffic", "long-lived:pattern=stride", "--duration", "50ms", "--runs", "1"]
    done = cli(
        "compare", "--fabric", K4_V6, *setup, "--schemes", "ecmp,mptcp:subflows=2", "--out", str(tmp_path / "out")
    )
    assert done.code == 0, done.err
    subflows = pl.read_parquet(tmp_path / "out/subflows.parquet")
    addresses = {address for address, _, _ in Fabric(K4_V6).core.addresses()}
    assert subflows.height == 16 * 2
    assert set(subflows["src_address"]) | set(subflows["dst_address"]) == addresses


def test_labs_refuse_a_fabric_of_ipv6(cli: Cli) -> None:
    done = cli("lab", "plan", K4_V6)
    assert done.code == 2
    assert "addresses= is for the simulator only; leave out what the lab cannot do" in done.err


def test_an_unknown_family_is_named(cli: Cli) -> None:
    done = cli("fabric", "show", "fat-tree:k=4,addresses=ipx")
    assert done.code == 2
    assert "addresses: `ipx` is neither ipv4 nor ipv6" in done.err
