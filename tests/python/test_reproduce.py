"""Reproduction of published figures: the files, the engine, the command."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import Cli, tree
from pathloom import PathloomError, _core
from pathloom.experiments.execution import Execution, RunFiles, Sample
from pathloom.experiments.python_schemes import load_scheme
from pathloom.experiments.settings import Settings
from pathloom.experiments.summary import run_summary
from pathloom.experiments.tables import flow_table
from pathloom.fabrics import Fabric
from pathloom.reproduction import measure, pictures, texts
from pathloom.reproduction.definitions import PUBLISHED as WHOLE
from pathloom.reproduction.definitions import QUICK, Figure, Form, Measure, read_figure
from pathloom.reproduction.estimate import work_s
from pathloom.reproduction.library import FOLDER, figures, identities
from pathloom.reproduction.measure import Line, Value
from pathloom.reproduction.metrics import METRICS, REQUEST_BYTES, RunData
from pathloom.reproduction.runs import RunCache
from pathloom.specs import is_python_spec

ROOT = Path(__file__).resolve().parents[2]

PUBLISHED = {
    "ofpt": "2 4a 4b 4c 4d 5a 5b 6a 6b 6c 7 9a 9b 9c 11",
    "tcp-path": "7a 7b 9a 9b 11 12 13 14 15a 15b 16 17",
    "lessor": "1 4a 4a-permutation 4b 4b-tree 5a 5b 6 7a 7b 8a 8b",
}

TINY: dict[str, Any] = {
    "id": "ofpt/tiny",
    "title": "tiny",
    "source": "nowhere",
    "names": {"spt": "TCP"},
    "setup": {
        "fabric": "dumbbell:hosts=2,rate=100Mbps",
        "traffic": "hadoop:load={x}",
        "schemes": ["spt", "ecmp", "conga"],
        "duration": "300ms",
        "runs": 2,
    },
    "x": [0.2, 0.5],
    "plot": {"kind": "lines", "metric": "fct_mean", "unit": "s", "x": "load", "y": "mean FCT (s)"},
    "rows": [
        {"label": "TCP", "unit": "s", "scheme": "spt", "metric": "fct_mean", "case": "0.2", "published": 100.0},
        {
            "label": "ECMP",
            "unit": "s",
            "scheme": "ecmp",
            "metric": "fct_mean",
            "case": "0.2",
            "published": 100.0,
            "cause": "because",
        },
        {"label": "gain", "scheme": "ecmp", "over": ["spt"], "metric": "fct_mean", "across": "most", "published": 0.0},
        {
            "label": "CONGA",
            "unit": "s",
            "scheme": "conga",
            "metric": "fct_mean",
            "published": 0.3,
        },
        {"label": "bound", "unit": "s", "scheme": "spt", "metric": "fct_p95", "published": 1e6, "bound": "at most"},
        {"label": "unmeasured", "published": 12.0, "cause": "no such counter"},
    ],
}


def runs_to_do(figure: Figure, plans: list[measure.Planned], cache: RunCache) -> int:
    return measure.to_do([(figure, plans)], cache)[0]


def reproduced(figure: Figure, form: Form = WHOLE, cache: RunCache | None = None) -> measure.Reproduced:
    plans = measure.plan(figure, form, seed=1)
    return measure.reproduce(figure, plans, form, 1, cache or RunCache(), lambda _job, _share: None)


@pytest.fixture(scope="module")
def tiny() -> measure.Reproduced:
    return reproduced(Figure.model_validate(TINY))


@pytest.mark.parametrize("paper", sorted(PUBLISHED))
def test_every_published_figure_has_a_file(paper: str) -> None:
    assert identities(paper) == [f"{paper}/fig{name}" for name in PUBLISHED[paper].split()]
    for identity in identities(paper):
        assert (ROOT / "experiments" / f"{identity}.toml").is_file()


@pytest.mark.parametrize("figure", figures("all"), ids=lambda figure: figure.id)
@pytest.mark.parametrize("form", [WHOLE, QUICK, Form(shorten=20.0)], ids=str)
def test_every_figure_can_be_set_up(figure: Figure, form: Form) -> None:
    plans = measure.plan(figure, form, seed=1)
    assert plans
    if form.quick and figure.setup.runs * len(plans) > 20:
        assert plans[0].settings.runs < figure.setup.runs
    for one in plans:
        _core.Fabric.from_spec(one.settings.fabric)
        assert set(one.unbuilt).isdisjoint(one.settings.schemes)
        for scheme in one.settings.schemes:
            assert load_scheme(scheme) if is_python_spec(scheme) else _core.scheme_name(scheme)
    assert "{" not in "".join(one.settings.traffic + one.settings.fabric for one in plans)


@pytest.mark.parametrize("figure", [one for one in figures("all") if one.lab is not None], ids=lambda figure: figure.id)
def test_the_testbeds_figures_are_set_up_for_the_lab(figure: Figure) -> None:
    live = figure.in_lab()
    for one in measure.plan(live, WHOLE, 1, "lab"):
        assert (one.world, one.settings.lab, one.settings.control) == ("lab", "controller=pathloom", None)
        assert set(Fabric(one.settings.fabric).links["rate_bps"]) <= {10**6, 10**7, 10**8}
        # The controller is a separate program, and runs only schemes of the registry.
        assert [scheme for scheme in one.settings.schemes if is_python_spec(scheme)] == []
        assert all(live.name_of(scheme) != scheme for scheme in one.settings.schemes)
    assert all("simulator" not in note for note in live.notes)
    assert [row.published for row in live.rows if row.cause] == []


def test_a_difference_needs_a_cause(tiny: measure.Reproduced) -> None:
    lines = {line.label: line for line in tiny.published}
    assert lines["TCP"].cause == "not explained yet", "no cause is invented"
    assert lines["ECMP"].cause == "because"
    assert lines["ECMP"].difference == pytest.approx((lines["ECMP"].value.mean or 0.0) - 100.0)
    assert lines["gain"].cause is None, "both schemes have one path"
    assert lines["gain"].value.mean == pytest.approx(0.0, abs=1e-9)
    assert lines["bound"].cause is None, "a bound that holds is not a difference"
    assert (lines["CONGA"].value.mean, lines["CONGA"].cause) == (None, "conga is not built yet")
    assert (lines["unmeasured"].value.mean, lines["unmeasured"].cause) == (None, "no such counter")


def test_figures_of_runs_with_unfinished_flows_are_marked(tiny: measure.Reproduced, tmp_path: Path) -> None:
    """100 MB at 100 Mbit/s take 8 s, and the run ends after 60 ms."""
    trace = "start_s,src,dst,size_bytes\n0,h0,h2,1000\n0,h0,h2,100000000\n0,h1,h3,100000000\n"
    (tmp_path / "trace.csv").write_text(trace, encoding="utf-8")
    assert [line.value.bound for line in tiny.lines] == ["exactly"] * len(tiny.lines)
    assert texts.rows(tiny)[0][2][0].isdigit()
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
    rows = texts.rows(cut)
    assert rows[0][2].startswith("≥ ") and rows[1][2].startswith("≤ ")
    assert cut.as_json()["rows"][0]["measured_bound"] == "at least"
    assert any("TCP (2 of 2), ecmp (2 of 2)" in note for note in cut.notes)


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


def test_every_point_of_the_picture_is_a_row(tiny: measure.Reproduced) -> None:
    rows = tiny.as_json()["rows"]
    assert [row["label"] for row in rows[6:]] == ["TCP, load 0.5", "ecmp, load 0.5"]
    assert all(row["published"] is None and row["measured"] > 0 for row in rows[6:])
    assert set(rows[0]) >= {"label", "unit", "published", "measured", "ci95", "difference", "cause"}


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
        (Line("", "%", None, "exactly", Value(60.0, None), None), False),
        (Line("", "%", 50.0, "exactly", Value(None, None), None), False),
    ],
)
def test_what_counts_as_a_difference(line: Line, far: bool) -> None:
    assert measure.is_far(line) is far


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


@pytest.mark.parametrize("kind", ["bars", "lines", "ranks", "time", "starts"])
def test_every_kind_of_picture_is_drawn(kind: str) -> None:
    metric = {"ranks": "throughput", "starts": "settled_rate"}.get(kind, "fct_mean")
    plot = {**TINY["plot"], "kind": kind, "metric": metric}
    setup = {**TINY["setup"], "sample": "20ms", "runs": 1}
    result = reproduced(Figure.model_validate({**TINY, "plot": plot, "setup": setup}))
    root = ET.fromstring(pictures.picture(result).svg)
    assert root.tag.endswith("svg")
    assert len(root.findall(".//{http://www.w3.org/2000/svg}path")) > 10


def test_the_command_prints_json_and_fills_a_folder(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("reproduce", "lessor/fig1", "--quick", "--json", "-", "--out", "deep/pages", "--jobs", "1")
    assert outcome.code == 0, outcome.err
    content = json.loads(outcome.out)
    assert content["schema"] == 1
    assert [item["id"] for item in content["items"]] == ["lessor/fig1"]
    rows = {row["label"]: row for row in content["items"][0]["rows"]}
    assert rows["TCP, throughput of the optimum"]["published"] == 50.0
    assert 40.0 < rows["TCP, throughput of the optimum"]["measured"] < 51.0
    folder = ["README.md", "lessor", "lessor/fig1.json", "lessor/fig1.svg"]
    assert tree(tmp_path / "deep/pages") == folder
    page = (tmp_path / "deep/pages/README.md").read_text(encoding="utf-8")
    assert "lessor/fig1.svg" in page
    assert "83.3 %" in page
    assert "/published/" not in page, "no path of this machine"


def test_the_page_keeps_earlier_figures(cli: Cli, tmp_path: Path) -> None:
    for name in ("lessor/fig1", "ofpt/fig2"):
        outcome = cli("reproduce", name, "--quick", "--out", "pages")
        assert outcome.code == 0, outcome.err
        assert "Picture: pages/" in outcome.out
        assert "Why, " in outcome.out
        assert re.search(rf"^{name}: \d+ runs to do, about .* on \d+ threads?$", outcome.err, re.MULTILINE)
        took = rf"^{name}: \d+ runs took \d.*, \d.* of processor time; projected: \d.*$"
        assert re.search(took, outcome.err, re.MULTILINE)
    page = (tmp_path / "pages/README.md").read_text(encoding="utf-8")
    assert page.index("## lessor/fig1") < page.index("## ofpt/fig2")
    # A letter links a difference to its cause, which begins with a capital letter.
    assert re.search(r"^\| TCP, throughput of the optimum \|.* % \(a\) \|$", page, re.MULTILINE)
    assert re.search(r"^- \(a\) The example counts payload alone;", page, re.MULTILINE)


def test_the_page_has_the_quick_values_beside_the_others(cli: Cli, tmp_path: Path) -> None:
    assert cli("reproduce", "lessor/fig1", "--quick", "--out", "pages/quick").code == 0
    assert cli("reproduce", "lessor/fig1", "--shorten", "5", "--out", "pages").code == 0
    tables = [tmp_path / "pages" / folder / "lessor/fig1.json" for folder in ("", "quick")]
    whole, quick = (json.loads(path.read_text(encoding="utf-8"))["table"] for path in tables)
    page = (tmp_path / "pages/README.md").read_text(encoding="utf-8")
    assert "|  | published | measured | difference | `--quick` |" in page
    assert len(whole) > 3
    for (label, published, measured, difference), (_, _, beside, _) in zip(whole, quick, strict=True):
        line = f"| {label} | {published} | {measured} | {difference}"
        assert re.search(rf"^{re.escape(line)}( \(.\))? \| {re.escape(beside)} \|$", page, re.MULTILINE), line


def test_the_list_names_every_figure(cli: Cli) -> None:
    text = cli("reproduce", "list").out
    listed = [entry["id"] for entry in json.loads(cli("reproduce", "--json", "-").out)["figures"]]
    assert listed == identities("all")
    assert all(identity in text for identity in listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["oftp"], ["`oftp`", "did you mean `ofpt`?"]),
        (["ofpt/fig4"], ["figure of ofpt", "`fig4`", "did you mean `fig4a` or `fig4b` or"]),
        (["ofpt/"], ["figure of ofpt", "``"]),
        (["../ofpt"], ["no paper", "`..`"]),
        (["ofpt/fig4a", "--jobs", "0"], ["--jobs", "`0`"]),
        (["ofpt/fig4a", "--seed", "x"], ["--seed", "`x`"]),
        (["ofpt/fig4a", "--world", "lab"], ["figure ofpt/fig4a", "not run in the lab"]),
        (["ofpt/fig11", "--world", "lap"], ["--world `lap`", "expected sim or lab"]),
        (["ofpt/fig11", "--world", "lab", "--quick"], ["--quick", "one form"]),
        (["ofpt/fig9a", "--world", "lab", "--shorten", "2"], ["--shorten", "one form"]),
        (["ofpt/fig2", "--quick", "--shorten", "2"], ["--shorten", "leave one out"]),
        (["ofpt/fig2", "--any-build"], ["--any-build", "needs --resume"]),
        (["ofpt/fig2", "--shorten", "0.5"], ["--shorten `0.5`", "from 1 to"]),
        (["ofpt/fig2", "--shorten", "nan"], ["--shorten `nan`", "from 1 to"]),
        (["ofpt/fig2", "--shorten", "ten"], ["--shorten `ten`", "from 1 to"]),
        (["ofpt/fig4a", "--out", "a-file"], ["--out", "a-file", "name a folder"]),
    ],
)
def test_bad_input_is_one_line(cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "a-file").write_text("here already", encoding="utf-8")
    outcome = cli("reproduce", *arguments)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err
    assert tree(tmp_path) == ["a-file"]


GOOD = """
title = "t"
source = "s"
[setup]
fabric = "diamond"
traffic = "long-lived"
schemes = ["spt"]
duration = "1s"
runs = 1
[plot]
kind = "bars"
metric = "throughput"
y = "y"
[[rows]]
label = "r"
metric = "throughput"
published = 1.0
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('metric = "throughput"\ny', 'metric = "thruput"\ny', ["plot", "`thruput`", "throughput"]),
        ('kind = "bars"', 'kind = "pies"', ["plot.kind"]),
        ('title = "t"', 'titel = "t"', ["`titel`", "did you mean `title`?"]),
        ('label = "r"', 'label = "r"\ncase = "x"', ["case `x`"]),
        ('label = "r"', 'label = "r"\nscheme = "ecmp"', ["scheme `ecmp`"]),
        ('label = "r"\nmetric = "throughput"', 'label = "r"', ["row `r`", "cause"]),
        ("runs = 1", "runs = 0", ["setup.runs"]),
        ('title = "t"', "title = ", ["TOML"]),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in GOOD
    path = tmp_path / "mine.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert read_figure(path, "mine/fig1").rows[0].published == 1.0
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PathloomError) as raised:
        read_figure(path, "mine/fig1")
    for word in ["mine/fig1", *words]:
        assert word in str(raised.value)
    assert "\n" not in str(raised.value)


