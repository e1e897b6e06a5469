"""The table of a comparison of two results, as rows of text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from pathloom.experiments.results.columns import frame_of
from pathloom.experiments.results.saved import FOREIGN
from pathloom.quantities import FigureText, count_figure, percent_figure, share_figure, time_figure, times_figure
from pathloom.report.tables import AT_LEAST, AT_MOST, Table

if TYPE_CHECKING:
    from pathloom.experiments.results.diff import Change, Diff

TITLES = {
    ("throughput", "mean"): "mean throughput",
    ("throughput", "p5"): "p5 throughput",
    ("slowdown", "mean"): "mean slowdown",
    ("slowdown", "p99"): "p99 slowdown",
    ("completion_s", "mean"): "completion time",
    ("flows", "unfinished"): "unfinished flows",
}
_DIGEST = re.compile("[0-9a-f]{64}")
SAYS = {
    "same": "the same",
    "equal": "equal within 1 %",
    "clear": "significant",
    "small": "significant, but 1 % or less",
    "unclear": "not significant",
    "single": "one run: may be chance",
    "unknown": "unknown: flows are unfinished",
    "": "",
}


def diff_table(found: Diff) -> Table:
    """A row per point, scheme and figure: A, B, the difference with its interval, and the verdict."""
    axes = list(dict.fromkeys(name for change in found.changes for name in change.at))
    rows = []
    for change in found.changes:
        text = _text(change)
        sign = AT_MOST if change.section == "throughput" else AT_LEAST
        among = max(abs(change.a), abs(change.b))
        percent = _percent_text(change.share or 0.0)
        share = f" ({percent})" if percent != _percent_text(0.0) else ""
        rows.append(
            [
                *(str(change.at.get(name, "")) for name in axes),
                change.scheme_a if change.scheme_a == change.scheme_b else f"{change.scheme_a}, {change.scheme_b}",
                TITLES.get((change.section, change.key)) or f"{change.key} FCT",
                f"{sign if change.bound_a else ''}{text(change.a)}",
                f"{sign if change.bound_b else ''}{text(change.b)}",
                f"{text.signed(change.difference, change.ci95, among)}{share}",
                SAYS[change.verdict],
            ]
        )
    headings = [*axes, "scheme", "figure", "A", "B", "B − A", ""]
    return Table(headings, rows, [None] * len(headings))


def correction_line(found: Diff) -> str | None:
    """What significant means if several differences of the same figure are tested; else None."""
    tested = [(change.section, change.key) for change in found.changes if change.p_value is not None]
    if len(tested) == len(set(tested)):
        return None
    return "Significant: a probability by chance below 5 %, corrected for the number of rows of the figure (Holm)."


def numbers(found: Diff) -> pl.DataFrame:
    """The table as numbers: times in seconds, throughput and slowdown without a unit."""
    rows = []
    for change in found.changes:
        record = change.record()
        at = record.pop("at")
        # An axis of a sweep may have the name of a column here.
        rows.append({**{f"at_{name}" if name in record else name: value for name, value in at.items()}, **record})
    return frame_of(rows)


def setting_lines(found: Diff) -> list[str]:
    """The settings that differ, a line for each."""
    lines = [f"A: {found.a.path}", f"B: {found.b.path}"]
    foreign = [f"{side.path} is of another simulator." for side in (found.a, found.b) if side.kind == FOREIGN]
    if foreign:
        return [*lines, *foreign, "Settings are not compared."]
    differ = [
        f"{key}: {_shown(one)} in A, {_shown(two)} in B" for key, a, b in found.settings for one, two in [_apart(a, b)]
    ]
    return [*lines, *(differ or ["All settings are equal."]), *(f"{line}." for line in found.runs)]


def _apart(a: object, b: object) -> tuple[object, object]:
    """The parts in which two settings differ: for lists and tables, the members that the other one lacks.

    >>> _apart(["ecmp", "spt"], ["ecmp"]), _apart({"load": 1, "k": 4}, {"load": 2, "k": 4}), _apart(1, 2)
    ((['spt'], []), ({'load': 1}, {'load': 2}), (1, 2))
    >>> _apart(["ecmp", "spt"], ["spt", "ecmp"])
    (['ecmp', 'spt'], ['spt', 'ecmp'])
    """
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
        parts = {key: _apart(a.get(key), b.get(key)) for key in keys}
        return tuple({key: parts[key][side] for key in keys if key in of} for side, of in enumerate((a, b)))  # type: ignore[return-value]
    if isinstance(a, list) and isinstance(b, list):
        apart = [one for one in a if one not in b], [one for one in b if one not in a]
        return apart if any(apart) else (a, b)
    return a, b


def _shown(value: object) -> str:
    """A setting as text, with lists as on the command line.

    >>> _shown(["ecmp", "spt"]), _shown({"load": [0.2, 0.4]}), _shown([]), _shown(True)
    ('ecmp, spt', 'load=0.2, 0.4', 'nothing', 'on')
    >>> _shown({"own.py": "df70" + 60 * "0"})
    'own.py=df700000…'
    """
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return f"{value[:8]}…"
    if value is None or (isinstance(value, list | dict) and not value):
        return "nothing"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return "; ".join(f"{name}={_shown(part)}" for name, part in value.items())
    return ", ".join(map(_shown, value)) if isinstance(value, list) else str(value)


def _text(change: Change) -> FigureText:
    if change.section.endswith("_s"):
        return time_figure
    return {"slowdown": times_figure, "flows": count_figure}.get(change.section, share_figure)


def _percent_text(share: float) -> str:
    """A share with its sign.

    >>> _percent_text(-0.5), _percent_text(0.5), _percent_text(-0.0001)
    ('−50.0 %', '+50.0 %', '0.0 %')
    """
    return percent_figure.signed(100 * share)
