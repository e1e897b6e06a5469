"""Checks the prose of the documentation: short sentences, explained abbreviations, the words of the field.

`python scripts/site/prose.py` reads every page of `docs/`, the tutorials and the project files. It prints one line for
each finding: file, line, what is wrong and how to correct it. The exit code is 1 if there is one. `prose.toml` has the
limits, the words to avoid, and the pages that are made from other files.

A sentence ends at a full stop, a question or exclamation mark, or a colon before a capital. Code is left out.
Every abbreviation (two or more capitals) must be in `docs/glossary.md` or in the list of common ones in `prose.toml`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = Path(__file__).with_name("prose.toml")
GLOSSARY = ROOT / "docs/glossary.md"

FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
END = re.compile(r"(?<=[.!?:])[\"')*_]*\s+(?=[\"'(*_`]*[A-Z0-9`])")
ABBREVIATION = re.compile(r"(?<!§)\b[A-Z][A-Z0-9]+s?\b")


@dataclass(frozen=True)
class Rules:
    """The rules in `prose.toml`."""

    files: list[str]
    made: list[str]
    most_words: int
    common: frozenset[str]
    avoid: dict[str, str]

    @classmethod
    def read(cls, file: Path = RULES) -> Rules:
        """Reads the rules from a file."""
        rules = tomllib.loads(file.read_text(encoding="utf-8"))
        return cls(rules["files"], rules["made"], rules["most_words"], frozenset(rules["common"]), rules["avoid"])


@dataclass(frozen=True)
class Block:
    """A paragraph, a heading, an item of a list or a cell of a table, without its markup."""

    line: int
    text: str


def blocks(text: str) -> Iterator[Block]:
    """Yields the prose of a page in Markdown, without code, HTML and front matter."""
    gathered: list[str] = []
    start, fenced = 0, False
    lines = text.splitlines()
    first = lines.index("---", 1) + 1 if lines[:1] == ["---"] and "---" in lines[1:] else 0
    for number, line in enumerate([*lines[first:], ""], first + 1):
        if FENCE.match(line):
            fenced = not fenced
        inside = fenced or FENCE.match(line)
        lone = line.startswith(("#", "|"))
        if gathered and (inside or lone or not line.strip() or ITEM.match(line)):
            yield Block(start, plain(" ".join(gathered)))
            gathered = []
        if inside or not line.strip() or line.startswith(("<", "    ", ":::")):
            continue
        if lone:
            yield from (Block(number, plain(cell)) for cell in line.strip("#| ").split(" | ") if cell.strip("-: "))
            continue
        start = start if gathered else number
        gathered.append(ITEM.sub("", line).strip())


def plain(text: str) -> str:
    """Returns text without code, targets of links, addresses and emphasis. Code becomes one word."""
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)(\{[^}]*\})?", r"\1", text)
    text = re.sub(r"<?https?://\S+", "Address", text)
    return re.sub(r"<[^>]+>|\*\*|(?<!\w)[*_]|[*_](?!\w)", "", text)


def sentences(text: str) -> list[str]:
    """Splits a block into sentences. A full stop in a number or an abbreviation such as «e.g.» does not end one."""
    text = re.sub(r"\b(e\.g|i\.e|Fig|vs|et al|cf)\.", r"\1", text)
    return [part.strip() for part in END.split(text) if part.strip()]


def words(sentence: str) -> int:
    """Returns how many words a sentence has; numbers count, single signs do not."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def findings(text: str, rules: Rules, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yields the errors of a page: line and message."""
    for block in blocks(text):
        for sentence in sentences(block.text):
            if (count := words(sentence)) > rules.most_words:
                opening = " ".join(sentence.split()[:8])
                yield block.line, f"«{opening} …» has {count} words; split it, {rules.most_words} are allowed"
        for short in dict.fromkeys(ABBREVIATION.findall(block.text)):
            if not {short, short.removesuffix("s")} & known:
                yield block.line, f"«{short}» is not explained; add it to docs/glossary.md, or write it out"
        for wrong, right in rules.avoid.items():
            if re.search(rf"\b{wrong}\b", block.text, re.IGNORECASE):
                yield block.line, f"«{wrong}»: write {right}"


def terms(glossary: str) -> frozenset[str]:
    """Returns the abbreviations that the first columns of the glossary's tables explain."""
    rows = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
    return frozenset(word.removesuffix("s") for row in rows for word in ABBREVIATION.findall(row))


def read(file: Path) -> str:
    """Returns the Markdown of a page, or of the cells of a notebook."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def main() -> int:
    """Prints all findings; returns 1 if there are any."""
    rules = Rules.read()
    known = rules.common | terms(GLOSSARY.read_text(encoding="utf-8"))
    made = {file for pattern in rules.made for file in ROOT.glob(pattern)}
    pages = sorted({file for pattern in rules.files for file in ROOT.glob(pattern)} - made)
    count = 0
    for page in pages:
        for line, message in findings(read(page), rules, known):
            print(f"{page.relative_to(ROOT)}:{line}: {message}", file=sys.stderr)
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