def test_printed_rows_fit_the_measured_values(tiny: measure.Reproduced) -> None:
    rows = texts.rows(tiny)
    assert rows[0][1] == "100 s"
    assert rows[0][3].startswith("−")
    assert rows[3][2:] == ["–", "–"]
    assert rows[4][1].startswith("≤ ")
    table = texts.measured_table(tiny)
    assert table is not None
    assert table[0] == ["load", "TCP", "ecmp"]
    assert [row[0] for row in table[1]] == ["0.2", "0.5"]
    assert dict(texts.setup_lines(tiny))["x"] == "0.2, 0.5"
    assert texts.command(tiny) == "pathloom reproduce ofpt/tiny"


def test_no_curve_is_cut_off(tiny: measure.Reproduced) -> None:
    """A flow may have more than its share of the link. The picture must include 120 %, and zero."""
    plot = tiny.figure.plot.model_copy(update={"kind": "ranks", "metric": "share"})
    figure = tiny.figure.model_copy(update={"plot": plot})
    data = {key: [replace(run, ranks={"share": [40.0, 120.0]}) for run in runs] for key, runs in tiny.data.items()}
    axes = pictures.picture(replace(tiny, figure=figure, data=data)).figure.axes[0]
    assert axes.dataLim.y1 == 120.0
    assert axes.get_ylim()[0] == 0.0
    assert axes.get_ylim()[1] > 120.0


