"""The time after the last flow of a run: where pages and plots of series end, and the note on what happens later.

After its last byte has arrived, a transfer closes its connection, and timers may repeat packets for a long time.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pathloom import _core
from pathloom.experiments.results.facts import Facts
from pathloom.quantities import time_text

MUCH_LATER = 0.1
"""What happens after the end is worth a note if it takes this share of the time before."""
NEARLY_S = 1e-9
"""The clock of the simulator has whole nanoseconds."""


def end_of_flows_s(flows: pl.DataFrame) -> float | None:
    """When the last flow of a run ended; None if some flow did not, so that the run ended before its flows."""
    if flows.height == 0 or not flows["finished"].all() or flows["fct_s"].null_count() > 0:
        return None
    return float((flows["start_s"] + flows["fct_s"]).max())  # type: ignore[arg-type]


def steps_with_flows(at_s: Sequence[float], end_s: float | None) -> list[float]:
    """Of the ends of steps, in ascending order, those up to the step in which the last flow ended."""
    if end_s is None:
        return list(at_s)
    before = sum(1 for at in at_s if at < end_s - NEARLY_S)
    return list(at_s[: before + 1])


def until_end(series: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """The rows of the series of one run up to the step in which its last flow ended."""
    known = series["at_s"].unique().sort().to_list()
    kept = steps_with_flows(known, end_of_flows_s(flows))
    return series.filter(pl.col("at_s") <= kept[-1] + NEARLY_S) if kept else series


def after_end_notes(result: Facts) -> list[str]:
    """The schemes with links that sent long after the last flow had ended."""
    if result.settings.series is None:
        return []
    step_s, notes = _core.parse_time_s(result.settings.series), []
    for label in result.settings.labels:
        late = []
        for one in result.outcomes:
            sent_s = (one.outcome.get("series") or {}).get("link.at_s", [])
            mine = (pl.col("scheme") == label) & (pl.col("run") == one.job.run)
            end_s = end_of_flows_s(result.flows.filter(mine)) if one.job.label == label else None
            if end_s is not None and len(sent_s) and max(sent_s) > end_s + max(step_s, MUCH_LATER * end_s):
                late.append((float(max(sent_s)), end_s))
        if late:
            last_s, end_s = max(late)
            notes.append(
                f"scheme {label}: the last flow ended at {time_text(end_s)}, and links sent until {time_text(last_s)}: "
                "ends of connections, and packets that timers repeat; series are shown until the last flow ends"
            )
    return notes
