"""The report: one HTML page that needs no other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from pathloom.experiments.results.definitions import DEFINITIONS, NOT_MODELLED
from pathloom.experiments.results.notes import failures
from pathloom.experiments.results.summary import unfinished
from pathloom.experiments.settings.model import FINISHED
from pathloom.quantities import count_text, listed, seeds_text, time_text
from pathloom.report.cite import cite_block
from pathloom.report.headline import banners, headlines, legend, runs_text
from pathloom.report.html import (
    breakable,
    cell,
    digests,
    document,
    figure_blocks,
    html_table,
    pairs,
    plain_table,
    swatch,
)
from pathloom.report.jobs import JOBS_SAY, delay_lines, jobs_table
from pathloom.report.palette import looks
from pathloom.report.subflows import overview, slowest
from pathloom.report.tables import Table, control_table, difference_table, main_table, pair_table
from pathloom.specs import LAB, SIM, is_python_spec

if TYPE_CHECKING:
    from pathloom.experiments.results.result import ResultData
    from pathloom.report.plots import Plot

MOST_UNFINISHED_SHOWN = 30
MOST_UNCROWDED = 5
"""With more schemes than this, a table has the interval of a figure on a second line."""
MOST_PAIRS_SHOWN = 12
"""A table of all pairs with more rows than this is collapsed."""
BASE_SAYS = (
    "Each scheme minus the first one, as a mean of paired differences: both schemes have the same flows in a run, so "
    "what differs between runs cancels out. As everywhere, the judgement is corrected for the number of all pairs."
)
PAIRS_SAY = (
    "Some of many pairs differ by chance. A difference is called significant only if its p-value, after Holm's "
    "correction for the number of pairs, is below 5 %."
)


def page(result: ResultData, plots: Sequence[Plot]) -> str:
    """The report of a result as HTML text."""
    settings, summary = result.settings, result.summary
    schemes = summary["schemes"]
    colours = colours_of(result)
    title = f"{listed(settings.labels)} on {settings.fabric.split(':', 1)[0]}"
    main = main_table(schemes)
    what = f"{settings.traffic} on {settings.fabric} · {runs_text(result)}, for each scheme"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="under">{escape(what)}</p>',
        banner_block(result),
        headline_block(schemes),
        "<h2>Figures of each scheme</h2>",
        scheme_table(main, colours, "Figures of each scheme"),
        _legend(schemes, main),
        _jobs(schemes, colours),
        _differences(schemes),
        figure_blocks(plots),
        _subflows(result),
        "<h2>Control overhead and losses</h2>",
        "<p>Counts are means over the runs; the most rules in a switch are those of any switch at any time.</p>",
        scheme_table(control_table(schemes), colours, "Control overhead and losses"),
        _unfinished(result),
        _settings(result),
        "<h2>Definitions</h2>",
        pairs([(word, meaning) for word, meaning in DEFINITIONS]),
        "<h2>What is not modelled</h2>\n" + pairs(NOT_MODELLED) if SIM in settings.worlds else "",
        _again(result),
        cite_block(summary["versions"], settings.schemes),
        _footer(summary),
    ]
    return document(title, parts)


def colours_of(result: ResultData) -> dict[str, str]:
    """The colour of each scheme."""
    return {scheme: look.colour for scheme, look in looks(result.settings.labels).items()}


def headline_block(schemes: Sequence[Mapping[str, Any]]) -> str:
    """The main findings, as HTML."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in headlines(schemes))
    return f'<div class="headline">{lines}</div>' if lines else ""


def banner_block(result: ResultData) -> str:
    """Warnings to read before any figure, as HTML."""
    lines = "".join(f"<p><strong>{escape(short)}.</strong> {escape(full)}</p>" for short, full in banners(result))
    return f'<div class="headline warning">{lines}</div>' if lines else ""


def _legend(schemes: Sequence[Mapping[str, Any]], table: Table) -> str:
    """The meaning of the marks in the main table."""
    lines = legend(schemes, table, "Bold:")
    return f'<p class="under">{escape(" ".join(lines))}</p>' if lines else ""


def scheme_table(table: Table, colours: Mapping[str, str], label: str) -> str:
    """A row per figure and a column per scheme, as on the terminal, to fit narrow windows."""
    names = [row[0] for row in table.rows]
    head = "".join(f'<th scope="col">{breakable(name, swatch(colours.get(name)))}</th>' for name in names)
    rows = []
    for column in range(1, len(table.headings)):
        cells = [cell(row[column], table.best[column] == index) for index, row in enumerate(table.rows)]
        rows.append(f'<tr><th scope="row">{escape(table.headings[column])}</th>{"".join(cells)}</tr>')
    kind = "wide schemes many" if len(names) > MOST_UNCROWDED else "wide schemes"
    return html_table(f"<td></td>{head}", rows, label, kind)


def _jobs(schemes: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> str:
    """The figures of jobs, and what delayed them."""
    table = jobs_table(schemes)
    if table is None:
        return ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in delay_lines(schemes))
    return (
        f"<h2>Jobs</h2>\n<p>{escape(JOBS_SAY)}</p>"
        + scheme_table(table, colours, "Figures of each job")
        + (f"<ul>{lines}</ul>" if lines else "")
    )


def _differences(schemes: Sequence[Mapping[str, Any]]) -> str:
    table = difference_table(schemes)
    if table is None:
        return ""
    return (
        f"<h2>Differences between schemes</h2>\n<p>{BASE_SAYS}</p>"
        + plain_table(table, "Paired differences to the first scheme")
        + _all_pairs(schemes)
    )


