"""Quantities as people write them."""

from __future__ import annotations


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
    """A size with its unit, in three digits that count.

    >>> size_text(1_606_320), size_text(950), size_text(0)
    ('1.61 MB', '950 B', '0 B')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size_bytes >= 0.9995 * size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """A time with its unit, in three digits that count.

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


def share_text(value: float) -> str:
    """A throughput, 0 to 1.

    >>> share_text(0.9816), share_text(0.00042)
    ('0.982', '0.00042')
    """
    return f"{value:.3f}" if value >= 0.01 or value == 0 else f"{value:.2g}"


def percent_text(value: float) -> str:
    """A share in per cent, with two digits that count.

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
    """A count and what is counted.

    >>> counted(1, "run"), counted(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def seeds_text(first: int, runs: int) -> str:
    """The seeds of so many runs.

    >>> seeds_text(1, 1), seeds_text(1, 3)
    ('seed 1', 'seeds 1 to 3')
    """
    return f"seed {first}" if runs == 1 else f"seeds {first} to {first + runs - 1}"
