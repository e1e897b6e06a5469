"""Tests of the plugin: small sets of tests run in a separate pytest, with its output and exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CONFTEST = """
import os, time
import pytest
from judging import Judging
from machine import Machine
from pathloom.lab import system

def pytest_configure(config):
    config.addinivalue_line("markers", "tolerates(pause_s, share): as in the lab")
    clean_up = lambda given: print("cleaned up", sorted(given))
    config.pluginmanager.register(Judging(clean_up, lambda what, why: print(what, "|", why)))

@pytest.fixture(scope="session", autouse=True)
def machine(tmp_path_factory):
    with Machine(tmp_path_factory.mktemp("machine")) as watching:
        yield watching

@pytest.fixture
def stolen(monkeypatch):
    # A host that takes half of all processors.
    monkeypatch.setattr(system, "stolen_s", lambda: 0.5 * os.cpu_count() * time.monotonic())
"""
HEAD = """
from machine import timing
from test_machine import stand_still
import pytest
TRIES = []
pytestmark = pytest.mark.tolerates(pause_s=0.15, share=2.0)
"""
GOOD = """
def test_good_{number}():
    pass
"""
LATE_ONCE = """
def test_late_once(machine, tmp_path):
    TRIES.append(tmp_path.name)
    (tmp_path / "seen").write_text("x")
    if len(TRIES) == 1:
        stand_still(machine, 0.25)
    with timing():
        assert len(TRIES) == 2
    assert tmp_path.name == "try-2"
    assert (tmp_path.parent / "seen").exists()
"""
LOST_ONCE = """
def test_lost_once(machine):
    TRIES.append(1)
    stand_still(machine, 0.25)
    assert len(TRIES) == 2, "a probe was lost"
"""
LATE = """
def test_late():
    with timing():
        assert False, "too late"
"""
STOLEN = """
@pytest.mark.tolerates(share=0.1)
def test_stolen_{number}(stolen):
    with timing():
        assert False
"""


def run(folder: Path, *tests: str) -> tuple[int, str]:
    """Runs tests under the plugin. Returns the exit code and the output."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="ascii")
    (folder / "test_inner.py").write_text(HEAD + "".join(tests), encoding="ascii")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s", str(folder)],
        env={**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def good(count: int) -> list[str]:
    return [GOOD.format(number=number) for number in range(count)]


def stolen(count: int) -> list[str]:
    return [STOLEN.format(number=number) for number in range(count)]


def test_a_run_reports_at_its_end_which_tests_were_retried(tmp_path: Path) -> None:
    code, said = run(tmp_path, LATE_ONCE, *good(1))
    assert code == 0, said
    assert "test_late_once: try 2 | the machine stood still for" in said
    assert "cleaned up ['machine', " in said
    assert "tried again: 1 of 2 tests\n  test_inner.py::test_late_once: 1 more\n" in said
    assert "not judged: 0 of 2 tests (at most 0 may be)" in said


def test_a_run_without_retries_says_so(tmp_path: Path) -> None:
    code, said = run(tmp_path, *good(2))
    assert code == 0, said
    assert "tried again: 0 of 2 tests\nnot judged: 0 of 2 tests" in said


def test_a_broken_invariant_fails_a_run_even_if_the_machine_stood_still(tmp_path: Path) -> None:
    code, said = run(tmp_path, LOST_ONCE, *good(1))
    assert code == 1
    assert "a probe was lost" in said
    assert "tried again: 0 of 2 tests" in said


def test_a_late_test_fails_on_a_machine_that_runs(tmp_path: Path) -> None:
    code, said = run(tmp_path, LATE)
    assert code == 1
    assert "LateError: too late" in said
    assert "this was try 1 of 4" in said


@pytest.mark.parametrize(("others", "passed"), [(9, True), (8, False)])
def test_a_run_in_which_more_than_a_tenth_was_not_judged_fails(tmp_path: Path, others: int, passed: bool) -> None:
    code, said = run(tmp_path, *good(others), *stolen(1))
    assert code == (0 if passed else 1), said
    assert f"not judged: 1 of {others + 1} tests (at most {others // 9} may be)" in said
    assert "1 skipped" in said
    assert ("FAILED: too few tests were judged" in said) != passed
