"""Metrics of a run, by name.

A metric computes one number of one run, or None if the run has nothing to measure. A curve has several numbers, for
pictures. To add a metric, write a function and add a line to `METRICS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from pathloom.experiments.results.outcome import Sample
from pathloom.experiments.results.stats import bounded_percentile, mean
from pathloom.experiments.results.summary import unfinished
from pathloom.optimum.order import Job, completion_times

PAYLOAD_SHARE = 1448.0 / 1514.0
"""Payload of a full frame of TCP over its length."""


@dataclass(frozen=True)
class RunData:
    """One run of one scheme."""

    flows: pl.DataFrame
    """Table with the columns of `pathloom.experiments.results.tables.FLOW_SCHEMA`."""
    summary: Mapping[str, Any]
    """The same as one of the `runs` in `result.json`."""
    samples: Sequence[Sample]
    """Data that had arrived by certain times of the run; the last time is the end of arrivals."""
    access_bps: float
    """Rate of the slowest access link."""


class MeasureParameters(Protocol):
    """Parameters of a measure besides its name."""

    @property
    def level(self) -> float | None:
        """A threshold, in the unit of the metric."""

    @property
    def below_bytes(self) -> int | None:
        """Only flows smaller than this count."""

    @property
    def from_bytes(self) -> int | None:
        """Only flows of this size and larger count."""

    @property
    def flow(self) -> int | None:
        """Index of the one flow that counts."""


Metric = Callable[[RunData, MeasureParameters], float | None]


def _flows(run: RunData, parameters: MeasureParameters) -> pl.DataFrame:
    flows = run.flows
    if parameters.below_bytes is not None:
        flows = flows.filter(pl.col("size_bytes") < parameters.below_bytes)
    if parameters.from_bytes is not None:
        flows = flows.filter(pl.col("size_bytes") >= parameters.from_bytes)
    if parameters.flow is not None:
        flows = flows.filter(pl.col("flow") == parameters.flow)
    return flows


def _values(run: RunData, parameters: MeasureParameters, column: str) -> list[float]:
    return [float(value) for value in _flows(run, parameters)[column].drop_nulls().sort()]


def _throughput(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean throughput of the flows, in per cent of the optimum."""
    return _times(100.0, mean(_values(run, parameters, "throughput")))


def _interface_values(run: RunData, parameters: MeasureParameters) -> list[float]:
    """Throughput of the flows as a share of the rate of one interface, even if a host has several."""
    # A flow of a host with two interfaces has twice the optimum.
    interfaces = (pl.col("optimum_bps") / run.access_bps).round().clip(lower_bound=1.0)
    values = _flows(run, parameters).select(pl.col("throughput") * interfaces)["throughput"]
    return [float(value) for value in values.drop_nulls().sort()]


