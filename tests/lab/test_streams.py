"""Parallel streams in the lab: connections of unmodified programs take their assigned paths."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from live import Live, listens, until
from pathloom.lab import management, system
from pathloom.lab.blueprint import Host
from pathloom.lab.status import link_counters
from pathloom.streams.paths import ControllerAddress, Paths
from support import PATIENCE_S, figures, measured

TOPOLOGY_A = "parallel-paths:rates=10Mbps/10Mbps/10Mbps/10Mbps,delays=1us,host_rate=100Mbps,buffer=100"
"""Topology A of the paper, at a tenth of its rates."""
PATHLOOM = Path(sys.executable).with_name("pathloom")
CONNECT = """
import socket, sys
line = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
line.sendall(b"x")
assert line.recv(1) == b"y"
print(line.getsockname()[1])
if len(sys.argv) > 3:
    sys.stdin.read()
"""
ANSWER = """
import socket, threading
door = socket.create_server(("", 7000), backlog=1000)
def answer(one):
    while one.recv(1):
        one.sendall(b"y")
while True:
    threading.Thread(target=answer, args=(door.accept()[0],), daemon=True).start()
"""

STATIC = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

// Opens connections without the functions of the C library, and keeps them until standard input ends.
static void opened(int socket, const void *address, int length)
{
    char byte = 'x';
    if (syscall(SYS_connect, socket, address, length) || write(socket, &byte, 1) != 1 || read(socket, &byte, 1) != 1)
        exit(1);
}

int main(int count, char **words)
{
    char byte = 'x';
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(words[2])) };
    inet_pton(AF_INET, words[1], &to.sin_addr);
    for (int i = 0; i < 2; i++)
        opened(socket(AF_INET, SOCK_STREAM, 0), &to, sizeof(to));
    opened(socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP), &to, sizeof(to));
    struct sockaddr_in6 mapped = { .sin6_family = AF_INET6, .sin6_port = to.sin_port };
    mapped.sin6_addr.s6_addr32[2] = htonl(0xffff);
    mapped.sin6_addr.s6_addr32[3] = to.sin_addr.s_addr;
    opened(socket(AF_INET6, SOCK_STREAM, 0), &mapped, sizeof(mapped));
    struct iovec data = { .iov_base = &byte, .iov_len = 1 };
    struct mmsghdr message = { .msg_hdr = { &to, sizeof(to), &data, 1, 0, 0, 0 } };
    int fast = socket(AF_INET, SOCK_STREAM, 0);
    if (syscall(SYS_sendmmsg, fast, &message, 1, MSG_FASTOPEN) != 1 || read(fast, &byte, 1) != 1)
        exit(1);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
"""


@contextmanager
def serving(name: str, spec: str, more: str = "", scheme: str = "ecmp") -> Iterator[Live]:
    """A lab whose controller serves programs on hosts."""
    live = Live(name, spec, scheme, more=more)
    try:
        management.connect(live.blueprint, live.lab.directory)
        live.configure(scheme, more=more)
        live.launch()
        yield live
    finally:
        live.end()


def host_of(live: Live, name: str) -> Host:
    """A host by its name."""
    return next(host for host in live.blueprint.hosts if host.name == name)


def start(live: Live, host: str, *command: str) -> subprocess.Popen[str]:
    """Starts a command on a host."""
    words = [str(PATHLOOM), "lab", "exec", host, "--name", live.lab.name, "--", *command]
    environment = {**os.environ, system.MARK: str(live.lab.directory)}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def with_paths(count: int, *command: str) -> list[str]:
    """Returns a command line that gives paths to the connections of a command."""
    return [str(PATHLOOM), "with-paths", "--paths", str(count), "-v", "--", *command]


def result(process: subprocess.Popen[str], patience_s: float = 2 * PATIENCE_S) -> tuple[str, str]:
    """Waits until a command has ended without error. Returns its standard output and standard error."""
    printed, said = process.communicate(timeout=patience_s)
    assert process.returncode == 0, (printed, said)
    return printed, said


