"""A tier is left out only while its files are as they were when it passed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "scripts" / "tiers.py"


def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("tiers", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    monkeypatch.setitem(sys.modules, "tiers", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, on a checkout with one file for each of two tiers."""
    module = program(monkeypatch)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    for name in ("good", "bad"):
        (tmp_path / name).write_text("first", encoding="utf-8")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RECORD", tmp_path / "tiers.json")
    table = {
        "good": module.Tier("one that passes", ("good",), note_and_end("good", 0)),
        "bad": module.Tier("one that fails", ("bad",), note_and_end("bad", 1)),
    }
    monkeypatch.setattr(module, "TIERS", table)
    return module


def note_and_end(name: str, code: int) -> tuple[str, ...]:
    """A command that notes that it ran, and ends with an exit code."""
    return sys.executable, "-c", f"open('ran', 'a').write('{name} '); raise SystemExit({code})"


def ran(tmp_path: Path) -> list[str]:
    file = tmp_path / "ran"
    names = file.read_text(encoding="utf-8").split() if file.exists() else []
    file.unlink(missing_ok=True)
    return names


def test_a_tier_that_never_passed_runs_each_time(tiers: ModuleType, tmp_path: Path) -> None:
    assert tiers.main([]) == 1
    assert tiers.main([]) == 1
    assert ran(tmp_path) == ["good", "bad", "good", "bad"]


def test_a_tier_is_left_out_until_its_files_change(
    tiers: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tiers.main(["--all"]) == 1
    assert ran(tmp_path) == ["good", "bad"]
    capsys.readouterr()
    assert tiers.main([]) == 1
    assert ran(tmp_path) == ["bad"], "only a tier that passed is left out"
    assert "left out: one that passes; its files are as on 20" in capsys.readouterr().out
    (tmp_path / "good").write_text("second", encoding="utf-8")
    assert tiers.main([]) == 1
    assert ran(tmp_path) == ["good", "bad"]


def test_one_tier_can_be_recorded(tiers: ModuleType, tmp_path: Path) -> None:
    assert tiers.main(["--all", "good"]) == 0
    assert ran(tmp_path) == ["good"]


@pytest.mark.parametrize("arguments", [["--every"], ["--all", "missing"], ["good"]])
def test_wrong_arguments_run_nothing(tiers: ModuleType, tmp_path: Path, arguments: list[str]) -> None:
    assert tiers.main(arguments) == 2
    assert ran(tmp_path) == []


def test_every_path_of_a_tier_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    module = program(monkeypatch)
    root = FILE.parents[1]
    missing = [path for tier in module.TIERS.values() for path in tier.paths if not list(root.glob(path))]
    assert missing == []
