"""A private Open vSwitch: its database, its sockets and its daemons live in the lab's run directory and namespace."""

from __future__ import annotations

import ctypes
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pathloom.errors import ToolError
from pathloom.lab.blueprint import Blueprint, Switch
from pathloom.lab.system import MARK, find_tool, run_at_once, run_tool

SCHEMA_FILE = Path("/usr/share/openvswitch/vswitch.ovsschema")
SEND_BUFFER_BYTES = 1 << 30
"""Of the one socket that all ports send through."""
RECEIVE_BUFFER_BYTES = 1 << 26
"""Of the socket of each port."""
TOOLS_AT_ONCE = 4
SESSIONS_AT_ONCE = 32
"""OpenFlow sessions: they wait for the switches' next round more than they work."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23
_PIDFD_GETFD = 438


class OpenVSwitch:
    """The instance of one lab."""

    def __init__(self, blueprint: Blueprint, run_directory: Path) -> None:
        self.blueprint = blueprint
        self.lab_directory = run_directory
        self.directory = run_directory / "ovs"

    @property
    def database(self) -> str:
        """Where `ovs-vsctl` finds it."""
        return f"unix:{self.directory}/db.sock"

    def start(self) -> None:
        """Starts database and switch daemon, and returns when they answer. Raises `ToolError`."""
        self.directory.mkdir(mode=0o700)
        schema = SCHEMA_FILE if SCHEMA_FILE.exists() else Path("/usr/local/share/openvswitch/vswitch.ovsschema")
        database = self.directory / "conf.db"
        self._tool(["ovsdb-tool", "create", database, schema])
        daemon = ["--no-chdir", "--detach", f"--log-file={self.directory}/{{}}.log", "--pidfile", "-vconsole:off"]
        self._tool(
            ["ovsdb-server", f"--remote=punix:{self.directory}/db.sock", *_named(daemon, "ovsdb-server"), database]
        )
        self._tool(["ovs-vsctl", f"--db={self.database}", "--no-wait", "init"])
        within = ["ip", "netns", "exec", self.blueprint.namespace]
        switch_daemon = find_tool("ovs-vswitchd") or "ovs-vswitchd"
        self._tool([*within, switch_daemon, *_named(daemon, "ovs-vswitchd"), self.database])
        run_at_once(self._process())

    def add_bridges(self, controller: str | None) -> None:
        """Makes every bridge with its ports, in one transaction. Raises `ToolError`."""
        arguments: list[str] = []
        for switch in self.blueprint.switches:
            arguments += _bridge_arguments(switch, controller)
        bridges = {switch.node: switch.bridge for switch in self.blueprint.switches}
        for port in self.blueprint.switch_ports:
            arguments += ["--", "add-port", bridges[port.switch], port.interface]
            arguments += ["--", "set", "Interface", port.interface, f"ofport_request={port.number}"]
        self.vsctl(arguments[1:])
        # The daemon reports in the database, not in the exit code, when a device would not do.
        table = json.loads(self.vsctl(["--format=json", "--columns=name,error,ofport", "list", "Interface"]))
        for name, error, number in table["data"]:
            if isinstance(error, str) and error:
                raise ToolError(f"Open vSwitch: {name}: {error}")
            if number == -1:
                raise ToolError(f"Open vSwitch: {name}: could not be opened; see {self.directory}/ovs-vswitchd.log")
        numbers = {name: number for name, _, number in table["data"]}
        for port in self.blueprint.switch_ports:
            if numbers.get(port.interface) != port.number:
                found = numbers.get(port.interface)
                raise ToolError(f"Open vSwitch: {port.interface} became port {found}, not {port.number}")

    def vsctl(self, arguments: Sequence[str]) -> str:
        """Runs `ovs-vsctl`. Raises `ToolError`."""
        return self._tool(["ovs-vsctl", f"--db={self.database}", "--timeout=60", *arguments])

    def connected_bridges(self) -> dict[str, bool]:
        """By bridge, whether its controller is connected; bridges without one are left out."""
        bridges = json.loads(self.vsctl(["--format=json", "--columns=name,controller", "list", "Bridge"]))["data"]
        controllers = json.loads(self.vsctl(["--format=json", "--columns=_uuid,is_connected", "list", "Controller"]))
        connected = {uuid[1]: is_connected for (uuid, is_connected) in controllers["data"]}
        return {name: connected.get(ref[1], False) for name, ref in bridges if ref[0] == "uuid"}

    def write_tables(
        self, groups: Mapping[int, Iterable[str]], flows: Mapping[int, Iterable[str]], clear: bool = True
    ) -> None:
        """Gives switches groups and flows, by node number, in place of what they had (each at once), or besides.

        Raises `ToolError`.
        """

        def write(switch: Switch) -> None:
            lines = ["flow delete", "group delete group_id=all"] if clear else []
            lines += [f"group add {line}" for line in groups.get(switch.node, ())]
            lines += [f"flow add {line}" for line in flows.get(switch.node, ())]
            self._ofctl(switch, "bundle", lines)

        with ThreadPoolExecutor(SESSIONS_AT_ONCE) as pool:
            list(pool.map(write, self.blueprint.switches))

    def add_flows(self, flows: Mapping[int, Iterable[str]]) -> None:
        """Gives switches more flows, by node number. Raises `ToolError`."""
        self.write_tables({}, flows, clear=False)

    def rule_counts(self) -> dict[int, int]:
        """How many rules each switch has, by node number. Raises `ToolError`."""

        def count(switch: Switch) -> tuple[int, int]:
            target = f"unix:{self.directory}/{switch.bridge}.mgmt"
            said = self._tool(["ovs-ofctl", "-O", "OpenFlow15", "dump-aggregate", target])
            return switch.node, int(said.rpartition("flow_count=")[2].split()[0])

        with ThreadPoolExecutor(SESSIONS_AT_ONCE) as pool:
            return dict(pool.map(count, self.blueprint.switches))

    def dump(self, verb: str) -> dict[int, list[str]]:
        """What `ovs-ofctl` says to `dump-flows`, `dump-groups` or `dump-meters`, by node number, without counters.

        Raises `ToolError`.
        """
        options = ["--no-stats"] if verb == "dump-flows" else []

        def read(switch: Switch) -> tuple[int, list[str]]:
            target = f"unix:{self.directory}/{switch.bridge}.mgmt"
            said = self._tool(["ovs-ofctl", "-O", "OpenFlow15", *options, verb, target])
            return switch.node, sorted(line.strip() for line in said.splitlines()[1:])

        with ThreadPoolExecutor(SESSIONS_AT_ONCE) as pool:
            return dict(pool.map(read, self.blueprint.switches))

    def widen_buffers(self) -> None:
        """Makes room in the sockets that ports send and receive through. Raises `ToolError`.

        The daemon sends every port's frames through one packet socket, whose buffer would hold less than a hundred
        frames over all links, and receives each port's through one as small: what does not fit is lost outside every
        queue, and no counter shows it. The first comes to be with the first frame sent, so one is sent on a bridge's
        first port.
        """
        first = self.blueprint.switches[0]
        port = next(port for port in self.blueprint.switch_ports if port.switch == first.node)
        nothing = "ffffffffffff0200000000ff88b5" + "00" * 46  # An Ethernet type for experiments (IEEE 802).
        self._ofctl(first, "packet-out", f"in_port=controller,packet={nothing},actions=output:{port.number}")
        process, count = self._process(), 0
        for duplicate in _duplicates(process, _packet_sockets(process)):
            with duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
                duplicate.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
                # Else every frame sent is copied to its own port's socket, which throws the copy away.
                duplicate.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
                count += 1
        if count <= len(self.blueprint.switch_ports):
            raise ToolError(
                f"Open vSwitch: found {count} packet sockets, expected one per port and one to send through"
            )

    def keep_to(self, processors: set[int]) -> None:
        """Keeps the thread that forwards, and no other, on these processors."""
        os.sched_setaffinity(self._process(), processors)

    def buffers(self) -> list[tuple[int, int]]:
        """Send and receive buffer of every packet socket of the daemon, in bytes as the kernel counts them."""
        process, sizes = self._process(), []
        for duplicate in _duplicates(process, _packet_sockets(process)):
            with duplicate:
                send, receive = (
                    duplicate.getsockopt(socket.SOL_SOCKET, one) for one in (socket.SO_SNDBUF, socket.SO_RCVBUF)
                )
                sizes.append((send, receive))
        return sizes

    def _process(self) -> int:
        return int((self.directory / "ovs-vswitchd.pid").read_text(encoding="ascii"))

    def _ofctl(self, switch: Switch, verb: str, what: str | Sequence[str]) -> None:
        """Runs a verb of `ovs-ofctl` with an argument, or with lines as its input."""
        words = ["ovs-ofctl", "-O", "OpenFlow15", verb, f"unix:{self.directory}/{switch.bridge}.mgmt"]
        if isinstance(what, str):
            self._tool([*words, what])
        else:
            self._tool([*words, "-"], "".join(f"{line}\n" for line in what))

    def _tool(self, arguments: Sequence[str | Path], text: str | None = None) -> str:
        places = {name: str(self.directory) for name in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")}
        return run_tool(arguments, text, {**places, MARK: str(self.lab_directory)})


def _named(arguments: Iterable[str], name: str) -> list[str]:
    return [argument.format(name) for argument in arguments]


def _bridge_arguments(switch: Switch, controller: str | None) -> Iterator[str]:
    name = switch.bridge
    yield from ("--", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev", "fail_mode=secure")
    yield from ("protocols=OpenFlow13,OpenFlow15", f"other_config:datapath-id={switch.dpid}")
    yield from ("other_config:disable-in-band=true", "mcast_snooping_enable=false")
    if controller is not None:
        yield from ("--", "set-controller", name, controller)
        yield from ("--", "set", "Controller", name, "connection_mode=out-of-band", "max_backoff=1000")


def _packet_sockets(process: int) -> set[int]:
    """Inodes of the packet sockets in a process's network namespace."""
    rows = Path(f"/proc/{process}/net/packet").read_text(encoding="ascii").splitlines()[1:]
    return {int(row.split()[8]) for row in rows}


def _duplicates(process: int, inodes: set[int]) -> Iterator[socket.socket]:
    """Our own descriptors of those sockets of another process (pidfd_getfd)."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(process)
    try:
        for entry in os.scandir(f"/proc/{process}/fd"):
            try:
                target = str(Path(entry.path).readlink())
            except OSError:
                continue
            if target.startswith("socket:[") and int(target[8:-1]) in inodes:
                copy = libc.syscall(_PIDFD_GETFD, handle, int(entry.name), 0)
                if copy < 0:
                    raise ToolError(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}; Linux 5.6 or later is needed")
                yield socket.socket(fileno=copy)
    finally:
        os.close(handle)
