"""Labs start quickly, run side by side, and leave nothing, even if the process that built them is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from live import until
from pathloom.lab import hosts, system
from pathloom.lab.daemons import allocator
from pathloom.lab.lab import Lab
from pathloom.lab.status import lab_status
from pathloom.lab.switches import OpenVSwitch
from support import K4, NOT_ROOT, PATHLOOM, PATIENCE_S, SMALL, Outcome, call, figures, left_of, machine_links

LabCommand = Callable[..., Outcome]

REACH = f"import socket, sys; socket.create_connection((sys.argv[1], 7), {PATIENCE_S})"
ANSWER = "import socket; s = socket.create_server(('', 7)); s.accept()"


def reach(name: str, source: str, target: str) -> None:
    """Opens a TCP connection from host to host, by name."""
    server = subprocess.Popen([*PATHLOOM, "lab", "exec", target, "--name", name, "--", "python3", "-c", ANSWER])
    ask = ["exec", source, "--name", name, "--", "python3", "-c", REACH, target]
    until(lambda: call(*ask).code == 0, f"{source} reaches {target}")
    assert server.wait(PATIENCE_S) == 0


def test_a_fat_tree_forwards_and_leaves_nothing(lab: LabCommand, name: str) -> None:
    links = machine_links()
    up = lab("up", K4)
    assert (up.code, up.err) == (0, "")
    reach(name, "h0", "h15")
    assert machine_links() == links
    down = lab("down")
    assert down.code == 0
    assert left_of(name) == []
    figures("a lab of 20 switches and 16 hosts", up_s=round(up.took_s, 2), down_s=round(down.took_s, 2))


def test_80_switches_and_128_hosts_forward_and_leave_nothing(lab: LabCommand, name: str) -> None:
    up = lab("up", "fat-tree:k=8,rate=10Mbps")
    assert up.code == 0, up.err
    reach(name, "h0", "h127")
    down = lab("down")
    assert (down.code, left_of(name)) == (0, [])
    figures("a lab of 80 switches and 128 hosts", up_s=round(up.took_s, 2), down_s=round(down.took_s, 2))


@pytest.mark.long
@pytest.mark.parametrize("daemons", [2, *(pytest.param(one, marks=pytest.mark.long) for one in (1, 3))])
def test_switches_are_spread_over_daemons_that_share_no_processor(lab: LabCommand, name: str, daemons: int) -> None:
    up = lab("up", K4, "--daemons", str(daemons))
    assert (up.code, up.err) == (0, "")
    blueprint, switches = Lab(name).blueprint(), Lab(name).open_vswitch()
    names = [f"pathloom.{name}.switches{number}" for number in ("", 2, 3)]
    assert list(blueprint.switch_namespaces) == names[:daemons] == system.namespaces_of(f"pathloom.{name}.switches")
    assert sorted(len(daemon.switches) for daemon in switches.daemons) == {1: [20], 2: [10, 10], 3: [6, 7, 7]}[daemons]
    processors = [os.sched_getaffinity(daemon.process()) for daemon in switches.daemons]
    assert all(len(own) == 1 for own in processors)
    assert len(set.union(*processors)) == min(daemons, len(os.sched_getaffinity(0)))
    for number, daemon in enumerate(switches.daemons):
        # The daemon uses the faster allocator, and has priority over ordinary programs, which still get some time.
        loaded = "libtcmalloc_minimal" in Path(f"/proc/{daemon.process()}/maps").read_text(encoding="ascii")
        assert loaded == (allocator() is not None)
        with suppress(FileNotFoundError):  # The kernel may have no autogroups.
            group = Path(f"/proc/{daemon.process()}/autogroup").read_text(encoding="ascii")
            assert group.endswith(f" nice {system.GROUP_NICE}\n")
        place = Path(f"/proc/{daemon.process()}/ns/net").stat()
        assert os.path.samestat(place, (system.NETNS / daemon.namespace).stat())
        bridge = daemon.switches[-1].bridge
        within = f"switches{number + 1 if number else ''}"
        assert f"l{daemon.ports[0].link}" in lab("exec", within, "--", "ls", "/sys/class/net").out
        # The tables of a switch are reached from the first namespace, whichever daemon runs the switch.
        assert "table=2" in lab("exec", "switches", "--", "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge).out
    reach(name, "h0", "h15")
    reach(name, "h2", "h1")


@pytest.mark.long
def test_all_switches_discard_their_cached_decisions(lab: LabCommand, name: str) -> None:
    assert lab("up", K4, "--daemons", "2").code == 0
    reach(name, "h0", "h15")
    switches = Lab(name).open_vswitch()

    def cached() -> list[int]:
        """Number of cached decisions of each daemon."""
        return [daemon.appctl("dpctl/dump-flows").count("packet_type(ns=0,id=0)") for daemon in switches.daemons]

    assert min(cached()) > 0
    switches.discard_cached_decisions()
    assert cached() == [0, 0]
    reach(name, "h0", "h15")


@pytest.mark.long
def test_two_labs_run_side_by_side(lab: LabCommand, name: str) -> None:
    other = f"{name}b"
    try:
        assert lab("up", SMALL).code == 0
        assert call("up", SMALL, "--name", other).code == 0
        reach(name, "h0", "h3")
        assert call("down", "--name", other).code == 0
        assert left_of(other) == []
        reach(name, "h1", "h2")
    finally:
        call("down", "--name", other)


def test_status_shows_the_state_of_a_lab(lab: LabCommand, name: str) -> None:
    assert json.loads(lab("status", "--json", "-").out)["labs"] == [{"name": name, "state": "down"}]
    lab("up", SMALL, "--scheme", "spt", "--daemons", "2")
    (row,) = json.loads(lab("status", "--json", "-").out)["labs"]
    assert (row["state"], row["controller"], row["scheme"]) == ("up", None, "spt")
    assert [host["addresses"] for host in row["hosts"]] == [["10.0.0.1"], ["10.0.0.2"], ["10.0.1.1"], ["10.0.1.2"]]
    assert {switch["dpid"] for switch in row["switches"]} == {f"{number:016x}" for number in (1, 2)}
    assert len(row["links"]) == 6
    assert {link["rate_bps"] for link in row["links"]} == {10_000_000}
    assert f"{name}: up" in lab("status").out
    switching = [one for one in system.processes_of(Lab(name).directory, Lab(name).prefix) if _is(one, "ovs-vswitchd")]
    assert len(switching) == 2
    # One missing daemon is enough.
    os.kill(switching[1], signal.SIGKILL)

    def state() -> tuple[str, bool]:
        (row,) = json.loads(lab("status", "--json", "-").out)["labs"]
        return row["state"], row["switching"]

    until(lambda: state() == ("broken", False), "the lab is broken")


def test_a_killed_controller_is_reported_and_started_again(lab: LabCommand, name: str) -> None:
    refused = lab("controller")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert lab("up", SMALL, "--controller", "pathloom").code == 0
    (row,) = json.loads(lab("status", "--json", "-").out)["labs"]
    assert "way_out" not in row
    assert lab("controller").out == f"lab `{name}`: the controller runs\n"
    os.kill(row["controller_process"], signal.SIGKILL)

    def state() -> tuple[int | None, str]:
        (row,) = json.loads(lab("status", "--json", "-").out)["labs"]
        return row["controller_process"], row["state"]

    until(lambda: state() == (None, "up"), "the lab stands without its controller")
    assert f"pathloom lab controller --name {name}" in lab("status").out
    again = lab("controller")
    assert again.code == 0, again.err
    (row,) = json.loads(lab("status", "--json", "-").out)["labs"]
    assert row["controller_process"] is not None and all(switch["connected"] for switch in row["switches"])
    reach(name, "h0", "h3")


def test_programs_on_a_host_have_its_name_and_ask_no_name_server(lab: LabCommand) -> None:
    assert lab("up", SMALL).code == 0
    own = "import socket; print(socket.gethostname())"
    look = f"{own}; print(socket.gethostbyname(socket.gethostname()))"
    assert lab("exec", "h2", "--", "python3", "-c", look).out == "h2\n10.0.1.1\n"
    assert lab("exec", "h2", "--", "cat", "/etc/resolv.conf").out == hosts.RESOLVER
    # The namespace of the switches is no host, and the machine keeps its name.
    assert lab("exec", "switches", "--", "python3", "-c", own).out == f"{socket.gethostname()}\n"


ALL_OF = """
import sys
from pathloom import cli
from pathloom.lab import lab
every, prefix = lab.known_labs, sys.argv.pop(1)
lab.known_labs = lambda: [name for name in every() if name.startswith(prefix)]
sys.exit(cli.run(sys.argv[1:]))
"""
"""Runs a command that knows only the labs whose names begin with the first argument: other tests have labs too."""


def test_killed_labs_are_shown_as_broken_and_all_are_taken_down(
    lab: LabCommand, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of a lab are killed, the switches of a second one, and the command that builds a third one."""
    other, third = f"{name}b", f"{name}c"
    links = machine_links()
    try:
        assert lab("up", SMALL, "--controller", "pathloom", "--api").code == 0
        assert call("up", SMALL, "--controller", "pathloom", "--name", other).code == 0
        building = start(third)
        until(lambda: bool(system.namespaces_of(f"pathloom.{third}.")), "a part of the third lab exists")
        building.kill()
        building.wait(PATIENCE_S)
        for process in system.processes_of(Lab(name).directory, Lab(name).prefix):
            os.kill(process, signal.SIGKILL)
        all_of_other = system.processes_of(Lab(other).directory, Lab(other).prefix)
        os.kill(next(process for process in all_of_other if _is(process, "ovsdb-server")), signal.SIGKILL)
        labs = (name, other, third)
        until(lambda: all(lab_status(one)["state"] == "broken" for one in labs), "the labs are broken")
        # Switches that end while the state is read do not answer.
        with monkeypatch.context() as patched:
            patched.setattr(OpenVSwitch, "runs", lambda _switches: True)
            ending = lab_status(other)
        assert (ending["state"], ending["switching"]) == ("broken", False)
        assert ending["notes"][-1].startswith("the switches do not answer: `ovs-vsctl`: ")
        printed = call("status").out
        for one in labs:
            way_out = f"parts of it are missing; `pathloom lab down --name {one}` removes the rest"
            assert lab_status(one)["way_out"] == way_out
            assert f"{one}: broken: {way_out}\n" in printed
        for refused in (lab("controller"), lab("up", SMALL)):
            assert (refused.code, "parts of it are missing" in refused.err) == (2, True), refused.err
        down = call("down", "--all", command=[sys.executable, "-c", ALL_OF, name])
        assert (down.code, down.out) == (0, "".join(f"lab `{one}` is down\n" for one in labs))
        assert [left_of(one) for one in labs] == [[], [], []]
        assert machine_links() == links
    finally:
        for one in (other, third):
            call("down", "--name", one)


