"""The summary of an experiment: the `schemes` of `result.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from pathloom.experiments.results.censored import CensoredValues, figures_by_size, marked
from pathloom.experiments.results.definitions import SIZE_CLASSES
from pathloom.experiments.results.kinds import kinds_of, kinds_of_runs
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.pauses import pauses_of, pauses_of_runs
from pathloom.experiments.results.skipped import skipped_of, skipped_of_runs
from pathloom.experiments.results.stats import ci95, mean
from pathloom.experiments.results.switch_programs import programs_of, programs_of_runs
from pathloom.experiments.results.tables import flows_by_run
from pathloom.experiments.results.timeouts import timeout_wait


def scheme_summary(scheme: str, outcomes: Sequence[RunOutcome], flows: pl.DataFrame) -> dict[str, Any]:
    """The entry of one scheme in `result.json`. `flows` are the flows of all its runs.

    Means are means over runs. Percentiles and minima are over the flows of all runs. Counts are sums over runs, except
    `rules_max`, which is the maximum of all runs. A figure without any flow is null.

    All flows that started count. An unfinished flow is right-censored: its FCT is at least the time since its start,
    and its throughput is at most what it can still reach. For each figure of `fct_s` and `throughput`, `NAME_censored`
    tells whether it is only a bound because of such flows: the true FCT is at least, the true throughput at most, the
    value of `NAME`.
    """
    flows_of = flows_by_run(flows)
    runs = [run_summary(one, flows_of(one.job.run)) for one in outcomes]
    wall_s = math.fsum(run["wall_s"] for run in runs)
    packets = _summed(runs, "packets")
    return {
        "scheme": scheme,
        "runs": runs,
        "throughput": {
            **_mean_over(runs, "throughput", "mean"),
            "ci95": ci95(_known(run["throughput"]["mean"] for run in runs)),
            **_lowest_throughputs(CensoredValues.of(flows, "throughput")),
            "jain": _mean_of_all(run["throughput"]["jain"] for run in runs),
        },
        "fct_s": {
            **_mean_over(runs, "fct_s", "mean"),
            "ci95": ci95(_known(run["fct_s"]["mean"] for run in runs)),
            **CensoredValues.of(flows, "age_s").percentiles(),
            **{key: value for name in SIZE_CLASSES for key, value in _mean_over(runs, "fct_s", name).items()},
        },
        "flows": _summed(runs, "flows"),
        "delivered_bytes": sum(run["delivered_bytes"] for run in runs),
        "retransmits": _sum_of_all(run["retransmits"] for run in runs),
        "timeouts": _sum_of_all(run["timeouts"] for run in runs),
        "timeout_wait": timeout_wait(runs),
        "reordering": _reordering(flows),
        "packets": packets,
        "control": {
            "messages": sum(run["control"]["messages"] for run in runs),
            "rules_max": max((run["control"]["rules_max"] for run in runs), default=0),
            "routes": sum(run["control"]["routes"] for run in runs),
            "reroutes": sum(run["control"]["reroutes"] for run in runs),
            "busy_share": mean(_known(run["control"]["busy_share"] for run in runs)),
            "sizes": _largest_sizes(runs),
        },
        "programs": programs_of_runs(runs),
        "pauses": pauses_of_runs(runs),
        **kinds_of_runs(runs),
        **skipped_of_runs(runs),
        "wall_s": wall_s,
        "hops_per_wall_s": _per_wall_s(packets["hops"], wall_s),
    }


def _largest_sizes(runs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The largest sizes of the scheme's state in any run, by name."""
    largest: dict[str, int] = {}
    for run in runs:
        for name, size in run["control"].get("sizes", {}).items():
            largest[name] = max(size, largest.get(name, 0))
    return largest


def run_summary(one: RunOutcome, flows: pl.DataFrame) -> dict[str, Any]:
    """The entry of one run in `result.json`."""
    packets = {name: None if count is None else int(count) for name, count in one.outcome["packets"].items()}
    throughput = CensoredValues.of(flows, "throughput")
    return {
        "run": one.job.run,
        "seed": one.job.seed,
        "throughput": {
            **throughput.mean("mean"),
            **_lowest_throughputs(throughput),
            "jain": _fairness(throughput),
        },
        "fct_s": figures_by_size(flows, "age_s"),
        "flows": flow_counts(flows),
        "unfinished": unfinished(flows)["flow"].to_list(),
        "delivered_bytes": int(flows["delivered_bytes"].sum()),
        "retransmits": None if flows["retransmits"].has_nulls() else int(flows["retransmits"].sum()),
        "timeouts": None if flows["timeouts"].has_nulls() else int(flows["timeouts"].sum()),
        "timeout_wait": _timeout_wait(flows, one.outcome["end_ns"] / 1e9),
        "reordering": _reordering(flows),
        "packets": packets,
        "control": dict(one.outcome["control"]),
        "programs": programs_of(one.outcome),
        "pauses": pauses_of(one.outcome),
        **kinds_of(one.outcome),
        **skipped_of(one.outcome),
        "end_s": one.outcome["end_ns"] / 1e9,
        "wall_s": one.wall_s,
        "hops_per_wall_s": _per_wall_s(packets["hops"], one.wall_s),
    }


