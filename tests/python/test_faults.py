"""`--fault` in the simulator, and `pathloom bench faults`."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pathloom as pl
from conftest import SMALL, Cli
from pathloom import _core, fault_benchmark
from pathloom.scheme import Actions, Event, Scheme, SetDefaults, Started, View

KEPT = ["--control", "snapshot=50ms"]


def figures(cli: Cli, *arguments: str) -> Any:
    done = cli("run", *SMALL, *KEPT, "--scheme", "ofpt:period=100ms", *arguments, "--json", "-")
    assert done.code == 0, done.err
    (scheme,) = json.loads(done.out)["schemes"]
    return scheme["control"], scheme["packets"], scheme["flows"]


def test_every_kind_of_fault_can_be_asked_for(cli: Cli) -> None:
    plain = figures(cli)
    for faults in (
        ["100ms:controller-kill"],
        ["100ms:controller-kill", "200ms:controller-restart"],
        ["100ms:controller-kill", "200ms:controller-restart:snapshot"],
        ["100ms:session-down:e0_0", "300ms:session-up:e0_0"],
        ["100ms:reboot:e0_0"],
    ):
        options = [option for fault in faults for option in ("--fault", fault)]
        hit = figures(cli, *options)
        assert hit != plain, faults
        assert hit[2] == plain[2], faults  # Every flow still finishes.
        assert hit == figures(cli, *options), faults


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("1s:controller-stop", "controller-kill"),
        ("1s:reboot:h0", "h0 is a host; expected a switch"),
        ("1s:session-down:e9_9", "no node is called"),
        ("1s:controller-restart:old", "`snapshot` or nothing"),
        ("1s:reboot", "1s:reboot:WHAT"),
    ],
)
def test_an_invalid_fault_is_refused_in_one_line(cli: Cli, fault: str, part: str) -> None:
    done = cli("run", *SMALL, "--scheme", "ecmp", "--fault", fault)
    assert (done.code, done.out) == (2, "")
    assert part.replace("1s:reboot:WHAT", "TIME:reboot:WHAT") in done.err and done.err.count("\n") == 1, done.err


def test_an_event_log_excludes_a_restart_of_the_controller(cli: Cli) -> None:
    done = cli("run", *SMALL, "--scheme", "ecmp", "--fault", "1ms:controller-restart", "--event-log", "log.jsonl")
    assert done.code == 2 and "--event-log" in done.err, done.err


def test_the_lab_refuses_faults_of_the_simulator() -> None:
    settings = {
        "fabric": "diamond", "fabric_text": None, "traffic": "long-lived", "scheme": "ecmp", "transport": None,
        "control": None, "duration": "1s", "drain": None, "seed": 1, "pcap": None, "event_log": None,
    }  # fmt: skip
    run = _core.Simulation(json.dumps(settings | {"faults": ["1s:down:c0"]}))
    assert [up for _, up, _ in run.cable_faults()] == [False]
    run = _core.Simulation(json.dumps(settings | {"faults": ["1500ms:controller-kill"]}))
    with pytest.raises(pl.PathloomError, match=r"fault `1500ms:controller-kill`: only the simulator does this"):
        run.cable_faults()


class Counting(Scheme):
    """Counts its starts."""

    starts: list[str] = []  # noqa: RUF012

    def handle(self, _now_ns: int, event: Event, _view: View) -> Actions:
        if event == Started():
            self.starts.append("started")
            return [SetDefaults("ecmp")]
        return []


def test_a_scheme_in_python_is_created_again_after_a_restart() -> None:
    Counting.starts.clear()
    pl.run(
        fabric="fat-tree:k=4,rate=10Mbps",
        traffic="long-lived:pattern=stride",
        scheme=Counting,
        duration="300ms",
        faults=["100ms:controller-restart", "200ms:controller-restart"],
    )
    assert len(Counting.starts) == 3


def test_random_faults_break_no_promise(cli: Cli) -> None:
    done = cli("bench", "faults", "--seed", "0", "--schedules", "20", "--json", "-")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["schedules"], found["violations"], found["seed"]) == (20, 0, 0)
    assert found["per_hour"] > 0 and found["findings"] == []
    done = cli("bench", "faults", "--duration", "200ms", "--jobs", "2")
    assert done.code == 0 and done.out.count("\n") == 1 and "none broke a promise" in done.out, done
    assert cli("bench", "faults", "--duration", "0s").code == 2


def test_a_broken_promise_prints_as_one_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _core.fault_schedule

    def sabotaged(seed: int, everything: bool = False, smallest: bool = False) -> tuple[list[str], str]:
        return real(seed, everything, smallest, sabotage=True)

    monkeypatch.setattr(_core, "fault_schedule", sabotaged)
    findings = fault_benchmark.measure(0, 0, 60, 2)
    assert findings.broken and findings.schedules == 60
    seed = min(findings.broken)
    done = cli("bench", "faults", "--seed", str(seed), "--schedules", "1", "--json", "-")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["violations"] == 1
    assert found["findings"][0]["command"] == f"pathloom bench faults --seed {seed} --schedules 1"
    assert found["findings"][0]["broken"] == findings.broken[seed]
    assert f"pathloom bench faults --seed {seed} --schedules 1: " in done.err and f"seed {seed}: " in done.err


def test_random_faults_over_openflow_break_no_promise(cli: Cli) -> None:
    command = ["bench", "faults", "--over-openflow", "--seed", "7", "--schedules", "20", "--json", "-"]
    done = cli(*command)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["schedules"], found["violations"], found["findings"]) == (20, 0, [])
    done = cli("bench", "faults", "--over-openflow", "--duration", "200ms", "--jobs", "1")
    assert done.code == 0 and "none broke a promise" in done.out, done
    refused = cli(*command, "--everything")
    assert refused.code == 2 and "leave out --everything or --over-openflow" in refused.err, refused


@pytest.mark.parametrize(
    ("sabotage", "promise"),
    [
        ("hasty-barriers", "packets did not arrive as they should"),
        ("lasting-rules", "rules are left over or missing"),
        ("lasting-holds", "are still held"),
    ],
)
def test_a_promise_broken_over_openflow_prints_as_one_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, sabotage: str, promise: str
) -> None:
    real = fault_benchmark.run_over_openflow
    monkeypatch.setattr(fault_benchmark, "run_over_openflow", lambda seed, count: real(seed, count, sabotage))
    findings = fault_benchmark.measure(0, 0, 30, 2, openflow=True)
    assert findings.schedules == 30
    seed, broken = min(findings.broken.items())
    assert any(promise in line for line in broken), broken
    assert findings.broken == fault_benchmark.measure(0, 0, 30, 1, openflow=True).broken
    done = cli("bench", "faults", "--over-openflow", "--seed", str(seed), "--schedules", "1", "--json", "-")
    assert done.code == 1
    (found,) = json.loads(done.out)["findings"]
    assert found["broken"] == broken
    assert found["command"] == f"pathloom bench faults --seed {seed} --schedules 1 --over-openflow"
    assert f"{found['command']}: " in done.err and f'"seed": {seed}, "steps": [' in done.err
    monkeypatch.setattr(fault_benchmark, "run_over_openflow", lambda seed, count: real(seed, count, "nonsense"))
    (failed,) = fault_benchmark.measure(3, 0, 1, 1, openflow=True).broken[3]
    assert "ended with status 2" in failed and "hasty-barriers, lasting-rules, lasting-holds were expected" in failed
