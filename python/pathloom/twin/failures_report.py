"""Failures as a table, a sentence, a picture and files."""

from __future__ import annotations

from pathlib import Path

from pathloom.quantities import counted, rate_text
from pathloom.twin.failures import Report
from pathloom.twin.questions import NOTHING
from pathloom.twin.report import value_text

HEADINGS = ["failure", "max-min rate", "lost", "in packets", "90 % of forks", "difference to nothing", "told apart"]


def table_of_failures(report: Report) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row for each failure that ran in packets: the worst by max-min rates first, then nothing."""
    rates = {one.alternative.name: one.rate_bps for one in report.screening.rows}
    by_name = {row.name: row for row in report.answer.rows}
    order = [*(name for name in rates if name in by_name), NOTHING]
    measure = report.answer.plan.measure
    cells = []
    for name in order:
        row, known = by_name[name], rates.get(name, report.screening.nothing_bps)
        difference = row.difference
        cells.append(
            [
                name,
                rate_text(known),
                "" if name == NOTHING else f"{100 * report.screening.loss_of(name):.1f} %",
                value_text(measure, row.mean),
                " to ".join(value_text(measure, end) for end in row.interval or ()),
                "" if difference is None else value_text(measure, difference.mean),
                "" if difference is None else "yes" if difference.told_apart else "no",
            ]
        )
    return HEADINGS, cells


def summary(report: Report) -> str:
    """How many failures were looked at, and how many cost something."""
    screening = report.screening
    found, total = len(screening.rows), screening.total
    costly = sum(one.rate_bps < screening.nothing_bps for one in screening.rows)
    text = f"{found} of {counted(total, 'failure')} by max-min rates; {costly} of them lower the rate."
    return text if found == total else f"{text} The time was up: a longer --budget has more."


def draw_failures(report: Report, path: Path) -> None:
    """Draws what each failure costs by max-min rates, the worst first, and in packets for those that ran."""
    from matplotlib.figure import Figure

    screening, rows = report.screening, {row.name: row for row in report.answer.rows}
    nothing = rows[NOTHING].mean
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    lost = [100 * (1 - one.rate_bps / screening.nothing_bps) for one in screening.rows]
    axes.step(range(1, len(lost) + 1), lost, where="mid", label="max-min rate")
    named = [(place, one.alternative.name) for place, one in enumerate(screening.rows, start=1)]
    ran = [(place, rows[name]) for place, name in named if name in rows]
    if nothing and ran:
        # More of a time is worse, so the sign differs.
        sign = 1 if report.answer.plan.measure.more_is_better else -1
        costs = [100 * sign * (1 - row.mean / nothing) for _, row in ran]
        axes.plot([place for place, _ in ran], costs, "o", label=f"{report.answer.plan.measure.name}, in packets")
    axes.axhline(0, color="0.7", linewidth=0.8)
    axes.set_xlabel(f"{report.kind} failures, the worst first")
    axes.set_ylabel("worse than without a failure, %")
    axes.legend()
    figure.savefig(path)
