"""Measures how long a lease lasts if the leader of etcd is lost: `python benches/live/etcd_elections.py --faults 30`.

Three etcds run on the loopback for each of the election time-outs in `--timeouts`, in ms. The heartbeat is a tenth of
it. A lease of 2 s holds a key and is renewed three times in that time. Once a second 512 KiB are written, as a
controller stores its state. For each fault the leader of etcd stands still (SIGSTOP), and nobody renews the lease any
more. The line of JSON has the seconds from then until another etcd has deleted the key: least, median and most.
`unasked` counts elections without a fault.

With --quiet 600, nothing fails for so long. The etcds have priority before other programs, as in labs.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pathloom.lab import system
from pathloom.lab.members import etcd_command
from pathloom.waiting import await_event

TTL_S = 2
PATIENCE_S = 60.0
PART_BYTES = 512 << 10
_LEADER, _PART = (base64.b64encode(key).decode() for key in (b"leader", b"part"))


class Etcds:
    """Three etcds with one election time-out."""

    def __init__(self, directory: Path, timeout_ms: int, first_port: int, stack: ExitStack) -> None:
        self.timeout_ms = timeout_ms
        self.clients = [f"127.0.0.1:{first_port + one}" for one in range(3)]
        self.peers = [f"127.0.0.1:{first_port + 3 + one}" for one in range(3)]
        self.processes = [self._start(directory, one) for one in range(3)]
        for process in self.processes:
            stack.callback(process.wait)
            stack.callback(process.kill)

    def _start(self, directory: Path, one: int) -> subprocess.Popen[bytes]:
        own, client = f"etcd{one}", f"http://{self.clients[one]}"
        peers = {f"etcd{other}": f"http://{address}" for other, address in enumerate(self.peers)}
        command = etcd_command(own, directory / f"{self.timeout_ms}.{one}", client, peers, self.timeout_ms)
        with (directory / f"{self.timeout_ms}.{one}.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        system.give_priority(process.pid)
        return process

    def ask(self, one: int, path: str, content: object, patience_s: float = 1.0) -> dict[str, Any]:
        """The answer of an etcd. Raises `OSError` if it does not answer."""
        address, _, port = self.clients[one].partition(":")
        line = http.client.HTTPConnection(address, int(port), timeout=patience_s)
        try:
            line.request("POST", f"/v3/{path}", json.dumps(content))
            said = json.loads(line.getresponse().read())
        except (http.client.HTTPException, ValueError) as problem:
            raise OSError(f"{self.clients[one]} does not answer: {problem}") from problem
        finally:
            line.close()
        if "error" in said:
            raise OSError(said["error"])
        return dict(said)

    def state(self, among: list[int]) -> tuple[int, int | None]:
        """The greatest term of these etcds, and which of them leads."""
        terms, leader = [0], None
        for one in among:
            with suppress(OSError):
                said = self.ask(one, "maintenance/status", {})
                terms.append(int(said["raftTerm"]))
                if said["leader"] == said["header"]["member_id"] and terms[-1] == max(terms):
                    leader = one
        return max(terms), leader

    def await_leader(self) -> tuple[int, int]:
        """Waits until an etcd leads and all three answer. Returns its term and its number. Raises `OSError`."""
        found: list[tuple[int, int]] = []

        def leads() -> bool:
            term, leader = self.state([0, 1, 2])
            with suppress(OSError):
                for one in range(3):
                    self.ask(one, "kv/range", {"key": _LEADER})
                if leader is not None:
                    found.append((term, leader))
            return bool(found)

        if not await_event(leads, PATIENCE_S, 0.1):
            raise OSError(f"no etcd of {self.clients} leads within {PATIENCE_S:g} s")
        return found[-1]


@contextmanager
def leased(etcds: Etcds, number: int) -> Iterator[threading.Event]:
    """A key with a lease that is renewed at this etcd, beside large writes, until the event or the end of the block."""
    lease = etcds.ask(number, "lease/grant", {"TTL": TTL_S})["ID"]
    etcds.ask(number, "kv/put", {"key": _LEADER, "value": _LEADER, "lease": lease})
    over = threading.Event()
    part = base64.b64encode(os.urandom(PART_BYTES)).decode()

    def repeat(every_s: float, path: str, content: dict[str, Any]) -> None:
        while not over.wait(every_s):
            with suppress(OSError):
                etcds.ask(number, path, content)

    acts = [(TTL_S / 3, "lease/keepalive", {"ID": lease}), (1.0, "kv/put", {"key": _PART, "value": part})]
    threads = [threading.Thread(target=repeat, args=act, daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield over
    finally:
        over.set()
        for thread in threads:
            thread.join()


def fault(etcds: Etcds, lasts_s: float) -> tuple[float | None, int]:
    """Lets a lease be renewed for so long, and then stops the leader of etcd.

    Returns how long the key was there afterwards, and how many elections nobody had asked for. The first is None if the
    lease ended before the fault. Raises `OSError`.
    """
    term, leader = etcds.await_leader()
    others = [one for one in range(3) if one != leader]

    def is_gone() -> bool:
        with suppress(OSError):
            return "kvs" not in etcds.ask(others[0], "kv/range", {"key": _LEADER}, 0.2)
        return False

    with leased(etcds, others[0]) as over:
        time.sleep(lasts_s)
        ended_early = is_gone()
        before, now = etcds.state([0, 1, 2])
        over.set()
        began_s = time.monotonic()
        stopped = etcds.processes[leader if now is None else now]
        stopped.send_signal(signal.SIGSTOP)
        others = [one for one in range(3) if etcds.processes[one] is not stopped]
        try:
            if not await_event(is_gone, PATIENCE_S, 0.01):
                raise OSError(f"{etcds.clients} still have the key after {PATIENCE_S:g} s")
            took_s = time.monotonic() - began_s
        finally:
            stopped.send_signal(signal.SIGCONT)
    return (None if ended_early else took_s), before - term


def quiet(etcds: Etcds, lasts_s: float) -> tuple[bool, int]:
    """Lets a lease be renewed for so long. Returns whether it was kept, and how many elections there were."""
    term, leader = etcds.await_leader()
    with leased(etcds, leader):
        time.sleep(lasts_s)
        kept = "kvs" in etcds.ask(leader, "kv/range", {"key": _LEADER}, PATIENCE_S)
        return kept, etcds.state([0, 1, 2])[0] - term


def measure(etcds: Etcds, asked: argparse.Namespace) -> None:
    """Prints a line of JSON for an election time-out."""
    found = [fault(etcds, asked.lasts) for _ in range(asked.faults)]
    took_s = sorted(one for one, _ in found if one is not None)
    ended_s = [took_s[0], statistics.median(took_s), took_s[-1]] if took_s else []
    line: dict[str, Any] = {
        "election_timeout_ms": etcds.timeout_ms,
        "faults": len(found),
        "leases_that_ended_early": sum(one is None for one, _ in found),
        "lease_ended_s": [round(one, 2) for one in ended_s],
        "within_3_s": sum(one <= 3 for one in took_s),
        "unasked": sum(unasked for _, unasked in found),
    }
    if asked.quiet:
        kept, elections = quiet(etcds, asked.quiet)
        line |= {"quiet_s": asked.quiet, "quiet_lease_kept": kept, "quiet_elections": elections}
    print(json.dumps({**line, "load": round(os.getloadavg()[0], 1)}), flush=True)


def main() -> int:
    """Measures all time-outs at the same time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeouts", type=lambda text: [int(one) for one in text.split(",")], default=[1000, 500, 200])
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--lasts", type=float, default=5.0, metavar="SECONDS", help="time before each fault")
    parser.add_argument("--quiet", type=float, default=0.0, metavar="SECONDS")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        every = [Etcds(Path(place), ms, 23_790 + 10 * one, stack) for one, ms in enumerate(asked.timeouts)]
        threads = [threading.Thread(target=measure, args=(etcds, asked)) for etcds in every]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
