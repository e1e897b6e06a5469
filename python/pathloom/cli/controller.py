"""`pathloom controller` and `pathloom bench controller`: native programs, and commands for a running controller."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from pathloom.native import BENCH, PROGRAM, program

VERBATIM = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of commands that pass all their arguments unchanged to the native program."""


def become(arguments: list[str], name: str = PROGRAM) -> NoReturn:
    """Replaces this process by a native program, so that signals reach it."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = program(name)
    os.execv(file, [file, *arguments])


def controller(context: typer.Context) -> int:
    """Control a live fabric: `--config FILE`, or `check FILE` to check a configuration.

    The commands `status`, `flows`, `why` and others query a running controller.

    Example: pathloom controller check controller.toml

    Example: pathloom controller --config controller.toml

    Example: pathloom controller status
    """
    from pathloom.cli import remote

    if context.args and context.args[0] in remote.COMMANDS:
        command = typer.main.get_command(remote.app)
        return int(command.main(context.args, prog_name="pathloom controller", standalone_mode=False) or 0)
    if context.args in ([], ["-h"], ["--help"]):
        typer.echo(typer.main.get_command(remote.app).get_help(context))
    become(context.args or ["--help"])


def bench_controller(context: typer.Context) -> None:
    """Load a controller with fake switches, and measure its answers and paths per second.

    Example: pathloom bench controller --schemes spt,ecmp
    """
    become(context.args, BENCH)
