"""Experiments in the lab give the same results as in the simulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pathloom.cli import run as cli_run
from pathloom.errors import ToolError
from pathloom.lab import runs
from pathloom.lab.lab import RUN_DIRECTORY
from support import K4, PATHLOOM, PATIENCE_S, SIMULATOR, compared, figures, left_of, measured

AS_LINUX = "newreno:impatient=off,byte_counting=on,jitter=1ms"
"""Behaviour of kernels: partial acknowledgements restart the timer, slow start counts bytes, hosts have jitter."""
AS_LAB = ["--transport", AS_LINUX, "--control", "handover=begin"]
"""Also the behaviour of shaped links: they hand a packet on, and then wait as long as its sending takes."""
STRIDE = ["--fabric", K4, "--traffic", "long-lived:pattern=stride", "--runs", "1", "--worlds", "sim,lab"]


def test_finite_flows_finish_as_in_the_simulator(tmp_path: Path) -> None:
    traffic = [
        "--fabric",
        "leaf-spine:spines=2,leaves=2,hosts=2,rate=10Mbps,buffer=100",
        "--traffic",
        "hadoop:load=0.2",
    ]
    options = ["--schemes", "ecmp", "--duration", "4s", "--runs", "1", "--worlds", "sim,lab", "--out", str(tmp_path)]
    content = compared(*traffic, *options, *AS_LAB)
    simulated, live = content["schemes"]
    assert [simulated["world"], live["world"]] == ["sim", "lab"]
    assert (live["scheme"], content["settings"]["worlds"]) == ("ecmp@lab", ["sim", "lab"])
    assert live["flows"] == simulated["flows"]
    assert live["flows"]["finished"] > 20
    assert live["delivered_bytes"] == simulated["delivered_bytes"]
    # Rules that pin flows in the lab do not count as the scheme's.
    assert live["control"]["rules_max"] == simulated["control"]["rules_max"]
    flows = pl.read_parquet(tmp_path / "flows.parquet")
    pairs = [flows.filter(pl.col("scheme") == scheme).sort("flow") for scheme in ("ecmp", "ecmp@lab")]
    for column in ("src", "dst", "src_port", "dst_port", "size_bytes"):
        assert pairs[0][column].to_list() == pairs[1][column].to_list()
    # Notes name what a machine without time does: its host takes processors, and switches lose packets.
    of_machine = ("the host of this machine", "lost in switches")
    assert [note for note in content["traffic"]["notes"] if not any(words in note for words in of_machine)] == []
    figures("finite flows, median FCT", simulated_s=simulated["fct_s"]["p50"], live_s=live["fct_s"]["p50"])


@pytest.mark.long
def test_flows_that_wait_for_others_start_after_them(tmp_path: Path) -> None:
    traffic = ["--fabric", "leaf-spine:spines=2,leaves=2,hosts=2,rate=10Mbps", "--traffic", "all-reduce:size=400KB"]
    content = compared(*traffic, "--schemes", "ecmp", "--duration", "2s", "--runs", "1", "--worlds", "sim,lab")
    simulated, live = content["schemes"]
    assert live["flows"]["finished"] == simulated["flows"]["finished"] > 10
    figures("all-reduce, end of the run", simulated_s=simulated["runs"][0]["end_s"], live_s=live["runs"][0]["end_s"])


@pytest.mark.measure
def test_flows_that_share_a_link_use_it_as_in_the_simulator() -> None:
    traffic = ["--fabric", "dumbbell:hosts=3,rate=10Mbps,buffer=60", "--traffic", "long-lived:pattern=stride"]
    content = compared(*traffic, "--schemes", "spt", "--duration", "10s", "--runs", "1", "--worlds", "sim,lab")
    simulated, live = (row["throughput"]["mean"] for row in content["schemes"])
    measured("mean throughput of three flows on a link", "share of the link", live, simulated, SIMULATOR)


@pytest.mark.measure
@pytest.mark.long
@pytest.mark.parametrize("pattern", ["stride", "permutation"])
@pytest.mark.parametrize("scheme", ["spt", "ecmp", "ofpt"])
def test_simulator_and_lab_agree(tmp_path: Path, pattern: str, scheme: str) -> None:
    traffic = ["--fabric", K4, "--traffic", f"long-lived:pattern={pattern}", "--schemes", scheme]
    options = ["--duration", "60s", "--runs", "3", "--worlds", "sim,lab", *AS_LAB]
    options += ["--lab", "controller=pathloom"] if scheme == "ofpt" else []
    content = compared(*traffic, *options, "--out", str(tmp_path))
    simulated, live = (row["throughput"]["mean"] for row in content["schemes"])
    flows = pl.read_parquet(tmp_path / "flows.parquet")
    one, other = (sorted_flows(flows.filter(pl.col("scheme") == label)) for label in (scheme, f"{scheme}@lab"))
    apart = max(abs(a - b) for a, b in zip(one, other, strict=True))
    what = f"mean throughput of {pattern} under {scheme}"
    measured(what, "share of the link", live, simulated, SIMULATOR)
    figures(f"{what}: sorted flows of lab and simulator", apart=apart)


def sorted_flows(flows: pl.DataFrame) -> list[float]:
    """Returns the throughput of the worst flow of a run, of the next one, and so on, each as the mean of all runs.

    In single runs, the simulator's own values differ by up to 0.22 here if hosts' jitter changes by a thousandth.
    """
    ranked = flows.with_columns(rank=pl.col("throughput").rank("ordinal").over("run"))
    return ranked.group_by("rank").agg(pl.col("throughput").mean()).sort("rank")["throughput"].to_list()


@pytest.mark.measure
@pytest.mark.long
def test_simulator_and_lab_agree_on_completion_times() -> None:
    traffic = ["--fabric", K4, "--traffic", "web-search:load=0.4,pattern=random", "--schemes", "ecmp"]
    content = compared(*traffic, "--duration", "60s", "--runs", "3", "--worlds", "sim,lab", *AS_LAB)
    simulated, live = (row["fct_s"] for row in content["schemes"])
    for part in ("p50", "mean", "p99"):
        measured(
            f"{part} FCT of web search at load 0.4 under ecmp",
            "s",
            live[part],
            simulated[part],
            SIMULATOR,
        )


def test_impossible_settings_are_refused_before_anything_is_built() -> None:
    for arguments, text in (
        (["--schemes", "hedera"], "scheme `hedera`: is more than static routes; add --lab controller=pathloom"),
        (["--schemes", "ecmp", "--fault", "1s:down:c0"], "--fault: static routes in the lab do not react to faults"),
        (["--schemes", "ecmp", "--lab", "pin=of"], "lab `pin=of`: expected hosts=newreno"),
        (["--schemes", "ecmp", "--worlds", "lap"], "did you mean `lab`"),
        (["--schemes", "ecmp", "--transport", "newreno:max_rto=1s"], "have no setting for max_rto"),
    ):
        command = [*PATHLOOM, "compare", *STRIDE, "--worlds", "lab", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert text in done.stderr


def await_flows(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Waits until the lab of a run is up and its flows have started."""
    deadline = time.monotonic() + PATIENCE_S
    while not (RUN_DIRECTORY / f"run-{process.pid}" / "agent.log").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interrupted_run_takes_its_lab_down(number: signal.Signals) -> None:
    # A process that a shell starts in the background ignores SIGINT, and so would its children.
    listening = ["env", "--default-signal=INT"]
    command = [*listening, *PATHLOOM, "lab", "run", *STRIDE[:6], "--schemes", "ecmp", "--duration", "30s"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    await_flows(process)
    assert left_of(f"run-{process.pid}") != []
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert said.strip() == "pathloom: interrupted: 0 of 1 runs were finished"
    assert left_of(f"run-{process.pid}") == []


def test_finished_runs_are_kept_if_the_lab_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    carry, called = runs.run_agent, []

    def second_fails(*words: Any) -> dict[str, Any]:
        called.append(words)
        if len(called) == 2:
            raise ToolError("the agent ended early: killed")
        return carry(*words)

    monkeypatch.setattr(runs, "run_agent", second_fails)
    traffic = ["--fabric", "diamond:rate=10Mbps", "--traffic", "long-lived", "--scheme", "ecmp", "--worlds", "lab"]
    code = cli_run(["run", *traffic, "--duration", "1s", "--runs", "3", "--out", str(tmp_path)])
    said = capfd.readouterr()
    assert (code, len(called)) == (1, 2), said.err
    assert "the agent ended early: killed; 1 of 3 runs were finished, the result so far is in" in said.err
    content = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (content["complete"], len(content["schemes"][0]["runs"])) == (False, 1)
    assert left_of(f"run-{os.getpid()}") == []


@pytest.mark.long
def test_a_killed_run_is_cleaned_up_by_down() -> None:
    command = [*PATHLOOM, "lab", "run", *STRIDE[:6], "--schemes", "ecmp", "--duration", "30s"]
    process = subprocess.Popen(command)
    await_flows(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert subprocess.run([*PATHLOOM, "lab", "down", "--name", f"run-{process.pid}"], check=False).returncode == 0
    assert left_of(f"run-{process.pid}") == []
