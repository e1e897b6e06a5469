"""`pathloom with-paths`: the TCP connections of any program get assigned paths, one after another.

The program runs with a library (crates/preload) that binds each TCP socket to a source port, claims a path for it from
this module, and only then lets it connect. This module asks the controller for paths between two hosts at their first
connection, claims a path for each connection, and releases the paths when the program has ended.

The kernel reports the connections that the library does not see, when their first packet leaves (`streams.opened`).
They move to their paths at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pathloom.errors import ToolError, bad_input, reason
from pathloom.streams.opened import Expected, KernelReports
from pathloom.streams.paths import ControllerAddress, Paths, Refused, Unreachable
from pathloom.streams.policies import next_path
from pathloom.waiting import SYSTEM, Clock

LIBRARY = "libpathloom_preload.so"
SOCKET_VARIABLE = "PATHLOOM_WITH_PATHS"
"""Environment variable with the name of the socket on which the library claims paths."""
LIFETIME_S = 60
"""How long the controller keeps unused paths if this process is killed."""
PAUSE_S = 5.0
"""Pause before a controller that did not answer, or had no path, is asked again. Meanwhile connections do not wait."""
NOT_SERVED = {
    "ipv6": "connections over IPv6 have no path of their own, because paths are assigned to IPv4 addresses",
    "mptcp": "MPTCP connections have no path of their own; the schemes mptcp and mptcp-aware place their subflows",
    "port": "no source port could be bound for a connection, so it has no path of its own",
}
"""Causes for which a connection cannot have a path."""
_CLAIMS_AT_A_TIME = 8
"""Paths that are claimed at the same time for connections that the kernel reports."""
_LINE_BYTES = 200
_PT_INTERP = 3


@dataclass(frozen=True, slots=True)
class PathRequest:
    """The paths that are wanted."""

    count: int
    search: str | None = None
    ratio: Callable[[Sequence[Mapping[str, Any]]], Sequence[float]] | None = None
    """Returns the ratio in which connections take the paths, from the controller's rows of paths. If None, each
    connection takes the path with the fewest connections."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of a connection."""

    src_port: int
    dst_port: int | None = None
    """Destination port of an existing connection."""
    opens_to: int | None = None
    """Destination port of a future connection."""


@dataclass
class Pair:
    """Two hosts with connections between them."""

    line: Paths
    lock: threading.Lock = field(default_factory=threading.Lock)
    assignment: int | None = None
    shares: Sequence[float] = ()
    not_before_s: float = 0.0
    """Time of the clock, in seconds, before which the controller is not asked."""


class PathSource(Protocol):
    """Where connections get their paths from: a controller (`Broker`), or a map of source ports (`PortBroker`)."""

    environment: Mapping[str, str]
    """More variables for the library."""
    unreported: str | None
    """Why the kernel does not report the connections that the library does not see; None if it does."""

    @property
    def claimed(self) -> int:
        """Connections that got a path."""

    @property
    def without_path(self) -> int:
        """Connections that got none."""

    def choose(self, src: str, dst: str, dst_port: int) -> list[int]:
        """Returns source ports to try for a connection, the best one first; none to leave it to the kernel."""

    def claim(self, src: str, dst: str, ports: Ports) -> bool:
        """Claims a path for a connection. Returns whether it has one."""

    def not_served(self, cause: str, dst: str) -> None:
        """Counts a connection that cannot have a path, for a cause of `NOT_SERVED`."""

    def lost(self, count: int) -> None:
        """Counts connections that the kernel could not report."""

    def release(self) -> None:
        """Releases all paths."""


