"""The exact optimum for the traffic of a run, to compare the results of a scheme with.

For long-lived flows the optimum is a linear program over all splits of the traffic, so no routing does better. For
finite flows it is a lower bound of each FCT: the time of its frames at the rate of the access link, and propagation.
Handshake, slow start, and storing and forwarding in switches are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pathloom.experiments.results.censored import PERCENTILES
from pathloom.experiments.results.stats import mean, percentile
from pathloom.experiments.results.tables import flows_by_run
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.optimum import max_throughput

FRAME_BYTES, PAYLOAD_BYTES = 1514, 1448
"""Bytes of a full frame of a default transport, and of its payload."""
TIME_LIMIT_S = 600.0
"""Time limit of the linear program of a run. If it is exceeded, the run has no optimum of throughput."""


class Yardstick:
    """Optima of the runs of one experiment. All schemes have the same flows in a run, so each is computed once."""

    def __init__(self, settings: Settings, fabric: Fabric) -> None:
        self._fabric = fabric
        # If segments have another length, headers are left out of the demand; the bound is then a little higher.
        standard = "mss=" not in (settings.transport or "")
        self._wire_share = FRAME_BYTES / PAYLOAD_BYTES if standard else 1.0
        self._numbers = {name: number for number, name in enumerate(fabric.names)}
        self._known: dict[tuple[Any, ...], float | None] = {}

    def of_run(self, flows: pl.DataFrame) -> dict[str, Any]:
        """Optimum of throughput and FCT for the flows of one run."""
        ideal = _ideals(flows)
        return {
            "throughput": {"mean": self._throughput(flows)},
            "fct_s": {"mean": mean(ideal), **{f"p{p}": percentile(ideal, p / 100) for p in PERCENTILES}},
        }

    def of_scheme(self, runs: Sequence[Mapping[str, Any]], flows: pl.DataFrame) -> dict[str, Any]:
        """Means over the runs; percentiles of the flows of all runs together, as in the summary of a scheme."""
        ideal = _ideals(flows)
        means = {
            key: _mean_of([run["optimum"][key]["mean"] for run in runs if "optimum" in run])
            for key in ("throughput", "fct_s")
        }
        return {
            "throughput": {"mean": means["throughput"]},
            "fct_s": {"mean": means["fct_s"], **{f"p{p}": percentile(ideal, p / 100) for p in PERCENTILES}},
        }

    def _throughput(self, flows: pl.DataFrame) -> float | None:
        """The greatest mean throughput of the flows of a run; None if the program was not solved in time."""
        long_lived = flows.filter(pl.col("size_bytes").is_null() & pl.col("start_s").is_not_null())
        finite = int(flows["age_s"].count())  # The throughput of a finite flow is at most 1.
        if long_lived.height == 0:
            return 1.0 if finite else None
        pairs = tuple(long_lived.select("src", "dst", "optimum_bps").iter_rows())
        if pairs not in self._known:
            self._known[pairs] = self._solved(pairs)
        most = self._known[pairs]
        return None if most is None else (most + finite) / (len(pairs) + finite)

    def _solved(self, pairs: Sequence[tuple[str, str, float]]) -> float | None:
        """The greatest sum of throughputs of long-lived flows, each at most 1."""
        demands = [
            (self._numbers[src], self._numbers[dst], optimum_bps * self._wire_share) for src, dst, optimum_bps in pairs
        ]
        weights = [1.0 / demand_bps for _, _, demand_bps in demands]
        found = max_throughput(self._fabric.core, demands, weights=weights, time_limit_s=TIME_LIMIT_S)
        if not found.exact:
            return None
        return math.fsum(min(1.0, rate * weight) for rate, weight in zip(found.rates_bps, weights, strict=True))


def _ideals(flows: pl.DataFrame) -> list[float]:
    """Ideal completion times, ascending. That of an unfinished flow is at most the time since its start."""
    started = flows.filter(pl.col("age_s").is_not_null())
    return started.select(pl.min_horizontal("ideal_fct_s", "age_s")).to_series().sort().to_list()


def of_optimum(scheme: Mapping[str, Any]) -> dict[str, float | None]:
    """A scheme's throughput over the optimum (at most about 1), and its mean FCT over the ideal (1 or more)."""

    def ratio(key: str) -> float | None:
        value, optimum = scheme[key]["mean"], scheme["optimum"][key]["mean"]
        return value / optimum if value is not None and optimum else None

    return {"throughput": ratio("throughput"), "fct_s": ratio("fct_s")}


def with_optimum(summary: dict[str, Any], flows: pl.DataFrame, yardstick: Yardstick) -> dict[str, Any]:
    """A scheme's summary with `optimum` in it and in its runs, and `of_optimum`. `flows` are those of all its runs."""
    flows_of = flows_by_run(flows)
    runs = [{**run, "optimum": yardstick.of_run(flows_of(run["run"]))} for run in summary["runs"]]
    whole = {**summary, "runs": runs, "optimum": yardstick.of_scheme(runs, flows)}
    return {**whole, "of_optimum": of_optimum(whole)}


def _mean_of(values: Sequence[float | None]) -> float | None:
    return mean([value for value in values if value is not None])
