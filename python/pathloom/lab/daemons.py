"""One daemon of Open vSwitch: the thread that forwards for some of a lab's switches, its database, its sockets."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import socket
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from pathloom.errors import ToolError
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, Switch, ordinal
from pathloom.lab.system import MARK, find_tool, give_priority, run_tool

SCHEMA_FILE = Path("/usr/share/openvswitch/vswitch.ovsschema")
SEND_BUFFER_BYTES = 1 << 30
"""Buffer of the one socket through which all ports send."""
RECEIVE_BUFFER_BYTES = 1 << 26
"""Buffer of the receiving socket of each port."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23
_PIDFD_GETFD = 438
ALLOCATOR, ALLOCATOR_PACKAGE = "tcmalloc_minimal", "libtcmalloc-minimal4"
"""Memory allocator that the daemon uses if it is installed, and its Debian package."""


class Daemon:
    """One of the daemons of a lab, with its own network namespace and database.

    All daemons share a directory. There `ovs-ofctl` finds a switch by its name, whichever daemon runs it, and a switch
    finds its controller. The names of a daemon's files contain its ordinal.
    """

    def __init__(self, blueprint: Blueprint, number: int, lab_directory: Path) -> None:
        self.namespace = blueprint.switch_namespaces[number]
        self.switches = [switch for switch in blueprint.switches if switch.namespace == self.namespace]
        self.ports = blueprint.ports_in(self.namespace)
        self.lab_directory = lab_directory
        self.directory = lab_directory / "ovs"
        self._ordinal = ordinal(number)

    @property
    def database(self) -> str:
        """Address of the database, for `ovs-vsctl`."""
        return f"unix:{self._file('db', '.sock')}"

    def start(self) -> None:
        """Starts database and switch daemon, and returns when they answer. Raises `ToolError`."""
        schema = SCHEMA_FILE if SCHEMA_FILE.exists() else Path("/usr/local/share/openvswitch/vswitch.ovsschema")
        database = self._file("conf", ".db")
        self._tool(["ovsdb-tool", "create", database, schema])
        self._tool(["ovsdb-server", f"--remote=p{self.database}", *self._options("ovsdb-server"), database])
        self._tool(["ovs-vsctl", f"--db={self.database}", "--no-wait", "init"])
        within = ["ip", "netns", "exec", self.namespace]
        program = find_tool("ovs-vswitchd") or "ovs-vswitchd"
        self._tool([*within, program, *self._options("ovs-vswitchd"), self.database], preload=allocator())
        give_priority(self.process())

    def runs(self) -> bool:
        """Returns whether its processes run: the one that forwards, and the one that has the database."""
        return self._has("ovs-vswitchd") and self._has("ovsdb-server")

    def _has(self, program: str) -> bool:
        try:
            process = self.process(program)
            ours = Path(f"/proc/{process}/comm").read_text(encoding="ascii").startswith(program)
            return ours and not system.is_over(process)
        except (OSError, ValueError):
            return False

    def process(self, program: str = "ovs-vswitchd") -> int:
        """Returns the number of a process of the daemon. Raises `OSError` if it was never started."""
        return int(self._file(program, ".pid").read_text(encoding="ascii"))

    def add_bridges(self, controller: str | None) -> None:
        """Makes every bridge with its ports, in one transaction. Raises `ToolError`."""
        arguments: list[str] = []
        for switch in self.switches:
            arguments += _bridge_arguments(switch, controller)
        bridges = {switch.node: switch.bridge for switch in self.switches}
        for port in self.ports:
            arguments += ["--", "add-port", bridges[port.switch], port.interface]
            arguments += ["--", "set", "Interface", port.interface, f"ofport_request={port.number}"]
        self.vsctl(arguments[1:])
        # The daemon reports an unusable device in the database, not in the exit code.
        table = json.loads(self.vsctl(["--format=json", "--columns=name,error,ofport", "list", "Interface"]))
        for name, error, number in table["data"]:
            if isinstance(error, str) and error:
                raise ToolError(f"Open vSwitch: {name}: {error}")
            if number == -1:
                log = self._file("ovs-vswitchd", ".log")
                raise ToolError(f"Open vSwitch: {name}: could not be opened; see {log}")
        numbers = {name: number for name, _, number in table["data"]}
        for port in self.ports:
            if numbers.get(port.interface) != port.number:
                found = numbers.get(port.interface)
                raise ToolError(f"Open vSwitch: {port.interface} became port {found}, not {port.number}")

    def set_controller(self, bridge: str, target: str) -> None:
        """Makes a bridge connect to another controller. Raises `ToolError`."""
        self.vsctl(list(_controller_arguments(bridge, target))[1:])

    def set_controllers(self, bridge: str, targets: Sequence[str]) -> None:
        """Makes a bridge connect to several controllers. Raises `ToolError`."""
        self.vsctl(["set-controller", bridge, *targets])
        rows = json.loads(self.vsctl(["--format=json", "--columns=controller", "list", "Bridge", bridge]))["data"][0][0]
        for _, row in rows[1] if rows[0] == "set" else [rows]:
            self.vsctl(["set", "Controller", row, *_OUT_OF_BAND])

    def vsctl(self, arguments: Sequence[str]) -> str:
        """Runs `ovs-vsctl`. Raises `ToolError`."""
        return self._tool(["ovs-vsctl", f"--db={self.database}", "--timeout=60", *arguments])

    def connected_bridges(self) -> dict[str, bool]:
        """Returns, by bridge, whether its controller is connected; bridges without a controller are left out.

        Of several controllers, it is the one that leads.
        """
        bridges = json.loads(self.vsctl(["--format=json", "--columns=name,controller", "list", "Bridge"]))["data"]
        columns = "--columns=_uuid,is_connected,role"
        controllers = json.loads(self.vsctl(["--format=json", columns, "list", "Controller"]))
        connected = {uuid[1]: is_connected for (uuid, is_connected, _) in controllers["data"]}
        leads = {uuid[1]: is_connected and role == "master" for (uuid, is_connected, role) in controllers["data"]}
        found = {name: connected.get(ref[1], False) for name, ref in bridges if ref[0] == "uuid"}
        several = {name: ref[1] for name, ref in bridges if ref[0] == "set" and ref[1]}
        return found | {name: any(leads.get(one[1], False) for one in refs) for name, refs in several.items()}

    def widen_buffers(self) -> None:
        """Enlarges the buffers of the sockets that ports send and receive through. Raises `ToolError`.

        The daemon sends the frames of all ports through one packet socket, whose buffer would hold less than a hundred
        frames for all links. It receives the frames of each port through another socket that is as small. Frames that
        do not fit are lost outside every queue, and no counter shows it. The daemon makes the sending socket with the
        first frame that it sends, so this method sends a frame on a bridge's first port.
        """
        first = self.ports[0]
        bridge = next(switch.bridge for switch in self.switches if switch.node == first.switch)
        nothing = "ffffffffffff0200000000ff88b5" + "00" * 46  # An Ethernet type for experiments (IEEE 802).
        self.ofctl("packet-out", bridge, f"in_port=controller,packet={nothing},actions=output:{first.number}")
        process, count = self.process(), 0
        for duplicate in _duplicates(process, _packet_sockets(process)):
            with duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
                duplicate.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
                # Otherwise every sent frame is copied to the socket of its own port, which discards the copy.
                duplicate.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
                count += 1
        if count <= len(self.ports):
            raise ToolError(
                f"Open vSwitch: found {count} packet sockets, expected one per port and one to send through"
            )

    def keep_to(self, processors: set[int]) -> None:
        """Binds the forwarding thread, and no other thread, to these processors."""
        os.sched_setaffinity(self.process(), processors)

    def buffers(self) -> list[tuple[int, int]]:
        """Send and receive buffer of every packet socket of the daemon, in bytes as the kernel counts them."""
        process, sizes = self.process(), []
        for duplicate in _duplicates(process, _packet_sockets(process)):
            with duplicate:
                send, receive = (
                    duplicate.getsockopt(socket.SOL_SOCKET, one) for one in (socket.SO_SNDBUF, socket.SO_RCVBUF)
                )
                sizes.append((send, receive))
        return sizes

    def ofctl(self, verb: str, bridge: str, *words: str, text: str | None = None) -> str:
        """Runs a verb of `ovs-ofctl` on a bridge, with `text` as its input. Raises `ToolError`."""
        return self._tool(["ovs-ofctl", "-O", "OpenFlow15", verb, f"unix:{self.directory}/{bridge}.mgmt", *words], text)

    def discard_cached_decisions(self) -> None:
        """Discards what the daemon has cached of its rules. Raises `ToolError`.

        Open vSwitch looks up a cached decision again some time after the rules have changed, up to half a second on an
        idle machine. Until then it treats packets by rules that no longer exist, or drops them.
        """
        self.appctl("revalidator/purge")

    def appctl(self, *words: str) -> str:
        """Runs a command of `ovs-appctl` on the daemon. Raises `ToolError`."""
        return self._tool(["ovs-appctl", "-t", self.directory / f"ovs-vswitchd.{self.process()}.ctl", *words])

    def _file(self, name: str, ending: str) -> Path:
        return self.directory / f"{name}{self._ordinal}{ending}"

    def _options(self, name: str) -> list[str]:
        files = [f"--log-file={self._file(name, '.log')}", f"--pidfile={self._file(name, '.pid')}"]
        return ["--no-chdir", "--detach", "-vconsole:off", *files]

    def _tool(self, arguments: Sequence[str | Path], text: str | None = None, preload: str | None = None) -> str:
        """Runs a tool of Open vSwitch, with a library before its others. Raises `ToolError`."""
        environment = dict.fromkeys(("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"), str(self.directory))
        if preload is not None:
            environment["LD_PRELOAD"] = ":".join(filter(None, (preload, os.environ.get("LD_PRELOAD"))))
        return run_tool(arguments, text, {**environment, MARK: str(self.lab_directory)})