def ask(live: Live, host: str, what: Any) -> Any:
    """Asks the controller from a host. The function `what` gets a connection to the service."""
    chosen = host_of(live, host)

    def act() -> Any:
        line = Paths(ControllerAddress.parse(management.place()), chosen.ports[0].address)
        try:
            return what(line)
        finally:
            line.close()

    return system.inside(chosen.namespace, act)


def assignments(live: Live, host: str) -> list[dict[str, Any]]:
    """The assignments of a host."""
    return list(ask(live, host, lambda line: line._call("GET", "/v1/assignments"))["items"])


def connections_of(live: Live, host: str) -> int:
    """Returns how many connections of a host are on assigned paths."""
    return sum(one["connections"] for one in assignments(live, host))


def carried_bytes(live: Live) -> dict[int, int]:
    """Returns, by link, the bytes that the port of a switch has sent over it."""
    counters = link_counters(live.blueprint)
    return {port.link: counters[port.interface][0] for port in live.blueprint.switch_ports}


def uplinks(live: Live, host: str) -> list[int]:
    """Returns the links from the ToR of a host to other switches."""
    tor = live.links["target"][host_of(live, host).ports[0].link]
    hosts = {one.node for one in live.blueprint.hosts}
    links = live.links
    return [one for one, node in enumerate(links["source"]) if node == tor and links["target"][one] not in hosts]


def nothing_is_left(live: Live) -> None:
    """Waits until there is no assignment, and no rule of a connection."""
    until(lambda: assignments(live, "h0") == [] and assignments(live, "h1") == [], "no assignment is left")
    until(lambda: live.rules_of("tcp") == [], "no rule is left")


IDLE = "[control]\nidle_timeout_s = 3\n"
"""Configuration in which rules of closed connections time out soon."""


@pytest.mark.long
def test_streams_of_an_unmodified_program_take_all_paths_and_nothing_is_left(name: str) -> None:
    with serving(name, TOPOLOGY_A, IDLE) as live:
        rates = {}
        for streams, paths in ((4, 1), (4, 4)):
            server = start(live, "h1", "iperf3", "-s", "-1", "--json")
            listens(live.blueprint, "h1", 5201)
            before = carried_bytes(live)
            client = with_paths(paths, "iperf3", "-c", "h1", "-P", str(streams), "-t", "8", "--json")
            printed, said = result(start(live, "h0", *client))
            after = carried_bytes(live)
            assert f"{streams + 1} connections had a path of their own, 0 had none" in said
            server.communicate(timeout=PATIENCE_S)
            rates[paths] = json.loads(printed)["end"]["sum_received"]["bits_per_second"] / 1e6
            shares = sorted(after[link] - before[link] for link in uplinks(live, "h0"))
            assert sum(share > 1_000_000 for share in shares) == paths, shares
            nothing_is_left(live)
        figures("iperf3 -P 4", one_path_mbps=round(rates[1], 2), four_paths_mbps=round(rates[4], 2))


