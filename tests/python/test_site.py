"""The pages of the documentation site that are made from the code are complete."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from conftest import Cli
from pathloom import _core
from pathloom.experiments.settings.model import LAB_KEYS, LabSettings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/site"))

import doctests  # noqa: E402
import links  # noqa: E402
import reference  # noqa: E402

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.ipynb"))


def test_every_key_of_control_has_its_row(cli: Cli) -> None:
    words = "run --fabric diamond --traffic long-lived --scheme ecmp --duration 10ms --control"
    known = re.search(r"known: ([\w, ]+)", cli(*words.split(), "zzz=1").err)
    assert known is not None
    rows = {row[0].strip("`"): row for row in reference.control_rows(reference.CONTROL.read_text(encoding="utf-8"))}
    assert set(rows) == set(known[1].split(", "))
    assert rows["delay"][1] == "`500us`"
    # The defaults of the page are accepted, and a run without them gives the same.
    given = ",".join(f"{key}={row[1].strip('`')}" for key, row in rows.items() if row[1] != "`none`")
    given = given.replace("long=100000", "long=100KB")
    same = [cli(*words.split(), keys, "--json", "-").out for keys in (given, "delay=500us")]
    figures = [[row["throughput"] for row in json.loads(one)["schemes"]] for one in same]
    assert figures[0] == figures[1]


def test_a_key_of_control_without_a_comment_ends_the_build() -> None:
    source = reference.CONTROL.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="batch"):
        reference.control_rows(re.sub(r"(    ///.*\n)+    pub batch", "    pub batch", source))


def test_every_key_of_the_lab_is_read() -> None:
    for key, (default, _) in LAB_KEYS.items():
        value = default if " " not in default else "2"
        settings = LabSettings.parse(f"{key}={value}")
        assert key == "daemons" or settings == LabSettings()
    with pytest.raises(_core.PathloomError) as refused:
        LabSettings.parse("zzz=1")
    assert all(f"{key}=" in str(refused.value) for key in LAB_KEYS)


def test_the_page_of_keys_has_all_names_and_keys() -> None:
    page = reference.keys_page()
    for kind, entries in (
        ("Scheme", _core.schemes()),
        ("Transport", _core.transports()),
        ("Traffic", _core.traffics()),
    ):
        for entry in entries:
            section = page.partition(f"### {kind} {entry['name']}\n")[2].partition("\n### ")[0]
            assert section, entry["name"]
            assert all(f"| `{key['name']}` |" in section for key in entry["keys"]), entry["name"]


def test_the_page_of_commands_has_every_option(cli: Cli) -> None:
    page = reference.commands_page()
    for command in ("compare", "fabric draw", "lab up", "controller why"):
        section = page.partition(f"### pathloom {command}\n")[2].partition("\n### ")[0]
        options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", cli(*command.split(), "--help").out, re.MULTILINE)) - {
            "--help"
        }
        assert options, command
        assert {option for option in options if f"`{option}" not in section} == set(), command


def test_a_doctest_becomes_a_block_of_code() -> None:
    text = "Adds.\n\n>>> 1 + 1\n2\n>>> 3\n3\n\nMore."
    assert doctests.fenced(text) == "Adds.\n\n```pycon\n>>> 1 + 1\n2\n>>> 3\n3\n```\n\nMore."


@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_a_tutorial_is_kept_without_output(file: Path) -> None:
    """The build of the site executes it."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_dead_links_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a b.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(
        """<p id="here"><a href="#here">1</a> <a href="sub/">2</a> <a href="/sub/index.html#x">3</a>
        <img src="a%20b.png"> <a href="https://example.org/none">4</a> <a href="mailto:a@example.org">5</a></p>""",
        encoding="utf-8",
    )
    other = tmp_path / "sub/index.html"
    other.write_text('<h1 id="x"><a href="../index.html?q#here">6</a></h1>', encoding="utf-8")
    assert links.dead_links(tmp_path, "https://site.invalid/") == []
    other.write_text('<a href="../index.html#there">7</a>\n<a href="page.md">8</a>', encoding="utf-8")
    assert links.dead_links(tmp_path, "https://site.invalid/") == [
        "index.html:1: /sub/index.html#x: sub/index.html has no such place",
        "sub/index.html:1: ../index.html#there: index.html has no such place",
        "sub/index.html:2: page.md: there is no such file",
    ]
