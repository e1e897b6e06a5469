"""`pathloom sweep`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pathloom._core import PathloomError
from pathloom.cli import console
from pathloom.cli.exits import EXIT_ERROR, Interrupted
from pathloom.cli.options import (
    ClusterOption,
    JobsOption,
    JsonOption,
    PlotsOption,
    job_count,
    out_option,
    plot_kinds,
)
from pathloom.errors import SchemeError, ToolError, bad_input
from pathloom.experiments.results.output_files import OutFolder
from pathloom.experiments.running.runners import check_cluster, runner_of
from pathloom.experiments.running.threads import default_threads
from pathloom.experiments.settings.setting import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pathloom.api.results import SweepResult
    from pathloom.experiments.running.work import Progress, Work
    from pathloom.experiments.settings.model import Job
    from pathloom.experiments.sweeps.plan import SweepPlan
    from pathloom.experiments.sweeps.precision import Precision
    from pathloom.experiments.sweeps.sweep import Sweep

FOLDER = Path("results")


def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.toml",
            help="Settings of compare, with {name} in values, and lists in [grid] or single [[points]].",
        ),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="ci=2%",
            help="Add runs to each point until the difference to its best scheme is known to ± 2 % (95 % confidence); "
            "ci=2%,most=50 bounds the runs of each scheme.  [default bound: 10 times the runs]",
            rich_help_panel=RUNS,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue in a folder that holds another sweep, and use those of its runs that fit.",
            rich_help_panel=RUNS,
        ),
    ] = False,
    cluster: ClusterOption = None,
    plots: PlotsOption = None,
    jobs: JobsOption = None,
    out: Annotated[Path | None, out_option("Folder for runs, tables, plots and report.", "results/FILE")] = None,
    json: JsonOption = None,
) -> int:
    """Compare schemes at every point of a grid: loads, rates, transports, or any other setting.

    Each finished run is kept in FOLDER/runs. After Ctrl-C or a crash, the same command does only what is missing.

    Example: pathloom sweep loads.toml --until ci=5% --out results/loads
    """
    from pathloom.api.results import SWEEP_FILES
    from pathloom.experiments.results.record import check_foreign_files
    from pathloom.experiments.sweeps.plan import SweepPlan
    from pathloom.experiments.sweeps.precision import Precision
    from pathloom.experiments.sweeps.result import check_sweep_folder
    from pathloom.report.sweep_tables import plot_names

    console.check_json_target(json)
    kinds, threads = plot_kinds(plots), job_count(jobs)
    check_cluster(cluster, threads)
    precision = Precision.parse(until) if until is not None else None
    plan = SweepPlan.read(file)
    place = out or FOLDER / file.stem
    check_sweep_folder(place, plan, precision, resume)
    pictures = [f"{name}.{kind}" for name in plot_names(plan.grid) for kind in kinds]
    check_foreign_files(place, [*SWEEP_FILES, *pictures], "--out ")
    folder = OutFolder(place)
    try:
        with _ready(plan, folder.path, precision) as ready:
            result = _carry_out(ready, folder.path, threads, cluster)
            deliver(result, folder.path, json, kinds)
    finally:
        folder.remove_if_empty()
    return EXIT_ERROR if result.troubles else 0


@contextmanager
def _ready(plan: SweepPlan, folder: Path, until: Precision | None) -> Iterator[Sweep]:
    """Claims the folder of the runs for this process, and yields the sweep."""
    from pathloom.experiments.running.store import locked_store
    from pathloom.experiments.sweeps.sweep import Sweep

    with locked_store(folder) as store:
        yield Sweep(plan, store, until)


def _carry_out(ready: Sweep, folder: Path, threads: int | None, cluster: str | None) -> SweepResult:
    done = ready.finished()
    if done:
        console.say(f"{done} of {ready.planned()} runs are in {folder} already")
    try:
        ended = ready.carry_out(runner_of(cluster, threads or default_threads(), console.say), _watch)
    except PathloomError as error:
        said = _kept_text(ready, folder)
        raise bad_input(f"{error}; {said}") from None
    if ended.early:
        said = _kept_text(ready, folder)
        if isinstance(ended.failure, SchemeError):
            way_out = "keep_going = true in the file goes on and marks the result"
            raise SchemeError(f"{ended.failure}; {said}; {way_out}", ended.failure.traceback) from ended.failure
        if ended.failure is not None:
            raise ToolError(f"{ended.failure}; {said}") from ended.failure
        raise Interrupted(f"interrupted: {said}")
    from pathloom.api.results import SweepResult

    return SweepResult.of(ready.result())


def _kept_text(ready: Sweep, folder: Path) -> str:
    """Returns the text about kept runs when a sweep ends early."""
    done, planned = ready.finished(), ready.planned()
    if not done:
        return "no run was finished"
    return f"{done} of {planned} runs were finished, kept in {folder}; the same command goes on from here"


@contextmanager
def _watch(_ready: Sweep, works: Sequence[Work]) -> Iterator[Progress]:
    from pathloom.experiments.running.estimate import work_s

    weights = {_shown(work): work_s(work.execution.settings, [work.job]) for work in works}
    with console.progress_bar("sweep", len(works), weights) as report:
        yield lambda work, share: report(_shown(work), share)


def _shown(work: Work) -> Job:
    from dataclasses import replace

    return replace(work.job, label=f"{work.place} {work.job.label}")


def deliver(result: SweepResult, folder: Path, json: str | None, kinds: Sequence[str]) -> None:
    """Writes the folder, and prints the table, or JSON instead."""
    for trouble in result.troubles:
        console.say(f"pathloom: warning: {trouble}")
    kept = f"all runs are kept in {folder}; the same command goes on from here"
    try:
        result.save(folder, kinds)
    except PathloomError as error:
        raise bad_input(f"{error}; {kept}") from None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {kept}") from None
    if json is not None:
        console.put_json(json, result.json())
    if json != console.STDOUT:
        print_sweep(result)
    console.put_report(folder / "report.html", json)


def print_sweep(result: SweepResult) -> None:
    """Prints the table of a sweep: a row for each point and scheme."""
    from pathloom.report.sweep_page import what_text
    from pathloom.report.sweep_tables import legend_lines, points_table

    table = points_table(result)
    print(f"{what_text(result)}\n")
    console.table(None, table.headings, table.rows, table.headings.index("scheme") + 1)
    print()
    for line in legend_lines(result, table):
        print(line)
    for note in result.notes:
        print(f"Note: {note}.")
