"""The first ten minutes of operators and of data movers, as their pages say them, in labs with names of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import PATHLOOM, PATIENCE_S, call, left_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
LAB_COMMANDS = ("up", "exec", "status", "down")


@pytest.fixture
def follow(name: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs a line of a page, and returns what it printed. The variables that `lab up` prints are set."""
    environment = dict(os.environ)

    def run(line: str) -> str:
        words = shlex.split(line, comments=True)
        if words[1] == "lab":
            assert words[2] in LAB_COMMANDS, line
            words[3:3] = ["--name", name]
        command = [*PATHLOOM, *words[1:]]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S
        )
        assert done.returncode == 0, (line, done.stderr)
        for exported in re.findall(r"^ +export (.*)$", done.stdout, re.MULTILINE):
            text = subprocess.run(["sh", "-c", f"export {exported}; env"], capture_output=True, text=True, check=True)
            environment.update(re.findall(r"^(PATHLOOM_\w+)=(.*)$", text.stdout, re.MULTILINE))
        return done.stdout + done.stderr

    yield run
    call("down", "--name", name)


def commands_of(page: str, folder: Path) -> list[str]:
    """The commands for a lab in the first ten minutes of a page, whose .csv file is written."""
    first = (DOCS / page).read_text(encoding="utf-8").split("## The first ten minutes")[1].split("\n## ")[0]
    for content in re.findall(r"```csv\n(.*?)```", first, re.DOTALL):
        (folder / "mine.csv").write_text(content, encoding="utf-8")
    lines = re.findall(r"^(?:sudo )?(pathloom .*)$", first, re.MULTILINE)
    return lines[next(number for number, line in enumerate(lines) if line.startswith("pathloom lab up ")) :]


def test_an_operator_takes_a_spine_out_of_service(follow: Callable[[str], str], name: str, tmp_path: Path) -> None:
    said = {line: follow(line) for line in commands_of("operators.md", tmp_path)}
    assert left_of(name) == []
    drained = next(line for line in said if line.startswith("pathloom controller drain spine0"))
    assert "spine0: out of service" in said[drained] or "spine0: draining" in said[drained], said[drained]
    assert "4 of 4 connected" in said["pathloom controller status"]


def test_streams_of_a_data_mover_take_paths(follow: Callable[[str], str], name: str, tmp_path: Path) -> None:
    said = {line: follow(line) for line in commands_of("streams.md", tmp_path)}
    assert left_of(name) == []
    (given,) = [text for line, text in said.items() if "with-paths" in line]
    assert "5 connections had a path of their own, 0 had none" in given