@pytest.mark.long
@pytest.mark.parametrize("tries", [6, pytest.param(20, marks=pytest.mark.long)])
def test_the_first_connection_after_an_assignment_takes_its_path(name: str, tries: int) -> None:
    """Packets between the hosts pass before, so that the switches have cached entries for them."""
    with serving(name, TOPOLOGY_A, "[control]\nidle_timeout_s = 5\n") as live:
        answers = start(live, "h1", sys.executable, "-c", ANSWER)
        source, target = (host_of(live, host).ports[0].address for host in ("h0", "h1"))
        listens(live.blueprint, "h1", 7000)
        bound = 0

        def connect(line: Paths, opens_to: int | None) -> bool:
            def port() -> tuple[socket.socket, int]:
                one = socket.socket()
                one.settimeout(10)
                one.bind((source, 0))
                return one, one.getsockname()[1]

            with port()[0] as plain:
                plain.connect((target, 7000))
                plain.sendall(b"x")
                assert plain.recv(1) == b"y"
                made = line.assign(source, target, 4)
                one, number = port()
                with one:
                    line.claim(made["id"], source, target, number, opens_to=opens_to)
                    one.connect((target, 7000))
                    one.sendall(b"x")
                    assert one.recv(1) == b"y"
                    if opens_to is None:
                        time.sleep(0.5)
                    else:
                        until(lambda: line.assignment(made["id"])["connections"] == 1, "it has its path")
                    found = line.assignment(made["id"])["connections"]
                line.release(made["id"])
            return bool(found)

        for _ in range(tries):
            # If the claim names the destination port, the controller need not see the first packet.
            assert ask(live, "h0", lambda line: connect(line, 7000))
            bound += ask(live, "h0", lambda line: connect(line, None))
            time.sleep(0.2)
        answers.kill()
        answers.communicate()
        figures("first connections after an assignment whose claims do not name their port", seen=f"{bound} of {tries}")
        # Open vSwitch removes cached entries soon after a new rule, when its threads get processor time.
        nothing_is_left(live)


def test_connections_of_static_programs_take_all_paths(name: str, tmp_path: Path) -> None:
    """They are opened by connect, by sendmmsg with TCP Fast Open, and to a mapped address. MPTCP is only counted."""
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text(STATIC, encoding="ascii")
    system.run_tool(["cc", "-Wall", "-Werror", "-static", "-o", str(program), str(source)])
    with serving(name, TOPOLOGY_A, IDLE) as live:
        answers = start(live, "h1", sys.executable, "-c", ANSWER)
        listens(live.blueprint, "h1", 7000)
        target = host_of(live, "h1").ports[0].address
        process = start(live, "h0", *with_paths(4, str(program), target, "7000"))
        until(lambda: connections_of(live, "h0") == 4 or process.poll() is not None, "its connections have paths")
        assert process.poll() is None, process.communicate()
        (row,) = assignments(live, "h0")
        paths = ask(live, "h0", lambda line: line.assignment(row["id"]))["paths"]
        assert [path["users"] for path in paths] == [1, 1, 1, 1]
        _, said = result(process)
        assert "4 connections had a path of their own, 1 had none" in said, said
        assert said.count("MPTCP connections have no path") == 1, said
        answers.kill()
        answers.communicate()
        nothing_is_left(live)


def test_announced_connections_move_to_paths_of_their_own(name: str, tmp_path: Path) -> None:
    """The server announces its connections when they exist, as storage services do. All have the port of the server."""
    pipe, port = tmp_path / "announcements", 5201
    with serving(name, TOPOLOGY_A, IDLE, scheme="spt") as live:
        client, server = (host_of(live, host).ports[0].address for host in ("h0", "h1"))
        reader = start(live, "h1", str(PATHLOOM), "streams", "scitags", "--pipe", str(pipe), "--paths", "4", "-v")
        until(lambda: pipe.exists() or reader.poll() is not None, "the pipe is there")
        assert pipe.exists(), reader.communicate()
        listener = start(live, "h1", "iperf3", "-s", "-1", "--json")
        listens(live.blueprint, "h1", port)
        sender = start(live, "h0", "iperf3", "-c", "h1", "-P", "4", "-t", "16", "--json")
        look = ["ip", "netns", "exec", host_of(live, "h1").namespace, "ss", "-Htn", "state", "established"]

        def peers() -> list[int]:
            return [int(line.rpartition(":")[2]) for line in system.run_tool([*look, f"sport = :{port}"]).splitlines()]

        until(lambda: len(peers()) == 5, "the connections stand")
        time.sleep(2)
        before = carried_bytes(live)
        time.sleep(2)
        after = carried_bytes(live)
        shares = [after[link] - before[link] for link in uplinks(live, "h0")]
        assert sum(share > 500_000 for share in shares) == 1, shares
        flows = [f"tcp {server} {port} {client} {peer} 2 3\n" for peer in sorted(peers())]
        pipe.write_text("".join(f"start {flow}" for flow in flows), encoding="ascii")

        before = carried_bytes(live)

        def spread() -> bool:
            after = carried_bytes(live)
            return all(after[link] - before[link] > 600_000 for link in uplinks(live, "h0"))

        until(spread, "all paths are in use")
        assert connections_of(live, "h1") == 5
        printed, _ = result(sender)
        figures("iperf3 -P 4, announced", received_bytes=json.loads(printed)["end"]["sum_received"]["bytes"])
        listener.communicate(timeout=PATIENCE_S)
        pipe.write_text("".join(f"end {flow}" for flow in flows), encoding="ascii")
        nothing_is_left(live)
        reader.send_signal(signal.SIGTERM)
        said = reader.communicate(timeout=PATIENCE_S)[1]
        assert "5 announcements gave a path, 0 gave none" in said, said


