"""Makes the notes on a result: what a reader should know besides its figures.

A note is a sentence without its full stop. To add a kind of note, write a function from the result to its notes and add
it to `MAKERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from pathloom import _core
from pathloom.experiments.results.after_end import after_end_notes
from pathloom.experiments.results.connecting import connection_notes
from pathloom.experiments.results.facts import Facts
from pathloom.experiments.results.frames import frame_notes
from pathloom.experiments.results.idle_faults import idle_faults
from pathloom.experiments.results.lock_out import lock_out_notes
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.pauses import deadlock_notes, victim_notes
from pathloom.experiments.results.recovery import fault_times_s, recoveries
from pathloom.experiments.results.skipped import skip_notes
from pathloom.experiments.results.summary import unfinished
from pathloom.experiments.results.timeouts import default_notes, timeout_notes
from pathloom.experiments.results.unanswered import unanswered_notes
from pathloom.experiments.settings.fault_times import fault_time_s
from pathloom.experiments.settings.input_files import listed_files
from pathloom.experiments.settings.model import FINISHED, FLUID
from pathloom.quantities import count_text, counted, time_text
from pathloom.specs import is_python_spec

DEFAULT_ROUTES_ALONE = {
    "spt",
    "ecmp",
    "wcmp",
    "mptcp",
    "rps",
    "letflow",
    "drill",
    "conga",
    "hula",
    "flowcut",
    "presto",
    "drb",
    "ethereal",
    "plb",
    "flowbender",
    "oblivious",
    "bitmap",
    "reps",
    "mixed",
    "loom",
}
"""Schemes that give no flow a path of its own."""
SPRAYING = {"rps", "drb", "drill", "presto"}
"""Schemes that send packets of one flow over several paths at the same time."""
ROCE = ("roce", "dcqcn", "hpcc")
"""Names of the transport whose receivers take packets in order only, unless its key `recovery` is `irn`."""
NUMBERING = ("uec", "swift", "ndp", "eqds")
"""Transports that number packets as Ultra Ethernet does. They have no setting in common with the others."""


def notes_on(result: Facts) -> list[str]:
    """All notes on a result; those of the fabric and of the worlds come first."""
    own = [note for make in MAKERS for note in make(result)]
    return list(dict.fromkeys([*result.fabric.notes, *result.execution_notes, *own]))


def flows_as_rates(result: Facts) -> list[str]:
    """Whether no packets were simulated."""
    if result.settings.fidelity != FLUID:
        return []
    return ["flows are fair rates, without packets, queues and losses (--fidelity fluid); see docs/fidelity.md"]


def failures(result: Facts) -> list[str]:
    """The schemes written in Python that failed in runs with `keep_going`."""
    return [" ".join(line.split()) for line, _ in troubles(result.outcomes)]


def troubles(outcomes: Sequence[RunOutcome]) -> list[tuple[str, str]]:
    """For each scheme that failed in a run: a line with what happened, and the traceback of the first failure."""
    counts: dict[str, int] = {}
    first: dict[str, tuple[RunOutcome, str, str]] = {}
    for one in outcomes:
        if one.trouble is not None:
            count, line, traceback = one.trouble
            counts[one.job.scheme] = counts.get(one.job.scheme, 0) + count
            first.setdefault(one.job.scheme, (one, line, traceback))
    return [
        (
            f"scheme {scheme} failed {'once' if counts[scheme] == 1 else f'{counts[scheme]} times'}, its flows stayed "
            f"where they were; first in run {one.job.run}: {line}",
            traceback,
        )
        for scheme, (one, line, traceback) in first.items()
    ]


def late_faults(result: Facts) -> list[str]:
    """Faults that came after the end of runs."""
    ends = [_end_s(one) for one in result.outcomes]
    notes = []
    for fault in result.settings.faults if ends else ():
        late = sum(end_s <= fault_time_s(fault) for end_s in ends)
        if late == len(ends):
            last = time_text(max(ends))
            notes.append(f"fault {fault} came after the end of every run ({last}) and changed nothing")
        elif late:
            notes.append(f"fault {fault} came after the end of {late} of {len(ends)} runs and changed nothing in them")
    return notes


def faults_without_effect(result: Facts) -> list[str]:
    """Faults that repair what works, or that break what has already failed."""
    found = idle_faults(result.fabric, result.settings.faults)
    return [f"fault {fault} changed nothing: {why}" for fault, why in found.items()]


def recovery_times(result: Facts) -> list[str]:
    """How long goodput took to recover from faults, if there are series."""
    return [
        f"scheme {row['scheme']}: {_recovery_text(row['recovery_s'])} (steps of {result.settings.series})"
        f"{_short_lived_text(row['flows'])}"
        for row in result.summary_of_schemes
        if row.get("recovery_s")
    ]


def unknown_recovery(result: Facts) -> list[str]:
    """Faults whose time to recover cannot be told from the series, in any run."""
    settings = result.settings
    if settings.series is None or not result.outcomes:
        return []
    last_s = min(max(map(_end_s, result.outcomes)), settings.duration_s)
    known = {recovery.at_s for one in result.outcomes for recovery in recoveries(one, settings)}
    unknown = [at_s for at_s in fault_times_s(settings) if at_s < last_s and at_s not in known]
    return [
        f"the time to recover from the fault at {time_text(at_s)} is unknown: there was no goodput in the steps of "
        f"{settings.series} that ended before it"
        for at_s in unknown
    ]


def _recovery_text(recovery: Mapping[str, Any]) -> str:
    """The recovery of goodput after the faults of all runs."""
    lost, fell = recovery["unrecovered"], "goodput fell below 90 % of what it had been"
    missed = "not back before the next fault or the end of arrivals"
    of_all = f"after {lost} of {counted(recovery['faults'], 'fault')} (over all runs)"
    if recovery["mean"] is None:
        return f"{fell}, and was {missed}"
    if recovery["max"] == 0:
        if not lost:
            return "goodput did not fall below 90 % of what it had been"
        return f"{of_all}, {fell} and was {missed}; after the others it did not fall so far"
    mean, most = time_text(recovery["mean"]), time_text(recovery["max"])
    back = f"goodput was back at 90 % of what it had been {mean} after a fault on average, and after {most} at most"
    return f"{back}; {of_all}, it was {missed}" if lost else back


def _short_lived_text(flows: Mapping[str, int]) -> str:
    """A caution for the case that flows end during the run."""
    return "" if flows["long_lived"] == flows["offered"] else "; flows end here, so goodput falls without a fault too"


def long_periods(result: Facts) -> list[str]:
    """Schemes whose period is at least as long as their longest run."""
    notes = []
    for label, outcomes in _runs_of_schemes(result):
        period, longest_s = _period(outcomes[0].job.scheme), max(map(_end_s, outcomes))
        period_s = _core.parse_time_s(period) if period is not None else 0.0
        if period is not None and period_s >= longest_s:
            how = "longer than" if period_s > longest_s else "as long as"
            notes.append(
                f"scheme {label}: its period of {period} is {how} its longest run ({time_text(longest_s)}); "
                "raise --duration or lower its key `period`"
            )
    return notes


def idle_schemes(result: Facts) -> list[str]:
    """Schemes that gave no flow a path, except schemes that consist only of default routes."""
    return [
        f"scheme {label} never acted: it gave no flow a path, and all stayed on the default routes"
        for label, outcomes in _runs_of_schemes(result)
        if outcomes[0].job.scheme.partition(":")[0] not in DEFAULT_ROUTES_ALONE
        and all(_paths_given(one) == 0 and one.trouble is None for one in outcomes)
        and all(one.outcome.get("programs") is None for one in outcomes)
    ]


def transports_without_effect(result: Facts) -> list[str]:
    """Schemes whose hosts keep a transport that numbers packets although another one was requested."""
    given = result.settings.transport
    if given is None or given.partition(":")[0] in NUMBERING:
        return []
    return [
        f"scheme {label}: its hosts run {own}, so --transport {given} has no effect on them"
        for label, outcomes in _runs_of_schemes(result)
        if not is_python_spec(outcomes[0].job.scheme)
        and (own := _core.scheme_transport(outcomes[0].job.scheme)) in NUMBERING
    ]


def schemes_that_reorder(result: Facts) -> list[str]:
    """Schemes that spray packets over several paths, although the hosts go back to every packet that is overtaken."""
    given = result.settings.transport or ""
    name, _, keys = given.partition(":")
    if name not in ROCE or "recovery=irn" in keys.replace(" ", ""):
        return []
    return [
        f"scheme {label}: it sends the packets of a flow over several paths, and {given} goes back to each packet that "
        f"others overtake ({count_text(again)} retransmissions for {count_text(dropped)} packets dropped); use "
        "recovery=irn, or a scheme such as ecmp"
        for label, outcomes in _runs_of_schemes(result)
        if outcomes[0].job.scheme.partition(":")[0] in SPRAYING
        and (again := sum(int(one.outcome["flows"]["retransmits"].sum()) for one in outcomes))
        > (dropped := sum(int(one.outcome["packets"]["dropped"]) for one in outcomes))
    ]


def runs_given_up(result: Facts) -> list[str]:
    """Runs that were abandoned with `until=finished`."""
    notes = []
    for label, outcomes in _runs_of_schemes(result):
        silent = [one for one in outcomes if one.silent_s is not None]
        if silent:
            stuck = unfinished(result.flows.filter(pl.col("scheme") == label))
            first = stuck.row(0, named=True)
            notes.append(
                f"scheme {label}: --until {FINISHED} gave up {len(silent)} of {counted(len(outcomes), 'run')}: nothing "
                f"had arrived for {time_text(silent[0].silent_s or 0.0)}; {counted(stuck.height, 'flow')} cannot "
                f"finish, such as {first['src']} → {first['dst']}"
            )
    return notes


def flows_never_started(result: Facts) -> list[str]:
    """Flows that never started, which are missing in all means."""
    flows = result.flows
    count = flows.filter(pl.col("start_s").is_null() & pl.col("size_bytes").is_not_null()).height
    if count == 0:
        return []
    return [
        f"{count_text(count)} of {counted(flows.height, 'flow')} never started and are in no FCT: they were to follow "
        "flows that did not finish"
    ]


def changed_files(result: Facts) -> list[str]:
    """Files that changed while the runs were carried out."""
    if not result.changed_files:
        return []
    return [f"{listed_files(result.changed_files)} changed during the runs, which may have read either content"]


MAKERS: tuple[Callable[[Facts], list[str]], ...] = (
    flows_as_rates,
    skip_notes,
    failures,
    late_faults,
    faults_without_effect,
    recovery_times,
    unknown_recovery,
    long_periods,
    idle_schemes,
    transports_without_effect,
    schemes_that_reorder,
    runs_given_up,
    deadlock_notes,
    victim_notes,
    flows_never_started,
    default_notes,
    timeout_notes,
    unanswered_notes,
    lock_out_notes,
    frame_notes,
    connection_notes,
    after_end_notes,
    changed_files,
)
"""All makers of notes, in the order in which the notes are printed."""


def _runs_of_schemes(result: Facts) -> list[tuple[str, list[RunOutcome]]]:
    """The schemes that have runs, and their runs."""
    found = [(label, [one for one in result.outcomes if one.job.label == label]) for label in result.settings.labels]
    return [(label, outcomes) for label, outcomes in found if outcomes]


def _end_s(one: RunOutcome) -> float:
    return float(one.outcome["end_ns"]) / 1e9


def _paths_given(one: RunOutcome) -> int | None:
    """Number of paths that a scheme gave to flows, moves included; None if they were not counted."""
    control: dict[str, Any] = one.outcome["control"]
    return int(control["routes"] + control["reroutes"]) if "routes" in control else None


def _period(scheme: str) -> str | None:
    """The period of a scheme, as given or by default; None if it has no such key."""
    if is_python_spec(scheme):
        return None
    name, _, keys = scheme.partition(":")
    given = dict(pair.split("=", 1) for pair in keys.split(",") if "=" in pair)
    known = (key for entry in _core.schemes() if entry["name"] == name for key in entry["keys"])
    default = next((key["default"] for key in known if key["name"] == "period"), None)
    return given.get("period", default)
