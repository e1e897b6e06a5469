"""Measures hand-overs between three controllers: `sudo python benches/live/takeover.py --kills 10 --pauses 5 --cuts 5`.

Six flows of a lab send 1,000 probes a second each. The leader is killed, stands still for longer than its lease, is cut
off from etcd and the others, or all controllers are told to stop and start again, one after the other. For each kind
there is a line of JSON: the seconds from the fault until another controller leads and has sessions with all switches,
and the probes that were lost. All answers of controllers that they lead go to `--history`. `leaders.py` checks them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from leaders import Answer, violations

from pathloom.fabrics import Fabric
from pathloom.lab.lab import Lab
from pathloom.lab.members import TTL_S, Members, name, put_up
from pathloom.lab.probes import Probes
from pathloom.waiting import await_event

FABRIC = "fat-tree:k=4,rate=20Mbps,buffer=1000"
SCHEME = "ofpt"
LAB = "takeover"
FLOWS = 6
PATIENCE_S = 60.0


class Watch(threading.Thread):
    """Asks all controllers all the time whether they lead."""

    def __init__(self, members: Members) -> None:
        super().__init__(daemon=True)
        self.members = members
        self.answers: list[Answer] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Asks until it is stopped."""
        while not self.ended.wait(0.05):
            for number in self.members.numbers:
                began_s = time.monotonic()
                said = self.members.cluster(number)
                if said.get("confirmed"):
                    self.answers.append(Answer(name(number), said["election"], began_s, time.monotonic()))


def follows(members: Members, number: int) -> None:
    """Waits until a controller knows that another one leads."""
    if not await_event(lambda: members.cluster(number).get("leader") not in (None, name(number)), PATIENCE_S, 0.1):
        sys.exit(f"{name(number)} does not follow within {PATIENCE_S:g} s")


def others(members: Members, number: int) -> list[int]:
    """The other controllers."""
    return [one for one in members.numbers if one != number]


def fault(members: Members, kind: str) -> float:
    """Brings a fault about, and repairs it. Returns the seconds until the next leader has all switches."""
    leader = members.await_leader()
    process = members.running(leader) or 0
    began_s = time.monotonic()
    if kind == "killed":
        members.kill(leader)
    elif kind == "paused":
        os.kill(process, signal.SIGSTOP)
    elif kind == "cut off":
        members.set_connected(leader, False)
    else:
        os.kill(process, signal.SIGTERM)
    members.await_leader(others(members, leader))
    took_s = time.monotonic() - began_s
    if kind == "paused":
        time.sleep(TTL_S)
        os.kill(process, signal.SIGCONT)
    elif kind == "cut off":
        members.set_connected(leader, True)
    else:
        await_event(lambda: members.running(leader) is None, PATIENCE_S, 0.05)
        members.start(leader)
    follows(members, leader)
    return took_s


def upgrade(members: Members, _kind: str) -> float:
    """Stops and starts all controllers, followers first. Returns the seconds until the last leader has all switches."""
    leader = members.await_leader()
    for number in others(members, leader):
        process = members.running(number) or 0
        os.kill(process, signal.SIGTERM)
        await_event(lambda number=number: members.running(number) is None, PATIENCE_S, 0.05)  # type: ignore[misc]
        members.start(number)
        follows(members, number)
    return fault(members, "stopped")


def main() -> int:
    """Runs all faults; returns 1 if the history of leaders contradicts itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("kills", "pauses", "cuts", "upgrades"):
        parser.add_argument(f"--{option}", type=int, default=1)
    parser.add_argument("--history", type=Path, default=Path("results/leaders.jsonl"))
    asked = parser.parse_args()
    lab = Lab(LAB)
    try:
        members, _ = put_up(lab, Fabric(FABRIC), SCHEME)
    finally:
        lab.release()
    watch = Watch(members)
    try:
        watch.start()
        hosts = [host.name for host in members.blueprint.hosts]
        pairs = [(hosts[one], hosts[(one + len(hosts) // 2) % len(hosts)]) for one in range(FLOWS)]
        for kind, count in (("killed", asked.kills), ("paused", asked.pauses), ("cut off", asked.cuts)):
            measure(members, kind, count, pairs)
        measure(members, "upgraded", asked.upgrades, pairs)
        watch.ended.set()
        watch.join()
    finally:
        lab.down()
    asked.history.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(asdict(one)) + "\n" for one in watch.answers)
    asked.history.write_text(lines, encoding="utf-8")
    found = list(violations(watch.answers))
    elections = len({one.election for one in watch.answers})
    print(json.dumps({"answers": len(watch.answers), "elections": elections, "violations": found}))
    return 1 if found else 0


def measure(members: Members, kind: str, count: int, pairs: list[tuple[str, str]]) -> None:
    """Repeats a fault under probes, and prints its line."""
    if count == 0:
        return
    act = upgrade if kind == "upgraded" else fault
    with Probes(members.blueprint, members.directory, pairs, rate_hz=1000.0) as probes:
        time.sleep(2)
        took_s = sorted(act(members, kind) for _ in range(count))
        tracks = probes.stop()
    row = {"kind": kind, "count": count, "least_s": took_s[0], "median_s": took_s[count // 2], "most_s": took_s[-1]}
    row |= {"probes": sum(track.sent for track in tracks), "lost": sum(track.lost for track in tracks)}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