GRID_PORT = 2811


def grid_server(live: Live, host: str, folder: Path, paths: int | None) -> subprocess.Popen[str]:
    """Starts a GridFTP server on a host. Its data takes `paths` paths."""
    address = host_of(live, host).ports[0].address
    listening = ["-p", str(GRID_PORT), "-control-interface", address, "-data-interface", address]
    command = [
        "env",
        f"GLOBUS_HOSTNAME={address}",
        "globus-gridftp-server",
        "-aa",
        "-anonymous-user",
        "root",
        "-allow-root",
        "-home-dir",
        str(folder),
    ]
    command += ["-restrict-paths", str(folder), "-no-detach", *listening]
    one = start(live, host, *(command if paths is None else with_paths(paths, *command)))
    listens(live.blueprint, host, GRID_PORT)
    return one


def end(process: subprocess.Popen[str]) -> str:
    """Ends a command that runs without end. Returns its standard error."""
    process.terminate()
    return process.communicate(timeout=PATIENCE_S)[1]


def copied(live: Live, host: str, paths: int | None, *words: str) -> float:
    """Returns the seconds that an unmodified client takes for a copy over four streams."""
    # The name of this machine is not the name of a host of the lab.
    own = f"GLOBUS_HOSTNAME={host_of(live, host).ports[0].address}"
    command = ["env", own, "globus-url-copy", "-p", "4", "-nodcau", *words]
    begun = time.monotonic()
    result(start(live, host, *(command if paths is None else with_paths(paths, *command))), 200)
    return time.monotonic() - begun


def test_gridftp_takes_all_paths_for_get_put_and_copies_between_servers(name: str, tmp_path: Path) -> None:
    size = 8_000_000
    (tmp_path / "data").write_bytes(os.urandom(size))
    with serving(name, TOPOLOGY_A, IDLE) as live:
        first, second = (f"ftp://{host_of(live, one).ports[0].address}:{GRID_PORT}{tmp_path}" for one in ("h0", "h1"))
        took = {}
        for paths in (1, 4):
            servers = [grid_server(live, host, tmp_path, paths) for host in ("h0", "h1")]
            # The sender of the data opens the connections: the server in a get, the client in a put.
            for what, host, source, target in (
                ("get", "h1", f"{first}/data", f"file://{tmp_path}/got"),
                ("put", "h0", f"file://{tmp_path}/data", f"{second}/put"),
                ("third-party", "h1", f"{first}/data", f"{second}/third"),
            ):
                before = carried_bytes(live)
                took[what, paths] = copied(live, host, paths, source, target)
                after = carried_bytes(live)
                shares = [after[link] - before[link] for link in uplinks(live, "h0")]
                assert sum(share > size / 20 for share in shares) == paths, (what, shares)
                copy = tmp_path / target.rpartition("/")[2]
                assert copy.read_bytes() == (tmp_path / "data").read_bytes(), what
                copy.unlink()
            said = [end(server) for server in servers]
            assert all("had a path of their own, 0 had none" in one for one in said), said
            nothing_is_left(live)
        figures(
            "GridFTP, 8 MB in 4 streams, s",
            **{f"{what} over {paths}": round(s, 1) for (what, paths), s in took.items()},
        )


