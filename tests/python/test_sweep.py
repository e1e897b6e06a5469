"""Sweeps: their results, and how they continue after an interruption at any time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest

import pathloom
from conftest import Cli, tree
from pathloom.api.results import SweepResult
from pathloom.experiments.running.store import locked_store
from pathloom.experiments.sweeps.plan import SweepPlan
from pathloom.experiments.sweeps.precision import Precision, uncertainty
from sweeping import COMMAND, TOML, content, in_new_process, runs_in, stamps
from synthetic import numbers

POINTS = """
fabric = "diamond:rate={rate}"
traffic = "hadoop:load={load}"
schemes = ["spt", "ecmp"]
duration = "1s"
runs = 1
points = [{rate = "10Mbps", load = 0.6}, {rate = "20Mbps", load = 0.3}, {rate = "30Mbps", load = 0.3}]
"""
pytestmark = pytest.mark.usefixtures("sweep_file")


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_equals_a_comparison_at_each_point(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("sweep", "s.toml", "--out", "out", "--json", "s.json", "--jobs", "2")
    assert outcome.code == 0, outcome.err
    found = numbers((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert found == content(tmp_path / "out")
    assert [point["at"] for point in found["points"]] == [
        {"load": load, "rate": rate} for load in (0.3, 0.6) for rate in ("10Mbps", "20Mbps")
    ]
    assert found["settings"]["grid"] == {"load": [0.3, 0.6], "rate": ["10Mbps", "20Mbps"]}
    for point in found["points"]:
        load, rate = point["at"]["load"], point["at"]["rate"]
        options = ["--fabric", f"diamond:rate={rate}", "--traffic", f"hadoop:load={load}"]
        alone = cli("compare", *options, "--schemes", "spt,ecmp", "--duration", "1s", "--runs", "2", "--json", "-")
        assert numbers(alone.out)["schemes"] == point["schemes"]


def test_numbers_agree_in_all_outputs(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("sweep", "s.toml", "--out", "out", "--plots", "svg,pdf,png")
    found = content(tmp_path / "out")
    runs = pl.read_parquet(tmp_path / "out/runs.parquet")
    points = pl.read_csv(tmp_path / "out/points.csv")
    assert (runs.height, points.height) == (16, 8)
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    lines = [line.split() for line in outcome.out.splitlines()]
    from pathloom.quantities import share_figure, time_figure

    for point in found["points"]:
        at = (pl.col("load") == point["at"]["load"]) & (pl.col("rate") == point["at"]["rate"])
        for row in point["schemes"]:
            own = points.filter(at & (pl.col("scheme") == row["scheme"])).row(0, named=True)
            assert own["throughput_mean"] == row["throughput"]["mean"]
            assert own["fct_p99_s"] == row["fct_s"]["p99"]
            assert own["flows_unfinished"] == row["flows"]["unfinished"]
            assert own["packets_hops"] == row["packets"]["hops"]
            of_runs = runs.filter(at & (pl.col("scheme") == row["scheme"]))
            assert of_runs["fct_mean_s"].to_list() == [run["fct_s"]["mean"] for run in row["runs"]]
            throughput, fct = row["throughput"], row["fct_s"]
            cells = [share_figure(throughput["mean"], throughput["ci95"]), time_figure(fct["mean"], fct["ci95"])]
            shown = [word for cell in cells for word in cell.split()]
            (line,) = [
                words for words in lines if words[:3] == [str(point["at"]["load"]), point["at"]["rate"], row["scheme"]]
            ]
            assert all(part in line for part in shown), line
            assert all(part in page for part in shown)
    for metric in ("throughput", "fct", "slowdown", "p99-slowdown"):
        for axis in ("load", "rate"):
            for kind in ("svg", "pdf", "png"):
                assert (tmp_path / f"out/{metric}-by-{axis}.{kind}").stat().st_size > 1000
    tex = (tmp_path / "out/points.tex").read_text(encoding="utf-8")
    assert tex.count(r"\\") == 9


@pytest.mark.usefixtures("undrawn")
def test_other_kinds_of_plots_leave_none_of_the_old_ones(cli: Cli, tmp_path: Path) -> None:
    for kind in ("svg", "pdf"):
        assert cli("sweep", "s.toml", "--out", "out", "--plots", kind).code == 0
        assert {path.suffix for path in (tmp_path / "out").glob("*-by-*")} == {f".{kind}"}


@pytest.mark.usefixtures("undrawn")
def test_a_list_of_points_instead_of_a_grid_and_with_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text(POINTS, encoding="utf-8")
    outcome = cli("sweep", "list.toml", "--out", "out")
    assert outcome.code == 0, outcome.err
    found = content(tmp_path / "out")
    at = [{"rate": "10Mbps", "load": 0.6}, {"rate": "20Mbps", "load": 0.3}, {"rate": "30Mbps", "load": 0.3}]
    assert [point["at"] for point in found["points"]] == found["settings"]["points"] == at
    assert "grid" not in found["settings"]
    in_grid = pathloom.sweep({**SweepPlan.read(tmp_path / "s.toml").record(), "runs": 1}, "grid")
    (same,) = [point for point in in_grid.points if point.at == {"load": 0.6, "rate": "10Mbps"}]
    assert numbers(json.dumps(same.schemes)) == found["points"][0]["schemes"], "a list gives the same as a grid"
    again = cli("sweep", "list.toml", "--out", "out")
    assert "6 of 6 runs are in out already" in again.err
    # A rate decides its load, so there is one panel for rates; a load has several rates.
    plan = SweepPlan.read(tmp_path / "list.toml")
    assert (plan.others("rate"), plan.others("load")) == ([], ["rate"])
    (tmp_path / "both.toml").write_text(
        POINTS.replace("1s", "{time}") + '[grid]\ntime = ["100ms", "200ms"]\n', encoding="utf-8"
    )
    both = SweepPlan.read(tmp_path / "both.toml")
    assert [point.at["time"] for point in both.points] == ["100ms", "200ms"] * 3
    assert [point.at["rate"] for point in both.points[::2]] == ["10Mbps", "20Mbps", "30Mbps"]
    assert SweepPlan.of(both.record()).points == both.points


@pytest.mark.usefixtures("undrawn")
def test_notes_that_differ_only_in_figures_are_printed_once(cli: Cli, tmp_path: Path) -> None:
    text = TOML.replace('["spt", "ecmp"]', '["hedera"]')
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    outcome = cli("sweep", "s.toml", "--out", "out")
    assert outcome.code == 0, outcome.err
    periods = [line for line in outcome.out.splitlines() if "its period of" in line]
    assert len(periods) == 1, outcome.out
    assert " (and at 1 other point with other values): scheme hedera: its period of 5s" in periods[0]
    notes = [note for point in content(tmp_path / "out")["points"] for note in point["traffic"]["notes"]]
    assert len({note for note in notes if "its period of" in note}) > 1, "result.json has the figures of each point"


@pytest.mark.usefixtures("undrawn")
def test_an_interrupt_while_plots_are_made_says_that_all_runs_are_kept(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SweepResult, "save", interrupted)
        ended = cli("sweep", "s.toml", "--out", "out")
    assert ended.code == 130
    assert ended.err == "pathloom: interrupted: all runs are kept in out; the same command goes on from here\n"
    assert tree(tmp_path / "out/runs") == sorted(stamps(tmp_path / "out"))
    assert "16 of 16 runs are in out already" in cli("sweep", "s.toml", "--out", "out").err


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_is_never_mixed_with_other_results_in_its_folder(cli: Cli, tmp_path: Path) -> None:
    common = ["--fabric", "diamond:rate=10Mbps", "--traffic", "hadoop:load=0.6", "--schemes", "spt,ecmp", "--runs", "1"]
    first = ["compare", *common, "--duration", "500ms", "--out", "out"]
    assert cli(*first).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    other = ["compare", *common, "--duration", "700ms", "--out", "out"]
    refused = cli(*other)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.count("\n") == 1
    assert "`out`: holds a result of other settings (duration); --resume replaces it" in refused.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert cli(*first, "--plots", "pdf").code == 0, "the same settings are the same result"
    assert cli(*other, "--resume").code == 0
    assert content(tmp_path / "out")["settings"]["duration"] == "700ms"
    with locked_store(tmp_path / "busy"):
        busy = cli("compare", *common, "--duration", "500ms", "--out", "busy")
        assert busy.code == 2
        assert "another command is using it" in busy.err
        assert tree(tmp_path / "busy") == ["runs"]


@pytest.mark.usefixtures("undrawn")
def test_the_same_command_carries_out_only_missing_runs(cli: Cli, tmp_path: Path) -> None:
    cli("sweep", "s.toml", "--out", "out")
    first, before = content(tmp_path / "out"), stamps(tmp_path / "out")
    names = sorted(before)
    (tmp_path / "out/runs" / names[0]).unlink()
    broken = tmp_path / "out/runs" / names[1]
    broken.write_bytes(broken.read_bytes()[:-100])
    empty = tmp_path / "out/runs" / names[2]
    empty.write_bytes(b"")
    outcome = cli("sweep", "s.toml", "--out", "out")
    assert "13 of 16 runs are in out already" in outcome.err
    assert content(tmp_path / "out") == first
    after = stamps(tmp_path / "out")
    assert after.keys() == before.keys()
    assert {name for name in names if after[name] != before[name]} == set(names[:3])


@pytest.mark.usefixtures("undrawn")
def test_a_grid_can_grow_and_an_old_result_is_not_replaced_unasked(cli: Cli, tmp_path: Path, sweep_file: Path) -> None:
    cli("sweep", "s.toml", "--out", "out")
    before, kept = content(tmp_path / "out"), stamps(tmp_path / "out")
    sweep_file.write_text(TOML.replace("[0.3, 0.6]", "[0.3, 0.6, 0.9]"), encoding="utf-8")
    refused = cli("sweep", "s.toml", "--out", "out")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--resume" in refused.err
    assert content(tmp_path / "out") == before
    grown = cli("sweep", "s.toml", "--out", "out", "--resume")
    assert grown.code == 0, grown.err
    assert "16 of 24 runs are in out already" in grown.err
    assert kept.items() <= stamps(tmp_path / "out").items()
    assert content(tmp_path / "out")["points"][:4] == before["points"]


def test_bounds_are_not_called_known_differences(cli: Cli, tmp_path: Path, sweep_file: Path) -> None:
    (tmp_path / "long.csv").write_text("start_s,src,dst,size_bytes\n0,h0,h1,100000000\n", encoding="utf-8")
    text = TOML.replace("hadoop:load={load}", "flows:file=long.csv").replace("load = [0.3, 0.6]\n", "")
    sweep_file.write_text(text, encoding="utf-8")
    outcome = cli("sweep", "s.toml", "--out", "out", "--until", "ci=5%,most=3")
    assert outcome.code == 0, outcome.err
    assert [point["until"]["bounds"] for point in content(tmp_path / "out")["points"]] == [True, True]
    assert "is known to" not in outcome.out
    assert "At 2 of 2 points, flows are unfinished, so figures are bounds" in outcome.out


def test_rows_of_one_scheme_at_several_lists_can_be_told_apart(cli: Cli, sweep_file: Path) -> None:
    text = 'fabric = "diamond"\ntraffic = "long-lived"\nschemes = "{x}"\nduration = "10ms"\n[grid]\n'
    sweep_file.write_text(f'{text}x = ["spt,ecmp", "spt"]\n', encoding="utf-8")
    several = cli("sweep", "s.toml", "--out", "several")
    assert [line.split()[:2] for line in several.out.splitlines() if " 3 " in line][:3] == [
        ["spt,ecmp", "spt"],
        ["spt,ecmp", "ecmp"],
        ["spt", "spt"],
    ]
    sweep_file.write_text(f'{text}x = ["ecmp", "spt"]\n', encoding="utf-8")
    single = cli("sweep", "s.toml", "--out", "single")
    assert [line.split()[0] for line in single.out.splitlines() if " 3 " in line][:2] == ["ecmp", "spt"]


def test_seeds_come_first(tmp_path: Path) -> None:
    from pathloom.experiments.sweeps.sweep import Sweep

    with locked_store(tmp_path) as store:
        sweep = Sweep(SweepPlan.read(tmp_path / "s.toml"), store)
        order = [(work.job.run, work.place, work.job.scheme) for work in sweep.missing()]
    assert [run for run, _, _ in order] == [1] * 8 + [2] * 8
    assert order[:2] == [(1, "load=0.3, rate=10Mbps", "spt"), (1, "load=0.3, rate=10Mbps", "ecmp")]


def started(folder: Path, *before: str) -> subprocess.Popen[str]:
    """Starts the sweep. `before` is a command that runs the sweep, such as one with limits."""
    arguments = [*before, *COMMAND, "sweep", "s.toml", "--out", "out", "--jobs", "2"]
    # With a limit on the size of files, Python would keep truncated compiled modules.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def await_runs(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    give_up_at = time.monotonic() + 120
    while process.poll() is None and runs_in(folder) < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


@pytest.fixture
def many(sweep_file: Path) -> None:
    """A sweep of 80 runs."""
    sweep_file.write_text(TOML.replace("runs = 2", "runs = 10").replace("1s", "2s"), encoding="utf-8")


@pytest.mark.usefixtures("many")
def test_a_sweep_killed_five_times_gives_the_same_result(tmp_path: Path) -> None:
    chance = random.Random(7)
    killed = 0
    # On a busy machine a kill comes late, and more runs are finished by then.
    while killed < 5 and runs_in(tmp_path) < 72:
        process = started(tmp_path)
        await_runs(process, tmp_path, runs_in(tmp_path) + chance.randint(1, 7))
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= 3, "the sweep ended too early"
    in_new_process(tmp_path, "sweep", "s.toml", "--out", "out")
    assert not [name for name in tree(tmp_path) if "partial" in name]
    in_new_process(tmp_path, "sweep", "s.toml", "--out", "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert len(content(tmp_path / "whole")["points"]) == 4


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_keeps_finished_runs(tmp_path: Path, how: signal.Signals, code: int) -> None:
    process = started(tmp_path)
    await_runs(process, tmp_path, 5)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    done = runs_in(tmp_path)
    assert (process.returncode, out) == (code, "")
    assert err == (
        f"pathloom: interrupted: {done} of 80 runs were finished, kept in out; the same command goes on from here\n"
    )
    assert tree(tmp_path / "out") == ["runs", *sorted(f"runs/{name}" for name in stamps(tmp_path / "out"))]
    assert f"{done} of 80 runs are in out already" in in_new_process(tmp_path, "sweep", "s.toml", "--out", "out").stderr


@pytest.mark.usefixtures("many")
def test_a_write_error_is_reported_and_finished_runs_are_kept(tmp_path: Path) -> None:
    process = started(tmp_path)
    await_runs(process, tmp_path, 5)
    process.kill()
    process.communicate()
    done = runs_in(tmp_path)
    # As on a full disk, no file can grow beyond a few bytes.
    full = started(tmp_path, "prlimit", "--fsize=1000")
    out, err = full.communicate(timeout=120)
    assert (full.returncode, out) == (2, "")
    line = err.splitlines()[-1]
    assert "cannot write `out/runs/" in line
    assert "file too large" in line
    assert f"{done} of 80 runs were finished, kept in out; the same command goes on from here" in line
    assert runs_in(tmp_path) == done
    assert not [name for name in tree(tmp_path) if "partial" in name]


def test_only_one_command_may_use_a_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with locked_store(tmp_path / "out"):
        outcome = cli("sweep", "s.toml", "--out", "out")
    assert outcome.code == 2
    assert "another command" in outcome.err
    assert cli("sweep", "s.toml", "--out", "out").code == 0


def test_results_of_different_kinds_are_not_mixed(cli: Cli, tmp_path: Path) -> None:
    compare = ["compare", "--fabric", "diamond", "--traffic", "long-lived", "--schemes", "ecmp", "--duration", "10ms"]
    assert cli(*compare, "--out", "c").code == 0
    assert cli("sweep", "s.toml", "--out", "s").code == 0
    for command, words in (
        (["sweep", "s.toml", "--out", "c"], "holds the result of a comparison"),
        ([*compare, "--out", "s"], "holds the result of a sweep"),
    ):
        before = tree(tmp_path)
        outcome = cli(*command)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert words in outcome.err
        assert tree(tmp_path) == before


def test_saving_from_python_mixes_no_results_of_different_kinds(tmp_path: Path) -> None:
    settings = {"fabric": "diamond", "traffic": "long-lived", "schemes": ["ecmp"], "runs": 1}
    compared = pathloom.compare(**settings, duration="10ms")  # type: ignore[arg-type]
    swept = pathloom.sweep({**settings, "duration": "{time}", "grid": {"time": ["10ms", "20ms"]}}, tmp_path / "s")
    compared.save(tmp_path / "c")
    swept.save(tmp_path / "s")
    for result, folder, words in ((compared, "s", "of a sweep"), (swept, "c", "of a comparison")):
        before = tree(tmp_path)
        with pytest.raises(pathloom.PathloomError, match=f"{folder}`: holds the result {words}; name another folder$"):
            result.save(tmp_path / folder)
        assert tree(tmp_path) == before
    compared.save(tmp_path / "c")
    swept.save(tmp_path / "s")
    assert repr(swept) == "SweepResult(ecmp over time: 2 points, 2 runs)"
    assert repr(pathloom.load(tmp_path / "s")) == f"Loaded(sweep `{tmp_path}/s`: ecmp; 2 points, 2 runs)"
    assert repr(pathloom.load(tmp_path / "c")) == f"Loaded(comparison `{tmp_path}/c`: ecmp; 1 run)"


def test_runs_are_added_until_differences_are_sure(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("sweep", "s.toml", "--out", "out", "--until", "ci=5%,most=4")
    assert outcome.code == 0, outcome.err
    found = content(tmp_path / "out")
    assert found["settings"]["precision"] == "ci=5%,most=4"
    lengths = [{len(row["runs"]) for row in point["schemes"]} for point in found["points"]]
    assert all(len(one) == 1 for one in lengths), "all schemes of a point meet the same flows"
    for point, (runs,) in zip(found["points"], lengths, strict=True):
        assert 2 <= runs <= 4
        assert point["until"]["ci"] == uncertainty(point["schemes"])
        assert point["until"]["reached"] == (point["until"]["ci"] <= 0.05)
        assert point["until"]["reached"] or runs == 4
    assert any(runs > 2 for (runs,) in lengths)
    # The widest interval is always reached, with the fewest runs.
    cli("sweep", "s.toml", "--out", "wide", "--until", "ci=100%")
    wide = content(tmp_path / "wide")
    fewest = [min(len(row["runs"]) for row in point["schemes"]) for point in wide["points"]]
    assert min(fewest) == 2


def test_sweeps_from_python(cli: Cli, tmp_path: Path) -> None:
    cli("sweep", "s.toml", "--out", "out")
    settings = {
        "fabric": "diamond:rate={rate}",
        "traffic": "hadoop:load={load}",
        "schemes": ["spt", "ecmp"],
        "duration": "1s",
        "runs": 2,
        "grid": {"load": [0.3, 0.6], "rate": ["10Mbps", "20Mbps"]},
    }
    result = pathloom.sweep(settings, tmp_path / "mine", jobs=2)
    assert numbers(result.json()) == content(tmp_path / "out")
    result.save(tmp_path / "mine")
    loaded = pathloom.load(tmp_path / "mine")
    assert loaded.table.equals(result.table)
    assert loaded.runs.equals(result.runs)
    assert pathloom.sweep(tmp_path / "s.toml", tmp_path / "mine").table.equals(result.table)


def test_precision_is_read() -> None:
    assert Precision.parse("ci=2%").most_runs(3) == 30
    assert Precision.parse("most=7,ci=0.5%") == Precision(0.005, 7)
    assert Precision.parse(Precision(0.005, 7).text()) == Precision(0.005, 7)


def test_comparisons_can_be_resumed_too(cli: Cli, tmp_path: Path) -> None:
    options = ["--fabric", "diamond", "--traffic", "hadoop:load=0.4", "--duration", "100ms", "--runs", "3"]
    compare = ["compare", *options, "--schemes", "ecmp,spt", "--out", "out", "--resume"]
    assert cli(*compare).code == 0
    first = content(tmp_path / "out")
    plain = cli("compare", *options, "--schemes", "ecmp,spt", "--json", "-")
    assert numbers(plain.out) == first
    before = stamps(tmp_path / "out")
    assert len(before) == 6
    next(iter((tmp_path / "out/runs").iterdir())).unlink()
    (tmp_path / "out/flows.parquet").rename(tmp_path / "old.parquet")
    assert cli(*compare).code == 0
    assert content(tmp_path / "out") == first
    assert sum(before[name] != stamp for name, stamp in stamps(tmp_path / "out").items()) == 1
    old, new = (pl.read_parquet(path) for path in (tmp_path / "old.parquet", tmp_path / "out/flows.parquet"))
    assert old.equals(new)
    # A command uses runs that another command has stored.
    cli("run", *options, "--scheme", "spt", "--out", "out", "--resume")
    assert stamps(tmp_path / "out").keys() == before.keys()


def test_the_report_states_the_command_and_the_seeds(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML, encoding="utf-8")
    assert cli("sweep", "s.toml", "--out", "out").code == 0
    report = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "<pre><code>pathloom sweep s.toml</code></pre>" in report
    assert "<dt>runs of each scheme</dt><dd>2, seeds 1 and 2</dd>" in report
