"""What `--fidelity skip` skipped: `skipped` of a scheme and of a run in `result.json`, and the notes on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathloom.experiments.results.facts import Facts
from pathloom.quantities import counted, percent_text


def skipped_of(outcome: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The entry in `result.json` for what was skipped of one run; empty if every packet was simulated by choice."""
    found = outcome.get("skipped")
    if found is None:
        return {}
    end_s = outcome["end_ns"] / 1e9
    return {"skipped": {**found, "share": found["time_s"] / end_s if end_s else 0.0}}


def skipped_of_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The entry for all runs of a scheme: time and jumps in all, and the share of the simulated time.

    >>> run = {"skipped": {"time_s": 6.0, "jumps": 2, "share": 0.75, "obstacle": None}, "end_s": 8.0}
    >>> skipped_of_runs([run, run])
    {'skipped': {'time_s': 12.0, 'jumps': 4, 'share': 0.75}}
    >>> skipped_of_runs([{}])
    {}
    """
    rows = [run["skipped"] for run in runs if "skipped" in run]
    if not rows:
        return {}
    time_s, end_s = sum(row["time_s"] for row in rows), sum(run["end_s"] for run in runs)
    jumps = sum(row["jumps"] for row in rows)
    return {"skipped": {"time_s": time_s, "jumps": jumps, "share": time_s / end_s if end_s else 0.0}}


def skip_notes(result: Facts) -> list[str]:
    """For each scheme, how much of its runs was skipped, or why nothing was."""
    notes = []
    for label in result.settings.labels:
        rows = [
            (one, entry["skipped"])
            for one in result.outcomes
            if one.job.label == label
            if (entry := skipped_of(one.outcome))
        ]
        if not rows:
            continue
        jumps = sum(row["jumps"] for _, row in rows)
        if not jumps:
            causes = " or ".join(dict.fromkeys(row["obstacle"] for _, row in rows if row["obstacle"]))
            notes.append(f"scheme {label}: nothing was skipped, because {causes}; see docs/fidelity.md")
            continue
        end_s = sum(one.outcome["end_ns"] for one, _ in rows) / 1e9
        share = sum(row["time_s"] for _, row in rows) / end_s
        notes.append(
            f"scheme {label}: {percent_text(share)} of the simulated time was skipped, in {counted(jumps, 'phase')} "
            "with steady rates (--fidelity skip); see docs/fidelity.md"
        )
    return notes
