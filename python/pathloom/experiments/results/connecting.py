"""Schemes whose transfers connect although those of other schemes use connections that stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pathloom import _core
from pathloom.experiments.results.completion import COLLECTIVES, grouped_parts
from pathloom.experiments.results.facts import Facts
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.timeouts import NOTED_SHARE
from pathloom.quantities import percent_text
from pathloom.specs import SIM

MATCHED_SUBFLOWS: Final = "mptcp-aware"
"""The scheme that recognises the subflows of a connection by their SYN exchange (RFC 8684)."""


def connection_notes(result: Facts) -> list[str]:
    """Schemes that need the SYN exchange of each transfer, where it takes a tenth or more of the flow completion time.

    Collectives and traces of training use connections that stand, except with these schemes
    (`crates/sim/src/hosts.rs`).
    """
    settings = result.settings
    trips = result.fabric.round_trip_ps()
    if trips is None or not any(part.partition(":")[0] in COLLECTIVES for part in grouped_parts(settings.traffic)):
        return []
    if not _core.transport_settings(settings.transport)["standing"]:
        return []
    reasons = {one.job.label: _reason(one) for one in result.outcomes if one.job.world == SIM}
    return [
        f"scheme {row['scheme']}: each transfer begins with a SYN exchange and the initial window, because {why}; the "
        f"exchange alone takes about {percent_text(share)} of the FCT. Other schemes use connections that stand, "
        "unless --transport has handshake=on"
        for row in result.summary_of_schemes
        if (why := reasons.get(row["scheme"])) is not None and (share := _share(row, trips[0] / 1e12)) >= NOTED_SHARE
    ]


def _reason(run: RunOutcome) -> str | None:
    """Why the transfers of a run connect; None if they do not."""
    if run.outcome.get("programs") is not None:
        return "its switches find paths by it"
    if run.job.scheme.partition(":")[0] == MATCHED_SUBFLOWS:
        return "its controller recognises the subflows of a connection by it"
    return None


def _share(row: Mapping[str, Any], round_trip_s: float) -> float:
    """The share of the flows' time before their data: a round trip of an idle fabric each, and time-outs of SYNs."""
    wait = row["timeout_wait"]
    if not wait["flows_s"]:
        return 0.0
    return float((row["flows"]["started"] * round_trip_s + wait["initial_s"]) / wait["flows_s"])
