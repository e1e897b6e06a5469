"""A lab under Pathloom's controller, for tests that kill and start it, read rules, cut cables and follow flows."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from pathloom.fabrics import Fabric
from pathloom.lab import controller, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.lab import Lab
from pathloom.lab.members import Members
from pathloom.lab.probes import Probes, Track
from pathloom.lab.switches import OpenVSwitch
from pathloom.lab.tables import default_tables
from pathloom.waiting import await_event
from support import PATIENCE_S

PROBES_HZ = 200.0
"""Probes of a flow per second, unless a test asks for more."""
CABLE = "rate=10Mbps,buffer=1000"
"""Queues hold the probes of two flows for seconds, so that a paused processor causes no loss."""
K4 = f"fat-tree:k=4,{CABLE}"
NOBODY = "tcp:127.0.0.1:9"
QUIET = "move:period=1h"
"""Scheme in which every labelled flow gets its own path and stays on it."""
TTL_S = 10
"""With the usual lease of 2 s, a busy machine may let a leader miss it, and another one leads without a fault."""
LEADS = "this controller leads"
"""What the log of a controller says when it becomes the leader."""

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
"""Constants of Linux (linux/sockios.h, linux/if.h)."""
_RULE = re.compile(r"table=1,.*priority=(\d+),(?:udp|tcp).*nw_src=([\d.]+),nw_dst=([\d.]+),tp_src=(\d+),tp_dst=(\d+)")
_OUTPUT = re.compile(r"output:(\d+)")


class Switch:
    """Turns an interface of the calling thread's namespace on and off."""

    def __init__(self, interface: str) -> None:
        self._name = interface.encode()
        self._door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        before = fcntl.ioctl(self._door, _SIOCGIFFLAGS, struct.pack("16sH14x", self._name, 0))
        self._flags = struct.unpack_from("H", before, 16)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._door.close()

    def set(self, up: bool) -> int:
        """Sets the interface up or down. Returns when, in nanoseconds of the real-time clock."""
        flags = self._flags | _IFF_UP if up else self._flags & ~_IFF_UP
        now_ns = time.time_ns()
        fcntl.ioctl(self._door, _SIOCSIFFLAGS, struct.pack("16sH14x", self._name, flags))
        return now_ns


