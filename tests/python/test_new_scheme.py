"""Follows docs/new-scheme.md exactly, in a copy of the sources."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from following import ROOT, Copy

PAGE = (ROOT / "docs/new-scheme.md").read_text(encoding="utf-8")
NAMING = re.compile(r"`(mod \w+;)` goes into `(\S+)`, `(crate::\w+::ENTRY,)` into the list `(\w+)` of\s+`(\S+)`")


def follow(copy: Copy) -> list[Path]:
    """Carries out the steps of the page. Returns the files that it makes."""
    made = copy.write_files(PAGE)
    found = NAMING.search(PAGE)
    assert found
    module, library, entry, entries, registry = found.groups()
    copy.insert(library, "mod bitmap;\n", f"{module}\n")
    copy.insert(registry, f"const {entries}: &[Entry] = &[\n", f"    {entry}\n")
    return made


@pytest.mark.long
def test_a_scheme_that_is_added_as_the_page_says_passes_all_tests(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copy")
    made = follow(copy)
    copy.cargo("fmt", "--all", "--check")
    copy.cargo("test", "--quiet", "--package", "pathloom-schemes", "--test", "all", "conformance", PATHLOOM_BLESS="1")
    copy.cargo("clippy", "--quiet", "--package", "pathloom-schemes", "--all-targets", "--", "--deny", "warnings")
    copy.cargo("test", "--quiet", "--package", "pathloom-schemes")
    copy.cargo("test", "--quiet", "--package", "pathloom-sim", "--test", "all", "--", "bad_input", "runs")
    # The case agrees with the page: a route is requested at once, after 5 s and after 10 s.
    (case,) = (file for file in made if file.suffix == ".jsonl")
    lines = [json.loads(line) for line in case.read_text(encoding="utf-8").splitlines()]
    asked_s = [line["now"] / 1e9 for line in lines if any("route" in action for action in line.get("actions", []))]
    assert asked_s == pytest.approx([0.001, 5.002, 15.003])
