"""Several controllers of a lab: each has a namespace of its own with an etcd, and one of them leads.

The namespaces are joined by a bridge in the namespace of the first switches. Switches and the agent of the hosts
connect to all controllers by Unix sockets in the run directory, which every namespace can reach.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathloom.errors import ToolError, bad_input
from pathloom.fabrics import Fabric
from pathloom.lab import controller, door, hostd, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.switches import OpenVSwitch
from pathloom.lab.tables import default_tables
from pathloom.native import program
from pathloom.waiting import SYSTEM, Clock, await_event

if TYPE_CHECKING:
    from pathloom.lab.hosts import HostStack
    from pathloom.lab.lab import Lab

COUNT = 3
"""Number of controllers: the least of which one may be lost."""
TTL_S = 2
"""Usual time to live of the leader's lease."""
API_PORT = 6680
PATIENCE_S = 60.0
_BRIDGE = "members"
_CLIENTS, _PEERS = 2379, 2380
"""Ports of etcd."""
_READ_S, _CHANGE_S = 2.0, 30.0
"""Time in which a controller answers. A change is answered when etcd has it, or after 20 s."""
_started: dict[Path, subprocess.Popen[bytes]] = {}
"""Programs that this process has started, by their logs."""


def name(number: int) -> str:
    """The name of a controller."""
    return f"c{number}"


def election_timeout_ms(ttl_s: int) -> int:
    """Etcd's own leader is replaced in half of the time of a lease, as with its defaults and the usual lease."""
    return 500 * ttl_s


@cache
def _without_fsync() -> list[str]:
    """The option by which etcd does not wait for the disk, if this version has it (3.4.10)."""
    option = "--unsafe-no-fsync"
    with suppress(OSError):
        if subprocess.run(["etcd", option, "--version"], capture_output=True, check=False).returncode == 0:
            return [option]
    return []


