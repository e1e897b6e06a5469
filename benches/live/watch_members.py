"""Watches the controllers of a lab from outside: who says that it leads, which switches it has, and what etcd does.

Each controller is asked by a thread of its own, so that one that stands still delays no question to the others. Another
thread for each etcd watches the key of the leader. All times are of this machine's monotonic clock, in seconds.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from leaders import Answer

from pathloom.lab import system
from pathloom.lab.members import Members, name

EVERY_S = 0.025
PATIENCE_S = 5.0
_ETCD = 2379
_LEADER = b"/pathloom/leader"


class Watch:
    """Threads that ask until `stop`. What they know may be read at any time."""

    def __init__(self, members: Members, history: Path) -> None:
        """All answers of controllers that they lead are added to `history`."""
        self.members = members
        self.answers: list[Answer] = []
        self.ready: dict[int, tuple[str, float]] = {}
        """By election: who leads, and when it was first known to have a session with each switch."""
        self.keys: dict[int, tuple[float, str | None]] = {}
        """By revision of etcd: when the key of the leader changed, and whose it is then; None if it was deleted."""
        self._switches = len(members.blueprint.switches)
        self._ended = threading.Event()
        history.parent.mkdir(parents=True, exist_ok=True)
        self._history: TextIO = history.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        acts: list[Callable[[int], None]] = [self._ask, self._look]
        self._threads = [
            threading.Thread(target=self._within, args=(number, act), daemon=True)
            for number in members.numbers
            for act in acts
        ]

    def start(self) -> None:
        """Starts to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops to ask."""
        self._ended.set()
        # Those that watch an etcd wait for a change, and end with the lab.
        time.sleep(2 * EVERY_S)
        with self._lock:
            self._history.close()

    def followed(self, election: int) -> tuple[int, str, float] | None:
        """The first later election whose leader has all switches, that leader, and when; None if there is none."""
        later = [(one, *found) for one, found in dict(self.ready).items() if one > election]
        return min(later, default=None)

    def lost_key_s(self, since_s: float) -> float | None:
        """When the key of the leader was first deleted after this time; None if it was not."""
        found = [at_s for at_s, owner in dict(self.keys).values() if owner is None and at_s >= since_s]
        return min(found, default=None)

    def won_key_s(self, election: int) -> float | None:
        """When the key of the leader was created by this election."""
        return self.keys.get(election, (None, None))[0]

    def _within(self, number: int, act: Callable[[int], None]) -> None:
        with (system.NETNS / self.members.namespace(number)).open("rb") as file:
            system.set_namespace(file.fileno())
        while not self._ended.is_set():
            # A controller that was killed, and an etcd without a majority, do not answer.
            with suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                act(number)
            self._ended.wait(EVERY_S)

    def _ask(self, number: int) -> None:
        address, _, port = self.members.api(number).rpartition(":")
        token = (self.members.directory / "tokens").read_text(encoding="ascii").split()[2]
        line = http.client.HTTPConnection(address, int(port), timeout=PATIENCE_S)

        def asked(path: str) -> Any:
            line.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return json.loads(line.getresponse().read())

        try:
            while not self._ended.wait(EVERY_S):
                began_s = time.monotonic()
                said = asked("/v1/cluster")
                if not said["confirmed"]:
                    continue
                self._note(Answer(name(number), said["election"], began_s, time.monotonic()))
                if said["election"] not in self.ready:
                    state = asked("/v1/state")
                    again = asked("/v1/cluster")
                    if state["sessions"] == self._switches and again["election"] == said["election"]:
                        self.ready[said["election"]] = (name(number), time.monotonic())
        finally:
            line.close()

    def _note(self, answer: Answer) -> None:
        with self._lock:
            self.answers.append(answer)
            if not self._history.closed:
                self._history.write(json.dumps(asdict(answer)) + "\n")
                self._history.flush()

    def _look(self, number: int) -> None:
        line = http.client.HTTPConnection(self.members.address(number), _ETCD)
        try:
            wanted = {"key": base64.b64encode(_LEADER).decode()}
            line.request("POST", "/v3/watch", json.dumps({"create_request": wanted}))
            answer = line.getresponse()
            while not self._ended.is_set() and (text := answer.readline()):
                for event in json.loads(text)["result"].get("events", []):
                    key = event["kv"]
                    owner = base64.b64decode(key["value"]).decode() if event.get("type") != "DELETE" else None
                    # Each etcd says so; the first one counts.
                    self.keys.setdefault(int(key["mod_revision"]), (time.monotonic(), owner))
        finally:
            line.close()


def etcd_state(members: Members, among: list[int]) -> dict[str, Any]:
    """The greatest term of these etcds, which grows with each election among them, and which controller has the leader.

    `leader` is None if that is not one of these.
    """
    terms, leaders = [0], []
    for number in among:
        with suppress(OSError, http.client.HTTPException, ValueError, KeyError):
            said = system.inside(members.namespace(number), lambda number=number: _status(members.address(number)))  # type: ignore[misc]
            terms.append(int(said["raftTerm"]))
            if said["leader"] == said["header"]["member_id"]:
                leaders.append((int(said["raftTerm"]), number))
    return {"term": max(terms), "leader": max(leaders)[1] if leaders else None}


def _status(address: str) -> dict[str, Any]:
    line = http.client.HTTPConnection(address, _ETCD, timeout=PATIENCE_S)
    try:
        line.request("POST", "/v3/maintenance/status", "{}")
        said: dict[str, Any] = json.loads(line.getresponse().read())
        return said
    finally:
        line.close()


def etcd_processes(members: Members) -> list[int]:
    """The process numbers of all etcds that run."""
    wanted = {os.fsencode(f"--data-dir={members.directory / f'{name(number)}.etcd'}") for number in members.numbers}
    found = []
    for entry in os.scandir("/proc"):
        with suppress(OSError):
            if entry.name.isdecimal() and wanted & set(Path(entry.path, "cmdline").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found
