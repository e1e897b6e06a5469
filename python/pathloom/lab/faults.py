"""Faults of `--fault`: cables of a lab go down and come up again during a run."""

from __future__ import annotations

import time

from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, SwitchPort
from pathloom.lab.routed.neighbours import neighbour_lines
from pathloom.lab.run_task import RunTask


class FaultSchedule(RunTask):
    """Takes cables down and up again during a run."""

    def __init__(self, blueprint: Blueprint, faults: list[tuple[int, bool, list[int]]], routed: bool = False) -> None:
        """`faults`: nanoseconds after time 0, whether the cables come up, and one link of each cable.

        With `routed`, the switches are routers, whose ends of cables need their neighbours when they come up.
        """
        super().__init__()
        self._faults = faults
        self._host_at = {port.link ^ 1: port for host in blueprint.hosts for port in host.ports}
        self._routed = routed
        ours = {port.link: port for port in blueprint.switch_ports}
        # Only one end of a cable to a host is at a switch. If it goes down, the host loses its carrier too.
        self._ends = {
            link: [ours[end] for end in (link, link ^ 1) if end in ours] for _, _, all_ in faults for link in all_
        }

    def _carry_out(self, zero_ns: int) -> None:
        for at_ns, up, cables in self._faults:
            if self._over.wait(max(zero_ns + at_ns - time.monotonic_ns(), 0) / 1e9):
                return
            self.set_ends({end: up for cable in cables for end in self._ends[cable]})

    def end(self) -> None:
        """Carries out no more faults, and restores the state of all cables for the next run.

        Raises `ToolError` if a fault could not be carried out.
        """
        try:
            super().end()
        finally:
            if self._thread is not None:
                self.set_ends({end: end.shape.up for ends in self._ends.values() for end in ends})

    def set_ends(self, states: dict[SwitchPort, bool]) -> None:
        """Sets ends of cables up or down. Raises `ToolError`."""
        for namespace in sorted({end.namespace for end in states}):
            lines = []
            for end, up in states.items():
                if end.namespace == namespace:
                    lines.append(f"link set {end.interface} {'up' if up else 'down'}")
                    if up and self._routed:
                        lines += neighbour_lines(end, self._host_at.get(end.link))
            system.batch("ip", namespace, lines)
