"""Two results beside each other, as rows of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from pathloom.experiments.columns import frame_of
from pathloom.report.tables import AT_LEAST, AT_MOST, Table
from pathloom.words import count_text, share_text, time_text

if TYPE_CHECKING:
    from pathloom.experiments.diff import Change, Diff

TITLES = {
    ("throughput", "mean"): "mean throughput",
    ("throughput", "p5"): "p5 throughput",
    ("slowdown", "mean"): "mean slowdown",
    ("slowdown", "p99"): "p99 slowdown",
    ("completion_s", "mean"): "completion time",
    ("flows", "unfinished"): "unfinished flows",
}
SAYS = {
    "same": "the same",
    "equal": "equal within 1 %",
    "clear": "significant",
    "unclear": "not significant",
    "single": "one run: may be chance",
    "unknown": "unknown: flows are unfinished",
    "": "",
}


def diff_table(found: Diff) -> Table:
    """A row per point, scheme and figure: A, B, the difference with its interval, and what may be said of it."""
    axes = list(dict.fromkeys(name for change in found.changes for name in change.at))
    rows = []
    for change in found.changes:
        text = _text(change)
        sign = AT_MOST if change.section == "throughput" else AT_LEAST
        half = f" ± {text(change.ci95)}" if change.ci95 is not None else ""
        share = f" ({100 * change.share:+.1f} %)" if change.share is not None else ""
        rows.append(
            [
                *(str(change.at.get(name, "")) for name in axes),
                change.scheme_a if change.scheme_a == change.scheme_b else f"{change.scheme_a}, {change.scheme_b}",
                TITLES.get((change.section, change.key)) or f"{change.key} FCT",
                f"{sign if change.bound_a else ''}{text(change.a)}",
                f"{sign if change.bound_b else ''}{text(change.b)}",
                f"{_signed(text, change.difference)}{half}{share}",
                SAYS[change.says],
            ]
        )
    headings = [*axes, "scheme", "figure", "A", "B", "B − A", ""]
    return Table(headings, rows, [None] * len(headings))


def numbers(found: Diff) -> pl.DataFrame:
    """The same as numbers: times in seconds, throughput and slowdown without a unit."""
    rows = []
    for change in found.changes:
        record = change.record()
        at = record.pop("at")
        rows.append({**at, **record})
    return frame_of(rows)


def setting_lines(found: Diff) -> list[str]:
    """The settings that differ, a line for each."""
    lines = [f"A: {found.a.path}", f"B: {found.b.path}"]
    differ = [f"{key}: {_shown(a)} in A, {_shown(b)} in B" for key, a, b in found.settings]
    return [*lines, *(differ or ["All settings are equal."])]


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)


def _text(change: Change) -> Callable[[float], str]:
    if change.section.endswith("_s"):
        return time_text
    if change.section == "slowdown":
        return lambda value: f"{value:.2f} x"
    return count_text if change.section == "flows" else share_text


def _signed(text: Callable[[float], str], value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else '±'}{text(abs(value))}"
