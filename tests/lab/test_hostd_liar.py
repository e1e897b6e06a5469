"""An agent that lies about flows is limited and named; the agents of other hosts are served all the same."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

from hosted import FABRIC
from pathloom.lab import controller, hostd
from pathloom.lab.lab import Lab
from support import call


def test_an_agent_that_lies_is_limited_and_named(name: str) -> None:
    call("up", FABRIC, "--name", name, "--controller", "pathloom", "--scheme", "ofpt")
    lab = Lab(name)
    path = lab.directory / controller.HOSTS_SOCKET
    mine, other = (host.ports[0].address for host in lab.blueprint().hosts[:2])
    with socket.socket(socket.AF_UNIX) as liar:
        liar.connect(str(path))
        liar.settimeout(10)

        def say(what: dict[str, Any]) -> None:
            liar.sendall(json.dumps(what).encode() + b"\n")

        say({"hello": {"version": 1, "hosts": [mine]}})
        flow = {"src": mine, "dst": other, "proto": 6, "src_port": 1, "dst_port": 2}
        for port in range(3000):
            say({"announce": {"flow": {**flow, "src_port": port, "dst_port": port % 7}, "size_bytes": 1 << 60}})
        for _ in range(20):
            say({"announce": {"flow": {**flow, "src": other}, "size_bytes": 1}})
        said = b""
        with suppress(OSError):
            while got := liar.recv(1 << 16):
                said += got
    assert b"no host that this agent speaks for" in said
    log = (lab.directory / "controller.log").read_text(encoding="utf-8")
    assert "no host that this agent speaks for" in log
    # The agent of all other hosts is still served.
    assert controller.running(lab.directory) is not None and hostd.running(lab.directory) is not None
