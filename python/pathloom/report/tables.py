"""The tables of a report as rows of text, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathloom.experiments.results.definitions import SIZE_CLASSES
from pathloom.experiments.results.summary import paired_differences
from pathloom.experiments.results.verdicts import (
    COMPLETION,
    FCT,
    THROUGHPUT,
    Figure,
    Verdict,
    all_pairs,
    figure_of,
    is_bound,
    ranking,
    verdict,
)
from pathloom.experiments.results.yardstick import of_optimum
from pathloom.quantities import (
    FigureText,
    count_text,
    measured,
    percent_text,
    share_figure,
    size_text,
    time_figure,
    time_text,
    times_figure,
)

NOTHING = "–"
PLURALS = dict(zip(SIZE_CLASSES, ("mice", "rabbits", "elephants"), strict=True))
"""Plurals of the names of size classes."""
AT_LEAST, AT_MOST = "≥ ", "≤ "
"""Signs before a figure that is a bound because of unfinished flows."""
PAIRS_FROM = 3
"""Number of schemes from which there is a table of all pairs."""


def best_text(place: str, schemes: Sequence[Row]) -> str:
    """What the mark of the best scheme of a place says; `schemes` are those compared there."""
    several_pairs = sum(len(row["runs"]) > 1 for row in schemes) >= PAIRS_FROM
    corrected = ", corrected for the number of pairs (Holm)" if several_pairs else ""
    return (
        f"clearly the best {place}: more than 1 % ahead of every other scheme, taken run by run, "
        f"with a probability by chance below 5 %{corrected}."
    )


@dataclass(frozen=True)
class Table:
    """Headings and rows; the first column names the scheme."""

    headings: list[str]
    rows: list[list[str]]
    best: list[int | None]
    """For each column the row that is clearly better than all others; None if there is none."""

    def without_empty_columns(self) -> Table:
        """The same table without the columns that say nothing about any scheme."""
        used = [
            place
            for place in range(len(self.headings))
            if place == 0 or not self.rows or any(row[place] not in ("", NOTHING) for row in self.rows)
        ]
        rows = [[row[place] for place in used] for row in self.rows]
        return Table([self.headings[place] for place in used], rows, [self.best[place] for place in used])

    def has_best(self) -> bool:
        """Whether any value is marked as the best."""
        return any(place is not None for place in self.best)

    def has_bounds(self) -> bool:
        """Whether any value is a bound."""
        return any(cell.startswith((AT_LEAST, AT_MOST)) for row in self.rows for cell in row[1:])


Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Column:
    heading: str
    value: Callable[[Row], float | None]
    """Returns the value of a scheme or of a run."""
    text: Callable[[float], str]
    better: str | None = None
    """`high`, `low`, or None if a larger value is neither better nor worse."""
    half: Callable[[Row], float | None] = lambda _row: None
    is_bound: Callable[[Row], bool] = lambda _row: False

    @property
    def bound_sign(self) -> str:
        """Sign of a bound: unfinished flows will take longer than now, and reach less throughput."""
        return AT_MOST if self.better == "high" else AT_LEAST


def main_table(schemes: Sequence[Row]) -> Table:
    """Throughput, FCT, slowdown, completion times and unfinished flows of each scheme."""
    columns = [
        _column("mean throughput", "throughput", "mean", share_figure, "high"),
        _Column(
            "of the optimum", _ratio("throughput"), _exact_percent_text, "high", is_bound=_cut("throughput", "mean")
        ),
        _column("p5 throughput", "throughput", "p5", share_figure, "high"),
        _column("min throughput", "throughput", "min", share_figure, "high"),
        _column("Jain's index", "throughput", "jain", share_figure, "high"),
        _column("mean FCT", "fct_s", "mean", time_figure),
        _Column("over the ideal", _ratio("fct_s"), times_figure, "low", is_bound=_cut("fct_s", "mean")),
        *(_column(f"p{percent} FCT", "fct_s", f"p{percent}", time_figure) for percent in (50, 95, 99)),
        *(_column(f"mean FCT, {plural}", "fct_s", name, time_figure) for name, plural in PLURALS.items()),
        _column("mean slowdown", "slowdown", "mean", times_figure),
        *(_column(f"p{percent} slowdown", "slowdown", f"p{percent}", times_figure) for percent in (50, 95, 99)),
        *(_column(f"mean slowdown, {plural}", "slowdown", name, times_figure) for name, plural in PLURALS.items()),
        *_completion_columns(schemes),
        _Column("unfinished", _unfinished, count_text, "low"),
        _Column("failures", lambda row: row.get("failures") or None, count_text),
    ]
    return _table(schemes, columns)


def _completion_columns(schemes: Sequence[Row]) -> list[_Column]:
    """Completion times of collectives, coflows or incasts; percentiles if a run has several."""
    found = next((row["completion_s"] for row in schemes if row.get("completion_s")), None)
    if found is None:
        return []
    several = any(run["completion_s"]["groups"] > 1 for row in schemes for run in row["runs"] if run["completion_s"])
    word = {"collective": "completion", "coflow": "CCT", "incast": "incast completion"}[found["of"]]
    if not several:
        return [_column("completion", "completion_s", "mean", time_figure)]
    return [_column(f"{name} {word}", "completion_s", key, time_figure) for key, name in COMPLETION_NAMES.items()]


COMPLETION_NAMES = {"mean": "mean", "p95": "p95", "p99": "p99"}


def _column(heading: str, section: str, name: str, text: Callable[[float], str], better: str = "low") -> _Column:
    """A figure of `result.json`, with the confidence interval of a mean."""
    return _Column(
        heading,
        lambda row: figure_of(row, section, name),
        text,
        better,
        lambda row: figure_of(row, section, "ci95") if name == "mean" else None,
        _cut(section, name),
    )


def _cut(section: str, name: str) -> Callable[[Row], bool]:
    return lambda row: is_bound(row, section, name)


def control_table(schemes: Sequence[Row]) -> Table:
    """Control overhead and losses of each scheme, per run."""

    def per_run(key: str, name: str | None = None) -> Callable[[Row], float | None]:
        def value(row: Row) -> float | None:
            total = row[key] if name is None else row[key].get(name)
            return total / len(row["runs"]) if row["runs"] and total is not None else None

        return value

    trimmed = _share_of_packets("trimmed")
    columns = [
        _Column("control messages", per_run("control", "messages"), count_text),
        _Column("most rules in a switch", lambda row: row["control"]["rules_max"], count_text),
        _Column("flows given a path", per_run("control", "routes"), count_text),
        _Column("reroutes", per_run("control", "reroutes"), count_text),
        _Column("controller busy", lambda row: row["control"]["busy_share"], percent_text),
        *(_size_column(name) for name in dict.fromkeys(name for row in schemes for name in row["control"]["sizes"])),
        *_program_columns(),
        _Column("packets dropped", _share_of_packets("dropped"), percent_text),
        *([_Column("packets trimmed", trimmed, percent_text)] if any(map(trimmed, schemes)) else []),
        *_kind_columns(schemes),
        *_pause_columns(),
        *_skip_columns(),
        _Column("retransmissions", per_run("retransmits"), count_text),
        _Column("retransmission time-outs", per_run("timeouts"), count_text),
    ]
    return _table(schemes, columns)


def _size_column(name: str) -> _Column:
    """The column for one size of a scheme's state."""
    return _Column(name, lambda row: row["control"]["sizes"].get(name), count_text)


