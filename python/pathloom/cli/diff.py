"""`pathloom diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pathloom.cli import console
from pathloom.cli.options import JsonOption
from pathloom.experiments.settings.setting import OUTPUT

if TYPE_CHECKING:
    from pathloom.experiments.results.diff import Diff
    from pathloom.report.tables import Table

WHAT = "A results folder, a .csv file with the columns flow, start, end, bytes (seconds), or FlowMonitor's .xml."


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help=WHAT)],
    b: Annotated[Path, typer.Argument(metavar="B", help="The same.")],
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the table as CSV.", rich_help_panel=OUTPUT),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option("--latex", metavar="FILE", help="Write the table as LaTeX.", rich_help_panel=OUTPUT),
    ] = None,
    json: JsonOption = None,
) -> int:
    """Show what differs between two results: settings, and every figure with the certainty of its difference.

    Points of sweeps are compared by their axes, schemes by their names. A result of another simulator is compared with
    every scheme.

    Example: pathloom diff results/before results/after
    """
    from pathloom.experiments.results.diff import diff as compare
    from pathloom.experiments.results.output_files import check_writable, write_text
    from pathloom.experiments.results.saved import load
    from pathloom.report.diff_table import diff_table, numbers
    from pathloom.report.latex import latex as as_latex

    console.check_json_target(json)
    for path in (csv, latex):
        if path is not None:
            check_writable(path)
    found = compare(load(a), load(b))
    table = diff_table(found)
    if csv is not None:
        write_text(csv, numbers(found).write_csv())
    if latex is not None:
        write_text(latex, as_latex(table))
    if json is not None:
        console.put_json(json, found.record())
    if json != console.STDOUT:
        _print(found, table)
    return 0


def _print(found: Diff, table: Table) -> None:
    from pathloom.report.diff_table import correction_line, setting_lines

    for line in setting_lines(found):
        print(line)
    print()
    first = table.headings.index("A")
    # A long explanation follows a colon. It is printed once, below the table.
    rows = [[*row[:-1], row[-1].partition(":")[0]] for row in table.rows]
    console.table(None, table.headings, rows, first, groups=first - 1, words_last=True)
    for explanation in dict.fromkeys(row[-1] for row in table.rows if ":" in row[-1]):
        print(f"\n{explanation}.")
    if (said := correction_line(found)) is not None:
        print(f"\n{said}")
    for side, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            print(f"\nIn {side} alone: {'; '.join(names)}.")
    notes = [note for side in (found.a, found.b) if side.kind == "foreign" for note in side.summary["traffic"]["notes"]]
    for note in notes:
        print(f"Note: {note}.")