def test_the_api_of_a_lab_is_reached_from_the_machine(lab: LabCommand, name: str) -> None:
    refused = lab("up", SMALL, "--api")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    up = lab("up", SMALL, "--controller", "pathloom", "--api")
    assert up.code == 0, up.err
    (row,) = json.loads(lab("status", "--json", "-").out)["labs"]
    api = row["api"]
    assert api["open"] and api["url"] in up.out
    tokens = Path(api["tokens"])
    assert tokens.stat().st_mode & 0o777 == 0o600

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*PATHLOOM, "controller", *words, "--url", api["url"], "--token-file", str(tokens)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    said = ask("status").stdout
    assert f"ecmp is in charge of {SMALL}" in said
    assert "switches  2 of 2 connected" in said
    unknown = subprocess.run(
        ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", f"{api['url']}/v1/state"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert unknown.stdout == "401"
    # The controller may end and start again behind the same address, and so may what passes the bytes on.
    os.kill(row["controller_process"], signal.SIGKILL)
    door = next(one for one in system.processes_of(Lab(name).directory, Lab(name).prefix) if _serves(one))
    os.kill(door, signal.SIGKILL)
    until(lambda: "closed; " in lab("status").out, "the API is closed")
    assert ask("status").returncode == 1
    again = lab("controller")
    assert again.code == 0, again.err
    until(lambda: "switches  2 of 2 connected" in ask("status").stdout, "the API answers again")


def _serves(process: int) -> bool:
    return b"pathloom.lab.door" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")


@pytest.mark.long
def test_only_a_lab_with_our_own_controller_can_restart_it(lab: LabCommand, name: str) -> None:
    lab("up", SMALL, "--scheme", "spt")
    refused = lab("controller")
    assert refused.code == 2
    assert refused.err.endswith(
        f"lab `{name}`: has static routes, not Pathloom's own controller; `lab up --controller pathloom` starts one\n"
    )


def test_bad_input_is_one_line(lab: LabCommand, name: str) -> None:
    cases = [
        (lab("exec", "h0", "--", "true"), f"lab `{name}`: is not up"),
        (lab("up", "fat-tre:k=4"), "did you mean `fat-tree`"),
        (lab("up", SMALL, "--controller", "localhost"), "--controller `localhost`: expected none, pathloom"),
        (lab("up", SMALL, "--controller", "tcp:127.0.0.1:6653", "--daemons", "2"), "--daemons 2: only one daemon can"),
        (lab("up", SMALL, "--hosts", "windows"), "hosts `windows`: expected newreno"),
        (lab("up", SMALL, "--hosts", "linux", "--transport", "newreno"), "--transport `newreno`: is for hosts that"),
        (call("up", SMALL, "--name", "a.b"), "--name `a.b`: expected"),
        (call("up", SMALL, "--name", name, command=[sys.executable, "-c", NOT_ROOT]), "needs root"),
    ]
    for outcome, text in cases:
        assert outcome.code == 2, outcome
        assert text in outcome.err
        assert len(outcome.err.splitlines()) == 1
    lab("up", SMALL)
    again = lab("up", SMALL)
    assert (again.code, "is up already" in again.err) == (2, True)
    unknown = lab("exec", "h7", "--", "true")
    assert (unknown.code, "no host is called `h7`" in unknown.err) == (2, True)


def test_a_missing_kernel_feature_is_reported_and_leaves_nothing(lab: LabCommand, name: str) -> None:
    outcome = lab("up", SMALL, "--hosts", "linux/nosuch")
    assert outcome.code == 1
    assert "host h0: `ip`: " in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert left_of(name) == []


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("number", "after_s"),
    [
        (signal.SIGTERM, 0.2),
        *(pytest.param(signal.SIGTERM, wait_s, marks=LONG) for wait_s in (0.0, 0.5)),
        *(pytest.param(signal.SIGINT, wait_s, marks=LONG) for wait_s in (0.0, 0.2, 0.5)),
    ],
)
def test_an_interrupted_start_cleans_up(name: str, number: signal.Signals, after_s: float) -> None:
    process = start(name)
    while not Lab(name).directory.exists():
        assert process.poll() is None
        time.sleep(0.001)
    time.sleep(after_s)
    process.send_signal(number)
    # An interpreter that is about to exit runs no signal handlers any more. Then the lab is up.
    assert process.wait(PATIENCE_S) in (130, 0, -number)
    assert process.returncode != -number or Lab(name).blueprint().hosts
    if process.returncode == 130:
        assert left_of(name) == []


