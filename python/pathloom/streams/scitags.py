"""Flow announcements of scitags: connections that programs announce on a named pipe get assigned paths.

Storage services write one line for each transfer that begins or ends:

    start tcp SRC SPORT DST DPORT EXPERIMENT ACTIVITY
    end tcp SRC SPORT DST DPORT EXPERIMENT ACTIVITY

(https://www.scitags.org, the named pipe of flowd.) They write the line when the connection exists, so a path is claimed
for an existing connection, by both of its ports.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import select
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pathloom.errors import bad_input, reason
from pathloom.streams.with_paths import Broker, Ports

EXPECTED: Final = "expected start|end tcp|udp SRC SPORT DST DPORT EXPERIMENT ACTIVITY"
MOST_LINE_BYTES: Final = 400
MOST_FLOWS: Final = 65_536
"""Announced flows that are remembered. If an end is never announced, its flow stays until it is the oldest."""
MOST_PAIRS: Final = 256
"""Pairs of hosts that are remembered, each with an assignment and a connection to the controller."""
LINE_END_PAUSE_S: Final = 0.2
"""After this time without more bytes, the received bytes count as a line: some programs write no end of line."""
COMPLAINT_S: Final = 5.0
"""Shortest time between two messages about unreadable lines, since a program may write many of them."""
_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Flow:
    """A connection, as it was announced."""

    src: str
    src_port: int
    dst: str
    dst_port: int

    def turned(self) -> Flow:
        """Returns the same connection from its other end."""
        return Flow(self.dst, self.dst_port, self.src, self.src_port)


@dataclass(frozen=True, slots=True)
class Announcement:
    """The content of one line."""

    starts: bool
    flow: Flow
    is_tcp: bool
    """Whether the protocol is TCP. Paths can be claimed for TCP connections only."""
    is_ipv4: bool


def parse(line: str) -> Announcement:
    """Reads a line. Raises `ValueError`, which says what is wrong.

    >>> parse("start tcp 10.0.0.1 1094 10.0.1.1 40001 2 3").flow
    Flow(src='10.0.0.1', src_port=1094, dst='10.0.1.1', dst_port=40001)
    """
    words = line.split()
    if len(words) != 8:
        raise ValueError(f"has {len(words)} words")
    state, protocol, src, src_port, dst, dst_port, *tags = words
    if state.lower() not in ("start", "end"):
        raise ValueError(f"`{state}` is neither start nor end")
    if protocol.lower() not in ("tcp", "udp"):
        raise ValueError(f"`{protocol}` is neither tcp nor udp")
    addresses = [ipaddress.ip_address(one) for one in (src, dst)]
    if addresses[0].version != addresses[1].version:
        raise ValueError(f"{src} and {dst} are of two families")
    for port in (src_port, dst_port):
        if not (_is_number(port) and 1 <= int(port) <= 65_535):
            raise ValueError(f"`{port}` is not a port")
    for tag in tags:
        if not _is_number(tag):
            raise ValueError(f"`{tag}` is not a number")
    flow = Flow(str(addresses[0]), int(src_port), str(addresses[1]), int(dst_port))
    return Announcement(state.lower() == "start", flow, protocol.lower() == "tcp", addresses[0].version == 4)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def is_own(address: str) -> bool:
    """Returns whether this IPv4 address is one of this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


