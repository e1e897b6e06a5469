"""Labs for tests. Their names carry a token of this session; should it be killed, a reaper takes them down.

What a test promises of a machine that runs is tried again where the machine did not (machine.py). A test says by
`@pytest.mark.bears(pause_s=…, share=…)` how much of that its promise bears, where that is not what most bear.
"""

from __future__ import annotations

import inspect
import itertools
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from machine import MARK, Bears, Machine, NotJudgedError
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
    config.addinivalue_line("markers", "bears(pause_s, share): what a promise bears of the machine (machine.py)")
    os.environ[MARK] = TOKEN


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Calls a test; again, with a lab and a folder of its own, where the machine did not run meanwhile."""
    names = inspect.signature(pyfuncitem.obj).parameters
    values: dict[str, Any] = {one: pyfuncitem.funcargs[one] for one in names}
    given: dict[str, Any] = pyfuncitem.funcargs
    mark = pyfuncitem.get_closest_marker("bears")

    def again(number: int, why: str) -> None:
        figures(f"{pyfuncitem.name}: try {number}", why=why)
        if "name" in given:
            Lab(given["name"]).down()
        if "tmp_path" in values:
            values["tmp_path"] = given["tmp_path"] / f"try-{number}"
            values["tmp_path"].mkdir()

    watching: Machine = given["machine"]
    try:
        watching.hold(lambda: pyfuncitem.obj(**values), Bears(**(mark.kwargs if mark else {})), again)
    except NotJudgedError as error:
        figures(f"{pyfuncitem.name}: not judged", why=str(error))
        pytest.skip(f"not judged: {error}")
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("measured")
        for line in FIGURES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def reaper() -> Iterator[None]:
    """Waits for this session's end, whatever it is, and takes down the labs that are left."""
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
    """A name for a lab, which is taken down in the end and must leave nothing."""
    chosen = f"{TOKEN}-{next(_numbers)}"
    yield chosen
    Lab(chosen).down()
    assert left_of(chosen) == []


_numbers = itertools.count(1)


@pytest.fixture
def lab(name: str) -> Callable[..., Outcome]:
    """Runs a `pathloom lab` command on a lab of this test's own."""

    def run(command: str, *arguments: str | Path) -> Outcome:
        own = [*map(str, arguments)]
        place = own.index("--") if "--" in own else len(own)
        return call(command, *own[:place], "--name", name, *own[place:])

    return run


collect_ignore = ["mininet_driver.py", "listener.py", "rogue.py"]
"""Programs for other Pythons and places."""