def connections(live: Live, node: int) -> dict[int, int]:
    """Returns, by source port, the bytes of GridFTP's data connections that a switch has counted."""
    rule = re.compile(r"n_bytes=(\d+),.*\btcp,.*tp_src=(\d+),tp_dst=(\d+)")
    found: dict[int, int] = {}
    bridge = next(switch.bridge for switch in live.blueprint.switches if switch.node == node)
    for line in live.switches.daemon_of(bridge).ofctl("dump-flows", bridge).splitlines():
        if (match := rule.search(line)) and str(GRID_PORT) not in (match[2], match[3]):
            found[int(match[2])] = max(found.get(int(match[2]), 0), int(match[1]))
    return found


@pytest.mark.measure
@pytest.mark.long
def test_four_paths_carry_four_times_as_much_and_each_stream_fills_its_own(name: str, tmp_path: Path) -> None:
    """Table 1 and Fig. 7 of the paper at a tenth of the rates: 107 MB over links of 10 Mbit/s."""
    size = 2**30 // 10
    (tmp_path / "data").write_bytes(os.urandom(1 << 20) * (size >> 20))
    size = (size >> 20) << 20
    took, rates = {}, []
    with serving(name, TOPOLOGY_A) as live:
        address = host_of(live, "h0").ports[0].address
        last = host_of(live, "h1").ports[0].link ^ 1
        tor = live.links["source"][uplinks(live, "h0")[0]]
        for paths in (1, 4):
            server = grid_server(live, "h0", tmp_path, paths)
            before = carried_bytes(live)[last]
            words = [f"ftp://{address}:{GRID_PORT}{tmp_path}/data", f"file://{tmp_path}/got"]
            own = f"GLOBUS_HOSTNAME={host_of(live, 'h1').ports[0].address}"
            client = start(live, "h1", "env", own, "globus-url-copy", "-p", "4", "-nodcau", *words)
            begun = ended = 0.0
            samples: list[tuple[float, dict[int, int]]] = []
            while client.poll() is None:
                now, done = time.monotonic(), carried_bytes(live)[last] - before
                # The time of the data, without the start of the programs.
                begun = begun or (now if done > size / 100 else 0.0)
                ended = ended or (now if done > size * 0.99 else 0.0)
                samples.append((now, connections(live, tor)))
                time.sleep(0.25)
            result(client)
            took[paths] = ended - begun
            # On a busy machine, the programs take long to start. So the middle part of the transfer is used.
            quarter_s = (ended - begun) / 4
            middle = [one for one in samples if begun + quarter_s <= one[0] <= ended - quarter_s]
            (early, first), (late, second) = middle[0], middle[-1]
            shared = sorted(set(first) & set(second))
            rates = [(second[port] - first[port]) * 8 / 1e6 / (late - early) for port in shared]
            end(server)
            (tmp_path / "got").unlink()
            nothing_is_left(live)
            shown = sorted(round(one, 2) for one in rates)
            figures(f"GridFTP, 107 MB, 4 streams, {paths} paths", s=round(took[paths], 1), streams_mbps=shown)
    measured("GridFTP, 107 MB over 4 paths (published: 1 / 3.87)", "s", took[4], took[1], "over one path")