def test_no_scheme_hides_another(tiny: measure.Reproduced) -> None:
    axes = pictures.picture(tiny).figure.axes[0]
    starts = [container[0].get_xdata()[0] for container in axes.containers]
    assert len(starts) == len(set(starts)) == 2
    assert sum(starts) / 2 == pytest.approx(0.2), "side by side, with the load in the middle"
    assert axes.get_ylim()[0] == 0.0, "nothing is below zero"


def test_the_estimate_of_work_follows_the_simulated_traffic(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("start_s,src,dst,size_bytes\n0,h0,h1,1000\n", encoding="utf-8")

    def estimated(traffic: str, duration: str = "10s") -> float:
        given = {"fabric": "fat-tree:k=4,rate=1Gbps", "traffic": traffic, "schemes": ("ecmp",), "duration": duration}
        settings = Settings.of(given)
        return work_s(settings, settings.jobs("sim")[:1])

    whole = estimated("long-lived")
    assert estimated("long-lived", "20s") == pytest.approx(2 * whole, rel=0.1)
    assert estimated("web-search:load=0.5") == pytest.approx(whole / 2, rel=0.1)
    assert estimated(f"flows:file={tmp_path / 'few.csv'}") < whole / 20
    (tmp_path / "endless.csv").write_text("start_s,src,dst,size_bytes\n0,h0,h1,\n", encoding="utf-8")
    assert estimated(f"flows:file={tmp_path / 'endless.csv'}") == pytest.approx(whole)


def test_every_figure_has_an_estimate() -> None:
    plans = [(figure, measure.plan(figure, WHOLE, seed=1)) for figure in figures("all")]
    for plan in plans:
        runs, work = measure.to_do([plan], RunCache())
        assert runs > 0 and math.isfinite(work) and work > 0, plan[0].id


def test_runs_that_figures_share_count_once() -> None:
    pair = figures("ofpt/fig4a") + figures("ofpt/fig4c")
    plans = [(figure, measure.plan(figure, QUICK, seed=1)) for figure in pair]
    alone = [measure.to_do([one], RunCache())[0] for one in plans]
    together, work = measure.to_do(plans, RunCache())
    assert max(alone) <= together < sum(alone)
    assert work > 0


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


def test_a_picture_over_starting_times_measures_every_step() -> None:
    plot = {"kind": "starts", "metric": "settled_rate", "steps": 4, "from_bytes": 1000, "y": "Mbit/s"}
    figure = Figure.model_validate({**TINY, "plot": plot})
    assert [(measure.level, measure.from_bytes) for _, measure in figure.plot.measures()] == [
        (0.0, 1000),
        (0.25, 1000),
        (0.5, 1000),
        (0.75, 1000),
    ]


def test_quick_shortens_each_case_by_the_same_factor() -> None:
    figure = next(one for one in figures("tcp-path/fig14"))
    whole, quick = (measure.plan(figure, short, seed=1) for short in (WHOLE, QUICK))
    assert [one.settings.duration_s for one in whole] == [1800.0, 180.0, 18.0]
    assert [one.settings.duration_s for one in quick] == [900.0, 90.0, 9.0]


def test_shortened_runs_are_as_many_as_published_and_say_so() -> None:
    figure = Figure.model_validate({**TINY, "setup": {**TINY["setup"], "duration": "400ms"}})
    result = reproduced(figure, Form(shorten=2.0))
    first = result.plans[0].settings
    assert (first.runs, first.duration_s) == (figure.setup.runs, 0.2)
    assert f"{first.runs} runs of 0.2s per scheme" in dict(texts.setup_lines(result))["runs"]
    assert f"as published: {figure.setup.runs} of 400ms" in dict(texts.setup_lines(result))["runs"]
    assert texts.command(result) == f"pathloom reproduce {figure.id} --shorten 2"
    assert (result.as_json()["quick"], result.as_json()["shorten"]) == (False, 2.0)


def test_the_terminal_names_installed_files_and_the_page_those_of_the_repository(
    tiny: measure.Reproduced,
) -> None:
    trace = FOLDER / "traces/one-flow.csv"
    assert trace.is_file()
    setup = tiny.figure.setup.model_copy(update={"traffic": f"flows:file={trace}"})
    result = replace(tiny, figure=tiny.figure.model_copy(update={"setup": setup}))
    assert dict(texts.setup_lines(result, where=str(FOLDER)))["traffic"] == f"flows:file={trace}"
    assert dict(texts.setup_lines(result))["traffic"] == "flows:file=experiments/traces/one-flow.csv"


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


def test_a_comparison_between_cases_is_not_a_published_point(tiny: measure.Reproduced) -> None:
    """The comparison is in per cent, the picture in another unit."""
    row = {"label": "more", "scheme": "spt", "metric": "fct_mean", "case": "0.5", "over_case": "0.2", "published": 0.0}
    result = reproduced(Figure.model_validate({**TINY, "rows": [row]}))
    labels = [line.label for line in result.lines]
    assert labels == ["more", "TCP, load 0.2", "ecmp, load 0.2", "TCP, load 0.5", "ecmp, load 0.5"]
    assert b"published" not in pictures.picture(result).svg
    assert b"published" in pictures.picture(tiny).svg


def test_powers_of_ten_are_numbers_on_a_picture() -> None:
    result = reproduced(Figure.model_validate({**TINY, "plot": {**TINY["plot"], "log": True}}))
    assert b"mathdefault" not in pictures.picture(result).svg
