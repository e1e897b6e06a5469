"""The live controller sends the orders of its scheme to hosts, and they carry them out."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from machine import timing
from support import compared, figures

LIVE = ["--worlds", "lab", "--lab", "controller=pathloom", "--runs", "1"]
DUMBBELL = "dumbbell:hosts=2,rate=4Mbps,buffer=100"
LONG_BYTES, SHORT_BYTES = 2_000_000, 500_000
PAYLOAD_BPS = 4e6 * 1448 / 1514


def test_ofpt_fills_the_live_fabric_and_ecmp_does_not() -> None:
    # At this rate, a machine with other work, or with slow timers and interrupts, still forwards every packet.
    fabric = ["--fabric", "fat-tree:k=4,rate=2Mbps,buffer=150", "--traffic", "long-lived:pattern=stride"]
    # Acknowledgements use the default routes, and ecmp hashes some of them onto full links.
    content = compared(*fabric, "--schemes", "ofpt:defaults=per-host,ecmp", "--duration", "6s", *LIVE)
    ofpt, ecmp = content["schemes"]
    figures(
        "mean throughput of stride",
        ofpt=round(ofpt["throughput"]["mean"], 3),
        ecmp=round(ecmp["throughput"]["mean"], 3),
    )
    with timing():
        assert ofpt["throughput"]["mean"] > 0.93
        assert ofpt["throughput"]["min"] > 0.9
        assert ecmp["throughput"]["mean"] < ofpt["throughput"]["mean"] - 0.1


def test_a_longer_transfer_waits_for_a_shorter_one(tmp_path: Path) -> None:
    flows = f"start_s,src,dst,size_bytes\n0,h0,h2,{LONG_BYTES}\n0.3,h0,h3,{SHORT_BYTES}\n"
    (tmp_path / "flows.csv").write_text(flows, encoding="ascii")
    traffic = ["--fabric", DUMBBELL, "--traffic", f"flows:file={tmp_path}/flows.csv", "--duration", "6s"]
    compared(*traffic, "--schemes", "ofpt:sizes=announced,ofpt:enforce=none", *LIVE, "--out", str(tmp_path / "out"))
    found = pl.read_parquet(tmp_path / "out" / "flows.parquet")
    fct_s = {
        scheme: of["fct_s"].to_list() for (scheme,), of in found.sort("flow").group_by(["scheme"], maintain_order=True)
    }
    alone_s = SHORT_BYTES * 8 / PAYLOAD_BPS
    both_s = (LONG_BYTES + SHORT_BYTES) * 8 / PAYLOAD_BPS
    with timing():
        assert fct_s["ofpt:sizes=announced"][1] < alone_s * 1.4
        assert fct_s["ofpt:enforce=none"][1] > alone_s * 1.5
        # The longer transfer loses no time by waiting.
        for scheme in fct_s:
            assert fct_s[scheme][0] == pytest.approx(both_s, rel=0.25)
