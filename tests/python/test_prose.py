"""The check of the documentation's prose."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pathloom.reproduction.library import figures

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/site"))

import prose  # noqa: E402

RULES = prose.Rules.read()
LONG = "This sentence " + "goes on and on " * 8 + "."


def found(text: str) -> list[str]:
    return [message for _, message in prose.findings(text, RULES, RULES.common | {"TCP"})]


def test_a_long_sentence_is_found_anywhere() -> None:
    for text in (LONG, f"- {LONG}", f"| a | {LONG} |", f"# {LONG}", f"Short.\n{LONG}", f"*Why*: short. {LONG}"):
        (message,) = found(text)
        assert "has 34 words" in message
    # Consecutive lines form one sentence.
    assert len(found("This sentence goes on\n" + "and on and on and\n" * 8)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Word " + "word " * 28 + "thirty.",
        f"```\n{LONG}\n```",
        f"`{LONG}`",
        "One sentence of ten words ends here, right at this stop. " * 4,
        "A `path` ends here, and the next one begins with code. `code` " + "goes on " * 10,
        "See Fig. 4, e.g. the one with 0.5 of the load, and no other one.",
    ],
)
def test_short_sentences_and_code_are_accepted(text: str) -> None:
    assert [message for message in found(text) if "words" in message] == []


def test_an_abbreviation_must_be_explained() -> None:
    assert found("TCP and HTTP are known.") == []
    (message,) = found("An XYZ is not.")
    assert "«XYZ» is not explained" in message and "docs/glossary.md" in message
    assert prose.terms("| word | meaning |\n| ABC, DEFs | two |\n| other | not XYZ |") == {"ABC", "DEF"}


def test_words_to_avoid_are_found_with_a_replacement() -> None:
    (message,) = found("In order to send, wait.")
    assert message == "«in order to»: write to"
    assert found("The border to cross.") == []


def test_cells_of_notebooks_are_read(tmp_path: Path) -> None:
    cells = [{"cell_type": "markdown", "source": ["Send ", "it."]}, {"cell_type": "code", "source": ["CODE"]}]
    file = tmp_path / "one.ipynb"
    file.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert prose.read(file) == "Send it."


def test_the_documentation_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main() == 0, capsys.readouterr().err


def test_the_page_of_published_figures_is_checked_as_well() -> None:
    assert not any("reproduction" in pattern for pattern in RULES.made)
    pages = {file for pattern in RULES.files for file in ROOT.glob(pattern)}
    assert ROOT / "docs/reproduction/README.md" in pages


def test_the_texts_of_published_figures_pass_the_check() -> None:
    """These texts reach a page of the documentation only when somebody runs the figure."""
    known = RULES.common | prose.terms(prose.GLOSSARY.read_text(encoding="utf-8"))
    texts = [
        text
        for figure in figures("all")
        for text in (*figure.notes, *(row.cause for row in figure.rows if row.cause is not None))
    ]
    assert len(texts) > 100
    assert [message for text in texts for _, message in prose.findings(f"{text}.", RULES, known)] == []
