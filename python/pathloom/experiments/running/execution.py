"""The runs of one experiment in the simulator, of which a store may have some already.

No outcome depends on the number of threads, or on the runner that carries the runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import SchemeError, ToolError, bad_input
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.running.memory import check_room
from pathloom.experiments.running.simulation import RunFiles, Stop, advance, simulation
from pathloom.experiments.running.store import Store
from pathloom.experiments.running.threads import Threads, interruptible
from pathloom.experiments.running.work import JobProgress, Runner, Take, Work
from pathloom.experiments.running.world import RunOptions
from pathloom.experiments.schemes.loading import PythonScheme
from pathloom.experiments.settings.identity import digests, identity
from pathloom.experiments.settings.model import Job, Settings
from pathloom.fabrics import Fabric
from pathloom.specs import SIM


class Execution:
    """All runs of an experiment, seed by seed, and in each seed the schemes in the order of the settings."""

    def __init__(
        self,
        settings: Settings,
        fabric_text: str | None,
        run_files: RunFiles,
        in_python: Mapping[str, PythonScheme] | None = None,
        sample_at_s: Sequence[float] = (),
        store: Store[RunOutcome] | None = None,
        threads: int = 1,
    ) -> None:
        """Prepares the first run of every scheme, so that bad input is found before any run starts.

        `sample_at_s` are ascending times of a run at which the delivered data is sampled. Runs in the store are not
        carried out again, and finished runs are added to it. Each run uses up to `threads` threads; no outcome depends
        on their number.
        """
        self.threads = threads
        self.settings = settings
        self.in_python = in_python or {}
        self.fabric_text = fabric_text
        self.run_files = run_files
        self.sample_at_s = tuple(sample_at_s)
        self.outcomes: list[RunOutcome] = []
        self.interrupted = False
        self.failure: SchemeError | ToolError | None = None
        """Cause of an early end: a failed scheme written in Python, unless the settings have `keep_going`."""
        self.jobs = settings.jobs(SIM)
        self._store = store
        self._finished: dict[Job, RunOutcome] = {}
        self._names = {job: self._identity(job) for job in self.jobs} if store is not None else {}
        self.kept = {job for job in self.jobs if self._stored(job) is not None}
        """The runs that are in the store."""
        first = [job for job in self.jobs if job.run == 1 and job not in self.kept]
        self._prepared = interruptible(lambda: self._first(first))
        reasons = {job.scheme: prepared.one_thread for job, prepared in self._prepared.items()}
        self.on_one_thread = {scheme: why for scheme, why in reasons.items() if why is not None and threads > 1}
        """Schemes whose runs use only one thread, and why."""
        head = self._stored(self.jobs[0]) or self._prepared[self.jobs[0]]
        self.description = head.description
        self.notes = list(head.notes)

    def _first(self, jobs: Sequence[Job]) -> dict[Job, _core.Simulation]:
        """Prepares the first run of each scheme. Raises `PathloomError` if there is not enough memory for them."""
        prepared: dict[Job, _core.Simulation] = {}
        for job in jobs:
            prepared[job] = self._simulation(job)
            if len(prepared) == 1:
                check_room(prepared[job], job, others=len(jobs) - 1)
        return prepared

    def missing(self) -> list[Job]:
        """The runs that are still to be carried out, seed by seed."""
        return [job for job in self.jobs if job not in self.kept and job not in self._finished]

    def release(self) -> None:
        """Frees the prepared runs; they are prepared again when they are carried out."""
        self._prepared.clear()

    def _simulation(self, job: Job) -> _core.Simulation:
        in_python = self.in_python.get(job.scheme)
        return simulation(self.settings, self.fabric_text, job, self.run_files, in_python, self.threads)

    def _identity(self, job: Job) -> str:
        in_python = self.in_python.get(job.scheme)
        imported = "\n".join([*in_python.names, digests(in_python.files)]) if in_python is not None else ""
        return identity(self.settings, job, repr(self.sample_at_s), self.fabric_text or "", imported)

    def _stored(self, job: Job) -> RunOutcome | None:
        found = self._store.find(self._names[job]) if self._store is not None else None
        # The stored outcome does not depend on the position of the run, so the job is replaced.
        return replace(found, job=job) if found is not None else None

    def run(
        self,
        threads: int,
        progress: JobProgress = lambda _job, _share: None,
        take: Callable[[RunOutcome], None] | None = None,
        runner: Runner | None = None,
    ) -> None:
        """Carries out all runs on this many threads, or by another `runner`.

        If `take` is given, it is called with each finished run, on the thread that carried it out. The run is then not
        kept in `outcomes`, so thousands of large runs need not fit into memory.

        After Ctrl-C the runs in progress are abandoned within a slice, `interrupted` is set, and `outcomes` holds the
        finished runs. A failed scheme ends the runs in the same way and is stored in `failure`, unless the settings
        have `keep_going`. Any other error in a run also ends the others, and is raised.
        """
        works = [Work(self, job) for job in self.missing()]
        take_one: Take = (lambda work, outcome: work.execution.keep(outcome)) if take is None else _handed(take)
        try:
            if runner is not None:
                # Another runner cannot use the runs that are prepared here.
                self.release()
            ended = (runner or Threads(threads)).run(works, lambda work, share: progress(work.job, share), take_one)
        finally:
            # Frees the runs that were not carried out, so that their partial files are removed.
            self.release()
        self.interrupted, self.failure = ended.interrupted, ended.failure
        self.collect()

    def keep(self, outcome: RunOutcome) -> None:
        """Keeps a finished run, in the store if there is one."""
        job = outcome.job
        if self._store is None:
            self._finished[job] = outcome
            return
        # If an input file changed during the run, it is not known which content the run has read.
        if self._identity(job) == self._names[job]:
            self._store.add(self._names[job], outcome)
            self.kept.add(job)
        else:
            self._finished[job] = outcome

    def collect(self) -> None:
        """Fills `outcomes` with the finished runs."""
        found = {job: self._finished.get(job) or self._stored(job) for job in self.jobs}
        self.outcomes = [outcome for outcome in found.values() if outcome is not None]

    def carry_out(self, job: Job, stop: Stop, progress: Callable[[float], None]) -> RunOutcome | None:
        """Carries out one run; None if it was stopped. Raises `PathloomError` and `SchemeError`."""
        try:
            simulation = self._prepared.pop(job, None) or self._simulation(job)
        except PathloomError as error:
            raise bad_input(f"run {job.run} of {job.scheme} (seed {job.seed}): {error}") from None
        check_room(simulation, job)
        return advance(simulation, job, self.settings, self.sample_at_s, stop, progress)


def _handed(take: Callable[[RunOutcome], None]) -> Take:
    return lambda _work, outcome: take(outcome)


def simulated(settings: Settings, fabric: Fabric, options: RunOptions) -> Execution:
    """The simulator as a `World`."""
    return Execution(
        settings,
        fabric.text,
        options.run_files,
        options.in_python,
        options.sample_at_s,
        options.store,
        options.threads,
    )
