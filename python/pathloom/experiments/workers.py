"""Threads that carry out runs, and that end soon after Ctrl-C.

The simulator does not hold the interpreter while it runs, so threads are all it takes to use every core. `Threads` is
one way to carry out a list of runs; `pathloom.experiments.cluster` has another, over machines.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from pathloom.errors import SchemeError, ToolError

if TYPE_CHECKING:
    from pathloom.experiments.execution import Execution, RunOutcome
    from pathloom.experiments.settings import Job

Result = TypeVar("Result")


@dataclass(frozen=True)
class Work:
    """A run that is to be carried out, and the experiment that it belongs to."""

    execution: Execution
    job: Job
    place: str = ""
    """What the experiment is called where there are several."""


@dataclass(frozen=True)
class Ended:
    """How a list of runs ended."""

    interrupted: bool = False
    """Whether Ctrl-C ended it early."""
    failure: SchemeError | ToolError | None = None
    """What else ended it early, such as a scheme written in Python that failed."""

    @property
    def early(self) -> bool:
        """Whether runs are missing."""
        return self.interrupted or self.failure is not None


Progress = Callable[[Work, float], None]
"""Called with the share (0..1) of a run that is done; from several threads."""
Take = Callable[[Work, "RunOutcome"], None]
"""Called with each run as soon as it is finished; from several threads."""


class Runner(Protocol):
    """What carries out runs. Their figures do not depend on it."""

    @property
    def count(self) -> int:
        """Runs that it carries out at once."""
        ...

    def run(self, works: Sequence[Work], progress: Progress, take: Take) -> Ended:
        """Carries out runs, begun in this order.

        After a Ctrl-C the runs under way are given up soon. A scheme that fails ends the runs likewise. Any other error
        in a run ends the others and is raised.
        """
        ...


class Threads:
    """Runs on threads of this process."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, works: Sequence[Work], progress: Progress, take: Take) -> Ended:
        """See `Runner`. Runs under way are given up within a slice of simulated time."""
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
                        take(one, outcome)
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
            # A Ctrl-C may have come between two of them. One that has not begun by now finds that it should stop.
            await_all([worker for worker in workers if worker.begun.is_set()])
        if errors:
            raise errors[0]
        return Ended(interrupted, failures[min(failures)] if failures else None)


def interruptible(call: Callable[[], Result]) -> Result:
    """Makes a call into the core on another thread, so that Ctrl-C is answered while it lasts."""
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
    """A thread that tells when it has begun and when it has ended.

    `Thread.join` will not do: a Ctrl-C that comes in it makes Python 3.11 take a thread that still runs for one that
    has ended.
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
    """Waits for threads to end, and wakes up often: Python answers Ctrl-C between two waits."""
    for worker in workers:
        while not worker.ended.wait(0.1):
            pass


def default_threads() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
