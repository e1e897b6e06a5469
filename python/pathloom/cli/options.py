"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathloom.cli import completion
from pathloom.cli.help import NETWORK, OUTPUT, RUNS, SETTINGS
from pathloom.errors import bad_input
from pathloom.experiments.results.output_files import PLOT_KINDS
from pathloom.experiments.settings.model import MOST_RUNS, MOST_SEED

MOST_JOBS = 1024
MOST_THREADS = 64

IN_PYTHON = "A scheme in Python is FILE.py:CLASS:key=value."

FabricOption = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="SPEC",
        help="fat-tree:k=4,rate=10Mbps or a file; see `pathloom fabric list`.",
        autocompletion=completion.fabrics,
        rich_help_panel=SETTINGS,
    ),
]
TrafficOption = Annotated[
    str | None,
    typer.Option(
        "--traffic",
        metavar="SPEC",
        help="web-search:load=0.4,pattern=random; see `pathloom traffic list`.",
        autocompletion=completion.traffics,
        rich_help_panel=SETTINGS,
    ),
]
TransportOption = Annotated[
    str | None,
    typer.Option(
        "--transport",
        metavar="SPEC",
        help="Transport of hosts: newreno:min_rto=1ms; see `pathloom transport list`. By default the scheme's own.",
        autocompletion=completion.transports,
        rich_help_panel=SETTINGS,
    ),
]
ControlOption = Annotated[
    str | None,
    typer.Option(
        "--control",
        metavar="KEYS",
        help="Control channel, controller and switches: delay=1ms,service=20us,install=100us, and tcam=2000 (or "
        "rules=2000), the rules that a switch has room for; snapshot=5s is how often the controller writes what it "
        "restarts from, batch=1 how many messages it takes at a time. agents=0.5 leaves half of the hosts without an "
        "agent: they label, hold and pace no flow. enforcement=host|meter|any says who keeps the rates of flows. With "
        "handover=begin, links hand packets on when sending begins, as the lab's do.",
        rich_help_panel=NETWORK,
    ),
]
FaultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="WHAT",
        help="10s:down:e0_0-a0_1 or 10s:up:c3+c4; 10s:flap:c3:100ms/400ms/5; in the simulator also "
        "10s:degrade:a0_1-c3:100Mbps, 10s:loss:a0_1-c3:0.01, 20s:restore:a0_1-c3, 10s:session-down:c3, session-up:c3, "
        "reboot:c3, controller-kill, controller-restart and controller-restart:snapshot. May be given several times.",
        rich_help_panel=NETWORK,
    ),
]
WorldsOption = Annotated[
    str | None,
    typer.Option(
        "--worlds",
        metavar="LIST",
        help="sim, lab or sim,lab: simulate, run live as root, or both.",
        rich_help_panel=NETWORK,
    ),
]
LabOption = Annotated[
    str | None,
    typer.Option(
        "--lab",
        metavar="KEYS",
        help="For the lab: hosts=newreno|linux|linux/NAME, controller=none|pathloom, pin=on|off, daemons=N, "
        "with commas and no spaces.",
        rich_help_panel=NETWORK,
    ),
]
YardstickOption = Annotated[
    bool,
    typer.Option(
        "--yardstick",
        help="Also compute the exact optimum: the LP bound on throughput, and a lower bound of each flow's FCT.",
        rich_help_panel=OUTPUT,
    ),
]
DurationOption = Annotated[
    str | None,
    typer.Option(
        "--duration",
        metavar="TIME",
        help="How long flows arrive, with its unit: 60s.  [default: 10s]",
        rich_help_panel=RUNS,
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="finished",
        help="Let every finite flow finish, however long that takes. Without it, flows under way have five times the "
        "duration to finish.",
        rich_help_panel=RUNS,
    ),
]
SeriesOption = Annotated[
    str | None,
    typer.Option(
        "--series",
        metavar="TIME",
        help="Note rates and queues of links, goodput and windows of flows over time, in steps: 10ms.",
        rich_help_panel=OUTPUT,
    ),
]
KeepGoingOption = Annotated[
    bool,
    typer.Option(
        "--keep-going",
        help="Continue when a scheme in Python fails, mark the result, and exit with 1. Otherwise stop.",
        rich_help_panel=RUNS,
    ),
]
SeedOption = Annotated[
    str | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Run number r has the seed N + r - 1.  [default: 1]",
        rich_help_panel=RUNS,
    ),
]
RunsOption = Annotated[
    str | None,
    typer.Option(
        "--runs",
        metavar="N",
        help="Runs of each scheme.  [default: 3 to compare, 1 to run]",
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
    typer.Option("--controller", metavar="ADDRESS:PORT", help="[paths] address of it; default $PATHLOOM_PATHS."),
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
        rich_help_panel=SETTINGS,
    ),
]


def whole_number(option: str, text: str | None) -> int | None:
    """Returns the whole number of an option. Raises `PathloomError` if it is none, or out of range."""
    if text is None:
        return None
    ranges = {
        "--runs": (1, MOST_RUNS),
        "--seed": (0, MOST_SEED),
        "--jobs": (1, MOST_JOBS),
        "--threads": (1, MOST_THREADS),
    }
    least, most = ranges[option]
    if text.isascii() and text.isdecimal() and len(text) <= 16 and least <= int(text) <= most:
        return int(text)
    raise bad_input(f"{option} `{text}`: expected a whole number from {least} to {most}")


def plot_kinds(text: str | None) -> tuple[str, ...]:
    """Returns the kinds of plots of --plots. Raises `PathloomError` on an unknown kind."""
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
