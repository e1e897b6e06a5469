"""An agent that lies about flows is limited and named; the agents of other hosts are still served."""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from api import ask, with_api
from live import K4, alive
from pathloom.lab import controller
from pathloom.lab.lab import Lab
from support import PATIENCE_S, figures


class Agent:
    """An agent of one host, connected to the controller's Unix socket."""

    def __init__(self, directory: Path, address: str) -> None:
        self.address = address
        self.line = socket.socket(socket.AF_UNIX)
        self.line.settimeout(PATIENCE_S)
        self.line.connect(str(directory / controller.HOSTS_SOCKET))
        self.answers = self.line.makefile("r", encoding="utf-8")
        self.say({"hello": {"version": 1, "hosts": [address]}})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.answers.close()
        self.line.close()

    def say(self, what: dict[str, Any]) -> None:
        self.line.sendall(json.dumps(what).encode() + b"\n")

    def await_answer(self, kind: str) -> dict[str, Any]:
        """Returns the next answer of a kind."""
        for line in self.answers:
            answer = json.loads(line)
            assert "refused" not in answer, answer
            if kind in answer:
                return dict(answer[kind])
        raise AssertionError("the controller has closed the connection")

    def paths_s(self, other: str, number: int) -> float:
        """Returns how long the controller takes to find paths to another host, and to release them."""
        began = time.perf_counter()
        self.say({"paths": {"request": number, "src": self.address, "dst": other, "count": 4}})
        offer = self.await_answer("offer")
        assert len(offer["paths"]) == 4
        self.say({"release_paths": {"request": number, "assignment": offer["assignment"], "src": self.address}})
        self.await_answer("paths_released")
        return time.perf_counter() - began


def lie(directory: Path, mine: str, other: str, over: threading.Event) -> None:
    """Announces flows with an impossible size, without end and as fast as they are read."""
    flow = {"src": mine, "dst": other, "proto": 6}
    with Agent(directory, mine) as liar, suppress(OSError):
        liar.line.settimeout(0.2)
        number = 0
        while not over.is_set():
            ports = {"src_port": 1 + number % 65535, "dst_port": 1 + number // 65535}
            number += 1
            with suppress(TimeoutError):
                liar.say({"announce": {"flow": {**flow, **ports}, "size_bytes": 1 << 60}})


def test_a_lying_agent_is_limited_and_named_and_others_are_not_affected(name: str, tmp_path: Path) -> None:
    with alive(name, K4, "ofpt", more=with_api(tmp_path)) as live:
        lab = Lab(name)
        mine, other, third = (live.blueprint.hosts[number].ports[0].address for number in (0, 7, 15))
        assert ask(live, "/v1/state")["agents"]["offenders"] == []
        with Agent(lab.directory, other) as honest:
            quiet_s = [honest.paths_s(third, number) for number in range(100)]
            over = threading.Event()
            lying = threading.Thread(target=lie, args=(lab.directory, mine, other, over))
            lying.start()
            try:
                time.sleep(2)
                flooded_s = [honest.paths_s(third, number) for number in range(100, 200)]
            finally:
                over.set()
                lying.join()
        (offender,) = ask(live, "/v1/state")["agents"]["offenders"]
        assert offender["agent"].startswith("process ") and offender["times"] > 0, offender
        assert abs(time.time() - offender["last_s"]) < 60
        assert "pathloom_agent_offences_total{agent=" in ask(live, "/metrics")
        assert "an agent is limited" in live.log()
        # An agent that announces flows of another host is disconnected.
        with Agent(lab.directory, mine) as liar:
            flow = {"src": other, "dst": mine, "proto": 6, "src_port": 1, "dst_port": 2}
            said = ""
            # The controller closes the connection after some of these.
            with suppress(OSError):
                for _ in range(20):
                    liar.say({"announce": {"flow": flow, "size_bytes": 1}})
                    said += liar.answers.readline()
        assert "this agent does not represent the host" in said
        assert "this agent does not represent the host" in live.log()
        assert controller.running(lab.directory) is not None
        before_ms, after_ms = (1e3 * statistics.median(times_s) for times_s in (quiet_s, flooded_s))
        figures("paths found and released, without and with an agent that floods, ms", before=before_ms, after=after_ms)
        figures("offences", times=offender["times"])
        figures("the slowest of 100, ms", before=1e3 * max(quiet_s), after=1e3 * max(flooded_s))