def _subflows(result: ResultData) -> str:
    table = overview(result)
    if table is None:
        return ""
    return (
        "<h2>Subflows</h2>\n<p>Connections with several subflows. All other tables count a connection as one flow. "
        "Largest share: the part of a connection's bytes that its busiest subflow carried, in the mean. On one path: "
        "connections whose subflows all take the same path. The columns about paths count connections whose paths are "
        "all known; in the lab, the paths of subflows that switches spread by a hash are not.</p>"
        f"{plain_table(table, 'Subflows of each scheme')}"
        "<p>The slowest connections of each scheme, subflow by subflow; subflows.parquet has all:</p>"
        f"{plain_table(slowest(result), 'Slowest connections')}"
    )


def _all_pairs(schemes: Sequence[Mapping[str, Any]]) -> str:
    table = pair_table(schemes)
    if table is None:
        return ""
    return (
        f"<details{'' if len(table.rows) > MOST_PAIRS_SHOWN else ' open'}><summary>All pairs of schemes</summary>"
        f"<p>{PAIRS_SAY}</p>{plain_table(table, 'Paired differences of all pairs')}</details>"
    )


def _unfinished(result: ResultData) -> str:
    rows = unfinished(result.flows)
    if rows.height == 0:
        finite = result.flows["size_bytes"].count()
        return "<h2>Unfinished flows</h2>\n<p>None: every flow was completed.</p>" if finite else ""
    shown = rows.head(MOST_UNFINISHED_SHOWN)
    cells = [
        [
            str(row["scheme"]),
            str(row["run"]),
            str(row["flow"]),
            f"{row['src']} → {row['dst']}",
            count_text(row["size_bytes"]),
            count_text(row["delivered_bytes"]),
            time_text(row["start_s"]) if row["start_s"] is not None else "never",
            str(row["timeouts"]) if row["timeouts"] is not None else "",
        ]
        for row in shown.iter_rows(named=True)
    ]
    headings = ["scheme", "run", "flow", "from, to", "size (B)", "delivered (B)", "started", "RTOs"]
    more = f"<p>The first {shown.height} are shown; flows.parquet has all.</p>" if rows.height > shown.height else ""
    text = (
        f"{count_text(rows.height)} flows were not complete at the end of their run. They count with the time they had."
    )
    table = plain_table(Table(headings, cells, [None] * len(headings)), "Unfinished flows")
    return f"<h2>Unfinished flows</h2>\n<p>{text}</p>{table}{more}"


def _settings(result: ResultData) -> str:
    settings = result.settings
    rows = [
        ("Fabric", settings.fabric),
        ("Traffic", settings.traffic),
        ("Generated in run 1", result.description),
        ("Schemes", ", ".join(settings.labels)),
        ("Transport", settings.transport or "each scheme's own"),
        ("Control", settings.control or "default"),
        ("Duration", settings.duration),
        *((("Until", "every finite flow is finished"),) if settings.until == FINISHED else ()),
        ("Runs", f"{settings.runs}, {seeds_text(range(settings.seed, settings.seed + settings.runs))}"),
        *((("Faults", ", ".join(settings.faults)),) if settings.faults else ()),
        *(("Note", note) for note in result.notes if note not in failures(result)),
    ]
    return "<h2>Settings</h2>\n" + pairs([(word, value) for word, value in rows if value])


def _again(result: ResultData) -> str:
    """The command that repeats the figures, and what it cannot repeat."""
    settings, inputs = result.settings, result.inputs
    parts = ["<h2>Reproduce</h2>"]
    named = tuple(scheme for scheme in settings.schemes if scheme not in inputs.classes)
    if inputs.classes:
        which = "the other schemes" if named else "nothing of this"
        parts.append(
            f"<p>No command can name {escape(listed(inputs.classes))}, given as a Python class: call "
            f"<code>pathloom.compare</code> with it, in the program that has it. A command line repeats {which}.</p>"
        )
    if named:
        command = settings.model_copy(update={"schemes": named}).command()
        simulated = "gives the same figures again, on any machine and any number of threads"
        if LAB in settings.worlds:
            simulated = "runs it again; figures of the simulator are the same, figures of the lab differ each time"
        version, condition = result.summary["versions"]["pathloom"], ""
        if inputs.files:
            condition = ", as long as the files below are what they were"
        parts.append(f"<p>With Pathloom {escape(version)}, this command {simulated}{condition}:</p>")
        parts.append(f"<pre><code>{escape(command)}</code></pre>")
    if any(is_python_spec(scheme) for scheme in named):
        parts.append("<p>A scheme in Python must draw from its seed alone, and ask no clock.</p>")
    if inputs.files:
        parts.append(digests(inputs.files))
    if result.changed_files:
        changed = listed(result.changed_files)
        parts.append(f"<p>During the runs, {escape(changed)} changed: which content they have read is not known.</p>")
    if result.fabric.text is not None:
        parts.append("<p>The fabric is in <code>fabric.json</code> beside this page; run this in its folder.</p>")
    return "\n".join(parts)


def _footer(summary: Mapping[str, Any]) -> str:
    """The footer. It has nothing that differs between runs of one seed: their durations are in result.json."""
    hops = [row["packets"]["hops"] for row in summary["schemes"]]
    what = "flows as rates" if None in hops else f"{count_text(sum(hops))} packet-hops"
    return f"<footer>Pathloom {escape(summary['versions']['pathloom'])} · {what}</footer>"
