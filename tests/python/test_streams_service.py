"""The service of path assignments with two clients: Python's own XML-RPC, and the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pathloom.cli.app import carry_out
from pathloom.native import program
from pathloom.streams.paths import ControllerAddress, Paths, Refused

MAC = "02:00:00:00:00:01"
SRC, DST = "127.0.0.1", "127.0.0.9"
CONFIG = """
fabric = { spec = "fat-tree:k=4,rate=10Mbps" }
discovery = { links = "off" }
listen = { unix = "switches.sock", address = "127.0.0.1:0" }
state = { directory = "state" }
paths = { address = "127.0.0.1:0" }
[[addresses]]
at = "h0"
prefixes = ["127.0.0.1/32"]
[[addresses]]
at = "h15"
prefixes = ["127.0.0.9/32"]
"""


class Running:
    """A controller, and its port for applications."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def call(self, method: str, *parameters: Any) -> Any:
        with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{self.port}") as proxy:
            return getattr(proxy, method)(*parameters)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    (folder / "controller.toml").write_text(CONFIG)
    log = folder / "log"
    command = [program("pathloom-controller"), "--config", "controller.toml"]
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, text=True)
    try:
        yield Running(process, port_in(log))
    finally:
        process.kill()
        process.wait()


def port_in(log: Path) -> int:
    """Returns the port that the log names."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        text = log.read_text()
        for line in text.splitlines():
            if "listening for applications" in line and "the controller runs" in text:
                return int(line.partition("127.0.0.1:")[2].split()[0].strip("\x1b[0m "))
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def test_pythons_own_client_gets_paths_and_the_command_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path) as controller:
        found, assignment = controller.call("AssignMultipath", SRC, MAC, DST, 4)
        assert found == 4
        assert controller.call("MakePath", assignment, SRC, DST, 40_001) is True
        assert controller.call("ReleaseMultipath", assignment) is True
        with pytest.raises(xmlrpc.client.Fault, match="no assignment") as refused:
            controller.call("MakePath", assignment, SRC, DST, 40_002)
        assert refused.value.faultCode == 404
        with pytest.raises(xmlrpc.client.Fault, match="more than 16384 bytes") as refused:
            controller.call("AssignMultipath", SRC, "x" * 5_000_000, DST, 4)
        assert refused.value.faultCode == 413
        assert carry_out(["assign", "127.0.0.1", str(controller.port), SRC, MAC, DST, "3"]) == 0
        paths, number = capsys.readouterr().out.split()
        assert paths == "3" and int(number) > 0
        assert carry_out(["assign", "127.0.0.1", str(controller.port), SRC, MAC, "10.9.9.9", "3"]) == 2
        error = capsys.readouterr().err
        assert "no host of the fabric has the address 10.9.9.9" in error and error.count("\n") == 1


def test_an_existing_connection_is_claimed_by_both_ports_or_refused(tmp_path: Path) -> None:
    """The switches of this controller are not connected, so no connection can move."""
    with running(tmp_path) as controller:
        _, assignment = controller.call("AssignMultipath", SRC, MAC, DST, 4)
        line = Paths(ControllerAddress("127.0.0.1", controller.port), SRC)
        for wrong in (0, 70_000, -1):
            with pytest.raises(Refused) as refused:
                line.claim(assignment, SRC, DST, 40_001, dst_port=wrong)
            assert refused.value.status == 400, wrong
        with pytest.raises(Refused, match="a switch at one of its ends has no session") as refused:
            line.claim(assignment, SRC, DST, 40_001, dst_port=443)
        assert refused.value.status == 409
        assert [path["users"] for path in line.assignment(assignment)["paths"]] == [0, 0, 0, 0]
        line.close()


def test_a_killed_controller_keeps_what_it_has_answered(tmp_path: Path) -> None:
    for _ in range(3):
        with running(tmp_path) as controller:
            _, assignment = controller.call("AssignMultipath", SRC, MAC, DST, 4)
            _, released = controller.call("AssignMultipath", SRC, MAC, DST, 4)
            controller.call("ReleaseMultipath", released)
            controller.kill()
        with running(tmp_path) as controller:
            assert controller.call("MakePath", assignment, SRC, DST, 40_001) is True
            with pytest.raises(xmlrpc.client.Fault, match="no assignment"):
                controller.call("MakePath", released, SRC, DST, 40_002)
            controller.call("ReleaseMultipath", assignment)


def test_assign_reports_a_missing_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert carry_out(["assign", "127.0.0.1", "1", SRC, MAC, DST, "3"]) == 1
    error = capsys.readouterr().err
    assert "no answer from 127.0.0.1:1" in error and error.count("\n") == 1
    assert carry_out(["assign", "127.0.0.1", "70000", SRC, MAC, DST, "3"]) == 2
    assert carry_out(["assign", "http://x", "80", SRC, MAC, DST, "3"]) == 2
