"""Progress of a list of runs: a bar in a notebook, and one line per minute where there is no terminal."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from pathloom.experiments.settings.model import Job

if TYPE_CHECKING:
    from pathloom.experiments.running.work import JobProgress

LINE_EVERY_S = 60.0
BAR_EVERY_S = 0.3
BAR_AFTER_S = 1.0
"""A notebook shows no bar if the runs end before this time."""

Clock = Callable[[], float]
Show = Callable[[float, int], None]
"""Shows the share of all work that is done, and the number of finished runs."""


class Shares:
    """The finished share of each run. Several threads may report at the same time."""

    def __init__(
        self, what: str, runs: int, clock: Clock = time.monotonic, weights: Mapping[Job, float] | None = None
    ) -> None:
        """`weights`: the work of each run, in any unit. Without weights, all runs count the same."""
        self.what, self.runs = what, runs
        self._clock, self._begin = clock, clock()
        self._weights = weights or {}
        self._total = math.fsum(self._weights.values()) or float(runs)
        self._shares: dict[Job, float] = {}
        self._done, self._finished = 0.0, 0
        self._lock = threading.Lock()

    def note(self, job: Job, share: float, show: Show) -> None:
        """Records the share of a run, and calls `show`.

        Only one thread at a time is in `show`. Hence no thread shows its state after a later one was shown.
        """
        with self._lock:
            before = self._shares.get(job, 0.0)
            self._shares[job] = share
            self._done += self._weight(job) * (share - before)
            self._finished += (share >= 1.0) - (before >= 1.0)
            done = 1.0 if self._finished >= self.runs else min(self._done / self._total, 1.0)
            show(done, self._finished)

    def _weight(self, job: Job) -> float:
        return self._weights.get(job, 0.0) if self._weights else 1.0

    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begin

    def text(self, done: float, finished: int) -> str:
        """The progress in one line.

        >>> shares = Shares("compare", 12, clock=iter([0.0, 90.0]).__next__)
        >>> shares.text(0.375, 4)
        'compare: 4 of 12 runs finished, 38 %, 1 min 30 s elapsed, about 2 min 30 s left'
        """
        elapsed_s = self.elapsed_s()
        left = f", about {minutes(elapsed_s * (1.0 - done) / done)} left" if 0 < done < 1 else ""
        share = f"{100 * done:.0f} %"
        return f"{self.what}: {finished} of {self.runs} runs finished, {share}, {minutes(elapsed_s)} elapsed{left}"


def minutes(time_s: float) -> str:
    """A time in hours, minutes and seconds.

    >>> minutes(42.3), minutes(150.0), minutes(7300.0)
    ('42 s', '2 min 30 s', '2 h 1 min')
    """
    whole = round(time_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def lines(shares: Shares, write: Callable[[str], None]) -> JobProgress:
    """Reports progress in one line per minute, for logs."""
    last_s = 0.0

    def show(done: float, finished: int) -> None:
        nonlocal last_s
        elapsed_s = shares.elapsed_s()
        if elapsed_s - last_s >= LINE_EVERY_S:
            last_s = elapsed_s
            write(shares.text(done, finished))

    return lambda job, share: shares.note(job, share, show)


@contextmanager
def showing_progress(what: str, runs: int) -> Iterator[JobProgress]:
    """Shows the progress of `compare` and `run`: a bar in a notebook, nothing elsewhere."""
    display = _display()
    if display is None:
        yield lambda _job, _share: None
        return
    bar = _Bar(Shares(what, runs), display)
    try:
        yield bar.report
    finally:
        bar.remove()


class _Bar:
    """A bar in the output of a notebook's cell."""

    def __init__(self, shares: Shares, display: Any) -> None:
        self._shares, self._display = shares, display
        self._handle: Any = None
        self._last_s = 0.0

    def report(self, job: Job, share: float) -> None:
        """Moves the bar at most once every `BAR_EVERY_S`."""
        self._shares.note(job, share, self._move)

    def _move(self, done: float, finished: int) -> None:
        elapsed_s = self._shares.elapsed_s()
        if elapsed_s >= BAR_AFTER_S and elapsed_s - self._last_s >= BAR_EVERY_S:
            self._last_s = elapsed_s
            self._show(_html(self._shares.text(done, finished), done))

    def _show(self, html: str) -> None:
        content = {"text/html": html, "text/plain": ""}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def remove(self) -> None:
        """Removes the bar from the cell."""
        if self._handle is not None:
            self._show("")


def _html(text: str, share: float) -> str:
    return f'<progress max="1" value="{share:.3f}" style="width: 16em"></progress> <span>{escape(text)}</span>'


def _display() -> Any:
    """IPython's function `display` if this process is the kernel of a notebook; None elsewhere."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython  # type: ignore[attr-defined,unused-ignore]
    from IPython.display import display

    shell: Any = get_ipython()  # type: ignore[no-untyped-call,unused-ignore]
    return display if shell is not None and hasattr(shell, "kernel") else None
