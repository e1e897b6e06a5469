"""Figures of jobs: bandwidth, the time of their algorithms on an ideal fabric, and what delayed them.

Algorithm and bus bandwidth are those of nccl-tests (`PERFORMANCE.md` there). The ideal fabric is a single switch with
the cables of the hosts, and one switch inside each server (`crates/workload/src/job.rs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.stats import ci95, mean
from pathloom.experiments.results.tables import flows_by_run
from pathloom.fabrics import Fabric

COLLECTIVE_FIGURES: Final = (
    "time_s",
    "algbw_bps",
    "busbw_bps",
    "step_s",
    "ideal_s",
    "slowdown",
    "best_ideal_s",
    "slowdown_of_best",
    "compute_s",
    "bubble_share",
)
"""Figures of the section `collective`."""
_FIGURES: Final = ("time_s", "algbw_bps", "busbw_bps", "step_s", "slowdown", "slowdown_of_best", "bubble_share")


def with_jobs(
    summary: Mapping[str, Any], outcomes: Sequence[RunOutcome], flows: pl.DataFrame, fabric: Fabric
) -> dict[str, Any]:
    """A scheme's summary with `jobs` in it and in its runs; unchanged if the traffic has no collectives.

    `flows` are those of all its runs. Figures of a scheme are means over its runs; null unless every run has them.
    """
    flows_of = flows_by_run(flows)
    jobs = {one.job.run: one.outcome.get("jobs") or [] for one in outcomes}
    if not any(jobs.values()):
        return dict(summary)
    links = {one.job.run: one.outcome["links"] for one in outcomes}
    runs = []
    for run in summary["runs"]:
        table = flows_of(run["run"])
        busy_s = links[run["run"]]["utilisation"] * run["end_s"]
        each = [_figures(job, table, busy_s, fabric) for job in jobs[run["run"]]]
        runs.append({**run, "jobs": each})
    whole = [_over_runs(each) for each in zip(*(run["jobs"] for run in runs), strict=True)]
    runs = [{**run, **_single(run["jobs"])} for run in runs]
    return {**summary, "runs": runs, "jobs": whole, **_single(whole)}


def _single(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The section `collective`: figures of the only job, for tables and sweeps. Empty if there are several."""
    if len(jobs) != 1:
        return {}
    return {"collective": {name: jobs[0][name] for name in COLLECTIVE_FIGURES if name in jobs[0]}}


def _figures(job: Mapping[str, Any], flows: pl.DataFrame, busy_s: Sequence[float], fabric: Fabric) -> dict[str, Any]:
    """The figures of a job in one run. `busy_s` is how long each link was sending."""
    first, steps = job["first_coflow"], job["coflows"]
    own = flows.filter(pl.col("coflow").is_between(first, first + steps - 1))
    times_s = iteration_times_s(job, own)
    time_s = mean([one for one in times_s if one is not None]) if None not in times_s else None
    figures = {
        "spec": job["spec"],
        "collective": job["collective"],
        "ranks": len(job["hosts"]),
        "iterations": job["iterations"],
        "incomplete": sum(one is None for one in times_s),
        "time_s": time_s,
        "delay": _delay(job, flows, busy_s, fabric),
    }
    of_kind = _of_algorithm(job, own, time_s) if job["known"] else _of_training(job, own, time_s)
    return {**figures, **of_kind}


def _of_training(job: Mapping[str, Any], own: pl.DataFrame, time_s: float | None) -> dict[str, Any]:
    """Computation and bubbles of a trace of training.

    The bubble share is the part of the time until the last transfer in which a rank does not compute, as a mean over
    the ranks.
    """
    compute_s = mean([time_ns / 1e9 for time_ns in job["compute_ns"]])
    if time_s is None or not compute_s:
        return {"compute_s": compute_s, "bubble_share": None}
    end_s = float((own["start_s"] + own["age_s"]).max())  # type: ignore[arg-type]
    return {"compute_s": compute_s, "bubble_share": max(1 - compute_s / end_s, 0.0)}


def _of_algorithm(job: Mapping[str, Any], own: pl.DataFrame, time_s: float | None) -> dict[str, Any]:
    """Bandwidth, and the time over the ideal of the algorithm and of the best one."""
    ideals_s = {known["name"]: _ideal_s(job, known, own) for known in job["known"]}
    name = job["algorithm"]["name"]
    best = min(ideals_s, key=lambda known: ideals_s[known])
    steps_once = job["algorithm"]["steps"] + job["algorithm"]["inside_steps"]
    algbw_bps = 8 * job["size_bytes"] / time_s if time_s else None
    return {
        "algorithm": name,
        "size_bytes": job["size_bytes"],
        "steps": steps_once,
        "algbw_bps": algbw_bps,
        "busbw_bps": algbw_bps * job["bus_factor"] if algbw_bps is not None else None,
        "step_s": time_s / steps_once if time_s is not None else None,
        "ideal_s": ideals_s[name],
        "slowdown": time_s / ideals_s[name] if time_s is not None else None,
        "best": best,
        "best_ideal_s": ideals_s[best],
        "slowdown_of_best": time_s / ideals_s[best] if time_s is not None else None,
    }


