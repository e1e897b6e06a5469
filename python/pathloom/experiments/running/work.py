"""Lists of runs, and the protocol of the runners that carry them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pathloom.errors import SchemeError, ToolError
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.running.simulation import Stop
from pathloom.experiments.schemes.loading import PythonScheme
from pathloom.experiments.settings.model import Job, Settings


class Runs(Protocol):
    """The simulated runs of one experiment, as runners see them."""

    settings: Settings
    fabric_text: str | None
    in_python: Mapping[str, PythonScheme]
    sample_at_s: tuple[float, ...]

    def carry_out(self, job: Job, stop: Stop, progress: Callable[[float], None]) -> RunOutcome | None:
        """Carries out one run; None if it was stopped. Raises `PathloomError` and `SchemeError`."""
        ...

    def keep(self, outcome: RunOutcome) -> None:
        """Keeps a finished run."""
        ...


@dataclass(frozen=True)
class Work:
    """A run to carry out, and the experiment that it belongs to."""

    execution: Runs
    job: Job
    place: str = ""
    """Name of the experiment if there are several."""


@dataclass(frozen=True)
class Ended:
    """How a list of runs ended."""

    interrupted: bool = False
    """Whether Ctrl-C ended it early."""
    failure: SchemeError | ToolError | None = None
    """Any other cause of an early end, such as a failed scheme written in Python."""

    @property
    def early(self) -> bool:
        """Whether runs are missing."""
        return self.interrupted or self.failure is not None


JobProgress = Callable[[Job, float], None]
"""Called with the share (0..1) of a run of one experiment that is done; from several threads."""
Progress = Callable[[Work, float], None]
"""Called with the share (0..1) of a run that is done; from several threads."""
Take = Callable[[Work, RunOutcome], None]
"""Called with each run as soon as it is finished; from several threads. If Ctrl-C ends the call, it is called again."""


class Runner(Protocol):
    """Carries out runs. Their figures do not depend on the runner."""

    @property
    def count(self) -> int:
        """Number of runs that it carries out at once."""
        ...

    def run(self, works: Sequence[Work], progress: Progress, take: Take) -> Ended:
        """Carries out runs, started in this order.

        After Ctrl-C the runs in progress are soon abandoned, and also after a failure of a scheme. Any other error in a
        run ends the other runs and is raised.
        """
        ...
