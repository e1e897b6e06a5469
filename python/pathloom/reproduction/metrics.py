"""What can be measured of a run, by name.

A metric gives one number of one run, or None where the run has nothing to measure. A curve gives several, for pictures.
A new one is a function and a line in the table below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from pathloom.experiments.execution import Sample
from pathloom.experiments.stats import bounded_percentile, mean
from pathloom.experiments.summary import unfinished


@dataclass(frozen=True)
class RunData:
    """One run of one scheme."""

    flows: pl.DataFrame
    """As `pathloom.experiments.tables.FLOW_SCHEMA`."""
    summary: Mapping[str, Any]
    """As one of the `runs` in `result.json`."""
    samples: Sequence[Sample]
    """What had arrived by moments of the run; the last of them is when arrivals end."""
    access_bps: float
    """Rate of the slowest access link."""


class Takes(Protocol):
    """What a measure may give beside its name."""

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


Metric = Callable[[RunData, Takes], float | None]


def _flows(run: RunData, takes: Takes) -> pl.DataFrame:
    flows = run.flows
    if takes.below_bytes is not None:
        flows = flows.filter(pl.col("size_bytes") < takes.below_bytes)
    if takes.from_bytes is not None:
        flows = flows.filter(pl.col("size_bytes") >= takes.from_bytes)
    if takes.flow is not None:
        flows = flows.filter(pl.col("flow") == takes.flow)
    return flows


def _values(run: RunData, takes: Takes, column: str) -> list[float]:
    return [float(value) for value in _flows(run, takes)[column].drop_nulls().sort()]


def _throughput(run: RunData, takes: Takes) -> float | None:
    """Mean throughput of the flows, in per cent of the optimum."""
    return _times(100.0, mean(_values(run, takes, "throughput")))


def _interface_values(run: RunData, takes: Takes) -> list[float]:
    """Throughput of the flows as a share of what one interface can carry, however many a host has."""
    # A flow of a host with two interfaces has twice the optimum.
    interfaces = (pl.col("optimum_bps") / run.access_bps).round().clip(lower_bound=1.0)
    values = _flows(run, takes).select(pl.col("throughput") * interfaces)["throughput"]
    return [float(value) for value in values.drop_nulls().sort()]


def _interface_throughput(run: RunData, takes: Takes) -> float | None:
    """Mean throughput of the flows, in per cent of what one interface can carry."""
    return _times(100.0, mean(_interface_values(run, takes)))


def _worst_throughput(run: RunData, takes: Takes) -> float | None:
    """Throughput of the worst flow, in per cent of the optimum."""
    return _times(100.0, min(_values(run, takes, "throughput"), default=None))


def _goodput_share(run: RunData, _takes: Takes) -> float | None:
    """Payload that has arrived when arrivals of flows end, over all that finite flows offered, in per cent."""
    offered = int(run.flows["size_bytes"].sum())
    return 100.0 * run.samples[-1].delivered_bytes / offered if offered and run.samples else None


def _flows_at_least(run: RunData, takes: Takes) -> float | None:
    """Share of flows whose throughput is at least `level` per cent, in per cent."""
    values = _values(run, takes, "throughput")
    level = (takes.level or 0.0) / 100.0
    return 100.0 * sum(value >= level for value in values) / len(values) if values else None


def _flows_below(run: RunData, takes: Takes) -> float | None:
    """Share of flows whose throughput is less than `level` per cent, in per cent."""
    rest = _flows_at_least(run, takes)
    return None if rest is None else 100.0 - rest


def _shares(run: RunData, takes: Takes) -> list[float]:
    """Throughput of each flow in per cent of its part of the access link, ascending.

    Where a host has n flows, the part of each is 1/n (OFPT §6.2.2).
    """
    flows = _flows(run, takes)
    share = flows.select(pl.col("throughput") * pl.len().over("src"))["throughput"]
    return [100.0 * float(value) for value in share.drop_nulls().sort()]


def _share(run: RunData, takes: Takes) -> float | None:
    """Mean throughput of the flows, in per cent of their parts of the access links."""
    return mean(_shares(run, takes))


def _worst_share(run: RunData, takes: Takes) -> float | None:
    """Throughput of the worst flow, in per cent of its part of its access link."""
    return min(_shares(run, takes), default=None)


def _shares_at_least(run: RunData, takes: Takes) -> float | None:
    """Share of flows that have at least `level` per cent of their part of the access link, in per cent."""
    shares = _shares(run, takes)
    return 100.0 * sum(share >= (takes.level or 0.0) for share in shares) / len(shares) if shares else None


def _flow_rate(run: RunData, takes: Takes) -> float | None:
    """Mean over flows of size over completion time, in Mbit/s (TCP-Path §V.C)."""
    flows = _flows(run, takes).filter(pl.col("age_s") > 0)
    rates = flows.select(rate=8e-6 * pl.col("size_bytes") / pl.col("age_s"))["rate"]
    return mean([float(rate) for rate in rates.drop_nulls().sort()])


def _settled_rate(run: RunData, takes: Takes) -> float | None:
    """Mean of size over completion time, in Mbit/s, of the flows that start after a share `level` of the run.

    Only flows that finish before arrivals end count (TCP-Path §V.C, Fig. 11).
    """
    return _rate_from(run, takes, takes.level or 0.0)


def _rate_from(run: RunData, takes: Takes, share: float) -> float | None:
    end_s = run.samples[-1].at_s if run.samples else 0.0
    in_time = pl.col("finished") & (pl.col("start_s") + pl.col("age_s") <= end_s)
    flows = _flows(run, takes).filter(in_time & (pl.col("start_s") >= share * end_s))
    rates = flows.select(rate=8e-6 * pl.col("size_bytes") / pl.col("age_s"))["rate"]
    return mean([float(rate) for rate in rates.drop_nulls().sort()])


def _settling(run: RunData, takes: Takes) -> float | None:
    """How much more `settled_rate` is from the share `level` of the run on than from its beginning, in per cent."""
    late, early = _settled_rate(run, takes), _rate_from(run, takes, 0.0)
    return 100.0 * (late / early - 1.0) if late is not None and early else None


def _fct_mean(run: RunData, takes: Takes) -> float | None:
    """Mean flow completion time, in seconds."""
    return mean(_values(run, takes, "age_s"))


def _fct_p95(run: RunData, takes: Takes) -> float | None:
    """95th percentile of the flow completion time, in seconds."""
    return _p95(run, takes)[0]


def _p95(run: RunData, takes: Takes) -> tuple[float | None, bool | None]:
    """The percentile, and whether unfinished flows leave of it a lower bound."""
    flows = _flows(run, takes)
    cut = unfinished(flows)["age_s"].drop_nulls().to_list()
    return bounded_percentile(flows.filter("finished")["age_s"].drop_nulls().to_list(), cut, math.inf, 0.95)


def _fct_optimum(run: RunData, takes: Takes) -> float | None:
    """Mean flow size over the access rate, in seconds (OFPT §6.2.4)."""
    sizes = _values(run, takes, "size_bytes")
    return _times(8.0 / run.access_bps, mean(sizes))


def _fct_excess(run: RunData, takes: Takes) -> float | None:
    """How much more the mean flow completion time is than `fct_optimum`, in per cent."""
    time, optimum = _fct_mean(run, takes), _fct_optimum(run, takes)
    return 100.0 * (time / optimum - 1.0) if time is not None and optimum else None


def _unfinished(run: RunData, _takes: Takes) -> float | None:
    """Share of the finite flows that did not arrive whole, in per cent."""
    finite = run.flows.filter(pl.col("size_bytes").is_not_null())
    return _times(100.0, mean([float(not finished) for finished in finite["finished"]]))


def _makespan(run: RunData, _takes: Takes) -> float | None:
    """Time from the start of the first flow to the end of the last, in seconds."""
    starts = run.flows["start_s"].drop_nulls()
    ends = (run.flows["start_s"] + run.flows["age_s"]).drop_nulls().sort()
    return float(ends[-1]) - float(starts.sort()[0]) if ends.len() else None


def _makespan_share(run: RunData, takes: Takes) -> float | None:
    """All payload over the time until the last flow is complete, in per cent of the rate `level` in bit/s."""
    time_s = _makespan(run, takes)
    return 800.0 * float(run.flows["size_bytes"].sum()) / time_s / takes.level if time_s and takes.level else None


def _goodput(run: RunData, takes: Takes) -> float | None:
    """All payload over the time until the last flow is complete, in Mbit/s."""
    time_s = _makespan(run, takes)
    return 8e-6 * float(run.flows["size_bytes"].sum()) / time_s if time_s else None


def _busy(run: RunData, _takes: Takes) -> float | None:
    """Share of the run that the controller was busy, as modelled, in per cent."""
    return _times(100.0, run.summary["control"]["busy_share"])


def _messages(run: RunData, _takes: Takes) -> float | None:
    """Control messages."""
    return float(run.summary["control"]["messages"])


def _rules_max(run: RunData, _takes: Takes) -> float | None:
    """Most rules in any switch at any time."""
    return float(run.summary["control"]["rules_max"])


def _entries(run: RunData, _takes: Takes) -> float | None:
    """Entries for connections in a switch that runs a program: mean over switches and time."""
    programs = run.summary["programs"]
    return None if programs is None else float(programs["entries_mean"])


def _broadcast_share(run: RunData, _takes: Takes) -> float | None:
    """Bytes of broadcast frames over all other bytes that ToRs got, per million (TCP-Path §V.D.2)."""
    programs = run.summary["programs"]
    return None if programs is None else _times(1e6, programs["broadcast_share"])


REQUEST_BYTES = {"syn": 106, "arp": 82}
"""Bytes of a Path Request by what it carries (docs/tcp-path-frames.md)."""


def _request_share(run: RunData, takes: Takes) -> float | None:
    """Path Requests of connections over all but broadcast that ToRs got, in per cent of TCP-Path equation (3).

    `level` is N_S (N_L - 1) / 2 times the bytes of a Path Request. The flows of `from_bytes` and more are those that
    explore. The rest of the explorations are of ARP requests; each exploration reaches as many ToRs as any other.
    """
    programs, explored = run.summary["programs"], _flows(run, takes)["start_s"].count()
    size_bytes = int(run.flows["size_bytes"].sum())
    if programs is None or not programs["broadcast_share"] or not explored or not takes.level:
        return None
    of_connections = REQUEST_BYTES["syn"] * explored
    of_arp = REQUEST_BYTES["arp"] * (programs["explorations"] - explored)
    share = programs["broadcast_share"] * of_connections / (of_connections + of_arp)
    return 100.0 * float(share) * size_bytes / (takes.level * explored)


def _reroutes(run: RunData, _takes: Takes) -> float | None:
    """Flows moved from a path to another."""
    return float(run.summary["control"]["reroutes"])


def _polling_period(run: RunData, _takes: Takes) -> float | None:
    """Mean time from a round of readings to the next, in seconds, until arrivals end; None where there are not two.

    In the lab it is that of the whole run, drain included, and second looks within a round are no rounds.
    """
    sampled = run.samples[-1].polling_period_s if run.samples else None
    return sampled if sampled is not None else run.summary["control"].get("polling_period_s")


def _dropped(run: RunData, _takes: Takes) -> float | None:
    """Packets lost."""
    return float(run.summary["packets"]["dropped"])


def _reordered(run: RunData, _takes: Takes) -> float | None:
    """Segments that arrived after a later one, those sent again among them."""
    return float(run.flows["reordered"].sum())


def _goodput_least(run: RunData, _takes: Takes) -> float | None:
    """Least goodput between two samples, the first and the last stretch left out, in kbit/s."""
    return min((kbps for _, kbps in goodput_in_time(run)[1:-1]), default=None)


def _goodput_most(run: RunData, _takes: Takes) -> float | None:
    """Most goodput between two samples, the first and the last stretch left out, in kbit/s."""
    return max((kbps for _, kbps in goodput_in_time(run)[1:-1]), default=None)


def goodput_in_time(run: RunData) -> list[tuple[float, float]]:
    """Time in the middle between two samples, in seconds, and the goodput of all flows between them, in kbit/s."""
    return [
        ((before.at_s + after.at_s) / 2, 8e-3 * (after.delivered_bytes - before.delivered_bytes) / span_s)
        for before, after in zip(run.samples, run.samples[1:], strict=False)
        if (span_s := after.at_s - before.at_s) > 0
    ]


def by_rank(run: RunData, takes: Takes, metric: str) -> list[float]:
    """What `metric` is the mean of, flow by flow, ascending: one of `RANKED`."""
    if metric == "share":
        return _shares(run, takes)
    if metric == "interface_throughput":
        return [100.0 * value for value in _interface_values(run, takes)]
    return [100.0 * value for value in _values(run, takes, "throughput")]


RANKED = ("throughput", "share", "interface_throughput")
"""Metrics that are means over flows which `by_rank` gives one by one."""


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else factor * value


BOUNDS = {
    "fct_mean": "at least",
    "fct_p95": "at least",
    "fct_excess": "at least",
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
"""What unfinished flows leave of a metric, which counts them with the time they have had."""


def bound(run: RunData, takes: Takes, metric: str) -> str:
    """What a metric says of a run: `exactly`, or a bound alone, because flows were not finished."""
    if metric not in BOUNDS:
        return "exactly"
    cut = _p95(run, takes)[1] if metric == "fct_p95" else unfinished(_flows(run, takes))["age_s"].count() > 0
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
    "fct_p95": _fct_p95,
    "fct_optimum": _fct_optimum,
    "fct_excess": _fct_excess,
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
"""Name and function of every metric."""
