"""The four doors of README.md, followed from the wheel as their pages say (`make package-test`).

The two doors that need a lab are followed as root only.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from test_packages import MACHINE, ROOT, call, the_only

README = (ROOT / "README.md").read_text(encoding="utf-8")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")
LAB = "doors"
PATIENCE_S = 120.0


def door(who: str) -> str:
    """The text that the door of a reader in README.md leads to."""
    row = next(line for line in README.splitlines() if line.startswith(f"| {who} "))
    page, _, anchor = re.findall(r"\]\(([^)]+)\)", row)[-1].partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    if not anchor:
        return text
    assert anchor == "the-first-ten-minutes"
    return text.split("## The first ten minutes")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has only the wheel with its extras."""
    place = tmp_path_factory.mktemp("doors")
    call(sys.executable, "-m", "venv", place / "venv", cwd=place)
    wheel = the_only(f"pathloom-*_{MACHINE}.whl")
    call(place / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[all]", cwd=place)
    return place / "venv/bin"


def follow(programs: Path, text: str, place: Path) -> dict[str, str]:
    """Follows the commands of a page in a folder that has its .csv file. Returns what each of them printed.

    Labs get a name of their own. Variables that a command says to export are set.
    """
    for content in re.findall(r"```csv\n(.*?)```", text, re.DOTALL):
        (place / "mine.csv").write_text(content, encoding="utf-8")
    environment = {"PATH": f"{programs}:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(place)}
    said = {}
    for line in re.findall(r"^(?:sudo )?((?:pathloom|cp) .*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        if words[1] == "lab":
            words[3:3] = ["--name", LAB]
        if words[0] == "cp":
            words = ["sh", "-c", line]
        done = subprocess.run(
            words, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        said[line] = done.stdout + done.stderr
        for exported in re.findall(r"^ +export (.*)$", done.stdout, re.MULTILINE):
            found = call("sh", "-c", f"export {exported}; env", cwd=place)
            environment.update(re.findall(r"^(PATHLOOM_\w+)=(.*)$", found, re.MULTILINE))
    return said


def test_the_door_of_researchers(programs: Path, tmp_path: Path) -> None:
    said = follow(programs, door("do research"), tmp_path)
    assert "equal, all" in next(text for line, text in said.items() if "artefact check" in line)
    assert (tmp_path / "results/mine/throughput-cdf.pdf").is_file()


@ROOT_ONLY
def test_the_door_of_operators(programs: Path, tmp_path: Path) -> None:
    said = follow(programs, door("operate a fabric"), tmp_path)
    assert "drain:spine0" in next(text for line, text in said.items() if "twin ask" in line)
    assert "4 of 4 connected" in said["pathloom controller status"]


@ROOT_ONLY
def test_the_door_of_data_movers(programs: Path, tmp_path: Path) -> None:
    said = follow(programs, door("move data"), tmp_path)
    assert "5 connections had a path of their own, 0 had none" in next(
        text for line, text in said.items() if "with-paths" in line
    )


def test_the_door_of_training_engineers(programs: Path, tmp_path: Path) -> None:
    text = door("train models")
    said = follow(programs, "\n".join(re.findall(r"^pathloom compare .*$", text, re.MULTILINE)), tmp_path)
    assert len(said) == 1
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    printed = call(programs / "python", "-c", code[1], cwd=tmp_path)
    assert re.findall(r"│ (\w+) +┆ (h\d+)", printed)[0] == ("ecmp", "h5"), printed
