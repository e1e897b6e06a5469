"""FCT slowdown: how many times longer a flow took than the lower bound of its FCT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from pathloom.experiments.results.censored import figures_by_size
from pathloom.experiments.results.definitions import SIZE_CLASSES
from pathloom.experiments.results.stats import ci95, mean
from pathloom.experiments.results.tables import flows_by_run


def with_slowdown(summary: Mapping[str, Any], flows: pl.DataFrame) -> dict[str, Any]:
    """A scheme's summary with `slowdown` in it and in its runs. `flows` are those of all its runs.

    The slowdown of a flow is its FCT over its ideal FCT, 1 or more. For an unfinished flow the time since its start is
    used. As in `fct_s`, means are means over runs, and percentiles are over the flows of all runs together.
    `NAME_censored` tells that a figure is a lower bound because of unfinished flows.
    """
    flows_of = flows_by_run(flows)
    runs = [{**run, "slowdown": figures_by_size(flows_of(run["run"]), "slowdown")} for run in summary["runs"]]
    means = {
        name: [run["slowdown"][name] for run in runs if run["slowdown"][name] is not None]
        for name in ("mean", *SIZE_CLASSES)
    }
    over_runs = {name: mean(values) for name, values in means.items()}
    whole = {**figures_by_size(flows, "slowdown"), **over_runs, "ci95": ci95(means["mean"])}
    return {**summary, "runs": runs, "slowdown": whole}