def _interface_throughput(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean throughput of the flows, in per cent of the rate of one interface."""
    return _times(100.0, mean(_interface_values(run, parameters)))


def _worst_throughput(run: RunData, parameters: MeasureParameters) -> float | None:
    """Throughput of the worst flow, in per cent of the optimum."""
    return _times(100.0, min(_values(run, parameters, "throughput"), default=None))


def _goodput_share(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Payload delivered by the end of arrivals, over the payload that finite flows offered, in per cent."""
    offered = int(run.flows["size_bytes"].sum())
    return 100.0 * run.samples[-1].delivered_bytes / offered if offered and run.samples else None


def _flows_at_least(run: RunData, parameters: MeasureParameters) -> float | None:
    """Share of flows whose throughput is at least `level` per cent, in per cent."""
    values = _values(run, parameters, "throughput")
    level = (parameters.level or 0.0) / 100.0
    return 100.0 * sum(value >= level for value in values) / len(values) if values else None


def _flows_below(run: RunData, parameters: MeasureParameters) -> float | None:
    """Share of flows whose throughput is less than `level` per cent, in per cent."""
    rest = _flows_at_least(run, parameters)
    return None if rest is None else 100.0 - rest


def _shares(run: RunData, parameters: MeasureParameters) -> list[float]:
    """Throughput of each flow in per cent of its part of the access link, ascending.

    Where a host has n flows, the part of each is 1/n (OFPT §6.2.2).
    """
    flows = _flows(run, parameters)
    share = flows.select(pl.col("throughput") * pl.len().over("src"))["throughput"]
    return [100.0 * float(value) for value in share.drop_nulls().sort()]


def _share(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean throughput of the flows, in per cent of their parts of the access links."""
    return mean(_shares(run, parameters))


def _worst_share(run: RunData, parameters: MeasureParameters) -> float | None:
    """Throughput of the worst flow, in per cent of its part of its access link."""
    return min(_shares(run, parameters), default=None)


def _shares_at_least(run: RunData, parameters: MeasureParameters) -> float | None:
    """Share of flows that have at least `level` per cent of their part of the access link, in per cent."""
    shares = _shares(run, parameters)
    return 100.0 * sum(share >= (parameters.level or 0.0) for share in shares) / len(shares) if shares else None


def _flow_rate(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean over flows of size over completion time, in Mbit/s (TCP-Path §V.C)."""
    flows = _flows(run, parameters).filter(pl.col("age_s") > 0)
    rates = flows.select(rate=8e-6 * pl.col("size_bytes") / pl.col("age_s"))["rate"]
    return mean([float(rate) for rate in rates.drop_nulls().sort()])


def _settled_rate(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean of size over completion time, in Mbit/s, of the flows that start after a share `level` of the run.

    Only flows that finish before arrivals end count (TCP-Path §V.C, Fig. 11).
    """
    return _rate_from(run, parameters, parameters.level or 0.0)


def _rate_from(run: RunData, parameters: MeasureParameters, share: float) -> float | None:
    end_s = run.samples[-1].at_s if run.samples else 0.0
    in_time = pl.col("finished") & (pl.col("start_s") + pl.col("age_s") <= end_s)
    flows = _flows(run, parameters).filter(in_time & (pl.col("start_s") >= share * end_s))
    rates = flows.select(rate=8e-6 * pl.col("size_bytes") / pl.col("age_s"))["rate"]
    return mean([float(rate) for rate in rates.drop_nulls().sort()])


def _settling(run: RunData, parameters: MeasureParameters) -> float | None:
    """Increase of `settled_rate` from the share `level` of the run on, over that from the beginning, in per cent."""
    late, early = _settled_rate(run, parameters), _rate_from(run, parameters, 0.0)
    return 100.0 * (late / early - 1.0) if late is not None and early else None


def _fct_mean(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean flow completion time, in seconds."""
    return mean(_values(run, parameters, "age_s"))


def _fct_p95(run: RunData, parameters: MeasureParameters) -> float | None:
    """95th percentile of the flow completion time, in seconds."""
    return _p95(run, parameters)[0]


def _p95(run: RunData, parameters: MeasureParameters) -> tuple[float | None, bool | None]:
    """The percentile, and whether it is only a lower bound because of unfinished flows."""
    flows = _flows(run, parameters)
    cut = unfinished(flows)["age_s"].drop_nulls().to_list()
    return bounded_percentile(flows.filter("finished")["age_s"].drop_nulls().to_list(), cut, math.inf, 0.95)


def _fct_p50(run: RunData, parameters: MeasureParameters) -> float | None:
    """Median of the flow completion time, in seconds. Unlike the mean, a few time-outs do not decide it."""
    flows = _flows(run, parameters)
    cut = unfinished(flows)["age_s"].drop_nulls().to_list()
    return bounded_percentile(flows.filter("finished")["age_s"].drop_nulls().to_list(), cut, math.inf, 0.5)[0]


def _fct_prompt(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean flow completion time of the flows that took less than `level` seconds: those that lost no SYN."""
    level = parameters.level if parameters.level is not None else math.inf
    return mean([age_s for age_s in _values(run, parameters, "age_s") if age_s < level])


def _fct_optimum(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean flow size over the access rate, in seconds (OFPT §6.2.4)."""
    sizes = _values(run, parameters, "size_bytes")
    return _times(8.0 / run.access_bps, mean(sizes))


def _fct_excess(run: RunData, parameters: MeasureParameters) -> float | None:
    """Excess of the mean flow completion time over `fct_optimum`, in per cent."""
    time, optimum = _fct_mean(run, parameters), _fct_optimum(run, parameters)
    return 100.0 * (time / optimum - 1.0) if time is not None and optimum else None


def _fct_order(run: RunData, parameters: MeasureParameters) -> float | None:
    """Mean flow completion time over that of the best order, which serves the flow with the least left first.

    All hosts have the rate of the slowest access link. Flows that have not finished count with their age.
    """
    finite = run.flows.filter(pl.col("size_bytes").is_not_null() & pl.col("start_s").is_not_null())
    columns = (finite["start_s"], finite["src"], finite["dst"], finite["size_bytes"])
    jobs = [Job(*row) for row in zip(*columns, strict=True)]
    best = mean(completion_times(jobs, run.access_bps * PAYLOAD_SHARE))
    time = _fct_mean(run, parameters)
    return time / best if time is not None and best else None


def _unfinished(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Share of the finite flows that did not finish, in per cent."""
    finite = run.flows.filter(pl.col("size_bytes").is_not_null())
    return _times(100.0, mean([float(not finished) for finished in finite["finished"]]))


def _makespan(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Time from the start of the first flow to the end of the last, in seconds."""
    starts = run.flows["start_s"].drop_nulls()
    ends = (run.flows["start_s"] + run.flows["age_s"]).drop_nulls().sort()
    return float(ends[-1]) - float(starts.sort()[0]) if ends.len() else None


def _makespan_share(run: RunData, parameters: MeasureParameters) -> float | None:
    """All payload over the time until the last flow is complete, in per cent of the rate `level` in bit/s."""
    time_s = _makespan(run, parameters)
    return (
        800.0 * float(run.flows["size_bytes"].sum()) / time_s / parameters.level
        if time_s and parameters.level
        else None
    )


def _goodput(run: RunData, parameters: MeasureParameters) -> float | None:
    """All payload over the time until the last flow is complete, in Mbit/s."""
    time_s = _makespan(run, parameters)
    return 8e-6 * float(run.flows["size_bytes"].sum()) / time_s if time_s else None


def _busy(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Share of the run that the modelled controller was busy, in per cent."""
    return _times(100.0, run.summary["control"]["busy_share"])


def _messages(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Number of control messages."""
    return float(run.summary["control"]["messages"])


def _rules_max(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Maximum number of rules in any switch at any time."""
    return float(run.summary["control"]["rules_max"])


def _entries(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Mean number of entries for connections in a switch that runs a program, over switches and time."""
    programs = run.summary["programs"]
    return None if programs is None else float(programs["entries_mean"])


def _broadcast_share(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Bytes of broadcast frames over all other bytes that ToRs received, per million (TCP-Path §V.D.2)."""
    programs = run.summary["programs"]
    return None if programs is None else _times(1e6, programs["broadcast_share"])


REQUEST_BYTES = {"syn": 106, "arp": 82}
"""Bytes of a Path Request, by the packet that it carries (docs/tcp-path-frames.md)."""


def _request_share(run: RunData, parameters: MeasureParameters) -> float | None:
    """Path Requests of connections over non-broadcast bytes at ToRs, in per cent of TCP-Path equation (3).

    `level` is N_S (N_L - 1) / 2 times the bytes of a Path Request. Flows of `from_bytes` and more explore paths. The
    other explorations are for ARP requests; every exploration reaches the same number of ToRs.
    """
    programs, explored = run.summary["programs"], _flows(run, parameters)["start_s"].count()
    size_bytes = int(run.flows["size_bytes"].sum())
    if programs is None or not programs["broadcast_share"] or not explored or not parameters.level:
        return None
    of_connections = REQUEST_BYTES["syn"] * explored
    of_arp = REQUEST_BYTES["arp"] * (programs["explorations"] - explored)
    share = programs["broadcast_share"] * of_connections / (of_connections + of_arp)
    return 100.0 * float(share) * size_bytes / (parameters.level * explored)


def _reroutes(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Number of moves of flows from one path to another."""
    return float(run.summary["control"]["reroutes"])


def _polling_period(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Mean time between rounds of readings until arrivals end, in seconds; None with fewer than two rounds.

    In the lab it is the mean over the whole run, drain included. Second readings within a round do not count.
    """
    sampled = run.samples[-1].polling_period_s if run.samples else None
    return sampled if sampled is not None else run.summary["control"].get("polling_period_s")


def _dropped(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Number of lost packets."""
    return float(run.summary["packets"]["dropped"])


def _reordered(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Number of segments that arrived after a later one, retransmissions included."""
    return float(run.flows["reordered"].sum())


def _goodput_least(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Least goodput between two samples, without the first and the last interval, in kbit/s."""
    return min((kbps for _, kbps in goodput_in_time(run)[1:-1]), default=None)


def _goodput_most(run: RunData, _parameters: MeasureParameters) -> float | None:
    """Greatest goodput between two samples, without the first and the last interval, in kbit/s."""
    return max((kbps for _, kbps in goodput_in_time(run)[1:-1]), default=None)


def goodput_in_time(run: RunData) -> list[tuple[float, float]]:
    """Middle time between two samples, in seconds, and the goodput of all flows between them, in kbit/s."""
    return [
        ((before.at_s + after.at_s) / 2, 8e-3 * (after.delivered_bytes - before.delivered_bytes) / span_s)
        for before, after in zip(run.samples, run.samples[1:], strict=False)
        if (span_s := after.at_s - before.at_s) > 0
    ]


def by_rank(run: RunData, parameters: MeasureParameters, metric: str) -> list[float]:
    """The values of the flows whose mean is `metric`, ascending. `metric` is one of `RANKED`."""
    if metric == "share":
        return _shares(run, parameters)
    if metric == "interface_throughput":
        return [100.0 * value for value in _interface_values(run, parameters)]
    return [100.0 * value for value in _values(run, parameters, "throughput")]


RANKED = ("throughput", "share", "interface_throughput")
"""Metrics that are means over flows; `by_rank` returns the values of the flows."""


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else factor * value


BOUNDS = {
    "fct_mean": "at least",
    "fct_p95": "at least",
    "fct_excess": "at least",
    "fct_order": "at least",
    "makespan": "at least",
    "flows_below": "at least",
    "throughput": "at most",
    "interface_throughput": "at most",
    "flow_rate": "at most",
    "worst_throughput": "at most",
    "flows_at_least": "at most",
    "share": "at most",
    "worst_share": "at most",
    "shares_at_least": "at most",
    "makespan_share": "at most",
    "goodput": "at most",
}
"""Kind of bound that unfinished flows make of a metric, which uses their time since the start."""


def bound(run: RunData, parameters: MeasureParameters, metric: str) -> str:
    """Whether a metric of a run is exact (`exactly`) or only a bound, because flows were not finished."""
    if metric not in BOUNDS:
        return "exactly"
    cut = _p95(run, parameters)[1] if metric == "fct_p95" else unfinished(_flows(run, parameters))["age_s"].count() > 0
    return BOUNDS[metric] if cut else "exactly"


METRICS: dict[str, Metric] = {
    "throughput": _throughput,
    "interface_throughput": _interface_throughput,
    "worst_throughput": _worst_throughput,
    "goodput_share": _goodput_share,
    "flows_at_least": _flows_at_least,
    "flows_below": _flows_below,
    "share": _share,
    "worst_share": _worst_share,
    "shares_at_least": _shares_at_least,
    "flow_rate": _flow_rate,
    "settled_rate": _settled_rate,
    "settling": _settling,
    "fct_mean": _fct_mean,
    "fct_p50": _fct_p50,
    "fct_prompt": _fct_prompt,
    "fct_p95": _fct_p95,
    "fct_optimum": _fct_optimum,
    "fct_excess": _fct_excess,
    "fct_order": _fct_order,
    "unfinished": _unfinished,
    "makespan": _makespan,
    "makespan_share": _makespan_share,
    "goodput": _goodput,
    "busy": _busy,
    "messages": _messages,
    "rules_max": _rules_max,
    "entries": _entries,
    "broadcast_share": _broadcast_share,
    "request_share": _request_share,
    "reroutes": _reroutes,
    "polling_period": _polling_period,
    "dropped": _dropped,
    "reordered": _reordered,
    "goodput_least": _goodput_least,
    "goodput_most": _goodput_most,
}
"""Functions of all metrics, by name."""
