"""Ctrl-C and SIGTERM: exit codes 130 and 143, no traceback, finished runs are kept, no file is incomplete."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import tree
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.running.threads import Worker
from pathloom.experiments.settings.model import Settings

COMMAND = [sys.executable, "-m", "pathloom"]
ENDLESS = ["--fabric", "fat-tree:k=4", "--traffic", "long-lived", "--duration", "1h"]
SLOW_TO_PREPARE = ["--fabric", "fat-tree:k=8", "--traffic", "web-search:load=0.5", "--duration", "1h"]


def interrupt_at(
    arguments: list[str], pattern: str, folder: Path, how: signal.Signals = signal.SIGINT
) -> tuple[int, str, str]:
    """Starts a command on a terminal, and presses Ctrl-C, or sends another signal, once its progress bar matches."""
    terminal, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=inner,
        env=environment,
        start_new_session=True,
    )
    os.close(inner)
    seen, pressed, give_up_at = "", False, time.monotonic() + 120
    while process.poll() is None or select.select([terminal], [], [], 0)[0]:
        assert time.monotonic() < give_up_at, f"still running; stderr: {seen[-500:]}"
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            seen += os.read(terminal, 65536).decode(errors="replace")
        except OSError:
            break
        if not pressed and re.search(pattern, seen):
            pressed = True
            os.killpg(process.pid, how)
    out = process.communicate(timeout=60)[0].decode()
    os.close(terminal)
    return process.returncode, out, seen


@pytest.mark.parametrize(("how", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_finished_runs_are_kept(tmp_path: Path, how: signal.Signals, exit_code: int) -> None:
    small = ["--fabric", "fat-tree:k=4", "--traffic", "web-search:load=0.4", "--duration", "30ms"]
    arguments = ["compare", *small, "--schemes", "ecmp,spt", "--runs", "5000", "--jobs", "2", "--out", "results"]
    code, out, seen = interrupt_at(arguments, r"[1-9]\d*/10000 runs", tmp_path, how)
    assert code == exit_code, seen
    assert "Traceback" not in seen + out
    found = re.search(r"interrupted: (\d+) of 10000 runs were finished, the result so far is in results", seen)
    assert found, seen[-300:]
    content = json.loads((tmp_path / "results/result.json").read_text(encoding="utf-8"))
    assert content["complete"] is False
    assert sum(len(row["runs"]) for row in content["schemes"]) == int(found.group(1)) > 0
    ecmp, spt = ([run["run"] for run in row["runs"]] for row in content["schemes"])
    assert abs(len(ecmp) - len(spt)) <= 2, "runs go seed by seed: at most the active runs of two threads are missing"
    assert "WARNING: Interrupted. " in out
    assert not [name for name in tree(tmp_path) if "partial" in name]
    assert "Interrupted" in (tmp_path / "results/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "hint"), [(["--resume"], "the same command"), ([], "the same command with --resume")]
)
def test_reproduce_continues_after_an_interrupt(tmp_path: Path, words: list[str], hint: str) -> None:
    arguments = ["reproduce", "ofpt/fig2", "--quick", "--jobs", "1", "--out", "pages"]
    code, out, seen = interrupt_at([*arguments, *words], r"[1-9]\d*/\d+ runs", tmp_path)
    assert code == 130, seen
    assert "Traceback" not in seen + out
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "pages/runs").iterdir()}
    assert kept
    runs = "1 run" if len(kept) == 1 else f"{len(kept)} runs"
    said = f"interrupted: 0 of 1 figures were finished; {runs} kept in pages/runs; {hint} goes on from here"
    assert said in " ".join(seen.split())
    assert not [name for name in tree(tmp_path) if "partial" in name or name.endswith(".svg")]
    again = subprocess.run(
        [*COMMAND, *arguments, "--resume"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert "Page: pages/README.md" in again.stdout
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "pages/runs").iterdir()}
    assert len(after) > len(kept)
    assert kept.items() <= after.items(), "finished runs are not repeated"


def test_sigterm_before_the_first_finished_run_leaves_no_files(tmp_path: Path) -> None:
    arguments = ["run", *ENDLESS, "--scheme", "ecmp", "--out", "deep/results"]
    code, out, seen = interrupt_at(arguments, r"0/1 runs", tmp_path, signal.SIGTERM)
    assert (code, out, tree(tmp_path)) == (143, "", [])
    assert "Traceback" not in seen


def test_nothing_is_written_when_nothing_was_finished(tmp_path: Path) -> None:
    arguments = ["run", *ENDLESS, "--scheme", "ecmp", "--out", "deep/results", "--pcap", "x.pcapng"]
    code, out, seen = interrupt_at(arguments, r"0/1 runs", tmp_path)
    assert code == 130, seen
    assert "pathloom: interrupted" in seen
    assert "Traceback" not in seen + out
    assert tree(tmp_path) == []


def test_a_run_that_never_started_leaves_no_files(tmp_path: Path) -> None:
    settings = Settings.of({"fabric": "dumbbell", "traffic": "long-lived", "schemes": ("ecmp",)}, "test")
    execution = Execution(settings, None, RunFiles(pcap=str(tmp_path / "x.pcapng")))
    assert tree(tmp_path) == ["x.pcapng.partial"]
    execution.run(threads=0)
    assert tree(tmp_path) == []


def test_ctrl_c_between_two_threads_ends_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Worker.start

    def start_and_interrupt(worker: Worker) -> None:
        start(worker)
        raise KeyboardInterrupt

    endless = {"fabric": "fat-tree:k=4", "traffic": "long-lived", "schemes": ("ecmp",), "duration": "1h"}
    execution = Execution(Settings.of(endless, "test"), None, RunFiles(pcap=str(tmp_path / "x.pcapng")))
    monkeypatch.setattr(Worker, "start", start_and_interrupt)
    execution.run(threads=2)
    assert (execution.interrupted, execution.outcomes) == (True, [])
    assert tree(tmp_path) == []


def test_ctrl_c_ends_a_command_soon_at_any_time(tmp_path: Path) -> None:
    for delay_s in (0.02, 0.1, 0.3, 0.6, 1.0, 1.6):
        process = subprocess.Popen(
            [*COMMAND, "compare", *SLOW_TO_PREPARE, "--schemes", "ecmp,hedera", "--out", "results"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # Python must have started: before that, Pathloom cannot handle the signal.
        while process.poll() is None and not is_past_startup(process.pid):
            time.sleep(0.005)
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert b"Traceback" not in err
        assert out == b""
        assert tree(tmp_path) == []


LOST = """
import time
import pathloom.cli as cli

