"""Flows whose packets a full queue drops again and again, because hosts send at exact times."""

from __future__ import annotations

import polars as pl

from pathloom import _core
from pathloom.experiments.results.facts import Facts
from pathloom.quantities import count_text, counted

LEAST_TIMEOUTS = 5
"""Time-outs from which a flow counts. Each one in a row doubles the next."""
LEAST_SHARE = 0.5
"""Share of its time that such a flow waits for time-outs."""


def lock_out_notes(result: Facts) -> list[str]:
    """Schemes under which flows wait for time-outs most of their time while hosts send without a random delay."""
    if _core.transport_settings(result.settings.transport)["jitter"] != 0 or not result.outcomes:
        return []
    # Flows without end have no age.
    age_s = pl.coalesce("age_s", result.settings.duration_s - pl.col("start_s"))
    waits = (pl.col("timeouts") >= LEAST_TIMEOUTS) & (pl.col("timeout_wait_s") >= LEAST_SHARE * age_s)
    notes = []
    for label in result.settings.labels:
        flows = result.flows.filter(pl.col("scheme") == label)
        count = flows.filter(waits.fill_null(False)).height
        if count:
            notes.append(
                f"scheme {label}: {count_text(count)} of {counted(flows.height, 'flow')} had {LEAST_TIMEOUTS} "
                "time-outs or more and waited for them at least half of the time; with jitter=0s a full queue can drop "
                "the packets of the same flows again and again, which the default jitter prevents"
            )
    return notes
