"""`pathloom artefact`."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pathloom._core import PathloomError
from pathloom.cli import compare, console
from pathloom.cli import sweep as sweeps
from pathloom.cli.exits import EXIT_ERROR, Interrupted
from pathloom.cli.help import App
from pathloom.cli.options import (
    JobsOption,
    JsonOption,
    job_count,
    out_folder,
    out_option,
    plot_kinds,
    show_help_if_alone,
)
from pathloom.errors import bad_input
from pathloom.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pathloom.artefact.check import Compared
    from pathloom.artefact.layout import Entry, Manifest

SCHEMA = 1
FULL = 100.0
MOST_SHOWN = 10
"""Printed places that differ, if no figure does."""

app = App(
    help="Package experiments for the artefact evaluation of a publication, and check such a package.",
    invoke_without_command=True,
)


@app.callback()
def root(context: typer.Context) -> None:
    """Shows the help when no command is given."""
    show_help_if_alone(context)


@app.command("new")
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.", parser=out_folder)],
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FROM",
            help="Results folders of compare, run or sweep; or files for `sweep` and `compare --spec`, which are "
            "carried out first, into results/FILE.",
        ),
    ],
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="Title.  [default: the name of DIR]")
    ] = None,
    authors: Annotated[
        list[str] | None,
        typer.Option(
            "--author", metavar="NAME", help="An author; may be repeated.  [default: Anonymous, for blind reviews]"
        ),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", metavar="FILE.whl", help="Put this wheel of Pathloom into the artefact."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Make an artefact again; files that are not of the artefact stay in its folder."
        ),
    ] = False,
    jobs: JobsOption = None,
) -> int:
    """Make the folder of an artefact: settings, input files, expected results, environment lock, README, metadata.

    The folder holds all that others need to repeat the results with `make check`. Nothing is fetched and nothing is
    published. An experiment in the lab, or with a scheme that only a notebook has, is refused.

    Example: pathloom artefact new artefact results/loads results/stride --title "Paths for all" --author "Ada Lovelace"

    Example: pathloom artefact new artefact loads.toml
    """
    from pathloom.artefact.new import About, check_target, check_wheel, make
    from pathloom.artefact.sources import read_sources
    from pathloom.artefact.texts import ANONYMOUS

    threads = job_count(jobs)
    check_target(folder, replace)
    if wheel is not None:
        check_wheel(wheel)
    names = tuple(" ".join(name.split()) for name in authors or [ANONYMOUS])
    if not all(names):
        raise bad_input("--author: is empty; expected a name")
    read = read_sources([_result_of(source, threads) for source in sources])
    about = About(" ".join((title or folder.resolve().name).split()), names, wheel)
    manifest = make(folder, read, about)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    counts = f"{counted(len(manifest.experiments), 'experiment')}, {counted(len(manifest.files), 'file')}"
    print(f"{folder}: {counts}, {size / 1e6:.1f} MB")
    for entry in manifest.experiments:
        print(f"  {entry.name}: {entry.command()}")
    print(f"Check it: pathloom artefact check {folder}")
    if not authors:
        console.say("pathloom: no --author: the metadata says Anonymous")
    return 0


def _result_of(source: Path, threads: int | None) -> Path:
    """Returns the results folder of a source. Carries out a file of settings first, as far as runs are missing."""
    if source.suffix != ".toml" or source.is_dir():
        return source
    folder = sweeps.FOLDER / source.stem
    console.say(f"{source}: into {folder}")
    _carry_out(_entry_of(source), source, folder, threads)
    return folder


def _entry_of(file: Path) -> Entry:
    from pathloom.artefact.layout import Entry
    from pathloom.experiments.results.record import COMPARISON, SWEEP
    from pathloom.experiments.settings.files import read_toml
    from pathloom.experiments.sweeps.plan import GRID, POINTS

    found = read_toml(file, f"experiment file `{file}`")
    return Entry(file.stem, SWEEP if GRID in found or POINTS in found else COMPARISON)


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an artefact.")],
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="SHARE",
            help="Accept differences of the figures up to this share, such as 5%.  [default: only equal results]",
        ),
    ] = None,
    jobs: JobsOption = None,
    out: Annotated[Path | None, out_option("Folder for the repeated results.", "DIR/results")] = None,
    json: JsonOption = None,
) -> int:
    """Repeat the runs of an artefact and compare the results with the expected ones.

    Every figure is compared, and every flow and link where the expected result has them. The exit code is 0 if all is
    equal, or within the accepted share; 1 if something differs; 2 if the artefact is damaged. After Ctrl-C, the same
    command goes on. A check that has ended repeats all runs the next time.

    Example: pathloom artefact check artefact

    Example: pathloom artefact check artefact --within 5%
    """
    from pathloom.artefact.check import check_files
    from pathloom.artefact.layout import RESULTS, Manifest

    console.check_json_target(json)
    threads, share = job_count(jobs), _share(within)
    manifest = Manifest.read(folder)
    check_files(folder, manifest)
    place = (out or folder / RESULTS).resolve()
    _say_versions(manifest)
    done: list[Compared] = []
    for entry in manifest.experiments:
        done.append(_repeat(folder, entry, place / entry.name, threads))
        if json != console.STDOUT:
            print_compared(done[-1], share)
    for entry in manifest.experiments:
        shutil.rmtree(place / entry.name / "runs", ignore_errors=True)
    good = all(one.equal or (share is not None and not one.beyond(share)) for one in done)
    if json is not None:
        record = {"schema": SCHEMA, "reproduced": good, "experiments": [one.record() for one in done]}
        console.put_json(json, record)
    if json != console.STDOUT:
        print(f"{'Reproduced' if good else 'Not reproduced'}: {_counts(done, share)}. Repeated results: {place}")
    return 0 if good else EXIT_ERROR


def _share(text: str | None) -> float | None:
    """Reads --within: `5%`, or `0.05`."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / (FULL if text.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise bad_input(f"--within `{text}`: expected a share below 100 %, such as 5%")
    return value


