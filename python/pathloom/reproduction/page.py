"""The folder of reproduced figures: a picture and a record of each, and pages in Markdown.

There is a page for each paper, and one that lists all figures.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Literal

from pathloom import _core
from pathloom.errors import bad_input, reason
from pathloom.experiments.results.output_files import write_atomically, write_text
from pathloom.reproduction.definitions import POINTS, Figure, Row
from pathloom.reproduction.library import OWN, figures, identities, papers
from pathloom.reproduction.measure import Line, Reproduced, Value, compared, judged, point_label, with_trends
from pathloom.reproduction.pictures import picture
from pathloom.reproduction.runs import key
from pathloom.reproduction.texts import ALL, HEADINGS, NOTHING, causes, command, measured_table, rows, setup_lines

LETTERS = ascii_lowercase
"""Letters of the causes below a table."""
PAGE = "README.md"
"""Name of the page that lists all figures; code hosts show a file of this name for its folder."""
TITLE = "# Published figures, run again"
"""First line of this page."""
NOT_RUN = "this row is newer than the runs of the table"
"""Cause of a row without a value, after its figure was changed and not run again."""
QUICK = "quick"
"""Name of the subfolder with the results of `--quick`; the pages show them in an extra column."""


def check_folder(folder: Path) -> None:
    """Raises `PathloomError` if a page would replace a file of somebody else."""
    titles = {PAGE: TITLE, **{f"{paper}.md": _paper_title(paper) for paper in papers()}}
    for name, title in titles.items():
        try:
            first = (folder / name).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        except OSError:
            continue  # There is no page yet, or writing it says why it cannot be written.
        if first != title:
            raise bad_input(f"--out `{folder}`: has a {name} that is not of `pathloom reproduce`; name another folder")


def save(result: Reproduced, folder: Path) -> Path:
    """Writes the picture and the record of a figure, and updates the pages. Returns the path of the picture.

    Figures that are already in the folder stay on the pages. Raises `PathloomError` if a file cannot be written.
    """
    image = folder / f"{result.figure.id}.svg"
    try:
        image.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad_input(f"--out `{folder}`: {reason(error)}; name a folder that can be written") from None
    write_atomically(image, picture(result).write)
    write_text(folder / f"{result.figure.id}.json", json.dumps(_record(result), indent=1, allow_nan=False) + "\n")
    _write_pages(folder)
    return image


def _record(result: Reproduced) -> dict[str, Any]:
    table = measured_table(result)
    return {
        **result.as_json(),
        "source": result.figure.source,
        "version": _core.__version__,
        "command": command(result),
        "setup": setup_lines(result),
        "notes": result.notes,
        "run_notes": result.run_notes,
        "table": rows(result.published),
        "causes": causes(result.published),
        "points": {"headings": table[0], "rows": table[1]} if table else None,
    }


def renew(folder: Path) -> list[str]:
    """Renews the records and the pages of a folder after texts or rows of figures have changed; nothing is run.

    Measured values are those of the records. A row that is new gets its value from the points of the picture, or none
    if they do not hold it. Returns the names of all figures whose record has changed.
    """
    changed = []
    for place in (folder, folder / QUICK):
        for record in _records(place):
            text = json.dumps(_renewed(record), indent=1, allow_nan=False) + "\n"
            if json.loads(text) != record:
                write_text(place / f"{record['id']}.json", text)
                changed.append(record["id"])
    _write_pages(folder)
    return sorted(set(changed))


def _renewed(record: dict[str, Any]) -> dict[str, Any]:
    """A record with the texts and rows of the present file of its figure. Points and the set-up stay as they are."""
    (figure,) = figures(record["id"])
    before = {row["label"]: row for row in record["rows"] if row["cause"] != NOT_RUN}
    labels = {row.label for row in figure.rows}
    points = [row for row in record["rows"][len(record["table"]) :] if row["label"] not in labels]
    lines = []
    for row in figure.rows:
        known = before.get(row.label)
        value = _recorded(known) if known is not None else Value(None, None)
        if value.ci95 is None:
            of_points = _from_points(figure, row, before)
            value = of_points if known is None or of_points.ci95 is not None else value
        line = judged(figure, row, value)
        if value.mean is None:
            line = replace(line, cause=NOT_RUN if known is None and row.metric is not None else row.cause)
        lines.append(line)
    others = [Line(row["label"], row["unit"], None, "exactly", _recorded(row), None) for row in points]
    lines = with_trends(figure, [*lines, *others])
    published = lines[: len(figure.rows)]
    return {
        **record,
        "title": figure.title,
        "source": figure.source,
        "notes": [*figure.notes, *record["run_notes"]],
        "rows": [*(line.as_json() for line in published), *(line.as_json() for line in others)],
        "table": rows(published),
        "causes": [list(cause) for cause in causes(published)],
    }


def _recorded(row: dict[str, Any]) -> Value:
    return Value(row["measured"], row["ci95"], row["measured_bound"])


def _from_points(figure: Figure, row: Row, before: dict[str, dict[str, Any]]) -> Value:
    """The value of a new row from the points of the picture: that of a point, or of two points compared.

    Its interval is that of independent runs, so it is wider than one that compares run by run.
    """
    variants = {key(measure): label for label, measure in figure.plot.measures()}
    row_measure, scheme = row.measure, row.scheme or figure.schemes()[0]
    if row_measure is None or key(row_measure) not in variants:
        return Value(None, None)
    cases = {case.label: case for case in figure.all_cases()}

    def value_of(scheme: str, case: str) -> Value:
        alike = [
            other.label
            for other in figure.rows
            if other.measure is not None
            and (key(other.measure), other.case, other.scheme) == (key(row_measure), case, scheme)
            and not other.over
            and other.over_case is None
        ]
        label = point_label(figure, scheme, cases[case], variants[key(row_measure)])
        return next((_recorded(before[name]) for name in (label, *alike) if name in before), Value(None, None))

    values = []
    for case in cases if row.case is None else (row.case,):
        own = value_of(scheme, case)
        pairs = [(row.over_scheme or scheme, row.over_case)] if row.over_case else [(other, case) for other in row.over]
        values += [_ratio(row.compared, own, value_of(*pair)) for pair in pairs] or [own]
    known = [(value.mean, value) for value in values if value.mean is not None]
    if not known or len(known) < len(values):
        return Value(None, None)
    if row.across != "mean":
        return (min if row.across == "least" else max)(known, key=lambda pair: pair[0])[1]
    halves = [value.ci95 for _, value in known if value.ci95 is not None]
    half = math.hypot(*halves) / len(known) if len(halves) == len(known) else None
    return Value(sum(value for value, _ in known) / len(known), half)


def _ratio(how: Literal["gain", "saving"], own: Value, other: Value) -> Value:
    """Two means of independent runs compared, with the interval that follows from theirs.

    >>> _ratio("gain", Value(3.0, 0.3), Value(2.0, 0.0))
    Value(mean=50.0, ci95=15.0, bound='exactly')
    """
    if own.mean is None or not other.mean:
        return Value(None, None)
    (value,) = compared(how, [own.mean], [other.mean])
    if own.ci95 is None or other.ci95 is None:
        return Value(value, None)
    share = own.mean / other.mean
    return Value(value, 100.0 * math.hypot(own.ci95 / other.mean, share * other.ci95 / other.mean))


def _records(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder in the order of papers and figures; other files are ignored."""
    found = []
    for identity in identities("all"):
        path = folder / f"{identity}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and record.get("id") == identity:
            found.append(record)
    return found


