"""Measures a solver in a separate process and prints the result as JSON. Started by `pathloom.solver_benchmark`."""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from pathloom import _core
from pathloom.benchmark_worker import resident_mb
from pathloom.optimum import Flow, max_concurrent, max_throughput

REPEATS: Final = 5
"""Number of runs. The fastest one counts, because other work on the machine only makes runs slower."""


def hosts_of(fabric: _core.Fabric) -> list[int]:
    """Node numbers of the hosts."""
    return [index for index, node in enumerate(fabric.nodes()) if node["tier"] == "host"]


def demands(fabric: _core.Fabric, pattern: str, seed: int) -> list[Flow]:
    """One flow per host, each to another destination (`permutation`), or four per host to random hosts (`random-4`).

    The flows of a host together demand the rate of its link. Flows from a host to itself are left out.
    """
    draw, hosts = random.Random(seed), hosts_of(fabric)
    rate_bps = float(fabric.links()["rate_bps"][0])
    if pattern == "permutation":
        others = draw.sample(hosts, len(hosts))
        return [(src, dst, rate_bps) for src, dst in zip(hosts, others, strict=True) if src != dst]
    pairs = [(src, draw.choice(hosts)) for src in hosts for _ in range(4)]
    return [(src, dst, rate_bps / 4) for src, dst in pairs if src != dst]


def fastest(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of the fastest of `REPEATS` runs, and the result of the last one."""
    times, found = [], None
    for _ in range(REPEATS):
        started = time.thread_time()
        found = work()
        times.append(time.thread_time() - started)
    return min(times), found


def own_solver(task: dict[str, Any]) -> dict[str, Any]:
    """Measures Pathloom's own solver on one case (`fractional`)."""
    fabric = _core.Fabric.from_spec(task["fabric"])
    flows = demands(fabric, task["pattern"], task["seed"])
    time_s, (level, bound, rounds, _) = fastest(lambda: _core.max_concurrent_flow(fabric, flows, task["epsilon"]))
    placed = lambda_place(fabric, flows)
    return {"time_s": time_s, "lambda": level, "lambda_place": placed, "bound": bound, "rounds": rounds}


def lambda_place(fabric: _core.Fabric, flows: list[Flow]) -> float | None:
    """λ, the smallest share of its demand that a pair of ToRs gets, after one round has put each flow on one path.

    None if no flow leaves its ToR; 0 if a flow is left without a path.
    """
    placer = _core.Placer(fabric)
    for index, (src, dst, _) in enumerate(flows):
        placer.wait(index, src, dst)
    if placer.round(len(flows))[2] > 0:
        return 0.0
    demand_bps = dict[int, float]()
    for index, (_, _, flow_bps) in enumerate(flows):
        for link in placer.path(index) or ():
            demand_bps[link] = demand_bps.get(link, 0.0) + flow_bps
    rate_bps = fabric.links()["rate_bps"]
    return min((float(rate_bps[link]) / wanted for link, wanted in demand_bps.items()), default=None)


def optimum(task: dict[str, Any]) -> dict[str, Any]:
    """Measures HiGHS on the same case, without a starting solution and up to a time limit; times are CPU seconds."""
    fabric = _core.Fabric.from_spec(task["fabric"])
    flows = demands(fabric, task["pattern"], task["seed"])
    started = time.process_time()
    solve = max_throughput if task["kind"] == "throughput" else max_concurrent
    found = solve(fabric, flows, time_limit_s=task["time_limit_s"], tolerance=1e-4)
    value = found.value / sum(demand for _, _, demand in flows) if task["kind"] == "throughput" else found.value
    return {
        "lambda_opt": value if found.exact else None,
        "opt_time_s": time.process_time() - started,
        "opt_method": found.method,
        "opt_exact": found.exact,
    }


def quality(task: dict[str, Any]) -> dict[str, Any]:
    """Mean max-min rate of a permutation that one round has placed, as a share of the demand."""
    fabric = _core.Fabric.from_spec(task["fabric"])
    flows = demands(fabric, "permutation", task["seed"])
    placer = _core.Placer(fabric)
    for index, (src, dst, _) in enumerate(flows):
        placer.wait(index, src, dst)
    started = time.thread_time()
    placer.round(len(flows))
    time_s = time.thread_time() - started
    return {"time_s": time_s, "lambda": float(placer.max_min_bps().mean()) / flows[0][2]}


def arrival(task: dict[str, Any]) -> dict[str, Any]:
    """The median time of a thousand arrivals when many flows already have paths."""
    fabric = _core.Fabric.from_spec(task["fabric"])
    draw, hosts = random.Random(task["seed"]), hosts_of(fabric)
    placer, standing = _core.Placer(fabric), task["flows"]
    for index in range(standing):
        placer.arrive(index, draw.choice(hosts), draw.choice(hosts))
    placer.round(standing)
    times = []
    for index in range(standing, standing + 1000):
        src, dst = draw.choice(hosts), draw.choice(hosts)
        started = time.perf_counter()
        placer.arrive(index, src, dst)
        times.append(time.perf_counter() - started)
        placer.depart(index)
    return {"time_s": statistics.median(times)}


def round_time(task: dict[str, Any]) -> dict[str, Any]:
    """The time of a round that places all flows anew, after a first round on the same placer."""
    fabric = _core.Fabric.from_spec(task["fabric"])
    draw, hosts = random.Random(task["seed"]), hosts_of(fabric)
    placer, flows = _core.Placer(fabric), task["flows"]
    for index in range(flows):
        placer.wait(index, draw.choice(hosts), draw.choice(hosts))
    placer.round(flows)
    times = []
    for _ in range(3):
        placer.lift_all()
        started = time.thread_time()
        placer.round(flows)
        times.append(time.thread_time() - started)
    return {"time_s": min(times)}


KINDS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "fractional": own_solver,
    "concurrent": optimum,
    "throughput": optimum,
    "quality": quality,
    "arrival": arrival,
    "round": round_time,
}


def main() -> None:
    """Carries out the measurement that the first argument describes."""
    task = json.loads(sys.argv[1])
    row = KINDS[task["kind"]](task)
    print(json.dumps({**row, "peak_rss_mb": resident_mb("VmHWM")}))


if __name__ == "__main__":
    main()
