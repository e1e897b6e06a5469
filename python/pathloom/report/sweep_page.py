"""The report of a sweep: one HTML page that needs no other files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from pathloom.experiments.results.definitions import DEFINITIONS, NOT_MODELLED
from pathloom.experiments.sweeps.plan import value_text
from pathloom.quantities import counted, listed, seeds_text
from pathloom.report.cite import cite_block
from pathloom.report.html import digests, document, figure_blocks, pairs, plain_table
from pathloom.report.sweep_tables import legend_lines, points_table

if TYPE_CHECKING:
    from pathloom.experiments.sweeps.result import SweepData
    from pathloom.report.plots import Plot


def page(result: SweepData, plots: Sequence[Plot]) -> str:
    """The report of a sweep as HTML text."""
    axes = list(result.plan.grid)
    title = f"Sweep over {listed(axes)}"
    table = points_table(result)
    notes = "".join(f"<li>{escape(note)}.</li>" for note in result.notes)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="under">{escape(what_text(result))}</p>',
        _banner(result),
        figure_blocks(plots),
        "<h2>Every point</h2>",
        plain_table(table, "Every point"),
        f'<p class="under">{escape(" ".join(legend_lines(result, table)))}</p>',
        f"<h2>Notes</h2>\n<ul>{notes}</ul>" if notes else "",
        "<h2>Settings</h2>",
        pairs([*((key, _setting_text(value)) for key, value in result.plan.template.items()), *_runs(result)]),
        pairs([(name, ", ".join(map(value_text, values))) for name, values in result.plan.grid.items()]),
        _again(result),
        cite_block(result.summary["versions"], result.plan.points[0].settings.schemes),
        "<h2>Definitions</h2>",
        pairs(DEFINITIONS),
        "<h2>What is not modelled</h2>",
        pairs(NOT_MODELLED),
        f"<footer>Pathloom {escape(result.summary['versions']['pathloom'])}</footer>",
    ]
    return document(title, parts)


def what_text(result: SweepData) -> str:
    """The traffic, fabric and size of the sweep, in one line."""
    template = result.plan.template
    runs = sum(len(row["runs"]) for point in result.points for row in point.schemes)
    said = f"{counted(len(result.points), 'point')}, {counted(runs, 'run')}"
    return f"{template['traffic']} on {template['fabric']}: {said}"


def _banner(result: SweepData) -> str:
    lines = "".join(f"<p>{escape(text.splitlines()[0])}</p>" for text in result.troubles)
    headline = "<p><strong>Not what the scheme would do</strong></p>"
    return f'<div class="headline warning">{headline}{lines}</div>' if lines else ""


def _setting_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _runs(result: SweepData) -> list[tuple[str, str]]:
    """The number of runs of each scheme at a point, and their seeds; empty if the settings vary the seed."""
    if isinstance(result.plan.template.get("seed"), str):
        return []
    runs = [len(row["runs"]) for point in result.points for row in point.schemes]
    least, most = min(runs, default=0), max(runs, default=0)
    count = f"{least}" if least == most else f"{least} to {most}"
    first = result.points[0].settings.seed
    return [("runs of each scheme", f"{count}, {seeds_text(range(first, first + most))}")]


def _again(result: SweepData) -> str:
    """The command that repeats the figures, and the files that it reads."""
    parts = ["<h2>Reproduce</h2>"]
    if result.plan.file is None:
        parts.append("<p>The settings were given in Python: call <code>pathloom.sweep</code> with them.</p>")
    else:
        until = ["--until", result.until.text()] if result.until is not None else []
        command = shlex.join(["pathloom", "sweep", result.plan.file, *until])
        parts.append(
            f"<p>With Pathloom {escape(result.summary['versions']['pathloom'])}, this command gives the same figures "
            "again, on any machine and any number of threads, as long as the file of the sweep has the settings "
            f"above{' and the files below are what they were' if result.files else ''}:</p>"
        )
        parts.append(f"<pre><code>{escape(command)}</code></pre>")
    if result.files:
        parts.append(digests(result.files))
    return "\n".join(parts)
