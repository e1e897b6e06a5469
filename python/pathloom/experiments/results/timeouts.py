"""Time that flows lost in retransmission time-outs, and the transport keys that reduce it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathloom import _core
from pathloom.experiments.results.facts import Facts
from pathloom.experiments.settings.fitting_min_rto import default_min_rto
from pathloom.experiments.settings.min_rto import fitting_min_rto, with_keys, written_transport
from pathloom.quantities import listed, percent_text, time_text

NOTED_SHARE = 0.1
"""Share of the flow completion time from which time-outs get a note."""
DECISIVE_SHARE = 0.5
"""Share from which they decide the flow completion time."""
KEYS = {"min_rto": "sampled_s", "initial_rto": "initial_s"}
"""Keys of the transport that set minimum time-outs, and the part of the waiting time that each causes."""


def timeout_notes(result: Facts) -> list[str]:
    """A note if time-outs make up a tenth or more of the FCT under any scheme."""
    noted = [row for row in result.summary_of_schemes if (row["timeout_wait"]["share"] or 0.0) >= NOTED_SHARE]
    if not noted:
        return []
    shares = listed([f"{row['scheme']} ({percent_text(row['timeout_wait']['share'])})" for row in noted])
    of_what = "FCT" if any(row["flows"]["offered"] > row["flows"]["long_lived"] for row in noted) else "flows' time"
    said = f"time-outs make up a large part of the {of_what} under {shares}"
    none_expired = not any(row["timeouts"] for row in noted)
    said += ", though none had expired when the run ended" if none_expired else _decisive_text(noted)
    trips = result.fabric.round_trip_ps()
    if trips is None:
        return [said]
    idle_s, full_s = (ps / 1e12 for ps in trips)
    fitting = fitting_min_rto(trips)
    settings = _core.transport_settings(result.settings.transport)
    default = default_min_rto(result.settings, trips)
    if default is not None:
        settings["min_rto"] = round(1e9 * _core.parse_time_s(default))
    waited = {key: sum(row["timeout_wait"][part] or 0.0 for row in noted) for key, part in KEYS.items()}
    # A time-out that already fits is not the cause.
    keys = [
        key
        for key, seconds in waited.items()
        if seconds >= NOTED_SHARE * sum(waited.values()) and settings[key] > 1e9 * _core.parse_time_s(fitting)
    ]
    trips_take = (
        f"round trips take {time_text(idle_s)} with empty queues and at most {time_text(full_s)} with full ones"
    )
    if not keys and none_expired:
        return [said]
    if not keys:
        return [f"{said}: {trips_take}; the transport's time-outs suit that, so only fewer losses would help"]
    values = listed([f"{key} is {time_text(settings[key] / 1e9)}" for key in keys])
    spec = with_keys(result.settings.transport or "newreno", dict.fromkeys(keys, fitting))
    return [f"{said}: {values}, but {trips_take}; --transport {spec} fits this fabric"]


def _decisive_text(noted: Sequence[Mapping[str, Any]]) -> str:
    """What decides the FCT if time-outs make up most of it: those before the first RTT sample (SYNs), or the others."""
    waits = [row["timeout_wait"] for row in noted if row["timeout_wait"]["share"] >= DECISIVE_SHARE]
    if not waits:
        return ""
    initial_s, sampled_s = (sum(wait[part] or 0.0 for wait in waits) for part in ("initial_s", "sampled_s"))
    return f", and lost {'SYNs' if initial_s > sampled_s else 'data'} decide it"


def default_notes(result: Facts) -> list[str]:
    """A note if the minimum time-out is that of the fabric and a time-out expired."""
    if not any(row["timeouts"] for row in result.summary_of_schemes):
        return []
    default = default_min_rto(result.settings, result.fabric.round_trip_ps())
    if default is None:
        return []
    spec = written_transport(result.settings.transport, fitted=False)
    time = time_text(_core.parse_time_s(default))
    return [
        f"min_rto is {time}, four of the longest round trips of this fabric, rounded up; --transport {spec} is Linux's"
    ]


def timeout_wait(runs: list[dict[str, Any]]) -> dict[str, float | None]:
    """The time that the runs of a scheme lost in time-outs, and its share of the flows' time.

    All values are None if a run does not know its time: the kernels of the lab do not report it.
    """
    parts = [run["timeout_wait"] for run in runs]
    if not parts or any(part["initial_s"] is None for part in parts):
        return {"share": None, "initial_s": None, "sampled_s": None, "flows_s": None}
    total = {name: sum(part[name] for part in parts) for name in ("initial_s", "sampled_s", "flows_s")}
    lost_s = total["initial_s"] + total["sampled_s"]
    return {"share": lost_s / total["flows_s"] if total["flows_s"] > 0 else None, **total}
