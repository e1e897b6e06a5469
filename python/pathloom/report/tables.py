"""The tables of a report, as rows of text: the page and the terminal print the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathloom.experiments.definitions import SIZE_CLASSES
from pathloom.experiments.summary import paired_differences
from pathloom.words import count_text, percent_text, share_text, time_text

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Headings and rows; the first column names the scheme."""

    headings: list[str]
    rows: list[list[str]]
    best: list[int | None]
    """For each column the row with the best value; None where there is none or where it does not stand out."""


Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Column:
    heading: str
    value: Callable[[Row], float | None]
    text: Callable[[float], str]
    better: str | None = None
    """`high`, `low`, or None where more is neither better nor worse."""
    half: Callable[[Row], float | None] = lambda _row: None


def main_table(schemes: Sequence[Row]) -> Table:
    """Throughput, FCT and unfinished flows of each scheme."""
    columns = [
        _Column(
            "throughput",
            lambda row: row["throughput"]["mean"],
            share_text,
            "high",
            lambda row: row["throughput"]["ci95"],
        ),
        _Column("of the optimum", _of_optimum("throughput"), _exact_percent_text, "high"),
        _Column("worst 5 %", lambda row: row["throughput"]["p5"], share_text, "high"),
        _Column("worst flow", lambda row: row["throughput"]["min"], share_text, "high"),
        _Column("mean FCT", lambda row: row["fct_s"]["mean"], time_text, "low", lambda row: row["fct_s"]["ci95"]),
        _Column("over the ideal", _of_optimum("fct_s"), _times_text, "low"),
        *(_Column(f"p{percent} FCT", _fct(f"p{percent}"), time_text, "low") for percent in (50, 95, 99)),
        *(
            _Column(plural, _fct(name), time_text, "low")
            for name, plural in zip(SIZE_CLASSES, ("mice", "rabbits", "elephants"), strict=True)
        ),
        _Column("unfinished", _unfinished, count_text, "low"),
    ]
    return _table(schemes, columns)


def control_table(schemes: Sequence[Row]) -> Table:
    """What control and losses cost each scheme, per run."""

    def per_run(key: str, name: str | None = None) -> Callable[[Row], float | None]:
        def value(row: Row) -> float | None:
            total = row[key] if name is None else row[key].get(name)
            return total / len(row["runs"]) if row["runs"] and total is not None else None

        return value

    columns = [
        _Column("control messages", per_run("control", "messages"), count_text),
        _Column("most rules in a switch", lambda row: row["control"]["rules_max"], count_text),
        _Column("reroutes", per_run("control", "reroutes"), count_text),
        _Column("controller busy", lambda row: row["control"]["busy_share"], percent_text),
        _Column("packets dropped", _dropped_share, percent_text),
        _Column("segments sent again", per_run("retransmits"), count_text),
        _Column("time-outs", per_run("timeouts"), count_text),
    ]
    return _table(schemes, columns)


def difference_table(schemes: Sequence[Row]) -> Table | None:
    """Each scheme's difference to the first one, run by run; None when there is nothing to compare."""
    done = [row for row in schemes if row["runs"]]
    if len(done) < 2 or all(len(row["runs"]) < 2 for row in done):
        return None
    throughput = paired_differences(done, lambda run: run["throughput"]["mean"], 0)
    fct = paired_differences(done, lambda run: run["fct_s"]["mean"], 0)
    rows = [
        [
            f"{row['scheme']} − {done[0]['scheme']}",
            *_difference(more, share_text, "more"),
            *_difference(longer, time_text, "longer"),
        ]
        for row, more, longer in zip(done[1:], throughput[1:], fct[1:], strict=True)
    ]
    return Table(["", "throughput", "", "mean FCT", ""], rows, [None] * 5)


def _difference(
    difference: Mapping[str, float | None] | None, text: Callable[[float], str], word: str
) -> tuple[str, str]:
    if difference is None or difference["mean"] is None:
        return NOTHING, ""
    mean, half = difference["mean"], difference["ci95"]
    sign = "+" if mean > 0 else "−" if mean < 0 else "±"
    if half is None:
        return f"{sign}{text(abs(mean))}", ""
    opposite = {"more": "less", "longer": "shorter"}[word]
    verdict = "no clear difference" if abs(mean) <= half else word if mean > 0 else opposite
    return f"{sign}{text(abs(mean))} ± {text(half)}", verdict


def _fct(name: str) -> Callable[[Row], float | None]:
    return lambda row: row["fct_s"][name]


def _of_optimum(key: str) -> Callable[[Row], float | None]:
    return lambda row: row.get("of_optimum", {}).get(key)


def _exact_percent_text(share: float) -> str:
    return f"{100 * share:.1f} %"


def _times_text(ratio: float) -> str:
    return f"{ratio:.2f} x" if ratio < 99.995 else f"{ratio:.0f} x"


def _unfinished(row: Row) -> float | None:
    flows = row["flows"]
    return flows["unfinished"] if flows["offered"] > flows["long_lived"] else None


def _dropped_share(row: Row) -> float | None:
    sent = row["packets"]["sent"]
    return row["packets"]["dropped"] / sent if sent else None


def _table(schemes: Sequence[Row], columns: Sequence[_Column]) -> Table:
    """Cells of the columns that any scheme has a value for."""
    values = {column.heading: [column.value(row) if row["runs"] else None for row in schemes] for column in columns}
    used = [column for column in columns if any(value is not None for value in values[column.heading])]
    rows = []
    for index, row in enumerate(schemes):
        cells = [row["scheme"]]
        for column in used:
            value, half = values[column.heading][index], column.half(row)
            cell = NOTHING if value is None else column.text(value)
            cells.append(f"{cell} ± {column.text(half)}" if value is not None and half is not None else cell)
        rows.append(cells)
    best = [None, *(_best(values[column.heading], column.better) for column in used)]
    return Table(["scheme", *(column.heading for column in used)], rows, best)


def _best(values: Sequence[float | None], better: str | None) -> int | None:
    known = [value for value in values if value is not None]
    if better is None or len(known) < 2 or len(set(known)) == 1:
        return None
    return values.index(max(known) if better == "high" else min(known))
