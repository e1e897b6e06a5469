"""Answers as a table, a sentence, a picture and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pathloom.experiments.results.output_files import OutFolder, write_text
from pathloom.extras import is_installed
from pathloom.quantities import rate_text, time_text
from pathloom.twin.ask import Answer, Row
from pathloom.twin.measures import Measure

HEADINGS = ["alternative", "estimate", "mean", "90 % of forks", "difference to nothing", "told apart"]


def value_text(measure: Measure, value: float) -> str:
    """A value of a measure with its unit.

    >>> from pathloom.twin.measures import MEASURES
    >>> value_text(MEASURES["mean-throughput"], 0.5), value_text(MEASURES["worst-pair"], -2e6)
    ('0.5000', '-2 Mbit/s')
    """
    sign = "-" if value < 0 else ""
    match measure.unit:
        case "s":
            return sign + time_text(abs(value))
        case "bps":
            return sign + rate_text(abs(value))
        case _:
            return f"{value:.4f}"


def table_of(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row for each alternative, the best first."""
    return HEADINGS, [_cells(answer.plan.measure, row) for row in answer.rows]


def _cells(measure: Measure, row: Row) -> list[str]:
    estimate = row.estimate["worst_pair_bps" if measure.name == "worst-pair" else "mean_bps"]
    interval, difference = row.interval, row.difference
    ends = [] if interval is None else [value_text(measure, end) for end in interval]
    if difference is None:
        change, apart = "", ""
    else:
        half = "" if difference.ci95 is None else f" ± {value_text(measure, difference.ci95)}"
        change, apart = f"{value_text(measure, difference.mean)}{half}", "yes" if difference.told_apart else "no"
    return [
        row.name,
        "" if estimate is None else rate_text(estimate),
        value_text(measure, row.mean),
        " to ".join(ends),
        change,
        apart,
    ]


def verdict(answer: Answer) -> str:
    """What the answer says, in a sentence."""
    best = answer.rows[0]
    if answer.undecided:
        names = ", ".join(answer.undecided)
        return f"These cannot be told apart as the best: {names}. More --runs may do so."
    return f"The best is {best.name}, with {value_text(answer.plan.measure, best.mean)}."


def unfinished_note(answer: Answer) -> str | None:
    """Which alternatives left flows unfinished, and what that means for their figures; None if none did."""
    cut = [f"{row.name} {100 * row.unfinished:.1f} %" for row in answer.rows if row.unfinished > 0]
    if not cut:
        return None
    return f"Flows that had not finished at the end count with their age: {', '.join(cut)} of the flows."


def save(content: Mapping[str, Any], folder: Path, name: str, draw: Callable[[Path], None]) -> None:
    """Writes `NAME.json`, and the picture `NAME.svg` if matplotlib is installed. Raises `PathloomError`."""
    place = OutFolder(folder)
    write_text(place.path / f"{name}.json", json.dumps(content, indent=2) + "\n")
    if is_installed("plot"):
        draw(place.path / f"{name}.svg")


def draw_answer(answer: Answer, path: Path) -> None:
    """Draws the means and the intervals of all alternatives, the best at the top."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1 + 0.4 * len(answer.rows)), layout="constrained")
    axes = figure.subplots()
    places = list(range(len(answer.rows)))[::-1]
    for place, row in zip(places, answer.rows, strict=True):
        colour = "C0" if row.like_best else "0.5"
        if row.interval is not None:
            axes.plot(row.interval, [place, place], color=colour, linewidth=2)
        axes.plot(row.values, [place] * len(row.values), "|", color=colour)
        axes.plot([row.mean], [place], "o", color=colour)
    axes.set_yticks(places, [row.name for row in answer.rows])
    measure = answer.plan.measure
    axes.set_xlabel(f"{measure.about}{f', {measure.unit}' if measure.unit else ''}")
    figure.savefig(path)