class Broker:
    """Claims paths for connections from a controller."""

    environment: Mapping[str, str] = {}

    def __init__(
        self, place: ControllerAddress, request: PathRequest, say: Callable[[str], None], clock: Clock = SYSTEM
    ) -> None:
        self._place, self._request, self._say, self._clock = place, request, say, clock
        self._lock = threading.Lock()
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._said: set[str] = set()
        self.claimed = 0
        self.without_path = 0
        self.unreported: str | None = None
        """As in `PathSource`."""

    def choose(self, _src: str, _dst: str, _dst_port: int) -> list[int]:
        """Returns no ports: the controller's rules fit any."""
        return []

    def claim(self, src: str, dst: str, ports: Ports) -> bool:
        """Claims a path for a connection. Returns whether it has one."""
        with self._lock:
            if (src, dst) not in self._pairs:
                own = None if self._place.token is not None else src
                self._pairs[src, dst] = Pair(Paths(self._place, own))
            pair = self._pairs[src, dst]
        with pair.lock:
            done = self._clock.now_s() >= pair.not_before_s and self._try(pair, src, dst, ports)
        with self._lock:
            self.claimed += done
            self.without_path += not done
        return done

    def not_served(self, cause: str, dst: str) -> None:
        """Counts a connection that cannot have a path, and names the first one of each cause."""
        with self._lock:
            self.without_path += 1
        self._warn(cause, f"{NOT_SERVED[cause]} (first: to {dst})")

    def lost(self, count: int) -> None:
        """Counts connections that the kernel could not report, because many were opened at the same time."""
        with self._lock:
            self.without_path += count
        self._warn("lost", f"{count} connections were opened faster than they can get paths")

    def _try(self, pair: Pair, src: str, dst: str, ports: Ports) -> bool:
        try:
            self._claim(pair, src, dst, ports)
        except Unreachable as error:
            pair.not_before_s = self._clock.now_s() + PAUSE_S
            self._warn("away", f"the controller at {self._place} does not answer ({error})")
            return False
        except Refused as error:
            if pair.assignment is None:
                pair.not_before_s = self._clock.now_s() + PAUSE_S
            self._warn(f"{src} {dst}", f"no path from {src} to {dst}: {error}")
            return False
        self._said.discard("away")
        return True

    def _claim(self, pair: Pair, src: str, dst: str, ports: Ports) -> None:
        """Claims a path, after it requests an assignment if there is none. Raises `Unreachable`, `Refused`."""
        for last in (pair.assignment is None, True):
            if pair.assignment is None:
                found = pair.line.assign(src, dst, self._request.count, LIFETIME_S, self._request.search)
                pair.assignment = int(found["id"])
                # The ratio uses the rates that are free now. Later, the connections themselves use them.
                pair.shares = self._request.ratio(found["paths"]) if self._request.ratio is not None else ()
            try:
                path = self._choose(pair) if pair.shares else None
                others = {"dst_port": ports.dst_port, "opens_to": ports.opens_to}
                pair.line.claim(pair.assignment, src, dst, ports.src_port, path=path, **others)
                return
            except Refused as error:
                # The assignment has expired, or the controller was restarted without its state.
                if error.status != 404 or last:
                    raise
                pair.assignment = None

    def _choose(self, pair: Pair) -> int | None:
        assert pair.assignment is not None
        rows = pair.line.assignment(pair.assignment)["paths"]
        return next_path(pair.shares, [row["users"] for row in rows])

    def _warn(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            self._say(f"{text}; connections take the default routes")

    def release(self) -> None:
        """Releases all paths. If the controller does not answer, they expire."""
        with self._lock:
            pairs = list(self._pairs.values())
        for pair in pairs:
            _release(pair)

    def forget(self, src: str, dst: str) -> None:
        """Releases the paths between two hosts."""
        with self._lock:
            pair = self._pairs.pop((src, dst), None)
            self._said.discard(f"{src} {dst}")
        if pair is not None:
            _release(pair)


def _release(pair: Pair) -> None:
    with pair.lock:
        with contextlib.suppress(Unreachable, Refused):
            if pair.assignment is not None:
                pair.line.release(pair.assignment)
        pair.assignment = None
        pair.line.close()


class _Claim(socketserver.StreamRequestHandler):
    """Reads one claim of the library, which is a line, and answers it."""

    timeout = 5
    server: _ClaimServer

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            words = self.rfile.readline(_LINE_BYTES).decode("ascii").split()
            if len(words) != 3:
                return
            kind, first, dst = words
            if kind == "claim":
                # The kernel reports connections over IPv6 only as such.
                again = ("none", "ipv6", dst) if dst.startswith("[") else ("open", first, dst)
                self.server.expected.add(*again)
                done = _claim(self.server.broker, first, dst)
                self.wfile.write(b"yes\n" if done else b"no\n")
            elif kind == "choose":
                (src, _), (to, port) = _end(first), _end(dst)
                offered = self.server.broker.choose(src, to, port)
                self.wfile.write(f"ports {' '.join(map(str, offered))}\n".encode("ascii"))
            elif kind == "none" and first in NOT_SERVED:
                # The kernel reports a connection without a source port when it has one, and then it gets its path.
                if first != "port" or self.server.broker.unreported is not None:
                    self.server.expected.add(*words)
                    self.server.broker.not_served(first, dst)
                self.wfile.write(b"no\n")


def _end(word: str) -> tuple[str, int]:
    """Reads ADDRESS:PORT; IPv6 addresses have brackets. Raises `ValueError`."""
    address, _, port = word.rpartition(":")
    return address.removeprefix("[").removesuffix("]"), int(port)


def _claim(broker: PathSource, src: str, dst: str, is_open: bool = False) -> bool:
    """Claims a path for a connection, given by two words ADDRESS:PORT. Returns whether it has one."""
    (src_ip, src_port), (dst_ip, dst_port) = _end(src), _end(dst)
    to = dst_port or None
    ports = Ports(src_port, dst_port=to) if is_open else Ports(src_port, opens_to=to)
    return broker.claim(src_ip, dst_ip, ports)


class _ClaimServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, place: str, broker: PathSource) -> None:
        self.broker, self.expected = broker, Expected()
        super().__init__(place, _Claim)