KINDS = {
    "nacks": "negative acknowledgements",
    "headers": "trimmed headers",
    "pulls": "pulls",
    "requests": "requests to send",
    "notices": "congestion notices",
}
"""Kinds of packets in `result.json` as the table calls them; pauses have columns of their own."""


def _kind_columns(schemes: Sequence[Row]) -> list[_Column]:
    """Columns for the kinds of packets that some scheme sent besides data and acknowledgements, per run."""

    def per_run(kind: str) -> Callable[[Row], float | None]:
        def value(row: Row) -> float | None:
            found: float | None = (row.get("kinds") or {}).get(kind)
            return found / len(row["runs"]) if found is not None else None

        return value

    sent = [kind for kind in KINDS if any((row.get("kinds") or {}).get(kind) for row in schemes)]
    return [_Column(KINDS[kind], per_run(kind), count_text) for kind in sent]


def _pause_columns() -> list[_Column]:
    """Columns for priority-based flow control, per run."""

    def per_run(name: str) -> Callable[[Row], float | None]:
        def value(row: Row) -> float | None:
            found: float | None = (row.get("pauses") or {}).get(name)
            return found / len(row["runs"]) if found is not None else None

        return value

    return [
        _Column("pauses", per_run("pauses"), count_text),
        _Column("time paused, all links", per_run("paused_s"), time_text),
        _Column("flows held back by others", per_run("victims"), count_text),
        _Column("runs in deadlock", lambda row: (row.get("pauses") or {}).get("deadlocks"), count_text),
    ]