def _write_pages(folder: Path) -> None:
    """Writes the page of each paper, and last the page that links to them."""
    records, quick = _records(folder), {record["id"]: record for record in _records(folder / QUICK)}
    by_paper: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_paper.setdefault(_paper(record), []).append(record)
    for paper, of_paper in by_paper.items():
        write_text(folder / f"{paper}.md", _paper_page(paper, of_paper, quick))
    write_text(folder / PAGE, _page(by_paper))


def _paper(record: dict[str, Any]) -> str:
    """The paper of a figure, which is the first part of its name."""
    return str(record["id"]).partition("/")[0]


def _paper_title(paper: str) -> str:
    """First line of the page of a paper."""
    return f"# {paper}: figures of our own" if paper in OWN else f"# {paper}: published figures, run again"


def _page(by_paper: dict[str, list[dict[str, Any]]]) -> str:
    """The page that explains the tables and lists all figures."""
    parts = [
        TITLE,
        (
            "Each table has what a paper prints beside what Pathloom measures, and the difference. ± is the half width "
            "of the 95 % confidence interval over the runs. Where a paper prints a range, the difference is the "
            "distance from its nearer end. «> 0» and «< 0» stand for a trend that the text of a paper states. It is "
            "«not clear» if the interval holds both signs. The interval of a trend, and of a row added after the runs, "
            "is that of independent runs.\n\n"
            "A letter leads to the cause of a difference below the table. A single number needs one if the difference "
            f"is more than {POINTS:g} percentage points, or {POINTS:g} % of another unit. A range, a bound or a trend "
            "needs one as soon as the measured value is outside by more than its interval. "
            "The signs ≥ and ≤ mark what a paper states as a bound, and what is measured while flows are "
            "unfinished.\n\n«Up to» marks the greatest value that a paper reached, so a lower one is a difference. "
            "A dash stands where a paper prints no number, or where a part is not built.\n\n"
            "The pictures have the form of the papers'. Hollow marks are published numbers, in the colour of their "
            "scheme. At each load the schemes stand side by side, so that none hides another.\n\n"
            "`pathloom reproduce all --out docs/reproduction` writes these pages. With `--quick` there are fewer and "
            "shorter runs, with `--shorten` as many but shorter ones; the command of each figure says which was given. "
            f"A column shows what `--quick` gave, where folder `{QUICK}` has that."
        ),
    ]
    for paper, records in by_paper.items():
        parts += [f"## [{paper}]({paper}.md)", _contents(records, f"{paper}.md")]
    return "\n\n".join(parts) + "\n"


