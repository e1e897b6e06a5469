"""Completion times of groups of flows: collectives, coflows and incasts.

A group is complete when its last flow is complete. Its completion time starts with its first flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from pathloom import _core
from pathloom.experiments.results.censored import CensoredValues
from pathloom.experiments.results.stats import ci95, mean
from pathloom.experiments.results.tables import flows_by_run

COLLECTIVES: Final = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "broadcast",
    "reduce",
    "all-to-all",
    "moe",
    "chakra",
    "simai",
)
"""Traffic whose flows form one group, or one group per iteration."""
_KINDS: Final = {"incast": "incast", "coflow": "coflow", "flows": "coflow"}
"""Traffic whose flows name their group, and the kind of this group."""


@dataclass(frozen=True)
class Completions:
    """The groups of one run."""

    kind: str
    """`collective`, `coflow` or `incast`."""
    complete_s: tuple[float, ...]
    """Completion times, ascending."""
    incomplete_s: tuple[float, ...]
    """Times of incomplete groups from their start to the end of the run, ascending."""
    never_begun: int
    """Number of groups of which no flow started; they have no time."""

    def __add__(self, other: Completions) -> Completions:
        """The groups of both together."""
        return Completions(
            self.kind,
            tuple(sorted((*self.complete_s, *other.complete_s))),
            tuple(sorted((*self.incomplete_s, *other.incomplete_s))),
            self.never_begun + other.never_begun,
        )

    def figures(self) -> dict[str, Any]:
        """The entry of the groups in `result.json`."""
        times_s = CensoredValues(self.complete_s, self.incomplete_s)
        incomplete = len(self.incomplete_s) + self.never_begun
        return {
            "of": self.kind,
            "groups": len(self.complete_s) + incomplete,
            "incomplete": incomplete,
            **times_s.mean("mean"),
            **times_s.percentiles(),
        }


def with_completion(
    summary: Mapping[str, Any], flows: pl.DataFrame, traffic: str, jobs: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """A scheme's summary with `completion_s` in it and in its runs; null if the traffic has no groups of flows.

    `flows` are those of all its runs, and `jobs` are the collectives of the traffic. The mean is the mean over runs of
    each run's mean; percentiles are of the groups of all runs together.
    """
    flows_of = flows_by_run(flows)
    parts = grouped_parts(traffic)
    found = [_completions_of(parts, flows_of(run["run"]), float(run["end_s"]), jobs) for run in summary["runs"]]
    runs = [
        {**run, "completion_s": one.figures() if one is not None else None}
        for run, one in zip(summary["runs"], found, strict=True)
    ]
    known = [one for one in found if one is not None]
    if not known:
        return {**summary, "runs": runs, "completion_s": None}
    means = [run["completion_s"]["mean"] for run in runs if run["completion_s"] is not None]
    means = [one for one in means if one is not None]
    whole = {**sum(known[1:], known[0]).figures(), "mean": mean(means), "ci95": ci95(means)}
    return {**summary, "runs": runs, "completion_s": whole}


def grouped_parts(traffic: str) -> list[str]:
    """The specifications whose flows form groups, of one or several joined by `+`.

    >>> grouped_parts("web-search:load=0.2+all-reduce:hosts=8"), grouped_parts("web-search")
    (['all-reduce:hosts=8'], [])
    """
    parts = _core.traffic_parts(traffic) if "+" in traffic else [traffic]
    return [part for part in parts if part.partition(":")[0] in {*COLLECTIVES, *_KINDS}]


def _completions_of(
    parts: Sequence[str], flows: pl.DataFrame, end_s: float, jobs: Sequence[Mapping[str, Any]]
) -> Completions | None:
    """The groups of all parts of the traffic. Of several parts with groups, those that are jobs count."""
    if len(parts) == 1:
        return completions(parts[0], flows, end_s)
    found = []
    for job in jobs:
        first = job["first_coflow"]
        own = flows.filter(pl.col("coflow").is_between(first, first + job["coflows"] - 1))
        found.append(completions(job["spec"], own.with_columns(pl.col("coflow") - first), end_s))
    known = [one for one in found if one is not None]
    return sum(known[1:], known[0]) if known else None


def completions(traffic: str, flows: pl.DataFrame, end_s: float) -> Completions | None:
    """The completion times of the groups among the flows of one run, which ended at `end_s`; None if it has none.

    >>> flows = pl.DataFrame({"coflow": [0, 0, 1], "start_s": [1.0, 2.0, 4.0], "age_s": [1.0, 3.0, 5.0],
    ...                       "finished": [True, True, False], "size_bytes": [9, 9, 9]})
    >>> completions("coflow:file=trace.txt", flows, 9.0)
    Completions(kind='coflow', complete_s=(4.0,), incomplete_s=(5.0,), never_begun=0)
    >>> completions("all-to-all:size=9B", flows, 9.0).incomplete_s
    (8.0,)
    """
    name = traffic.partition(":")[0]
    kind = "collective" if name in COLLECTIVES else _KINDS.get(name)
    grouped = flows.filter(pl.col("coflow").is_not_null() & pl.col("size_bytes").is_not_null())
    if kind is None or grouped.height == 0:
        return None
    if kind == "collective":
        # The steps of a collective are numbered through all iterations.
        steps = int(grouped["coflow"].max()) + 1  # type: ignore[arg-type]
        group = pl.col("coflow") // max(steps // _iterations(traffic), 1)
    else:
        group = pl.col("coflow")
    table = grouped.group_by(group.alias("group")).agg(
        begun_s=pl.col("start_s").min(),
        ended_s=(pl.col("start_s") + pl.col("age_s")).max(),
        complete=pl.col("finished").all(),
    )
    begun = table.filter(pl.col("begun_s").is_not_null())
    last_s = pl.when(pl.col("complete")).then(pl.col("ended_s")).otherwise(end_s)
    # Times are whole nanoseconds.
    begun = begun.with_columns(time_s=(last_s - pl.col("begun_s")).round(9)).sort("time_s")
    split = (begun.filter(which) for which in (pl.col("complete"), ~pl.col("complete")))
    complete_s, incomplete_s = (tuple(frame["time_s"].to_list()) for frame in split)
    return Completions(kind, complete_s, incomplete_s, table.height - begun.height)


def _iterations(traffic: str) -> int:
    """The value of `iterations` in the specification of a collective."""
    for pair in traffic.partition(":")[2].split(","):
        key, _, value = (part.strip() for part in pair.partition("="))
        if key == "iterations" and value.isdecimal():
            return max(int(value), 1)
    return 1