def iteration_times_s(job: Mapping[str, Any], own: pl.DataFrame) -> list[float | None]:
    """The time of each iteration, from the start of its first transfer to the end of its last one.

    `own` are the flows of the job. None for an iteration with unfinished transfers.
    """
    each = job["coflows"] // job["iterations"]
    number = (pl.col("coflow") - job["first_coflow"]) // each
    table = own.group_by(number.alias("iteration")).agg(
        time_s=((pl.col("start_s") + pl.col("age_s")).max() - pl.col("start_s").min()).round(9),
        complete=pl.col("finished").all(),
    )
    found = {row["iteration"]: row["time_s"] if row["complete"] else None for row in table.iter_rows(named=True)}
    return [found.get(iteration) for iteration in range(job["iterations"])]


def _ideal_s(job: Mapping[str, Any], algorithm: Mapping[str, Any], own: pl.DataFrame) -> float:
    """The time of an algorithm on the ideal fabric: steps times propagation delay, plus bytes over payload rate.

    The payload rate is the lowest `optimum_bps` of the transfers. The part of the rate that is payload is taken to be
    the same inside servers.
    """
    within, outside = job["inside"], job["outside"]
    if job["in_one_server"] and within is not None:
        outside = within
    rate_bps = float(own["optimum_bps"].min() or outside["rate_bps"])  # type: ignore[arg-type]
    time_s = algorithm["steps"] * outside["delay_ps"] / 1e12 + 8 * algorithm["bytes"] / rate_bps
    if within is not None and algorithm["inside_steps"]:
        inside_bps = rate_bps * within["rate_bps"] / outside["rate_bps"]
        time_s += algorithm["inside_steps"] * within["delay_ps"] / 1e12 + 8 * algorithm["inside_bytes"] / inside_bps
    return float(time_s)


def _delay(
    job: Mapping[str, Any], flows: pl.DataFrame, busy_s: Sequence[float], fabric: Fabric
) -> dict[str, Any] | None:
    """What the job waited for: its last rank, and the slowest of the transfers that it waited for until its end."""
    found = job["delay"]
    if found is None:
        return None
    names = fabric.names
    ranks = {names[host]: rank for rank, host in enumerate(job["hosts"])}
    last, slowest = (
        flows.row(by_predicate=pl.col("flow") == found[key], named=True) for key in ("last_flow", "slowest_flow")
    )
    delay: dict[str, Any] = {
        "last_rank": ranks[last["dst"]],
        "last_host": last["dst"],
        "transfers": found["transfers"],
        "slowest": {
            "flow": slowest["flow"],
            "src": slowest["src"],
            "dst": slowest["dst"],
            "fct_s": slowest["fct_s"],
            "slowdown": slowest["slowdown"],
        },
        "busiest_link": None,
    }
    link = found["busiest_link"]
    if link is not None:
        ends = {end: names[fabric.links[end][link]] for end in ("source", "target")}
        delay["busiest_link"] = {**ends, "busy_s": float(busy_s[link])}
    return delay


def _over_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a job of a scheme."""
    whole = {key: value for key, value in runs[0].items() if key != "delay"}
    for key in (key for key in ("ideal_s", "best_ideal_s", "compute_s", *_FIGURES) if key in runs[0]):
        values = [run[key] for run in runs]
        known = [value for value in values if value is not None]
        whole[key] = mean(known) if len(known) == len(values) else None
        if key in _FIGURES:
            whole[f"{key}_ci95"] = ci95(known) if len(known) == len(values) else None
    whole["incomplete"] = sum(run["incomplete"] for run in runs)
    pairs = Counter((run["delay"]["slowest"]["src"], run["delay"]["slowest"]["dst"]) for run in runs if run["delay"])
    most = max(pairs.values(), default=0)
    # The first run in which the most frequent pair of hosts was the slowest one.
    shown = (run["delay"] for run in runs if run["delay"] and pairs[_pair(run["delay"])] == most)
    whole["delay"] = next(shown, None)
    if whole["delay"] is not None:
        whole["delay"] = {**whole["delay"], "runs": most}
    return whole


def _pair(delay: Mapping[str, Any]) -> tuple[str, str]:
    return delay["slowest"]["src"], delay["slowest"]["dst"]
