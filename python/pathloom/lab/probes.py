"""Probes: numbered UDP packets on long-lasting flows of a lab, and a record of which of them arrived.

Two separate processes (`python -m pathloom.lab.probes send|receive`) serve all hosts. This works because a socket
belongs to the namespace in which it was made. Both processes run before ordinary ones if the machine permits it, so
that a busy machine does not look like a broken network. The receiver uses the kernel's time of arrival.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pathloom.errors import ToolError
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.system import MARK, NETNS, begin, give_priority, set_namespace

LABEL_DSCP = 8
"""DSCP that marks a long flow (LONG_FLOW_DSCP of the core)."""
LEAST_BYTES = 16
DRAIN_S = 1.0
"""How long the receiver waits for probes in flight after the sender has stopped."""
PATIENCE_S = 20.0
LATEST_NS = 20_000_000
"""A sender that is later than this continues from the present time, and does not send missed probes at once."""
_BUFFER_BYTES = 1 << 23
_HEAD = struct.Struct("!QQ")
_SO_TIMESTAMPNS = 35
"""Socket option of Linux (asm-generic/socket.h)."""
_TIME = struct.Struct("qq")

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Track:
    """Probes of one flow that were sent and that arrived. Times are of the real-time clock, in nanoseconds."""

    source: str
    target: str
    sent_ns: Numbers
    """When each probe was sent, by number."""
    seqs: Numbers
    """Numbers of the probes that arrived, in order of arrival."""
    arrived_ns: Numbers

    @property
    def sent(self) -> int:
        """Probes sent."""
        return len(self.sent_ns)

    @property
    def lost(self) -> int:
        """Probes that never arrived."""
        return self.sent - len(np.unique(self.seqs))

    @property
    def duplicated(self) -> int:
        """Arrivals of probes that had arrived before."""
        return len(self.seqs) - len(np.unique(self.seqs))

    @property
    def reordered(self) -> int:
        """Probes that arrived after one sent later."""
        if not len(self.seqs):
            return 0
        return int(np.sum(self.seqs < np.maximum.accumulate(self.seqs)))

    @property
    def longest_gap_ns(self) -> int:
        """Longest time without an arrival, between the first and the last one."""
        return int(np.max(np.diff(np.sort(self.arrived_ns)), initial=0))

    @property
    def longest_pause_ns(self) -> int:
        """Longest time between two sent probes. A busy machine causes it, not the network."""
        return int(np.max(np.diff(self.sent_ns), initial=0))

    def missing(self) -> Numbers:
        """Numbers of the probes that never arrived."""
        return np.setdiff1d(np.arange(self.sent, dtype=np.int64), self.seqs)

    def outage_ns(self, since_ns: int, until_ns: int | None = None) -> int | None:
        """Returns the time from `since_ns` to the first arrival of a probe that was sent after the last lost probe.

        Only losses of probes sent from 50 ms before `since_ns` until `until_ns` count. Returns 0 if none was lost, and
        None if no probe sent after the last lost one arrived.
        """
        first = int(np.searchsorted(self.sent_ns, since_ns - 50_000_000))
        end = self.sent if until_ns is None else int(np.searchsorted(self.sent_ns, until_ns))
        missing = self.missing()
        missing = missing[(missing >= first) & (missing < end)]
        if not len(missing):
            return 0
        after = self.arrived_ns[self.seqs > missing[-1]]
        return max(0, int(after.min()) - since_ns) if len(after) else None


class Probes:
    """Probes between pairs of hosts of a lab, from `start` to `stop`."""

    def __init__(
        self,
        blueprint: Blueprint,
        directory: Path,
        pairs: Sequence[tuple[str, str]],
        rate_hz: float = 1000.0,
        payload_bytes: int = 64,
        dscp: int = LABEL_DSCP,
        first_port: int = 20_000,
    ) -> None:
        """Each pair is a flow between two hosts, or between ports of hosts, as `Blueprint.host_port` names them.

        Every flow sends `rate_hz` probes per second. Raises `PathloomError`.
        """
        ends = [(blueprint.host_port(source), blueprint.host_port(target)) for source, target in pairs]
        self.pairs = list(pairs)
        self._directory = directory
        self._plan: dict[str, Any] = {
            "rate_hz": rate_hz,
            "payload_bytes": max(payload_bytes, LEAST_BYTES),
            "flows": [
                {
                    "source": source.namespace,
                    "target": target.namespace,
                    "from": [out.address, first_port + index],
                    "to": [into.address, first_port + index],
                    "dscp": dscp,
                }
                for index, ((source, out), (target, into)) in enumerate(ends)
            ],
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts to send. Raises `ToolError`."""
        # The receiver starts first. Each process prints a line when it is ready.
        for role in ("receive", "send"):
            command = [sys.executable, "-m", "pathloom.lab.probes", role, str(self._file(role))]
            process = begin(partial(self._run, command))
            self._processes.append(process)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(self._plan).encode() + b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], PATIENCE_S)[0] or not process.stdout.readline():
                self.kill()
                raise ToolError(f"probes: the process to {role} them did not start")
            give_priority(process.pid)

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, MARK: str(self._directory)},
            start_new_session=True,
        )

    def stop(self) -> list[Track]:
        """Stops sending, waits for probes in flight, and returns the record of each flow. Raises `ToolError`."""
        receiver, sender = self._processes
        for process, wait_s in ((sender, 0.0), (receiver, DRAIN_S)):
            time.sleep(wait_s)
            assert process.stdin is not None
            process.stdin.close()
            try:
                code = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                self.kill()
                raise ToolError(f"probes: a process ended with {code}")
        self.kill()
        sent = _read(self._file("send"), 2)
        heard = _read(self._file("receive"), 3)
        tracks = []
        for index, (source, target) in enumerate(self.pairs):
            times = sent[sent[:, 0] == index, 1]
            own = heard[heard[:, 0] == index]
            tracks.append(Track(source, target, times, own[:, 1], own[:, 2]))
        return tracks

    def kill(self) -> None:
        """Kills both processes."""
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._processes = []

    def _file(self, role: str) -> Path:
        return self._directory / f"probes-{self._plan['flows'][0]['from'][1]}.{role}"


