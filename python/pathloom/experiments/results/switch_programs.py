"""Figures of the programs of switches: `programs` of a scheme and of a run in `result.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathloom.experiments.results.stats import mean

MOST = ("entries_max", "hosts_max")
"""Figures of which the largest value of all runs is reported."""
MEANS = ("entries_mean", "broadcast_share")
"""Figures of which the mean over runs is reported. All other figures are counts, summed over runs."""


def programs_of(outcome: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry in `result.json` for the programs of one run; None if switches follow rules.

    `entries` has the mean number of entries for connections in a switch, by time in seconds.
    """
    found = outcome.get("programs")
    return None if found is None else {**found, "entries": [list(sample) for sample in found["entries"]]}


def programs_of_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None] | None:
    """The entry in `result.json` for the programs of all runs of a scheme."""
    rows = [run["programs"] for run in runs if run["programs"] is not None]
    if not rows:
        return None
    names = [name for name in rows[0] if name != "entries"]
    return {name: _together(name, [row[name] for row in rows]) for name in names}


def _together(name: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if name in MEANS:
        return mean(known)
    return max(known, default=0) if name in MOST else sum(known)
