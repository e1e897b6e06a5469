"""Settings and fixtures that the tests share."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from assigning import Controller
from pathloom.cli import run
from sweeping import TOML

if TYPE_CHECKING:
    from pathloom.reproduction.measure import Reproduced

# A process that a shell starts in the background ignores SIGINT, and so do its children. The tests send SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_COMMON = {
    file.parent.name: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((Path(__file__).resolve().parents[1] / "conformance").glob("*/common.json"))
}
SCHEMES = [name for name in _COMMON if name != "move"]
"""The schemes for users: those that have a folder of recorded cases, except `move`."""
FAST = [spec for name in SCHEMES for spec in _COMMON[name]["fast"]]
"""All these schemes with settings for runs of a few seconds."""

SMALL = ["--fabric", "fat-tree:k=4,rate=10Mbps", "--traffic", "hadoop:load=0.5", "--duration", "500ms"]
"""A fabric and traffic with a very short simulation."""


class Outcome(NamedTuple):
    """Exit code and output of a command line."""

    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    """The file of a small sweep."""
    path = tmp_path / "s.toml"
    path.write_text(TOML, encoding="utf-8")
    return path


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


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are made but not drawn, and their files are empty. Drawing takes most of the time of a small result."""

    def save(_figure: object, target: io.BytesIO, _kind: str, _dpi: int = 0, **_keys: int) -> None:
        target.write(b"<svg></svg>")

    monkeypatch.setattr("pathloom.report.plots.save_figure", save)


def tree(folder: Path) -> list[str]:
    """Names of all files and folders below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def controller() -> Iterator[Controller]:
    """A controller that runs."""
    service = Controller()
    yield service
    service.server.shutdown()
    service.server.server_close()


@pytest.fixture(scope="session")
def tiny() -> Reproduced:
    """The small figure of `reproducing`, as published."""
    from pathloom.reproduction.definitions import Figure
    from reproducing import TINY, reproduced

    return reproduced(Figure.model_validate(TINY))
