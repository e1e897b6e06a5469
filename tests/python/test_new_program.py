"""Follows docs/new-program.md exactly, in a copy of the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from following import ROOT, Copy

PAGE = (ROOT / "docs/new-program.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"`(mod \w+;)` and `(pub use [\w:]+;)` go into `(\S+)`\.")
SCHEME = re.compile(r"`(mod \w+;)` goes into `(\S+)`, `(crate::\w+::ENTRY,)` into the list `(\w+)` of\s+`(\S+)`")


@pytest.mark.long
def test_a_program_that_is_added_as_the_page_says_passes_all_tests(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copy")
    assert len(copy.write_files(PAGE)) == 3
    program, scheme = PROGRAM.search(PAGE), SCHEME.search(PAGE)
    assert program and scheme
    module, exported, programs = program.groups()
    copy.insert(programs, "mod fair_share;\n", f"{module}\n")
    copy.insert(programs, "pub use arp_path::ArpPath;\n", f"{exported}\n")
    module, library, entry, entries, registry = scheme.groups()
    copy.insert(library, "mod entry;\n", f"{module}\n")
    copy.insert(registry, f"const {entries}: &[Entry] = &[\n", f"    {entry}\n")
    copy.cargo("fmt", "--all", "--check")
    packages = ("--package", "pathloom-switching", "--package", "pathloom-schemes")
    copy.cargo("clippy", "--quiet", *packages, "--all-targets", "--", "--deny", "warnings")
    copy.cargo("test", "--quiet", *packages)