def _serve_reports(reports: KernelReports, broker: PathSource, expected: Expected) -> None:
    """Claims paths for connections that the kernel reports, but the library has not, until the reports end."""
    with ThreadPoolExecutor(_CLAIMS_AT_A_TIME) as pool:
        for words in reports.lines():
            match words:
                case ["open", src, dst] if not expected.take(*words):
                    pool.submit(_claim, broker, src, dst, is_open=True)
                case ["none", cause, dst] if not expected.take(*words):
                    broker.not_served(cause, dst)
                case ["lost", count]:
                    broker.lost(int(count))


def run(command: Sequence[str], library: str, broker: PathSource, say: Callable[[str], None]) -> int:
    """Runs a command whose connections get paths. Returns its exit code, or 128 + the signal that ended it.

    Raises `ToolError` if it cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="pathloom-with-paths-") as directory:
        # Servers may open connections as other users than the one that started them.
        Path(directory).chmod(0o711)
        place = Path(directory) / "door"
        with _ClaimServer(str(place), broker) as server:
            place.chmod(0o666)
            try:
                variables = {SOCKET_VARIABLE: str(place), "LD_PRELOAD": _preloads(library), **broker.environment}
                process, reports = _start(command, variables)
                broker.unreported = reports if isinstance(reports, str) else None
                why = no_effect(command[0])
                if why is not None and broker.unreported is not None:
                    say(
                        f"`{command[0]}` {why}: its connections take the default routes, because the kernel does not "
                        f"report them ({broker.unreported})"
                    )
                return _serve(process, reports, server)
            finally:
                broker.release()


def _serve(process: subprocess.Popen[bytes], reports: KernelReports | str, server: _ClaimServer) -> int:
    """Serves the connections of a command until it has ended. Returns its exit code, as `_wait` does."""
    threading.Thread(target=server.serve_forever, args=[0.1], daemon=True).start()
    try:
        if isinstance(reports, str):
            return _wait(process)
        work = [reports, server.broker, server.expected]
        reading = threading.Thread(target=_serve_reports, args=work, daemon=True)
        reading.start()
        code = _wait(process)
        reports.end()
        reading.join()
        return code
    finally:
        server.shutdown()


def _preloads(library: str) -> str:
    return " ".join([library, *os.environ.get("LD_PRELOAD", "").replace(":", " ").split()])


def _start(command: Sequence[str], more: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], KernelReports | str]:
    """Starts a command. The kernel reports its connections, or it is said why not."""
    reports = KernelReports.start()
    try:
        process = subprocess.Popen(list(command), env={**os.environ, **more})
    except OSError as error:
        if not isinstance(reports, str):
            reports.cancel()
        raise ToolError(f"`{command[0]}` could not be started: {reason(error)}") from None
    if not isinstance(reports, str):
        reports.leave()
    return process, reports


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Waits until a command has ended. Returns its exit code, or 128 + the signal that ended it."""
    # Ctrl-C reaches the command too, as it is in the same process group. Other signals are passed on.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        before[number] = signal.signal(number, lambda number, _: process.send_signal(number))
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def no_effect(command: str, depth: int = 3) -> str | None:
    """Returns why a preloaded library has no effect on a command; None if it has, as far as the file shows."""
    import shutil

    found = shutil.which(command)
    if found is None or depth == 0:
        return None
    try:
        if Path(found).stat().st_mode & 0o6000 and os.geteuid() != 0:
            return "runs as another user than the one who starts it"
        with Path(found).open("rb") as file:
            head = file.read(4096)
    except OSError:
        return None
    if head.startswith(b"#!"):
        words = head.split(b"\n", 1)[0][2:].decode(errors="replace").split()
        words = words[1:] if words[:1] == ["/usr/bin/env"] else words
        return no_effect(words[0], depth - 1) if words else None
    return "is linked statically" if _is_static(head) else None


def _is_static(head: bytes) -> bool:
    """Returns whether the head of a file is that of a 64-bit ELF program without an interpreter."""
    if head[:5] != b"\x7fELF\x02":
        return False
    offset = int.from_bytes(head[32:40], "little")
    size, count = int.from_bytes(head[54:56], "little"), int.from_bytes(head[56:58], "little")
    kinds = [head[offset + size * index :][:4] for index in range(count)]
    return all(len(kind) == 4 for kind in kinds) and _PT_INTERP.to_bytes(4, "little") not in kinds


def find_library() -> str:
    """Returns the path of the library: in this package, in this Python's `lib`, or in the system.

    Raises `PathloomError`.
    """
    package = Path(__file__).parents[1]
    places = [folder / LIBRARY for folder in (package, Path(sys.prefix) / "lib", Path("/usr/lib/pathloom"))]
    found = next((str(place) for place in places if place.is_file()), None)
    if found is None:
        raise bad_input(
            f"{LIBRARY} is in none of {', '.join(map(str, places))}; wheels have it, and `make build` builds it"
        )
    return found
