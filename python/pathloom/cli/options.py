"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pathloom.cli.settings_options import whole_number
from pathloom.errors import bad_input
from pathloom.experiments.results.output_files import PLOT_KINDS
from pathloom.experiments.settings.model import MOST_SEED, setting
from pathloom.experiments.settings.setting import OUTPUT, RUNS, WHAT
from pathloom.extras import need

MOST_JOBS = 1024
MOST_THREADS = 64

SeedOption = Annotated[
    str | None,
    typer.Option(
        "--seed",
        metavar="N",
        help=setting("seed").help,
        rich_help_panel=RUNS,
    ),
]
JobsOption = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Threads; the result does not depend on it.  [default: one per core]",
        rich_help_panel=RUNS,
    ),
]
ThreadsOption = Annotated[
    str | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads of each run, for large fabrics under spt or ecmp; the result stays the same.  [default: 1]",
        rich_help_panel=RUNS,
    ),
]


def out_folder(text: str) -> Path:
    """Reads the value of `--out`. An empty text, as of an unset variable of a shell, is not the current folder."""
    if not text.strip():
        raise bad_input("--out: is empty; expected a folder, such as results/mine")
    return Path(text)


def out_option(about: str, default: str) -> Any:
    """The option `--out` of a command with a folder of its own: what it holds, and which it is by default."""
    return typer.Option(
        "--out", parser=out_folder, metavar="FOLDER", help=about, show_default=default, rich_help_panel=OUTPUT
    )


OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        parser=out_folder,
        metavar="FOLDER",
        help="Folder for result.json, tables, plots and report.html.",
        rich_help_panel=OUTPUT,
    ),
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the figures as JSON; - is standard output.",
        rich_help_panel=OUTPUT,
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Keep each finished run in FOLDER/runs, and take from there what an earlier call has left.",
        rich_help_panel=RUNS,
    ),
]
PlotsOption = Annotated[
    str | None,
    typer.Option(
        "--plots",
        metavar="LIST",
        help="Kinds of plot files: svg, pdf, png or several.  [default: svg]",
        rich_help_panel=OUTPUT,
    ),
]
PathsAddressOption = Annotated[
    str | None,
    typer.Option("--controller", metavar="ADDRESS:PORT[,…]", help="[paths] address; default $PATHLOOM_PATHS."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="Carry out runs on workers of Dask: local:N starts N here, tcp://HOST:PORT is a scheduler.",
        rich_help_panel=RUNS,
    ),
]
SpecFileOption = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE.toml",
        help="Read the settings from a file; options override it.",
        rich_help_panel=WHAT,
    ),
]


def job_count(text: str | None) -> int | None:
    """Returns the number of --jobs. Raises `PathloomError` if it is none, or out of range."""
    return None if text is None else whole_number("--jobs", text, 1, MOST_JOBS)


def thread_count(text: str | None) -> int | None:
    """Returns the number of --threads. Raises `PathloomError` if it is none, or out of range."""
    return None if text is None else whole_number("--threads", text, 1, MOST_THREADS)


def seed_number(text: str | None) -> int | None:
    """Returns the number of --seed. Raises `PathloomError` if it is none, or out of range."""
    return None if text is None else whole_number("--seed", text, 0, MOST_SEED)


def plot_kinds(text: str | None) -> tuple[str, ...]:
    """Returns the kinds of plots of --plots. Raises `PathloomError` on an unknown kind, or without matplotlib."""
    if text is not None:
        need("plot", "--plots")
    kinds = tuple(part.strip() for part in text.split(",")) if text is not None else PLOT_KINDS[:1]
    for place, kind in enumerate(kinds):
        if kind not in PLOT_KINDS:
            raise bad_input(f"--plots `{text}`: `{kind}` is not a kind; expected some of {', '.join(PLOT_KINDS)}")
        if kind in kinds[:place]:
            raise bad_input(f"--plots `{text}`: {kind} is given twice; name each kind once")
    return kinds


def show_help_if_alone(context: typer.Context) -> None:
    """Shows the help of a group of commands that was called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
