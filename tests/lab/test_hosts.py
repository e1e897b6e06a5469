"""The live controller tells hosts what its scheme wants of them, and they do it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pathloom.fabrics import Fabric
from pathloom.lab import controller
from pathloom.lab.lab import Lab
from pathloom.lab.runs import run_agent
from support import compared

LIVE = ["--worlds", "lab", "--lab", "controller=pathloom", "--runs", "1"]
DUMBBELL = "dumbbell:hosts=2,rate=4Mbps,buffer=100"
LONG_BYTES, SHORT_BYTES = 2_000_000, 500_000
PAYLOAD_BPS = 4e6 * 1448 / 1514


def test_ofpt_fills_the_fabric_live_and_ecmp_does_not() -> None:
    # A machine with other work still carries this rate in full.
    fabric = ["--fabric", "fat-tree:k=4,rate=4Mbps,buffer=150", "--traffic", "long-lived:pattern=stride"]
    content = compared(*fabric, "--schemes", "ofpt,ecmp", "--duration", "6s", *LIVE)
    ofpt, ecmp = content["schemes"]
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
    assert fct_s["ofpt:sizes=announced"][1] < alone_s * 1.4
    assert fct_s["ofpt:enforce=none"][1] > alone_s * 1.5
    # Nothing is lost by waiting.
    for scheme in fct_s:
        assert fct_s[scheme][0] == pytest.approx(both_s, rel=0.25)


def test_a_lost_controller_holds_nobody(name: str) -> None:
    lab = Lab(name)
    period_s, polls = 0.5, 3
    lab.up(Fabric(DUMBBELL), controller.OWN, f"ofpt:sizes=announced,period={period_s}s")
    process = lab.controller_process()
    hosts = {host.name: host.ports[0].address for host in lab.blueprint().hosts}
    namespaces = {host.ports[0].address: host.namespace for host in lab.blueprint().hosts}

    def flow(start_ns: int, size_bytes: int, port: int) -> dict[str, Any]:
        ends = {"src_address": hosts["h0"], "dst_address": hosts["h2"], "src_port": port, "dst_port": 5001}
        return {"start_ns": start_ns, "after": [], "size_bytes": size_bytes, "dscp": 8, **ends}

    def report(now_s: float) -> None:
        # By now the second flow, which is longer, has been told to wait.
        if now_s > 0.4 and process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    flows = [flow(0, LONG_BYTES, 40_000), flow(100_000_000, LONG_BYTES + SHORT_BYTES, 40_001)]
    plan = {"duration_ns": 3_500_000_000, "drain": 0, "namespaces": namespaces, "flows": flows}
    try:
        result = run_agent(lab, {**plan, "orders": str(lab.directory / controller.HOSTS_SOCKET)}, report)
    finally:
        lab.release()
    first, second = result["flows"]
    assert (first["error"], second["error"]) == (None, None)
    assert process.poll() is not None
    # Held from its first byte on, it sends once the lease is over, though the other one is under way still.
    assert first["finish_ns"] < 0
    assert 0 < second["delivered_bytes"] < PAYLOAD_BPS / 8 * (3.5 - 0.4 - period_s * polls)
