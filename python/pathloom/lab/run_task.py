"""Tasks that run in threads during a run in the lab."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event, Thread

from pathloom.errors import ToolError


class RunTask(ABC):
    """A task that begins with a run, and ends with it at the latest."""

    def __init__(self) -> None:
        self._over = Event()
        """Set when the run ends; the task then stops."""
        self._failure: ToolError | None = None
        self._thread: Thread | None = None

    def begin(self, zero_ns: int) -> None:
        """Starts the task. `zero_ns`: time 0 of the run by the monotonic clock. Further calls have no effect."""
        if self._thread is None:
            self._thread = Thread(target=self._run, args=(zero_ns,), name=type(self).__name__, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Ends the task. Raises `ToolError` if it has failed."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self, zero_ns: int) -> None:
        try:
            self._carry_out(zero_ns)
        except ToolError as error:
            self._failure = error

    @abstractmethod
    def _carry_out(self, zero_ns: int) -> None:
        """Carries out the task until `_over` is set. Raises `ToolError`."""
