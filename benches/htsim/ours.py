"""Runs Pathloom's packet simulator on a case, with the settings that the judge has."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from setups import (
    DELAY_NS,
    FRAME,
    HEADER,
    QUEUE_PACKETS,
    RATE_BPS,
    TCP_FRAME,
    TCP_MARK_PACKETS,
    TCP_PAYLOAD,
    TCP_QUEUE_PACKETS,
    WINDOW_PACKETS,
    Case,
    connection_matrix,
)

HERE = Path(__file__).resolve().parent
WINDOW = f"iw={WINDOW_PACKETS * FRAME}B,mtu={FRAME}B"
TRANSPORTS = {
    "ndp": f"ndp:{WINDOW},rto=50ms",
    "eqds": f"eqds:{WINDOW}",
    "dctcp": f"dctcp:mss={TCP_PAYLOAD}B,iw={10 * TCP_PAYLOAD}B,ssthresh={100 * TCP_PAYLOAD}B,"
    "acks=1,sack=off,rack=off,min_rto=250ms,initial_rto=3s,timers=exact,jitter=0s,handshake=on",
}


def scheme(case: Case, folder: Path) -> str:
    """The scheme that gives packets the same choice of paths as in the judge."""
    pinned = f"{HERE / 'pinned.py'}:Pinned:file={folder / 'paths.json'}"
    return pinned if case.is_tcp else "drb" if case.transport == "ndp-perm" else "ecmp"


def fabric(case: Case) -> str:
    """The fabric, with the ports that suit the transport."""
    slow_bps = RATE_BPS // case.slow.factor
    slow = "/".join(f"a0_0-c{core}:{RATE_BPS}bps+{slow_bps}bps" for core in range(case.slow.links))
    # htsim has queues of 43 packets without headers for ndp, and with them for eqds.
    queue_bytes = QUEUE_PACKETS * (FRAME if case.transport == "eqds" else FRAME - HEADER)
    port = f"queue_bytes={queue_bytes}B,trim=on"
    if case.is_tcp:
        # htsim counts the packet that leaves, and Pathloom does not.
        marked_bytes = (TCP_MARK_PACKETS - 1) * TCP_FRAME
        port = f"queue_bytes={TCP_QUEUE_PACKETS * TCP_FRAME}B,ecn={marked_bytes}B"
    degraded = f",degrade={slow}" if slow else ""
    return f"fat-tree:k={case.k},rate={RATE_BPS}bps,delay={DELAY_NS}ns,{port}{degraded}"


def switches(case: Case) -> Iterator[tuple[str, list[str]]]:
    """The aggregation switch and the core of each transfer, by its hosts."""
    half = case.k // 2
    for flow in case.flows:
        aggregation = f"a{flow.source // half**2}_{flow.aggregation}"
        yield f"h{flow.source}-h{flow.target}", [aggregation, f"c{flow.aggregation * half + flow.core}"]


def command(case: Case, folder: Path) -> list[str]:
    """The command line of a run."""
    line = [str(Path(sys.executable).parent / "pathloom"), "compare", "--fabric", fabric(case)]
    line += [
        "--traffic",
        f"flows:file={folder / 'flows.cm'}",
        "--transport",
        TRANSPORTS[case.transport.partition("-")[0]],
    ]
    line += ["--schemes", scheme(case, folder), "--duration", "1ms", "--until", "finished", "--runs", "1"]
    if case.is_tcp:
        # A path is in place before the SYN leaves.
        line += ["--control", "delay=0s,service=0s,install=0s"]
    return [*line, "--seed", str(case.seed), "--out", str(folder / "result"), "--json", "-"]


def run(case: Case) -> list[float]:
    """The FCT of each transfer in us, until its last acknowledgement is back, in the order of the case.

    A transfer completes when its last byte has arrived. In htsim it completes when the last acknowledgement is back, so
    the way back is added.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flows.cm").write_text(connection_matrix(case))
        (folder / "paths.json").write_text(json.dumps(dict(switches(case))))
        done = subprocess.run(command(case, folder), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case.key}: {done.stderr[-2000:]}")
        table = pl.read_parquet(folder / "result/flows.parquet").to_dict(as_series=False)
    rows = zip(table["src"], table["dst"], table["fct_s"], strict=True)
    fct_us = {(source, target): None if fct_s is None else fct_s * 1e6 for source, target, fct_s in rows}
    hop_us = DELAY_NS / 1e3 + HEADER * 8e6 / RATE_BPS
    times = []
    for flow in case.flows:
        time_us = fct_us[f"h{flow.source}", f"h{flow.target}"]
        if time_us is None:
            raise SystemExit(f"{case.key}: h{flow.source} to h{flow.target} did not finish")
        times.append(time_us + case.links_of(flow) * hop_us)
    return times
