"""Sweeps on workers of Dask, which are real processes. The figures are the same, even if a worker is killed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import pathloom
from conftest import Cli
from reproducing import TINY
from sweeping import COMMAND, SCHEME, content, runs_in, stamps
from synthetic import numbers

pytestmark = pytest.mark.cluster

TOML = """
fabric = "diamond:rate={rate}"
traffic = "sizes.csv:load=0.5"
schemes = ["ecmp", "schemes/own.py:Own"]
duration = "10s"
runs = 10

[grid]
rate = ["10Mbps", "20Mbps"]
"""
ENDLESS = TOML.replace("10s", "24h").replace("sizes.csv:load=0.5", "long-lived").replace('"ecmp", ', "")


PATIENCE_S = 300.0


def wait_for(what: Callable[[], Any], meanwhile: subprocess.Popen[Any]) -> Any:
    """Waits until something is true and returns it. A process must keep running meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end and meanwhile.poll() is None
        time.sleep(0.02)
    return found


def written(file: Path) -> Any:
    """Returns the content of a JSON file; None until the file is complete."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class DaskCluster:
    """A scheduler and workers, in a folder that has none of the files of the sweep."""

    def __init__(self, folder: Path, stack: ExitStack, **environment: str) -> None:
        self._folder, self._stack = folder, stack
        place = folder / "scheduler.json"
        words = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(place), "--no-dashboard")
        self.scheduler = self._start("scheduler", *words, **environment)
        self.address: str = wait_for(lambda: written(place), self.scheduler)["address"]

    def worker(self, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a worker of one thread."""
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", **environment)

    def _start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            # It ends with the tests, also if they are killed.
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "dask", *arguments],
            cwd=self._folder,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(process.wait, PATIENCE_S)
        self._stack.callback(process.kill)
        return process


@contextmanager
def cluster_in(folder: Path, **environment: str) -> Iterator[DaskCluster]:
    """Starts a scheduler in a new folder, with these variables. It ends with the context, and so do its workers."""
    folder.mkdir()
    with ExitStack() as stack:
        yield DaskCluster(folder, stack, **environment)


@pytest.fixture(autouse=True)
def sweep_files(tmp_path: Path) -> None:
    write_sweep(tmp_path)


def write_sweep(folder: Path) -> None:
    """Writes a sweep, its table of sizes, and its scheme with a module that this imports."""
    (folder / "s.toml").write_text(TOML, encoding="utf-8")
    (folder / "sizes.csv").write_text("size_bytes,cdf\n1000,0.5\n200000,1\n", encoding="utf-8")
    (folder / "schemes").mkdir()
    (folder / "schemes/own.py").write_text(SCHEME, encoding="utf-8")
    (folder / "schemes/helper.py").write_text("PATH = -1\n", encoding="utf-8")


def write_endless(folder: Path) -> None:
    """Makes the runs of the sweep endless. The scheme creates the file `begun-PID` when it runs in a process."""
    (folder / "s.toml").write_text(ENDLESS, encoding="utf-8")
    tell = f"open({str(folder)!r} + f'/begun-{{os.getpid()}}', 'a').close()"
    telling = "import os\n" + SCHEME.replace("        if isinst", f"        {tell}\n        if isinst")
    (folder / "schemes/own.py").write_text(telling, encoding="utf-8")


