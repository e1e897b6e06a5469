"""What the lab does to run tools and to be interrupted, without root."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pathloom.errors import ToolError
from pathloom.lab import system

WRITES_LATER = "import sys, time; time.sleep(1); open(sys.argv[1], 'w').close()"


def interrupt_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets Ctrl-C come just after a process has begun, when nobody has got it yet. Returns the processes that begin."""
    begun: list[int] = []
    execute: Callable[..., None] = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def execute_and_interrupt(self: subprocess.Popen[Any], *words: Any) -> None:
        execute(self, *words)
        begun.append(self.pid)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", execute_and_interrupt)
    return begun


def test_a_tool_that_is_interrupted_while_it_starts_does_nothing_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = interrupt_while_it_starts(monkeypatch)
    file = tmp_path / "written"
    with pytest.raises(KeyboardInterrupt):
        system.run_tool([sys.executable, "-c", WRITES_LATER, file])
    (process,) = begun
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert not file.exists()


def test_a_tool_that_is_interrupted_later_has_ended_as_well(tmp_path: Path) -> None:
    ready, file = tmp_path / "ready", tmp_path / "written"
    code = f"open({str(ready)!r}, 'w').close(); {WRITES_LATER}"

    def interrupt(*_: object) -> None:
        if ready.exists():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(KeyboardInterrupt):
            system.run_tool([sys.executable, "-c", code, file])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    commands = [Path(f"/proc/{one}/cmdline").read_bytes() for one in children]
    assert not any(bytes(file) in command for command in commands)


def test_a_daemon_that_is_interrupted_while_it_starts_does_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = interrupt_while_it_starts(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        system.start_daemon([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", tmp_path)
    (process,) = begun
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert system.processes_of(tmp_path, "no namespace") == []


def test_a_tool_that_fails_is_late_or_is_missing_is_named() -> None:
    with pytest.raises(ToolError, match="wrong input"):
        system.run_tool([sys.executable, "-c", "import sys; sys.exit(f'wrong {sys.stdin.read()}')"], "input")
    began_s = time.monotonic()
    with pytest.raises(ToolError, match=r"did not end within 0\.2 s"):
        system.run_tool([sys.executable, "-c", "import time; time.sleep(600)"], timeout_s=0.2)
    assert time.monotonic() - began_s < 60
    with pytest.raises(ToolError, match="could not be started"):
        system.run_tool(["no-such-tool"])
    assert system.run_tool([sys.executable, "-c", "print(input())"], "text") == "text\n"
