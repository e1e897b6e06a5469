"""Runs Pathloom's packet simulator on a case, with the settings that the judge has."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
from setups import BASE_RTT_NS, DELAY_NS, HOSTS_PER_LEAF, LEAVES, SPINES, Case, flow_file, ideal_ns

HEADER = 66
XOFF = "500KB"
"""The artefact has a sixteenth of what is free of 8.6 MB: up to 537 KB, and less the more bytes wait in the switch."""
BALANCERS = {
    "ecmp": "ecmp",
    "letflow": "letflow:gap=100us",
    "conga": "conga:gap=100us,tau=250us",
    "drill": "drill:d=2,m=1",
}
CONTROLS = {
    "dcqcn": "roce:cc=dcqcn,cnp=4us,gain=0.0155,alpha_timer=4us,timer=300us,step_bytes=1TB,stages=1,rai=40Mbps,"
    "rhai=100Mbps,min_rate=100Mbps,clamp=off",
    "hpcc": f"hpcc:eta=0.95,max_stage=5,wai=42B,base_rtt={BASE_RTT_NS}ns",
    "timely": "roce:cc=timely,t_low=50us,t_high=500us,delta=100Mbps,hai=5,beta=0.8,ewma=0.875,min_rtt=20us",
}


def fabric() -> str:
    """The fabric of the artefact."""
    shape = f"spines={SPINES},leaves={LEAVES},hosts={HOSTS_PER_LEAF},rate=100Gbps,delay={DELAY_NS}ns"
    return f"leaf-spine:{shape},pfc={XOFF},ecn=100KB/400KB/0.2"


def command(case: Case, folder: Path) -> list[str]:
    """The command line of a run."""
    transport = f"{CONTROLS[case.control]},mtu=1024B,acks=1"
    line = [str(Path(sys.executable).parent / "pathloom"), "compare", "--fabric", fabric()]
    line += ["--traffic", f"flows:file={folder / 'flow.txt'}", "--transport", transport]
    line += ["--schemes", BALANCERS[case.balancer], "--duration", "20ms", "--until", "finished", "--runs", "1"]
    return [*line, "--seed", "1", "--out", str(folder / "result"), "--json", "-"]


def run(case: Case) -> list[float]:
    """The slowdown of each flow, in the order of the case.

    A flow completes when its last byte has arrived. In the artefact it completes when the last acknowledgement is back,
    so the way back is added.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flow.txt").write_text(flow_file(case.flows))
        done = subprocess.run(command(case, folder), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case.name}: {done.stderr[-2000:]}")
        row = json.loads(done.stdout)["schemes"][0]
        table = pl.read_parquet(folder / "result/flows.parquet").sort("flow").to_dict(as_series=False)
    if row["packets"]["dropped"]:
        raise SystemExit(f"{case.name}: {row['packets']['dropped']} packets were dropped, with PFC")
    if not all(table["finished"]) or len(table["flow"]) != len(case.flows):
        raise SystemExit(f"{case.name}: {sum(table['finished'])} of {len(case.flows)} flows finished")
    slowdowns = []
    for flow, size_bytes, fct_s in zip(case.flows, table["size_bytes"], table["fct_s"], strict=True):
        assert size_bytes == flow.size_bytes, "flows of the result are not in the order of the file"
        back_ns = (2 if flow.stays_in_leaf else 4) * DELAY_NS
        slowdowns.append(max(1.0, (fct_s * 1e9 + back_ns) / ideal_ns(flow, HEADER)))
    return slowdowns
