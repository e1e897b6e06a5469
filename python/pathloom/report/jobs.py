"""Tables and sentences about jobs: bandwidth, time over the ideal, and what delayed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathloom.quantities import (
    FigureText,
    counted,
    measured,
    percent_text,
    rate_figure,
    time_figure,
    time_text,
    times_figure,
)
from pathloom.report.tables import NOTHING, Table

Row = Mapping[str, Any]

JOBS_SAY = (
    "Bandwidth is as in nccl-tests: algbw is the size of the buffer over the time of the collective, and busbw what "
    "each host's link carries for it. The ideal time is that of the algorithm on a single switch with the same cables: "
    "its steps times the delay, and its bytes over the payload rate."
)


def jobs_table(schemes: Sequence[Row]) -> Table | None:
    """The figures of each job under each scheme; None without jobs."""
    done = [row for row in schemes if row.get("jobs")]
    if not done:
        return None
    count = len(done[0]["jobs"])
    headings = ["scheme"]
    columns: list[Callable[[Row], str]] = []
    for place in range(count):
        for heading, cell in _columns(done[0]["jobs"][place]):
            headings.append(f"job {place + 1}: {heading}" if count > 1 else heading)
            columns.append(_cell_of(place, cell))
    rows = [[row["scheme"], *(column(row) for column in columns)] for row in schemes]
    return Table(headings, rows, [None] * len(headings))


def _cell_of(place: int, cell: Callable[[Row], str]) -> Callable[[Row], str]:
    """The cell of a scheme for one of its jobs."""
    return lambda row: cell(row["jobs"][place]) if row.get("jobs") else NOTHING


def _columns(job: Row) -> list[tuple[str, Callable[[Row], str]]]:
    """Headings and cells of the figures of a job."""
    if "bubble_share" in job:
        return [
            ("time of transfers", _figure("time_s", time_figure)),
            ("computation of a rank", lambda of: _or_nothing(of["compute_s"], time_text)),
            ("bubble share", lambda of: _or_nothing(of["bubble_share"], percent_text)),
        ]
    return [
        (f"time of {job['collective']}", _figure("time_s", time_figure)),
        ("algbw", _figure("algbw_bps", rate_figure)),
        ("busbw", _figure("busbw_bps", rate_figure)),
        ("time of a step", _figure("step_s", time_figure)),
        (f"ideal time, {job['algorithm']}", lambda of: _or_nothing(of["ideal_s"], time_text)),
        ("over the ideal", _figure("slowdown", times_figure)),
        (f"ideal time, best ({job['best']})", lambda of: _or_nothing(of["best_ideal_s"], time_text)),
        ("over the best ideal", _figure("slowdown_of_best", times_figure)),
    ]


def _figure(key: str, text: FigureText) -> Callable[[Row], str]:
    return lambda of: NOTHING if of[key] is None else measured(text, of[key], of.get(f"{key}_ci95"))


def _or_nothing(value: float | None, text: Callable[[float], str]) -> str:
    return NOTHING if value is None else text(value)


def delay_lines(schemes: Sequence[Row]) -> list[str]:
    """A sentence for each scheme and job about what delayed it."""
    lines = []
    for row in schemes:
        jobs = row.get("jobs") or []
        for place, job in enumerate(jobs):
            if job["delay"] is None:
                continue
            which = f"{row['scheme']}, job {place + 1}" if len(jobs) > 1 else row["scheme"]
            lines.append(f"{which}: {_delay_text(job['delay'], len(row['runs']))}.")
    return lines


def _delay_text(delay: Row, runs: int) -> str:
    slowest, link = delay["slowest"], delay["busiest_link"]
    said = [
        f"rank {delay['last_rank']} ({delay['last_host']}) finished last, after a chain of "
        f"{counted(delay['transfers'], 'transfer')}",
        f"the slowest of them was {slowest['src']} → {slowest['dst']}, {time_text(slowest['fct_s'])}, "
        f"{times_figure(slowest['slowdown'])} its ideal",
    ]
    if link is not None:
        busy = time_text(link["busy_s"])
        said.append(
            f"the most utilised link of its path was {link['source']} → {link['target']}, which sent for {busy}"
        )
    if runs > 1:
        said.append(f"the same pair was the slowest in {delay['runs']} of {runs} runs")
    return "; ".join(said)
