"""The commands of the command line, and the output of their errors."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from pathloom._core import PathloomError
from pathloom.cli.encoding import as_text, is_text
from pathloom.cli.exits import EXIT_BAD_INPUT, EXIT_ERROR, EXIT_INTERRUPTED
from pathloom.cli.help import App, first_sentence
from pathloom.cli.options import show_help_if_alone
from pathloom.errors import SchemeError, ToolError, bad_input

HELP = "Put the flows of a datacenter on the many paths of its fabric, and show which routing scheme does it best."
COMMANDS = {
    "compare": "compare.compare",
    "run": "compare.run",
    "sweep": "sweep.sweep",
    "diff": "diff.diff",
    "show": "show.show",
    "reproduce": "reproduce.reproduce",
    "artefact": "artefact.app",
    "fabric": "fabric.app",
    "export": "export.app",
    "scheme": "lists.schemes",
    "transport": "lists.transports",
    "traffic": "lists.traffic",
    "lab": "lab.app",
    "streams": "streams.app",
    "twin": "twin.app",
    "assign": "streams.assign",
    "with-paths": "with_paths.with_paths",
    "controller": "controller.controller",
    "bench": "bench.app",
}
"""Where each command is, below `pathloom.cli`: a function, or a group of commands."""


def application(only: str | None = None) -> App:
    """All commands, or one alone. The modules of the others then need not be imported, which takes 0.1 s."""
    app = App(
        name="pathloom",
        help=HELP,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in COMMANDS if only is None else [only]:
        module, _, attribute = COMMANDS[name].partition(".")
        found = getattr(import_module(f"pathloom.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        elif name == "controller":
            from pathloom.cli.controller import VERBATIM

            app.command(name, context_settings=VERBATIM)(found)
        else:
            app.command(name)(found)
    return app


def _application_for(arguments: list[str]) -> App:
    return application(arguments[0] if arguments and arguments[0] in COMMANDS else None)


def _version(wanted: bool) -> None:
    if wanted:
        from pathloom.build import build_text

        typer.echo(build_text())
        raise typer.Exit


def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the version, the build, the commit if it is known, and how it was compiled.",
        ),
    ] = False,
) -> None:
    """Shows the help when no command is given."""
    show_help_if_alone(context)


def carry_out(arguments: list[str]) -> int:
    """Runs a command line; bad input becomes one line on stderr and exit code 2."""
    try:
        _check_text(arguments)
        code = typer.main.get_command(_application_for(arguments)).main(
            arguments, prog_name="pathloom", standalone_mode=False
        )
        sys.stdout.flush()
    except PathloomError as error:
        return _bad_input(str(error))
    except SchemeError as error:
        print(f"{error.traceback.rstrip()}\npathloom: {error}", file=sys.stderr)
        return EXIT_ERROR
    except ToolError as error:
        print("pathloom: " + " ".join(str(error).split()), file=sys.stderr)
        return EXIT_ERROR
    except TyperException as error:
        return _bad_input(f"{_refusal(error)} (see `{_command_of(arguments)} --help`)")
    except Abort:
        raise KeyboardInterrupt from None
    if code == EXIT_INTERRUPTED:
        # The library returns this code if an interrupt came before or after the runs.
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _command_of(arguments: list[str]) -> str:
    """Returns the command at the beginning of the arguments.

    >>> _command_of(["fabric", "show", "diamond", "--json"])
    'pathloom fabric show'
    """
    command, path = typer.main.get_command(_application_for(arguments)), "pathloom"
    for argument in arguments:
        inner = getattr(command, "commands", {}).get(argument)
        if inner is None:
            break
        command, path = inner, f"{path} {argument}"
    return path


def _refusal(error: TyperException) -> str:
    """Returns what is wrong with an argument. A library checks numbers; its messages are replaced."""
    param, problems = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if param is None or problems is None:
        return error.format_message().removesuffix(".") + _way_out(error)
    first = problems()[0]
    bounds = first.get("ctx", {})
    if "error" in bounds:
        return str(bounds["error"])
    expected = {
        "greater_than_equal": f"{bounds.get('ge')} or more",
        "less_than_equal": f"at most {bounds.get('le')}",
        "float_parsing": "a number",
    }.get(first["type"], "a whole number")
    name = param.get_error_hint().strip("'")
    return f"{name} `{first['input']}`: expected {expected}"


def _way_out(error: TyperException) -> str:
    """What was expected: the help of a missing argument, or the known commands of a group."""
    param, command = getattr(error, "param", None), getattr(getattr(error, "ctx", None), "command", None)
    text = error.format_message()
    if param is not None and text.startswith("Missing") and getattr(param, "help", None):
        return f": {first_sentence(param.help).removesuffix('.')}"
    known = [name for name, one in getattr(command, "commands", {}).items() if not one.hidden]
    if text.startswith("No such command") and "Did you mean" not in text and known:
        return f" (known: {', '.join(known)})"
    return ""


def _check_text(arguments: list[str]) -> None:
    for argument in arguments:
        if not is_text(argument):
            encoding = sys.getfilesystemencoding()
            raise bad_input(
                f"`{as_text(argument)}` is not text in the locale's encoding, {encoding}; set LC_ALL=C.UTF-8"
            )


def _bad_input(text: str) -> int:
    print("pathloom: " + " ".join(text.split()), file=sys.stderr)
    return EXIT_BAD_INPUT
