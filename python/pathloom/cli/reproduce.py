"""`pathloom reproduce`."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathloom._core import PathloomError
from pathloom.cli import console
from pathloom.cli.exits import Interrupted
from pathloom.cli.options import (
    ClusterOption,
    JobsOption,
    JsonOption,
    SeedOption,
    job_count,
    out_option,
    seed_number,
)
from pathloom.errors import bad_input
from pathloom.experiments.running.runners import check_cluster, runner_of
from pathloom.extras import need
from pathloom.progress import minutes
from pathloom.quantities import counted
from pathloom.specs import LAB, SIM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pathloom.experiments.results.output_files import OutFolder
    from pathloom.experiments.running.work import Runner
    from pathloom.reproduction.definitions import Figure, Form
    from pathloom.reproduction.measure import Planned, Reproduced
    from pathloom.reproduction.runs import RunCache

LIST = "list"
FOLDER = Path("results/reproduction")
RUNS = "runs"
"""Subfolder of the folder of the pictures, for the stored results of finished runs."""
SCHEMA = 1
MOST_SHORTER = 1e6
"""Largest value of --shorten. A millionth of a published duration is still some nanoseconds."""


TargetArgument = Annotated[
    str,
    typer.Argument(metavar="WHAT", help="list, a paper (ofpt), a figure (ofpt/fig4a), or all.", show_default=True),
]
QuickOption = Annotated[
    bool,
    typer.Option("--quick", help="Fewer, shorter runs: at most a minute per figure. The result is marked."),
]
ShortenOption = Annotated[
    str | None,
    typer.Option(
        "--shorten",
        metavar="N",
        help="As many runs as published, each of 1/N of the published duration. The result is marked.",
        show_default="1",
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Use the finished runs that earlier calls have kept in FOLDER/runs, except live runs that lacked "
        "processor time.",
    ),
]
AnyBuildOption = Annotated[
    bool,
    typer.Option(
        "--any-build",
        help="With --resume, also use runs that another build of Pathloom has kept. The result says how many.",
    ),
]
WorldOption = Annotated[
    str,
    typer.Option(
        "--world", metavar="WORLD", help="sim, or lab: live, at rates that one machine can carry; needs root."
    ),
]
PagesOption = Annotated[
    Path | None,
    out_option("Folder for the pictures, and for one page with all.", f"{FOLDER}, or {FOLDER}-lab"),
]


def reproduce(
    target: TargetArgument = LIST,
    quick: QuickOption = False,
    shorten: ShortenOption = None,
    resume: ResumeOption = False,
    any_build: AnyBuildOption = False,
    world: WorldOption = SIM,
    json: JsonOption = None,
    out: PagesOption = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    seed: SeedOption = None,
) -> int:
    """Reproduce published figures and print published beside measured values.

    Without --quick the set-up is the published one, which takes from seconds to hours per figure. Each finished run is
    kept in FOLDER/runs: after Ctrl-C or a crash, the same command with --resume does only what is missing. With
    --world lab, the testbeds' figures run live on this machine. If published and measured values differ by more than
    5 points, a line says why.

    Example: pathloom reproduce list

    Example: pathloom reproduce ofpt/fig4a --quick

    Example: pathloom reproduce tcp-path/fig9a --shorten 20

    Example: pathloom reproduce all --resume --out docs/reproduction
    """
    console.check_json_target(json)
    workers, first_seed = job_count(jobs), seed_number(seed)
    form = _form(quick, shorten, world)
    if any_build and not resume:
        raise bad_input("--any-build: selects kept runs, so it needs --resume")
    check_cluster(cluster, workers, (world,))
    if target == LIST:
        _list(json)
        return 0
    need("plot", "reproduce")
    from pathloom.experiments.results.output_files import OutFolder
    from pathloom.experiments.running.threads import default_threads
    from pathloom.reproduction.library import figures
    from pathloom.reproduction.page import check_folder
    from pathloom.reproduction.runs import RunCache

    wanted = figures(target) if world == SIM else _in_lab(figures(target))
    place = out or Path(str(FOLDER) if world == SIM else f"{FOLDER}-{world}")
    check_folder(place)
    how = form, 1 if first_seed is None else first_seed, world
    with ExitStack() as stack:
        local = workers or default_threads()
        runner = stack.enter_context(runner_of(cluster, local, console.say)) if cluster is not None else local
        folder = OutFolder(place)
        runs = OutFolder(place / RUNS)
        cache = RunCache(runs.path, resume, any_build)
        done = _carry_out(wanted, how, runner, (folder, runs), cache, json)
    if json is not None:
        console.put_json(json, {"schema": SCHEMA, "items": [result.as_json() for result in done]})
    (console.say if json == console.STDOUT else print)(f"Page: {folder.path / 'README.md'}")
    return 0


def _form(quick: bool, shorten: str | None, world: str) -> Form:
    """Returns the form of the runs: published, quick or shortened. Raises `PathloomError`."""
    from pathloom.reproduction.definitions import PUBLISHED, QUICK, Form

    if world not in (SIM, LAB):
        raise bad_input(f"--world `{world}`: expected {SIM} or {LAB}")
    option = "--quick" if quick else "--shorten"
    if world != SIM and (quick or shorten is not None):
        raise bad_input(f"{option}: is for the simulator; in the lab a figure has one form")
    if quick and shorten is not None:
        raise bad_input("--shorten: cannot be combined with --quick, which sets its own durations; leave one out")
    if shorten is None:
        return QUICK if quick else PUBLISHED
    try:
        factor = float(shorten)
    except ValueError:
        factor = 0.0
    if not 1.0 <= factor <= MOST_SHORTER:
        raise bad_input(f"--shorten `{shorten}`: expected a number from 1 to {MOST_SHORTER:.0f}")
    return Form(shorten=factor)


def _in_lab(wanted: list[Figure]) -> list[Figure]:
    """Returns the lab forms of the figures. If there are several, figures without a lab form are left out."""
    return [figure.in_lab() for figure in wanted if figure.lab is not None or len(wanted) == 1]


def _carry_out(
    wanted: list[Figure],
    how: tuple[Form, int, str],
    runner: Runner | int,
    folders: tuple[OutFolder, OutFolder],
    cache: RunCache,
    json: str | None,
) -> list[Reproduced]:
    """Runs figures one by one and prints each. A finished figure is kept even if a later one fails.

    `folders` are the folder of the results and the folder of kept runs.
    """
    folder, runs = folders
    done: list[Reproduced] = []
    try:
        for result, image in _results(wanted, how, runner, folder.path, cache):
            done.append(result)
            if json != console.STDOUT:
                print_figure(result, image)
    except KeyboardInterrupt:
        where = f", kept in {folder.path}" if done else ""
        ended = f"interrupted: {len(done)} of {len(wanted)} figures were finished{where}"
        raise Interrupted(f"{ended}{_kept(runs, cache)}") from None
    except PathloomError as error:
        raise bad_input(f"{error}{_kept(runs, cache)}") from None
    finally:
        runs.remove_if_empty()
        if not done:
            folder.remove_if_empty()
    return done


def _kept(runs: OutFolder, cache: RunCache) -> str:
    """Returns the text about kept runs when figures end early; empty if this call has kept none."""
    if cache.added == 0:
        return ""
    again = "the same command" if cache.resumes else "the same command with --resume"
    return f"; {counted(cache.added, 'run')} kept in {runs.path}; {again} goes on from here"


def _results(
    wanted: list[Figure], how: tuple[Form, int, str], runner: Runner | int, folder: Path, cache: RunCache
) -> Iterator[tuple[Reproduced, Path]]:
    from pathloom.reproduction import measure
    from pathloom.reproduction.page import save

    form, seed, world = how
    plans = [measure.plan(figure, form, seed, world) for figure in wanted]
    threads = 1 if world == LAB else runner if isinstance(runner, int) else runner.count
    pairs = list(zip(wanted, plans, strict=True))
    forecast = Forecast(threads, pairs, cache, here=world != LAB and isinstance(runner, int))
    for place, (figure, planned) in enumerate(zip(wanted, plans, strict=True)):
        weights = measure.weights(figure, planned, cache)
        with forecast.timed(place), console.progress_bar(figure.id, forecast.runs, weights) as report:
            result = measure.reproduce(figure, planned, form, runner, cache, report)
        yield result, save(result, folder)


class Forecast:
    """Prints on stderr how many runs there are and about how long they take, and afterwards how long they took."""

    def __init__(
        self, threads: int, figures: list[tuple[Figure, list[Planned]]], cache: RunCache, here: bool = True
    ) -> None:
        """Prints the forecast of all figures if there are several. `here`: this process carries out the runs."""
        from pathloom.experiments.running.estimate import EstimateFactor

        self._threads, self._figures, self._cache, self._here = threads, figures, cache, here
        self._factor = EstimateFactor()
        self.runs = 0
        """Runs of the figure that is carried out now."""
        if len(figures) > 1:
            self._say(f"{len(figures)} figures", *self._to_do(figures))

    def _to_do(self, figures: list[tuple[Figure, list[Planned]]]) -> tuple[int, float]:
        from pathloom.reproduction import measure

        return measure.to_do(figures, self._cache)

    def _say(self, what: str, runs: int, work: float) -> None:
        if runs == 0:
            console.say(f"{what}: nothing to do, all runs are kept")
            return
        about = minutes(self._factor.wall_s(work, self._threads))
        console.say(f"{what}: {counted(runs, 'run')} to do, about {about} on {counted(self._threads, 'thread')}")

    @contextmanager
    def timed(self, place: int) -> Iterator[None]:
        """Prints how long a figure is likely to take and how long it took. Later forecasts use that time."""
        self.runs, work = self._to_do([self._figures[place]])
        self._say(self._figures[place][0].id, self.runs, work)
        projected_s = self._factor.wall_s(work, self._threads)
        begin_s, begin_processor_s = time.monotonic(), time.process_time()
        yield
        if self.runs == 0:
            return
        wall_s, processor_s = time.monotonic() - begin_s, time.process_time() - begin_processor_s
        self._factor.note(work, wall_s * self._threads)
        # Runs in the lab and on a cluster use almost no processor time of this process.
        processor = f", {minutes(processor_s)} of processor time" if self._here else ""
        took = f"{counted(self.runs, 'run')} took {minutes(wall_s)}{processor}; projected: {minutes(projected_s)}"
        console.say(f"{self._figures[place][0].id}: {took}")


def print_figure(result: Reproduced, image: Path) -> None:
    """Prints a figure: published beside measured values, why they differ, and the file of the picture."""
    from pathloom.reproduction import library, texts

    print(f"{result.figure.id}: {result.figure.title} ({result.figure.source})")
    for word, text in texts.setup_lines(result, where=str(library.FOLDER)):
        print(f"  {word}: {text}")
    print()
    if result.published:
        console.table(None, texts.HEADINGS, texts.rows(result.published))
        print()
    points = texts.measured_table(result)
    if points is not None:
        console.table(None, *points, numbers_from=1)
        print()
    for labels, cause in texts.causes(result.published):
        print(f"Why, {labels}: {cause}.")
    for note in result.notes:
        print(f"Note: {note}.")
    print(f"Picture: {image}\n")


def _list(json: str | None) -> None:
    from pathloom.reproduction.library import figures

    entries: list[dict[str, Any]] = [
        {"id": figure.id, "title": figure.title, "source": figure.source, "published": len(figure.rows)}
        for figure in figures("all")
    ]
    if json is not None:
        console.put_json(json, {"schema": SCHEMA, "figures": entries})
    if json != console.STDOUT:
        rows = [[entry["id"], entry["title"], entry["source"]] for entry in entries]
        console.table(None, ["figure", "what it shows", "published in"], rows, 3)
        print("\nRun one with `pathloom reproduce ofpt/fig4a`, in at most a minute with --quick.")
