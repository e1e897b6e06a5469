"""A lab with three controllers: one leads, and another one takes over when it is killed or cut off."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live import K4, QUIET, TTL_S, LiveMembers, permutation, spoil, until
from pathloom.fabrics import Fabric
from pathloom.lab.lab import Lab
from pathloom.lab.members import COUNT, Members, put_up
from pathloom.lab.members import name as name_of
from pathloom.lab.probes import Probes
from pathloom.lab.status import lab_status
from support import PATHLOOM

GREEDY = Path(__file__).parents[2] / "examples" / "greedy.py"


@contextmanager
def three(name: str, scheme: str) -> Iterator[tuple[Members, LiveMembers, int]]:
    """A lab with three controllers, and the number of the one that leads."""
    lab = Lab(name)
    try:
        members, leader = put_up(lab, Fabric(K4), scheme, ttl_s=TTL_S)
    finally:
        lab.release()
    yield members, LiveMembers(members, K4), leader


def test_a_killed_and_a_cut_off_leader_are_replaced_amid_moves(name: str) -> None:
    with three(name, QUIET) as (members, live, first):
        pairs = permutation(live, 6)
        with Probes(live.blueprint, live.lab.directory, pairs, rate_hz=200.0) as probes:
            live.await_paths(pairs)
            # Flows leave the switch. The answer comes when etcd knows it, and the moves go on.
            assert members.ask(first, "/v1/switches/c0/drain", "POST")["drained"]
            members.kill(first)
            second = members.await_leader([one for one in members.numbers if one != first])
            # Moves that were in flight are finished or undone: each flow has one path, and no other rules exist.
            paths = live.await_paths(pairs)
            members.start(first)
            until(lambda: members.cluster(first).get("leader") == name_of(second), "the first one follows")
            # The leader is cut off from etcd and the other controllers, but not from the switches.
            members.set_connected(second, False)
            third = members.await_leader([one for one in members.numbers if one != second])
            assert live.await_paths(pairs) == paths
            members.set_connected(second, True)
            until(lambda: members.cluster(second).get("leader") == name_of(third), "the second one follows")
            tracks = probes.stop()
        assert not spoil(tracks)
        core = next(switch.node for switch in live.blueprint.switches if switch.name == "c0")
        assert all(live.links["target"][link] != core for path in paths for link in path)
        # Each hand-over is noted with its cause. There are more if a busy machine kept a leader from its lease.
        until(lambda: members.cluster(members.await_leader())["hand_over"]["count"] >= 3, "three elections are noted")
        logs = [members.log(number).read_text(encoding="utf-8") for number in members.numbers]
        causes = re.findall(r'the hand-over is noted in etcd cause="([^"]*)"', "".join(logs))
        lost = [f"the lease of {name_of(one)} ended" for one in (first, second)]
        assert all(any(cause.startswith(one) for cause in causes) for one in ["no controller led before", *lost])


def test_the_next_controller_starts_the_process_of_a_scheme_in_python(name: str) -> None:
    with three(name, f"{GREEDY}:Greedy:paths=4") as (members, live, first):
        pairs = permutation(live, 4)

        def process(number: int) -> dict[str, Any]:
            return dict(members.ask(number, "/v1/state")["scheme_process"])

        with Probes(live.blueprint, live.lab.directory, pairs, rate_hz=200.0) as probes:
            paths = live.await_paths(pairs)
            assert process(first)["state"] == "up"
            # Followers have no process.
            assert [one for one in members.numbers if members.ask(one, "/v1/state").get("scheme_process")] == [first]
            members.kill(first)
            second = members.await_leader([one for one in members.numbers if one != first])
            until(lambda: process(second)["state"] == "up", "the scheme runs beside the next leader")
            assert live.await_paths(pairs) == paths
            tracks = probes.stop()
        assert not spoil(tracks)


def test_commands_put_a_lab_with_three_controllers_up_and_down(name: str) -> None:
    words = [*PATHLOOM, "lab", "up", K4, "--name", name, "--controllers"]
    refused = subprocess.run([*words, "2"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "expected 1 or 3" in refused.stderr) == (2, True), refused.stderr
    done = subprocess.run([*words, str(COUNT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "with 3 controllers; c" in done.stdout
    shown = subprocess.run(
        [*PATHLOOM, "lab", "status", "--name", name, "--json", "-"], capture_output=True, text=True, check=True
    )
    (row,) = json.loads(shown.stdout)["labs"]
    assert [one["leads"] for one in row["controllers"]].count(True) == 1
    assert all(one["process"] is not None for one in row["controllers"])
    # Open vSwitch notes roles every few seconds.
    until(lambda: all(switch["connected"] for switch in lab_status(name)["switches"]), "switches obey the leader")
    # A controller that has ended is started again.
    members = Members(Lab(name).blueprint(), Lab(name).directory)
    members.kill(0)
    again = [*PATHLOOM, "lab", "controller", "--name", name]
    said = subprocess.run(again, capture_output=True, text=True, check=True).stdout
    assert said == f"lab `{name}`: 1 of 3 controllers had ended and run again\n"
    until(lambda: members.running(0) is not None, "it runs")
    assert Lab(name).down()
    assert lab_status(name)["state"] == "down"