def _skip_columns() -> list[_Column]:
    """Columns for what `--fidelity skip` skipped."""
    return [
        _Column("time skipped", lambda row: (row.get("skipped") or {}).get("share"), percent_text),
        _Column("phases skipped", lambda row: (row.get("skipped") or {}).get("jumps"), count_text),
    ]


def _program_columns() -> list[_Column]:
    """Columns for the cost of programs of switches; counts are per run."""

    def figure(name: str, per_run: bool = False) -> Callable[[Row], float | None]:
        def value(row: Row) -> float | None:
            found: float | None = (row.get("programs") or {}).get(name)
            return found / len(row["runs"]) if found is not None and per_run else found

        return value

    return [
        _Column("most entries in a switch", figure("entries_max"), count_text),
        _Column("entries in a switch, mean", figure("entries_mean"), count_text),
        _Column("explorations", figure("explorations", per_run=True), count_text),
        _Column("recoveries", figure("recoveries", per_run=True), count_text),
        _Column("path messages on links", figure("exploration_frames", per_run=True), count_text),
        _Column("bytes of path messages", figure("exploration_bytes", per_run=True), size_text),
        _Column("broadcast share at ToRs", figure("broadcast_share"), percent_text),
        _Column("late copies dropped", figure("late_copies", per_run=True), count_text),
        _Column("frames refused", figure("refused", per_run=True), count_text),
    ]


def difference_table(schemes: Sequence[Row]) -> Table | None:
    """Each scheme's difference to the first one, run by run; None if there is nothing to compare."""
    done = [row for row in schemes if row["runs"]]
    if len(done) < 2 or all(len(row["runs"]) < 2 for row in done):
        return None
    figures = _compared_figures(done)
    found = [paired_differences(done, figure.of, 0) for _, figure, _, _ in figures]
    verdicts = [
        {pair.other: pair.verdict for pair in all_pairs(done, figure) if pair.one == 0} for _, figure, _, _ in figures
    ]
    rows = []
    for place, row in enumerate(done[1:], start=1):
        cells = [f"{row['scheme']} − {done[0]['scheme']}"]
        for differences, said, (_, figure, text, word) in zip(found, verdicts, figures, strict=True):
            uncertain = _better_is_bound(figure, differences[place], row, done[0])
            cells += _difference(differences[place], text, word, uncertain, said.get(place))
        rows.append(cells)
    headings = ["", *(part for name, *_ in figures for part in (name, ""))]
    return Table(headings, rows, [None] * len(headings))


