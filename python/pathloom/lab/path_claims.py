"""Requests of hosts in the lab for paths, answered by the service for programs on hosts (docs/streams.md).

`PathClaims` sends them over HTTP from threads, from the namespace and the address of the sending host. The loop of the
agent watches a pipe, and reads which streams may open.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from pathloom.lab.system import NETNS, set_namespace
from pathloom.streams.paths import ControllerAddress, Paths, Refused, Unreachable

LIFETIME_S = 60
"""How long the controller keeps paths that nobody uses, if the agent is killed."""
THREADS = 8
"""Number of transfers that can request paths at the same time."""
Spread = Callable[[Sequence[Mapping[str, Any]]], Sequence[int]]
"""Gives the path of each stream from the rows of an assignment."""


@dataclass(eq=False)
class _Request:
    """The paths of one transfer."""

    number: int
    src: str
    dst: str
    ports: Sequence[int]
    dst_port: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    assignment: int | None = None
    closed: bool = False


class PathClaims:
    """Requests to the controller that are under way, and their answers."""

    def __init__(
        self, count: int, search: str, spread: Spread, place: ControllerAddress, namespaces: Mapping[str, str]
    ) -> None:
        """Each transfer requests `count` paths by `search`; `spread` gives the path of each stream.

        `place` is the address of the service, and `namespaces` has the namespace of each host address.
        """
        self._count, self._search, self._spread = count, search, spread
        self._place, self._namespaces = place, namespaces
        self._work: SimpleQueue[Callable[[_Caller], None]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, int | None]] = SimpleQueue()
        self._requests: dict[int, _Request] = {}
        self._wake_end, self._answer_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.problem: str | None = None
        """Why streams have no path, by the first answer of this kind."""
        for number in range(THREADS):
            threading.Thread(target=self._serve, name=f"paths-{number}", daemon=True).start()

    def fileno(self) -> int:
        """For `select`: readable when there are answers."""
        return self._wake_end

    def request(self, number: int, src: str, dst: str, ports: Sequence[int], dst_port: int) -> None:
        """Requests paths for transfer `number`, and claims one for the stream from each of `ports` to `dst_port`."""
        request = self._requests[number] = _Request(number, src, dst, tuple(ports), dst_port)
        self._work.put(lambda caller: self._claim_all(caller, request))

    def release(self, number: int) -> None:
        """Releases the paths of a transfer that has ended."""
        request = self._requests.pop(number, None)
        if request is None:
            return
        with request.lock:
            request.closed = True
            if request.assignment is None:
                return  # The thread that is served last releases them.
        self._work.put(lambda caller: caller.release(request))

    def answers(self) -> list[tuple[int, int | None]]:
        """Transfers and the streams of them that may open; None instead of a stream if the rest gets no path."""
        with suppress(BlockingIOError):
            while os.read(self._wake_end, 4096):
                pass
        found = []
        while True:
            try:
                found.append(self._answers.get_nowait())
            except Empty:
                return found

    def _serve(self) -> None:
        caller = _Caller(self._place, self._namespaces)
        while True:
            self._work.get()(caller)

    def _answer(self, number: int, stream: int | None) -> None:
        self._answers.put((number, stream))
        with suppress(BlockingIOError):  # A full pipe wakes the loop as well.
            os.write(self._answer_end, b"\0")

    def _claim_all(self, caller: _Caller, request: _Request) -> None:
        try:
            line = caller.line(request.src)
            found = line.assign(request.src, request.dst, self._count, LIFETIME_S, self._search)
            assignment = int(found["id"])
            with request.lock:
                request.assignment = assignment
                closed = request.closed
            if closed:
                return caller.release(request)
            streams = zip(request.ports, self._spread(found["paths"]), strict=False)
            for stream, (src_port, path) in enumerate(streams):
                line.claim(assignment, request.src, request.dst, src_port, path=path, opens_to=request.dst_port)
                self._answer(request.number, stream)
        except (Unreachable, Refused, OSError) as error:
            with request.lock:
                closed = request.closed
            # The paths of a transfer that has ended meanwhile were released, and need no claims.
            if not closed:
                self.problem = self.problem or f"no path from {request.src} to {request.dst}: {error}"
            self._answer(request.number, None)
        return None


class _Caller:
    """The connections of one thread to the controller, one for each host address."""

    def __init__(self, place: ControllerAddress, namespaces: Mapping[str, str]) -> None:
        self._place, self._namespaces = place, namespaces
        self._lines: dict[str, Paths] = {}

    def line(self, address: str) -> Paths:
        """The connection from a host address. The thread enters the namespace of the host, for new connections."""
        with (NETNS / self._namespaces[address]).open("rb") as file:
            set_namespace(file.fileno())
        if address not in self._lines:
            self._lines[address] = Paths(self._place, address)
        return self._lines[address]

    def release(self, request: _Request) -> None:
        """Releases an assignment. If the controller does not answer, the assignment expires."""
        assert request.assignment is not None
        with suppress(Unreachable, Refused, OSError):
            self.line(request.src).release(request.assignment)
