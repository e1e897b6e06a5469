"""The minimum retransmission time-out of transports, and the one that fits a round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pathloom import _core
from pathloom.quantities import time_spec


def shorter_min_rto(round_trip_ps: Sequence[int] | None) -> str | None:
    """The time-out that fits a longest round trip; None without one, or if that of the transports is no longer.

    >>> shorter_min_rto([24_000_000, 158_000_000]), shorter_min_rto([24_000_000_000, 158_000_000_000])
    ('1ms', None)
    """
    if round_trip_ps is None:
        return None
    fitting = fitting_min_rto(round_trip_ps)
    return fitting if _core.parse_time_s(fitting) < _core.parse_time_s(usual_min_rto()) else None


def usual_min_rto() -> str:
    """The minimum time-out of the transports, as text in a specification: that of Linux.

    >>> usual_min_rto()
    '200ms'
    """
    return time_spec(_core.transport_settings()["min_rto"])


def written_transport(transport: str | None, fitted: bool) -> str | None:
    """The transport for a command line, with `min_rto` set if it is not `fitted`, which has no option.

    >>> [written_transport(spec, False) for spec in (None, "cubic:min_rto=1ms", "uec")]
    ['newreno:min_rto=200ms', 'cubic:min_rto=1ms', 'uec']
    """
    if fitted or not leaves_min_rto(transport):
        return transport
    return with_keys(transport or "newreno", {"min_rto": usual_min_rto()})


def leaves_min_rto(transport: str | None) -> bool:
    """Whether a specification leaves the key out, and its transport has it.

    >>> [leaves_min_rto(spec) for spec in ("newreno:acks=1, min_rto = 1ms", "cubic:iw=12KB", None, "uec")]
    [False, True, True, False]
    """
    name, _, keys = (transport or "").partition(":")
    if any(pair.partition("=")[0].strip() == "min_rto" for pair in keys.split(",")):
        return False
    # A transport that does not exist is refused elsewhere.
    known = {entry["name"]: entry["keys"] for entry in _core.transports()}
    return any(key["name"] == "min_rto" for key in known.get(name.strip(), known["newreno"]))


def fitting_min_rto(round_trip_ps: Sequence[int]) -> str:
    """The time-out that fits a longest round trip with empty and with full queues, in the form of a specification.

    >>> [fitting_min_rto([0, 250 * ns]) for ns in (632_000, 150_000, 1_100_000_000, 3, 50_000_000)]
    ['1ms', '200us', '2s', '5ns', '50ms']
    """
    return time_spec(_core.fitting_min_rto_ns(round_trip_ps[1]))


def with_keys(spec: str, keys: Mapping[str, str]) -> str:
    """A specification with these keys set.

    >>> with_keys("newreno:min_rto=1s,iw=15KB", {"min_rto": "1ms"})
    'newreno:iw=15KB,min_rto=1ms'
    """
    name, _, rest = spec.partition(":")
    kept = [pair for pair in rest.split(",") if pair and pair.partition("=")[0].strip() not in keys]
    return f"{name}:{','.join([*kept, *(f'{key}={value}' for key, value in keys.items())])}"
