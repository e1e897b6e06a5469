"""What the tests share."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from assigning import Controller
from pathloom.cli import run

# A shell that starts something in the background has it ignore SIGINT, and so do all that it starts. Tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_COMMON = {
    file.parent.name: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((Path(__file__).resolve().parents[1] / "conformance").glob("*/common.json"))
}
SCHEMES = [name for name in _COMMON if name != "move"]
"""The schemes for users, as those that have a folder of recorded cases."""
FAST = [spec for name in SCHEMES for spec in _COMMON[name]["fast"]]
"""All of them in settings for runs of a few seconds."""

SMALL = ["--fabric", "fat-tree:k=4,rate=10Mbps", "--traffic", "hadoop:load=0.5", "--duration", "500ms"]
"""A fabric and traffic that are simulated in a moment."""


class Outcome(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command line in an empty folder, as `pathloom` would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PATHLOOM_TRACEBACK", raising=False)

    def call(*arguments: str | Path) -> Outcome:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


def tree(folder: Path) -> list[str]:
    """Names of all files and folders below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def controller() -> Iterator[Controller]:
    """A controller that is there."""
    service = Controller()
    yield service
    service.server.shutdown()
    service.server.server_close()
