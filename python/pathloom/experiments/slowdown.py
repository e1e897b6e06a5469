"""FCT slowdown: how many times longer a flow took than it would have taken alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from pathloom.experiments.stats import bounded_percentile, ci95, mean

PERCENTILES = (50, 95, 99)


def with_slowdown(summary: Mapping[str, Any], flows: pl.DataFrame) -> dict[str, Any]:
    """A scheme's summary with `slowdown` in it and in its runs. `flows` are those of all its runs.

    The slowdown of a flow is its FCT over its ideal FCT, 1 or more; that of an unfinished flow counts with the time it
    has had so far. As in `fct_s`, means are means over runs, percentiles are of the flows of all runs together, and
    `NAME_censored` says that unfinished flows make a figure a lower bound.
    """
    runs = [{**run, "slowdown": slowdowns(flows.filter(pl.col("run") == run["run"]))} for run in summary["runs"]]
    means = [run["slowdown"]["mean"] for run in runs if run["slowdown"]["mean"] is not None]
    whole = {**slowdowns(flows), "mean": mean(means), "ci95": ci95(means)}
    return {**summary, "runs": runs, "slowdown": whole}


def slowdowns(flows: pl.DataFrame) -> dict[str, float | bool | None]:
    """Mean and percentiles of the slowdown of the finite flows that started.

    >>> flows = pl.DataFrame({"slowdown": [2.0, 3.0], "finished": [True, False]})
    >>> found = slowdowns(flows)
    >>> found["mean"], found["mean_censored"], found["p50"]
    (2.5, True, 2.5)
    """
    split = (flows.filter(which)["slowdown"] for which in (pl.col("finished"), ~pl.col("finished")))
    exact, bounds = (one.drop_nulls().sort().to_list() for one in split)
    values: dict[str, float | bool | None] = {"mean": mean([*exact, *bounds])}
    values["mean_censored"] = bool(bounds) if exact or bounds else None
    for percent in PERCENTILES:
        found = bounded_percentile(exact, bounds, math.inf, percent / 100)
        values[f"p{percent}"], values[f"p{percent}_censored"] = found
    return values
