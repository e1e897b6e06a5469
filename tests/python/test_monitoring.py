"""The Grafana dashboard and the alarms: their metrics exist, their expressions are valid, each alarm is raised."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pathloom.remote import find_token
from test_remote import Running

FOLDER = Path(__file__).resolve().parents[2] / "packaging/monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
ALERTS = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
METRIC = re.compile(r"\bpathloom_\w+")


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The names of time series that a controller gives."""
    one = Running(tmp_path_factory.mktemp("monitored"))
    headers = {"Authorization": f"Bearer {find_token(one.tokens)}", "Accept": "text/plain"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{one.url}/metrics", headers=headers)) as answer:
            text = answer.read().decode()
    finally:
        one.process.terminate()
        assert one.process.wait(10) == 0
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert len(kinds) > 40
    yield {name + suffix for name, kind in kinds.items() for suffix in (["_bucket"] if kind == "histogram" else [""])}


def metrics(text: str) -> set[str]:
    # Labels and texts in back quotes are no series.
    return set(METRIC.findall(re.sub(r"`[^`]*`", "", text)))


def test_metrics_of_dashboard_and_alarms_exist(families: set[str]) -> None:
    for expression in EXPRESSIONS:
        assert metrics(expression), expression
        assert metrics(expression) <= families, expression
    assert metrics(ALERTS)
    assert metrics(ALERTS) <= families


def test_metrics_in_the_advice_of_alarms_exist(families: set[str]) -> None:
    named = set(re.findall(r"`(pathloom_\w+)`", ALERTS))
    series = families | {name.removesuffix("_bucket") for name in families}
    assert named and named <= series


def test_the_expressions_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    filled = [one.replace("$__rate_interval", "5m").replace("$instance", ".*") for one in EXPRESSIONS]
    rules = [{"record": f"dashboard:{number}", "expr": one} for number, one in enumerate(filled)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))


def test_each_alarm_is_raised_when_it_should_be() -> None:
    names = re.findall(r"alert: (\w+)", ALERTS)
    tested = (FOLDER / "alerts_test.yml").read_text(encoding="utf-8")
    assert [name for name in names if name not in tested] == []
    assert f"{len(names)} rules found" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


def test_panels_have_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    squares = [
        square
        for place in (panel["gridPos"] for panel in panels)
        for square in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]
    assert len(squares) == len(set(squares))
    assert all(0 <= x < 24 for x, _ in squares)


def promtool(*words: str) -> str:
    """What promtool prints; it must find nothing wrong."""
    if shutil.which("promtool") is None:
        pytest.fail("promtool is not installed; `make test-python` installs it, or type: scripts/prepare.sh judges")
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
