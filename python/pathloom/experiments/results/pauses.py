"""Figures of priority-based flow control: `pauses` of a scheme and of a run in `result.json`, and the notes on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathloom.experiments.results.facts import Facts
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.quantities import counted, time_text

MOST = ("most_beyond_xoff_bytes", "victim_paused_s", "deadlock_stuck_links")
"""Figures of which the largest value of all runs is reported. All other figures are sums over runs."""
OF_A_RUN = ("victim_flows", "deadlock_cycle", "deadlock_since_s")
"""Figures of single runs only: flows held back, the links of the cycle, and when the last of them was paused."""


def pauses_of(outcome: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry in `result.json` for the pauses of one run; None if ports pause no sender."""
    found = outcome.get("pauses")
    return None if found is None else dict(found)


def pauses_of_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """The entry in `result.json` for the pauses of all runs of a scheme; `deadlocks` counts the runs that had one."""
    rows = [run["pauses"] for run in runs if run["pauses"] is not None]
    if not rows:
        return None
    names = [name for name in rows[0] if name not in OF_A_RUN]
    figures = {name: (max if name in MOST else sum)(row[name] for row in rows) for name in names}
    return {**figures, "deadlocks": sum(row["deadlock_cycle"] is not None for row in rows)}


def deadlock_notes(result: Facts) -> list[str]:
    """The schemes with runs in which paused links wait for each other in a cycle, with the first such cycle."""
    notes = []
    for label in result.settings.labels:
        of_scheme = [one for one in result.outcomes if one.job.label == label]
        stuck = [(one, pauses) for one in of_scheme if (pauses := _deadlocked(one)) is not None]
        if stuck:
            one, pauses = stuck[0]
            notes.append(
                f"scheme {label}: {len(stuck)} of {counted(len(of_scheme), 'run')} ended in deadlock; "
                f"in run {one.job.run} the paused links {pauses['deadlock_cycle']} have waited for each other since "
                f"{time_text(pauses['deadlock_since_s'])}, and {counted(pauses['deadlock_stuck_links'], 'link')} in "
                "all can never be resumed"
            )
    return notes


def victim_notes(result: Facts) -> list[str]:
    """The schemes with flows that pauses held back although they did not feed the queue that caused the pause."""
    notes = []
    for label in result.settings.labels:
        of_scheme = [one for one in result.outcomes if one.job.label == label]
        found = [(one, victims) for one in of_scheme if (victims := _victims(one))]
        if found:
            one, victims = max(found, key=lambda pair: float(pair[1][0]["paused_s"]))
            count = sum(int(each.outcome["pauses"]["victims"]) for each, _ in found)
            first = victims[0]
            notes.append(
                f"scheme {label}: pauses held back {counted(count, 'flow')} that did not feed the queue of their root; "
                f"the longest was {first['src']} → {first['dst']} in run {one.job.run}: "
                f"{time_text(first['paused_s'])} at {first['at']}, because of the queue of {first['because_of']}"
            )
    return notes


def _victims(one: RunOutcome) -> Sequence[Mapping[str, Any]]:
    """The flows of a run that were held back for the longest time."""
    pauses: Mapping[str, Any] = one.outcome.get("pauses") or {}
    victims: Sequence[Mapping[str, Any]] = pauses.get("victim_flows", [])
    return victims


def _deadlocked(one: RunOutcome) -> Mapping[str, Any] | None:
    """The figures of a run that ended in a deadlock."""
    pauses: Mapping[str, Any] = one.outcome.get("pauses") or {}
    return pauses if pauses.get("deadlock_cycle") is not None else None
