"""Runs whose steady phases are skipped, from the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pathloom as pl
from pathloom import _core
from pathloom._core import PathloomError

if TYPE_CHECKING:
    from conftest import Cli

LONG: dict[str, Any] = {
    "fabric": "dumbbell:hosts=3,rate=1Gbps,switch_rate=1Gbps",
    "traffic": "long-lived:pattern=permutation",
    "transport": "newreno:rwnd=16KB",
    "duration": "3s",
}


def test_a_long_run_is_skipped_and_says_how_much(cli: Cli, tmp_path: Path) -> None:
    words = [word for key, value in LONG.items() for word in (f"--{key}", value)]
    done = cli(
        "compare", *words, "--runs", "2", "--schemes", "ecmp,hedera,drill", "--fidelity", "skip", "--out", tmp_path
    )
    assert done.code == 0, done.err
    text = done.out + done.err
    assert "of the simulated time was skipped, in" in text
    assert "scheme drill: nothing was skipped, because hosts or switches choose a path for each packet" in text
    assert "time skipped" in text
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["settings"]["fidelity"] == "skip"
    ecmp, hedera, drill = (row["skipped"] for row in content["schemes"])
    for skipped in (ecmp, hedera):
        assert skipped["share"] > 0.9
        assert skipped["jumps"] >= 2
    assert (drill["share"], drill["jumps"]) == (0, 0)
    for run in content["schemes"][0]["runs"]:
        assert run["skipped"]["obstacle"] is None
        packets = run["packets"]
        assert packets["sent"] == packets["delivered"] + packets["dropped"] + packets["in_flight"]


def test_series_and_figures_agree_with_packets() -> None:
    skip, packets = (pl.run(scheme="ecmp", fidelity=kind, series="500ms", **LONG) for kind in ("skip", "packets"))
    assert skip.flows["delivered_bytes"].to_list() == pytest.approx(
        packets.flows["delivered_bytes"].to_list(), rel=0.02
    )
    sampled, exact = (one.flow_series.sort("flow", "at_s")["goodput_bps"].to_list() for one in (skip, packets))
    assert sampled == pytest.approx(exact, rel=0.05, abs=1e6)
    again = pl.run(scheme="ecmp", fidelity="skip", **LONG)
    assert again.flows.equals(skip.flows), "series change nothing"
    assert "skipped" not in packets.summary["schemes"][0]


def test_packets_that_are_skipped_cannot_be_captured(tmp_path: Path) -> None:
    settings = {**LONG, "scheme": "ecmp", "seed": 1, "faults": [], "fidelity": "skip", "pcap": str(tmp_path / "a")}
    with pytest.raises(PathloomError, match="cannot be captured"):
        _core.Simulation(json.dumps(settings))
