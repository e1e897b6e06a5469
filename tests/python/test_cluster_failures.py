"""Sweeps on workers of Dask that cannot start or lose their cluster, and the files and modules that reach workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from pathloom._core import PathloomError
from pathloom.cli import console
from pathloom.experiments.running import cluster as module
from pathloom.experiments.running import cluster_worker
from sweeping import COMMAND, SCHEME, runs_in
from synthetic import numbers
from test_cluster import TOML, cluster_in, ended, output, wait_for, write_endless, write_sweep

pytestmark = pytest.mark.cluster

PLAIN = TOML.replace(', "schemes/own.py:Own"', "")
"""The sweep without a scheme in Python."""
IMPATIENT = """
from pathloom.cli import main
from pathloom.experiments.running import cluster
cluster.CONNECT_S = 3.0
main()
"""
"""The command line, which gives up a scheduler earlier."""


@pytest.fixture(autouse=True)
def sweep_files(tmp_path: Path) -> None:
    write_sweep(tmp_path)


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """A server that reads a little, sends an answer, and closes each connection after a while. Yields its port."""

    def serve(one: socket.socket) -> None:
        with one:
            one.recv(100)
            one.sendall(answer)
            time.sleep(30.0)

    def accept(listening: socket.socket) -> None:
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[one], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, args=[listening], daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.0 400 Bad request\r\n\r\n", bytes(64)], ids=["silent", "web", "zeros"]
)
def test_another_server_is_refused(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 1.0)
    with server(answer) as port:
        outcome = cli("sweep", "s.toml", "--out", "out", "--cluster", f"tcp://127.0.0.1:{port}")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1), outcome.err
    assert f"--cluster `tcp://127.0.0.1:{port}`: what answers there is no Dask scheduler" in outcome.err
    assert "expected the address that `dask scheduler` shows" in outcome.err


def test_a_lost_scheduler_is_reported_in_one_line(tmp_path: Path) -> None:
    write_endless(tmp_path)
    with cluster_in(tmp_path / "elsewhere") as cluster:
        worker = cluster.worker()
        command = [sys.executable, "-c", IMPATIENT, "sweep", "s.toml", "--out", "out", "--cluster", cluster.address]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        wait_for((tmp_path / f"begun-{worker.pid}").exists, process)
        cluster.scheduler.kill()
        code, err = ended(process)
    assert (code, err.count("\n")) == (1, 1), err
    assert f"the connection to the cluster {cluster.address} was lost; no run was finished" in err


def test_a_run_whose_workers_die_ends_the_command_at_the_limit_of_the_scheduler(tmp_path: Path) -> None:
    write_endless(tmp_path)
    limit = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with cluster_in(tmp_path / "elsewhere", **limit) as cluster:
        worker = cluster.worker()
        command = [*COMMAND, "sweep", "s.toml", "--out", "out", "--cluster", cluster.address]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        wait_for((tmp_path / f"begun-{worker.pid}").exists, process)
        worker.kill()
        code, err = ended(process)
    assert (code, err.count("\n")) == (1, 1), err
    assert "(seed 1): 1 worker died during it; it may need more memory than is there" in err


def test_lost_workers_are_told_once_and_awaited(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOST_S", 0.5)
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    said: list[str] = []
    over = threading.Event()
    monkeypatch.setattr(console, "say", said.append)
    (tmp_path / "s.toml").write_text(PLAIN.replace("runs = 10", "runs = 50"), encoding="utf-8")
    with cluster_in(tmp_path / "elsewhere") as cluster:
        first = cluster.worker()

        def replace_worker() -> None:
            wait_for(lambda: runs_in(tmp_path) >= 3, first)
            first.kill()
            end = time.monotonic() + 15.0
            while not said and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(1.0)  # Time for a second message, which must not come.
            cluster.worker()
            # The worker ends with the thread that has started it.
            over.wait()

        thread = threading.Thread(target=replace_worker, daemon=True)
        thread.start()
        try:
            outcome = cli("sweep", "s.toml", "--out", "out", "--cluster", cluster.address)
        finally:
            over.set()
        thread.join(60.0)
    assert outcome.code == 0, outcome.err
    assert runs_in(tmp_path) == 100
    new = f"waiting for a new one, such as `dask worker {cluster.address}` starts (Ctrl-C ends)"
    assert said == [f"pathloom: --cluster `{cluster.address}`: no workers are left; {new}"]


@pytest.mark.parametrize(
    ("begun", "number", "code"), [(False, signal.SIGINT, 130), (False, signal.SIGTERM, 143), (True, signal.SIGINT, 130)]
)
def test_an_interrupt_is_one_line_also_while_workers_start(
    tmp_path: Path, begun: bool, number: signal.Signals, code: int
) -> None:
    write_endless(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, "sweep", "s.toml", "--out", "out", "--cluster", "local:2"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if begun:
        wait_for(lambda: {path.name for path in tmp_path.glob("begun-*")} - {f"begun-{process.pid}"}, process)
    else:
        # Python's tracker of semaphores, and a worker.
        wait_for(lambda: len(children(process.pid)) >= 2, process)
    if number == signal.SIGINT:
        # A terminal sends Ctrl-C to all processes.
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    found, err = ended(process)
    assert (found, err) == (code, f"pathloom: interrupted{': no run was finished' if begun else ''}\n")


def children(pid: int) -> list[str]:
    """The processes that a process has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if place.read_text(encoding="utf-8").rpartition(")")[2].split()[1] == str(pid):
                found.append(place.parent.name)
    return found