class Live:
    """A lab whose switches connect to Pathloom's controller."""

    def __init__(
        self, name: str, spec: str, scheme: str, arp: str = "static", more: str = "", address: bool = False
    ) -> None:
        """`address`: whether the switches connect by TCP, from the one daemon that can."""
        self.lab = Lab(name)
        self.target = f"tcp:{controller.ADDRESS}" if address else controller.target(self.lab.directory)
        self.fabric = Fabric(spec)
        self.scheme = scheme
        self.blueprint: Blueprint = self.lab.up(self.fabric, self.target, scheme, arp=arp)
        self.lab.release()
        self.switches = OpenVSwitch(self.blueprint, self.lab.directory)
        self.links = self.fabric.links
        self.process: subprocess.Popen[bytes] | None = None
        self.configure(scheme, arp, more)

    # --- the controller

    def configure(self, scheme: str, arp: str = "static", more: str = "") -> None:
        """Writes the configuration for the next start of the controller."""
        controller.write_config(self.lab.directory, self.fabric, scheme, 1, arp, more)

    def launch(self) -> None:
        """Starts the controller, and waits until every switch is set up and has a session."""
        seen = len(self.log())
        self.process = controller.launch(self.blueprint, self.lab.directory)
        rules = {node: len(own) for node, own, _ in default_tables(self.fabric, self.scheme)}
        controller.await_routes(self.process, self.switches, self.lab.directory, rules)
        self.await_log("a session is up", len(self.blueprint.switches), seen)

    def kill(self) -> None:
        """Kills the controller, as a crash would."""
        assert self.process is not None
        # `ip netns exec` became the controller.
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Ends the controller if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def log(self) -> str:
        """Returns the log of all controllers of this lab."""
        try:
            return (self.lab.directory / "controller.log").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def await_log(self, text: str, times: int = 1, since: int = 0, patience_s: float = PATIENCE_S) -> str:
        """Waits until the controller has logged a text `times` times. Returns the lines."""
        deadline = time.monotonic() + patience_s
        while True:
            found = [line for line in self.log()[since:].splitlines() if text in line]
            if len(found) >= times:
                return "\n".join(found)
            assert time.monotonic() < deadline, f"`{text}` {len(found)} of {times} times in:\n{self.log()[-3000:]}"
            assert self.process is None or self.process.poll() is None, self.log()[-3000:]
            time.sleep(0.05)

    # --- tables of the switches

    def state(self) -> dict[str, dict[int, list[str]]]:
        """Returns all rules, groups and meters that do not come and go by themselves.

        Some rules exist for a quarter of a second in each sweep. Those for ARP of a known host come when it is heard.
        """
        found = {verb: self.switches.dump(verb) for verb in ("dump-flows", "dump-groups", "dump-meters")}
        passing = re.compile("hard_timeout=|arp_sha=")
        rules = {}
        for node, lines in found["dump-flows"].items():
            rules[node] = [line for line in lines if not passing.search(line)]
        return {**found, "dump-flows": rules}

    def flow_rules(self, protocol: str = "udp") -> dict[tuple[str, int], dict[int, list[str]]]:
        """Returns rules of single flows of a protocol, by source address and port and by switch."""
        found: dict[tuple[str, int], dict[int, list[str]]] = {}
        for node, lines in self.switches.dump("dump-flows").items():
            for line in lines:
                if (match := _RULE.search(line)) and f",{protocol}," in line:
                    found.setdefault((match[2], int(match[4])), {}).setdefault(node, []).append(line)
        return found

    def rules_of(self, protocol: str) -> list[str]:
        """Returns rules of single flows of a protocol."""
        own = re.compile(rf"table=1,.*\b{protocol},.*tp_src=")
        return [line for lines in self.switches.dump("dump-flows").values() for line in lines if own.search(line)]

    def path(self, rules: dict[int, list[str]], source: str) -> list[int]:
        """Returns the links along which the rules of a flow lead, from its source's switch to a host."""
        host = next(host for host in self.blueprint.hosts if host.name == source)
        at = self.links["target"][host.ports[0].link]
        links: list[int] = []
        while at in rules:
            best = max(rules[at], key=lambda line: int(_rule_of(line)[1]))
            output = _OUTPUT.search(best)
            if not output:
                return []
            (link,) = [
                link
                for link, node in enumerate(self.links["source"])
                if node == at and self.links["source_port"][link] == int(output[1])
            ]
            links.append(link)
            at = self.links["target"][link]
            assert len(links) < 10, f"a loop: {rules}"
        return links

    def check_rules(self, pairs: Sequence[tuple[str, str]], first_port: int = 20_000) -> list[list[int]]:
        """Asserts that each flow has one rule at each switch of a complete path, and no others. Returns the paths."""
        found = self.flow_rules()
        paths = []
        addresses = {host.name: host.ports[0].address for host in self.blueprint.hosts}
        for index, (source, target) in enumerate(pairs):
            rules = found.pop((addresses[source], first_port + index), {})
            links = self.path(rules, source)
            assert links, f"{source} -> {target}: no path of its own"
            end = next(host.node for host in self.blueprint.hosts if host.name == target)
            assert self.links["target"][links[-1]] == end, f"{source} -> {target} leads to {links}"
            visited = [self.links["source"][link] for link in links]
            doubled = {node: lines for node, lines in rules.items() if len(lines) > 1}
            assert not doubled, f"{source} -> {target} has rules twice: {doubled}"
            leaked = {node: lines for node, lines in rules.items() if node not in visited}
            assert not leaked, f"{source} -> {target} goes by {visited} and has rules at {leaked}"
            paths.append(links)
        assert not found, f"rules of flows that nobody sends: {found}"
        return paths

    def connect(self, bridge: str, target: str | None = None) -> None:
        """Makes a bridge connect to a controller, which is that of this lab if no other is named."""
        self.switches.daemon_of(bridge).set_controller(bridge, target or self.target)

    def disconnect(self, bridge: str) -> None:
        """Ends the session of a bridge. It keeps its rules; without any controller, Open vSwitch would drop them."""
        self.connect(bridge, NOBODY)

    # --- cables

    def place_of(self, link: int) -> str:
        """Returns the namespace of the switch that a link leaves."""
        return next(port.namespace for port in self.blueprint.switch_ports if port.link == link)

    def set_cable(self, link: int, up: bool) -> int:
        """Sets one end of a cable up or down; returns when, in nanoseconds of the real-time clock.

        It does not use `ip`: on a busy machine, a program may take longer to start than flows take to move.
        """

        def act() -> int:
            with Switch(f"l{link}") as switch:
                return switch.set(up)

        return system.inside(self.place_of(link), act)

    def flap(self, link: int, per_s: float, seconds: float) -> int:
        """Takes one end of a cable down and up again `per_s` times per second. Returns how often."""

        def act() -> int:
            with Switch(f"l{link}") as switch:
                start, count = time.monotonic(), 0
                while (passed := time.monotonic() - start) < seconds:
                    # After a pause of the machine, the missed changes follow at once.
                    if count >= passed * per_s:
                        time.sleep(0.25 / per_s)
                        continue
                    switch.set(False)
                    time.sleep(0.25 / per_s)
                    switch.set(True)
                    count += 1
                return count

        return system.inside(self.place_of(link), act)

    def probes(self, pairs: Sequence[tuple[str, str]], **more: float) -> Probes:
        """Probes between pairs of hosts."""
        more.setdefault("rate_hz", PROBES_HZ)
        return Probes(self.blueprint, self.lab.directory, pairs, **more)  # type: ignore[arg-type]

    def await_paths(self, pairs: Sequence[tuple[str, str]], patience_s: float = PATIENCE_S) -> list[list[int]]:
        """Waits until every flow has its own path and no other rules exist."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return self.check_rules(pairs)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


class LiveMembers(Live):
    """The switches of a lab with several controllers that is up."""

    def __init__(self, members: Members, spec: str) -> None:
        self.lab = Lab(members.directory.name)
        self.fabric = Fabric(spec)
        self.blueprint = members.blueprint
        self.switches = OpenVSwitch(self.blueprint, members.directory)
        self.links = self.fabric.links


def _rule_of(line: str) -> re.Match[str]:
    match = _RULE.search(line)
    assert match, line
    return match


def permutation(live: Live, flows: int) -> list[tuple[str, str]]:
    """Returns pairs of hosts of different pods: the i-th host sends to the host half the fabric away."""
    names = [host.name for host in live.blueprint.hosts]
    return [(names[index], names[(index + len(names) // 2) % len(names)]) for index in range(flows)]


@contextmanager
def alive(name: str, spec: str, scheme: str, arp: str = "static", more: str = "") -> Iterator[Live]:
    """A lab with a running controller. The fixture `name` takes the lab down."""
    live = Live(name, spec, scheme, arp, more)
    try:
        live.launch()
        yield live
    finally:
        live.end()


def spoil(tracks: Sequence[Track]) -> list[str]:
    """Returns a text for each flow that lost probes."""
    return [f"{track.source}->{track.target}: {track.lost} of {track.sent} lost" for track in tracks if track.lost]


def run_on(live: Live, host: str, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts a Python program on a host."""
    chosen = next(one for one in live.blueprint.hosts if one.name == host)
    command = ["ip", "netns", "exec", chosen.namespace, "python3", "-c", code, *arguments]
    environment = {**os.environ, system.MARK: str(live.lab.directory)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes], patience_s: float = PATIENCE_S) -> str:
    """Waits for a program that ends by itself. Returns its output."""
    said, _ = process.communicate(timeout=patience_s)
    assert process.returncode == 0, said
    return said.decode()


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Waits until a condition is true."""
    assert await_event(condition, patience_s, 0.05), f"not within {patience_s:g} s: {what}"


def listens(blueprint: Blueprint, host: str, port: int) -> None:
    """Waits until something listens on a TCP port of a host."""
    namespace = next(one.namespace for one in blueprint.hosts if one.name == host)
    command = ["ip", "netns", "exec", namespace, "ss", "-Hltn", f"sport = :{port}"]
    until(lambda: bool(system.run_tool(command).strip()), f"something listens on port {port} of {host}")


HERE = Path(__file__).resolve().parent
