"""Labs for tests. Their names contain a token of this session. If the session is killed, a reaper takes them down.

A promise of time (`with timing():`) is tried again if the machine did not run (machine.py, judging.py). A test with
other limits than most sets by `@pytest.mark.tolerates(pause_s=…, share=…)` how much of that its promises tolerate.
"""

from __future__ import annotations

import itertools
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judging import Judging
from machine import MARK, Machine
from pathloom.lab.lab import Lab
from support import FIGURES, Outcome, call, figures, left_of

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
    config.addinivalue_line("markers", "tolerates(pause_s, share): what promises of time tolerate (machine.py)")
    config.pluginmanager.register(Judging(take_down, lambda what, why: figures(what, why=why)), "judging")
    os.environ[MARK] = TOKEN
    # The scheme `move` is for tests only.
    os.environ["PATHLOOM_TEST_SCHEMES"] = "1"


def take_down(given: dict[str, Any]) -> None:
    """Takes down the lab of a test that is about to be tried again. As an invariant, the lab must leave nothing."""
    if "name" in given:
        Lab(given["name"]).down()
        assert left_of(given["name"]) == []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("measured")
        for line in FIGURES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def reaper() -> Iterator[None]:
    """Waits for the end of this session, even by a kill, and takes down the labs that are left."""
    process = subprocess.Popen([sys.executable, "-c", REAPER, TOKEN], stdin=subprocess.PIPE, start_new_session=True)
    yield
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.fixture(scope="session", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Watches this machine."""
    with Machine(tmp_path_factory.mktemp("machine")) as watching:
        yield watching


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a lab, which is taken down at the end and must leave nothing."""
    chosen = f"{TOKEN}-{next(_numbers)}"
    yield chosen
    Lab(chosen).down()
    assert left_of(chosen) == []


_numbers = itertools.count(1)


@pytest.fixture
def lab(name: str) -> Callable[..., Outcome]:
    """Runs a `pathloom lab` command on a lab for this test."""

    def run(command: str, *arguments: str | Path) -> Outcome:
        own = [*map(str, arguments)]
        place = own.index("--") if "--" in own else len(own)
        return call(command, *own[:place], "--name", name, *own[place:])

    return run


collect_ignore = ["mininet_driver.py", "listener.py", "rogue.py"]
"""Programs that run under other Pythons, or in other namespaces."""