def _paper_page(paper: str, records: list[dict[str, Any]], quick: dict[str, dict[str, Any]]) -> str:
    """The page of one paper, with all its figures."""
    parts = [
        _paper_title(paper),
        f"[All papers, and how to read the tables]({PAGE}).",
        _contents(records),
        *(_section(record, quick.get(record["id"])) for record in records),
    ]
    return "\n\n".join(parts) + "\n"


def _contents(records: list[dict[str, Any]], page: str = "") -> str:
    """A table of figures with links to their sections in `page`, or in the same page."""
    lines = ["| figure | | runs |", "| --- | --- | --- |"]
    for record in records:
        runs = dict(record["setup"]).get("runs", "")
        lines.append(f"| [{record['id']}]({page}#{_anchor(record)}) | {record['title']} | {runs} |")
    return "\n".join(lines)


def _anchor(record: dict[str, Any]) -> str:
    """The anchor that a code host gives the heading of a figure."""
    heading = f"{record['id']}: {record['title']}".lower()
    return "".join(c if c.isalnum() or c in "-_" else "-" if c == " " else "" for c in heading)


def _section(record: dict[str, Any], quick: dict[str, Any] | None) -> str:
    parts = [
        f"## {record['id']}: {record['title']}",
        f"{record['source']}. `{record['command']}`",
        f"![{record['title']}]({record['id']}.svg)",
    ]
    if record["table"]:
        table = [HEADINGS, *_marked(record["table"], record["causes"])]
        if quick is not None and not record["quick"]:
            table = _beside(table, quick["table"])
        parts.append(_table(table[0], table[1:]))
    if record["causes"]:
        causes = [cause for _, cause in record["causes"]]
        parts.append(
            "\n".join(f"- ({letter}) {_sentence(cause)}" for letter, cause in zip(LETTERS, causes, strict=False))
        )
    if record["points"]:
        parts.append(_table(record["points"]["headings"], record["points"]["rows"]))
    code = [(word, f"`{text}`" if "=" in text or "," in text else text) for word, text in record["setup"]]
    setup = "; ".join(f"{word} {text}" for word, text in code)
    parts.append(f"Set-up: {setup}.")
    if record["notes"]:
        parts.append("\n".join(f"- {_sentence(note)}" for note in record["notes"]))
    return "\n\n".join(parts)


def _marked(rows: list[list[str]], causes: list[tuple[str, str]]) -> list[list[str]]:
    """The rows with the letter of their cause after the difference.

    >>> _marked([["TCP", "1 s", "3 s", "+2 s"], ["ECMP", "1 s", "1 s", "0 s"]], [("TCP", "it rains")])
    [['TCP', '1 s', '3 s', '+2 s (a)'], ['ECMP', '1 s', '1 s', '0 s']]
    """
    letters = {
        label: letter
        for letter, (labels, _) in zip(LETTERS, causes, strict=False)
        for label in ([row[0] for row in rows] if labels == ALL else labels.split("; "))
    }
    return [[*row[:-1], f"{row[-1]} ({letters[row[0]]})" if row[0] in letters else row[-1]] for row in rows]


def _beside(table: list[list[str]], quick: list[list[str]]) -> list[list[str]]:
    """A table, headings first, with one more column for the measurements of `--quick`.

    >>> table = [["", "published", "measured", "difference"], ["TCP", "1 s", "3 s", "+2 s"]]
    >>> _beside(table, [["TCP", "1 s", "4 s", "+3 s"]])
    [['', 'published', 'measured', 'difference', '`--quick`'], ['TCP', '1 s', '3 s', '+2 s', '4 s']]
    """
    measured = {row[0]: row[2] for row in quick}
    return [[*table[0], "`--quick`"], *([*row, measured.get(row[0], NOTHING)] for row in table[1:])]


def _sentence(text: str) -> str:
    """A text with a capital at the beginning and a full stop at the end.

    >>> _sentence("the sum is 3"), _sentence("k=4 is small")
    ('The sum is 3.', 'k=4 is small.')
    """
    first = text.split(" ", 1)[0]
    return f"{text[:1].upper() if first.isalpha() else text[:1]}{text[1:]}."


def _table(headings: list[str], cells: list[list[str]]) -> str:
    lines = [headings, ["---", *("--:" for _ in headings[1:])], *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