class Announcements:
    """Claims paths for announced connections, and releases paths that are not needed any more."""

    def __init__(
        self,
        broker: Broker,
        say: Callable[[str], None],
        any_host: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`any_host`: the broker has a token, so it may claim paths for connections between other hosts."""
        self._broker, self._say, self._any_host, self._clock = broker, say, any_host, clock
        self._flows: dict[Flow, None] = {}
        """Remembered flows from the end that claims, the oldest first."""
        self._pairs: dict[tuple[str, str], int] = {}
        """Number of flows of each pair of hosts; the pair that was used last is last."""
        self._quiet_until = -COMPLAINT_S
        self._unreported = 0
        self.bad = 0
        """Number of unreadable lines."""
        self.ignored = 0
        """Number of announced flows that cannot have a path: not TCP, not IPv4, or neither end is this host."""

    def take(self, line: str) -> None:
        """Carries out a line. An unreadable line changes nothing."""
        if not line.strip():
            return
        try:
            announced = parse(line)
        except ValueError as error:
            # The text of others is printed without control characters.
            self.complain(f"{line.strip()[:80]!a}: {ascii(str(error))[1:-1]}")
            return
        flow = self._own_end(announced)
        if flow is None:
            self.ignored += 1
        elif announced.starts:
            self._start(flow)
        else:
            self._end(flow)

    def complain(self, text: str) -> None:
        """Reports an unreadable line, unless another was reported shortly before."""
        self.bad += 1
        now = self._clock()
        if now < self._quiet_until:
            self._unreported += 1
            return
        more = f" ({self._unreported} more since the last message)" if self._unreported else ""
        self._say(f"line {text}; {EXPECTED}{more}")
        self._quiet_until, self._unreported = now + COMPLAINT_S, 0

    def _own_end(self, announced: Announcement) -> Flow | None:
        """Returns the flow from the end for which a path may be claimed here; None if there is none."""
        flow = announced.flow
        if not (announced.is_tcp and announced.is_ipv4) or flow.src == flow.dst:
            return None
        if self._any_host or is_own(flow.src):
            return flow
        return flow.turned() if is_own(flow.dst) else None

    def _start(self, flow: Flow) -> None:
        pair = (flow.src, flow.dst)
        if flow not in self._flows:
            self._flows[flow] = None
            self._pairs[pair] = self._pairs.pop(pair, 0) + 1
        if len(self._flows) > MOST_FLOWS:
            self._end(next(iter(self._flows)))
        if len(self._pairs) > MOST_PAIRS:
            self._forget(next(iter(self._pairs)))
        self._broker.claim(flow.src, flow.dst, Ports(flow.src_port, dst_port=flow.dst_port))

    def _end(self, flow: Flow) -> None:
        """Forgets a flow, and the pair of hosts after its last flow. The controller sees the end of flows itself."""
        if flow not in self._flows:
            return
        del self._flows[flow]
        pair = (flow.src, flow.dst)
        self._pairs[pair] -= 1
        if self._pairs[pair] == 0:
            del self._pairs[pair]
            self._broker.forget(*pair)

    def _forget(self, pair: tuple[str, str]) -> None:
        del self._pairs[pair]
        for flow in [one for one in self._flows if (one.src, one.dst) == pair]:
            del self._flows[flow]
        self._broker.forget(*pair)


class Pipe:
    """A named pipe that many programs write to, one after another or at once."""

    def __init__(self, file: Path) -> None:
        """Makes the pipe if it does not exist. Raises `PathloomError`."""
        self._file = file
        self._made = False
        self._buffer = b""
        self._skips = False
        """Whether the next bytes are the rest of a line that is too long."""
        self._handle = self._open()

    def _open(self) -> int:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._file, 0o622)
                # Services that run as other users write to it.
                self._file.chmod(0o622)
                self._made = True
            if not stat.S_ISFIFO(self._file.stat().st_mode):
                raise bad_input(f"--pipe {self._file}: is not a named pipe; name a pipe, or a file that does not exist")
            # The writing end in this process keeps the pipe open after the last program has closed it.
            handle = os.open(self._file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise bad_input(f"--pipe {self._file}: cannot be opened: {reason(error)}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise bad_input(f"--pipe {self._file}: another process reads it; name another pipe") from None
        return handle

    def lines(self, wait_s: float) -> Iterator[str | None]:
        """Yields lines that arrive within a time; `None` for a line that is too long.

        If the pipe was deleted, it is made again. Raises `PathloomError` if that is not possible.
        """
        if not self._is_there():
            os.close(self._handle)
            self._handle = self._open()
            self._buffer, self._skips = b"", False
        ready, _, _ = select.select([self._handle], [], [], min(wait_s, LINE_END_PAUSE_S) if self._buffer else wait_s)
        if not ready:
            rest, self._buffer = self._buffer, b""
            if rest:
                yield _text(rest)
            return
        try:
            self._buffer += os.read(self._handle, _READ_BYTES)
        except BlockingIOError:
            return
        *whole, self._buffer = self._buffer.split(b"\n")
        for line in whole:
            if self._skips:
                self._skips = False
            else:
                yield _text(line) if len(line) <= MOST_LINE_BYTES else None
        if len(self._buffer) > MOST_LINE_BYTES:
            if not self._skips:
                yield None
            self._buffer, self._skips = b"", True

    def _is_there(self) -> bool:
        try:
            found = self._file.stat()
        except OSError:
            return False
        own = os.fstat(self._handle)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def close(self) -> None:
        """Deletes the pipe if it was made here."""
        if self._made and self._is_there():
            with contextlib.suppress(OSError):
                self._file.unlink()
        os.close(self._handle)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


def serve(pipe: Pipe, announcements: Announcements, until: Callable[[], bool]) -> None:
    """Handles lines until `until` returns true. Raises `PathloomError` if the pipe is lost."""
    while not until():
        for line in pipe.lines(wait_s=1.0):
            if line is None:
                announcements.complain(f"is longer than {MOST_LINE_BYTES} bytes")
            else:
                announcements.take(line)
