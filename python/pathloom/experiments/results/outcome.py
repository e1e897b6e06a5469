"""The outcome of one run, which every world reports in the same form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pathloom.experiments.settings.model import Job


@dataclass(frozen=True)
class Sample:
    """The data that had arrived by a time of a run."""

    at_s: float
    delivered_bytes: int
    """Payload bytes of all flows."""
    polling_period_s: float | None = None
    """Mean time between rounds of readings so far; None before the second round, and in the lab, where only the end of
    a run gives it."""


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run, as the simulator reports it."""

    job: Job
    outcome: dict[str, Any]
    wall_s: float
    trouble: tuple[int, str, str] | None = None
    """Failures of a scheme in Python: how often it failed, the first failure in one line, and its traceback."""
    samples: tuple[Sample, ...] = ()
    """Samples at the times `sample_at_s` of the execution."""
    silent_s: float | None = None
    """How long nothing had arrived when the run was abandoned; None if it was not."""
    stolen_share: float = 0.0
    """Share of processor time that the host of this virtual machine gave to others during a run in the lab, 0 to 1."""
    description: str = ""
    """The traffic generated for the run: parameters, sources of tables, load achieved."""
    notes: tuple[str, ...] = ()
    """What a reader should know about the workload."""


NOTED_STOLEN_SHARE = 0.05
"""A run with a larger `stolen_share` gets a note."""


def stolen_text(share: float) -> str:
    """Describes the possible effect of `RunOutcome.stolen_share`.

    >>> stolen_text(0.3)
    "the host of this machine gave 30 % of its processors' time to others, so the lab may carry less traffic"
    """
    percent = f"{round(100 * share)} % of its processors' time"
    return f"the host of this machine gave {percent} to others, so the lab may carry less traffic"


class Executed(Protocol):
    """The runs of an experiment in one world, as far as they are finished."""

    outcomes: list[RunOutcome]
    interrupted: bool
    """Whether Ctrl-C ended the runs early."""
    description: str
    """Exact description of the traffic of the first run."""

    @property
    def failure(self) -> Exception | None:
        """Any other cause of an early end."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the result should know about the world and its workload."""
        ...
