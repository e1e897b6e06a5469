"""Help of every command: groups, examples, no cut words. The shell completes names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from conftest import Cli
from pathloom.cli import remote
from pathloom.cli.app import application
from pathloom.cli.help import parts_of_help, shell_lines, wrapped

ROOT = Path(__file__).resolve().parents[2]
VERBATIM = {"pathloom controller", "pathloom bench controller"}
"""Commands that pass all arguments, also --help, to native programs."""


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")


ALL = {
    **dict(commands(typer.main.get_command(application()), "pathloom")),
    **dict(commands(typer.main.get_command(remote.app), "pathloom controller")),
}
OWN = {path: command for path, command in ALL.items() if path not in VERBATIM}


def help_of(path: str, command: Any, width: int) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    context.terminal_width = width
    return str(command.get_help(context))


@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_word_of_a_help_is_cut_and_no_line_is_too_long(path: str, width: int) -> None:
    command = OWN[path]
    text = help_of(path, command, width)
    assert not re.search(r"[a-z,;:]\.\.\.", text), text
    lines = re.sub(r"\x1b\[\d*m", "", text).splitlines()
    assert [line for line in lines if len(line) > min(width, 100) and not line.lstrip().startswith("pathloom")] == []
    # A word is broken only after a comma, a bar or a slash, so the joined lines contain every text.
    joined = re.sub(r"\s+", "", text)
    texts = [param.help or "" for param in command.params] + [parts_of_help(command.help or "")[0]]
    for said in texts:
        assert re.sub(r"\s+", "", said) in joined, said
    for word in " ".join(texts).split():
        assert word in text.split() or re.search(r"[,|/]", word), f"{word} is cut"


@pytest.mark.parametrize("path", [path for path, command in ALL.items() if not hasattr(command, "commands")])
def test_every_command_has_examples_that_it_understands(path: str) -> None:
    about, examples = parts_of_help(ALL[path].help or "")
    assert about and examples
    for example in examples:
        assert example.startswith(path + " ") or example == path
        if path in VERBATIM:
            continue
        # Parsing finds misspelt options and missing arguments; nothing is carried out.
        ALL[path].make_context(path, shlex.split(example.removeprefix(path)))


def test_examples_can_be_copied_into_a_shell(cli: Cli) -> None:
    text = cli("compare", "--help").out
    command = text[text.index("Example:") :].split("\n", 1)[1]
    assert len(command.splitlines()) > 1
    assert shlex.split(command.replace("\\\n", ""))[:2] == ["pathloom", "compare"]
    assert " ".join(shlex.split(command.replace("\\\n", ""))) == parts_of_help(ALL["pathloom compare"].help)[1][0]
    assert shell_lines("pathloom fabric list", 20) == ["pathloom fabric list"]


def test_options_are_listed_in_groups(cli: Cli) -> None:
    text = cli("compare", "--help").out
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == ["What is run", "Runs", "Faults, control and worlds", "Output", "Options", "Example"]
    groups = dict(zip(titles, re.split(r"^\S.*:$", text, flags=re.MULTILINE)[1:], strict=True))
    for title, options in {"What is run": "fabric schemes", "Runs": "seed resume", "Output": "json out plots"}.items():
        assert all(f"--{option} " in groups[title] for option in options.split())


def test_long_words_are_broken_after_separators() -> None:
    assert wrapped("a,bb,ccc,dddd", 6) == ["a,bb,", "ccc,", "dddd"]
    assert wrapped("", 6) == []


def completed(words: str, tmp_path: Path) -> list[str]:
    environment = {
        **os.environ,
        "_PATHLOOM_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    code = "from pathloom.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_shell_completes_commands_options_and_names(tmp_path: Path) -> None:
    assert completed("pathloom transp", tmp_path) == ["transport"]
    assert completed("pathloom scheme show hedera-", tmp_path) == ["hedera-sa"]
    assert completed("pathloom compare --fabric leaf", tmp_path) == ["leaf-spine"]
    assert completed("pathloom compare --schemes spt,ofp", tmp_path) == ["spt,ofpt"]
    assert "--fabric" in completed("pathloom compare --f", tmp_path)


def test_completion_can_be_installed(cli: Cli) -> None:
    text = cli("--help").out
    assert "--install-completion" in text and "--show-completion" in text


def test_make_help_shows_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)).split()
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    shown = re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE)
    assert len(phony) > 10
    assert sorted(shown) == sorted(phony)


@pytest.mark.parametrize("path", OWN)
def test_every_value_has_a_name_and_bounds_are_in_words(path: str) -> None:
    command = OWN[path]
    text = help_of(path, command, 100)
    assert not re.search(r"<=x|x>=|<\w+( range)?>|\.{4}", text), text
    for param in command.params:
        if param.param_type_name == "option" and not param.is_flag and not param.hidden and param.help:
            assert any(re.search(rf"{name} \S", text) for name in param.opts), param.opts


@pytest.mark.parametrize("path", OWN)
def test_defaults_have_one_pair_of_brackets(path: str) -> None:
    assert "default: (" not in " ".join(help_of(path, OWN[path], 100).split())
