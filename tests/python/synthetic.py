"""Random outcomes in the form of the simulator's, for reports and tables without a simulation."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from pathloom.api.results import Result
from pathloom.errors import ToolError
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.settings.model import Job, Settings
from pathloom.fabrics import Fabric

RATE_BPS = 10_000_000


def outcome(
    fabric: Fabric,
    job: Job,
    flows: int,
    speed: float,
    unfinished: int = 0,
    long_lived: bool = False,
    subflows: bool = False,
) -> RunOutcome:
    """One run of `flows` flows. The last `unfinished` flows do not end; the first flow may have a single subflow."""
    rng = np.random.default_rng([job.seed, 7])
    hosts = np.array([index for index, node in enumerate(fabric.nodes) if node["tier"] == "host"], dtype=np.uint32)
    src = rng.integers(0, len(hosts), flows)
    dst = (src + rng.integers(1, len(hosts), flows)) % len(hosts)
    size = np.maximum(100, np.exp(rng.normal(11.5, 2.2, flows))).astype(np.int64)
    start = np.sort(rng.integers(0, 10**10, flows))
    ideal = (size * 8 * 1e9 / RATE_BPS * 1.05 + 40_000).astype(np.int64)
    slow = np.random.default_rng([job.seed, len(job.scheme)]).gamma(2.0, 1.0, flows) / speed
    finish = start + (ideal * (1 + slow)).astype(np.int64)
    end_ns = int(finish.max()) + 1
    if unfinished:
        finish[-unfinished:] = -1
    throughput = np.where(finish >= 0, ideal / np.maximum(finish - start, 1), np.nan)
    if long_lived:
        size[:], finish[:], throughput = -1, -1, np.clip(rng.normal(0.6, 0.2, flows) * speed, 0, 1)
    links = len(fabric.links["source"])
    load = np.clip(rng.gamma(3.0, 0.12, links) * np.random.default_rng(links).uniform(0.4, 1.3, links), 0, 1)
    zeros = np.zeros(flows, dtype=np.uint32)
    raw: dict[str, Any] = {
        "flows": {
            "index": np.arange(flows, dtype=np.uint32),
            "src": hosts[src],
            "dst": hosts[dst],
            "src_port": rng.integers(49152, 65536, flows).astype(np.int32),
            "dst_port": np.full(flows, 5001, dtype=np.int32),
            "size_bytes": size,
            "start_ns": start,
            "finish_ns": finish,
            "delivered_bytes": np.where(finish >= 0, size, np.maximum(size, 0) // 2),
            "optimum_bps": np.full(flows, RATE_BPS * 0.917),
            "ideal_fct_ns": ideal,
            "throughput": throughput,
            "retransmits": zeros + 3,
            "timeouts": zeros,
            "timeout_wait_ns": np.zeros(flows, dtype=np.int64),
            "initial_wait_ns": np.zeros(flows, dtype=np.int64),
            "packets": (zeros + 10).astype(np.uint64),
            "segments": zeros + 8,
            "reordered": zeros + 2,
            "coflow": np.full(flows, -1, dtype=np.int64),
        },
        "links": {
            "sent_bytes": np.full(links, 10**6, dtype=np.uint64),
            "sent_packets": np.full(links, 10**3, dtype=np.uint64),
            "dropped_packets": np.full(links, 2, dtype=np.uint64),
            "mean_queue": load * 10,
            "utilisation": load,
        },
        "packets": {
            "sent": 10_000,
            "copied": 0,
            "delivered": 9_900,
            "misdelivered": 0,
            "dropped": 100,
            "in_flight": 0,
            "trimmed": 0,
            "hops": 50_000,
            "events": 60_000,
        },
        "control": {"messages": 120, "rules_max": 12, "routes": 30, "reroutes": 7, "polls": 2, "busy_share": 0.004},
        "end_ns": end_ns,
    }
    if subflows:
        raw["subflows"] = {
            "flow": np.zeros(1, dtype=np.uint32),
            "src_address": ["10.0.0.1"],
            "dst_address": ["10.0.0.2"],
            "src_port": np.full(1, 50_000, dtype=np.uint16),
            "links": [[0]],
            "delivered_bytes": np.full(1, 1000, dtype=np.int64),
            "retransmits": np.zeros(1, dtype=np.uint32),
            "timeouts": np.zeros(1, dtype=np.uint32),
        }
    return RunOutcome(job, raw, wall_s=0.5)


def result(
    fabric: Fabric,
    schemes: dict[str, float],
    runs: int = 3,
    flows: int = 900,
    interrupted: bool = False,
    failure: ToolError | None = None,
    **rest: Any,
) -> Result:
    """A result in which each scheme has a speed; faster is better."""
    settings = Settings.model_construct(
        fabric=fabric.spec,
        traffic="web-search:load=0.4",
        schemes=tuple(schemes),
        runs=runs,
        duration="10s",
        seed=1,
    )
    outcomes = [
        outcome(fabric, Job(scheme, run, run, label=scheme), flows, speed, **rest)
        for scheme, speed in schemes.items()
        for run in range(1, runs + 1)
    ]
    if interrupted:
        outcomes = outcomes[:-2]
    execution = SimpleNamespace(
        outcomes=outcomes, interrupted=interrupted, failure=failure, description="made up", notes=["made up"]
    )
    return Result(settings, fabric, [cast(Execution, execution)])


def numbers(text: str) -> Any:
    """The content of a JSON text without the keys that may differ between two runs of one seed."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(part) for key, part in value.items() if "wall" not in key}
        return [strip(part) for part in value] if isinstance(value, list) else value

    return strip(json.loads(text))
