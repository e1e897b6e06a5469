"""Follows docs/new-transport.md exactly, in a copy of the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from following import ROOT, Copy

PAGE = (ROOT / "docs/new-transport.md").read_text(encoding="utf-8")
NAMING = re.compile(r"`(mod \w+;)` goes into `(\S+)`\. The list in `(\S+)` gets.*?^```text\n(.*?)^```$", re.M | re.S)


@pytest.mark.long
def test_a_congestion_control_that_is_added_as_the_page_says_passes_all_tests(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copy")
    assert copy.write_files(PAGE)
    found = NAMING.search(PAGE)
    assert found
    module, window, laws, entry = found.groups()
    copy.insert(window, "mod newreno;\n", f"{module}\n")
    copy.insert(laws, "    NewReno => newreno::NewReno,\n", entry)
    copy.cargo("fmt", "--all", "--check")
    copy.cargo("clippy", "--quiet", "--package", "pathloom-transport", "--all-targets", "--", "--deny", "warnings")
    copy.cargo("test", "--quiet", "--package", "pathloom-transport")
