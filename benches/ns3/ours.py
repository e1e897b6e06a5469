"""Pathloom's side."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from setups import ACCESS_BUFFER, ACCESS_DELAY_NS, Dumbbell

from pathloom import _core


def run_dumbbell(setup: Dumbbell, seed: int) -> dict[str, Any]:
    """Returns goodput, mean queue of the shared cable, retransmissions and time-outs."""
    fabric = (
        f"dumbbell:hosts={setup.flows},host_rate=1Gbps,host_delay={ACCESS_DELAY_NS}ns,host_buffer={ACCESS_BUFFER},"
        f"switch_rate={setup.rate_bps}bps,switch_delay={setup.delay_ms}ms,switch_buffer={setup.buffer}"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as flows:
        flows.write("start_s,src,dst,size_bytes\n")
        flows.writelines(f"{start},{i},{i + setup.flows},\n" for i, start in enumerate(setup.starts_s(seed)))
        flows.flush()
        simulation = _core.Simulation(_settings(setup, fabric, Path(flows.name)))
    simulation.advance(setup.duration_s)
    outcome = simulation.outcome()
    shared = _shared_cable(fabric)
    flow_columns, links = outcome["flows"], outcome["links"]
    return {
        "goodput_bps": int(flow_columns["delivered_bytes"].sum()) * 8 / setup.duration_s,
        "mean_queue": float(links["mean_queue"][shared]),
        "drops": int(links["dropped_packets"][shared]),
        "retransmits": int(flow_columns["retransmits"].sum()),
        "timeouts": int(flow_columns["timeouts"].sum()),
    }


def _settings(setup: Dumbbell, fabric: str, flows: Path) -> str:
    sack = "on" if setup.sack else "off"
    transport = f"{setup.tcp}:sack={sack},small_queues=off,acks={setup.acks},min_rto={setup.min_rto_ms}ms"
    transport += ",jitter=0s"  # Hosts of ns-3 have no random delay.
    if setup.mark is not None:
        transport += f",mark={setup.mark}"
    if setup.ssthresh_bytes is not None:
        transport += f",ssthresh={setup.ssthresh_bytes}B"
    return json.dumps(
        {
            "fabric": fabric,
            "fabric_text": None,
            "traffic": f"flows:file={flows}",
            "scheme": "ecmp",
            "transport": transport,
            "control": None,
            "duration": f"{setup.duration_s}s",
            "seed": 1,
            "faults": [],
            "pcap": None,
            "event_log": None,
        }
    )


def _shared_cable(spec: str) -> int:
    """The link from the first switch to the second."""
    fabric = _core.Fabric.from_spec(spec)
    names = [node["name"] for node in fabric.nodes()]
    links = fabric.links()
    pairs = zip(links["source"], links["target"], strict=True)
    return next(i for i, (a, b) in enumerate(pairs) if (names[a], names[b]) == ("e0", "e1"))