@cache
def allocator() -> str | None:
    """Returns the library of the daemon's memory allocator; None for the allocator of the C library.

    In each round, the daemon allocates memory for a burst of packets for every port, and frees the unused part. glibc
    does not cache blocks of that size, and takes two fifths of the daemon's time for that.
    """
    return ctypes.util.find_library(ALLOCATOR)


def performance_notes() -> list[str]:
    """Returns what makes switches slower than they can be, as notes for the reader of the results."""
    if allocator() is not None:
        return []
    return [f"switches forward up to a tenth less than they can: on Debian, apt-get install {ALLOCATOR_PACKAGE}"]


_OUT_OF_BAND = ("connection_mode=out-of-band", "max_backoff=1000")


def _bridge_arguments(switch: Switch, controller: str | None) -> Iterator[str]:
    name = switch.bridge
    yield from ("--", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev", "fail_mode=secure")
    yield from ("protocols=OpenFlow13,OpenFlow15", f"other_config:datapath-id={switch.dpid}")
    yield from ("other_config:disable-in-band=true", "mcast_snooping_enable=false")
    if controller is not None:
        yield from _controller_arguments(name, controller)


def _controller_arguments(bridge: str, target: str) -> Iterator[str]:
    yield from ("--", "set-controller", bridge, target)
    yield from ("--", "set", "Controller", bridge, *_OUT_OF_BAND)


def _packet_sockets(process: int) -> set[int]:
    """Inodes of the packet sockets in a process's network namespace."""
    rows = Path(f"/proc/{process}/net/packet").read_text(encoding="ascii").splitlines()[1:]
    return {int(row.split()[8]) for row in rows}


def _duplicates(process: int, inodes: set[int]) -> Iterator[socket.socket]:
    """Yields duplicates of these sockets of another process (pidfd_getfd)."""
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