def sweep(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "sweep", "s.toml", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and standard error."""
    _, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, err


def test_a_killed_worker_loses_only_its_run(tmp_path: Path) -> None:
    assert ended(sweep(tmp_path, "--out", "alone")) == (0, "")
    with cluster_in(tmp_path / "elsewhere") as cluster:
        first = cluster.worker()
        process = sweep(tmp_path, "--out", "out", "--cluster", cluster.address)
        while process.poll() is None and runs_in(tmp_path) < 5:
            time.sleep(0.005)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = stamps(tmp_path / "out")
        assert 5 <= len(before) < 40
        cluster.worker()
        cluster.worker()
        assert ended(process) == (0, "")
        assert before.items() <= stamps(tmp_path / "out").items(), "finished runs are not repeated"
    assert len(stamps(tmp_path / "out")) == 40
    assert stamps(tmp_path / "out").keys() == stamps(tmp_path / "alone").keys()
    assert content(tmp_path / "out") == content(tmp_path / "alone")
    assert list((tmp_path / "elsewhere").glob("**/own.py")) == []
    # Runs that a worker stored count on this machine too, and vice versa.
    again = sweep(tmp_path, "--out", "out", "--cluster", "local:2")
    assert ended(again) == (0, "40 of 40 runs are in out already\n")


def test_workers_started_for_a_sweep_end_with_it(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML.replace("runs = 10", "runs = 2"), encoding="utf-8")
    assert ended(sweep(tmp_path, "--out", "alone")) == (0, "")
    with ExitStack() as stack:
        # Another scheduler of Dask may have its dashboard at the usual port.
        with suppress(OSError):
            stack.enter_context(socket.create_server(("", 8787)))
        process = sweep(tmp_path, "--out", "out", "--cluster", "local:2")
        assert ended(process) == (0, "")
    assert content(tmp_path / "out") == content(tmp_path / "alone")
    left = [path for path in Path("/proc").glob("[0-9]*/cwd") if _links_to(path, tmp_path)]
    assert left == []


def _links_to(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder
    except OSError:
        return False


def test_ctrl_c_frees_the_workers(tmp_path: Path) -> None:
    with cluster_in(tmp_path / "elsewhere") as cluster:
        worker = cluster.worker()
        write_endless(tmp_path)
        process = sweep(tmp_path, "--out", "out", "--cluster", cluster.address)
        # The scheme is tried on this machine as well.
        wait_for((tmp_path / f"begun-{worker.pid}").exists, process)
        process.send_signal(signal.SIGINT)
        code, err = ended(process)
        assert (code, err) == (130, "pathloom: interrupted: no run was finished\n")
        assert not (tmp_path / "out").exists()
        (tmp_path / "s.toml").write_text(TOML.replace("runs = 10", "runs = 1"), encoding="utf-8")
        assert ended(sweep(tmp_path, "--out", "out", "--cluster", cluster.address)) == (0, "")


def test_a_failed_scheme_on_a_worker_is_reported_like_a_local_one(tmp_path: Path) -> None:
    (tmp_path / "schemes/own.py").write_text(SCHEME.replace("[PATH]", "[9999]"), encoding="utf-8")
    code, err = ended(sweep(tmp_path, "--out", "out", "--cluster", "local:1"))
    assert code == 1
    assert "IndexError" in err
    assert "own.py" in err
    assert "scheme schemes/own.py:Own failed in run 1 (seed 1)" in err.splitlines()[-1]
    assert "Traceback (most recent call last)" in err


def test_a_worker_with_another_program_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(str(pathloom.__file__)).parent, other / "pathloom")
    with (other / "pathloom/experiments/running/execution.py").open("a", encoding="utf-8") as file:
        file.write("# Another version.\n")
    with cluster_in(tmp_path / "elsewhere") as cluster:
        cluster.worker(PYTHONPATH=str(other))
        code, err = ended(sweep(tmp_path, "--out", "out", "--cluster", cluster.address))
    assert code == 2
    assert err.count("\n") == 1
    assert "has another version of Pathloom" in err
    assert not (tmp_path / "out").exists()


def test_a_missing_scheduler_or_one_without_workers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathloom._core import PathloomError
    from pathloom.experiments.running import cluster as module

    monkeypatch.setattr(module, "WORKERS_S", 1.0)
    monkeypatch.setattr(module, "CONNECT_S", PATIENCE_S)
    with (
        cluster_in(tmp_path / "elsewhere") as cluster,
        pytest.raises(PathloomError, match="has no workers; start some"),
        module.connected(cluster.address, print),
    ):
        pass
    monkeypatch.setattr(module, "CONNECT_S", 1.0)
    with pytest.raises(PathloomError, match="no Dask scheduler answers"), module.connected("tcp://127.0.0.1:9", print):
        pass


COMPARE = [
    *("compare", "--fabric", "diamond:rate=10Mbps", "--traffic", "sizes.csv:load=0.5", "--duration", "2s"),
    *("--schemes", "ecmp,schemes/own.py:Own", "--runs", "3", "--series", "500ms", "--json", "-"),
]


def output(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    command = [*COMMAND, *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def test_a_comparison_on_workers_gives_the_same_figures(tmp_path: Path) -> None:
    code, here, err = output(tmp_path, *COMPARE)
    assert code == 0, err
    code, there, err = output(tmp_path, *COMPARE, "--cluster", "local:2", "--out", "out", "--resume")
    assert code == 0, err
    assert numbers(there) == numbers(here)
    # No run is missing, so the cluster is not used.
    code, again, err = output(tmp_path, *COMPARE, "--cluster", "tcp://127.0.0.1:9", "--out", "out", "--resume")
    assert code == 0, err
    assert numbers(again) == numbers(here)


def test_calls_from_python_give_the_same_figures_on_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"fabric": "diamond", "traffic": "long-lived", "duration": "200ms"}

    async def compare_in_a_loop(where: str) -> pathloom.Result:
        # A notebook calls from within an event loop.
        return pathloom.compare(**given, schemes=["ecmp", "schemes/own.py:Own"], runs=2, cluster=where)

    with cluster_in(tmp_path / "elsewhere") as cluster:
        cluster.worker()
        compared = asyncio.run(compare_in_a_loop(cluster.address))
        ran = pathloom.run(**given, scheme="ecmp", cluster=cluster.address)
        swept = pathloom.sweep("s.toml", "there", cluster=cluster.address)

        class Own:
            def handle(self, _event: object, _view: object) -> None: ...

        with pytest.raises(pathloom.PathloomError, match="scheme `Own`: a class cannot be sent to another machine"):
            pathloom.run(**given, scheme=Own, cluster=cluster.address)
    assert compared.flows.equals(pathloom.compare(**given, schemes=["ecmp", "schemes/own.py:Own"], runs=2).flows)
    assert ran.flows.equals(pathloom.run(**given, scheme="ecmp").flows)
    assert swept.table.equals(pathloom.sweep("s.toml", "here").table)
    # No run is missing, so the cluster is not used.
    assert pathloom.sweep("s.toml", "there", cluster="tcp://127.0.0.1:9").table.equals(swept.table)


@pytest.mark.parametrize(
    ("cluster", "more", "words"),
    [
        ("local:2", {}, "cluster: `local:2` is not valid; expected tcp://HOST:PORT of a Dask scheduler"),
        (5, {}, "cluster: `5` is not valid; expected tcp://HOST:PORT"),
        ("tcp://h", {}, "--cluster `tcp://h`: expected"),
        ("tcp://h:1", {"jobs": 2}, "--jobs: is for this machine"),
        ("tcp://h:1", {"threads": 2}, "--threads: is for this machine"),
        ("tcp://h:1", {"worlds": ["lab"]}, "--cluster: is for the simulator"),
    ],
)
def test_an_unusable_cluster_is_refused_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any, more: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"fabric": "diamond", "traffic": "long-lived", "runs": 1, **more}
    with pytest.raises(pathloom.PathloomError, match=words):
        pathloom.compare(schemes=["ecmp"], cluster=cluster, **given)
    if not more:
        with pytest.raises(pathloom.PathloomError, match=words):
            pathloom.sweep("s.toml", "out", cluster=cluster)
        assert not Path("out").exists()


def test_schemes_in_two_folders_have_their_own_modules_on_workers(tmp_path: Path) -> None:
    other = tmp_path / "schemes/more"
    other.mkdir()
    (other / "own.py").write_text(SCHEME, encoding="utf-8")
    (other / "helper.py").write_text("PATH = 0\n", encoding="utf-8")
    command = ["schemes/own.py:Own,schemes/more/own.py:Own" if word.startswith("ecmp,") else word for word in COMPARE]
    code, here, err = output(tmp_path, *command)
    assert code == 0, err
    code, there, err = output(tmp_path, *command, "--cluster", "local:1")
    assert code == 0, err
    assert numbers(there) == numbers(here)
    first, second = json.loads(here)["schemes"]
    assert first["throughput"] != second["throughput"], "the modules differ"


def test_a_figure_on_workers_equals_the_local_figure() -> None:
    from pathloom.experiments.running.cluster import connected
    from pathloom.reproduction import measure
    from pathloom.reproduction.definitions import PUBLISHED, Figure
    from pathloom.reproduction.runs import RunCache

    figure = Figure.model_validate(TINY)
    plans = measure.plan(figure, PUBLISHED, 1)
    with connected("local:2", print) as runner:
        there = measure.reproduce(figure, plans, PUBLISHED, runner, RunCache(None), lambda _job, _share: None)
    here = measure.reproduce(figure, plans, PUBLISHED, 2, RunCache(None), lambda _job, _share: None)
    assert there.as_json() == here.as_json()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--cluster", "local:0"], "--cluster `local:0`: expected local:N"),
        (["compare", "--cluster", "local:999"], "expected local:N with N from 1 to 256"),
        (["compare", "--cluster", "udp://h:1"], "expected local:N"),
        (["compare", "--cluster", "tcp://h"], "expected local:N"),
        (["compare", "--cluster", "tcp://"], "expected local:N"),
        (["compare", "--cluster", "tcp://h:99999"], "expected local:N"),
        (["compare", "--cluster", "tcp://h:\uff18\uff17"], "expected local:N"),
        (["compare", "--cluster", "local:\uff12"], "expected local:N"),
        (["compare", "--cluster", "local:2", "--jobs", "2"], "--jobs: is for this machine"),
        (["compare", "--cluster", "local:2", "--threads", "2"], "--threads: is for this machine"),
        (["compare", "--cluster", "local:2", "--worlds", "sim,lab"], "--cluster: is for the simulator"),
        (["run", "--cluster", "local:2", "--pcap", "x.pcap"], "--cluster: a run on another machine writes no --pcap"),
        (["run", "--cluster", "local:2", "--event-log", "x.log"], "writes no --pcap and no --event-log"),
        (["reproduce", "ofpt/fig2", "--cluster", "local:x"], "--cluster `local:x`: expected local:N"),
        (["reproduce", "ofpt/fig2", "--cluster", "local:2", "--jobs", "1"], "--jobs: is for this machine"),
        (["reproduce", "ofpt/fig2", "--cluster", "local:2", "--world", "lab"], "--cluster: is for the simulator"),
    ],
)
def test_an_unusable_cluster_is_refused(cli: Cli, tmp_path: Path, arguments: list[str], words: str) -> None:
    verb, *rest = arguments
    own = {"compare": ["--schemes", "ecmp,spt"], "run": ["--scheme", "ecmp"], "reproduce": []}[verb]
    common = [] if verb == "reproduce" else ["--fabric", "diamond", "--traffic", "long-lived", "--runs", "1"]
    outcome = cli(verb, *rest[: verb == "reproduce"], *own, *common, *rest[verb == "reproduce" :], "--out", "out")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1), outcome.err
    assert words in outcome.err
    assert not (tmp_path / "out").exists()
