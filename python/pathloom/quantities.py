"""Quantities as text: rates, sizes, times, counts and figures of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


def rate_text(rate_bps: float) -> str:
    """A rate with its unit.

    >>> rate_text(10_000_000), rate_text(2_500_000_000)
    ('10 Mbit/s', '2.5 Gbit/s')
    """
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if rate_bps >= size:
            return f"{rate_bps / size:g} {unit}"
    return f"{rate_bps:g} bit/s"


def size_text(size_bytes: float) -> str:
    """A size with its unit, in three significant digits.

    >>> size_text(1_606_320), size_text(950), size_text(0)
    ('1.61 MB', '950 B', '0 B')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size_bytes >= 0.9995 * size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """A time with its unit, in three significant digits.

    >>> time_text(0.002), time_text(30.0), time_text(1e-5), time_text(0.0)
    ('2 ms', '30 s', '10 µs', '0 s')
    """
    if seconds == 0:
        return "0 s"
    if seconds >= 999.5:
        return f"{seconds:.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9999:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def time_spec(ns: int) -> str:
    """A time in the form that specifications use.

    >>> time_spec(200_000_000), time_spec(1_500), time_spec(5), time_spec(0)
    ('200ms', '1.5us', '5ns', '0s')
    """
    if ns == 0:
        return "0s"
    unit, size = next(
        (unit, size) for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)) if ns >= size
    )
    return f"{ns / size:.12g}{unit}"


def share_text(value: float) -> str:
    """A throughput between 0 and 1, as text.

    >>> share_text(0.9816), share_text(0.00042)
    ('0.982', '0.00042')
    """
    return f"{value:.3f}" if value >= 0.01 or value == 0 else f"{value:.2g}"


def percent_text(value: float) -> str:
    """A share in per cent, with two significant digits.

    >>> percent_text(0.1234), percent_text(0.00051), percent_text(0.0)
    ('12 %', '0.051 %', '0 %')
    """
    return f"{100 * value:.2g} %" if value < 0.995 else "100 %"


