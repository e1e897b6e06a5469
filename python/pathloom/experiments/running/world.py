"""The worlds in which runs are carried out: the simulator here, and any other that implements this protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pathloom.experiments.results.outcome import Executed, RunOutcome
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.running.store import Store
from pathloom.experiments.running.work import JobProgress, Runner
from pathloom.experiments.schemes.loading import PythonScheme
from pathloom.experiments.settings.model import Job, Settings
from pathloom.fabrics import Fabric


@dataclass(frozen=True)
class RunOptions:
    """How the runs of an experiment are carried out, besides its settings."""

    run_files: RunFiles = field(default_factory=RunFiles)
    in_python: Mapping[str, PythonScheme] = field(default_factory=dict)
    """Schemes written in Python, by the names in the settings."""
    sample_at_s: Sequence[float] = ()
    """Ascending times of a run at which the delivered data is sampled."""
    store: Store[RunOutcome] | None = None
    """Finished runs, which are not carried out again."""
    threads: int = 1
    """Threads of each run."""


class WorldRuns(Executed, Protocol):
    """The runs of an experiment in one world: checked, and ready to be carried out."""

    jobs: list[Job]

    @property
    def on_one_thread(self) -> Mapping[str, str]:
        """Schemes whose runs use one thread although they may use several, and why."""
        ...

    def missing(self) -> list[Job]:
        """The runs that are still to be carried out."""
        ...

    def run(
        self,
        threads: int,
        progress: JobProgress = ...,
        take: Callable[[RunOutcome], None] | None = None,
        runner: Runner | None = None,
    ) -> None:
        """Carries out the missing runs. With `take`, each finished run is handed to it and not kept in `outcomes`."""
        ...


class World(Protocol):
    """Prepares the runs of an experiment. Raises `PathloomError` on bad input."""

    def __call__(self, settings: Settings, fabric: Fabric, options: RunOptions) -> WorldRuns:
        """Prepares the first run of every scheme, so that bad input is found before any run starts."""
        ...
