"""Building and running the programs that Pathloom is compared with."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
BUILD: Final = ROOT / "target" / "ns3"

LONGEST_S: Final = 300
"""Time limit of a run in seconds, long enough for a busy machine."""


class CannotCompareError(Exception):
    """A program is missing or fails. Its text is one line."""


def build_ns3() -> None:
    """Builds the ns-3 programs."""
    if shutil.which("make") is None or not Path("/usr/include/ns3/core-module.h").exists():
        raise CannotCompareError("ns-3 is not installed; install it with `apt-get install make g++ libns3-dev`")
    done = subprocess.run(
        ["make", "--directory", str(HERE), f"BUILD={BUILD}"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CannotCompareError(f"the ns-3 programs do not build: {last}")


def run(program: str, *options: str, under: list[str] | None = None) -> tuple[dict[str, Any], str]:
    """Runs one of the programs. Returns its figures and its output on stderr."""
    command = [*(under or []), str(BUILD / program), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompareError(f"{program}: {error}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CannotCompareError(f"{program} ended with {done.returncode}: {last}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures, done.stderr