class Deleted:
    def __del__(self):
        raise KeyboardInterrupt

def run(arguments):
    try:
        Deleted()
        time.sleep(60)
    except KeyboardInterrupt:
        return cli.EXIT_INTERRUPTED
    return 0

cli.run = run
cli.main()
"""


def test_ctrl_c_is_not_lost_where_python_ignores_exceptions() -> None:
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


DURING_A_QUERY = """
import os
import signal
import polars as pl
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.settings.model import Settings

begun, taken = [], []

def interrupt(frame):
    if not begun:
        begun.append(True)
        os.kill(os.getpid(), signal.SIGINT)
    return frame

def take(outcome):
    query = pl.LazyFrame({"number": range(1000)}).map_batches(interrupt)
    taken.append(query.with_columns(double=pl.col("number") * 2).collect().height)

short = {"fabric": "fat-tree:k=4", "traffic": "long-lived", "schemes": ("ecmp",), "duration": "1ms"}
execution = Execution(Settings.of(short, "test"), None, RunFiles())
execution.run(1, take=take)
print(execution.interrupted, taken)
"""


def test_ctrl_c_during_a_query_of_a_finished_run_keeps_the_run() -> None:
    command = [sys.executable, "-c", DURING_A_QUERY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True [1000]\n"


def is_past_startup(pid: int) -> bool:
    """Returns whether the interpreter has begun to load the core. Its signal handler is installed by then."""
    try:
        return "_core" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    except OSError:
        return True
