"""Layout of `--help`: options in groups, whole sentences, examples that can be copied. No word is cut.

The texts are printed without markup: they have many colons and brackets, which would be taken for markup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from pathloom.experiments.settings.setting import NETWORK, OUTPUT, RUNS, WHAT

SETTINGS = WHAT
OPTIONS = "Options"

Verb = TypeVar("Verb", bound=Callable[..., Any])
LEAST_WIDTH, MOST_WIDTH = 50, 100
MOST_NAME = 18
"""Names of options that are longer than this are printed on a separate line."""
EXAMPLE = "Example: "
INDENT = "  "


class Command(TyperCommand):
    """A command whose help lists the options in the groups that `rich_help_panel` names."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the whole help."""
        _write(self, ctx, formatter, [])


class Group(TyperGroup):
    """A group of commands whose help shows the first sentence of each command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the whole help."""
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, first_sentence(one.help or "")) for name, one in known if one is not None and not one.hidden]
        _write(self, ctx, formatter, rows)


class App(typer.Typer):
    """An application whose commands and groups have this layout of the help."""

    def __init__(self, **settings: Any) -> None:
        """Accepts the arguments of `typer.Typer`."""
        super().__init__(**{"cls": Group, "rich_markup_mode": None, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Verb], Verb]:
        """Accepts the arguments of `typer.Typer.command`."""
        return super().command(name, **{"cls": Command, **settings})


