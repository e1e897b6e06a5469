"""Files of published figures: every one can be set up, and a bad one is named."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pathloom import PathloomError, _core
from pathloom.experiments.running.estimate import work_s
from pathloom.experiments.schemes.loading import load_scheme
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.reproduction import measure, texts
from pathloom.reproduction.definitions import PUBLISHED as WHOLE
from pathloom.reproduction.definitions import QUICK, Figure, Form, read_figure
from pathloom.reproduction.library import figures, identities
from pathloom.reproduction.runs import RunCache
from pathloom.specs import is_python_spec
from reproducing import TINY, reproduced

ROOT = Path(__file__).resolve().parents[2]


PUBLISHED = {
    "ofpt": "2 4a 4b 4c 4d 5a 5b 6a 6b 6c 7 9a 9b 9c 11",
    "tcp-path": "7a 7b 9-timeouts 9a 9b 11 12 13 14 15a 15b 16 17",
    "lessor": "1 4a 4a-permutation 4b 4b-tree 5a 5b 6 7a 7b 8a 8b",
}


@pytest.mark.parametrize("paper", sorted(PUBLISHED))
def test_every_published_figure_has_a_file(paper: str) -> None:
    assert identities(paper) == [f"{paper}/fig{name}" for name in PUBLISHED[paper].split()]
    for identity in identities(paper):
        assert (ROOT / "published" / f"{identity}.toml").is_file()


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