def pair_table(schemes: Sequence[Row]) -> Table | None:
    """The differences of all pairs of three or more schemes, corrected for their number (Holm); else None."""
    done = [row for row in schemes if len(row["runs"]) > 1]
    if len(done) < PAIRS_FROM:
        return None
    rows = []
    for name, figure, text, word in _compared_figures(done):
        for pair in all_pairs(done, figure):
            says = _difference(pair.difference, text, word, pair.bound, pair.verdict)
            p_value = NOTHING if pair.p_value is None else f"{pair.p_value:.2g}" if pair.p_value >= 1e-4 else "< 0.0001"
            rows.append([f"{done[pair.other]['scheme']} − {done[pair.one]['scheme']}", name, says[0], p_value, says[1]])
    return Table(["", "figure", "difference", "p-value (Holm)", ""], rows, [None] * 5) if rows else None


def _compared_figures(schemes: Sequence[Row]) -> list[tuple[str, Figure, FigureText, str]]:
    """Figures of the tables of differences: name, figure, format, and the word for a larger value."""
    figures = [("throughput", THROUGHPUT, share_figure, "more"), ("mean FCT", FCT, time_figure, "longer")]
    if any(row.get("completion_s") for row in schemes):
        figures.append(("completion", COMPLETION, time_figure, "longer"))
    return figures


def _better_is_bound(figure: Figure, difference: Mapping[str, float | None] | None, row: Row, base: Row) -> bool:
    """Whether the lead of the better of two schemes may be due to unfinished flows only."""
    ahead = ((difference or {}).get("mean") or 0.0) > 0
    return figure.is_bound(row if ahead == figure.high_is_better else base)


def _difference(
    difference: Mapping[str, float | None] | None,
    text: FigureText,
    word: str,
    uncertain: bool,
    found: Verdict | None = None,
) -> tuple[str, str]:
    if difference is None or difference["mean"] is None:
        return NOTHING, ""
    mean, half = difference["mean"], difference["ci95"]
    if half is None:
        return text.signed(mean), ""
    opposite = {"more": "less", "longer": "shorter"}[word]
    said = {
        Verdict.EQUAL: "equal within 1 %",
        Verdict.CLEAR: word if mean > 0 else opposite,
        Verdict.SMALL: f"{word if mean > 0 else opposite}, by 1 % or less",
        Verdict.UNCLEAR: "not significant",
    }[found or verdict(difference)]
    return text.signed(mean, half), "unknown: flows are unfinished" if uncertain else said


def _ratio(key: str) -> Callable[[Row], float | None]:
    """A figure over its optimum, of a scheme or of a run."""
    return lambda row: of_optimum(row)[key] if "optimum" in row else None


def _exact_percent_text(share: float) -> str:
    return f"{100 * share:.1f} %"


def _unfinished(row: Row) -> float | None:
    flows = row["flows"]
    return flows["unfinished"] if flows["offered"] > flows["long_lived"] else None


def _share_of_packets(fate: str) -> Callable[[Row], float | None]:
    """The share of sent packets that were `dropped` or `trimmed`."""
    return lambda row: row["packets"][fate] / row["packets"]["sent"] if row["packets"]["sent"] else None


def _table(schemes: Sequence[Row], columns: Sequence[_Column]) -> Table:
    """The table of the columns for which any scheme has a value."""
    values = {column.heading: [column.value(row) if row["runs"] else None for row in schemes] for column in columns}
    used = [column for column in columns if any(value is not None for value in values[column.heading])]
    rows = []
    for index, row in enumerate(schemes):
        cells = [row["scheme"]]
        for column in used:
            value, half = values[column.heading][index], column.half(row)
            if value is None:
                cells.append(NOTHING)
                continue
            cells.append((column.bound_sign if column.is_bound(row) else "") + measured(column.text, value, half))
        rows.append(cells)
    best = [None, *(_best(schemes, column) for column in used)]
    return Table(["scheme", *(column.heading for column in used)], rows, best)


def _best(schemes: Sequence[Row], column: _Column) -> int | None:
    """The scheme that is clearly better than all others in a column; None if its code failed."""
    if column.better is None:
        return None
    found = ranking(schemes, Figure(column.value, column.better == "high", column.is_bound))
    clear_best = found.clear_best if found is not None else None
    return None if clear_best is None or schemes[clear_best].get("failures") else clear_best
