"""Verdicts in tables and headlines: better, equal or not clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import synthetic
from conftest import Cli
from pathloom.experiments.results.stats import ci95, mean, t_test_p_value
from pathloom.experiments.results.verdicts import Figure, Verdict, all_pairs, ranking, verdict
from pathloom.fabrics import fat_tree
from pathloom.report.headline import headlines, legend
from pathloom.report.tables import difference_table, main_table, pair_table

THROUGHPUT = Figure(lambda row: row["throughput"]["mean"], True)


def scheme(
    name: str,
    throughputs: Sequence[float],
    fcts: Sequence[float | None] = (),
    unfinished: int = 0,
    first_run: int = 1,
    failures: int = 0,
) -> dict[str, Any]:
    """Returns the entry of a scheme in `result.json`, with the keys that tables and headlines read."""
    times = list(fcts) or [None] * len(throughputs)
    pairs = enumerate(zip(throughputs, times, strict=True), start=first_run)
    flows = {"offered": 9, "long_lived": 0, "unfinished": unfinished}

    def figures(throughput: Sequence[float], fct: Sequence[float | None]) -> dict[str, Any]:
        known = [one for one in fct if one is not None]
        cut = unfinished > 0
        rest = dict.fromkeys(("p50", "p95", "p99", "mouse", "rabbit", "elephant"))
        return {
            "throughput": {"mean": mean(throughput), "ci95": ci95(throughput), "p5": None, "min": None}
            | {"mean_censored": cut},
            "fct_s": {"mean": mean(known), "ci95": ci95(known), "mean_censored": cut, **rest},
            "flows": flows,
        }

    runs = [{"run": run, **figures([throughput], [fct])} for run, (throughput, fct) in pairs]
    return {"scheme": name, "runs": runs, "failures": failures, **figures(throughputs, times)}


def marked(schemes: Sequence[dict[str, Any]], heading: str) -> str | None:
    """Returns the scheme that the table marks as the best in a column."""
    table = main_table(schemes)
    place = table.best[table.headings.index(heading)]
    return None if place is None else table.rows[place][0]


def test_the_best_is_marked_if_the_paired_difference_is_clear() -> None:
    # The runs differ a lot, but the schemes differ by the same in each run. The intervals of the schemes overlap, and
    # the interval of the paired difference excludes 0.
    ecmp, ofpt = scheme("ecmp", [0.2, 0.5, 0.8]), scheme("ofpt", [0.3, 0.61, 0.9])
    assert marked([ecmp, ofpt], "mean throughput") == "ofpt"
    assert headlines([ecmp, ofpt]) == ["Highest mean throughput: ofpt, 0.603 ± 0.745."]
    # Now the difference is chance: better in two runs, worse in the third.
    assert marked([ecmp, scheme("ofpt", [0.4, 0.7, 0.75])], "mean throughput") is None


def test_one_run_marks_nothing() -> None:
    schemes = [scheme("ecmp", [0.2]), scheme("ofpt", [0.9])]
    assert marked(schemes, "mean throughput") is None
    assert "a single run: no confidence interval" in headlines(schemes)[0]
    assert legend(schemes, main_table(schemes), "*")[0].startswith("One run of each scheme: no value is marked")


@pytest.mark.parametrize(
    ("share", "name", "said"),
    [
        (0.995, None, "Mean throughput is equal within 1 %: ofpt (0.800"),
        (0.99, None, "Highest mean throughput: ofpt, 0.800 ± 0.248 (1 % or less from ecmp)."),
        (0.98, "ofpt", "Highest mean throughput: ofpt, 0.800 ± 0.248."),
    ],
)
def test_a_lead_of_one_percent_or_less_is_never_marked(share: float, name: str | None, said: str) -> None:
    ofpt = [0.9, 0.8, 0.7]
    schemes = [scheme("ecmp", [one * share for one in ofpt]), scheme("ofpt", ofpt)]
    assert marked(schemes, "mean throughput") == name
    (line,) = headlines(schemes)
    assert line.startswith(said)


def test_equal_is_printed_only_if_the_whole_interval_is_within_one_percent() -> None:
    # The means are nearly the same, but each run differs. So the runs prove nothing.
    schemes = [scheme("ecmp", [0.3, 0.9, 0.6]), scheme("ofpt", [0.9, 0.3, 0.602])]
    assert headlines(schemes) == [
        "Highest mean throughput: ofpt, 0.601 ± 0.745 (not clearly different from ecmp at 95 %)."
    ]
    table = difference_table(schemes)
    assert table is not None
    assert table.rows[0][2] == "not significant"
    small = difference_table([scheme("ecmp", [0.9, 0.8, 0.7]), scheme("ofpt", [0.909, 0.808, 0.706])])
    assert small is not None
    assert small.rows[0][2] == "more, by 1 % or less"


def test_a_single_run_is_noted_for_its_scheme() -> None:
    schemes = [scheme("ecmp", [0.9, 0.91, 0.9]), scheme("ofpt", [0.5, 0.52, 0.51]), scheme("spt", [0.3])]
    assert headlines(schemes) == [
        "Highest mean throughput: ecmp, 0.903 ± 0.014 (a single run to compare with spt, so that may be chance)."
    ]
    ended = [scheme("ecmp", [0.9]), {**scheme("ofpt", [0.9]), "runs": []}]
    assert legend(ended, main_table(ended), "*")[0].startswith("At most one run of each scheme:")


def test_all_places_give_the_verdict_that_is_corrected_for_the_number_of_pairs() -> None:
    """Three runs: ofpt against ecmp alone has a probability by chance of 0.03, but there are six pairs."""
    schemes = [
        scheme("spt", [0.395, 0.396, 0.397]),
        scheme("ecmp", [0.55, 0.65, 0.73]),
        scheme("hedera", [0.936, 0.941, 0.946]),
        scheme("ofpt", [1.0, 1.0, 1.0]),
    ]
    alone = [schemes[1], schemes[3]]
    assert marked(alone, "mean throughput") == "ofpt"
    assert marked(schemes, "mean throughput") is None
    assert headlines(schemes)[0].endswith("(not clearly different from ecmp at 95 %).")
    pairs = {(pair.one, pair.other): pair.verdict for pair in all_pairs(schemes, THROUGHPUT)}
    assert pairs[1, 3] is Verdict.UNCLEAR
    to_first = difference_table([schemes[1], schemes[0], *schemes[2:]])
    assert to_first is not None
    assert to_first.rows[-1][:3:2] == ["ofpt − ecmp", "not significant"]


def test_some_are_equal_and_others_worse() -> None:
    schemes = [
        scheme("spt", [0.3, 0.31, 0.3]),
        scheme("hedera", [0.9, 0.91, 0.9]),
        scheme("ofpt", [0.901, 0.909, 0.903]),
    ]
    assert marked(schemes, "mean throughput") is None
    assert headlines(schemes) == [
        "Highest mean throughput: ofpt (0.904 ± 0.010) and hedera (0.903 ± 0.014), equal within 1 %."
    ]


def test_the_best_must_be_clear_of_every_other() -> None:
    schemes = [scheme("spt", [0.3, 0.3, 0.3]), scheme("ecmp", [0.5, 0.7, 0.6]), scheme("ofpt", [0.7, 0.65, 0.7])]
    assert marked(schemes, "mean throughput") is None
    assert "ofpt, 0.683 ± 0.072 (not clearly different from ecmp at 95 %)" in headlines(schemes)[0]


def test_different_leaders_are_named_in_one_sentence() -> None:
    schemes = [
        scheme("ecmp", [0.7, 0.72, 0.7], [0.05, 0.06, 0.05]),
        scheme("ofpt", [0.5, 0.5, 0.51], [0.02, 0.03, 0.02]),
    ]
    assert headlines(schemes) == [
        "No scheme is best in both: ecmp has the highest mean throughput (0.707 ± 0.029), but ofpt has the shortest "
        "mean flow completion time (23.3 ± 14.3 ms)."
    ]
    # A scheme that is equal to the best is a leader too, so the two rankings agree.
    schemes[1] = scheme("ofpt", [0.699, 0.719, 0.699], [0.02, 0.03, 0.02])
    assert len(headlines(schemes)) == 2


def test_a_bound_is_never_the_best() -> None:
    schemes = [
        scheme("ecmp", [0.6, 0.6, 0.6], [0.05, 0.06, 0.05]),
        scheme("ofpt", [0.75, 0.75, 0.75], [0.01, 0.01, 0.01], unfinished=7),
    ]
    table = main_table(schemes)
    assert marked(schemes, "mean FCT") is None and marked(schemes, "mean throughput") is None
    assert table.rows[1][table.headings.index("mean FCT")] == "≥ 10.0 ms (same in all runs)"
    assert table.rows[1][table.headings.index("mean throughput")] == "≤ 0.750 (same in all runs)"
    assert table.rows[0][table.headings.index("mean FCT")].startswith("53.3 ")
    throughput, fct = headlines(schemes)
    assert (
        throughput
        == "No best mean throughput: that of ofpt, ≤ 0.750 (same in all runs), is a bound (7 unfinished flows)."
    )
    assert fct.startswith(
        "No best mean flow completion time: that of ofpt, ≥ 10.0 ms (same in all runs), is a bound (7 "
    )
    assert any(line.startswith("≥ and ≤:") and "--until finished" in line for line in legend(schemes, table, "*"))
    # A scheme that is worse by its bound is really even worse.
    behind = [scheme("ecmp", [0.6] * 3, [0.05, 0.06, 0.05], unfinished=7), scheme("ofpt", [0.7] * 3, [0.01] * 3)]
    assert marked(behind, "mean FCT") == "ofpt"


def test_schemes_without_a_run_in_common_are_not_compared() -> None:
    found = ranking([scheme("ecmp", [0.2, 0.2]), scheme("ofpt", [0.9, 0.9], first_run=3)], THROUGHPUT)
    assert found is not None
    assert (found.best, found.unclear, found.clear_best) == (1, (0,), None)


def test_a_legend_below_the_table_explains_the_marks(cli: Cli) -> None:
    stride = ["--fabric", "fat-tree:k=4,rate=10Mbps", "--traffic", "long-lived:pattern=stride", "--duration", "2s"]
    lines = cli("compare", *stride, "--schemes", "spt,ecmp", "--runs", "6").out.splitlines()
    starred = [place for place, line in enumerate(lines) if line.endswith(" *")]
    assert starred and starred[-1] < next(place for place, line in enumerate(lines) if line.startswith("* clearly"))
    single = cli("compare", *stride, "--schemes", "spt,ecmp", "--runs", "1").out
    assert "*" not in single and "±" not in single
    assert "One run of each scheme" in single


def test_the_report_has_the_bounds_too() -> None:
    page = synthetic.result(fat_tree(k=4, rate="10Mbps"), {"spt": 0.6, "ecmp": 1.0}, unfinished=2).report()
    headline = page[page.index('class="headline"') : page.index("<table>")]
    assert "is a bound (" in headline and "≥ " in headline
    table = page[page.index("<table>") : page.index("</table>")]
    assert "≥ " in table and "≤ " in table
    assert "some flows are unfinished, so the figure is a bound" in page


def rows_of(means: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "scheme": name,
            "runs": [
                {"run": run, "throughput": {"mean": value}, "fct_s": {"mean": None}} for run, value in enumerate(runs)
            ],
            "throughput": {"mean": sum(runs) / len(runs)},
            "fct_s": {"mean": None},
        }
        for name, runs in means.items()
    ]


def test_pairs_are_corrected_for_their_number() -> None:
    # Chance alone gives the difference of a and b in 1.3 % of all cases, but there are three pairs.
    schemes = rows_of({"a": [0.50, 0.52, 0.48], "b": [0.55, 0.56, 0.54], "c": [0.60, 0.40, 0.58]})
    pairs = {(pair.one, pair.other): pair for pair in all_pairs(schemes, THROUGHPUT)}
    assert set(pairs) == {(0, 1), (0, 2), (1, 2)}
    assert verdict(pairs[0, 1].difference) is Verdict.CLEAR
    alone = t_test_p_value([0.05, 0.04, 0.06])
    assert alone is not None
    assert pairs[0, 1].p_value == pytest.approx(3 * alone)
    far = rows_of({"a": [0.50, 0.52, 0.48], "b": [0.80, 0.82, 0.78], "c": [0.80, 0.82, 0.782]})
    assert [pair.verdict for pair in all_pairs(far, THROUGHPUT)] == [Verdict.CLEAR, Verdict.CLEAR, Verdict.EQUAL]
    table = pair_table(far)
    assert table is not None
    assert [row[0] for row in table.rows] == ["b − a", "c − a", "c − b"]
    assert [row[4] for row in table.rows] == ["more", "more", "equal within 1 %"]
    assert pair_table(far[:2]) is None


def test_a_clear_pair_may_be_unclear_among_many_pairs() -> None:
    noise = {"c": [0.6, 0.4, 0.58], "d": [0.4, 0.7, 0.3]}
    schemes = rows_of({"a": [0.500, 0.510, 0.490], "b": [0.540, 0.560, 0.52], **noise})
    (pair,) = [pair for pair in all_pairs(schemes, THROUGHPUT) if (pair.one, pair.other) == (0, 1)]
    assert verdict(pair.difference) is Verdict.CLEAR
    assert pair.verdict is Verdict.UNCLEAR


def test_the_t_test_agrees_with_the_interval() -> None:
    values = [0.3, 0.5, 0.9, 0.2]
    half = ci95(values)
    assert half is not None
    centre = sum(values) / len(values)
    at_the_edge = t_test_p_value([value - centre + half for value in values])
    assert at_the_edge == pytest.approx(0.05)
    assert (t_test_p_value([1.0]), t_test_p_value([1.0, 1.0]), t_test_p_value([0.0, 0.0])) == (None, 0.0, 1.0)
