"""Time lost in retransmission time-outs, the transport keys that reduce it, and the default minimum time-out.

The default of `min_rto` is four times the longest round trip of the fabric with full queues, rounded up to one digit,
and at most the 200 ms of Linux. On a fast fabric 200 ms would be most of the FCT of every flow that loses its last
segment. In the lab, the value of the kernels applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pathloom import _core
from pathloom.quantities import listed, percent_text, time_spec, time_text
from pathloom.specs import LAB

if TYPE_CHECKING:
    from pathloom.experiments.results.result import Result
    from pathloom.experiments.settings.model import Settings

NOTED_SHARE = 0.1
"""Share of the flow completion time from which time-outs get a note."""
ROUND_TRIPS = 4
"""A time-out fits if it is at least this many of the longest round trips: NewReno repairs one loss per round trip, and
its timer continues from the first partial acknowledgement (RFC 6582 §4)."""
KEYS = {"min_rto": "sampled_s", "initial_rto": "initial_s"}
"""Keys of the transport that set minimum time-outs, and the part of the waiting time that each causes."""


def timeout_notes(result: Result) -> list[str]:
    """A note if time-outs make up a tenth or more of the FCT under any scheme."""
    noted = [row for row in result.summary_of_schemes if (row["timeout_wait"]["share"] or 0.0) >= NOTED_SHARE]
    if not noted:
        return []
    shares = listed([f"{row['scheme']} ({percent_text(row['timeout_wait']['share'])})" for row in noted])
    of_what = "FCT" if any(row["flows"]["offered"] > row["flows"]["long_lived"] for row in noted) else "flows' time"
    said = f"time-outs make up a large part of the {of_what} under {shares}"
    none_expired = not any(row["timeouts"] for row in noted)
    if none_expired:
        said += ", though none had expired when the run ended"
    trips = result.fabric.round_trip_ps()
    if trips is None:
        return [said]
    idle_s, full_s = (ps / 1e12 for ps in trips)
    fitting = fitting_time(ROUND_TRIPS * full_s)
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


def default_notes(result: Result) -> list[str]:
    """A note if the minimum time-out is that of the fabric and a time-out expired."""
    if not any(row["timeouts"] for row in result.summary_of_schemes):
        return []
    default = default_min_rto(result.settings, result.fabric.round_trip_ps())
    if default is None:
        return []
    spec = written_transport(result.settings.model_copy(update={"fit_min_rto": False}))
    time = time_text(_core.parse_time_s(default))
    return [
        f"min_rto is {time}, four of the longest round trips of this fabric, rounded up; --transport {spec} is Linux's"
    ]


def default_min_rto(settings: Settings, round_trip_ps: Sequence[int] | None) -> str | None:
    """The default minimum time-out, as text, for a longest round trip with empty and with full queues.

    None if that of the transport applies: it is set, it is shorter, or the kernels of the lab send.
    """
    if not settings.fit_min_rto or LAB in settings.worlds or _sets_min_rto(settings.transport):
        return None
    return shorter_min_rto(round_trip_ps)


def shorter_min_rto(round_trip_ps: Sequence[int] | None) -> str | None:
    """The time-out that fits a longest round trip; None without one, or if that of the transports is no longer.

    >>> shorter_min_rto([24_000_000, 158_000_000]), shorter_min_rto([24_000_000_000, 158_000_000_000])
    ('1ms', None)
    """
    if round_trip_ps is None:
        return None
    fitting = fitting_time(ROUND_TRIPS * round_trip_ps[1] / 1e12)
    return fitting if _core.parse_time_s(fitting) < _core.parse_time_s(usual_min_rto()) else None


def usual_min_rto() -> str:
    """The minimum time-out of the transports, as text in a specification: that of Linux.

    >>> usual_min_rto()
    '200ms'
    """
    return time_spec(_core.transport_settings()["min_rto"])


def written_transport(settings: Settings) -> str | None:
    """The transport for a command line, with `min_rto` set if `fit_min_rto` is false, which has no option."""
    if settings.fit_min_rto or _sets_min_rto(settings.transport):
        return settings.transport
    return with_keys(settings.transport or "newreno", {"min_rto": usual_min_rto()})


def default_min_rto_ns(settings: Settings, fabric_text: str | None) -> int | None:
    """The default minimum time-out in nanoseconds, for the fabric of the settings or of the text."""
    if _sets_min_rto(settings.transport) or not settings.fit_min_rto:
        return None
    default = default_min_rto(settings, _round_trip_ps(settings.fabric, fabric_text, _file_digests(settings.fabric)))
    return None if default is None else round(1e9 * _core.parse_time_s(default))


def _sets_min_rto(transport: str | None) -> bool:
    """Whether a specification has the key.

    >>> [_sets_min_rto(spec) for spec in ("newreno:acks=1, min_rto = 1ms", "cubic:iw=12KB", None)]
    [True, False, False]
    """
    _, _, keys = (transport or "").partition(":")
    return any(pair.partition("=")[0].strip() == "min_rto" for pair in keys.split(","))


def _file_digests(fabric: str) -> str:
    from pathloom.experiments.settings.identity import digests
    from pathloom.experiments.settings.input_files import named_files

    return digests(named_files([fabric]))


@lru_cache(maxsize=64)
def _round_trip_ps(fabric: str, text: str | None, files: str) -> tuple[int, int] | None:
    """The longest round trip of a fabric; `files` are the digests of the files that its specification reads."""
    from pathloom.fabrics import Fabric

    built = Fabric(fabric) if text is None else Fabric.from_node_link(text, fabric)
    return built.round_trip_ps()


def fitting_time(seconds: float) -> str:
    """The time rounded up to one digit (1, 2 or 5), in the form of a specification.

    >>> [fitting_time(seconds) for seconds in (632e-6, 150e-6, 1.1, 3e-9, 0.05)]
    ['1ms', '200us', '2s', '5ns', '50ms']
    """
    ns = max(round(seconds * 1e9), 1)
    power = 10 ** (len(str(ns)) - 1)
    return time_spec(next(step * power for step in (1, 2, 5, 10) if step * power >= ns))


def with_keys(spec: str, keys: Mapping[str, str]) -> str:
    """A specification with these keys set.

    >>> with_keys("newreno:min_rto=1s,iw=15KB", {"min_rto": "1ms"})
    'newreno:iw=15KB,min_rto=1ms'
    """
    name, _, rest = spec.partition(":")
    kept = [pair for pair in rest.split(",") if pair and pair.partition("=")[0].strip() not in keys]
    return f"{name}:{','.join([*kept, *(f'{key}={value}' for key, value in keys.items())])}"


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