def count_text(value: float) -> str:
    """A whole number, with thin spaces between thousands.

    >>> count_text(12345).split()
    ['12', '345']
    """
    return f"{round(value):,}".replace(",", "\u202f")


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "run"), counted(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """A list of names for a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def seeds_text(seeds: Sequence[int]) -> str:
    """A list of seeds for a sentence.

    >>> seeds_text([]), seeds_text([4]), seeds_text(range(1, 4)), seeds_text([1, 2, 5])
    ('no run', 'seed 4', 'seeds 1 to 3', 'seeds 1, 2 and 5')
    """
    if not seeds:
        return "no run"
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seed{'' if len(seeds) == 1 else 's'} {listed([str(seed) for seed in seeds])}"


def is_zero(digits: str) -> bool:
    """Whether a rounded number is zero, so that it is written without a sign.

    >>> is_zero("0.00 %"), is_zero("0.01 %")
    (True, False)
    """
    return not any(digit in "123456789" for digit in digits)


SAME = " (same in all runs)"
"""Stands in place of an interval if the runs have the same value, as deterministic runs have."""


@dataclass(frozen=True)
class FigureText:
    """Format of a figure in tables: with its significant digits, and its interval in the same unit and decimals."""

    shape: Callable[[float], tuple[float, int, str]]
    """For the size of a figure: the size of its unit, the number of decimals, and the unit with the space before it."""
    thousands: str = ""
    """Separator between thousands."""

    def __call__(self, value: float, half: float | None = None) -> str:
        """A figure, with the half width of its confidence interval if there is one.

        A half width of exactly 0 is no interval: all runs have the same value.

        >>> time_figure(0.026), time_figure(-2.63, 0.812), time_figure(0.0), time_figure(5e-9, 0.0)
        ('26.0 ms', '−2.63 ± 0.81 s', '0 s', '5.00 ns (same in all runs)')
        >>> share_figure(0.9816), share_figure(0.00042), share_figure(0.396, 0.0017), times_figure(400.88)
        ('0.982', '0.00042', '0.396 ± 0.002', '401 x')
        """
        size, decimals, unit = self.shape(_larger(value, half))
        digits = f"{abs(value) / size:,.{decimals}f}"
        sign = "−" if value < 0 and not is_zero(digits) else ""
        after = f" ± {half / size:,.{decimals}f}" if half else ""
        same = SAME if half == 0 else ""
        return f"{sign}{digits}{after}{unit}".replace(",", self.thousands) + same

    def signed(self, value: float, half: float | None = None, among: float = 0.0) -> str:
        """A difference with its sign. It is zero if it is too small for the decimals of a figure as large as `among`.

        >>> time_figure.signed(-0.0005, 0.0183), time_figure.signed(-2.84e-14, None, 0.1), share_figure.signed(0.02)
        ('−0.5 ± 18.3 ms', '0 s', '+0.020')
        """
        size, decimals, _ = self.shape(among)
        if max(abs(value), half or 0.0) < 0.5 * size * 10**-decimals and among:
            # A tiny half width stays one: it is not 0, as runs differ.
            return self(0.0, half and 1e-3 * size * 10**-decimals)
        text = self(value, half)
        return f"+{text}" if value > 0 and not is_zero(text.partition(" ± ")[0]) else text

    def with_format_of(self, value: float) -> FigureText:
        """The same format, but with the unit and the decimals of `value` for every figure.

        >>> time_figure.with_format_of(22.5).signed(-0.927), time_figure.with_format_of(2.09)(2.0)
        ('−0.9 s', '2.00 s')
        """
        shape = self.shape(abs(value))
        return FigureText(lambda _: shape, self.thousands)


def _larger(value: float, half: float | None) -> float:
    """The value that decides the decimals: the figure itself, unless its interval is more than ten times larger."""
    return max(abs(value), half or 0.0) if abs(value) < (half or 0.0) / 10 else abs(value)


def _decimals(value: float, digits: int) -> int:
    """Number of decimals of a value that is written with `digits` significant digits.

    >>> [_decimals(value, 3) for value in (0.5, 2.0, 9.996, 30.4, 178.0, 2500.0)]
    [3, 2, 1, 1, 0, 0]
    """
    return max(digits - 1 - int(f"{value:.{digits - 1}e}".partition("e")[2]), 0)


def _time_shape(seconds: float) -> tuple[float, int, str]:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:
            return size, _decimals(seconds / size, 3), f" {unit}"
    return (1e-9, _decimals(seconds / 1e-9, 3), " ns") if seconds >= LEAST_TIME_S else (1.0, 0, " s")


def _rate_shape(rate_bps: float) -> tuple[float, int, str]:
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if rate_bps >= 0.9995 * size:
            return size, _decimals(rate_bps / size, 3), f" {unit}"
    return 1.0, _decimals(rate_bps, 3) if rate_bps else 0, " bit/s"


LEAST_TIME_S = 5e-12
"""Shorter times are written as 0 s: they are rounding errors of a difference."""
time_figure = FigureText(_time_shape)
rate_figure = FigureText(_rate_shape)
"""A rate in bit/s: `rate_figure(1.234e9, 2e7)` is `1.23 ± 0.02 Gbit/s`."""
share_figure = FigureText(lambda share: (1.0, 3 if share >= 0.01 or share == 0 else _decimals(share, 2), ""))
percent_figure = FigureText(lambda _: (1.0, 1, " %"))
times_figure = FigureText(lambda ratio: (1.0, 2 if ratio < 99.995 else 0, " x"))

count_figure = FigureText(lambda _: (1.0, 0, ""), thousands="\u202f")


def figure_in(unit: str) -> FigureText:
    """Format of the figures of a unit: `%`, `s`, an empty text for counts, or any other unit in three digits.

    >>> figure_in("Mbit/s")(751.2, 3.46e-13), figure_in("")(3.0), figure_in("%")(98.7, 0.04)
    ('751 ± 0 Mbit/s', '3', '98.7 ± 0.0 %')
    """
    known = {"%": percent_figure, "s": time_figure}
    behind = f" {unit}" if unit else ""
    return known.get(unit) or FigureText(lambda size: (1.0, 0 if size == round(size) else _decimals(size, 3), behind))


def measured(text: Callable[[float], str], value: float, half: float | None = None) -> str:
    """A figure with its interval, formatted by `text`."""
    if half is None:
        return text(value)
    return text(value, half) if isinstance(text, FigureText) else f"{text(value)} ± {text(half)}"
