"""Runs without packets, from the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pathloom as pl
from pathloom._core import PathloomError

if TYPE_CHECKING:
    from conftest import Cli

SEARCH: dict[str, Any] = {
    "fabric": "fat-tree:k=4,rate=1Gbps",
    "traffic": "web-search:load=0.4,max_size=1MB",
    "duration": "30ms",
    "runs": 1,
}


def test_the_same_flows_as_with_packets_without_figures_of_packets() -> None:
    fluid, packets = (pl.compare(schemes=["ecmp", "mptcp"], fidelity=kind, **SEARCH) for kind in ("fluid", "packets"))
    offered = ["scheme", "flow", "src", "dst", "src_port", "size_bytes", "start_s", "ideal_fct_s"]
    assert fluid.flows.select(offered).equals(packets.flows.select(offered))
    assert fluid.flows["finished"].all()
    assert (fluid.flows["fct_s"] >= fluid.flows["ideal_fct_s"] * 0.999).all()
    for name in ("retransmits", "timeouts", "timeout_wait_s", "initial_wait_s", "packets", "segments", "reordered"):
        assert fluid.flows[name].null_count() == fluid.flows.height, name
        assert packets.flows[name].null_count() == 0, name
    for name in ("sent_packets", "dropped_packets", "mean_queue", "pauses", "paused_s"):
        assert fluid.links[name].null_count() == fluid.links.height, name
    assert fluid.links["sent_bytes"].sum() > 0
    # The same data cross the links; with packets, some are sent again and others are lost on their way.
    assert fluid.links["sent_bytes"].sum() == pytest.approx(packets.links["sent_bytes"].sum(), rel=0.05)
    assert fluid.subflows["retransmits"].null_count() == fluid.subflows.height > 0


def test_the_result_says_what_it_is(cli: Cli, tmp_path: Path) -> None:
    words = ["--fabric", SEARCH["fabric"], "--traffic", SEARCH["traffic"], "--duration", "20ms", "--runs", "1"]
    done = cli(
        "compare", *words, "--schemes", "spt,hedera", "--fidelity", "fluid", "--series", "5ms", "--out", tmp_path
    )
    assert done.code == 0, done.err
    assert "flows are fair rates, without packets" in done.out + done.err
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["settings"]["fidelity"] == "fluid"
    for row in content["schemes"]:
        assert row["packets"]["sent"] is None is row["packets"]["dropped"]
        assert row["packets"]["events"] > 0
        assert row["retransmits"] is None is row["timeouts"]
        assert row["fct_s"]["mean"] > 0


def test_series_have_rates_and_no_queues() -> None:
    result = pl.run(
        scheme="ecmp", fidelity="fluid", series="5ms", **{key: value for key, value in SEARCH.items() if key != "runs"}
    )
    assert result.flow_series["goodput_bps"].sum() > 0
    assert result.link_series["rate_bps"].sum() > 0
    for name in ("mean_queue", "dropped_packets"):
        assert result.link_series[name].null_count() == result.link_series.height, name
    assert result.flow_series["window_bytes"].null_count() == result.flow_series.height


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"fidelity": "exact"}, "expected packets, skip or fluid"),
        ({"schemes": ["drill"]}, "choose by their queues or by probes; use --fidelity packets"),
        ({"schemes": ["tcp-path"]}, "run a program that decides about packets"),
        ({"transport": "uec"}, "use --fidelity packets, or a TCP transport or mptcp"),
        ({"worlds": ["lab"]}, "the lab carries packets"),
    ],
)
def test_what_needs_packets_is_refused_with_a_way_out(given: dict[str, object], part: str) -> None:
    with pytest.raises(PathloomError, match=part):
        pl.compare(**{"schemes": ["ecmp"], "fidelity": "fluid", **SEARCH, **given})
