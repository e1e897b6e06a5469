"""The Grafana dashboard and the alarms: their metrics exist, their expressions are valid, each alarm is raised."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pathloom.remote import find_token
from pathloom.twin.ask import Answer, Plan, Row
from pathloom.twin.following import metrics_text
from pathloom.twin.ledger import Ledger
from pathloom.twin.measures import MEASURES
from test_remote import PATIENCE_S, Running

FOLDER = Path(__file__).resolve().parents[2] / "packaging/monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
ALERTS = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
METRIC = re.compile(r"\bpathloom_\w+")


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The names of the time series of a controller."""
    one = Running(tmp_path_factory.mktemp("monitored"))
    headers = {"Authorization": f"Bearer {find_token(one.tokens)}", "Accept": "text/plain"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{one.url}/metrics", headers=headers)) as answer:
            text = answer.read().decode()
    finally:
        one.end()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert len(kinds) > 40
    yield {name + suffix for name, kind in kinds.items() for suffix in (["_bucket"] if kind == "histogram" else [""])}


def metrics(text: str) -> set[str]:
    # Labels and texts in back quotes are not series.
    return set(METRIC.findall(re.sub(r"`[^`]*`", "", text)))


def test_metrics_of_dashboard_and_alarms_exist(families: set[str], tmp_path: Path) -> None:
    for expression in EXPRESSIONS:
        assert metrics(expression), expression
        assert metrics(expression) <= families, expression
    assert metrics(ALERTS)
    assert metrics(ALERTS) <= families | metrics(metrics_text(followed(tmp_path), 0.0))


def followed(folder: Path) -> Ledger:
    """A ledger of the twin in which one decision has ended."""
    book = Ledger(folder / "twin.sqlite")
    row = Row("drain:c0", {}, [1.0, 1.0], (0.0, 2.0), None, True, {}, 0.0)
    book.add_answer(Answer(Plan(MEASURES["worst-pair"]), [row], 2, 1.0), Path("now.plf"), "", 0.0)
    book.end_watch(book.add_decision(1, "drain:c0", 0.0, [], {}, back=False), "worse", "", 1.0)
    return book


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


def test_prometheus_configured_by_the_guide_answers_the_dashboard(tmp_path: Path) -> None:
    one = Running(tmp_path)
    token = tmp_path / "pathloom-token"
    token.write_text(find_token(one.tokens))
    guide = (FOLDER.parents[1] / "docs/guides/monitoring.md").read_text(encoding="utf-8")
    config = guide.split("```yaml\n", 1)[1].split("```", 1)[0]
    config = config.replace("/etc/prometheus/pathloom-token", str(token)).replace("127.0.0.1:6680", one.url[7:])
    (tmp_path / "alerts.yml").write_text(ALERTS)
    (tmp_path / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\n{config}")
    command = ["prometheus", "--config.file=prometheus.yml", "--web.listen-address=127.0.0.1:0"]
    deadline = time.monotonic() + PATIENCE_S
    said = tmp_path / "prometheus.log"
    with said.open("w") as log:
        prometheus = subprocess.Popen([*command, "--storage.tsdb.path=data"], cwd=tmp_path, stderr=log, stdout=log)

    def listens_at() -> int:
        """The port that the kernel has chosen, from the log."""
        while (found := re.search(r'"Listening on" address=\S+:(\d+)', text := said.read_text())) is None:
            assert time.monotonic() < deadline and prometheus.poll() is None, text
            time.sleep(0.1)
        return int(found[1])

    def ask(path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def samples(expression: str) -> list[Any]:
        try:
            found: list[Any] = ask("query", query=expression)["result"]
        except urllib.error.URLError:  # Prometheus has not started yet.
            return []
        return found

    try:
        port = listens_at()
        # A rate needs two samples.
        while not samples('rate(pathloom_routes_total{job="pathloom"}[5m])'):
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.2)
        assert samples('up{job="pathloom"}')[0]["value"][1] == "1"
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == set(re.findall(r"alert: (\w+)", ALERTS))
        filled = [text.replace("$__rate_interval", "5m").replace("$instance", ".*") for text in EXPRESSIONS]
        # Without switches and flows, some have no series yet.
        answered = [expression for expression in filled if samples(expression)]
        assert len(answered) > len(filled) / 2, set(filled) - set(answered)
    finally:
        prometheus.terminate()
        one.end()
        assert prometheus.wait(PATIENCE_S) == 0


def test_panels_do_not_overlap() -> None:
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
    """Runs promtool and returns its output. It must find no error."""
    if shutil.which("promtool") is None:
        pytest.fail("promtool is not installed; `make test-python` installs it, or type: scripts/prepare.sh judges")
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
