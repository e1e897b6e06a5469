"""The load generator, which shares no code with the controller: the controller answers all its requests."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

LOAD = [sys.executable, "benches/openflow/load.py"]


@pytest.mark.parametrize(
    "words",
    [
        ["answers", "--switches", "3", "--outstanding", "8", "--seconds", "1"],
        ["paths", "--fabric", "fat-tree:k=4", "--scheme", "spt", "--standing", "100", "--flows", "400"],
        ["paths", "--fabric", "fat-tree:k=4", "--rate", "400", "--standing", "1100", "--flows", "400"],
    ],
)
def test_a_load_is_carried(words: list[str]) -> None:
    done = subprocess.run([*LOAD, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = re.search(
        r": ([\d,]+) a second, p50 ([\d.]+) ms, p99 ([\d.]+) ms; generator busy \d+%$", done.stdout.strip()
    )
    assert found is not None, done.stdout
    assert int(found[1].replace(",", "")) > 100
    assert float(found[2]) <= float(found[3])
