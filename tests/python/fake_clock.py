"""A clock that tests advance. Who waits by it returns at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FakeClock:
    """Starts at 0 and advances only when somebody sleeps."""

    time_s: float = 0.0

    def now_s(self) -> float:
        """Returns the time, in seconds."""
        return self.time_s

    def sleep(self, time_s: float) -> None:
        """Advances the time."""
        self.time_s += time_s