@pytest.mark.parametrize("expires", [False, pytest.param(True, marks=pytest.mark.long)])
def test_paths_are_released_whatever_a_program_does(name: str, expires: bool) -> None:
    """A program is killed, connects from another port, opens fewer connections than claimed, or never releases.

    Assignments of a killed `with-paths` expire after a minute (`expires`), or their host releases them earlier.
    """
    more = "[control]\nidle_timeout_s = 3\n[control.assignments]\nclaim_timeout = '3s'\n"
    with serving(name, TOPOLOGY_A, more) as live:
        answers = start(live, "h1", sys.executable, "-c", ANSWER)
        listens(live.blueprint, "h1", 7000)
        source, target = (host_of(live, host).ports[0].address for host in ("h0", "h1"))

        def claim(line: Paths) -> None:
            made = line.assign(source, target, 4, lifetime_s=2)
            for port in range(6000, 6040):
                line.claim(made["id"], source, target, port)
            # The connection comes from another port, and the assignment is never released.
            with socket.socket() as other:
                other.bind((source, 0))
                other.connect((target, 7000))
                other.sendall(b"x")
                assert other.recv(1) == b"y"

        def connected_or_ended(process: subprocess.Popen[str]) -> bool:
            return connections_of(live, "h0") > 0 or process.poll() is not None

        ask(live, "h0", claim)
        assert assignments(live, "h0") != []
        nothing_is_left(live)
        # A program that is killed with its connections open, and `with-paths` killed beside it.
        for victims in (1, 2):
            process = start(live, "h0", *with_paths(4, sys.executable, "-c", CONNECT, target, "7000", "stay"))
            until(partial(connected_or_ended, process), "its connection has a path, or it has ended")
            assert process.poll() is None, process.communicate()
            children = system.run_tool(["pgrep", "-P", str(process.pid), "python"]).split()
            for victim in [*children, str(process.pid)][:victims]:
                os.kill(int(victim), signal.SIGKILL)
            process.communicate(timeout=60)
            if victims == 2 and expires:
                until(lambda: assignments(live, "h0") == [], "the assignment has expired", 90)
            elif victims == 2:
                until(lambda: connections_of(live, "h0") == 0, "nobody uses it")
                (left,) = assignments(live, "h0")
                ask(live, "h0", lambda line, left=left: line.release(left["id"]))
            nothing_is_left(live)
        answers.kill()
        answers.communicate()


@pytest.mark.measure
def test_the_controller_measures_free_rates_and_round_trips_of_paths(name: str) -> None:
    spec = "parallel-paths:rates=10Mbps/5Mbps,delays=20ms/60ms,buffer=100,host_rate=100Mbps"
    with serving(name, spec) as live:
        source, target = (host_of(live, host).ports[0].address for host in ("h0", "h1"))
        made = ask(live, "h0", lambda line: line.assign(source, target, 2))

        def rows() -> list[dict[str, Any]]:
            return list(ask(live, "h0", lambda line: line.assignment(made["id"]))["paths"])

        ready = "all links have been probed, and the counters read twice"
        until(lambda: all(row["round_trip_measured"] and row["available_bps"] is not None for row in rows()), ready)

        def settled() -> bool:
            trips_s = [row["round_trip_s"] for row in rows()]
            return trips_s == pytest.approx([0.040, 0.120], abs=1e-3)

        # The first probes are sent while the controller does other work. The result is judged below.
        with suppress(AssertionError):
            until(settled, "the measured round trips are right")
        found = rows()
        assert [row["rate_bps"] for row in found] == [10_000_000, 5_000_000]
        assert all(row["available_bps"] <= row["rate_bps"] for row in found)
        for row, set_ms in zip(found, (40, 120), strict=True):
            what = f"round trip of a path of {set_ms} ms as the controller measures it"
            measured(what, "ms", row["round_trip_s"] * 1e3, set_ms, "the delay that the lab sets")
        command = [str(PATHLOOM), "streams", "advise", "--assignment", str(made["id"]), "--a", "0.02", "--json", "-"]
        advice = json.loads(result(start(live, "h0", *command))[0])
        assert [row["streams"] for row in advice["paths"]] == [8, 12]
