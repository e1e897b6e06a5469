"""Faults of `--fault`: cables of a lab go down and come up again during a run."""

from __future__ import annotations

import time

from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, SwitchPort
from pathloom.lab.run_task import RunTask


class FaultSchedule(RunTask):
    """Takes cables down and up again during a run."""

    def __init__(self, blueprint: Blueprint, faults: list[tuple[int, bool, list[int]]]) -> None:
        """`faults`: nanoseconds after time 0, whether the cables come up, and one link of each cable."""
        super().__init__()
        self._faults = faults
        ours = {port.link: port for port in blueprint.switch_ports}
        # Only one end of a cable to a host is at a switch. If it goes down, the host loses its carrier too.
        self._ends = {
            link: [ours[end] for end in (link, link ^ 1) if end in ours] for _, _, all_ in faults for link in all_
        }

    def _carry_out(self, zero_ns: int) -> None:
        for at_ns, up, cables in self._faults:
            if self._over.wait(max(zero_ns + at_ns - time.monotonic_ns(), 0) / 1e9):
                return
            _set({end: up for cable in cables for end in self._ends[cable]})

    def end(self) -> None:
        """Carries out no more faults, and restores the state of all cables for the next run.

        Raises `ToolError` if a fault could not be carried out.
        """
        try:
            super().end()
        finally:
            if self._thread is not None:
                _set({end: end.shape.up for ends in self._ends.values() for end in ends})


def _set(states: dict[SwitchPort, bool]) -> None:
    """Sets ends of cables up or down."""
    for namespace in sorted({end.namespace for end in states}):
        own = {end.interface: up for end, up in states.items() if end.namespace == namespace}
        system.batch("ip", namespace, [f"link set {name} {'up' if up else 'down'}" for name, up in own.items()])
