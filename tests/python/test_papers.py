"""docs/papers.md names only files and tests that exist, and says of each deviation what it changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
PAPERS = {
    section.partition("\n")[0]: [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    for section in TEXT.split("\n## ")[1:]
}
NAMED = sorted(set(re.findall(r"`((?:crates|python|tests|docs)/[^`\s]+)`", TEXT)))


@pytest.mark.parametrize("named", NAMED)
def test_files_and_tests_exist(named: str) -> None:
    path, _, test = named.partition("::")
    file = ROOT / path
    assert file.is_file(), f"docs/papers.md: `{named}`: there is no such file; name the one that has the mechanism now"
    if test:
        found = re.search(rf"(?:fn|def) {re.escape(test)}\b", file.read_text(encoding="utf-8"))
        assert found, f"docs/papers.md: `{named}`: the file has no such test; name one that checks the mechanism"


@pytest.mark.parametrize("paper", PAPERS)
def test_each_mechanism_has_a_file_and_a_test_and_each_deviation_a_change(paper: str) -> None:
    rows = PAPERS[paper]
    heads = [place for place, row in enumerate(rows) if set("".join(row)) <= set("-: ")]
    assert [rows[place - 1] for place in heads] == [
        ["mechanism", "paper", "file", "test"],
        ["the paper", "Pathloom", "why", "what it changes"],
    ]
    mechanisms, deviations = rows[2 : heads[1] - 1], rows[heads[1] + 1 :]
    assert len(mechanisms) >= 9
    for mechanism, where, file, test in mechanisms:
        assert mechanism and where
        assert re.fullmatch(r"`[^`:]+`", file), f"{mechanism}: the file"
        assert re.fullmatch(r"`[^`]+::\w+`", test), f"{mechanism}: the test"
    for row in deviations:
        assert len(row) == 4 and row[0] and row[1] and row[3], row


def test_there_are_five_papers() -> None:
    assert list(PAPERS) == ["OFPT", "LESSOR", "MPTCP-aware SDN", "Parallel TCP streams", "TCP-Path and TFE"]
