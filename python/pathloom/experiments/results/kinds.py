"""Packets by kind, such as negative acknowledgements and pulls: `kinds` of a scheme and of a run in `result.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def kinds_of(outcome: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The entry in `result.json` for the packets of one run by kind; empty if the transport acknowledges bytes."""
    found = outcome.get("kinds")
    return {} if found is None else {"kinds": dict(found)}


def kinds_of_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """The entry for the packets of all runs of a scheme: sums over runs.

    >>> kinds_of_runs([{"kinds": {"nacks": 2, "nacks_lost": 0}}, {"kinds": {"nacks": 3, "nacks_lost": 1}}])
    {'kinds': {'nacks': 5, 'nacks_lost': 1}}
    >>> kinds_of_runs([{}])
    {}
    """
    rows = [run["kinds"] for run in runs if "kinds" in run]
    return {"kinds": {name: sum(row[name] for row in rows) for name in rows[0]}} if rows else {}
