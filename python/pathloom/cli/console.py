"""Output of commands: results go to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from pathloom.cli.encoding import as_shown
from pathloom.errors import bad_input, reason
from pathloom.experiments.results.output_files import write_text
from pathloom.experiments.settings.model import Job
from pathloom.extras import NO_PICTURES, is_installed
from pathloom.progress import Shares, lines

if TYPE_CHECKING:
    from pathloom.experiments.running.work import JobProgress

STDOUT = "-"


def say(text: str) -> None:
    """Prints a line for the user on stderr, apart from the result."""
    print(text, file=sys.stderr)


def put_report(path: Path, json_target: str | None) -> None:
    """Prints where the report is, and why it has no pictures; on stderr if JSON goes to standard output."""
    (say if json_target == STDOUT else print)(f"Report: {path}")
    if not is_installed("plot"):
        say(f"pathloom: {NO_PICTURES}")


def table(
    title: str | None,
    headings: list[str],
    rows: list[list[str]],
    numbers_from: int = 1,
    *,
    groups: int = 0,
    words_last: bool = False,
) -> None:
    """Prints a table; the columns from `numbers_from` on are aligned to the right, and none of their cells is broken.

    On a terminal that is too narrow, the first `groups` columns become a line above the rows that share their values.
    If the rest is still too wide, the table is printed in parts, one below another. Each part repeats the first
    columns. With `words_last`, the last column may take several lines.
    """
    headings, rows = [as_shown(one) for one in headings], [[as_shown(cell) for cell in row] for row in rows]
    console = Console(highlight=False, markup=False)
    shape = numbers_from, words_last
    if not console.is_terminal:
        # A pipe has no width: lines are neither broken nor padded at the end.
        wide = Console(highlight=False, markup=False, width=400, file=io.StringIO())
        with wide.capture() as capture:
            wide.print(_grid(title, headings, rows, [], numbers_from))
        print("\n".join(line.rstrip() for line in capture.get().splitlines()))
        return
    widths = _widths(headings, rows)
    fits = sum(widths) + GAP * (len(widths) - 1) <= console.width
    # If the numbers take at most half of the width, the long texts before them are broken between words.
    few_numbers = sum(width + GAP for width in widths[numbers_from:]) <= console.width // 2
    if fits or (few_numbers and not groups):
        console.print(_grid(title, headings, rows, widths, numbers_from, words_last))
        return
    if not groups:
        _print_in_parts(console, title, headings, rows, widths, *shape)
        return
    for place, (shared, some) in enumerate(groupby(rows, key=lambda row: row[:groups])):
        said = ", ".join(f"{name}={cell}" for name, cell in zip(headings[: groups - 1], shared[:-1], strict=True))
        console.print(f"{chr(10) if place else ''}{', '.join([*filter(None, [said]), shared[-1]])}", style="bold")
        inner = [row[groups:] for row in some]
        _print_in_parts(
            console, None, headings[groups:], inner, widths[groups:], max(numbers_from - groups, 0), words_last
        )


GAP = 2
"""Spaces between two columns."""


def _widths(headings: list[str], rows: list[list[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]


def _print_in_parts(
    console: Console,
    title: str | None,
    headings: list[str],
    rows: list[list[str]],
    widths: list[int],
    numbers_from: int,
    words_last: bool,
) -> None:
    least = list(widths)
    if words_last:
        words = [headings[-1], *(row[-1] for row in rows)]
        least[-1] = max((cell_len(word) for cell in words for word in cell.split()), default=0)
    for place, part in enumerate(parts(least, numbers_from, console.width)):
        if place:
            console.print()
        chosen = [[row[column] for column in part] for row in rows]
        last = words_last and part[-1] == len(headings) - 1
        some = [widths[column] for column in part]
        console.print(_grid(title, [headings[column] for column in part], chosen, some, numbers_from, last))


def parts(widths: list[int], numbers_from: int, width: int) -> list[list[int]]:
    """Returns the columns of each part of a table of this width. Every part has the first `numbers_from` columns.

    >>> parts([5, 6, 10, 10, 10], 2, 40), parts([5, 60, 10, 10], 2, 40)
    ([[0, 1, 2, 3], [0, 1, 4]], [[0, 1, 2], [0, 1, 3]])
    """
    first = list(range(numbers_from))
    found: list[list[int]] = []
    for column in range(numbers_from, len(widths)):
        together = [*(found[-1] if found else first), column]
        if not found or sum(widths[one] + GAP for one in together) - GAP > width:
            found.append([*first, column])
        else:
            found[-1].append(column)
    return found


def _grid(
    title: str | None,
    headings: list[str],
    rows: list[list[str]],
    widths: list[int],
    numbers_from: int,
    words_last: bool = False,
) -> RichTable:
    """Returns a table whose columns of numbers have at least these widths. Only cells of text are broken into lines."""
    grid = RichTable(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold"
    )
    for place, heading in enumerate(headings):
        number = place >= numbers_from
        words = words_last and place == len(headings) - 1
        grid.add_column(
            heading,
            justify="right" if number and not words else "left",
            overflow="fold",
            no_wrap=number and not words,
            min_width=widths[place] if widths and number and not words else None,
        )
    for row in rows:
        grid.add_row(*row)
    return grid


def check_json_target(target: str | None) -> None:
    """Raises `PathloomError` if the file of `--json` cannot be written. It is called before the runs."""
    if target is None or target == STDOUT:
        return
    path = Path(target)
    if path.is_dir():
        raise bad_input(f"--json `{path}`: is a directory; name a file, or - for standard output")
    if not path.parent.is_dir():
        raise bad_input(f"--json `{path}`: no such directory as `{path.parent}`; make it first")
    try:
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise bad_input(f"--json `{path}`: {reason(error)}; name a file that can be written") from None


def put_text(text: str) -> None:
    """Writes a text for programs to standard output, as UTF-8 whatever the terminal's encoding is."""
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
    else:
        binary.write(text.encode("utf-8", "replace"))
        binary.flush()


def put_json(target: str, content: Any) -> None:
    """Writes JSON to standard output, or to a file, which is replaced in one step."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2, allow_nan=False) + "\n"
    if target == STDOUT:
        put_text(text)
    else:
        write_text(Path(target), text)


@contextmanager
def progress_bar(what: str, runs: int, weights: Mapping[Job, float] | None = None) -> Iterator[JobProgress]:
    """Shows the progress of the runs on stderr: a bar on a terminal, otherwise a line per minute.

    `weights`: the work of each run, in any unit. Without weights, all runs count the same.
    """
    shares = Shares(what, runs, weights=weights)
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[finished]}" + f"/{runs} runs"),
        TimeRemainingColumn(),
    ]
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lines(shares, say)
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=1.0, finished=0)

        def show(done: float, finished: int) -> None:
            bar.update(task, completed=done, finished=finished)

        yield lambda job, share: shares.note(job, share, show)
