"""Reference pages that are made from the code: commands and keys of options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from pathloom import _core
from pathloom.cli import remote
from pathloom.cli.app import application
from pathloom.cli.help import commands_of, parts_of_help, spellings
from pathloom.experiments.settings.model import LAB_KEYS

ROOT = Path(__file__).resolve().parents[2]
CONTROL = ROOT / "crates/sim/src/settings.rs"

UNITS = {"nanos": "ns", "micros": "us", "millis": "ms", "secs": "s"}


def cell(text: str) -> str:
    """Returns a text for a cell of a table in Markdown."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def lines_cell(text: str) -> str:
    """Returns a text with line breaks for a cell of a table in Markdown."""
    return "<br>".join(cell(line) for line in text.split("\n"))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def commands_page() -> str:
    """Returns the page of all commands, with the arguments and options of `--help`."""
    root: Any = typer.main.get_command(application())
    asked: Any = typer.main.get_command(remote.app)
    parts = [
        "# Commands\n\nThis page is made from the commands themselves. `--help` shows the same for each of them. "
        "Exit codes: 0 success, 1 an error, 2 bad input, 130 after Ctrl-C, 143 after SIGTERM.\n"
    ]
    parts += [_command(command, path) for path, command in commands_of(root, "pathloom")]
    parts.append(
        "## Commands for a running controller\n\nThese commands ask a running controller through its API. Give its "
        "address by `--url`, and a token by `--token-file`.\n"
    )
    parts += [_command(command, path) for path, command in commands_of(asked, "pathloom controller")]
    return "\n".join(parts)


def _command(command: Any, path: str) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join([path, *(argument.metavar or argument.name.upper() for argument in arguments)])
    about, examples = parts_of_help(command.help or "")
    lines = [f"{usage}{' [OPTIONS]' if options else ''}"]
    if examples:
        lines += [f"\n# {'Example' if len(examples) == 1 else 'Examples'}", *examples]
    text = f"### {path}\n\n{about.strip()}\n\n```shell\n" + "\n".join(lines) + "\n```\n"
    rows = [[f"`{argument.metavar or argument.name.upper()}`", cell(argument.help or "")] for argument in arguments]
    rows += [[_option(option), lines_cell(option.help or "")] for option in options if not option.hidden]
    return text + ("\n" + table(["option", "what it does"], rows) if rows else "")


def _option(option: Any) -> str:
    return ", ".join(f"`{spelt}`" for spelt in spellings(option))


def keys_page() -> str:
    """Returns the page of all keys of `--scheme`, `--transport`, `--control`, `--lab`, `--fabric` and `--traffic`."""
    parts = [
        "# Keys of specifications\n\nThis page is made from the code. A specification has the form "
        "`name:key=value,key=value`. Rates, sizes and times have units: `10Mbps`, `12KB`, `1us`. "
        "An error names the nearest valid word.\n"
    ]
    parts.append("## `--fabric`\n")
    rows = [[f"`{one['example']}`", cell(one["about"])] for one in _core.fabrics()]
    parts.append(table(["fabric, with its defaults", "what it is"], rows))
    parts.append(f"Every fabric takes: {cell(_core.fabrics()[0]['common_keys'])}\n")
    parts.append("## `--traffic`\n")
    for one in _core.traffics():
        rows = [[f"`{key['name']}`", cell(key["about"])] for key in one["keys"]]
        parts.append(f"### Traffic {one['name']}\n\n{cell(one['about'])}.\n")
        parts.append(table(["key", "what it sets (default)"], rows))
    parts.append("## `--schemes`\n")
    for one in _core.schemes():
        parts.append(f"### Scheme {one['name']}\n\n{cell(one['about'])}. Published in: {cell(one['paper'])}.\n")
        rows = [[f"`{key['name']}`", f"`{key['default']}`", cell(key["about"])] for key in one["keys"]]
        parts.append(table(["key", "default", "what it does"], rows) if rows else "It takes no keys.\n")
    parts.append("## `--transport`\n")
    for one in _core.transports():
        parts.append(f"### Transport {one['name']}\n\n{cell(one['about'])}. Published in: {cell(one['source'])}.\n")
        rows = [
            [f"`{key['name']}`", f"`{key['default']}`", cell(key["about"]), cell(key["source"])] for key in one["keys"]
        ]
        parts.append(table(["key", "default", "what it sets", "source"], rows))
    parts.append("## `--control`\n\nThe control channel, the controller and the switches of the simulator.\n")
    parts.append(table(["key", "default", "what it sets"], control_rows(CONTROL.read_text(encoding="utf-8"))))
    parts.append("## `--lab`\n\nFor runs in the [lab](../lab.md) only.\n")
    rows = [[f"`{name}`", f"`{default}`", cell(about)] for name, (default, about) in LAB_KEYS.items()]
    parts.append(table(["key", "default", "what it sets"], rows))
    return "\n".join(parts)


def control_rows(source: str) -> list[list[str]]:
    """Returns the keys of `--control`, from the Rust source that reads them: its fields with comments and defaults.

    Raises `ValueError` if a key has no field, so that a change of the source cannot leave the page incomplete.
    """
    fields = re.search(r"pub struct ControlSettings \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    defaults = re.search(r"fn default\(\).*?\{(.*?)^    \}", source, re.MULTILINE | re.DOTALL)
    reader = re.search(r"pub fn parse\(text.*?^    \}", source, re.MULTILINE | re.DOTALL)
    if fields is None or defaults is None or reader is None:
        raise ValueError(f"{CONTROL}: found no ControlSettings with its default() and parse()")
    about = {
        name: " ".join(re.findall(r"/// ?(.*)", comment))
        for comment, name in re.findall(r"((?:^    ///.*\n)+)    pub (\w+):", fields.group(1), re.MULTILINE)
    }
    default = dict(re.findall(r"(\w+): ([^,\n]+),", defaults.group(1)))
    keys = {key: field for field, key in re.findall(r"(\w+)(?::| =) spec\.\w+\(\"(\w+)\"", reader.group())}
    keys |= dict.fromkeys(re.findall(r"spec\.count\(\"(tcam|rules)\"", source), "rule_limit")
    missing = [key for key, field in keys.items() if field not in about or field not in default]
    if missing or not keys:
        raise ValueError(f"{CONTROL}: no comment or default for {missing or 'any key'}")
    return [[f"`{key}`", f"`{_default(default[field])}`", cell(about[field])] for key, field in keys.items()]


def _default(value: str) -> str:
    """Returns a default of the Rust source as a user writes it: `Nanos::from_micros(500)` is 500us.

    >>> _default("Nanos::from_micros(500)"), _default("Enforcement::Host"), _default("100_000"), _default("None")
    ('500us', 'host', '100000', 'none')
    """
    time = re.fullmatch(r"Nanos::from_(\w+)\((\d+)\)", value)
    return f"{time[2]}{UNITS[time[1]]}" if time else value.rpartition("::")[2].lower().replace("_", "")
