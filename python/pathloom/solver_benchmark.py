"""Quality and speed of allocation: `pathloom bench solver`. Every measurement is a separate process.

Methods that led to these times (k=16, 1024 hosts, ε = 0.05):

- Computing the certificate first solves healthy fabrics: the solution is an even split, and the links of the tightest
  cut prove it.
- Moving flow between the paths of one ToR pair until they are equally long needs a handful of sweeps. Adding flow along
  shortest paths and averaging needs hundreds. Powers of the load by repeated squaring replace exponentials.
- Commodities of one destination share one search for distances. The bound is computed only when sweeps gain little.
- For placement, the state between two pods of a FatTree is summed up by plane and core, for all flows of the pair of
  pods. That takes 12 million look-ups of links for 100,000 flows at k=48; a search per flow took 95 million. In other
  graphs, the ends of paths that do not branch are kept from flow to flow.
- Edge colouring places equal flows on a healthy FatTree exactly, and faster than any method of trial. With failed
  links, it is decided at ToRs and pods which flows yield, before any flow is moved: negotiation alone does not find
  this out.
- For HiGHS, the program has a variable per path, and columns are added where prices require them. Interior points solve
  it in seconds at k=16; a program with a variable per destination and link took minutes or did not end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from pathloom.errors import bad_input

EPSILON: Final = 0.05
SEEDS: Final = range(1, 11)
"""Seeds over which placement quality is averaged."""
OTHER_SEEDS: Final = range(101, 111)
"""Seeds that were not used while the solver was developed."""
FAILED_16: Final = "fat-tree:k=16,rate=1Gbps,fail=0.05,fail_seed=1"


def cases(sizes: list[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and tasks of the measurements of maximum concurrent flows."""
    for k in sizes:
        for pattern in ("permutation", "random-4"):
            for health, more in (("healthy", ""), ("5% failed", ",fail=0.05,fail_seed=1")):
                fabric = f"fat-tree:k={k},rate=1Gbps{more}"
                yield f"k={k} {pattern} {health}", {"fabric": fabric, "pattern": pattern, "seed": 1}


def measure(
    sizes: list[int], exact: bool, time_limit_s: float, on_case: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Measures all rows. `on_case` is called with the name of each measurement; without `exact`, HiGHS is left out."""
    rows = []
    for name, task in cases(sizes):
        on_case(name)
        row = _worker({**task, "kind": "fractional", "epsilon": EPSILON})
        rows.append(_row(name, row, _optimum({**task, "kind": "concurrent"}, exact, time_limit_s)))
    failed = ",fail=0.05,fail_seed={seed}"
    for health, more, seeds in (
        ("healthy", "", SEEDS),
        ("5% failed", failed, SEEDS),
        ("5% failed, others", failed, OTHER_SEEDS),
    ):
        name = f"placement quality, k=8 permutation {health}, mean of {len(seeds)} draws"
        on_case(name)
        rows.append(_quality(name, more, seeds, exact, time_limit_s))
    for name, kind, fabric, flows in (
        ("placement quality, k=16 permutation healthy", "quality", "fat-tree:k=16,rate=1Gbps", 0),
        ("placement quality, k=16 permutation 5% failed", "quality", FAILED_16, 0),
        ("one arrival, k=16, 10,000 flows standing", "arrival", "fat-tree:k=16,rate=1Gbps", 10_000),
        ("one arrival, k=16 5% failed, 10,000 flows standing", "arrival", FAILED_16, 10_000),
        ("one round from nothing, k=48, 100,000 flows", "round", "fat-tree:k=48,rate=1Gbps", 100_000),
    ):
        on_case(name)
        rows.append(_row(name, _worker({"kind": kind, "fabric": fabric, "flows": flows, "seed": 1}), None))
    return rows


def _quality(name: str, more: str, seeds: range, exact: bool, time_limit_s: float) -> dict[str, Any]:
    found, optima = [], []
    for seed in seeds:
        task = {"fabric": "fat-tree:k=8,rate=1Gbps" + more.format(seed=seed), "pattern": "permutation", "seed": seed}
        found.append(_worker({**task, "kind": "quality"}))
        optima.append(_optimum({**task, "kind": "throughput"}, exact, time_limit_s))
    row: dict[str, Any] = {key: sum(one[key] for one in found) / len(found) for key in ("time_s", "lambda")}
    row["peak_rss_mb"] = max(one["peak_rss_mb"] for one in found)
    known = [one for one in optima if one is not None and one["lambda_opt"] is not None]
    best = None
    if len(known) == len(found):
        best = {key: sum(one[key] for one in known) / len(known) for key in ("lambda_opt", "opt_time_s")}
        best["peak_rss_mb"] = max(one["peak_rss_mb"] for one in known)
    return _row(name, row, best)


def _row(name: str, own: dict[str, Any], best: dict[str, Any] | None) -> dict[str, Any]:
    best = best or {}
    return {
        "case": name,
        "epsilon": EPSILON,
        "time_s": own["time_s"],
        "lambda": own.get("lambda"),
        "lambda_place": own.get("lambda_place"),
        "bound": own.get("bound"),
        "lambda_opt": best.get("lambda_opt"),
        "opt_time_s": best.get("opt_time_s"),
        "opt_method": best.get("opt_method"),
        "peak_rss_mb": own["peak_rss_mb"],
        "opt_peak_rss_mb": best.get("peak_rss_mb"),
    }


def _optimum(task: dict[str, Any], exact: bool, time_limit_s: float) -> dict[str, Any] | None:
    return _worker({**task, "time_limit_s": time_limit_s}) if exact else None


def _worker(task: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "pathloom.solver_worker", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        row: dict[str, Any] = json.loads(done.stdout)
        return row
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise bad_input(f"bench: the measuring process ended with {done.returncode}: {last}")
