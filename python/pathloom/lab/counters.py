"""The counters of the links of a lab."""

from __future__ import annotations

from dataclasses import dataclass

from pathloom.lab.lab import Lab
from pathloom.lab.queues import queue_counters
from pathloom.lab.status import link_counters
from pathloom.waiting import await_event

_SILENCE_S = 10.0
"""Longest wait, in seconds, until a lab sends no packets after a run."""


@dataclass
class Counters:
    """The counters of all links at one moment: by link number, bytes, packets, drops and packets waiting."""

    links: dict[int, tuple[int, int, int, int]]


def counters(lab: Lab) -> Counters:
    """Returns the counters of every link."""
    blueprint = lab.blueprint()
    found = {int(name[1:]): counts for name, counts in link_counters(blueprint).items()}
    for host in blueprint.hosts:
        by_name = queue_counters(host.namespace)
        found.update({port.link: by_name[port.interface] for port in host.ports if port.interface in by_name})
    return Counters(found)


def await_silence(lab: Lab) -> None:
    """Waits until the last packets of closed connections have arrived, so that counters do not change any more."""
    own = {port.link for host in lab.blueprint().hosts for port in host.ports}
    last: dict[int, tuple[int, ...]] | None = None

    def is_silent() -> bool:
        nonlocal last
        links = counters(lab).links
        # Between switches, the controller's discovery probes never end, so only queues are checked there.
        before, last = last, {link: counts for link, counts in links.items() if link in own or counts[3]}
        return last == before and not any(counts[3] for counts in last.values())

    await_event(is_silent, _SILENCE_S, 0.1)


def difference(before: Counters, after: Counters, missing_header_bytes: int) -> Counters:
    """Returns what links sent between two readings. A packet counts with its missing header bytes, as on the link."""
    none = (0, 0, 0, 0)
    rows = {}
    for link, (sent_bytes, packets, drops, waiting) in after.links.items():
        old = before.links.get(link, none)
        sent = packets - old[1]
        rows[link] = (sent_bytes - old[0] + sent * missing_header_bytes, sent, drops - old[2], waiting)
    return Counters(rows)
