"""FCT slowdown: how many times longer a flow took than the lower bound of its FCT."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from pathloom.experiments.censored import CensoredValues
from pathloom.experiments.definitions import SIZE_CLASSES
from pathloom.experiments.stats import ci95, mean
from pathloom.experiments.tables import flows_by_run

PERCENTILES = (50, 95, 99)


def with_slowdown(summary: Mapping[str, Any], flows: pl.DataFrame) -> dict[str, Any]:
    """A scheme's summary with `slowdown` in it and in its runs. `flows` are those of all its runs.

    The slowdown of a flow is its FCT over its ideal FCT, 1 or more. For an unfinished flow the time since its start is
    used. As in `fct_s`, means are means over runs, and percentiles are over the flows of all runs together.
    `NAME_censored` tells that a figure is a lower bound because of unfinished flows.
    """
    flows_of = flows_by_run(flows)
    runs = [{**run, "slowdown": slowdowns(flows_of(run["run"]))} for run in summary["runs"]]
    means = {
        name: [run["slowdown"][name] for run in runs if run["slowdown"][name] is not None]
        for name in ("mean", *SIZE_CLASSES)
    }
    over_runs = {name: mean(values) for name, values in means.items()}
    whole = {**slowdowns(flows), **over_runs, "ci95": ci95(means["mean"])}
    return {**summary, "runs": runs, "slowdown": whole}


def slowdowns(flows: pl.DataFrame) -> dict[str, float | bool | None]:
    """Mean and percentiles of the slowdown of the finite flows that started, and means by size class.

    >>> columns = {"slowdown": [2.0, 3.0], "finished": [True, False], "size_class": ["mouse", "elephant"]}
    >>> found = slowdowns(pl.DataFrame({**columns, "size_bytes": [9_000, 9_000_000]}))
    >>> found["mean"], found["mean_censored"], found["p50"]
    (2.5, True, 2.5)
    >>> found["mouse"], found["mouse_censored"], found["elephant_censored"], found["rabbit"]
    (2.0, False, True, None)
    """
    values = CensoredValues.of(flows, "slowdown")
    found = [
        values.mean("mean"),
        *(values.percentile(f"p{percent}", math.inf, percent / 100) for percent in PERCENTILES),
        *(CensoredValues.of(flows, "slowdown", name).mean(name) for name in SIZE_CLASSES),
    ]
    return {key: value for one in found for key, value in one.items()}
