"""Flow announcements of scitags: connections that programs announce on a named pipe get assigned paths.

Storage services write one line for each transfer that begins or ends:

    start tcp SRC SPORT DST DPORT EXPERIMENT ACTIVITY
    end tcp SRC SPORT DST DPORT EXPERIMENT ACTIVITY

(https://www.scitags.org, the named pipe of flowd.) They write it when the connection stands, so a path is claimed for a
connection that stands, by both of its ports.
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

from pathloom.errors import bad_input
from pathloom.streams.with_paths import Broker, Ports

EXPECTED: Final = "expected start|end tcp|udp SRC SPORT DST DPORT EXPERIMENT ACTIVITY"
MOST_LINE_BYTES: Final = 400
MOST_FLOWS: Final = 65_536
"""Announced flows that are remembered. An end that never comes costs one of them; the oldest gives way."""
MOST_PAIRS: Final = 256
"""Pairs of hosts that are remembered, each with an assignment and a connection to the controller."""
REST_S: Final = 0.2
"""After this time without more bytes, what has come is taken as a line: some programs write no end of line."""
COMPLAINT_S: Final = 5.0
"""Least time between two complaints about lines, for a program may write many that make no sense."""
_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Flow:
    """A connection, in the words of the one who announces it."""

    src: str
    src_port: int
    dst: str
    dst_port: int

    def turned(self) -> Flow:
        """The same connection from its other end."""
        return Flow(self.dst, self.dst_port, self.src, self.src_port)


@dataclass(frozen=True, slots=True)
class Announcement:
    """One line."""

    starts: bool
    flow: Flow
    is_tcp: bool
    """Other protocols have no connections that could be claimed."""
    is_ipv4: bool


def parse(line: str) -> Announcement:
    """Reads a line. Raises `ValueError` that says what is wrong.

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
            raise ValueError(f"`{port}` is no port")
    for tag in tags:
        if not _is_number(tag):
            raise ValueError(f"`{tag}` is no number")
    flow = Flow(str(addresses[0]), int(src_port), str(addresses[1]), int(dst_port))
    return Announcement(state.lower() == "start", flow, protocol.lower() == "tcp", addresses[0].version == 4)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def is_own(address: str) -> bool:
    """Whether this host has an IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


class Announcements:
    """Claims paths for connections that are announced, and returns what is not needed any more."""

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
        """By the end that claims, oldest first."""
        self._pairs: dict[tuple[str, str], int] = {}
        """Flows of each pair of hosts; the pair that was used last is last."""
        self._quiet_until = -COMPLAINT_S
        self._untold = 0
        self.bad = 0
        """Lines that make no sense."""
        self.aside = 0
        """Announcements of flows that cannot have a path: no TCP, no IPv4, or neither end is this host."""

    def take(self, line: str) -> None:
        """Does what a line says. A line that makes no sense changes nothing."""
        if not line.strip():
            return
        try:
            announced = parse(line)
        except ValueError as error:
            # What others write is shown without what a terminal would obey.
            self.complain(f"{line.strip()[:80]!a}: {ascii(str(error))[1:-1]}")
            return
        flow = self._own_end(announced)
        if flow is None:
            self.aside += 1
        elif announced.starts:
            self._start(flow)
        else:
            self._end(flow)

    def complain(self, text: str) -> None:
        """Says that a line makes no sense, unless that was said just before."""
        self.bad += 1
        now = self._clock()
        if now < self._quiet_until:
            self._untold += 1
            return
        more = f" ({self._untold} more since the last message)" if self._untold else ""
        self._say(f"line {text}; {EXPECTED}{more}")
        self._quiet_until, self._untold = now + COMPLAINT_S, 0

    def _own_end(self, announced: Announcement) -> Flow | None:
        """The flow from the end for which this host may speak."""
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
        """The controller sees the end of the connection itself; here, its pair of hosts may be done with."""
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
        """Makes the pipe if it is not there. Raises `PathloomError`."""
        self._file = file
        self._made = False
        self._buffer = b""
        self._skips = False
        """Whether the rest of a line that is too long is on its way."""
        self._handle = self._open()

    def _open(self) -> int:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._file, 0o622)
                # Services write to it that run as other users.
                self._file.chmod(0o622)
                self._made = True
            if not stat.S_ISFIFO(self._file.stat().st_mode):
                raise bad_input(f"--pipe {self._file}: is no named pipe; name a file that is not there yet, or a pipe")
            # Its own writing end keeps the pipe open when the last program has closed it.
            handle = os.open(self._file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise bad_input(f"--pipe {self._file}: cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise bad_input(f"--pipe {self._file}: another process reads it; name another pipe") from None
        return handle

    def lines(self, wait_s: float) -> Iterator[str | None]:
        """Lines that come within a time; `None` for one that is too long.

        If the pipe was deleted, it is made again; then it raises `PathloomError` if that is not possible.
        """
        if not self._is_there():
            os.close(self._handle)
            self._handle = self._open()
            self._buffer, self._skips = b"", False
        ready, _, _ = select.select([self._handle], [], [], min(wait_s, REST_S) if self._buffer else wait_s)
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
    """Takes lines until it is to end. Raises `PathloomError` if the pipe is lost."""
    while not until():
        for line in pipe.lines(wait_s=1.0):
            if line is None:
                announcements.complain(f"is longer than {MOST_LINE_BYTES} bytes")
            else:
                announcements.take(line)
