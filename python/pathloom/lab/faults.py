"""Faults: cables of a lab that go down and come back while a run is under way, as `--fault` says."""

from __future__ import annotations

import time
from threading import Event, Thread

from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint


class FaultSchedule:
    """Takes cables down and brings them back while a run is under way."""

    def __init__(self, blueprint: Blueprint, faults: list[tuple[int, bool, list[int]]]) -> None:
        """`faults`: nanoseconds from time 0 on, whether the cables come back, one link of each."""
        self._faults = faults
        ours = {port.link: port for port in blueprint.switch_ports}
        # A cable to a host has one end among the switches: the host loses its carrier with it.
        self._ends = {
            link: [ours[end] for end in (link, link ^ 1) if end in ours] for _, _, all_ in faults for link in all_
        }
        self._over = Event()
        self._thread: Thread | None = None

    def begin(self, zero_ns: int) -> None:
        """Time 0 is then, by the monotonic clock."""
        if self._faults and self._thread is None:
            self._thread = Thread(target=self._carry_out, args=(zero_ns,), name="faults", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Lets no more happen, and brings all cables back: the next run begins with a whole fabric."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            state = {link: up for _, up, links in self._faults for link in links}
            self._set([link for link, up in state.items() if not up], up=True)

    def _carry_out(self, zero_ns: int) -> None:
        for at_ns, up, cables in self._faults:
            if self._over.wait(max(zero_ns + at_ns - time.monotonic_ns(), 0) / 1e9):
                return
            self._set(cables, up)

    def _set(self, cables: list[int], up: bool) -> None:
        ends = [end for cable in cables for end in self._ends[cable]]
        for namespace in sorted({end.namespace for end in ends}):
            own = [end.interface for end in ends if end.namespace == namespace]
            system.batch("ip", namespace, [f"link set {name} {'up' if up else 'down'}" for name in own])
