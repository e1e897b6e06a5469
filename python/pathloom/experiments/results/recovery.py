"""Time to recover after a fault: from the fault until the goodput of all flows is nearly back at its former value.

It is computed from the series of flows, so its resolution is a step of `series`. It is most meaningful for long-lived
flows: if flows start and end, goodput changes without a fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pathloom import _core
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.stats import mean
from pathloom.experiments.settings.fault_times import fault_time_s
from pathloom.experiments.settings.model import Settings

RECOVERED = 0.9
"""Goodput counts as recovered at this share of its mean before the fault."""
BEFORE = 10
"""Maximum number of steps before a fault over which that mean is taken."""
UNTIL = 10
"""Steps after a fault within which goodput must fall if the fault has an effect."""
REPAIRS = ("up", "restore", "session-up", "controller-restart")
"""Faults that repair something."""


@dataclass(frozen=True)
class Recovery:
    """Recovery of the goodput after the faults at one time."""

    at_s: float
    took_s: float | None
    """Recovery time: 0 if goodput never fell, None if it was not back before the next fault or the end of arrivals."""


def with_recovery(summary: Mapping[str, Any], outcomes: Sequence[RunOutcome], settings: Settings) -> dict[str, Any]:
    """A scheme's summary with `recovery_s` in it and in its runs; null without series or faults."""
    found = {one.job.run: recoveries(one, settings) for one in outcomes}
    runs = [{**run, "recovery_s": _figures(found[run["run"]])} for run in summary["runs"]]
    return {**summary, "runs": runs, "recovery_s": _figures([one for several in found.values() for one in several])}


def recoveries(one: RunOutcome, settings: Settings) -> list[Recovery]:
    """Recovery of the goodput of a run after each of its faults; empty without series or faults."""
    series = one.outcome.get("series")
    if not series or settings.series is None:
        return []
    step_s = _core.parse_time_s(settings.series)
    steps = math.floor(settings.duration_s / step_s + 1e-9)
    places = np.rint(series["flow.at_s"] / step_s).astype(np.int64) - 1
    within = (places >= 0) & (places < steps)
    goodput = np.bincount(places[within], weights=series["flow.goodput_bps"][within], minlength=steps)
    begins = fault_times_s(settings)
    return [
        Recovery(at_s, _took_s(goodput, at_s, next_s, step_s))
        for at_s, next_s in pairwise([*begins, settings.duration_s])
        if at_s < settings.duration_s and _level(goodput, at_s, step_s)
    ]


def fault_times_s(settings: Settings) -> list[float]:
    """Times of the faults that break something, each once."""
    return sorted({fault_time_s(fault) for fault in settings.faults if fault.split(":")[1].strip() not in REPAIRS})


def _level(goodput: np.ndarray[Any, Any], at_s: float, step_s: float) -> float:
    """The mean goodput before a time; 0 if there was none."""
    last = math.floor(at_s / step_s + 1e-9)
    before = goodput[max(last - BEFORE, 0) : last]
    return float(before.mean()) if len(before) else 0.0


def _took_s(goodput: np.ndarray[Any, Any], at_s: float, until_s: float, step_s: float) -> float | None:
    first, last = math.floor(at_s / step_s + 1e-9), math.floor(until_s / step_s + 1e-9)
    enough = goodput[first:last] >= RECOVERED * _level(goodput, at_s, step_s)
    fallen = np.flatnonzero(~enough[:UNTIL])
    if not len(fallen):
        return 0.0
    again = np.flatnonzero(enough[fallen[0] :])
    if not len(again):
        return None
    return round(float((first + fallen[0] + again[0] + 1) * step_s - at_s), 9)


def _figures(found: Sequence[Recovery]) -> dict[str, float | int | None] | None:
    if not found:
        return None
    took_s = [one.took_s for one in found if one.took_s is not None]
    return {
        "mean": mean(took_s),
        "max": max(took_s, default=None),
        "faults": len(found),
        "unrecovered": len(found) - len(took_s),
    }
