"""Labs for tests. Their names contain a token of this process. If it is killed, a reaper takes them down.

The gate (`make lab-test`) has tests of facts: nothing lost where nothing may be lost, rules right, a program works. No
test of it asserts a duration, a rate or a share of time. A test marked `measure` has a figure as its result.
`make bench-live` runs these, and writes their figures to a file (benches/live).
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pathloom.lab.lab import Lab
from support import FIGURES, Outcome, call, left_of

TOKEN = f"t{os.getpid():x}{secrets.token_hex(2)}"

REAPER = """
import sys
sys.stdin.read()
from pathloom.lab.lab import Lab, known_labs
for name in known_labs():
    if name.startswith(sys.argv[1]):
        Lab(name).down()
"""


def pytest_configure(config: pytest.Config) -> None:
    if os.geteuid() != 0:
        pytest.exit("lab tests need root, for namespaces and Open vSwitch", returncode=1)
    config.addinivalue_line("markers", "measure: its result is a figure, not a fact; run by `make bench-live`")
    # The scheme `move` is for tests only.
    os.environ["PATHLOOM_TEST_SCHEMES"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves tests that measure out, unless the command line selects tests by their marks."""
    if "measure" not in config.option.markexpr:
        measured = [item for item in items if item.get_closest_marker("measure")]
        config.hook.pytest_deselected(items=measured)
        items[:] = [item for item in items if item not in measured]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Attaches the figures of a test to its report, which also leaves a worker of pytest-xdist."""
    FIGURES.clear()
    try:
        yield
    finally:
        item.user_properties += [("figures", line) for line in FIGURES]
        item.user_properties += [("lab", one) for one in _begun]
        _begun.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the number of labs, and all figures. Appends these to the file that PATHLOOM_MEASUREMENTS names."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind) if one.when == "call"]
    labs = sum(key == "lab" for one in reports for key, _ in one.user_properties)
    terminalreporter.write_line(f"labs: {labs}, and those of `pathloom run` and `compare`")
    found = [(one.nodeid, line) for one in reports for key, line in one.user_properties if key == "figures"]
    if not found:
        return
    terminalreporter.section("measured")
    for _, line in found:
        terminalreporter.write_line(line)
    if file := os.environ.get("PATHLOOM_MEASUREMENTS"):
        rows = [{"test": test, **json.loads(line)} for test, line in found if '"control"' in line]
        with Path(file).open("a", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="session", autouse=True)
def reaper() -> Iterator[None]:
    """Waits for the end of this session, even by a kill, and takes down the labs that are left."""
    process = subprocess.Popen([sys.executable, "-c", REAPER, TOKEN], stdin=subprocess.PIPE, start_new_session=True)
    yield
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


@contextmanager
def named() -> Iterator[str]:
    """A name for a lab, which is taken down at the end and must leave nothing."""
    chosen = f"{TOKEN}-{next(_numbers)}"
    _begun.append(chosen)
    try:
        yield chosen
    finally:
        Lab(chosen).down()
    assert left_of(chosen) == []


_numbers = itertools.count(1)
_begun: list[str] = []
"""Names of labs that no report has yet."""


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a lab of one test."""
    with named() as chosen:
        yield chosen


@pytest.fixture(scope="module")
def module_name() -> Iterator[str]:
    """A name for a lab that the tests of a module share."""
    with named() as chosen:
        yield chosen


@pytest.fixture
def lab(name: str) -> Callable[..., Outcome]:
    """Runs a `pathloom lab` command on a lab for this test."""

    def run(command: str, *arguments: str | Path) -> Outcome:
        own = [*map(str, arguments)]
        place = own.index("--") if "--" in own else len(own)
        return call(command, *own[:place], "--name", name, *own[place:])

    return run


collect_ignore = ["mininet_driver.py", "listener.py"]
"""Programs that run under other Pythons, or in other namespaces."""