def commands_of(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command of a group that is not hidden, also those of its groups, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{path} {name}")
        elif not command.hidden:
            yield f"{path} {name}", command


def spellings(option: Any) -> list[str]:
    """How an option may be written, with the name of its value."""
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return [f"{name}{value}" for name in [*option.opts, *option.secondary_opts]]


def parts_of_help(text: str) -> tuple[str, list[str]]:
    r"""Returns what a command does, and its examples: the paragraphs that begin with `Example: `.

    >>> parts_of_help("Runs it.\n\nExample: pathloom run\n--seed 2\n\nExample: pathloom run")
    ('Runs it.', ['pathloom run --seed 2', 'pathloom run'])
    """
    paragraphs = [" ".join(one.split()) for one in re.split(r"\n\s*\n", cleandoc(text)) if one.strip()]
    about = [one for one in paragraphs if not one.startswith(EXAMPLE)]
    return "\n\n".join(about), [one.removeprefix(EXAMPLE) for one in paragraphs if one.startswith(EXAMPLE)]


def first_sentence(text: str) -> str:
    """The first sentence of a text.

    >>> first_sentence("Shows v1.2 of it: all. Then more.")
    'Shows v1.2 of it: all.'
    """
    return re.split(r"(?<=\.)\s", parts_of_help(text)[0], maxsplit=1)[0]


def wrapped(text: str, width: int) -> list[str]:
    """Returns the lines of a text. A word that is wider than a line is broken only after a comma, a bar or a slash.

    >>> wrapped("see hosts=newreno|linux,pin=on there", 20)
    ['see hosts=newreno|', 'linux,pin=on there']
    """
    lines, line = [], ""
    for word in text.split():
        pieces = [word] if len(word) <= width else re.findall(r"[^,|/]*[,|/]|[^,|/]+", word)
        for place, piece in enumerate(pieces):
            joined = f"{line}{' ' if line and place == 0 else ''}{piece}"
            if line and len(joined) > width:
                lines.append(line)
                line = piece
            else:
                line = joined
    return [*lines, line] if line else lines


def lines_of(text: str, width: int) -> list[str]:
    r"""Returns the lines of a text that may have line breaks. What a long line continues on is indented.

    >>> lines_of("Keys:\na=1: one of them\nb=2", 11)
    ['Keys:', 'a=1: one of', '  them', 'b=2']
    """
    first, *others = text.split("\n")
    lines = wrapped(first, width)
    for other in others:
        beginning, *rest = wrapped(other, width) or [""]
        # The rest is wrapped again: the indentation takes width.
        lines += [beginning, *("  " + line for line in wrapped(" ".join(rest), width - 2))]
    return lines


def bounds_in_words(text: str) -> str:
    """Returns the help of an option with the bounds of a number in words.

    >>> bounds_in_words("TCP port.  [default: 0; 0<=x<=65535]"), bounds_in_words("Paths.  [x>=1]")
    ('TCP port.  [default: 0; from 0 to 65535]', 'Paths.  [1 or more]')
    """
    text = re.sub(r"\b([\d.]+)<=x<=([\d.]+)(?=[;\]])", r"from \1 to \2", text)
    return re.sub(r"\bx>=([\d.]+)(?=[;\]])", r"\1 or more", text)


def shell_lines(command: str, width: int) -> list[str]:
    r"""Returns a command in lines that a shell joins again. Lines are broken only before options.

    >>> shell_lines("pathloom run --fabric diamond --seed 2", 36)
    ['pathloom run --fabric diamond \\', '    --seed 2']
    """
    lines, line = [], ""
    for part in re.split(r" (?=--)", command):
        if line and len(line) + len(part) + 3 > width:
            lines.append(f"{line} \\")
            line = f"    {part}"
        else:
            line = f"{line} {part}".lstrip() if not line.startswith(" ") else f"{line} {part}"
    return [*lines, line]


def _write(command: Any, ctx: Any, formatter: Any, commands: Sequence[tuple[str, str]]) -> None:
    width = min(max(ctx.terminal_width or _terminal_width(), LEAST_WIDTH), MOST_WIDTH)
    # Typer writes a required argument in braces.
    pieces = " ".join(re.sub(r"^\{(.*)\}", r"\1", piece) for piece in command.collect_usage_pieces(ctx))
    pieces = pieces.replace("......", "...")  # Typer adds dots to the name of an argument with several values.
    about, examples = parts_of_help(command.help or "")
    usage = wrapped(f"Usage: {ctx.command_path} {pieces}", width - 4)
    lines = [usage[0].replace("Usage:", _bold("Usage:"), 1), *(f"    {line}" for line in usage[1:]), ""]
    for paragraph in about.split("\n\n") if about else []:
        lines += [*(INDENT + line for line in wrapped(paragraph, width - 2)), ""]
    for title, rows in _sections(command, ctx, commands):
        lines += [_bold(f"{title}:"), *_definitions(rows, width), ""]
    if examples:
        lines.append(_bold("Example:" if len(examples) == 1 else "Examples:"))
        lines += [INDENT + line for example in examples for line in shell_lines(example, width - 2)]
    formatter.write("\n".join(lines).rstrip() + "\n")


def _sections(
    command: Any, ctx: Any, commands: Sequence[tuple[str, str]]
) -> Iterable[tuple[str, list[tuple[str, str]]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        argument = param.param_type_name == "argument"
        title = "Arguments" if argument else getattr(param, "rich_help_panel", None) or OPTIONS
        # Typer prints defaults that are given as text in additional parentheses.
        text = re.sub(r"\[default: \((.*)\)\]$", r"[default: \1]", bounds_in_words(record[1]))
        # Typer adds the type in angle brackets: to each argument, and to options without a name for their value.
        value = "" if argument else " N" if re.search(r"<(int|float)", record[0]) else f" {str(param.name).upper()}"
        found.setdefault(title, []).append((re.sub(r" <[^>]+>", value, record[0]), text))
    order = ["Arguments", WHAT, RUNS, NETWORK, OUTPUT]
    ranked = sorted(found, key=lambda title: order.index(title) if title in order else len(order))
    for title in ranked:
        yield title, found[title]
    if commands:
        yield "Commands", list(commands)


def _definitions(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Returns lines with each name and its meaning beside it."""
    column = max((len(name) for name, _ in rows if len(name) <= MOST_NAME), default=MOST_NAME) + 4
    lines = []
    for name, text in rows:
        beside = lines_of(text, width - column)
        head = f"{INDENT}{name}"
        if len(name) > MOST_NAME or not beside:
            lines.append(head)
        else:
            lines.append(f"{head:{column}}{beside.pop(0)}")
        lines += [" " * column + line for line in beside]
    return lines


def _terminal_width() -> int:
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _bold(text: str) -> str:
    """Returns the text in bold. The codes are removed on output that is not a terminal."""
    return text if os.environ.get("NO_COLOR") else str(typer.style(text, bold=True))
