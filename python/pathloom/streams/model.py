"""The number of streams that a path can use: n = max(1, a·B·R), and the fit of `a` to measurements.

`a` has the paper's unit: streams per Mbit/s of bandwidth and per millisecond of latency.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pathloom import _core
from pathloom.errors import bad_input, reason

COLUMNS: Final = ("streams", "bandwidth", "latency", "seconds")
"""Columns of a file of measurements. Bandwidth and latency have units: 50Mbps, 20ms."""

UNITS_BPS: Final = {"bps": 1.0, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9, "Tbps": 1e12}


@dataclass(frozen=True, slots=True)
class Measured:
    """The time of one transfer."""

    streams: int
    rate_bps: float
    latency_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Best:
    """The number of streams with the shortest time at one bandwidth and latency."""

    rate_bps: float
    latency_s: float
    streams: int

    @property
    def product(self) -> float:
        """Bandwidth times latency, in Mbit/s · ms."""
        return self.rate_bps / 1e6 * self.latency_s * 1e3


@dataclass(frozen=True, slots=True)
class Fit:
    """`a`, fitted in two ways."""

    mean: float
    """Mean of n/(B·R) over the best numbers (as published)."""
    least_squares: float
    """Minimises the sum of (n − a·B·R)²."""
    best: tuple[Best, ...]
    """The best number at each bandwidth and latency that was measured."""


def parse_rate_bps(text: str) -> float:
    """Parses a rate with its unit, in bit/s.

    >>> parse_rate_bps("100Mbps"), parse_rate_bps("728.4 Mbps")
    (100000000.0, 728400000.0)
    """
    number = text.strip().rstrip("bpskMGT").rstrip()
    factor = UNITS_BPS.get(text.strip()[len(number) :].strip())
    try:
        rate_bps = float(number) * (factor or math.nan)
    except ValueError:
        rate_bps = math.nan
    if not 0 < rate_bps < math.inf:
        units = ", ".join(UNITS_BPS)
        raise bad_input(f"`{text}` is not a rate; expected a number above 0 with {units}, such as 50Mbps")
    return rate_bps


def predicted(a: float, rate_bps: float, latency_s: float) -> float:
    """Returns max(1, a·B·R), not rounded (parallel TCP eq. 8)."""
    return max(1.0, a * (rate_bps / 1e6) * (latency_s * 1e3))


def optimum(a: float, rate_bps: float, latency_s: float) -> int:
    """The number of streams that a path can use, rounded to the nearest as in Table 2 of the paper.

    >>> [optimum(0.000065, mbps * 1e6, ms / 1e3) for mbps, ms in ((728.4, 191), (638, 183), (916, 211), (780.5, 191))]
    [9, 8, 13, 10]
    """
    return math.floor(predicted(a, rate_bps, latency_s) + 0.5)


def fit(measurements: Iterable[Measured]) -> Fit:
    """Fits `a` to the number of streams with the shortest time at each bandwidth and latency; the smaller one in a tie.

    Measurements without latency are not used for the fit: they do not depend on `a`. Raises `PathloomError` if there
    are no others.
    """
    times: dict[tuple[float, float], list[tuple[float, int]]] = defaultdict(list)
    for one in measurements:
        times[one.rate_bps, one.latency_s].append((one.seconds, one.streams))
    best = tuple(Best(rate_bps, latency_s, min(rows)[1]) for (rate_bps, latency_s), rows in sorted(times.items()))
    used = [one for one in best if one.product > 0]
    if not used:
        raise bad_input("no measurement has a latency above 0; `a` cannot be fitted without one")
    mean = sum(one.streams / one.product for one in used) / len(used)
    least_squares = sum(one.streams * one.product for one in used) / sum(one.product**2 for one in used)
    return Fit(mean, least_squares, best)


def read_measurements(file: Path) -> list[Measured]:
    """Reads a CSV file with the columns of `COLUMNS`. Raises `PathloomError`, which names the line."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise bad_input(f"{file}: cannot be read: {reason(error)}") from None
    if not rows or [name.strip() for name in rows[0]] != list(COLUMNS):
        raise bad_input(f"{file}: line 1: expected the columns {','.join(COLUMNS)}")
    measurements = [_measured(f"{file}: line {number}", row) for number, row in enumerate(rows[1:], 2) if row]
    if not measurements:
        raise bad_input(f"{file}: has no measurement; expected lines such as 4,50Mbps,60ms,377.1")
    return measurements


def _measured(place: str, row: Sequence[str]) -> Measured:
    if len(row) != len(COLUMNS):
        raise bad_input(f"{place}: has {len(row)} columns; expected {','.join(COLUMNS)}")
    try:
        measured = Measured(int(row[0]), parse_rate_bps(row[1]), _core.parse_time_s(row[2].strip()), float(row[3]))
    except ValueError as error:
        raise bad_input(f"{place}: {error}; expected a line such as 4,50Mbps,60ms,377.1") from None
    if measured.streams < 1 or not 0 < measured.seconds < math.inf:
        raise bad_input(f"{place}: expected 1 stream or more, and a time above 0")
    return measured
