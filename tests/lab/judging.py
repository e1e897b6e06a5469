"""The pytest plugin that runs each test of the lab. It decides which failed tests are tried again.

Only tests with a broken promise of time (`machine.timing`) are tried again. At the end of a run, the plugin reports how
many tests were tried again, and how many were not judged. If these are more than `MOST_NOT_JUDGED` of all, the run
fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from machine import Machine, NotJudgedError, Tolerance

MOST_NOT_JUDGED = 0.1
"""Largest share of the tests of a run that may be not judged."""


class Judging:
    """The plugin, with its counts of a session. It needs a session fixture `machine`."""

    def __init__(self, clean_up: Callable[[dict[str, Any]], None], tell: Callable[[str, str], None]) -> None:
        """`clean_up` gets a test's fixtures before each further try; `tell` gets what happened to a test, and why."""
        self._clean_up = clean_up
        self._tell = tell
        self.ran: list[str] = []
        self.tried_again: dict[str, int] = {}
        """Further tries, by test."""
        self.not_judged: list[str] = []

    @property
    def is_judged(self) -> bool:
        """Whether enough tests were judged."""
        return len(self.not_judged) <= MOST_NOT_JUDGED * len(self.ran)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Calls a test. Calls it again, with a new folder, if it was late and the machine did not run."""
        names = inspect.signature(pyfuncitem.obj).parameters
        given: dict[str, Any] = pyfuncitem.funcargs
        values: dict[str, Any] = {one: given[one] for one in names}
        mark = pyfuncitem.get_closest_marker("tolerates")
        test = pyfuncitem.nodeid
        self.ran.append(test)

        def again(number: int, why: str) -> None:
            self.tried_again[test] = number - 1
            self._tell(f"{pyfuncitem.name}: try {number}", why)
            self._clean_up(given)
            if "tmp_path" in values:
                values["tmp_path"] = given["tmp_path"] / f"try-{number}"
                values["tmp_path"].mkdir()

        watching: Machine = given["machine"]
        try:
            watching.hold(lambda: pyfuncitem.obj(**values), Tolerance(**(mark.kwargs if mark else {})), again)
        except NotJudgedError as error:
            self.not_judged.append(test)
            self._tell(f"{pyfuncitem.name}: not judged", str(error))
            pytest.skip(f"not judged: {error}")
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails a run in which too few tests were judged."""
        if not self.is_judged and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints how many tests were tried again, and how many were not judged."""
        count, most = len(self.ran), int(MOST_NOT_JUDGED * len(self.ran))
        terminalreporter.section("judged")
        terminalreporter.write_line(f"tried again: {len(self.tried_again)} of {count} tests")
        for test, tries in self.tried_again.items():
            terminalreporter.write_line(f"  {test}: {tries} more")
        terminalreporter.write_line(f"not judged: {len(self.not_judged)} of {count} tests (at most {most} may be)")
        for test in self.not_judged:
            terminalreporter.write_line(f"  {test}")
        if not self.is_judged:
            line = "FAILED: too few tests were judged; run them where the host leaves this machine its processors"
            terminalreporter.write_line(line, red=True)
