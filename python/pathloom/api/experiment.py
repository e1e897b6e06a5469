"""An experiment: its settings, checked, and its runs in every world, ready to be carried out."""

from __future__ import annotations

from collections.abc import Mapping

from pathloom.api.results import Result
from pathloom.api.worlds import world
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.running.store import Store
from pathloom.experiments.running.threads import default_threads, interruptible
from pathloom.experiments.running.work import JobProgress, Runner
from pathloom.experiments.running.world import RunOptions
from pathloom.experiments.schemes.loading import PythonScheme, load_schemes
from pathloom.experiments.settings.input_files import Inputs
from pathloom.experiments.settings.model import Settings
from pathloom.extras import need
from pathloom.fabrics import Fabric


class Experiment:
    """An experiment that is checked and ready: the constructor finds bad input."""

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric | None = None,
        run_files: RunFiles | None = None,
        in_python: Mapping[str, PythonScheme] | None = None,
        store: Store[RunOutcome] | None = None,
        threads: int = 1,
    ) -> None:
        """Prepares the first run of every scheme.

        `fabric` replaces `settings.fabric` if it is given; `in_python` are schemes given as classes. Runs in the store
        are not carried out again. Each simulated run uses up to `threads` threads.
        """
        if settings.yardstick:
            need("optimum", "--yardstick")
        self.settings = settings
        self.fabric = fabric or interruptible(lambda: Fabric(settings.fabric))
        schemes = {**load_schemes(settings.schemes), **(in_python or {})}
        self.inputs = Inputs.of(settings, self.fabric, schemes)
        options = RunOptions(run_files or RunFiles(), schemes, store=store, threads=threads)
        self._worlds = [world(name)(settings, self.fabric, options) for name in settings.worlds]

    def missing(self) -> int:
        """Number of runs that have not been carried out yet."""
        return sum(len(runs.missing()) for runs in self._worlds)

    def on_one_thread(self) -> dict[str, str]:
        """Schemes that were given several threads but use only one, and why."""
        return {scheme: why for runs in self._worlds for scheme, why in runs.on_one_thread.items()}

    def carry_out(
        self,
        jobs: int | None = None,
        progress: JobProgress = lambda _job, _share: None,
        runner: Runner | None = None,
    ) -> Result:
        """Carries out all runs on `jobs` threads, by default one per core, or by `runner` if they are simulated.

        After Ctrl-C or a `failure` the result holds the finished runs and is not `complete`.
        """
        for runs in self._worlds:
            # One world after the other, because the lab needs the machine for itself.
            runs.run(jobs or default_threads(), progress, runner=runner)
            if runs.interrupted or runs.failure is not None:
                break
        return Result(self.settings, self.fabric, self._worlds, self.inputs)