def _timeout_wait(flows: pl.DataFrame, end_s: float) -> dict[str, float | None]:
    """Time that flows waited for time-outs, before and after their first RTT sample, and their total time.

    If there are finite flows, only these count. Otherwise long-lived flows count as running until `end_s`.
    """
    if flows["timeout_wait_s"].has_nulls():
        return {"initial_s": None, "sampled_s": None, "flows_s": None}
    finite = flows.filter(pl.col("size_bytes").is_not_null())
    counted = finite if finite.height else flows
    initial_s = math.fsum(counted["initial_wait_s"])
    took = counted["age_s"] if finite.height else end_s - counted["start_s"]
    waited_s = math.fsum(counted["timeout_wait_s"])
    return {"initial_s": initial_s, "sampled_s": waited_s - initial_s, "flows_s": math.fsum(took.drop_nulls())}


def _reordering(flows: pl.DataFrame) -> dict[str, float | None]:
    """Segments that arrived with new data, those after a later one, and their ratio (RFC 4737 §4.1)."""
    if flows["segments"].has_nulls():
        return {"segments": None, "reordered": None, "ratio": None}
    segments, reordered = int(flows["segments"].sum()), int(flows["reordered"].sum())
    return {"segments": segments, "reordered": reordered, "ratio": reordered / segments if segments else None}


def unfinished(flows: pl.DataFrame) -> pl.DataFrame:
    """The finite flows that did not finish, those that never started included."""
    return flows.filter(pl.col("size_bytes").is_not_null() & ~pl.col("finished"))


def paired_differences(
    schemes: Sequence[Mapping[str, Any]], metric: Callable[[Mapping[str, Any]], float | None], base: int
) -> list[dict[str, float | None] | None]:
    """Mean and 95 % confidence interval of each scheme's difference to scheme number `base`, run by run.

    All schemes have the same flows in a run, so differences between runs cancel out. `share` is the difference over the
    larger of both means, without its sign, and `share_ci95` the interval over that mean. None for the base itself and
    if there is no run to compare.
    """
    base_runs = {run["run"]: metric(run) for run in schemes[base]["runs"]}
    rows: list[dict[str, float | None] | None] = []
    for index, scheme in enumerate(schemes):
        pairs = [(metric(run), base_runs.get(run["run"])) for run in scheme["runs"]]
        known = [(one, other) for one, other in pairs if one is not None and other is not None]
        differences = [one - other for one, other in known]
        if index == base or not differences:
            rows.append(None)
        else:
            larger = max(abs(math.fsum(values)) for values in zip(*known, strict=True)) / len(known)
            rows.append(difference_of(math.fsum(differences) / len(known), ci95(differences), larger))
    return rows


def difference_of(difference: float, half: float | None, larger: float) -> dict[str, float | None]:
    """A difference of means with its interval, both also as shares of the larger mean."""
    share, share_half = (None if part is None else abs(part) / larger if larger else 0.0 for part in (difference, half))
    return {"mean": difference, "ci95": half, "share": share, "share_ci95": share_half}


def _mean_over(runs: Sequence[Mapping[str, Any]], key: str, name: str) -> dict[str, float | bool | None]:
    """The mean of a figure over runs, and whether it is only a bound, because that of a run is."""
    value = mean(_known(run[key][name] for run in runs))
    cut = any(run[key][f"{name}_censored"] for run in runs)
    return marked(name, value, None if value is None else cut)


def _lowest_throughputs(throughput: CensoredValues) -> dict[str, float | bool | None]:
    return {**throughput.percentile("min", 0.0, 0.0), **throughput.percentile("p5", 0.0, 0.05)}


def _fairness(throughput: CensoredValues) -> float | None:
    """Jain's index of the throughput of flows (DEC-TR-301, 1984), 1/n to 1; None if flows are unfinished."""
    squares = math.fsum(value * value for value in throughput.exact)
    if throughput.bounds or squares == 0:
        return None
    return math.fsum(throughput.exact) ** 2 / (len(throughput.exact) * squares)


def flow_counts(flows: pl.DataFrame) -> dict[str, int]:
    """Numbers of offered, started, finished, unfinished and long-lived flows."""
    finite = flows.filter(pl.col("size_bytes").is_not_null())
    return {
        "offered": flows.height,
        "started": flows["start_s"].count(),
        "finished": int(finite["finished"].sum()),
        "unfinished": int((~finite["finished"]).sum()),
        "long_lived": flows.height - finite.height,
    }


def _mean_of_all(values: Iterable[float | None]) -> float | None:
    """The mean; None unless every value is known, so that a scheme is not judged by a part of its runs."""
    every = list(values)
    known = _known(every)
    return mean(known) if len(known) == len(every) else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum_of_all(values: Iterable[int | None]) -> int | None:
    """The sum; None if any value is unknown."""
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if len(known) == len(every) else None


def _per_wall_s(count: int | None, wall_s: float) -> float | None:
    return count / wall_s if count is not None and wall_s > 0 else None


def _summed(runs: Sequence[Mapping[str, Any]], key: str) -> dict[str, int | None]:
    names = list(runs[0][key]) if runs else ["sent", "dropped", "hops", "started", "finished"]
    return {name: _sum_of_all(run[key][name] for run in runs) for name in names}
