"""Threads that carry out runs and end soon after Ctrl-C.

The simulator does not hold the interpreter lock while it runs, so threads can use all cores. `Threads` carries out a
list of runs in this process; `pathloom.experiments.running.cluster` does it on several machines.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pathloom.errors import SchemeError
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.running.work import Ended, Progress, Take, Work

Result = TypeVar("Result")


class Threads:
    """Runs on threads of this process."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, works: Sequence[Work], progress: Progress, take: Take) -> Ended:
        """Carries out runs, as `Runner` describes. Runs in progress are abandoned within a slice of simulated time."""
        stop, lock = threading.Event(), threading.Lock()
        todo = iter(enumerate(works))
        errors: list[BaseException] = []
        failures: dict[int, SchemeError] = {}

        def work() -> None:
            while not stop.is_set():
                with lock:
                    place, one = next(todo, (0, None))
                if one is None:
                    return
                try:
                    outcome = one.execution.carry_out(one.job, stop, partial(progress, one))
                    if outcome is not None:
                        _hand_over(take, one, outcome, stop)
                except SchemeError as error:
                    failures[place] = error
                    stop.set()
                    return
                except BaseException as error:
                    errors.append(error)
                    stop.set()
                    return

        workers = [Worker(work, f"run-{number}") for number in range(min(self.count, len(works)))]
        interrupted = False
        try:
            for worker in workers:
                worker.start()
            await_all(workers)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            stop.set()
            # Ctrl-C may come between the start of two threads. A thread that has not begun yet stops when it begins.
            await_all([worker for worker in workers if worker.begun.is_set()])
        if errors:
            raise errors[0]
        return Ended(interrupted, failures[min(failures)] if failures else None)


def _hand_over(take: Take, work: Work, outcome: RunOutcome, stop: threading.Event) -> None:
    """Hands over a finished run, also if Ctrl-C comes meanwhile.

    Polars raises `KeyboardInterrupt` on each thread with a query, not on the main thread alone (polars #20961).
    """
    try:
        take(work, outcome)
    except KeyboardInterrupt:
        stop.set()
        take(work, outcome)


def interruptible(call: Callable[[], Result]) -> Result:
    """Calls the core on another thread, so that Python handles Ctrl-C during the call."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    worker = Worker(work, "prepare")
    worker.start()
    await_all([worker])
    if errors:
        raise errors[0]
    return results[0]


class Worker:
    """A thread with events for its begin and its end.

    `Thread.join` is not used: if Ctrl-C interrupts it, Python 3.11 regards a running thread as ended.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._whole, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def _whole(self) -> None:
        self.begun.set()
        try:
            self._work()
        finally:
            self.ended.set()


def await_all(workers: Sequence[Worker]) -> None:
    """Waits for threads to end in short waits: Python handles Ctrl-C between two waits."""
    for worker in workers:
        while not worker.ended.wait(0.1):
            pass


def default_threads() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
