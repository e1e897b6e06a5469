"""`pathloom artefact`: what it packages, what it refuses, and what its check finds."""

from __future__ import annotations

import json
import re
import shutil
import signal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Cli, tree
from pathloom.artefact.layout import MANIFEST, digests_of
from pathloom.experiments.running.execution import Execution
from sweeping import SCHEME, TOML

pytestmark = pytest.mark.usefixtures("undrawn")
SMALL = ("--fabric", "diamond:rate=10Mbps", "--duration", "1s")
HADOOP = (*SMALL, "--traffic", "hadoop:load=0.5")
RUNS = 16
"""Runs of the small sweep."""


def compared(cli: Cli, name: str, *arguments: str) -> None:
    done = cli("compare", *arguments, "--runs", "2", "--out", f"results/{name}")
    assert done.code == 0, done.err


@pytest.fixture
def artefact(cli: Cli, tmp_path: Path) -> Path:
    """A small artefact: a comparison of two runs for each of two schemes."""
    compared(cli, "small", *HADOOP, "--schemes", "spt,ecmp")
    done = cli("artefact", "new", "paper", "results/small")
    assert done.code == 0, done.err
    return tmp_path / "paper"


def alter(folder: Path, change: float) -> None:
    """Multiplies an expected figure, as if another version had made the artefact."""
    path = folder / "expected/small/result.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    result["schemes"][1]["throughput"]["mean"] *= change
    path.write_text(json.dumps(result), encoding="utf-8")
    rewrite_manifest(folder, files=digests_of(folder), versions={"pathloom": "0.1.0", "program": "0123456789"})


def rewrite_manifest(folder: Path, **changes: Any) -> None:
    path = folder / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["files"].pop(MANIFEST, None)
    path.write_text(json.dumps({**manifest, **changes}), encoding="utf-8")


@pytest.mark.usefixtures("sweep_file")
def test_an_artefact_repeats_a_sweep_and_a_comparison_with_their_files(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCHEME, encoding="utf-8")
    (tmp_path / "helper.py").write_text("PATH = 0\n", encoding="utf-8")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/flows.csv").write_text("start_s,src,dst,size_bytes\n0,h0,h1,30000\n", encoding="utf-8")
    compared(cli, "own", *SMALL, "--traffic", "flows:file=in/flows.csv", "--schemes", "ecmp,own.py:Own")
    made = cli(
        "artefact", "new", "paper", "s.toml", "results/own", "--author", "Ada Lovelace", "--title", "Two | paths"
    )
    assert made.code == 0, made.err
    assert made.err.splitlines()[0] == "s.toml: into results/s"
    files = tree(tmp_path / "paper")
    for name in ("own.py", "helper.py", "in/flows.csv", "experiment.toml"):
        assert f"experiments/own/{name}" in files
    assert "expected/own/flows.parquet" in files and "expected/s/points.csv" in files
    assert not [name for name in files if "runs/" in name or "partial" in name]
    # Nothing outside of the artefact is needed.
    shutil.move(tmp_path / "paper", tmp_path / "elsewhere")
    for name in ("own.py", "helper.py", "in", "s.toml", "results"):
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = cli("artefact", "check", "elsewhere", "--json", "found.json")
    assert done.code == 0, done.out + done.err
    assert re.search(r"^s: equal, all \d{3,} values$", done.out, re.MULTILINE), done.out
    assert "Reproduced: 2 of 2 experiments equal." in done.out
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["reproduced"] is True
    assert [(one["name"], one["equal"]) for one in found["experiments"]] == [("s", True), ("own", True)]
    assert not (tmp_path / "elsewhere/results/s/runs").exists(), "the next check repeats all runs"


def test_a_fabric_built_in_python_is_a_file_of_the_artefact(cli: Cli, tmp_path: Path) -> None:
    import networkx as nx

    import pathloom as pl

    fabric = pl.Fabric.from_networkx(nx.cycle_graph(4), "ring.json:rate=10Mbps")
    pl.compare(fabric=fabric, traffic="long-lived", schemes=["ecmp"], duration="100ms", runs=1).save("results/ring")
    assert cli("artefact", "new", "paper", "results/ring").code == 0
    assert (tmp_path / "paper/experiments/ring/ring.json").is_file()
    done = cli("artefact", "check", "paper")
    assert (done.code, "1 of 1 experiment equal" in done.out) == (0, True), done.out + done.err


