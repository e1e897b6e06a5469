"""Waits for an event, in one place: with a bound, and with a clock that tests replace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What a program needs to wait."""

    def now_s(self) -> float:
        """Returns the time since any fixed moment, in seconds. It never goes back."""

    def sleep(self, time_s: float) -> None:
        """Returns after so many seconds."""


class SystemClock:
    """The clock of the machine."""

    def now_s(self) -> float:
        """Returns the time since the machine has started, in seconds."""
        return time.monotonic()

    def sleep(self, time_s: float) -> None:
        """Returns after so many seconds."""
        time.sleep(time_s)


SYSTEM = SystemClock()


def await_event(has_happened: Callable[[], bool], patience_s: float, every_s: float, clock: Clock = SYSTEM) -> bool:
    """Waits until `has_happened` returns True, and returns whether it did so within `patience_s`.

    It looks once at least, every `every_s` after that, and once more at the end: who was not awake meanwhile is not
    late. An exception of `has_happened` ends the wait.
    """
    deadline_s = clock.now_s() + patience_s
    while not has_happened():
        left_s = deadline_s - clock.now_s()
        if left_s <= 0:
            return False
        clock.sleep(min(every_s, left_s))
    return True
