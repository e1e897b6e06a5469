"""What commands say: results to stdout, all else to stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from pathloom.cli.encoding import as_shown
from pathloom.errors import bad_input
from pathloom.experiments.execution import Progress as Report
from pathloom.experiments.folder import reason, write_text
from pathloom.experiments.settings import Job
from pathloom.progress import Shares, lines

STDOUT = "-"


def say(text: str) -> None:
    """A line for the person at the terminal, apart from the result."""
    print(text, file=sys.stderr)


def table(title: str | None, headings: list[str], rows: list[list[str]], numbers_from: int = 1) -> None:
    """Prints a table; the columns from `numbers_from` on are aligned to the right."""
    grid = RichTable(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold"
    )
    for place, heading in enumerate(headings):
        grid.add_column(as_shown(heading), justify="right" if place >= numbers_from else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(as_shown, row))
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        console.print(grid)
        return
    # A pipe has no width: no line is broken, nor padded at its end.
    wide = Console(highlight=False, markup=False, width=400, file=io.StringIO())
    with wide.capture() as capture:
        wide.print(grid)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def check_json_target(target: str | None) -> None:
    """Finds out early that the file of `--json` cannot be written. Raises `PathloomError`."""
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
    """Writes a text for programs to standard output: as UTF-8, whatever the terminal's encoding is."""
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
    else:
        binary.write(text.encode("utf-8", "replace"))
        binary.flush()


def put_json(target: str, content: Any) -> None:
    """Writes JSON to a file, whole, or to standard output."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2, allow_nan=False) + "\n"
    if target == STDOUT:
        put_text(text)
    else:
        write_text(Path(target), text)


@contextmanager
def progress_bar(what: str, runs: int) -> Iterator[Report]:
    """A bar on stderr that moves with the runs; a line a minute when stderr is not a terminal."""
    shares = Shares(what, runs)
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
        task = bar.add_task(what, total=float(runs), finished=0)

        def report(job: Job, share: float) -> None:
            done, finished = shares.note(job, share)
            bar.update(task, completed=done, finished=finished)

        yield report
