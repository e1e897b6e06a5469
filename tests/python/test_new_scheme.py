"""Follows docs/new-scheme.md exactly, in a copy of the sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/new-scheme.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMING = re.compile(r"`(mod \w+;)` goes into `(\S+)`, `(crate::\w+::ENTRY,)` into the list `(\w+)` of\s+`(\S+)`")


def follow(copy: Path) -> list[Path]:
    """Carries out the steps of the page. Returns the files that it makes."""
    made = []
    for name, content in BLOCK.findall(PAGE):
        file = copy / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        made.append(file)
    found = NAMING.search(PAGE)
    assert found
    module, library, entry, entries, registry = found.groups()
    insert(copy / library, "pub mod allocation;\n", f"{module}\n")
    insert(copy / registry, f"const {entries}: &[Entry] = &[\n", f"    {entry}\n")
    return made


def insert(file: Path, after: str, line: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(after) == 1, (file, after)
    file.write_text(text.replace(after, after + line), encoding="utf-8")


@pytest.mark.long
def test_a_scheme_that_is_added_as_the_page_says_passes_all_tests(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        if name.startswith(("crates/", "tests/conformance/", "Cargo.", "rustfmt", "fuzz/")) and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    made = follow(copy)

    def cargo(*words: str, **environment: str) -> None:
        # Compiled files are kept for the next time.
        kept = {"CARGO_TARGET_DIR": str(ROOT / "target/new-scheme"), "CARGO_TERM_COLOR": "never"}
        done = subprocess.run(
            ["cargo", *words], cwd=copy, env={**os.environ, **kept, **environment}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    cargo("fmt", "--all", "--check")
    cargo("test", "--quiet", "--package", "pathloom-schemes", "--test", "conformance", PATHLOOM_BLESS="1")
    cargo("clippy", "--quiet", "--package", "pathloom-schemes", "--all-targets", "--", "--deny", "warnings")
    cargo("test", "--quiet", "--package", "pathloom-schemes")
    cargo("test", "--quiet", "--package", "pathloom-sim", "--test", "bad_input", "--test", "runs")
    # The case agrees with the page: a route is requested at once, after 5 s and after 10 s.
    (case,) = (file for file in made if file.suffix == ".jsonl")
    lines = [json.loads(line) for line in case.read_text(encoding="utf-8").splitlines()]
    asked_s = [line["now"] / 1e9 for line in lines if any("route" in action for action in line.get("actions", []))]
    assert asked_s == pytest.approx([0.001, 5.002, 15.003])
