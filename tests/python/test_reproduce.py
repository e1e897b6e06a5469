"""Reproduction of published figures: differences, bounds, kept runs and metrics."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from pathloom.experiments.results.outcome import Sample
from pathloom.experiments.results.summary import run_summary
from pathloom.experiments.results.tables import flow_table
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.settings.model import Job, Settings
from pathloom.fabrics import Fabric
from pathloom.reproduction import measure, page, texts
from pathloom.reproduction.definitions import PUBLISHED as WHOLE
from pathloom.reproduction.definitions import Figure, Measure
from pathloom.reproduction.library import FOLDER
from pathloom.reproduction.measure import Line, Value
from pathloom.reproduction.metrics import METRICS, REQUEST_BYTES, RunData
from pathloom.reproduction.runs import RunCache
from reproducing import TINY, reproduced, runs_to_do


def test_a_difference_needs_a_cause(tiny: measure.Reproduced) -> None:
    lines = {line.label: line for line in tiny.published}
    assert lines["TCP"].cause == "not explained yet", "no cause is invented"
    assert lines["ECMP"].cause == "because"
    assert lines["ECMP"].difference == pytest.approx((lines["ECMP"].value.mean or 0.0) - 100.0)
    assert lines["gain"].cause is None, "both schemes have one path"
    assert lines["gain"].value.mean == pytest.approx(0.0, abs=1e-9)
    assert lines["bound"].cause is None, "a bound that holds is not a difference"
    assert (lines["UNBUILT"].value.mean, lines["UNBUILT"].cause) == (None, "unbuilt is not built yet")
    assert (lines["unmeasured"].value.mean, lines["unmeasured"].cause) == (None, "no such counter")


def test_figures_of_runs_with_unfinished_flows_are_marked(tiny: measure.Reproduced, tmp_path: Path) -> None:
    """100 MB at 100 Mbit/s take 8 s, and the run ends after 60 ms."""
    trace = "start_s,src,dst,size_bytes\n0,h0,h2,1000\n0,h0,h2,100000000\n0,h1,h3,100000000\n"
    (tmp_path / "trace.csv").write_text(trace, encoding="utf-8")
    assert [line.value.bound for line in tiny.lines] == ["exactly"] * len(tiny.lines)
    assert texts.rows(tiny.published)[0][2][0].isdigit()
    fct, least = {"unit": "s", "metric": "fct_mean"}, {"metric": "worst_throughput", "published": 50.0}
    given = {
        **TINY,
        "x": [],
        "setup": {**TINY["setup"], "traffic": f"flows:file={tmp_path}/trace.csv", "duration": "10ms"},
        "rows": [
            {"label": "TCP", "scheme": "spt", **fct, "published": 1.0},
            {"label": "worst", "scheme": "spt", **least},
            {"label": "p95", "unit": "s", "scheme": "spt", "metric": "fct_p95", "published": 1.0},
            {"label": "p95 of mice", "unit": "s", "scheme": "spt", "metric": "fct_p95", "below_bytes": 10000},
            {"label": "gain", "scheme": "ecmp", "over": ["spt"], **fct, "published": 0.0},
        ],
    }
    cut = reproduced(Figure.model_validate(given))
    bounds = {line.label: line.value.bound for line in cut.published}
    assert bounds == {
        "TCP": "at least",
        "worst": "at most",
        "p95": "at least",
        "p95 of mice": "exactly",
        "gain": "exactly",
    }
    rows = texts.rows(cut.published)
    assert rows[0][2].startswith("≥ ") and rows[1][2].startswith("≤ ")
    assert cut.as_json()["rows"][0]["measured_bound"] == "at least"
    assert {"unfinished under TCP: 2 of 2 runs", "unfinished under ecmp: 2 of 2 runs"} <= set(cut.notes)


def test_the_polling_period_is_that_of_the_scheme(tiny: measure.Reproduced) -> None:
    """It is not the length of the run, including the drain, divided by the number of readings."""
    rows = [
        {"label": scheme, "unit": "s", "scheme": scheme, "metric": "polling_period", "published": 1.0}
        for scheme in ("hedera:period=20ms", "lessor:period=80ms,min_period=40ms", "spt")
    ]
    setup = {**TINY["setup"], "traffic": "web-search:load=0.6", "schemes": [row["scheme"] for row in rows]}
    figure = Figure.model_validate({**TINY, "x": [], "rows": rows, "setup": setup})
    hedera, lessor, spt = (line.value.mean for line in reproduced(figure).published)
    assert hedera == pytest.approx(0.020)
    # One round of 80 ms, then the shortest allowed rounds, however often flows are polled again within them.
    assert lessor is not None and 0.040 <= lessor < 0.060
    assert spt is None


@pytest.mark.parametrize(
    ("line", "far"),
    [
        (Line("", "%", 90.0, "exactly", Value(85.0, None), None), False),
        (Line("", "%", 90.0, "exactly", Value(84.9, None), None), True),
        (Line("", "s", 2.0, "exactly", Value(2.11, None), None), True),
        (Line("", "s", 2.0, "exactly", Value(1.91, None), None), False),
        (Line("", "%", 90.0, "at least", Value(99.0, None), None), False),
        (Line("", "%", 90.0, "at least", Value(80.0, None), None), True),
        (Line("", "%", 50.0, "at most", Value(60.0, None), None), True),
        (Line("", "%", 50.0, "at most", Value(51.0, 0.5), None), True),
        (Line("", "%", 50.0, "at most", Value(51.0, 2.0), None), False),
        (Line("", "%", 50.0, "up to", Value(4.9, None), None), True),
        (Line("", "s", 7.6, "up to", Value(0.51, 0.0), None), True),
        (Line("", "%", (10.0, 20.0), "exactly", Value(48.3, 0.2), None), True),
        (Line("", "%", (10.0, 20.0), "exactly", Value(9.0, 0.5), None), True),
        (Line("", "%", (10.0, 20.0), "exactly", Value(9.0, 1.5), None), False),
        (Line("", "%", (10.0, 20.0), "exactly", Value(15.0, None), None), False),
        (Line("", "%", None, "exactly", Value(3.0, 1.0), None, "above"), False),
        (Line("", "%", None, "exactly", Value(1.0, 3.0), None, "above"), True),
        (Line("", "%", None, "exactly", Value(-3.0, 1.0), None, "below"), False),
        (Line("", "%", None, "exactly", Value(4.0, 1.0), None, "level"), False),
        (Line("", "%", None, "exactly", Value(6.0, 1.0), None, "level"), True),
        (Line("", "%", None, "exactly", Value(60.0, None), None), False),
        (Line("", "%", 50.0, "exactly", Value(None, None), None), False),
    ],
)
def test_what_counts_as_a_difference(line: Line, far: bool) -> None:
    assert measure.is_far(line) is far


def test_a_trend_compares_two_lines() -> None:
    rows = [
        {"label": f"{trend} at the higher load", "unit": "s", "trend": trend, "of": "TCP, load 0.5", "than": than}
        for trend, than in (("above", "TCP, load 0.2"), ("below", "TCP, load 0.2"), ("level", "TCP, load 0.5"))
    ]
    figure = Figure.model_validate({**TINY, "rows": rows})
    result = reproduced(figure)
    above, below, level = result.published
    values = {line.label: line.value for line in result.lines}
    at_half, at_fifth = values["TCP, load 0.5"], values["TCP, load 0.2"]
    assert above.value.mean == pytest.approx((at_half.mean or 0.0) - (at_fifth.mean or 0.0))
    assert above.value.ci95 == pytest.approx(math.hypot(at_half.ci95 or 0.0, at_fifth.ci95 or 0.0))
    assert [texts.published_text(line) for line in (above, below, level)] == ["> 0", "< 0", "0"]
    assert abs(below.value.mean or 0.0) < (below.value.ci95 or 0.0), "two runs"
    assert (below.cause, texts.difference_text(below)) == ("not explained yet", "not clear")
    assert texts.difference_text(replace(below, value=Value(1.0, 0.5))) == "not so"
    assert (level.cause, texts.difference_text(level)) == (None, "as published")


def test_texts_are_renewed_without_runs(
    tiny: measure.Reproduced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.save(tiny, tmp_path)
    before = json.loads((tmp_path / "ofpt" / "tiny.json").read_text())
    gain = {"label": "gain at 0.5", "scheme": "ecmp", "over": ["spt"], "metric": "fct_mean", "case": "0.5"}
    rows = [
        {**TINY["rows"][1], "published": [0.0, 1000.0]},
        {**gain, "published": 0.0},
        {"label": "new", "metric": "dropped", "scheme": "spt"},
    ]
    figure = Figure.model_validate({**TINY, "rows": rows})
    monkeypatch.setattr(page, "identities", lambda _target: ["ofpt/tiny"])
    monkeypatch.setattr(page, "figures", lambda _target: [figure])
    assert page.renew(tmp_path) == ["ofpt/tiny"]
    after = json.loads((tmp_path / "ofpt" / "tiny.json").read_text())
    assert after["setup"] == before["setup"]
    known, compared, new = after["rows"][:3]
    assert (known["measured"], known["ci95"]) == (before["rows"][1]["measured"], before["rows"][1]["ci95"])
    assert (known["published"], known["cause"]) == ([0.0, 1000.0], None)
    assert compared["measured"] == pytest.approx(0.0, abs=1e-9), "from the points of the picture"
    point = next(row for row in before["rows"] if row["label"] == "ecmp, load 0.5")
    share = point["ci95"] / point["measured"]
    assert compared["ci95"] == pytest.approx(100.0 * math.hypot(share, share)), "as of independent runs"
    assert (new["measured"], new["cause"]) == (None, "this row is newer than the runs of the table")
    assert "0 to 1000 s | " in (tmp_path / "ofpt.md").read_text()
    assert page.renew(tmp_path) == []


def test_equal_runs_have_no_interval() -> None:
    """Flows of a file under single paths draw nothing at random but ports, so all runs are the same."""
    setup = {
        "fabric": "parallel-paths:rates=10Mbps/10Mbps,host_rate=100Mbps,buffer=150",
        "traffic": f"flows:file={FOLDER}/traces/four-flows-10.csv",
        "schemes": ["spt"],
        "duration": "100ms",
        "runs": 3,
    }
    rows = [{"label": "TCP", "unit": "s", "metric": "fct_mean", "published": 1.0}]
    result = reproduced(Figure.model_validate({**TINY, "x": [], "rows": rows, "setup": setup}))
    assert result.published[0].value.ci95 == 0.0
    assert texts.rows(result.published)[0][2].endswith("(same in all runs)")
    assert any("the runs of TCP are deterministic" in note for note in result.notes)


def test_progress_counts_the_work_of_each_run() -> None:
    cache, reported = RunCache(), dict[Job, float]()
    figure = Figure.model_validate(TINY)
    plans = measure.plan(figure, WHOLE, seed=1)
    weights = measure.weights(figure, plans, cache)
    assert math.fsum(weights.values()) == pytest.approx(measure.to_do([(figure, plans)], cache)[1])
    assert len({round(weight, 6) for weight in weights.values()}) == 2, "one weight per load"
    measure.reproduce(figure, plans, WHOLE, 1, cache, reported.__setitem__)
    assert reported == dict.fromkeys(weights, 1.0)
    assert measure.weights(figure, plans, cache) == {}


def test_runs_that_figures_share_are_carried_out_once(tiny: measure.Reproduced) -> None:
    cache = RunCache()
    figure = Figure.model_validate(TINY)
    plans = measure.plan(figure, WHOLE, seed=1)
    assert runs_to_do(figure, plans, cache) == 2 * 2 * 2
    first = reproduced(figure, cache=cache)
    assert runs_to_do(figure, plans, cache) == 0
    assert runs_to_do(figure, measure.plan(figure, WHOLE, seed=5), cache) == 8
    assert first.as_json() == tiny.as_json(), "the same seed gives the same numbers"
    assert reproduced(figure, cache=cache).as_json() == first.as_json()


def test_a_run_is_identified_by_its_own_seed() -> None:
    cache = RunCache()
    figure = Figure.model_validate(TINY)
    reproduced(figure, cache=cache)
    shifted = measure.plan(figure, WHOLE, seed=2)
    assert runs_to_do(figure, shifted, cache) == 4, "seed 2 is kept, seed 3 is missing"


def test_kept_runs_are_used_again_unless_something_changed(tiny: measure.Reproduced, tmp_path: Path) -> None:
    figure = Figure.model_validate(TINY)
    plans = measure.plan(figure, WHOLE, seed=1)
    assert reproduced(figure, cache=RunCache(tmp_path)).as_json() == tiny.as_json()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 8
    assert reproduced(figure, cache=RunCache(tmp_path)).as_json() == tiny.as_json()
    assert runs_to_do(figure, plans, RunCache(tmp_path)) == 0
    files[0].write_text("{}", encoding="utf-8")
    files[1].unlink()
    assert runs_to_do(figure, plans, RunCache(tmp_path)) == 2, "broken and missing runs are repeated"
    asked = {"metric": "flows_below", "level": 12.5, "label": "new", "scheme": "spt", "published": 1.0}
    more = Figure.model_validate({**TINY, "rows": [*TINY["rows"], asked]})
    assert runs_to_do(more, plans, RunCache(tmp_path)) == 8, "kept runs lack the new measure"
    longer = Figure.model_validate({**TINY, "setup": {**TINY["setup"], "duration": "301ms"}})
    assert runs_to_do(longer, measure.plan(longer, WHOLE, seed=1), RunCache(tmp_path)) == 8


def test_runs_of_another_build_count_only_with_any_build(tiny: measure.Reproduced, tmp_path: Path) -> None:
    figure = Figure.model_validate(TINY)
    plans = measure.plan(figure, WHOLE, seed=1)
    reproduced(figure, cache=RunCache(tmp_path))
    for file in sorted(tmp_path.iterdir())[:3]:
        record = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**record, "build": "another"}), encoding="utf-8")
    assert runs_to_do(figure, plans, RunCache(tmp_path)) == 3
    assert runs_to_do(figure, plans, RunCache(tmp_path, any_build=True)) == 0
    mixed = reproduced(figure, cache=RunCache(tmp_path, any_build=True))
    assert mixed.as_json() == tiny.as_json()
    assert mixed.notes == [*figure.notes, "another build of Pathloom carried out 3 of 8 runs"]
    assert reproduced(figure, cache=RunCache(tmp_path)).notes == list(figure.notes), "the three are repeated"
    assert runs_to_do(figure, plans, RunCache(tmp_path)) == 0


def test_a_run_without_enough_processor_time_is_noted_and_repeated(tmp_path: Path) -> None:
    figure = Figure.model_validate(TINY)
    plans = measure.plan(figure, WHOLE, seed=1)
    reproduced(figure, cache=RunCache(tmp_path))
    for file, share in zip(sorted(tmp_path.iterdir()), (0.31, 0.06, 0.04), strict=False):
        record = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**record, "stolen_share": share}), encoding="utf-8")
    assert runs_to_do(figure, plans, RunCache(tmp_path)) == 2
    calm = reproduced(figure, cache=RunCache(tmp_path))
    assert calm.notes == list(figure.notes)
    lacking = replace(
        calm,
        data={
            place: [replace(run, stolen_share=0.31 * index) for index, run in enumerate(runs)]
            for place, runs in calm.data.items()
        },
    )
    assert lacking.notes[-1].startswith("4 of 8 runs, at worst: the host of this machine gave 31 % of its processors")


def test_samples_do_not_change_a_run_and_add_up() -> None:
    values = {
        "fabric": "dumbbell:hosts=2",
        "traffic": "long-lived",
        "schemes": ("ecmp",),
        "duration": "30ms",
        "runs": 1,
    }
    settings = Settings.of(values, "test")
    times = [*(round(0.0007 * n, 4) for n in range(43)), 0.03]
    one, other = (Execution(settings, None, RunFiles(), {}, at_s) for at_s in ([0.03], times))
    for execution in (one, other):
        execution.run(1)
    (plain,), (sampled,) = one.outcomes, other.outcomes
    delivered = plain.outcome["flows"]["delivered_bytes"]
    assert (delivered == sampled.outcome["flows"]["delivered_bytes"]).all()
    assert [sample.at_s for sample in sampled.samples] == times
    totals = [sample.delivered_bytes for sample in sampled.samples]
    assert totals == sorted(totals)
    assert totals[-1] == delivered.sum() == plain.samples[0].delivered_bytes


def test_only_flows_of_the_later_part_that_finish_in_time_settle() -> None:
    flows = pl.DataFrame(
        {
            "start_s": [0.0, 4.0, 6.0, 9.0],
            "age_s": [1.0, 2.0, 1.0, 2.0],
            "size_bytes": [10**6, 10**6, 10**6, 10**6],
            "finished": [True, True, True, True],
        }
    )
    sample = Sample(at_s=10.0, delivered_bytes=4 * 10**6, polling_period_s=None)
    run = RunData(flows, {}, [sample], 1e7)
    # The last flow finishes after 11 s, beyond the end of arrivals.
    assert METRICS["settled_rate"](run, Measure(metric="settled_rate")) == pytest.approx((8 + 4 + 8) / 3)
    assert METRICS["settled_rate"](run, Measure(metric="settled_rate", level=0.4)) == pytest.approx(6.0)
    assert METRICS["settled_rate"](run, Measure(metric="settled_rate", level=0.6)) == pytest.approx(8.0)
    assert METRICS["settled_rate"](run, Measure(metric="settled_rate", level=0.7)) is None
    assert METRICS["settling"](run, Measure(metric="settling", level=0.6)) == pytest.approx(20.0)


def test_path_requests_of_connections_are_distinguished_from_those_for_arp() -> None:
    """A request for a connection crosses 16 links, its reply 2. ARP needs 9 more: leaves pass the request up again."""
    setup = {
        "fabric": "leaf-spine:spines=4,leaves=4,hosts=20,rate=1Gbps,delay=1us,buffer=100",
        "traffic": "web-search:load=0.04,pattern=inter-leaf",
        "schemes": ("tcp-path:flood=down",),
        "duration": "500ms",
        "runs": 1,
    }
    settings = Settings.of(setup, "test")
    fabric = Fabric(settings.fabric)
    execution = Execution(settings, None, RunFiles(), {}, (settings.duration_s,))
    execution.run(1)
    (outcome,) = execution.outcomes
    flows = flow_table(fabric, [outcome])
    run = RunData(flows, run_summary(outcome, flows), outcome.samples, 1e9)
    programs = run.summary["programs"]
    explored = flows.height
    for_arp = programs["explorations"] - explored
    assert explored > 50 and for_arp > 50
    # A few replies are lost where copies meet.
    assert programs["exploration_frames"] == pytest.approx(18 * explored + 27 * for_arp, rel=0.002)
    share = METRICS["request_share"](run, Measure(metric="request_share", level=6 * REQUEST_BYTES["syn"]))
    # Within a fifth of equation (3) at this length; headers and acknowledgements are data here.
    assert share is not None and 85.0 < share < 100.0
    assert METRICS["request_share"](run, Measure(metric="request_share")) is None