def summary(tracks: Sequence[Track]) -> dict[str, Any]:
    """Summarises all flows, for a report."""
    return {
        "flows": len(tracks),
        "sent": sum(track.sent for track in tracks),
        "lost": sum(track.lost for track in tracks),
        "duplicated": sum(track.duplicated for track in tracks),
        "reordered": sum(track.reordered for track in tracks),
        "longest_gap_ms": round(max((track.longest_gap_ns for track in tracks), default=0) / 1e6, 1),
        "longest_pause_ms": round(max((track.longest_pause_ns for track in tracks), default=0) / 1e6, 1),
    }


def _read(file: Path, columns: int) -> Numbers:
    return np.fromfile(file, dtype=np.int64).reshape(-1, columns)


def _socket(namespace: str) -> socket.socket:
    with (NETNS / namespace).open("rb") as file:
        set_namespace(file.fileno())
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _has_ended(door: Any) -> bool:
    return bool(select.select([door], [], [], 0)[0])


def send(plan: dict[str, Any], file: Path) -> None:
    """Sends every flow's probes until the standard input ends."""
    flows = []
    for flow in plan["flows"]:
        sender = _socket(flow["source"])
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, flow["dscp"] << 2)
        sender.bind(tuple(flow["from"]))
        sender.connect(tuple(flow["to"]))
        flows.append(sender)
    payload = bytearray(plan["payload_bytes"])
    gap_ns = round(1e9 / plan["rate_hz"])
    log = array.array("q")
    _say_ready()
    start_ns, number = time.monotonic_ns(), 0
    seqs = [0] * len(flows)
    while number % 16 or not _has_ended(sys.stdin):
        due_ns = start_ns + number * gap_ns
        late_ns = time.monotonic_ns() - due_ns
        if late_ns < 0:
            time.sleep(-late_ns / 1e9)
        elif late_ns > LATEST_NS:
            start_ns += late_ns
        for index, sender in enumerate(flows):
            now_ns = time.time_ns()
            _HEAD.pack_into(payload, 0, seqs[index], now_ns)
            try:
                sender.send(payload)
            except OSError:
                # The host's interface is down: nothing was sent.
                continue
            log.extend((index, now_ns))
            seqs[index] += 1
        number += 1
    _write(file, log)


def receive(plan: dict[str, Any], file: Path) -> None:
    """Records every probe that arrives until the standard input ends."""
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    flows = {}
    for index, flow in enumerate(plan["flows"]):
        receiver = _socket(flow["target"])
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        receiver.bind(tuple(flow["to"]))
        receiver.connect(tuple(flow["from"]))
        receiver.setblocking(False)
        poll.register(receiver, select.EPOLLIN)
        flows[receiver.fileno()] = (index, receiver)
    log = array.array("q")
    _say_ready()
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == sys.stdin.fileno():
                return _write(file, log)
            index, receiver = flows[descriptor]
            while True:
                try:
                    data, aside, _, _ = receiver.recvmsg(2048, 64)
                except (BlockingIOError, ConnectionError):
                    break
                if len(data) >= LEAST_BYTES and aside:
                    seconds, rest_ns = _TIME.unpack(aside[0][2])
                    log.extend((index, _HEAD.unpack_from(data)[0], seconds * 1_000_000_000 + rest_ns))


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def _write(file: Path, log: array.array[int]) -> None:
    with file.open("wb") as out:
        log.tofile(out)


def main() -> None:
    """Runs one of the two processes. Its arguments are the role, and the file for the record of probes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role, file = sys.argv[1], Path(sys.argv[2])
    plan = json.loads(sys.stdin.readline())
    (send if role == "send" else receive)(plan, file)


if __name__ == "__main__":
    main()
