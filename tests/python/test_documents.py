"""Statements of README.md, of the first pages of the site, and of the Makefile."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import pathloom
from conftest import Cli
from pathloom import scheme
from pathloom.cli import remote
from pathloom.native import PROGRAM
from pathloom.scheme import View

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/python-schemes.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs/guides/training.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
COMMANDS = [line.partition(" #")[0] for line in TOUR.splitlines() if line.startswith("pathloom ")]
QUICKSTART = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
COMMANDS += [line for line in QUICKSTART.splitlines() if line.startswith("pathloom ")]
COMMANDS += [line.removeprefix("$ ") for line in GUIDE.splitlines() if line.startswith("$ pathloom ")]

LIVE = [command for command in COMMANDS if command.startswith("pathloom controller ")]
"""Commands for a controller; most of them need a running one."""

UNNAMED = {"Action", "Flow", "Link", "Node"}
"""Names that the guide does not need."""


def test_command_output_in_the_readme_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/readme.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def inputs_of(command: str) -> list[str]:
    """The commands before this one that write what it reads, in their order."""
    words = shlex.split(command, comments=True)
    for earlier in COMMANDS[: COMMANDS.index(command)]:
        out = re.search(r"--out (\S+)", earlier)
        if out is not None and out[1] in words and f"--out {out[1]}" not in command:
            return [*inputs_of(earlier), earlier]
    return []


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in LIVE])
def test_commands_of_the_tour_work(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for earlier in inputs_of(command):
        assert cli(*shlex.split(earlier)[1:]).code == 0, earlier
    outcome = cli(*shlex.split(command)[1:])
    assert outcome.code == 0, outcome.err
    assert outcome.out


def test_the_tour_begins_with_a_clear_difference(cli: Cli) -> None:
    """The schemes differ clearly, and the output has no note."""
    out = cli(*shlex.split(COMMANDS[0])[1:]).out
    assert re.search(r"^mean throughput .* \*$", out, re.MULTILINE), out
    assert "Note:" not in out and "not clearly different" not in out


def test_commands_for_a_controller_exist() -> None:
    # A command of the native program replaces the Python process, so it needs a process of its own here.
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "pathloom", "controller", *arguments]
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    usage = run("--help").stdout
    for command in LIVE:
        word, *rest = shlex.split(command)[2:]
        if word == "check":
            done = run(word, *rest)
        elif word in remote.COMMANDS:
            done = run(word, "--help")
        else:
            assert f"{PROGRAM} {word}" in usage, command
            continue
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.parametrize("page", [README, QUICKSTART], ids=["README", "quickstart"])
def test_the_python_of_the_first_pages_works(tmp_path: Path, page: str) -> None:
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    done = subprocess.run(
        [sys.executable, "-c", code.group(1)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "size_class" in done.stdout
    assert ("results/mine" in code.group(1)) == (tmp_path / "results/mine/report.html").is_file()


def test_the_guide_for_training_engineers_finds_the_straggler(cli: Cli, tmp_path: Path) -> None:
    command = re.search(r"^(pathloom compare .*)$", TRAINING, re.MULTILINE)
    code = re.search(r"```python\n(.*?)```", TRAINING, re.DOTALL)
    assert command is not None and code is not None
    done = cli(*shlex.split(command[1])[1:])
    assert done.code == 0, done.err
    assert re.search(r"^completion ", done.out, re.MULTILINE), done.out
    said = subprocess.run([sys.executable, "-c", code[1]], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = re.findall(r"│ (\w+) +┆ (h\d+) +┆ ([\d.]+)", said.stdout)
    assert [(scheme, rank) for scheme, rank, _ in found[::2]] == [("ecmp", "h5"), ("rps", "h5")], said.stdout
    first, second, *_ = times = [float(time) for *_, time in found]
    assert first > 4 * second and times[2] > 4 * times[3]


@pytest.mark.parametrize("page", ["guides/researchers.md", "operators.md"])
def test_the_first_ten_minutes_work(cli: Cli, tmp_path: Path, page: str) -> None:
    first = (ROOT / "docs" / page).read_text(encoding="utf-8").split("## The first ten minutes")[1].split("\n## ")[0]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for content in re.findall(r"```csv\n(.*?)```", first, re.DOTALL):
        (tmp_path / "mine.csv").write_text(content, encoding="utf-8")
    # tests/lab/test_first_minutes.py follows the part that needs a lab.
    commands = re.findall(r"^(pathloom .*)$", first.split("sudo pathloom lab up")[0], re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        done = cli(*shlex.split(command)[1:])
        assert done.code == 0, done.err
        assert done.out
    assert "equal, all" in done.out or "drain:spine0" in done.out
    assert ("--plots pdf" in first) == (tmp_path / "results/mine/throughput-cdf.pdf").is_file()


def test_the_doors_of_the_readme_are_those_of_the_site() -> None:
    doors = re.findall(r"\]\(docs/([^)]+)\) \|$", README.split("## Four doors")[1].split("\n\n")[1], re.MULTILINE)
    assert len(doors) == 4
    start = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert all(f"]({door})" in start for door in doors)
    assert len(README.splitlines()) <= 120


def test_the_python_of_the_guide_works(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert code is not None
    file = tmp_path / "guide.py"
    file.write_text(code.group(1), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "LastPath" in done.stdout


def test_the_guide_names_every_event_and_action_and_all_of_the_view() -> None:
    words = [name for name in scheme.__all__ if isinstance(getattr(scheme, name), type)]
    for name in {*words, *(name for name in dir(View) if not name.startswith("_"))} - UNNAMED:
        assert re.search(rf"\b{name}\b", GUIDE), name


def test_one_table_has_everything_that_is_not_modelled() -> None:
    docs = ROOT / "docs"
    table = (docs / "not-modelled.md").read_text(encoding="utf-8")
    assert "not-modelled.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    lists = [
        f"{page.name}#{heading.lower().replace(' ', '-')}"
        for page in docs.glob("*.md")
        for heading in re.findall(
            r"^## (What is (?:not modelled|left out))$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert len(lists) >= 3
    assert [one for one in lists if f"({one})" not in table] == []


def test_every_release_says_how_to_migrate_to_it() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.split(r"^## ", changes, flags=re.MULTILINE)[1:]
    assert [release.split()[0] for release in releases if "### Migrate from " not in release] == ["0.1.0"]


def test_linked_files_of_documents_exist() -> None:
    for folder, text in (
        (ROOT, README),
        (ROOT / "docs", GUIDE),
        (ROOT / "docs", TOUR),
        (ROOT / "docs/guides", TRAINING),
    ):
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (folder / target).exists(), target


def test_the_map_of_the_code_is_read_in_ten_minutes() -> None:
    size = len((ROOT / "ARCHITECTURE.md").read_bytes())
    assert size <= 14 * 1024, (
        f"ARCHITECTURE.md has {size} bytes: move details to docs/inside-controller.md or another page"
    )


def test_the_first_commands_are_demo_and_test() -> None:
    first = re.search(r"```\n(.*?)```", README, re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first.group(1).splitlines()] == ["make demo", "make test"]


def test_every_make_target_has_a_description() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    silent = {"lint-rust", "lint-python", "test-rust", "test-python"}
    for target in set(phony.group(1).split()) - silent:
        assert re.search(rf"^{target}:.*## \w", makefile, re.MULTILINE), target
    for target in ("demo", "build", "test", "test-long", "lint", "bench", "wheel", "help"):
        assert target in phony.group(1).split()


def test_ci_runs_every_test() -> None:
    assert "make test" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_the_workflow_runs_every_check() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    named = {word for one in workflow["jobs"]["test"]["strategy"]["matrix"]["include"] for word in one["run"].split()}
    assert {"lint", "docs", "test-rust", "test-python", "lab-test", "test-page"} <= named
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    assert named - {"make"} <= targets


def test_version_license_and_address_of_the_project_are_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]
    assert citation["version"] == workspace["version"] == pathloom.__version__
    assert citation["license"] == workspace["license"] == project["license"] == "Apache-2.0"
    address = project["urls"]["Repository"]
    assert citation["repository-code"] == address
    for name in (
        "mkdocs.yml",
        "packaging/Containerfile",
        "packaging/debian/controller/control",
        "packaging/debian/hostd/control",
        "CHANGELOG.md",
    ):
        found = re.findall(r"https://github\.com/[\w-]+/[\w-]+", (ROOT / name).read_text(encoding="utf-8"))
        assert set(found) == {address}, name


def test_issue_templates_have_the_fields_that_github_requires() -> None:
    for file in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        template = yaml.safe_load(file.read_text(encoding="utf-8"))
        if file.stem != "config":
            assert {"name", "description", "body"} <= set(template), file
            identities = [field["id"] for field in template["body"]]
            assert len(identities) == len(set(identities))


def test_the_container_file_copies_what_exists() -> None:
    text = (ROOT / "packaging/Containerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert copied
    assert all((ROOT / name).exists() for line in copied for name in line.split())
    image = re.search(r"^FROM rust:1\.(\d+)", text, re.MULTILINE)
    assert image is not None and (1, int(image[1])) >= minimum_rust()


def minimum_rust() -> tuple[int, int]:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    major, minor = manifest["workspace"]["package"]["rust-version"].split(".")
    return int(major), int(minor)


def test_one_number_says_which_rust_is_needed() -> None:
    major, minor = minimum_rust()
    for name in ("README.md", "CONTRIBUTING.md", "docs/quickstart.md"):
        said = re.findall(r"\bRust (\d+)\.(\d+)", (ROOT / name).read_text(encoding="utf-8"))
        assert said == [(str(major), str(minor))], name
    command = ["cargo", "metadata", "--format-version", "1", "--offline", "--locked"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for package in json.loads(done.stdout)["packages"]:
        needed = tuple(int(part) for part in (package["rust_version"] or "1.0").split("."))[:2]
        if package["source"] is None:
            assert needed == (major, minor), f"{package['name']}: write rust-version.workspace = true"
        else:
            assert needed <= (major, minor), f"{package['name']} {package['version']} needs Rust {needed}"


def test_tests_that_keep_promises_exist() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "testing.md").read_text(encoding="utf-8")
    table = page.partition("### Which test keeps which promise")[2]
    named = set(re.findall(r"`([^`]+)`", table.partition("| --- |")[2].partition("\n\n")[0]))
    files = [*(root / "crates").rglob("*.rs"), *(root / "tests").rglob("test_*.py")]
    tests = {name for file in files for name in re.findall(r"\b(?:fn|def) (\w+)\(", file.read_text(encoding="utf-8"))}
    missing = [name for name in named if name not in tests and not (root / name).is_file()]
    assert len(named) > 40
    assert missing == []
