"""The default minimum retransmission time-out of an experiment, which fits its fabric.

It is four times the longest round trip of the fabric with full queues, rounded up to one digit, and at most the 200 ms
of Linux. On a fast fabric 200 ms would be most of the FCT of every flow that loses its last segment. In the lab, the
value of the kernels applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pathloom import _core
from pathloom.experiments.settings.identity import digests
from pathloom.experiments.settings.input_files import named_files
from pathloom.experiments.settings.min_rto import leaves_min_rto, shorter_min_rto
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.specs import LAB


def default_min_rto(settings: Settings, round_trip_ps: Sequence[int] | None) -> str | None:
    """The default minimum time-out, as text, for a longest round trip with empty and with full queues.

    None if that of the transport applies: it is set, it is shorter, the transport has none, or the kernels of the lab
    send.
    """
    if not settings.fit_min_rto or LAB in settings.worlds or not leaves_min_rto(settings.transport):
        return None
    return shorter_min_rto(round_trip_ps)


def default_min_rto_ns(settings: Settings, fabric_text: str | None) -> int | None:
    """The default minimum time-out in nanoseconds, for the fabric of the settings or of the text."""
    if not leaves_min_rto(settings.transport) or not settings.fit_min_rto:
        return None
    default = default_min_rto(settings, _round_trip_ps(settings.fabric, fabric_text, _file_digests(settings.fabric)))
    return None if default is None else round(1e9 * _core.parse_time_s(default))


def _file_digests(fabric: str) -> str:
    return digests(named_files([fabric]))


@lru_cache(maxsize=64)
def _round_trip_ps(fabric: str, text: str | None, files: str) -> tuple[int, int] | None:
    """The longest round trip of a fabric; `files` are the digests of the files that its specification reads."""
    built = Fabric(fabric) if text is None else Fabric.from_node_link(text, fabric)
    return built.round_trip_ps()