def etcd_command(own_name: str, data: Path, client: str, peers: Mapping[str, str], timeout_ms: int) -> list[str]:
    """The command of an etcd of a cluster. `peers`: URLs by name, its own included; `timeout_ms`: of its elections.

    It does not wait for the disk, which three etcds of one machine share with everything else. A killed etcd loses
    nothing by that, and a lab ends with its machine.
    """
    words = {
        "name": own_name,
        "data-dir": str(data),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peers[own_name],
        "initial-advertise-peer-urls": peers[own_name],
        "initial-cluster": ",".join(f"{one}={url}" for one, url in peers.items()),
        "heartbeat-interval": str(timeout_ms // 10),
        "election-timeout": str(timeout_ms),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "5m",
    }
    return ["etcd", *(f"--{key}={value}" for key, value in words.items()), *_without_fsync()]


class Members:
    """The controllers of a lab, which may run or not."""

    def __init__(self, blueprint: Blueprint, directory: Path, count: int = COUNT, ttl_s: int = TTL_S) -> None:
        """The parts are found by their names and the run directory. `ttl_s` is for those that are started anew."""
        self.blueprint = blueprint
        self.ttl_s = ttl_s
        self.directory = directory
        self.numbers = range(count)

    # --- places

    def namespace(self, number: int) -> str:
        """The namespace of a controller and its etcd."""
        return f"{self.blueprint.namespace.rpartition('.')[0]}.controller{number}"

    def address(self, number: int) -> str:
        """The address at which others reach the etcd of a controller."""
        return f"198.18.0.{11 + number}"

    def api(self, number: int) -> str:
        """The address of the API, inside the namespace of a controller."""
        return f"127.0.0.{11 + number}:{API_PORT}"

    def config(self, number: int) -> Path:
        """The configuration of a controller."""
        return self.directory / f"{name(number)}.toml"

    def log(self, number: int) -> Path:
        """The log of a controller."""
        return self.directory / f"{name(number)}.log"

    def for_switches(self, number: int) -> Path:
        """The socket of a controller for switches."""
        # Open vSwitch connects only to sockets that are in the directory of its own sockets.
        return self.directory / "ovs" / f"{name(number)}.sock"

    def for_hosts(self, number: int) -> Path:
        """The socket of a controller for host agents."""
        return self.directory / f"{name(number)}.hosts.sock"

    # --- start

    def build(self) -> None:
        """Makes the namespaces and their cables. Raises `ToolError`."""
        system.batch("ip", None, [f"netns add {self.namespace(number)}" for number in self.numbers])
        lines = [f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up"]
        for number in self.numbers:
            lines += [
                f"link add member{number} type veth peer name eth0 netns {self.namespace(number)}",
                f"link set member{number} master {_BRIDGE} up",
            ]
        system.batch("ip", self.blueprint.namespace, lines)
        for number in self.numbers:
            own = ["link set lo up", f"address add {self.address(number)}/24 dev eth0", "link set eth0 up"]
            system.batch("ip", self.namespace(number), own)

    def set_connected(self, number: int, connected: bool) -> None:
        """Connects a controller and its etcd with the others, or cuts them off. Raises `ToolError`."""
        system.batch("ip", self.blueprint.namespace, [f"link set member{number} {'up' if connected else 'down'}"])

    def start_etcd(self, number: int) -> None:
        """Starts an etcd, which keeps its data over a restart."""
        own = name(number)
        peers = {name(one): f"http://{self.address(one)}:{_PEERS}" for one in self.numbers}
        client = f"http://{self.address(number)}:{_CLIENTS}"
        command = etcd_command(own, self.directory / f"{own}.etcd", client, peers, election_timeout_ms(self.ttl_s))
        self._run(number, command, self.etcd_log(number))

    def etcd_log(self, number: int) -> Path:
        """The log of an etcd."""
        return self.directory / f"{name(number)}.etcd.log"

    def write_configs(self, fabric: Fabric, scheme: str, seed: int = 1) -> None:
        """Writes the configurations, and the token of the API."""
        spec = controller.write_fabric(self.directory, fabric)
        tokens = door.prepare(self.directory)
        for number in self.numbers:
            words: dict[str, dict[str, object]] = {
                "fabric": {"spec": spec},
                "scheme": controller.scheme_table(scheme, seed),
                "listen": {"address": controller.ADDRESS, "unix": str(self.for_switches(number))},
                "hosts": {"unix": str(self.for_hosts(number))},
                "discovery": {"hosts": "configured"},
                "api": {"address": self.api(number), "tokens": str(tokens)},
                "cluster": {
                    "endpoints": [f"http://{self.address(one)}:{_CLIENTS}" for one in self._own_first(number)],
                    "name": name(number),
                    "ttl": f"{self.ttl_s}s",
                },
            }
            self.config(number).write_text("\n".join([*controller.toml_lines(words), ""]), encoding="utf-8")

    def _own_first(self, number: int) -> list[int]:
        return [number, *(one for one in self.numbers if one != number)]

    def start(self, number: int, executable: str | None = None) -> None:
        """Starts a controller, by another program than the usual one if that is given."""
        self._run(number, [executable or program(), "--config", str(self.config(number))], self.log(number))

    def _run(self, number: int, command: list[str], log: Path) -> None:
        process = system.start_daemon([*system.within(self.namespace(number)), *command], log, self.directory)
        # In a real network, each of them has its own machine.
        system.give_priority(process.pid)
        for over in [one for one, started in _started.items() if started.poll() is not None]:
            del _started[over]
        _started[log] = process

    def connect(self, switches: OpenVSwitch) -> None:
        """Makes all switches connect to all controllers. Raises `ToolError`."""
        targets = [f"unix:{self.for_switches(number)}" for number in self.numbers]
        for one in self.blueprint.switches:
            switches.daemon_of(one.bridge).set_controllers(one.bridge, targets)

    # --- state

    def running(self, number: int) -> int | None:
        """The process number of a controller; None if it does not run."""
        found = controller.process_with(self.config(number))
        return None if found is None or system.is_over(found) else found

    def ask(self, number: int, path: str, method: str = "GET", content: object = None) -> Any:
        """The answer of the API of a controller; None if it does not answer. `content` is sent as JSON."""
        address, _, port = self.api(number).rpartition(":")
        token = (self.directory / door.TOKENS).read_text(encoding="ascii").split()[2]

        def asked() -> Any:
            patience_s = _READ_S if method == "GET" else _CHANGE_S
            line = http.client.HTTPConnection(address, int(port), timeout=patience_s)
            try:
                body = None if content is None else json.dumps(content)
                line.request(method, path, body, headers={"Authorization": f"Bearer {token}"})
                return json.loads(line.getresponse().read())
            finally:
                line.close()

        with suppress(OSError, http.client.HTTPException, ValueError):
            return system.inside(self.namespace(number), asked)
        return None

    def cluster(self, number: int) -> dict[str, Any]:
        """What a controller says about itself and the others; empty if it does not answer."""
        found = self.ask(number, "/v1/cluster")
        return found if isinstance(found, dict) else {}

    def leader(self, among: Sequence[int] | None = None) -> int | None:
        """The one of these controllers that leads and that etcd confirms; None if none does.

        A controller that is not among them is not asked: one that stands still answers late.
        """
        asked = self.numbers if among is None else among
        return next((number for number in asked if self.cluster(number).get("confirmed")), None)

    def await_leader(self, among: Sequence[int] | None = None, clock: Clock = SYSTEM) -> int:
        """Waits until a controller leads and all switches have a session with it. Returns it. Raises `ToolError`."""
        found: list[int] = []

        def leads() -> bool:
            leader = self.leader(among)
            if leader is None:
                return False
            state = self.ask(leader, "/v1/state") or {}
            if state.get("sessions") != len(self.blueprint.switches):
                return False
            found.append(leader)
            return True

        if not await_event(leads, PATIENCE_S, 0.05, clock):
            raise ToolError(f"no controller has led all switches within {PATIENCE_S:g} s; see {self.directory}/c*.log")
        return found[-1]

    def kill(self, number: int) -> None:
        """Kills a controller, as a crash would."""
        process = self.running(number)
        if process is not None:
            os.kill(process, signal.SIGKILL)
            started = _started.pop(self.log(number), None)
            if started is not None:
                started.wait()
            await_event(lambda: system.is_over(process), PATIENCE_S, 0.01)

    def rows(self) -> list[dict[str, Any]]:
        """The state of each controller, for `lab status`."""
        rows = []
        for number in self.numbers:
            said = self.cluster(number)
            rows.append(
                {
                    "name": name(number),
                    "process": self.running(number),
                    "leads": bool(said.get("confirmed")),
                    "leader": said.get("leader"),
                    "namespace": self.namespace(number),
                }
            )
        return rows


def check_installed() -> None:
    """Raises `PathloomError` if a lab cannot have several controllers on this machine."""
    if system.find_tool("etcd") is None:
        raise bad_input("--controllers: `etcd` is missing; on Debian: apt-get install etcd-server")


def put_up(
    lab: Lab,
    fabric: Fabric,
    scheme: str,
    stack: HostStack | None = None,
    say: Callable[[str], None] = lambda _text: None,
    daemons: int | None = None,
    ttl_s: int = TTL_S,
    api: bool = False,
) -> tuple[Members, int]:
    """Builds a lab with several controllers, with this lease. Returns them and the number of the one that leads.

    With `api`, their APIs are served at ports of the machine's loopback interface.

    After an error or Ctrl-C, everything that was built is removed. The caller keeps the lab locked until `release`.
    Raises `PathloomError`, `ToolError`.
    """
    check_installed()
    first = f"unix:{lab.directory / 'ovs' / name(0)}.sock"
    blueprint = lab.up(fabric, first, scheme, stack, say, daemons=daemons)
    members = Members(blueprint, lab.directory, ttl_s=ttl_s)
    try:
        leader = _start(members, OpenVSwitch(blueprint, lab.directory), fabric, scheme)
        if api:
            door.open_doors(lab.directory, [(members.namespace(one), members.api(one)) for one in members.numbers])
        lab.note(controller=controller.OWN, controllers=COUNT, scheme=scheme)
    except BaseException:
        with system.uninterrupted():
            lab.down()
        raise
    return members, leader


def _start(members: Members, switches: OpenVSwitch, fabric: Fabric, scheme: str) -> int:
    """Starts everything on a lab whose switches have no rules yet. Returns the number of the leader."""
    members.build()
    members.write_configs(fabric, scheme)
    for number in members.numbers:
        members.start_etcd(number)
    for number in members.numbers:
        members.start(number)

    def listen() -> bool:
        return all(members.for_switches(number).exists() for number in members.numbers)

    if not await_event(listen, PATIENCE_S, 0.05):
        raise ToolError(f"not all controllers listen: {system.last_line(members.log(0))}")
    members.connect(switches)
    leader = members.await_leader()
    rules = {node: len(own) for node, own, _ in default_tables(fabric, scheme)}

    def have_rules() -> bool:
        return all(count >= rules[node] for node, count in switches.rule_counts().items())

    if not await_event(have_rules, PATIENCE_S, 0.05):
        raise ToolError(f"{name(leader)} has not set up the switches; see {members.log(leader)}")
    hostd.start(members.blueprint, members.directory, sockets=[members.for_hosts(one) for one in members.numbers])
    return leader
