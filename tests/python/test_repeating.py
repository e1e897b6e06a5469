"""The inputs of a result besides its settings, and what its report says about repeating it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import pathloom as pl
from conftest import Cli
from pathloom.api.experiment import Experiment
from pathloom.experiments.settings.input_files import Inputs
from pathloom.experiments.settings.model import Settings
from pathloom.scheme import Actions, Event, Scheme, SetDefaults, Started, View

SCHEME = """
from routes_of_mine import ROUTES
from pathloom.scheme import SetDefaults, Started

class Mine:
    def handle(self, now_ns, event, view):
        return [SetDefaults(ROUTES)] if event == Started() else None
"""
FLOWS = "start_s,src,dst,size_bytes\n0.001,h0,h1,100000\n"


class FromTheNotebook(Scheme):
    """ecmp in a class that no command line can name."""

    def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
        return [SetDefaults("ecmp")] if event == Started() else None


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SCHEME, encoding="utf-8")
    (tmp_path / "routes_of_mine.py").write_text("ROUTES = 'ecmp'\n", encoding="utf-8")
    (tmp_path / "flows.csv").write_text(FLOWS, encoding="utf-8")
    return tmp_path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def again(page: str) -> str:
    """Returns the part of a report that says how to repeat it."""
    return page[page.index("<h2>Reproduce") : page.index("<footer>")]


def test_checksums_of_every_file_are_in_the_settings(cli: Cli, files: Path) -> None:
    cli("fabric", "export", "diamond", "--format", "graphml", "--out", "mine.graphml")
    more = ["--traffic", "flows:file=flows.csv", "--schemes", "spt,mine.py:Mine", "--duration", "10ms", "--runs", "1"]
    done = cli("compare", "--fabric", "mine.graphml", *more, "--out", "out")
    assert done.code == 0, done.err
    settings = json.loads((files / "out/result.json").read_text(encoding="utf-8"))["settings"]
    names = ["flows.csv", "mine.py", "mine.graphml", "routes_of_mine.py"]
    assert settings["files"] == {name: digest(files / name) for name in names}
    assert settings["classes"] == []
    part = again((files / "out/report.html").read_text(encoding="utf-8"))
    assert "as long as the files below are what they were" in part
    assert all(name in part and digest(files / name) in part for name in names)


def test_another_content_has_another_checksum(cli: Cli, files: Path) -> None:
    command = ["run", "--fabric", "diamond", "--traffic", "flows:file=flows.csv", "--scheme", "ecmp", "--json", "-"]

    def checksums() -> Any:
        return json.loads(cli(*command, "--duration", "10ms").out)["settings"]["files"]

    before = checksums()
    assert checksums() == before
    (files / "flows.csv").write_text(FLOWS.replace("100000", "100001"), encoding="utf-8")
    assert checksums() != before


def test_a_file_that_changes_during_the_runs_is_noted(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    values = {"fabric": "diamond", "traffic": "flows:file=flows.csv", "schemes": ("ecmp",), "duration": "10ms"}
    experiment = Experiment(Settings.of(values))
    (files / "flows.csv").write_text(FLOWS.replace("100000", "90000"), encoding="utf-8")
    result = experiment.carry_out(1)
    assert result.notes == ["`flows.csv` changed during the runs, which may have read either content"]
    assert "flows.csv changed: which content" in again(result.report())


def test_a_report_without_files_names_none() -> None:
    result = pl.run(scheme="ecmp", fabric="diamond", traffic="long-lived", duration="10ms")
    assert result.summary["settings"]["files"] == {}
    part = again(result.report())
    assert "this command gives the same figures again" in part
    assert "SHA-256" not in part


def test_classes_cannot_be_repeated_by_a_command() -> None:
    result = pl.compare(
        schemes=["spt", FromTheNotebook], fabric="diamond", traffic="long-lived", duration="10ms", runs=1
    )
    assert result.summary["settings"]["classes"] == ["FromTheNotebook"]
    part = again(result.report())
    assert "No command can name FromTheNotebook" in part and "repeats the other schemes" in part
    assert "--schemes spt --duration" in part
    alone = again(pl.run(scheme=FromTheNotebook, fabric="diamond", traffic="long-lived", duration="10ms").report())
    assert "repeats nothing of this" in alone
    assert "<code>pathloom compare" not in alone


def test_a_fabric_built_in_python_has_the_checksum_of_its_file(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    (files / "fabric.json").write_text("of something else", encoding="utf-8")
    own = pl.Fabric.from_networkx(pl.diamond().to_networkx())
    result = pl.run(scheme="ecmp", fabric=own, traffic="long-lived", duration="10ms")
    assert result.notes == []
    result.save(files / "out")
    assert result.summary["settings"]["files"] == {"fabric.json": digest(files / "out/fabric.json")}


def test_runs_in_the_lab_are_not_called_repeatable() -> None:
    result = pl.run(scheme="ecmp", fabric="diamond", traffic="long-lived", duration="10ms")
    result.settings = result.settings.model_copy(update={"worlds": ("lab",)})
    part = again(result.report())
    assert "figures of the lab differ each time" in part
    assert "gives the same figures again" not in part


def test_names_in_settings_are_files_only_if_they_exist() -> None:
    values = {"fabric": "fat-tree:k=4", "traffic": "web-search:load=0.4", "schemes": ("hedera:elephant=0.2",)}
    assert Inputs.of(Settings.of(values), pl.fat_tree(k=4)) == Inputs()
