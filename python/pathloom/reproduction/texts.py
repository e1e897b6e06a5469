"""Texts of a reproduced figure, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from pathloom.quantities import figure_in, is_zero
from pathloom.reproduction.definitions import PUBLISHED, Overrides, Setup
from pathloom.reproduction.library import FOLDER
from pathloom.reproduction.measure import Line, Reproduced, Value, is_far
from pathloom.specs import SIM

NOTHING = "–"
ALL = "all of it"
"""Label of a cause that applies to every row."""
SIGNS = {"exactly": "", "up to": "up to ", "at least": "≥ ", "at most": "≤ "}
TRENDS = {"above": "> 0", "below": "< 0", "level": "0"}
"""Published trends, as texts about the difference of two lines."""
HEADINGS = ["", "published", "measured", "difference"]


def number_text(value: float | None, unit: str = "") -> str:
    """A number in its significant digits, with its unit.

    >>> number_text(98.123, "%"), number_text(0.01234, "s"), number_text(None, "s"), number_text(1234.5)
    ('98.1 %', '0.0123 s', '–', '1234')
    >>> number_text(-0.62, "%"), number_text(-0.04, "%")
    ('−0.6 %', '0.0 %')
    """
    if value is None:
        return NOTHING
    size = abs(value)
    digits = f"{size:.1f}" if unit == "%" else f"{size:.0f}" if size >= 1000 else f"{size:.3g}"
    return f"{'−' if value < 0 and not is_zero(digits) else ''}{digits} {unit}".rstrip()


def value_text(value: Value, unit: str) -> str:
    """A mean with the half width of its confidence interval, in the same unit and decimals.

    >>> from pathloom.reproduction.measure import Value
    >>> value_text(Value(-99.9, 9.3e-5), "%"), value_text(Value(0.00803, 0.00148), "s")
    ('−99.9 ± 0.0 %', '8.03 ± 1.48 ms')
    >>> value_text(Value(1.6, None, "at least"), "s"), value_text(Value(None, None), "s")
    ('≥ 1.60 s', '–')
    """
    if value.mean is None:
        return NOTHING
    return SIGNS[value.bound] + figure_in(unit)(value.mean, value.ci95)


def published_text(line: Line) -> str:
    """The published number as text.

    >>> from pathloom.reproduction.measure import Value
    >>> published_text(Line("ECMP", "%", 67.5, "at most", Value(80.0, None), None))
    '≤ 67.5 %'
    >>> published_text(Line("TCP-Path", "%", (10.0, 20.0), "exactly", Value(48.0, None), None))
    '10.0 to 20.0 %'
    """
    if line.trend is not None:
        return TRENDS[line.trend]
    if isinstance(line.published, tuple):
        low, high = line.published
        return f"{number_text(low, line.unit).removesuffix(line.unit).rstrip()} to {number_text(high, line.unit)}"
    sign = SIGNS[line.bound]
    return sign + number_text(line.published, line.unit) if line.published is not None else NOTHING


def measured_text(line: Line) -> str:
    """The measured number as text, with the half width of its confidence interval."""
    return value_text(line.value, line.unit)


def difference_text(line: Line) -> str:
    """Measured minus published, with its sign, and with the decimals of the larger of both.

    >>> from pathloom.reproduction.measure import Value
    >>> difference_text(Line("ECMP", "%", 67.5, "exactly", Value(80.0, None), None))
    '+12.5 %'
    >>> difference_text(Line("TCP-Path", "%", (10.0, 20.0), "exactly", Value(18.0, None), None))
    'within'
    >>> difference_text(Line("more at load 0.9", "%", None, "exactly", Value(2.0, 3.0), None, "above"))
    'not clear'
    """
    if line.trend is not None and line.value.mean is not None:
        unclear = abs(line.value.mean) <= (line.value.ci95 or 0.0)
        return ("not clear" if unclear else "not so") if is_far(line) else "as published"
    if line.difference is None or line.published is None:
        return NOTHING
    ends = line.published if isinstance(line.published, tuple) else (line.published,)
    if len(ends) == 2 and line.difference == 0:
        return "within"
    size = max(abs(line.value.mean or 0.0), *map(abs, ends))
    return figure_in(line.unit).with_format_of(size).signed(line.difference, among=size)


def rows(published: Sequence[Line]) -> list[list[str]]:
    """Label, published, measured and difference of everything for which the paper prints a number or a trend."""
    return [[line.label, published_text(line), measured_text(line), difference_text(line)] for line in published]


def causes(published: Sequence[Line]) -> list[tuple[str, str]]:
    """The causes of differences: the labels of the rows with the same cause, and the cause."""
    by_cause: dict[str, list[str]] = {}
    for line in published:
        if line.cause is not None:
            by_cause.setdefault(line.cause, []).append(line.label)
    count = len(published)
    return [(ALL if 1 < len(labels) == count else "; ".join(labels), cause) for cause, labels in by_cause.items()]


def measured_table(result: Reproduced) -> tuple[list[str], list[list[str]]] | None:
    """Every point of a line picture, or of bars without published numbers; None for other pictures.

    There is a row for each place on the x axis, or each case, and a column for each scheme.
    """
    figure = result.figure
    is_table = figure.plot.kind == "lines" or (figure.plot.kind == "bars" and not figure.rows)
    if not is_table or not result.schemes:
        return None
    first = figure.plot.x or ("x" if figure.plot.kind == "lines" else "case")
    headings, table = [first], [[plan.case.label] for plan in result.plans]
    for label, measure in figure.plot.measures():
        for scheme in result.schemes:
            headings.append(", ".join(part for part in (figure.name_of(scheme), label) if part))
            for row, plan in zip(table, result.plans, strict=True):
                value = result.value(measure, plan.case.label, scheme)
                row.append(value_text(value, figure.plot.unit))
    return headings, table


def setup_lines(result: Reproduced, where: str = "published") -> list[tuple[str, str]]:
    """The set-up of the runs, as words and texts. Placeholders stay as in the file.

    Files that come with Pathloom get the folder `where`, by default that of the repository.
    """
    figure, first = result.figure, result.plans[0].settings
    setup = figure.setup
    lines = [("fabric", setup.fabric), ("traffic", setup.traffic)]
    lines += [(word, text) for word, text in (("transport", setup.transport), ("control", setup.control)) if text]
    lines += [("world", "network namespaces, Open vSwitch, the native controller")] if result.world != SIM else []
    cases = [_case_text(plan.case.label, plan.case, setup) for plan in result.plans if plan.case.label]
    if figure.x:
        lines.append(("x", ", ".join(plan.case.label for plan in result.plans)))
    elif cases:
        lines.append(("cases", "; ".join(cases)))
    runs = f"{first.runs} run{'s' if first.runs > 1 else ''} of {first.duration} per scheme, seed {result.seed}"
    fewer = result.form != PUBLISHED and (first.runs, first.duration) != (setup.runs, setup.duration)
    whole = "as published" if figure.rows else "in full"
    lines.append(("runs", f"{runs} ({whole}: {setup.runs} of {setup.duration})" if fewer else runs))
    if result.form.quick:
        changed = figure.quick.model_dump(exclude={"runs", "duration", "cases", "shorten"}, exclude_none=True)
        lines += [(f"quick {word}", str(text)) for word, text in changed.items()]
    return [(word, text.replace(str(FOLDER), where)) for word, text in lines]


def _case_text(label: str, case: Overrides, setup: Setup) -> str:
    given = case.model_dump(exclude={"label", "x"}, exclude_none=True)
    changes = [
        f"{value if isinstance(value, str) else ', '.join(map(str, value)) if isinstance(value, tuple) else value}"
        for key, value in given.items()
        if value != getattr(setup, key)
    ]
    return f"{label}: {', '.join(changes)}" if changes else label


def command(result: Reproduced) -> str:
    """The command that repeats these numbers."""
    form = " --quick" if result.form.quick else ""
    form += f" --shorten {result.form.shorten:g}" if result.form.shorten != 1.0 else ""
    world = f" --world {result.world}" if result.world != SIM else ""
    seed = f" --seed {result.seed}" if result.seed != 1 else ""
    return f"pathloom reproduce {result.figure.id}{form}{world}{seed}"
