"""`pathloom compare` and `pathloom run`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathloom._core import PathloomError
from pathloom.cli import console
from pathloom.cli.exits import EXIT_ERROR, Interrupted
from pathloom.cli.options import (
    ClusterOption,
    JobsOption,
    JsonOption,
    OutOption,
    PlotsOption,
    ResumeOption,
    SpecFileOption,
    ThreadsOption,
    job_count,
    plot_kinds,
    thread_count,
)
from pathloom.cli.settings_options import takes_settings
from pathloom.errors import SchemeError, ToolError, bad_input
from pathloom.experiments.results.output_files import OutFolder
from pathloom.experiments.running.runners import check_cluster, runner_of
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.settings.files import read_spec_file
from pathloom.experiments.settings.model import IN_PYTHON, Settings, setting
from pathloom.experiments.settings.setting import OUTPUT
from pathloom.specs import LAB

if TYPE_CHECKING:
    from pathloom.api.experiment import Experiment
    from pathloom.api.results import Result
    from pathloom.report.tables import Table


@takes_settings()
def compare(
    given: dict[str, Any],
    spec: SpecFileOption = None,
    jobs: JobsOption = None,
    threads: ThreadsOption = None,
    cluster: ClusterOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    plots: PlotsOption = None,
    json: JsonOption = None,
) -> int:
    """Run the same traffic under several schemes and compare them.

    Example: pathloom compare --fabric fat-tree:k=4,rate=10Mbps,buffer=150 --traffic web-search:load=0.4
    --schemes spt,ecmp,hedera --duration 60s --runs 3 --out results/
    """
    outputs = Outputs.of(out, json, plots, resume)
    workers = Workers(job_count(jobs), cluster, thread_count(threads))
    return carry_out("compare", settings_of(given, spec), RunFiles(), workers, outputs)


ONE_SCHEME = replace(
    setting("schemes"),
    option="scheme",
    metavar="SPEC",
    help=f"hedera:period=1s; see `pathloom scheme list`. {IN_PYTHON}",
)


@takes_settings(texts={"schemes": ONE_SCHEME})
def run(
    given: dict[str, Any],
    spec: SpecFileOption = None,
    pcap: Annotated[
        Path | None,
        typer.Option(
            "--pcap",
            metavar="FILE",
            help="Write every packet as pcapng; needs --runs 1.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    event_log: Annotated[
        Path | None,
        typer.Option(
            "--event-log",
            metavar="FILE",
            help="Write the inputs and outputs of the controller; needs --runs 1.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    jobs: JobsOption = None,
    threads: ThreadsOption = None,
    cluster: ClusterOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    plots: PlotsOption = None,
    json: JsonOption = None,
) -> int:
    """Run one scheme.

    Example: pathloom run --fabric fat-tree:k=4 --traffic long-lived:pattern=permutation --scheme hedera --duration 1s
    """
    _check_one_scheme(given.get("schemes", ()))
    settings = settings_of(given, spec, one_scheme=True, runs=1)
    if len(settings.schemes) > 1:
        names = ", ".join(settings.schemes)
        raise bad_input(f"run takes one scheme, not {len(settings.schemes)} ({names}); use `pathloom compare`")
    run_files = _written_files(pcap, event_log, settings)
    if run_files != RunFiles() and resume:
        raise bad_input("--resume: a run that is taken from an earlier call writes no --pcap and no --event-log")
    if run_files != RunFiles() and cluster is not None:
        raise bad_input("--cluster: a run on another machine writes no --pcap and no --event-log")
    outputs = Outputs.of(out, json, plots, resume)
    workers = Workers(job_count(jobs), cluster, thread_count(threads))
    return carry_out("run", settings, run_files, workers, outputs)


def _written_files(pcap: Path | None, event_log: Path | None, settings: Settings) -> RunFiles:
    """Returns the files to which a run writes its packets and messages. Raises `PathloomError`."""
    if (pcap or event_log) and settings.runs > 1:
        option = "--pcap" if pcap else "--event-log"
        raise bad_input(f"{option}: is for a single run; leave --runs at 1 (--seed chooses the run)")
    if (pcap or event_log) and len(settings.worlds) > 1:
        raise bad_input("--worlds: --pcap and --event-log record a run in one world; name one world")
    return RunFiles(str(pcap) if pcap else None, str(event_log) if event_log else None)


def settings_of(given: dict[str, Any], spec: Path | None, one_scheme: bool = False, **defaults: Any) -> Settings:
    """Returns the settings from the file, if there is one. Options of the command line override them."""
    from_file = read_spec_file(spec) if spec is not None else {}
    source = "command line" if spec is None else f"experiment file `{spec}`"
    values = {**defaults, **from_file, **given}
    if one_scheme and {"fabric", "traffic"} <= values.keys() and "schemes" not in values:
        raise bad_input(
            f"{source}: scheme is missing; expected a name such as hedera (see `pathloom scheme list`) or FILE.py:CLASS"
        )
    return Settings.of(values, source)


def _check_one_scheme(schemes: Sequence[str]) -> None:
    if len(schemes) > 1:
        named = ",".join(schemes)
        raise bad_input(f"--scheme `{named}`: names several; `pathloom compare --schemes {named}` runs them")


@dataclass(frozen=True)
class Workers:
    """The threads or the cluster that carry out the runs."""

    jobs: int | None
    """Runs at a time on this machine; None for one per core, over `threads`."""
    cluster: str | None
    threads: int | None = None
    """Threads of each run; None for one."""

    def runs_at_a_time(self) -> int:
        """Returns `jobs`, or its default if it is None."""
        from pathloom.api.comparison import default_jobs

        return self.jobs or default_jobs(self.threads or 1)


@dataclass(frozen=True)
class Outputs:
    """Where a result is written: a folder, JSON, plots."""

    out: Path | None
    json: str | None
    kinds: Sequence[str]
    """Kinds of plots."""
    resume: bool

    @classmethod
    def of(cls, out: Path | None, json: str | None, plots: str | None, resume: bool) -> Outputs:
        """Outputs by the options. Raises `PathloomError` on kinds of plots that are unknown or have no folder."""
        kinds = plot_kinds(plots)
        if plots is not None and out is None:
            raise bad_input("--plots: plots are written into the folder of --out; name one")
        return cls(out, json, kinds, resume)

    def check(self, settings: Settings) -> None:
        """Raises `PathloomError` if the result could not be written."""
        from pathloom.api.results import FILES
        from pathloom.experiments.results.record import check_comparison_folder, check_foreign_files

        console.check_json_target(self.json)
        if self.resume and self.out is None:
            raise bad_input("--resume: finished runs are kept in the folder of --out; name one")
        if self.resume and LAB in settings.worlds:
            raise bad_input("--resume: is for the simulator; leave it out, or run in the simulator alone")
        if self.out is not None:
            check_comparison_folder(self.out, settings, self.resume)
            check_foreign_files(self.out, FILES, "--out ")


def carry_out(verb: str, settings: Settings, run_files: RunFiles, workers: Workers, outputs: Outputs) -> int:
    """Carries out an experiment and delivers its result. Returns the exit code. Raises `PathloomError`."""
    from pathloom.api.experiment import Experiment
    from pathloom.experiments.running.store import folder_lock, locked_store

    outputs.check(settings)
    check_cluster(workers.cluster, workers.jobs, settings.worlds, workers.threads)
    threads = workers.threads or 1
    out, folder = outputs.out, None
    with ExitStack() as stack:
        try:
            if outputs.resume:
                assert out is not None
                folder = OutFolder(out)
                store = stack.enter_context(locked_store(folder.path))
                experiment = Experiment(settings, run_files=run_files, store=store, threads=threads)
            else:
                experiment = Experiment(settings, run_files=run_files, threads=threads)
                folder = OutFolder(out) if out is not None else None
                stack.enter_context(folder_lock(folder.path) if folder is not None else nullcontext())
            for scheme, why in experiment.on_one_thread().items():
                console.say(f"pathloom: --threads {threads}: {scheme} runs on one thread: {why}")
            result = _run_and_watch(verb, experiment, workers)
            for trouble in result.troubles:
                console.say(f"pathloom: warning: {trouble}")
            if result.complete or result.outcomes:
                deliver(result, folder, outputs)
        except BaseException:
            stack.close()
            if folder is not None:
                folder.remove_if_empty()
            run_files.remove_partial()
            raise
    if result.complete:
        return EXIT_ERROR if result.troubles else 0
    run_files.remove_partial()
    if not result.outcomes and folder is not None:
        folder.remove_if_empty()
    done, planned = len(result.outcomes), settings.runs * len(settings.labels)
    verb = "kept" if outputs.resume else "the result so far is"
    kept = f", {verb} in {folder.path}" if folder is not None and done else ""
    again = "; the same command goes on from here" if outputs.resume and done else ""
    said = f"{done} of {planned} runs were finished{kept}{again}"
    if isinstance(result.failure, SchemeError):
        way_out = "--keep-going continues, leaves the scheme's flows on their paths, and marks the result"
        raise SchemeError(f"{result.failure}; {said}; {way_out}", result.failure.traceback) from result.failure
    if result.failure is not None:
        raise ToolError(f"{result.failure}; {said}") from result.failure
    raise Interrupted(f"interrupted: {said}")


def _run_and_watch(verb: str, experiment: Experiment, workers: Workers) -> Result:
    settings = experiment.settings
    runs = settings.runs * len(settings.labels)
    jobs = min(workers.runs_at_a_time(), runs)
    with ExitStack() as stack:
        wanted = workers.cluster is not None and experiment.missing() > 0
        runner = stack.enter_context(runner_of(workers.cluster, jobs, console.say)) if wanted else None
        report = stack.enter_context(console.progress_bar(verb, runs))
        return experiment.carry_out(jobs, report, runner)


def deliver(result: Result, folder: OutFolder | None, outputs: Outputs) -> None:
    """Writes the folder, and prints the table, or JSON instead."""
    json = outputs.json
    try:
        if folder is not None:
            result.save(folder.path, outputs.kinds)
    except PathloomError as error:
        if folder is None or not outputs.resume:
            raise
        raise bad_input(f"{error}; all runs are kept in {folder.path}; the same command goes on from here") from None
    finally:
        # Print the result even if the folder could not be written: the runs may have taken hours.
        if json is not None:
            console.put_json(json, result.json())
        if json != console.STDOUT:
            print_result(result)
    if folder is not None:
        console.put_report(folder.path / "report.html", json)


def print_result(result: Result) -> None:
    """Prints the tables of a result. A row per figure and a column per scheme fit narrow terminals."""
    from pathloom.experiments.results.notes import failures
    from pathloom.report.headline import banners, headlines, legend, runs_text
    from pathloom.report.jobs import delay_lines, jobs_table
    from pathloom.report.tables import control_table, main_table

    settings, schemes = result.settings, result.summary["schemes"]
    for short, full in banners(result):
        print(f"WARNING: {short}. {full}\n")
    print(f"{settings.traffic} on {settings.fabric}, {runs_text(result)}\n")
    main = main_table(schemes)
    names, rows = _turned(main)
    _, cost = _turned(control_table(schemes))
    blank = ["" for _ in range(len(names) + 1)]
    jobs = jobs_table(schemes)
    of_jobs = [blank, *_turned(jobs)[1]] if jobs is not None else []
    console.table(None, ["", *names], [*rows, *of_jobs, blank, *cost])
    print()
    for line in headlines(schemes):
        print(line)
    for line in [*delay_lines(schemes), *legend(schemes, main, "*"), "Costs are per run."]:
        print(line)
    for note in result.notes:
        if note not in failures(result):
            print(f"Note: {note}.")


def _turned(table: Table) -> tuple[list[str], list[list[str]]]:
    """Returns the names of the schemes, and a row for each column of the table; * marks the best value of a row."""
    names = [row[0] for row in table.rows]
    rows = []
    for column in range(1, len(table.headings)):
        best = table.best[column]
        cells = [row[column] + (" *" if index == best else "") for index, row in enumerate(table.rows)]
        rows.append([table.headings[column], *cells])
    return names, rows
