"""The ledger of the twin: predictions, decisions with their guards, outcomes and scores."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pathloom._core import PathloomError
from pathloom.cli.app import carry_out
from pathloom.experiments.running.simulation import RunFiles, simulation
from pathloom.experiments.running.threads import Threads
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.remote import Controller
from pathloom.twin.apply import Guard, apply_to_run, check_guards, check_paths, check_pods, steps_of
from pathloom.twin.ask import Answer, Plan, Question, Row
from pathloom.twin.fork import Fork
from pathloom.twin.from_runs import fork_of_simulation, job_of
from pathloom.twin.ledger import Ledger
from pathloom.twin.measures import MEASURES
from pathloom.twin.outcomes import outcome_since
from pathloom.twin.questions import Alternative, parse_alternative, parse_alternatives
from pathloom.twin.score import score_of

AT_S, FOR_S = 1.0, 0.2
QUESTIONS = ["drain:c0", "cut:a0_0-c1", "scheme:spt"]


def real(seed: int, alternative: Alternative, traffic: str = "hadoop:load=0.6") -> tuple[Fork, dict[str, Any]]:
    """A run that takes the place of the real fabric: its fork, and what came of an alternative."""
    values = {"fabric": "fat-tree:k=4,rate=100Mbps", "traffic": traffic, "schemes": ("ecmp",), "seed": seed, "runs": 1}
    of = Settings.of({**values, "duration": f"{AT_S + FOR_S}s"})
    run = simulation(of, None, job_of(of, None, 1), RunFiles())
    fork = fork_of_simulation(run, of, None, job_of(of, None, 1), AT_S)
    before = run.outcome()
    if alternative.parts:
        apply_to_run(run, alternative, "ecmp")
    run.advance(AT_S + 6 * FOR_S)
    return fork, outcome_since(before, run.outcome(), AT_S)


def test_forks_are_asked_applied_measured_and_scored(tmp_path: Path) -> None:
    """In virtual time, over seeds: the simulator is the real fabric."""
    ledger, measure = Ledger(tmp_path / "l.sqlite"), MEASURES["mean-throughput"]
    for seed in range(1, 6):
        alternatives = parse_alternatives(QUESTIONS)
        outcomes = {}
        for one in alternatives:
            fork, outcome = real(seed, one)
            outcomes[one.name] = measure.of(outcome, FOR_S)
        path = tmp_path / "f.plf"
        fork.write(path)
        question = Question(fork, path, alternatives, Plan(measure, duration=f"{FOR_S}s", runs=4, seed=100 * seed))
        number = ledger.add_answer(question.carry_out(Threads(2)), path, "", float(seed))
        for name, value in outcomes.items():
            assert value is not None
            ledger.add_outcome(number, name, value, float(seed))
    score = score_of(ledger.predictions())
    assert (score.predictions, score.outcomes) == (20, 20)
    assert score.coverage is not None and score.coverage >= 0.7, score
    assert score.mean_error is not None and score.mean_error < 0.25, score
    assert score.rank_correlation is not None and score.rank_correlation > 0, score


def test_an_outcome_counts_from_the_fork() -> None:
    flows = {
        "src": [0, 1, 2, 3],
        "dst": [1, 0, 3, 2],
        "start_ns": [0, 0, 1_200_000_000, -1],
        "finish_ns": [500_000_000, 1_500_000_000, 1_400_000_000, -1],
        "size_bytes": [100, 1000, 50, 10],
        "delivered_bytes": [100, 1000, 50, 0],
        "ideal_fct_ns": [10, 100_000_000, 1000, 10],
        "optimum_bps": [1e6] * 4,
    }
    after = {"flows": {name: np.array(column) for name, column in flows.items()}, "end_ns": 1_600_000_000}
    before = {"flows": {"delivered_bytes": np.array([100, 400, 0, 0])}}
    since = outcome_since(before, after, 1.0)["flows"]
    # The first flow had ended, and the last one never started.
    assert list(since["size_bytes"]) == [600, 50] and list(since["start_ns"]) == [0, 200_000_000]
    assert list(since["finish_ns"]) == [500_000_000, 400_000_000]
    assert since["throughput"][0] == pytest.approx(60e6 / 500e6)


def test_a_drain_in_a_run_moves_flows_without_loss() -> None:
    _, outcome = real(1, parse_alternative("drain:c0"), "long-lived:pattern=stride")
    assert all(outcome["flows"]["delivered_bytes"] > 0)
    with pytest.raises(PathloomError, match="cannot carry out load:x2"):
        real(1, parse_alternative("load:x2"))


def answer(values: dict[str, list[float]], measure: str = "mean-throughput") -> Answer:
    rows = [
        Row(name, {}, of, (min(of) - 1, max(of) + 1), None, place == 0, {}, 0.0)
        for place, (name, of) in enumerate(values.items())
    ]
    return Answer(Plan(MEASURES[measure]), rows, 2, 1.0)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.chdir(tmp_path)
    book = Ledger(tmp_path / "twin.sqlite")
    asked = {"nothing": [5.0, 6.0], "drain:c0": [4.0, 4.4], "scheme:spt": [1.0, 2.0], "load:x2": [0.5, 0.6]}
    book.add_answer(answer(asked), Path("now.plf"), "abc", 0.0)
    return book


def test_a_ledger_keeps_what_was_noted(ledger: Ledger) -> None:
    ledger.add_outcome(1, "drain:c0", 4.2, 9.0)
    ledger.add_outcome(1, "drain:c0", 9.9, 9.5)
    again = Ledger(ledger.path, make=False).predictions()
    assert [(one.name, one.rank, one.outcome) for one in again][:2] == [("nothing", 1, None), ("drain:c0", 2, 9.9)]
    score = score_of(again)
    assert (score.outcomes, score.coverage, score.rank_correlation) == (1, 0.0, None)
    assert score.mean_error == pytest.approx((9.9 - 4.2) / 9.9)
    with pytest.raises(PathloomError, match="has no question 7"):
        ledger.add_outcome(7, "drain:c0", 1.0, 0.0)
    with pytest.raises(PathloomError, match="was not asked; expected one of nothing, drain:c0"):
        ledger.add_outcome(1, "drain:c1", 1.0, 0.0)


def test_other_files_are_no_ledgers(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("x" * 2000)
    with pytest.raises(PathloomError, match="name another file"):
        Ledger(text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as base:
        base.execute("CREATE TABLE t (x)")
    with pytest.raises(PathloomError, match="is not a ledger of version 2"):
        Ledger(other)
    with pytest.raises(PathloomError, match="no such file"):
        Ledger(tmp_path / "none", make=False)


GRAPH = json.loads(Fabric("fat-tree:k=4").to_node_link())


def test_two_switches_of_a_pod_are_never_drained() -> None:
    check_pods(GRAPH, parse_alternative("drain:a0_0"), ["a1_0"])
    for text, drained in [("drain:a0_0", ["a0_1"]), ("drain:a0_0+drain:a0_1", [])]:
        with pytest.raises(PathloomError, match="of the pod 0"):
            check_pods(GRAPH, parse_alternative(text), drained)


def test_paths_are_left() -> None:
    check_paths(GRAPH, parse_alternative("drain:c0"), Guard(least_paths=2))
    with pytest.raises(PathloomError, match="1 of at least 2 paths would be left between e0_0 and e0_1"):
        check_paths(GRAPH, parse_alternative("drain:a0_0"), Guard(least_paths=2))
    check_paths(GRAPH, parse_alternative("drain:a0_0"), Guard(least_paths=1))
    with pytest.raises(PathloomError, match="0 of at least 1"):
        check_paths(GRAPH, parse_alternative("drain:a0_0+cut:e0_0-a0_1"), Guard(least_paths=1))


def test_steps_are_those_of_the_api_and_can_be_taken_back() -> None:
    one = parse_alternative("drain:c0+cut:e0_0-a0_1+scheme:hedera:period=1s")
    assert [step.text for step in steps_of(one, "ecmp")] == [
        "POST /v1/switches/c0/drain",
        "POST /v1/links/e0_0,a0_1/drain",
        'PUT /v1/scheme {"scheme": "hedera:period=1s"}',
    ]
    assert [step.text for step in steps_of(one, "ecmp", back=True)] == [
        'PUT /v1/scheme {"scheme": "ecmp"}',
        "POST /v1/links/e0_0,a0_1/undrain",
        "POST /v1/switches/c0/undrain",
    ]
    weights = steps_of(parse_alternative("weights:e0_0-a0_0=2+drain:c0"), "wcmp")
    assert [step.text for step in weights] == [
        "POST /v1/switches/c0/drain",
        'PUT /v1/scheme {"scheme": "wcmp:weights=e0_0-a0_0:2"}',
    ]
    for text, words in [("load:x2", "cannot carry out"), ("nothing", "nothing to carry out")]:
        with pytest.raises(PathloomError, match=words):
            steps_of(parse_alternative(text), "ecmp")


class Fake(Controller):
    """A controller of a FatTree that keeps what it is asked to change."""

    sent: list[str]
    drained: tuple[str, ...] = ()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        name = path.partition("?")[0]
        if method != "GET":
            type(self).sent.append(f"{method} {path}")
            return {}
        fabric = Fabric("fat-tree:k=4")
        links, names = fabric.links, fabric.names
        if name == "/v1/state":
            return {"fabric": "fat-tree:k=4", "scheme": "ecmp"}
        if name == "/v1/flows":
            return {"items": [], "next": None}
        if name == "/v1/switches":
            found = [node for node in fabric.nodes if node["tier"] != "host"]
            rows = [{"name": one["name"], "tier": one["tier"], "drained": one["name"] in self.drained} for one in found]
            return {"items": rows, "next": None}
        ends = zip(links["source"], links["target"], links["rate_bps"], strict=True)
        rows = [{"from": names[one], "to": names[other], "rate_bps": rate, "state": "up"} for one, other, rate in ends]
        return {"items": rows, "next": None}


def test_guards_read_the_state_of_the_controller() -> None:
    Fake.sent = []
    controller = Fake("http://127.0.0.1:1", "token")
    assert check_guards(controller, parse_alternative("drain:c0"), Guard()) == {"scheme": "ecmp", "drained": []}
    assert Fake.sent == []


def test_apply_is_a_dry_run_unless_it_is_told_to_do(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Fake.sent = []
    monkeypatch.setattr("pathloom.remote.Controller", Fake)
    monkeypatch.setattr("pathloom.cli.twin.time.time", lambda: 60.0)
    monkeypatch.setenv("PATHLOOM_TOKEN", "reads")
    token = tmp_path / "token"
    token.write_text("acts\n")
    acting = ["--token-file", str(token), "--do"]
    assert carry_out(["twin", "apply", "1", "drain:c0"]) == 0
    assert "Nothing was sent" in capsys.readouterr().out and Fake.sent == []
    for wrong, words in [
        (["1", "drain:c0", "--do"], "needs --token-file"),
        (["1", "drain:c1"], "was not asked"),
        (["2", "drain:c0"], "has no question 2"),
        (["1", "load:x2"], "cannot carry out"),
        (["1", "drain:c0", "--most-age", "59s"], "is 60 s old"),
        (["1", "drain:c0", "--least-paths", "4"], "paths would be left"),
        (["1", "drain:c0", "--back", *acting], "that was carried out"),
    ]:
        assert carry_out(["twin", "apply", *wrong]) == 2
        assert words in capsys.readouterr().err
    assert Fake.sent == []
    assert carry_out(["twin", "apply", "1", "drain:c0", *acting]) == 0
    assert carry_out(["twin", "apply", "1", "drain:c0", "--back", *acting]) == 0
    assert Fake.sent == ["POST /v1/switches/c0/drain", "POST /v1/switches/c0/undrain"]
    assert ledger.last_decision(1, "drain:c0")["back"] == 1  # type: ignore[index]


def test_the_command_notes_outcomes_and_prints_the_score(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    values = ["1:nothing=5.5", "1:drain:c0=4.1", "1:scheme:spt=1.4"]
    options = [word for value in values for word in ("--outcome", value)]
    assert carry_out(["twin", "score", *options, "--json", "-"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert (score["outcomes"], score["coverage"], score["rank_correlation"], score["best_first"]) == (3, 1, 1, 1)
    assert carry_out(["twin", "score"]) == 0
    assert "rank correlation" in capsys.readouterr().out
    assert carry_out(["twin", "score", "--outcome", "1:drain:c0"]) == 2
    assert "expected NUMBER:ALTERNATIVE=VALUE" in capsys.readouterr().err
