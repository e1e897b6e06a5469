"""The defaults of OFPT beside ecmp, on a collective whose hosts wait for no time-out."""

from __future__ import annotations

import json

import pytest

from conftest import Cli

COLLECTIVE = ["--traffic", "all-to-all:size=1MB,order=random", "--schemes", "ecmp,ofpt"]
RUNS = ["--duration", "2s", "--runs", "3", "--seed", "901"]


@pytest.mark.parametrize(
    ("fabric", "transport"),
    [
        ("fat-tree:k=4,rate=1Gbps,buffer=10000", "newreno"),
        ("fat-tree:k=4,rate=1Gbps", "newreno:min_rto=1ms,initial_rto=10ms"),
    ],
    ids=["deep buffers", "short time-outs"],
)
def test_the_median_of_a_collective_is_no_longer_than_under_ecmp(cli: Cli, fabric: str, transport: str) -> None:
    done = cli("compare", "--fabric", fabric, "--transport", transport, *COLLECTIVE, *RUNS, "--json", "-")
    assert done.code == 0, done.err
    ecmp, ofpt = json.loads(done.out)["schemes"]
    assert ofpt["flows"]["unfinished"] == ecmp["flows"]["unfinished"] == 0
    for figure in ("mean", "p50", "p99"):
        assert ofpt["fct_s"][figure] < ecmp["fct_s"][figure], figure
