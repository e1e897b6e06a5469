"""Writes manual pages and the shell completion, from the commands themselves: `share.py FOLDER` fills a `share`.

The texts are those of `--help`: of the commands in Python, and of `USAGE` in the sources of the native programs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer import _completion_shared as shells

from pathloom import _core
from pathloom.cli import remote
from pathloom.cli.app import application
from pathloom.cli.help import commands_of, parts_of_help, spellings

ROOT = Path(__file__).resolve().parent.parent
NATIVE = {
    "pathloom-controller": ("controller", "controller of an OpenFlow fabric with many paths"),
    "pathloom-hostd": ("hostd", "agent that measures and places the connections of a host"),
    "pathloom-switch": ("switchd", "switch that finds paths without a controller"),
}
"""The crate of each native program, and what the program is."""
COMPLETION = {
    "bash": "bash-completion/completions/pathloom",
    "zsh": "zsh/site-functions/_pathloom",
    "fish": "fish/vendor_completions.d/pathloom.fish",
}
VARIABLES = {
    "PATHLOOM_URL": "Address of the API of a running controller.",
    "PATHLOOM_TOKEN": "Token for this API.",
    "PATHLOOM_PATHS": "Address of the controller's service for paths, as --controller.",
    "PATHLOOM_TRACEBACK": "If it is set, an error inside Pathloom is shown with its traceback.",
    "NO_COLOR": "If it is set, help has no bold text.",
}
EXITS = {"0": "Success.", "1": "An error.", "2": "Bad input.", "130": "Ended by Ctrl-C.", "143": "Ended by SIGTERM."}


def files() -> dict[str, str]:
    """The content of each file by its path below `share`."""
    made = {"man/man1/pathloom.1": python_page()}
    for name, (crate, about) in NATIVE.items():
        usage = usage_of(crate)
        made[f"man/man1/{name}.1"] = native_page(name, about, usage)
        made[f"bash-completion/completions/{name}"] = f"complete -o default -W '{' '.join(words_of(usage))}' {name}\n"
    for shell, path in COMPLETION.items():
        made[path] = completion_of(shell)
    return made


def completion_of(shell: str) -> str:
    """The script that lets a shell ask `pathloom` for completions."""
    variable, name = "_PATHLOOM_COMPLETE", "pathloom"
    script = shells.get_completion_script(prog_name=name, complete_var=variable, shell=shell).strip()
    if shell == "zsh":
        # A shell that loads the file on the first completion must complete at once.
        call = 'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _pathloom_completion "$@"; else \\g<0>; fi'
        script = re.sub(r"^compdef .*$", call, script, flags=re.MULTILINE)
    return f"{script}\n"


def usage_of(crate: str) -> list[tuple[str, str]]:
    """The forms of a native program and what each does, from `USAGE` of its source."""
    source = (ROOT / f"crates/{crate}/src/main.rs").read_text(encoding="utf-8")
    found = re.search(r'const USAGE: &str = "\\\n(.*?)";', source, re.DOTALL)
    if found is None:
        raise ValueError(f"crates/{crate}/src/main.rs: expected `const USAGE`")
    forms: list[tuple[str, str]] = []
    for line in found[1].splitlines():
        form = re.match(r"(?:usage:| {6}) (pathloom-\S+ .*?)(?: {2,}(.*)| (replay LOG.*)| (print from.*))?$", line)
        if form is not None:
            forms.append((form[1].strip(), form[2] or form[3] or form[4] or ""))
        else:
            known, said = forms[-1]
            forms[-1] = known, f"{said} {line.strip()}".strip()
    return forms


def words_of(usage: Sequence[tuple[str, str]]) -> list[str]:
    """The words that may follow the name of a native program."""
    return [form.split()[1] for form, _ in usage]


def roff(text: str) -> str:
    r"""A text for a manual page.

    >>> print(roff("--out 'a'"))
    \-\-out 'a'
    >>> print(roff(".x"))
    \&.x
    """
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def heading(name: str, about: str) -> list[str]:
    """The first lines of a manual page."""
    version = f"Pathloom {_core.__version__}"
    return [f'.TH {name.upper()} 1 "" "{version}" "{version}"', ".SH NAME", f"{roff(name)} \\- {roff(about)}"]


def native_page(name: str, about: str, usage: Sequence[tuple[str, str]]) -> str:
    """The manual page of a native program."""
    lines = [*heading(name, about), ".SH SYNOPSIS"]
    for form, said in usage:
        lines += [".TP", f".B {roff(form)}", roff(said or "Print the version.")]
    short = name.removeprefix("pathloom-")
    lines += [".SH FILES", ".TP", f".I /etc/pathloom/{short}.toml", "Configuration of the service."]
    lines += [".SH EXIT STATUS", "0, or 2 on bad input."]
    others = ", ".join(f".BR {roff(one)} (1)" for one in ("pathloom", *NATIVE) if one != name).split(", ")
    return "\n".join([*lines, ".SH SEE ALSO", *others]) + "\n"


def python_page() -> str:
    """The manual page of `pathloom`, with all its commands."""
    root: Any = typer.main.get_command(application())
    asked: Any = typer.main.get_command(remote.app)
    about = (root.help or "").split(", and")[0].rstrip(".")
    lines = [
        *heading("pathloom", about[0].lower() + about[1:]),
        ".SH SYNOPSIS",
        r".B pathloom",
        r".I COMMAND [OPTIONS]",
    ]
    lines += [".SH DESCRIPTION", roff(root.help), ".SH OPTIONS", *_options(root)]
    for title, group, words in (
        ("COMMANDS", root, "pathloom"),
        ("COMMANDS FOR A RUNNING CONTROLLER", asked, "pathloom controller"),
    ):
        lines.append(f".SH {title}")
        for path, command in commands_of(group, words):
            lines += _command(command, path)
    for title, rows in (("EXIT STATUS", EXITS), ("ENVIRONMENT", VARIABLES)):
        lines.append(f".SH {title}")
        for word, said in rows.items():
            lines += [".TP", f".B {roff(word)}", roff(said)]
    return "\n".join([*lines, ".SH SEE ALSO", *(f".BR {roff(name)} (1)" for name in NATIVE)]) + "\n"


def _command(command: Any, path: str) -> Iterator[str]:
    """The part of a command: what it does, its arguments and options, and its examples."""
    about, examples = parts_of_help(command.help or "")
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    names = " ".join(argument.metavar or argument.name.upper() for argument in arguments)
    yield from (f".SS {roff(f'{path} {names}')}", *(f".P\n{roff(part)}" for part in about.split("\n\n")))
    for argument in arguments:
        yield from (".TP", f".I {roff(argument.metavar or argument.name.upper())}", roff(argument.help or ""))
    yield from _options(command)
    if examples:
        yield from (".P", "Example:" if len(examples) == 1 else "Examples:", ".RS 4", ".nf")
        yield from map(roff, examples)
        yield from (".fi", ".RE")


def _options(command: Any) -> Iterator[str]:
    for option in command.params:
        if option.param_type_name != "option" or option.hidden:
            continue
        yield from (
            ".TP",
            f".B {roff(', '.join(spellings(option)))}",
            "\n.br\n".join(map(roff, (option.help or "").split("\n"))),
        )


if __name__ == "__main__":
    (folder,) = map(Path, sys.argv[1:])
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
