"""The worlds by name. This is the only place that knows them all."""

from __future__ import annotations

from pathloom.experiments.running.execution import simulated
from pathloom.experiments.running.world import World
from pathloom.specs import LAB


def world(name: str) -> World:
    """The world of this name in the settings, `sim` or `lab`."""
    if name == LAB:
        # The lab needs Linux; the simulator does not.
        from pathloom.lab.runs import in_lab

        return in_lab
    return simulated