def test_nothing_is_left_after_three_starts_all_of_them_killed(name: str) -> None:
    start_and_stop(name, times=3, kills=3)


@pytest.mark.long
def test_nothing_is_left_after_fifty_starts_ten_of_them_killed(name: str) -> None:
    start_and_stop(name, times=50, kills=10)


def start(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PATHLOOM, "lab", "up", K4, "--name", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def start_and_stop(name: str, times: int, kills: int) -> None:
    """Starts and stops a lab; kills the start, the stop or the switches with -9 at moments drawn from a fixed seed."""
    chance = random.Random(7)
    killed = set(chance.sample(range(times), kills))
    links = machine_links()
    for turn in range(times):
        process = start(name)
        victim = ("start", "stop", "switches")[turn % 3] if turn in killed else None
        if victim == "start":
            time.sleep(chance.uniform(0.2, 1.5))
            process.kill()
        process.wait(60)
        if victim == "switches":
            for one in system.processes_of(Lab(name).directory, Lab(name).prefix):
                os.kill(one, signal.SIGKILL)
        if victim == "stop":
            stop = subprocess.Popen([*PATHLOOM, "lab", "down", "--name", name], stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.2, 0.6))
            stop.kill()
            stop.wait(10)
        down = call("down", "--name", name)
        assert down.code == 0, (turn, victim, down.err)
        assert left_of(name) == [], (turn, victim)
    assert machine_links() == links


def _is(process: int, program: str) -> bool:
    return Path(f"/proc/{process}/comm").read_text(encoding="ascii").strip() == program