def test_workers_that_do_not_start_are_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKERS_S", 0.01)
    monkeypatch.setattr(module, "START_S", 0.0)
    outcome = cli("sweep", "s.toml", "--out", "out", "--cluster", "local:1")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    assert "--cluster `local:1`: some workers did not start in 0.01 s; start fewer" in outcome.err


def test_a_misspelt_cluster_is_refused_even_if_no_run_is_missing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(PLAIN.replace("runs = 10", "runs = 1"), encoding="utf-8")
    words = "expected local:N with N from 1 to 256, or tcp://HOST:PORT"
    for again in (False, True):
        for where in ("udp://h:1", "tcp://", "tcp://h:99999", "tcp://h:\uff18", "local:\uff12", "local:" + 5000 * "1"):
            outcome = cli("sweep", "s.toml", "--out", "out", "--cluster", where)
            assert (outcome.code, outcome.err) == (2, f"pathloom: --cluster `{where}`: {words}\n")
        if not again:
            assert cli("sweep", "s.toml", "--out", "out").code == 0
    # The cluster is not used, so it need not answer.
    assert cli("sweep", "s.toml", "--out", "out", "--cluster", "tcp://127.0.0.1:9").code == 0


def compared(folder: Path, scheme: str, traffic: str, *options: str) -> Any:
    """The figures of a comparison with ECMP, by a process in this folder."""
    given = ("--fabric", "diamond:rate=10Mbps", "--traffic", traffic, "--duration", "2s", "--runs", "1")
    code, out, err = output(folder, "compare", *given, "--schemes", f"{scheme},ecmp", "--json", "-", *options)
    assert code == 0, err
    return numbers(out)


def test_files_of_any_path_and_packages_reach_a_worker(tmp_path: Path) -> None:
    package = tmp_path / "helpers/deep"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "core.py").write_text("PATH = 1\n", encoding="utf-8")
    text = SCHEME.replace("from helper ", "from helpers.deep.core ").replace("[PATH]", "[least(flow.id % PATH)]")
    late = "        from late import least\n        if False:\n            import tool\n"
    (tmp_path / "own.py").write_text(text.replace("        if isinst", f"{late}        if isinst"), encoding="utf-8")
    # Only the scheme decides which modules are imported.
    (tmp_path / "tool.py").write_text("import sys\nsys.exit(1)\n", encoding="utf-8")
    (tmp_path / "late.py").write_text("def least(path): return max(path, 0)\n", encoding="utf-8")
    (tmp_path / "inner").mkdir()
    absolute = tmp_path, f"{tmp_path}/schemes/own.py:Own", "sizes.csv:load=0.5"
    above = tmp_path / "inner", "../own.py:Own", "../sizes.csv:load=0.5"
    with cluster_in(tmp_path / "elsewhere") as cluster:
        cluster.worker()
        there = ("--cluster", cluster.address)
        assert compared(*absolute, *there) == compared(*absolute)
        found = compared(*above, *there)
        assert found == compared(*above)
        # A worker imports modules again. If it found another module of the same name, figures would differ.
        (package / "core.py").write_text("PATH = 2\n", encoding="utf-8")
        assert compared(*above, *there)["schemes"] != found["schemes"]
        (tmp_path / "elsewhere/helper.py").write_text("PATH = 0\n", encoding="utf-8")
        code, _, err = output(tmp_path, "sweep", "s.toml", "--out", "out", *there)
        assert (code, err.count("\n")) == (2, 1), err
        assert f"imports `{tmp_path}/elsewhere/helper.py` instead of `schemes/helper.py`; rename one" in err
    assert not list((tmp_path / "elsewhere").glob("**/own.py"))


def test_a_file_with_an_absolute_path_must_be_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "sizes.csv")
    files = {path: (tmp_path / "sizes.csv").read_bytes(), "new/one.csv": b"1"}
    with ExitStack() as until_end:
        with cluster_worker._files_in_place(files, until_end):
            place = Path("new/one.csv").resolve()
        assert place.read_bytes() == b"1"
    assert not place.exists()
    other = {path: b"other", "new/one.csv": b"1"}
    with (
        pytest.raises(PathloomError, match=f"has no `{path}` with the same content"),
        cluster_worker._files_in_place(other, until_end),
    ):
        pass
    assert not Path("new").exists()
