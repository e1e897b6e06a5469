"""A scheme at a Unix socket: each controller that connects gets a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from pathloom import _core

FABRIC = "leaf-spine:spines=3,leaves=3,hosts=2,rate=100Mbps"
# Its process says its number, and hangs at a time-out.
SCHEME = """
import os, pathlib, time
from pathloom.scheme import SetDefaults, Started, Timeout
class Far:
    def handle(self, now_ns, event, view):
        if isinstance(event, Started):
            pathlib.Path(__file__).with_name(f"{os.getpid()}.pid").touch()
            return [SetDefaults("ROUTES")]
        if isinstance(event, Timeout):
            time.sleep(1000)
"""


def wait(what: str, done: Callable[[], bool]) -> None:
    """Waits until `done`, for a minute at most: only a defect takes so long."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, f"{what}: not within 60 s"
        time.sleep(0.02)


class Server:
    """A listener, and its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "scheme.sock"
        self.controllers: list[Controller] = []
        self.write("per_host")
        command = [sys.executable, "-m", "pathloom.scheme_socket", str(self.path), str(folder / "far.py:Far")]
        self.process = subprocess.Popen(command)
        wait("it listens", self.listens)

    def listens(self) -> bool:
        """Whether somebody accepts connections."""
        assert self.process.poll() is None
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(str(self.path)) == 0

    def write(self, routes: str) -> None:
        """Writes the file of the scheme, which sets these default routes."""
        (self.folder / "far.py").write_text(SCHEME.replace("ROUTES", routes))

    def controller(self) -> Controller:
        """A controller that has connected."""
        one = Controller(self.path)
        self.controllers.append(one)
        return one

    def close(self) -> None:
        """Ends it, and all controllers."""
        for one in self.controllers:
            one.close()
        self.process.kill()
        self.process.wait()

    def processes(self) -> set[int]:
        """The processes that have got their first event."""
        return {int(file.stem) for file in self.folder.glob("*.pid")}


class Controller:
    """One end of a connection."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.lines: TextIO = self.socket.makefile("rw", encoding="utf-8")
        self.asked = 0
        graph = json.loads(_core.Fabric.from_spec(FABRIC).to_node_link())
        self.say({"protocol": 1, "fabric": graph, "seed": 1})
        self.greeting = json.loads(self.lines.readline())

    def say(self, line: object) -> None:
        """Writes a line."""
        self.lines.write(json.dumps(line) + "\n")
        self.lines.flush()

    def event(self, event: object) -> None:
        """Passes an event."""
        self.asked += 1
        view = {"fresh": True} if self.asked == 1 else {}
        self.say({"id": self.asked, "request": {"now": self.asked, "view": view, "event": event}})

    def actions(self, event: object) -> Any:
        """Passes an event, and returns the actions."""
        self.event(event)
        return json.loads(self.lines.readline())["reply"]["actions"]

    def close(self) -> None:
        """Goes away."""
        self.lines.close()
        self.socket.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the scheme above."""
    one = Server(tmp_path)
    yield one
    one.close()


def is_alive(process: int) -> bool:
    """Whether a process runs. One that nobody waits for counts as ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_each_controller_has_a_process_which_reads_the_file_as_it_is(server: Server) -> None:
    first = server.controller()
    assert first.greeting["needs"]["detection"] == "label"
    assert first.actions("started") == [{"set_defaults": "per_host"}]
    server.write("weighted")
    second = server.controller()
    assert second.actions("started") == [{"set_defaults": "weighted"}]
    assert first.actions({"link_changed": {"link": 0, "up": True}}) == []
    one, other = server.processes()
    assert is_alive(one) and is_alive(other)
    first.close()
    second.close()
    wait("both processes end", lambda: not is_alive(one) and not is_alive(other))


def test_a_process_that_hangs_ends_with_its_connection(server: Server) -> None:
    far = server.controller()
    far.actions("started")
    (process,) = server.processes()
    far.event("timeout")
    far.close()
    wait("the process is killed", lambda: not is_alive(process))


def test_a_process_that_ends_closes_its_connection_and_another_one_is_served(server: Server) -> None:
    far = server.controller()
    far.actions("started")
    (process,) = server.processes()
    os.kill(process, signal.SIGKILL)
    assert far.lines.readline() == ""
    assert server.controller().actions("started") == [{"set_defaults": "per_host"}]


def test_the_end_of_the_server_ends_all_processes_and_removes_the_socket(server: Server) -> None:
    far = server.controller()
    far.actions("started")
    (process,) = server.processes()
    server.process.terminate()
    assert server.process.wait(60) == 0
    wait("the process is killed", lambda: not is_alive(process))
    assert not server.path.exists()


def test_only_owner_and_group_may_connect_and_a_socket_in_use_is_refused(server: Server) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o660
    command = [sys.executable, "-m", "pathloom.scheme_socket", str(server.path), "far.py"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1 and "nobody listens" in second.stderr
    # One that was left behind is replaced.
    server.process.kill()
    server.process.wait()
    assert server.path.exists()
    again = Server(server.folder)
    assert again.controller().actions("started") == [{"set_defaults": "per_host"}]
    again.close()