def _say_versions(manifest: Manifest) -> None:
    """Prints which versions made and check the artefact, if they differ."""
    from pathloom.build import BUILD_DIGITS
    from pathloom.experiments.settings.identity import versions

    made, here = (
        f"Pathloom {of['pathloom']} (build {of.get('program', 'unknown')[:BUILD_DIGITS]})"
        for of in (manifest.versions, versions())
    )
    if made != here:
        console.say(f"pathloom: {made} made the expected results, and {here} repeats them; figures may differ")


def _repeat(folder: Path, entry: Entry, place: Path, threads: int | None) -> Compared:
    from pathloom.artefact.check import compare as compare_results
    from pathloom.artefact.layout import EXPERIMENTS, SETTINGS

    try:
        # Settings name their input files from their own folder.
        with contextlib.chdir(folder / EXPERIMENTS / entry.name):
            _carry_out(entry, Path(SETTINGS), place, threads)
    except Interrupted as interrupted:
        raise Interrupted(f"{entry.name}: {interrupted}") from None
    except PathloomError as error:
        raise bad_input(f"{entry.name}: {error}") from None
    return compare_results(folder, entry, place)


def _carry_out(entry: Entry, file: Path, folder: Path, threads: int | None) -> None:
    """Carries out a file of settings as `sweep` or `compare` does, without their tables; kept runs are used."""
    from pathloom.experiments.results.record import SWEEP
    from pathloom.experiments.running.simulation import RunFiles

    jobs = None if threads is None else str(threads)
    with contextlib.redirect_stdout(io.StringIO()):
        if entry.kind == SWEEP:
            sweeps.sweep(file, until=entry.until, resume=True, jobs=jobs, out=folder)
            return
        settings = compare.settings_of({}, file)
        outputs = compare.Outputs(folder, None, plot_kinds(None), resume=True)
        compare.carry_out("compare", settings, RunFiles(), compare.Workers(threads, None), outputs)


def print_compared(compared: Compared, share: float | None) -> None:
    """Prints whether an experiment is equal to the expected one, and else what differs and by how much."""
    from pathloom.report.diff_table import diff_table

    if compared.equal:
        print(f"{compared.name}: equal, all {compared.values} values")
        return
    print(f"{compared.name}: {len(compared.different)} of {compared.values} values differ")
    table = diff_table(compared.diff)
    rows = [
        row[:-1]
        for row, change in zip(table.rows, compared.diff.changes, strict=True)
        if change.a != change.b or change.bound_a != change.bound_b
    ]
    if rows:
        headings = [{"A": "expected", "B": "found", "B − A": "difference"}.get(one, one) for one in table.headings[:-1]]
        console.table(None, headings, rows, headings.index("expected"))
    else:
        print(f"  no figure; {', '.join(compared.different[:MOST_SHOWN])}")
    for name, lacks in (("found", compared.diff.only_a), ("expected", compared.diff.only_b)):
        if lacks:
            print(f"  not {name}: {'; '.join(lacks)}")
    if share is not None and compared.beyond(share):
        print(f"  differ by more than {FULL * share:g} %: {', '.join(compared.beyond(share))}")


def _counts(done: Sequence[Compared], share: float | None) -> str:
    equal = sum(one.equal for one in done)
    near = sum(not one.equal and share is not None and not one.beyond(share) for one in done)
    close = f", {near} within {FULL * (share or 0.0):g} %" if share is not None else ""
    return f"{equal} of {counted(len(done), 'experiment')} equal{close}"
