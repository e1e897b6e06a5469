"""Measures hand-overs between three controllers: `sudo python benches/live/takeover.py --kills 100 --pauses 20`.

In a lab of 20 switches, 16 connections of iperf3 form a permutation, and three more flows send 1,000 probes a second
each. Before each fault a core switch is drained, so that flows are moving. Then the leader is killed (`--kills`),
stands still for longer than its lease (`--pauses`), or is cut off from the others together with its etcd (`--cuts`).
Or all controllers are told to stop and start again, one after the other (`--upgrades`). `--other PROGRAM` then starts
them by turns with this program and the usual one, as upgrades do. With `--without-etcd 600`, all etcds are killed for
ten minutes, under 200 probes a second of each flow.

Each fault adds a line of JSON to `--out`. Faults that the file already has are not
repeated, so an interrupted run goes on. `--summary` prints a line for each kind of fault. All answers of controllers
that they lead go to a file in `--histories`, which `leaders.py` checks.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leaders import violations
from permutation import Permutation, Rules, difference, switch_node
from watch_members import Watch, etcd_processes, etcd_state

from pathloom.errors import ToolError
from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.lab import Lab
from pathloom.lab.members import TTL_S, Members, name, put_up
from pathloom.lab.probes import Probes, Track
from pathloom.native import program
from pathloom.waiting import await_event

FABRIC = "fat-tree:k=4,rate=20Mbps,buffer=1000"
SCHEME = "ofpt"
LAB = "takeover"
FLOWS = 3
CORES = ("c0", "c1", "c2", "c3")
PATIENCE_S = 60.0
KINDS = {"killed": "kills", "paused": "pauses", "cut off": "cuts", "restarted": "upgrades"}
"""The kinds of faults, and the options that say how many of each."""


class Run:
    """A lab with its controllers, traffic and observers."""

    def __init__(self, members: Members, history: Path, other: str | None) -> None:
        self.members = members
        self.history = history
        self.other = other
        self.watch = Watch(members, history)
        self.permutation = Permutation(members)
        self.rules = Rules(members, FABRIC)
        self.faults = 0
        hosts = [host.name for host in members.blueprint.hosts]
        self.pairs = [(hosts[one], hosts[(one + len(hosts) // 2) % len(hosts)]) for one in range(FLOWS)]

    def ports(self) -> list[int]:
        """Ports of the probes of this fault. Rules of those before may still exist."""
        first = 20_000 + 10 * (self.faults % 500)
        return [first + flow for flow in range(FLOWS)]

    def others(self, number: int) -> list[int]:
        """The other controllers."""
        return [one for one in self.members.numbers if one != number]

    def await_follows(self, number: int) -> None:
        """Waits until a controller knows that another one leads. Raises `ToolError`."""

        def follows() -> bool:
            return self.members.cluster(number).get("leader") not in (None, name(number))

        if not await_event(follows, PATIENCE_S, 0.1):
            raise ToolError(f"{name(number)} does not follow within {PATIENCE_S:g} s")

    def restart(self, number: int) -> None:
        """Starts a controller that was told to stop. It may be another program than before."""
        if not await_event(lambda: self.members.running(number) is None, PATIENCE_S, 0.02):
            raise ToolError(f"{name(number)} does not stop within {PATIENCE_S:g} s")
        self.members.start(number, self.other if self.other and self.faults % 2 == 0 else program())

    def drain(self, switch: str, drained: bool) -> None:
        """Takes a switch out of service, or puts it back. Flows then move. Raises `ToolError`."""
        leader = self.members.await_leader()
        verb = "drain" if drained else "undrain"
        said = self.members.ask(leader, f"/v1/switches/{switch}/{verb}", "POST")
        if not isinstance(said, dict) or said.get("drained") is not drained:
            raise ToolError(f"{name(leader)} does not {verb} {switch}: {said}")


def act(run: Run, kind: str, leader: int) -> tuple[float, dict[str, Any]]:
    """Brings a fault of the leader about. Returns when, and more for its line."""
    members, process = run.members, run.members.running(leader)
    if process is None:
        raise ToolError(f"{name(leader)} does not run")
    more: dict[str, Any] = {}
    if kind == "restarted":
        for number in run.others(leader):
            os.kill(members.running(number) or 0, signal.SIGTERM)
            run.restart(number)
            run.await_follows(number)
        more["other_program"] = run.other is not None
    began_s = time.monotonic()
    if kind == "killed":
        members.kill(leader)
    elif kind == "cut off":
        members.set_connected(leader, False)
    else:
        os.kill(process, signal.SIGSTOP if kind == "paused" else signal.SIGTERM)
    return began_s, more


def repair(run: Run, kind: str, leader: int) -> None:
    """Repairs what `act` has done to a leader, when another one leads. Raises `ToolError`."""
    if kind == "paused":
        time.sleep(TTL_S)
        os.kill(run.members.running(leader) or 0, signal.SIGCONT)
    elif kind == "cut off":
        run.members.set_connected(leader, True)
    elif kind == "killed":
        run.members.start(leader)
    else:
        run.restart(leader)
    run.await_follows(leader)


def fault(run: Run, kind: str) -> dict[str, Any]:
    """Brings a fault about under probes, and repairs it. Returns its line."""
    members, watch, switch = run.members, run.watch, CORES[run.faults % len(CORES)]
    stolen_s, drained = system.stolen_s(), switch_node(members, switch)
    before_tcp = run.permutation.counts()
    first_port = run.ports()[0]
    with Probes(members.blueprint, members.directory, run.pairs, rate_hz=1000.0, first_port=first_port) as probes:
        run.rules.settle_s(run.ports(), -1)
        leader = members.await_leader()
        election = members.cluster(leader)["election"]
        etcd = etcd_state(members, list(members.numbers))
        run.drain(switch, True)
        began_s, more = act(run, kind, leader)
        amid = run.rules.switches.dump("dump-flows")
        if not await_event(lambda: watch.followed(election) is not None, PATIENCE_S, 0.01):
            raise ToolError(f"no controller has led all switches within {PATIENCE_S:g} s")
        next_one = watch.followed(election)
        assert next_one is not None
        etcd_after = etcd_state(members, run.others(leader))
        repair(run, kind, leader)
        settled_s, problem = run.rules.settle_s(run.ports(), drained)
        run.drain(switch, False)
        tracks = probes.stop()
    keep_loss(run, tracks, began_s, amid)
    run.faults += 1
    newer = [one for one in watch.ready if one > election]
    return {
        "kind": kind,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - (time.monotonic() - began_s))),
        "from": name(leader),
        "to": next_one[1],
        "elections": len(newer),
        **times(watch, next_one, began_s),
        "etcd_led_by_it": etcd["leader"] == leader,
        "etcd_elections": etcd_after["term"] - etcd["term"],
        "settled_s": round(settled_s, 3),
        "rules": problem,
        **counts(tracks),
        "tcp": difference(run.permutation.counts(), before_tcp),
        "load": round(os.getloadavg()[0], 1),
        "stolen_s": round(system.stolen_s() - stolen_s, 2),
        **more,
    }


def keep_loss(run: Run, tracks: list[Track], began_s: float, amid: dict[int, list[str]]) -> None:
    """If probes were lost, writes when, by seconds since the fault, and the rules of all switches just after it."""
    if all(track.lost == 0 for track in tracks):
        return
    fault_ns = time.time_ns() - round((time.monotonic() - began_s) * 1e9)
    rows = [
        {
            "flow": [track.source, track.target, port],
            "lost": track.lost,
            "from_s": round(int(track.sent_ns[track.missing()[0]] - fault_ns) / 1e9, 4),
            "until_s": round(int(track.sent_ns[track.missing()[-1]] - fault_ns) / 1e9, 4),
        }
        for track, port in zip(tracks, run.ports(), strict=True)
        if track.lost
    ]
    what = {"at": time.time() - (time.monotonic() - began_s), "flows": rows, "rules": amid}
    run.history.with_suffix(f".lost{run.faults}.json").write_text(json.dumps(what, indent=1), encoding="utf-8")


def times(watch: Watch, next_one: tuple[int, str, float], began_s: float) -> dict[str, Any]:
    """Seconds from the fault until etcd has ended the lease, has elected the next leader, and it has all switches."""
    election, _, ready_s = next_one

    def after(at_s: float | None) -> float | None:
        return None if at_s is None else round(at_s - began_s, 3)

    return {
        "lease_ended_s": after(watch.lost_key_s(began_s)),
        "elected_s": after(watch.won_key_s(election)),
        "took_s": after(ready_s),
    }


def counts(tracks: list[Track]) -> dict[str, int | float]:
    """What became of the probes of a fault."""
    return {
        "probes": sum(track.sent for track in tracks),
        "lost": sum(track.lost for track in tracks),
        "duplicated": sum(track.duplicated for track in tracks),
        "reordered": sum(track.reordered for track in tracks),
        "longest_gap_ms": round(max(track.longest_gap_ns for track in tracks) / 1e6, 1),
        "longest_pause_ms": round(max(track.longest_pause_ns for track in tracks) / 1e6, 1),
    }


def without_etcd(run: Run, seconds: float) -> dict[str, Any]:
    """Kills all etcds for a while under probes. Returns the line: what the controllers said all the time."""
    members = run.members
    before_tcp, first_port = run.permutation.counts(), run.ports()[0]
    with Probes(members.blueprint, members.directory, run.pairs, rate_hz=200.0, first_port=first_port) as probes:
        run.rules.settle_s(run.ports(), -1)
        leader = members.await_leader()
        election = members.cluster(leader)["election"]
        began_s = time.monotonic()
        for process in etcd_processes(members):
            os.kill(process, signal.SIGKILL)
        asked = unconfirmed = led = sessions = 0
        while (passed_s := time.monotonic() - began_s) < seconds:
            time.sleep(1)
            said = members.cluster(leader)
            if passed_s > 2 * TTL_S:
                asked += 1
                unconfirmed += said.get("election") == election and said.get("confirmed") is False
                state = members.ask(leader, "/v1/state") or {}
                sessions += state.get("sessions") == len(members.blueprint.switches)
                led += sum(members.cluster(one).get("election") is not None for one in run.others(leader))
        refused = members.ask(leader, f"/v1/switches/{CORES[0]}/drain", "POST")
        settled_s, problem = run.rules.settle_s(run.ports(), -1)
        back_s = time.monotonic()
        for number in members.numbers:
            members.start_etcd(number)
        next_one = members.await_leader()
        again_s = time.monotonic() - back_s
        tracks = probes.stop()
    run.faults += 1
    return {
        "kind": "without etcd",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 1),
        "asked": asked,
        "leader_unconfirmed": unconfirmed,
        "leader_with_all_switches": sessions,
        "followers_that_led": led,
        "change_refused": refused.get("status") if isinstance(refused, dict) else None,
        "from": name(leader),
        "to": name(next_one),
        "confirmed_again_s": round(again_s, 3),
        "settled_s": round(settled_s, 3),
        "rules": problem,
        **counts(tracks),
        "tcp": difference(run.permutation.counts(), before_tcp),
        "load": round(os.getloadavg()[0], 1),
    }


@contextmanager
def running(history: Path, other: str | None) -> Iterator[Run]:
    """A lab under traffic, until the end of the block."""
    lab = Lab(LAB)
    try:
        members, _ = put_up(lab, Fabric(FABRIC), SCHEME)
    finally:
        lab.release()
    try:
        run = Run(members, history, other)
        run.watch.start()
        run.permutation.start()
        yield run
        run.watch.stop()
    finally:
        keep_logs(members, history)
        lab.down()


def keep_logs(members: Members, history: Path) -> None:
    """Copies the logs of controllers and etcds beside the history, because they go with the lab."""
    for number in members.numbers:
        for log in (members.log(number), members.etcd_log(number)):
            if log.exists():
                history.with_suffix(f".{log.name}").write_bytes(log.read_bytes())


def read(out: Path) -> list[dict[str, Any]]:
    """The lines of the file, if there is one."""
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def summary(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A line for each kind of fault."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        line: dict[str, Any] = {"kind": kind, "count": len(own)}
        for key in ("lease_ended_s", "elected_s", "took_s", "confirmed_again_s", "settled_s", "load"):
            found = sorted(row[key] for row in own if row.get(key) is not None)
            if found:
                line[key] = [found[0], round(statistics.median(found), 3), found[-1]]
        for key in ("elections", "etcd_elections", "probes", "lost", "duplicated", "reordered"):
            line[key] = sum(row.get(key, 0) for row in own)
        line["retransmitted"] = sum(row["tcp"]["retransmitted"] for row in own)
        line["broken_rules"] = sum(row["rules"] is not None for row in own)
        yield line


def plan(asked: argparse.Namespace, rows: list[dict[str, Any]]) -> list[str]:
    """The kinds of the faults that are left."""
    left = []
    for kind, option in KINDS.items():
        done = sum(row["kind"] == kind for row in rows)
        left += [kind] * max(0, getattr(asked, option) - done)
    if asked.without_etcd and not any(row["kind"] == "without etcd" for row in rows):
        left.append("without etcd")
    return left


def main() -> int:
    """Runs the faults that are left; returns 1 if the history of leaders contradicts itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in KINDS.values():
        parser.add_argument(f"--{option}", type=int, default=0)
    parser.add_argument("--without-etcd", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--other", metavar="PROGRAM", help="another version of the controller")
    parser.add_argument("--out", type=Path, default=Path("results/takeover.jsonl"))
    parser.add_argument("--histories", type=Path, default=Path("results/leaders"))
    parser.add_argument("--summary", action="store_true", help="only summarise --out")
    asked = parser.parse_args()
    if asked.summary:
        for line in summary(read(asked.out)):
            print(json.dumps(line))
        return 0
    left = plan(asked, read(asked.out))
    if not left:
        return 0
    history = asked.histories / f"{int(time.time())}.jsonl"
    with system.signals_as_interrupts(), running(history, asked.other) as run:
        for kind in left:
            row = without_etcd(run, asked.without_etcd) if kind == "without etcd" else fault(run, kind)
            text = json.dumps(row)
            with asked.out.open("a", encoding="utf-8") as out:
                out.write(text + "\n")
            print(text, flush=True)
        found = list(violations(run.watch.answers))
    elections = len({one.election for one in run.watch.answers})
    print(json.dumps({"answers": len(run.watch.answers), "elections": elections, "violations": found}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