def test_the_texts_are_those_of_the_result(cli: Cli, artefact: Path) -> None:
    readme = (artefact / "README.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*)$", readme, re.MULTILINE)
    assert sections == ["Artifacts available", "Artifacts evaluated: functional", "Results reproduced"]
    result = json.loads((artefact / "expected/small/result.json").read_text(encoding="utf-8"))
    for row in result["schemes"]:
        assert re.search(rf"^\| {row['scheme']} \| [≤ ]*{row['throughput']['mean']:.3f} ± ", readme, re.MULTILINE)
    assert "It carries out 4 runs" in readme
    makefile = (artefact / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^(\w+):", makefile, re.MULTILINE) == ["check"]
    citation = yaml.safe_load((artefact / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["title"], citation["authors"]) == ("paper", [{"name": "Anonymous"}])
    zenodo = json.loads((artefact / ".zenodo.json").read_text(encoding="utf-8"))
    assert {"title", "description", "upload_type", "creators"} <= zenodo.keys()
    lock = (artefact / "requirements.lock").read_text(encoding="utf-8").splitlines()
    for library in ("pathloom", "numpy", "polars", "pydantic", "annotated-types", "typer"):
        assert f"{library}=={version(library)}" in lock
    assert not [line for line in lock if line.startswith(("pytest", "mypy", "ruff", "distributed"))]


def test_a_wheel_becomes_a_part_of_the_artefact(cli: Cli, tmp_path: Path, artefact: Path) -> None:
    wheel = tmp_path / f"pathloom-{version('pathloom')}-cp311-abi3-linux_x86_64.whl"
    wheel.write_bytes(b"wheel")
    (tmp_path / "other.whl").write_bytes(b"wheel")
    wrong = cli("artefact", "new", "more", "results/small", "--wheel", "other.whl")
    assert (wrong.code, "expected a file pathloom-" in wrong.err) == (2, True), wrong.err
    assert cli("artefact", "new", "more", "results/small", "--wheel", wheel.name).code == 0
    assert (tmp_path / "more" / wheel.name).is_file()
    lock = (tmp_path / "more/requirements.lock").read_text(encoding="utf-8").splitlines()
    assert f"./{wheel.name}" in lock
    assert not [line for line in lock if line.startswith("pathloom")]


def test_no_file_is_overwritten_without_a_word(cli: Cli, tmp_path: Path, artefact: Path) -> None:
    before = digests_of(artefact)
    again = cli("artefact", "new", "paper", "results/small")
    assert (again.code, "--replace makes it again" in again.err) == (2, True), again.err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine", encoding="utf-8")
    other = cli("artefact", "new", "mine", "results/small", "--replace")
    assert (other.code, "has notes.txt; name a new folder" in other.err) == (2, True), other.err
    (artefact / "README.md").write_text("edited", encoding="utf-8")
    edited = cli("artefact", "new", "paper", "results/small", "--replace")
    assert (edited.code, "README.md changed since" in edited.err) == (2, True), edited.err
    assert (artefact / "README.md").read_text(encoding="utf-8") == "edited"
    (artefact / "README.md").unlink()
    (artefact / "paper.pdf").write_text("mine", encoding="utf-8")
    replaced = cli("artefact", "new", "paper", "results/small", "--replace")
    assert replaced.code == 0, replaced.err
    after = digests_of(artefact)
    assert after.pop("paper.pdf")
    assert after == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "paper", "results"]


@pytest.mark.parametrize(("change", "within", "code"), [(1.02, None, 1), (1.02, "5%", 0), (1.2, "5%", 1)])
def test_a_check_says_what_differs_and_by_how_much(
    cli: Cli, artefact: Path, change: float, within: str | None, code: int
) -> None:
    alter(artefact, change)
    done = cli("artefact", "check", "paper", *(("--within", within) if within else ()))
    assert done.code == code, done.out + done.err
    assert "Pathloom 0.1.0 (build 01234567) made the expected results, and Pathloom" in done.err
    share = 100 * (1 / change - 1)
    row = next(line for line in done.out.splitlines() if "mean throughput" in line)
    assert row.split()[0] == "ecmp" and f"({share:.1f} %)".replace("-", "−") in row, done.out
    assert ("Not reproduced" in done.out) == (code == 1)
    assert ("differ by more than 5 %: ecmp throughput.mean" in done.out) == (change == 1.2)


@pytest.mark.parametrize("name", ["experiments/small/experiment.toml", "expected/small/flows.parquet"])
def test_a_damaged_artefact_is_refused(cli: Cli, artefact: Path, name: str) -> None:
    (artefact / name).write_bytes((artefact / name).read_bytes()[:-1])
    done = cli("artefact", "check", "paper")
    assert (done.code, name in done.err, done.out) == (2, True, ""), done.err


def test_a_flow_that_differs_is_found(cli: Cli, artefact: Path) -> None:
    import polars as pl

    path = artefact / "expected/small/flows.parquet"
    flows = pl.read_parquet(path)
    flows.with_columns(pl.col("size_bytes") + 1).write_parquet(path)
    rewrite_manifest(artefact, files=digests_of(artefact))
    done = cli("artefact", "check", "paper")
    assert done.code == 1
    assert "no figure; flows.parquet" in done.out, done.out


def test_an_interrupted_check_goes_on(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.toml").write_text(TOML, encoding="utf-8")
    assert cli("artefact", "new", "paper", "s.toml").code == 0
    kept: list[Any] = []
    carry_out = Execution.carry_out

    def press(execution: Execution, job: Any, stop: Any, progress: Any) -> Any:
        outcome = carry_out(execution, job, stop, progress)
        kept.append(outcome)
        if len(kept) == 3:
            signal.raise_signal(signal.SIGINT)
            # Without this, the runs that are left could end before the main thread handles the signal.
            assert stop.wait(60)
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(Execution, "carry_out", press)
        done = cli("artefact", "check", "paper", "--jobs", "1")
    assert done.code == 130, done.err
    assert f"s: interrupted: {len(kept)} of {RUNS} runs were finished" in done.err
    assert len(kept) < RUNS
    again = cli("artefact", "check", "paper", "--jobs", "1")
    assert again.code == 0, again.err
    assert f"{len(kept)} of {RUNS} runs are in" in again.err


def test_what_cannot_be_repeated_is_refused(cli: Cli, tmp_path: Path, artefact: Path) -> None:
    def refused(source: Path | str, *, of: dict[str, Any] | None = None, top: dict[str, Any] | None = None) -> str:
        path = tmp_path / "results/small/result.json"
        original = path.read_text(encoding="utf-8")
        record = json.loads(original)
        record["settings"] |= of or {}
        path.write_text(json.dumps(record | (top or {})), encoding="utf-8")
        done = cli("artefact", "new", "never", source)
        path.write_text(original, encoding="utf-8")
        assert (done.code, (tmp_path / "never").exists()) == (2, False), done.err
        assert len(done.err.splitlines()) == 1
        return done.err

    small = "results/small"
    assert "has runs in the lab" in refused(small, of={"worlds": ["sim", "lab"]})
    assert "Mine was given as a Python class" in refused(small, of={"classes": ["Mine"]})
    assert "the result ended early" in refused(small, top={"complete": False})
    assert "names the file `/tmp/x.csv`" in refused(small, of={"files": {"/tmp/x.csv": "0"}})
    assert "`gone.csv` is not here" in refused(small, of={"files": {"gone.csv": "0"}})
    (tmp_path / "here.csv").write_text("1", encoding="utf-8")
    assert "`here.csv` has changed since the runs" in refused(small, of={"files": {"here.csv": "0"}})
    assert "no such file" in refused("results/none")
    (tmp_path / "flows.csv").write_text("flow,start,end,bytes\n1,0,1,1000\n", encoding="utf-8")
    assert "of another simulator" in refused("flows.csv")
    both = cli("artefact", "new", "never", small, "results/../results/small")
    assert (both.code, "both are named `small`" in both.err) == (2, True), both.err


def test_a_folder_without_an_artefact_is_named(cli: Cli, tmp_path: Path) -> None:
    done = cli("artefact", "check", "nowhere")
    assert done.code == 2
    assert done.err == (
        "pathloom: `nowhere/artefact.json`: no such file or directory; expected a folder that `pathloom artefact new` "
        "has made\n"
    )
    (tmp_path / MANIFEST).write_text('{"schema": 1}', encoding="utf-8")
    assert "is damaged: KeyError" in cli("artefact", "check", ".").err
    (tmp_path / MANIFEST).write_text('{"schema": 2, "versions": {"pathloom": "9.0"}}', encoding="utf-8")
    assert "use the version that made it, 9.0" in cli("artefact", "check", ".").err
    assert "expected a share below 100 %" in cli("artefact", "check", ".", "--within", "200%").err
