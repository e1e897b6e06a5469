"""The sentences of a report: warnings on top, the main findings, and the meaning of the marks in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pathloom.experiments.results.notes import failures
from pathloom.experiments.results.verdicts import COMPLETION, FCT, THROUGHPUT, Figure, Ranking, ranking
from pathloom.experiments.settings.model import FINISHED
from pathloom.quantities import FigureText, counted, listed, share_figure, time_figure
from pathloom.report.tables import AT_LEAST, AT_MOST, Table, best_text

if TYPE_CHECKING:
    from pathloom.experiments.results.result import ResultData

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Metric:
    """A figure of the headline."""

    section: str
    """Key of its section in `result.json`."""
    name: str
    figure: Figure
    text: FigureText

    @property
    def superlative(self) -> str:
        return "highest" if self.figure.high_is_better else "shortest"

    def value(self, row: Row) -> str:
        """The value of a scheme with its confidence interval."""
        found = row[self.section]
        sign = "" if not self.figure.is_bound(row) else AT_MOST if self.figure.high_is_better else AT_LEAST
        return f"{sign}{self.text(found['mean'], found['ci95'])}"


def banners(result: ResultData) -> list[tuple[str, str]]:
    """Warnings to read before any figure: each in a few words, and in full."""
    found = []
    if not result.complete:
        counts = [sum(one.job.label == label for one in result.outcomes) for label in result.settings.labels]
        all_runs = result.settings.runs * len(result.settings.labels)
        why = "Interrupted" if result.failure is None else f"Ended early, {result.failure}"
        differ = ""
        if len(set(counts)) > 1:
            each = [f"{label} has {count}" for label, count in zip(result.settings.labels, counts, strict=True)]
            differ = f" Schemes differ in their number of runs: {listed(each)}."
        text = f"{sum(counts)} of {all_runs} runs were finished. All figures are of these runs only.{differ}"
        found.append((why, text))
    found += [("Not what the scheme would do", f"{failure[:1].upper()}{failure[1:]}.") for failure in failures(result)]
    return found


def headlines(schemes: Sequence[Row]) -> list[str]:
    """The main findings, in a sentence or two of plain text."""
    done = [row for row in schemes if row["runs"]]
    metrics = [metric for metric in _metrics(done) if any(metric.figure.of(row) is not None for row in done)]
    rankings = {metric.section: ranking(done, metric.figure) for metric in metrics}
    if _disagree(rankings.get("throughput"), rankings.get("fct_s")):
        more, shorter = (metric for metric in metrics if metric.section in ("throughput", "fct_s"))
        rest = [metric for metric in metrics if metric not in (more, shorter)]
        clauses = [_clause(done, metric, rankings[metric.section]) for metric in (more, shorter)]
        return [
            *(_sentence(done, metric, rankings[metric.section]) for metric in rest),
            f"No scheme is best in both: {clauses[0]}, but {clauses[1]}.",
        ]
    return [_sentence(done, metric, rankings[metric.section]) for metric in metrics]


def legend(schemes: Sequence[Row], table: Table, best_mark: str) -> list[str]:
    """The meaning of the marks that the main table contains."""
    lines = []
    several = any(len(row["runs"]) > 1 for row in schemes)
    if table.has_best():
        lines.append(f"{best_mark} {best_text('of its row', schemes)}")
    elif len(schemes) > 1 and not several:
        most = "One run" if all(row["runs"] for row in schemes) else "At most one run"
        lines.append(f"{most} of each scheme: no value is marked as the best, for it may be chance; --runs 3 or more.")
    if table.has_bounds():
        lines.append(
            f"{AT_LEAST.strip()} and {AT_MOST.strip()}: some flows are unfinished, so the figure is a bound; "
            f"--until {FINISHED} lets them finish."
        )
    if several:
        lines.append("± is the half width of the 95 % confidence interval over the runs.")
    return lines


def _metrics(schemes: Sequence[Row]) -> list[_Metric]:
    found: list[Any] = [row["completion_s"] for row in schemes if row.get("completion_s")]
    metrics = []
    if found:
        several = any(run["completion_s"]["groups"] > 1 for row in schemes for run in row["runs"])
        word = {"collective": "completion time", "coflow": "coflow completion time", "incast": "incast completion time"}
        name = f"{'mean ' if several else ''}{word[found[0]['of']]}"
        metrics.append(_Metric("completion_s", name, COMPLETION, time_figure))
    metrics.append(_Metric("throughput", "mean throughput", THROUGHPUT, share_figure))
    metrics.append(_Metric("fct_s", "mean flow completion time", FCT, time_figure))
    return metrics


def _disagree(more: Ranking | None, shorter: Ranking | None) -> bool:
    """Whether the leading schemes by throughput and by FCT differ."""
    if more is None or shorter is None or more.bound or shorter.bound:
        return False
    return not {more.best, *more.equal} & {shorter.best, *shorter.equal}


def _sentence(schemes: Sequence[Row], metric: _Metric, found: Ranking | None) -> str:
    """The sentence about one metric."""
    if found is None:
        row = next(row for row in schemes if metric.figure.of(row) is not None)
        return f"{row['scheme']}: {metric.name} {metric.value(row)}."
    best = schemes[found.best]
    if found.bound:
        flows = counted(best["flows"]["unfinished"], "unfinished flow")
        return f"No best {metric.name}: that of {best['scheme']}, {metric.value(best)}, is a bound ({flows})."
    leaders = _leaders(schemes, found)
    caveat = _caveat(schemes, found)
    after = f" ({caveat})" if caveat else ""
    values = [f"{row['scheme']} ({metric.value(row)})" for row in leaders]
    if len(leaders) > 1 and not (found.small or found.unclear or found.clear):
        return f"{metric.name.capitalize()} is equal within 1 %: {listed(values)}{after}."
    if len(leaders) > 1:
        return f"{metric.superlative.capitalize()} {metric.name}: {listed(values)}, equal within 1 %{after}."
    return f"{metric.superlative.capitalize()} {metric.name}: {best['scheme']}, {metric.value(best)}{after}."


def _clause(schemes: Sequence[Row], metric: _Metric, found: Ranking | None) -> str:
    """The leading schemes in a metric, as a part of a sentence."""
    assert found is not None
    leaders = _leaders(schemes, found)
    said = [metric.value(schemes[found.best])]
    said += ["equal within 1 %"] if len(leaders) > 1 else []
    caveat = _caveat(schemes, found)
    said += [caveat] if caveat else []
    verb = "has" if len(leaders) == 1 else "have"
    names = listed([row["scheme"] for row in leaders])
    return f"{names} {verb} the {metric.superlative} {metric.name} ({'; '.join(said)})"


def _leaders(schemes: Sequence[Row], found: Ranking) -> list[Row]:
    return [schemes[place] for place in (found.best, *found.equal)]


def _caveat(schemes: Sequence[Row], found: Ranking) -> str:
    """Reasons why the best scheme may not be the best; empty if there are none."""
    parts = []

    def names(places: Sequence[int]) -> str:
        return listed([schemes[place]["scheme"] for place in places])

    if found.single and all(len(row["runs"]) < 2 for row in schemes):
        parts.append("a single run: no confidence interval, so this may be chance")
    elif found.single:
        parts.append(f"a single run to compare with {names(found.single)}, so that may be chance")
    unclear = [place for place in found.unclear if place not in found.single]
    if unclear:
        parts.append(f"not clearly different from {names(unclear)} at 95 %")
    if found.small:
        parts.append(f"1 % or less from {names(found.small)}")
    failed = [row["scheme"] for row in _leaders(schemes, found) if row.get("failures")]
    if failed:
        parts.append(f"the code of {listed(failed)} failed")
    return "; ".join(parts)


def runs_text(result: ResultData) -> str:
    """Number and length of the runs of each scheme, and their first seed."""
    settings = result.settings
    until = f" (until {settings.until})" if settings.until is not None else ""
    return f"{counted(settings.runs, 'run')} of {settings.duration}{until}, seed {settings.seed}"
