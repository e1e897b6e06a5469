"""Flows that got no answer to their first segment before the run ended."""

from __future__ import annotations

import polars as pl

from pathloom import _core
from pathloom.experiments.results.facts import Facts
from pathloom.quantities import count_text, counted, share_text, time_text


def unanswered_notes(result: Facts) -> list[str]:
    """Schemes under which flows delivered nothing because their first segment or its answer was lost.

    A flow counts if it has waited for an answer for longer than the longest round trip with full queues.
    """
    trips = result.fabric.round_trip_ps()
    if trips is None or not result.outcomes:
        return []
    waited = pl.col("initial_wait_s") > trips[1] / 1e12
    settings = _core.transport_settings(result.settings.transport)
    first = "SYN" if settings["handshake"] else "first segment"
    notes = []
    for label in result.settings.labels:
        flows = result.flows.filter((pl.col("scheme") == label) & pl.col("start_s").is_not_null())
        unanswered = flows.filter((pl.col("delivered_bytes") == 0) & waited.fill_null(False))
        if not unanswered.height:
            continue
        note = (
            f"scheme {label}: {count_text(unanswered.height)} of {counted(flows.height, 'flow')} delivered nothing, "
            f"because their {first} or its answer was lost; a host sends it again after "
            f"{time_text(settings['initial_rto'] / 1e9)} (initial_rto)"
        )
        answered = flows.filter(pl.col("delivered_bytes") > 0)["throughput"].min()
        if isinstance(answered, float):
            note += f"; without them, the lowest throughput of a flow is {share_text(answered)}"
        notes.append(note)
    return notes
