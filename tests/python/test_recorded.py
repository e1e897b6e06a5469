"""Ten set-ups give the recorded results, to the bit: a change that should not change results did not.

`PATHLOOM_BLESS=1 pytest tests/python/test_recorded.py` records them again, after a change that should.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

import pathloom as pl

RECORDED = Path(__file__).parent.parent / "recorded" / "results.json"

SETUPS: dict[str, dict[str, Any]] = {
    "stride": {
        "fabric": "fat-tree:k=4,rate=10Mbps,buffer=150",
        "traffic": "long-lived:pattern=stride",
        "schemes": ["spt", "ecmp", "hedera:period=500ms", "ofpt", "lessor"],
        "duration": "3s",
    },
    "web-search": {
        "fabric": "fat-tree:k=4,rate=100Mbps",
        "traffic": "web-search:load=0.6,pattern=random",
        "schemes": ["ecmp", "hedera-sa", "ofpt", "lessor"],
        "duration": "2s",
    },
    "moves in place": {
        "fabric": "leaf-spine:spines=4,leaves=4,hosts=4,rate=100Mbps",
        "traffic": "data-mining:load=0.5,pattern=inter-leaf",
        "schemes": ["ofpt", "ofpt:migration=sfmm"],
        "duration": "2s",
    },
    "mptcp": {
        "fabric": "fat-tree:k=4,rate=100Mbps",
        "traffic": "long-lived:pattern=permutation",
        "schemes": ["mptcp:subflows=4", "mptcp-aware"],
        "duration": "500ms",
    },
    "parallel streams": {
        "fabric": "parallel-paths:rates=100Mbps/50Mbps,delays=1ms/20ms",
        "traffic": "incast:size=1MB",
        "schemes": ["parallel-tcp"],
        "duration": "3s",
    },
    "paths found by switches": {
        "fabric": "fat-tree:k=4,rate=100Mbps",
        "traffic": "web-search:load=0.4",
        "schemes": ["tcp-path", "tfe", "arp-path"],
        "duration": "1s",
    },
    "failed cables": {
        "fabric": "jellyfish:switches=12,ports=6,hosts=24,rate=100Mbps,seed=1,fail=0.1",
        "traffic": "hadoop:load=0.5",
        "schemes": ["ecmp", "hedera:period=50ms"],
        "duration": "300ms",
    },
    "faults": {
        "fabric": "fat-tree:k=4,rate=10Mbps",
        "traffic": "long-lived:pattern=random",
        "schemes": ["ecmp", "ofpt"],
        "duration": "2s",
        "faults": ["500ms:down:a0_0", "1500ms:up:a0_0"],
    },
    "dctcp": {
        "fabric": "vl2:d0=2,d1=4,d2=4,hosts=4",
        "traffic": "web-search:load=0.3",
        "schemes": ["ecmp"],
        "transport": "dctcp",
        "duration": "30ms",
    },
    "collective": {
        "fabric": "leaf-spine:spines=2,leaves=4,hosts=4,rate=1Gbps",
        "traffic": "all-to-all:size=1MB",
        "schemes": ["ecmp", "ofpt"],
        "transport": "cubic",
        "duration": "1s",
    },
}

COUNTED = ("sent", "copied", "delivered", "misdelivered", "dropped", "in_flight", "hops")
"""Counts of packets. The count of events is left out, because it says how the simulator works."""


def nanoseconds(column: Any) -> list[int | None]:
    return [None if value is None else round(value * 1e9) for value in column]


def figures(setup: dict[str, Any]) -> dict[str, Any]:
    """What a set-up gives, in integers, by scheme."""
    result = pl.compare(runs=1, seed=3, **setup)
    found = {}
    for scheme in result.summary["schemes"]:
        flows = result.flows.filter(result.flows["scheme"] == scheme["scheme"])
        starts_ns, fcts_ns = nanoseconds(flows["start_s"]), nanoseconds(flows["fct_s"])
        rows = [*zip(flows["flow"], starts_ns, fcts_ns, flows["delivered_bytes"], flows["packets"], strict=True)]
        found[scheme["scheme"]] = {
            **{name: scheme["packets"][name] for name in COUNTED},
            "messages": scheme["control"]["messages"],
            "reroutes": scheme["control"]["reroutes"],
            "finished": sum(fct_ns is not None for fct_ns in fcts_ns),
            "fct_sum_ns": sum(fct_ns or 0 for fct_ns in fcts_ns),
            "delivered_bytes": int(flows["delivered_bytes"].sum()),
            "flows": hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16],
        }
    return found


@pytest.mark.parametrize("name", SETUPS)
def test_a_set_up_gives_its_recorded_result(name: str) -> None:
    found = figures(SETUPS[name])
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    if os.environ.get("PATHLOOM_BLESS"):
        recorded[name] = found
        RECORDED.parent.mkdir(exist_ok=True)
        RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    assert found == recorded[name]
