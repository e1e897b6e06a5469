"""Independent tests of the HTTP API: schemathesis calls all described operations, prometheus-client reads metrics."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pathloom.remote import find_token
from test_remote import Running

JUDGES = Path(".venv/judges/bin")
SEED = 1
EXAMPLES = 30
"""Largest number of requests of each kind for each operation."""

READ_METRICS = """
import sys
from prometheus_client import parser
from prometheus_client.openmetrics import parser as strict
text = sys.stdin.read()
families = list((strict if text.endswith("# EOF\\n") else parser).text_string_to_metric_families(text))
assert all(one.documentation and one.type != "unknown" for one in families), [one for one in families if not one.type]
print(len(families))
"""


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if not (JUDGES / "schemathesis").exists():
        pytest.fail("the judges are not installed; `make test-python` installs them, or type: make .venv/judges/.deps")
    one = Running(tmp_path_factory.mktemp("judged"))
    try:
        yield one
    finally:
        one.end()


def test_schemathesis_finds_no_undescribed_behaviour(controller: Running, tmp_path: Path) -> None:
    command = [str(JUDGES / "schemathesis"), "--config-file", "benches/api/schemathesis.toml", "run"]
    command += [f"{controller.url}/openapi.json", "--header", f"Authorization: Bearer {find_token(controller.tokens)}"]
    # This API does not hide flows from clients that did not announce them: every reader sees all flows.
    command += ["--checks", "all", "--exclude-checks", "object_level_authorization", "--continue-on-failure"]
    command += ["--max-examples", str(EXAMPLES), "--seed", str(SEED), "--generation-database", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout
    cases = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert cases is not None and cases[1] == cases[2], done.stdout
    assert int(cases[1]) > 500, done.stdout


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_prometheus_reads_the_metrics(controller: Running, accept: str) -> None:
    headers = {"Authorization": f"Bearer {find_token(controller.tokens)}", "Accept": accept}
    with urllib.request.urlopen(urllib.request.Request(f"{controller.url}/metrics", headers=headers)) as answer:
        text = answer.read().decode()
    command = [str(JUDGES / "python"), "-c", READ_METRICS]
    read = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    assert int(read.stdout) > 40
