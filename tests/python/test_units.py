"""The systemd units, as `systemd-analyze` judges them without an init."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
UNITS = sorted(file.name for file in DOCS.glob("*.service"))
MOST_EXPOSED = {
    "pathloom-controller.service": 2.0,
    "pathloom-etcd.service": 2.0,
    "pathloom-hostd.service": 6.5,
    "pathloom-switch.service": 6.5,
}
"""Highest exposure that a unit may have, from 0 to 10. Agents and switches load BPF programs as root."""


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit whose programs exist on every machine, which cannot have all of them installed."""
    file = tmp_path / str(request.param)
    text = (DOCS / file.name).read_text(encoding="utf-8")
    file.write_text(re.sub(r"/usr/(local/)?bin/(pathloom-\w+|etcd)", "/bin/true", text), encoding="utf-8")
    return file


def judge(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


def test_a_unit_has_only_known_settings(unit: Path) -> None:
    judged = judge("verify", "--man=no", str(unit))
    # Units of this machine may have problems of their own.
    about = [line for line in judged.stderr.splitlines() if unit.name in line]
    assert (judged.returncode, about) == (0, []), judged.stderr


def test_a_unit_may_do_little_beside_its_work(unit: Path) -> None:
    threshold = str(round(10 * MOST_EXPOSED[unit.name]))
    judged = judge("security", "--offline=true", "--no-pager", f"--threshold={threshold}", str(unit))
    assert judged.returncode == 0, judged.stdout


def test_an_unknown_setting_and_an_open_unit_are_found(tmp_path: Path) -> None:
    file = tmp_path / "pathloom-wrong.service"
    file.write_text("[Service]\nExecStart=/bin/true\nProtectEverything=yes\n", encoding="utf-8")
    assert "ProtectEverything" in judge("verify", "--man=no", str(file)).stderr
    assert judge("security", "--offline=true", "--threshold=65", str(file)).returncode != 0


def test_every_unit_restarts_its_program_without_end(unit: Path) -> None:
    lines = unit.read_text(encoding="utf-8").splitlines()
    # systemd gives up after five starts within 10 s otherwise.
    assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(lines)
