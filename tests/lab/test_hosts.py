"""The live controller sends the orders of its scheme to hosts, and they carry them out."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from support import compared, measured

LIVE = ["--worlds", "lab", "--lab", "controller=pathloom", "--runs", "1"]
DUMBBELL = "dumbbell:hosts=2,rate=4Mbps,buffer=100"
LONG_BYTES, SHORT_BYTES = 2_000_000, 500_000


@pytest.mark.measure
def test_ofpt_fills_the_live_fabric_and_ecmp_does_not() -> None:
    # At this rate, a machine with other work, or with slow timers and interrupts, still forwards every packet.
    fabric = ["--fabric", "fat-tree:k=4,rate=2Mbps,buffer=150", "--traffic", "long-lived:pattern=stride"]
    # Acknowledgements use the default routes, and ecmp hashes some of them onto full links.
    content = compared(*fabric, "--schemes", "ofpt:defaults=per-host,ecmp", "--duration", "6s", *LIVE)
    ofpt, ecmp = content["schemes"]
    of_ofpt, of_ecmp = (row["throughput"]["mean"] for row in (ofpt, ecmp))
    measured("mean throughput of stride under ofpt", "share of the link", of_ofpt, of_ecmp, "ecmp, same flows")


@pytest.mark.measure
def test_a_longer_transfer_waits_for_a_shorter_one(tmp_path: Path) -> None:
    flows = f"start_s,src,dst,size_bytes\n0,h0,h2,{LONG_BYTES}\n0.3,h0,h3,{SHORT_BYTES}\n"
    (tmp_path / "flows.csv").write_text(flows, encoding="ascii")
    traffic = ["--fabric", DUMBBELL, "--traffic", f"flows:file={tmp_path}/flows.csv", "--duration", "6s"]
    compared(*traffic, "--schemes", "ofpt:sizes=announced,ofpt:enforce=none", *LIVE, "--out", str(tmp_path / "out"))
    found = pl.read_parquet(tmp_path / "out" / "flows.parquet")
    fct_s = {
        scheme: of["fct_s"].to_list() for (scheme,), of in found.sort("flow").group_by(["scheme"], maintain_order=True)
    }
    # A longer transfer that waits loses no time: both end when their bytes have passed one after the other.
    (enforced,) = (times_s for scheme, times_s in fct_s.items() if "enforce=none" not in scheme)
    (free,) = (times_s for scheme, times_s in fct_s.items() if "enforce=none" in scheme)
    for which, waiting_s, free_s in zip(("longer", "shorter"), enforced, free, strict=True):
        measured(f"the {which} of two transfers while the longer one waits", "s", waiting_s, free_s, "none waits")
