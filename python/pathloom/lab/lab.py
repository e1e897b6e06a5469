"""A lab: puts it up, finds it again, takes it down. Its parts are found by names and the run directory only."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pathloom.errors import ToolError, bad_input, reason
from pathloom.fabrics import Fabric
from pathloom.lab import controller, delays, door, hostd, hosts, links, management, program_switches, rules, system
from pathloom.lab.blueprint import NAMESPACE_PREFIX, Blueprint, Host
from pathloom.lab.daemons import Daemon, performance_notes
from pathloom.lab.hosts import HostStack, Subflows
from pathloom.lab.program_switches import PathFindingSwitches
from pathloom.lab.routed import frr, routers
from pathloom.lab.routed.routers import Routers
from pathloom.lab.routed.settings import FRR, RouterSettings
from pathloom.lab.switches import TOOLS_AT_ONCE, OpenVSwitch
from pathloom.lab.tables import SwitchTables, default_tables
from pathloom.waiting import await_event

RUN_DIRECTORY = Path("/run/pathloom")
DEFAULT_NAME = "lab"
STARTING, UP = "starting", "up"
REAL_ARP = "real"
"""Hosts ask each other for hardware addresses by ARP."""
ROUTER_ARP = "router"
"""Hosts know the hardware addresses of their routers, and send everything to them."""
LOCK_PATIENCE_S = 10.0

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


class Lab:
    """One lab of this machine, which may exist or not."""

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        """Names a lab. Raises `PathloomError` if the name is not valid."""
        if not _NAME.match(name):
            raise bad_input(
                f"--name `{name}`: expected up to 32 of a-z, 0-9, - and _, beginning with a letter or digit"
            )
        self.name = name
        self.directory = RUN_DIRECTORY / name
        self.prefix = f"{NAMESPACE_PREFIX}{name}."
        self._lock: int | None = None
        self.keeper: list[int] | None = None
        """Process, and its start, without which the lab is orphaned; None for a lab that is up until `down`."""
        self._controller: subprocess.Popen[bytes] | None = None
        self._agent_arguments: tuple[int, Subflows | None] | None = None
        """Arguments with which the agent of the hosts was started."""

    # --- state

    def state(self) -> dict[str, Any] | None:
        """Returns the record that was written when the lab was put up; None if it is missing or incomplete."""
        try:
            found = json.loads((self.directory / "lab.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def blueprint(self) -> Blueprint:
        """The blueprint of a lab that is up. Raises `PathloomError` when it is not."""
        state = self.state()
        if state is None or state.get("state") != UP:
            known = ", ".join(known_labs())
            hint = f"; existing labs: {known}" if known else ""
            raise bad_input(f"lab `{self.name}`: is not up{hint} (put it up with `pathloom lab up FABRIC`)")
        return Blueprint.from_dict(state["blueprint"])

    def own_files(self) -> tuple[Path, Path]:
        """The files that replace those of /etc for programs of `lab exec`."""
        return self.directory / "hosts", self.directory / "resolv.conf"

    def exists(self) -> bool:
        """Returns whether any part of the lab exists."""
        return self.directory.exists() or bool(system.namespaces_of(self.prefix))

    def stands(self) -> bool:
        """Returns whether a lab that is up still has its namespaces and its switches run."""
        blueprint = self.blueprint()
        switches = self.routers() or self.program_switches() or OpenVSwitch(blueprint, self.directory)
        return not set(blueprint.namespaces) - set(system.namespaces_of(self.prefix)) and switches.runs()

    def check_stands(self) -> None:
        """Raises `PathloomError` if parts of a lab that is up are missing."""
        if not self.stands():
            raise bad_input(f"lab `{self.name}`: {self.remedy()}")

    def remedy(self) -> str:
        """Says what to do about a lab of which parts are left, as after its processes were killed."""
        return f"parts of it are missing; `pathloom lab down --name {self.name}` removes the rest"

    def open_vswitch(self) -> OpenVSwitch:
        """The switches of a lab that is up."""
        return OpenVSwitch(self.blueprint(), self.directory)

    def program_switches(self) -> PathFindingSwitches | None:
        """The switches of a lab that is up, if they find paths themselves; otherwise None."""
        blueprint = self.blueprint()
        protocol = (self.state() or {}).get("switches")
        return PathFindingSwitches(blueprint, self.directory) if protocol else None

    def routers(self) -> Routers | None:
        """The routers of a lab that is up, if its switches are routers; otherwise None."""
        routed = (self.state() or {}).get("routed")
        return Routers(self.blueprint(), self.directory, RouterSettings(**routed)) if routed else None

    # --- up

    def up_routed(
        self,
        fabric: Fabric,
        settings: RouterSettings,
        stack: HostStack | None = None,
        say: Callable[[str], None] = lambda _text: None,
        transport: str | None = None,
    ) -> Blueprint:
        """Builds the lab with routers as switches, and returns when they have all routes of their scheme.

        After an error or Ctrl-C, everything that was built is removed. The caller keeps the lab locked until `release`.
        Raises `PathloomError`, `ToolError`.
        """
        system.check_machine(system.ROUTER_TOOLS)
        if settings.kind == FRR:
            frr.check_installed(settings.bfd)
        subflows = hosts.subflows_of(settings.scheme, transport)
        if subflows is not None:
            hosts.check_mptcp(f"scheme `{settings.scheme}`")
        with self._undone_on_failure():
            with system.uninterrupted():
                self._claim()
                blueprint = Blueprint.of(self.name, fabric, routed=True)
                tables = default_tables(fabric, settings.scheme)
            stack = stack or hosts.host_stack("newreno", None)
            state = self._starting(fabric, blueprint, stack, ROUTER_ARP)
            state |= {"scheme": settings.scheme, "routed": asdict(settings)}
            self._write_state(state)
            own = Routers(blueprint, self.directory, settings)
            self._make_namespaces(blueprint)
            self._make_cables(blueprint, stack, ROUTER_ARP)
            own.prepare(self._kept())
            for namespace in blueprint.switch_namespaces:
                shapes = links.switch_shape_lines(blueprint.ports_in(namespace), stack.missing_header_bytes)
                system.batch("tc", namespace, shapes, self._kept())
            self._join_long_cables(blueprint)
            own.write_routes(fabric, tables)
            if subflows is not None:
                self.start_hostd(subflows=subflows)
            self.set_subflows(stack, subflows is not None)
            self._finish(state, [*links.differences(blueprint), *routers.notes()], say)
            return blueprint

    def _make_cables(self, blueprint: Blueprint, stack: HostStack, arp: str) -> None:
        """Makes all cables, and builds the hosts at their ends."""
        cables = list(links.veth_lines(blueprint))
        for namespace in blueprint.switch_namespaces:
            system.batch("ip", namespace, [line for place, line in cables if place == namespace], self._kept())
        for namespace in blueprint.switch_namespaces:
            ports = blueprint.ports_in(namespace)
            system.batch("ip", namespace, links.up_lines(ports), self._kept())
            names = [port.interface for port in ports]
            system.inside(namespace, partial(links.turn_offloads_off, names))
        with _pool() as pool:
            for done in [pool.submit(self._build_host, blueprint, host, stack, arp) for host in blueprint.hosts]:
                done.result()

    def _starting(self, fabric: Fabric, blueprint: Blueprint, stack: HostStack, arp: str) -> dict[str, Any]:
        """Returns what the record of every lab has while it is put up."""
        return {
            "schema": 1,
            "state": STARTING,
            "process": os.getpid(),
            "keeper": self.keeper,
            "fabric": fabric.spec,
            "controller": None,
            "scheme": None,
            "arp": arp,
            "stack": stack.to_dict(),
            "blueprint": blueprint.to_dict(),
        }

    def up_with_programs(
        self,
        fabric: Fabric,
        scheme: str,
        stack: HostStack | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> Blueprint:
        """Builds the lab with switches that find paths themselves; hosts ask for addresses by ARP.

        After an error or Ctrl-C, everything that was built is removed. The caller keeps the lab locked until `release`.
        Raises `PathloomError`, `ToolError`.
        """
        system.check_machine()
        with self._undone_on_failure():
            with system.uninterrupted():
                self._claim()
                blueprint = Blueprint.of(self.name, fabric)
            stack = stack or hosts.host_stack("newreno", None)
            state = self._starting(fabric, blueprint, stack, REAL_ARP) | {"scheme": scheme, "switches": scheme}
            self._write_state(state)
            self._make_namespaces(blueprint)
            self._make_cables(blueprint, stack, REAL_ARP)
            shapes = links.switch_shape_lines(blueprint.switch_ports, stack.missing_header_bytes)
            system.batch("tc", blueprint.namespace, shapes, self._kept())
            self._join_long_cables(blueprint)
            self.start_programs(blueprint, fabric, scheme)
            self._finish(state, links.differences(blueprint), say)
            return blueprint

    def start_programs(self, blueprint: Blueprint, fabric: Fabric, scheme: str) -> None:
        """Starts the switches with a protocol, and waits until they find paths. Raises `PathloomError`, `ToolError`."""
        switches = PathFindingSwitches(blueprint, self.directory)
        switches.configure(fabric, scheme)
        switches.start()
        switches.await_quiet()

    def restart_routers(self, fabric: Fabric, settings: RouterSettings) -> None:
        """Waits until all routers have the routes of a scheme, given to them if it is another one than before.

        Raises `PathloomError`, `ToolError`.
        """
        state = self.state() or {}
        own, tables = Routers(self.blueprint(), self.directory, settings), default_tables(fabric, settings.scheme)
        before = RouterSettings(**state["routed"])
        if replace(before, scheme="") == replace(settings, scheme="") and before.routes == settings.routes:
            own.await_routes(fabric, tables)
        else:
            own.write_routes(fabric, tables)
        if before != settings:
            self._write_state({**state, "scheme": settings.scheme, "routed": asdict(settings)})

    def restart_programs(self, fabric: Fabric, scheme: str) -> None:
        """Restarts all switches with another protocol. Raises `PathloomError`, `ToolError`."""
        blueprint = self.blueprint()
        PathFindingSwitches(blueprint, self.directory).stop()
        # Switches learn from ARP requests, and hosts that know each other's addresses would send none.
        for host in blueprint.hosts:
            system.batch("ip", host.namespace, ["neigh flush all"], self._kept())
        self.start_programs(blueprint, fabric, scheme)
        self.note(scheme=scheme, switches=scheme)

    def up(
        self,
        fabric: Fabric,
        target: str | None = None,
        scheme: str = "ecmp",
        stack: HostStack | None = None,
        say: Callable[[str], None] = lambda _text: None,
        arp: str = controller.STATIC_ARP,
        daemons: int | None = None,
        transport: str | None = None,
        api: bool = False,
    ) -> Blueprint:
        """Builds the lab; switches connect to the controller at `target`, or get the default routes of `scheme`.

        If the target is `controller.OWN`, the native controller is started with that scheme. With
        `controller.PROXY_ARP`, hosts do not know each other's hardware addresses, and ask the controller for them. The
        switches are spread over `daemons` daemons, or over `daemon_count` of them if None. `scheme` and `transport`
        decide whether the agent of the hosts opens subflows of MPTCP connections. With `api`, the API of the native
        controller is served at a port of the machine's loopback interface.

        After an error or Ctrl-C, everything that was built is removed. The caller keeps the lab locked until `release`.
        Raises `PathloomError`, `ToolError`.
        """
        system.check_machine()
        daemons = daemon_count(target, daemons)
        with self._undone_on_failure():
            with system.uninterrupted():
                self._claim()
                # The core imports numpy here, and an interrupt would break the import.
                blueprint = Blueprint.of(self.name, fabric, daemons)
            stack = stack or hosts.host_stack("newreno", None)
            subflows = hosts.subflows_of(scheme, transport) if target in (None, controller.OWN) else None
            if subflows is not None:
                hosts.check_mptcp(f"scheme `{scheme}`")
            state = self._starting(fabric, blueprint, stack, arp) | {
                "controller": target,
                "scheme": scheme if target in (None, controller.OWN) else None,
                "subflows": None if subflows is None else asdict(subflows),
            }
            self._write_state(state)
            called = controller.target(self.directory) if target == controller.OWN else target
            self._build(blueprint, stack, called, arp)
            if target == controller.OWN:
                management.connect(blueprint, self.directory)
                if api:
                    door.prepare(self.directory)
                self.start_controller(fabric, scheme, subflows=subflows)
                if api:
                    door.open_doors(self.directory, [(blueprint.namespace, door.ADDRESS)])
            elif target is None:
                self.write_default_routes(fabric, scheme)
                if subflows is not None:
                    self.start_hostd(subflows=subflows)
            self.set_subflows(stack, subflows is not None)
            self._finish(state, differences(blueprint), say)
            return blueprint

    def _build(self, blueprint: Blueprint, stack: HostStack, target: str | None, arp: str) -> None:
        keep = self._kept()
        self._make_namespaces(blueprint)
        switches = OpenVSwitch(blueprint, self.directory)
        with _pool() as pool:
            started = pool.submit(switches.start)
            cables = list(links.veth_lines(blueprint))
            for namespace in blueprint.switch_namespaces:
                system.batch("ip", namespace, [line for place, line in cables if place == namespace], keep)
            shares = system.share_processors(self.name, len(switches.daemons))
            for daemon, (_, receiving) in zip(switches.daemons, shares, strict=True):
                self._open_ports(daemon, receiving)
            started.result()
            built = pool.submit(switches.add_bridges, target)
            for done in [pool.submit(self._build_host, blueprint, host, stack, arp) for host in blueprint.hosts]:
                done.result()
            built.result()
        for daemon in switches.daemons:
            system.batch(
                "tc", daemon.namespace, links.switch_shape_lines(daemon.ports, stack.missing_header_bytes), keep
            )
        self._join_long_cables(blueprint)
        switches.widen_buffers()
        switches.keep_to([own for own, _ in shares])

    def _make_namespaces(self, blueprint: Blueprint) -> None:
        hostd.add_namespaces(blueprint, self._kept())
        for namespace in blueprint.switch_namespaces:
            system.inside(namespace, lambda: system.write_sysctls(hosts.QUIET))
        for file, text in zip(self.own_files(), (hosts.hosts_file(blueprint), hosts.RESOLVER), strict=True):
            file.write_text(text, encoding="utf-8")

    def _join_long_cables(self, blueprint: Blueprint) -> None:
        """Starts the forwarder of long cables. Without it, the two halves of such a cable are not connected."""
        far_ends = delays.interfaces(blueprint)
        system.inside(blueprint.namespace, lambda: links.turn_offloads_off(far_ends))
        system.batch("ip", blueprint.namespace, [f"link set {one} up" for one in far_ends], self._kept())
        delays.start(blueprint, self.directory)

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """Removes everything that was built if the block fails or is interrupted."""
        try:
            yield
        except BaseException:
            if self._lock is not None:
                with system.uninterrupted():
                    self._destroy()
            raise

    def _finish(self, state: dict[str, Any], notes: list[str], say: Callable[[str], None]) -> None:
        """Records that the lab is up, and prints how it differs from its fabric."""
        self._write_state({**state, "state": UP, "notes": notes})
        for note in notes:
            say(note)

    def _open_ports(self, daemon: Daemon, receiving: set[int]) -> None:
        """Prepares the interfaces of a daemon's switches to become its ports."""
        system.batch("ip", daemon.namespace, links.up_lines(daemon.ports), self._kept())
        system.inside(daemon.namespace, lambda: links.turn_offloads_off(port.interface for port in daemon.ports))
        links.spread_receiving(daemon.namespace, receiving)

    def _build_host(self, blueprint: Blueprint, host: Host, stack: HostStack, arp: str) -> None:
        routed = arp == ROUTER_ARP
        sysctls = routers.host_sysctls_of(host, stack) if routed else hosts.host_sysctls(host, stack)

        def prepare() -> None:
            system.write_sysctls(sysctls)
            if hosts.MPTCP_SETTING.exists():
                system.write_sysctls(hosts.MPTCP_SYSCTLS)
            links.turn_offloads_off(port.interface for port in host.ports)

        try:
            system.inside(host.namespace, prepare)
        except OSError as error:
            what = f"{error.filename}: " if error.filename else ""
            raise ToolError(f"host {host.name}: {what}{reason(error)}") from None
        known = hosts.neighbour_lines(blueprint, host) if arp == controller.STATIC_ARP else ()
        lines = [*hosts.address_lines(host, stack, routed), *known, *(routers.host_lines(host) if routed else ())]
        try:
            system.batch("ip", host.namespace, lines, self._kept())
            system.batch("tc", host.namespace, hosts.host_shape_lines(host, stack), self._kept())
        except ToolError as error:
            raise ToolError(f"host {host.name}: {error}") from None

    def start_hostd(self, long_bytes: int = hostd.LONG_BYTES, subflows: Subflows | None = None) -> None:
        """Starts the agent of the hosts, unless it already runs with these arguments. Raises `ToolError`."""
        if hostd.running(self.directory) is None or (long_bytes, subflows) != self._agent_arguments:
            hostd.start(self.open_vswitch_of_state().blueprint, self.directory, long_bytes, subflows)
            self._agent_arguments = (long_bytes, subflows)

    def set_subflows(self, stack: HostStack, subflows: bool) -> None:
        """Prepares the hosts for connections with or without subflows. Raises `OSError`."""
        values = hosts.subflow_sysctls(stack, subflows)
        for host in self.open_vswitch_of_state().blueprint.hosts:
            system.inside(host.namespace, lambda: system.write_sysctls(values))

    def start_controller(
        self,
        fabric: Fabric,
        scheme: str,
        seed: int = 1,
        long_bytes: int = hostd.LONG_BYTES,
        subflows: Subflows | None = None,
    ) -> None:
        """Starts the native controller on empty switches, after it ends the one that this process started before.

        Also starts the agent of the hosts. To the agent, connections of at least `long_bytes` are long, and it opens
        `subflows` for MPTCP connections. Returns when every switch is set up. Raises `PathloomError`, `ToolError`.
        """
        switches = self.open_vswitch_of_state()
        if self._controller is not None:
            controller.stop(self._controller)
            switches.write_tables({}, {})
        rules_of = {node: len(own) for node, own, _ in default_tables(fabric, scheme)}
        arp = (self.state() or {}).get("arp", controller.STATIC_ARP)
        self._controller = controller.start(switches.blueprint, self.directory, fabric, scheme, seed, arp)
        controller.await_routes(self._controller, switches, self.directory, rules_of)
        self.start_hostd(long_bytes, subflows)

    def restart_controller(self) -> bool:
        """Restarts the native controller of a lab that is up, if it has ended. Returns whether it had ended.

        The controller adopts the rules that it finds, and keeps the scheme of the lab. Raises `PathloomError` for a lab
        without the native controller, and `ToolError` if the controller ends at once.
        """
        system.check_machine()
        blueprint = self.blueprint()
        target = (self.state() or {}).get("controller")
        if target != controller.OWN:
            steering = f"the controller at {target}" if target else "static routes"
            raise bad_input(
                f"lab `{self.name}`: has {steering}, not Pathloom's own controller; "
                "`lab up --controller pathloom` starts one"
            )
        self.check_stands()
        self.hold()
        try:
            door.reopen(self.directory)
            if hostd.running(self.directory) is None:
                subflows = (self.state() or {}).get("subflows")
                told = None if subflows is None else Subflows(**subflows)
                hostd.start(blueprint, self.directory, subflows=told)
            if controller.running(self.directory) is not None:
                return False
            self._controller = controller.launch(blueprint, self.directory)
            switches = self.open_vswitch_of_state()
            controller.await_sessions(self._controller, switches, self.directory)
            return True
        finally:
            self.release()

    def stop_controller(self) -> bool:
        """Ends the controller that this process has started; its rules stay. Returns whether it exited normally."""
        return self._controller is None or controller.stop(self._controller)

    def controller_process(self) -> subprocess.Popen[bytes]:
        """The controller that this process has started. Raises `PathloomError` when there is none."""
        if self._controller is None:
            raise bad_input(f"lab `{self.name}`: this process has started no controller in it")
        return self._controller

    def write_default_routes(self, fabric: Fabric, scheme: str) -> None:
        """Replaces the rules of every switch by the default routes of a scheme. Raises `PathloomError`."""
        rows = default_tables(fabric, scheme)
        self.write_tables(rows, {})

    def write_tables(self, rows: list[SwitchTables], pins: dict[int, list[str]]) -> None:
        """Replaces the rules and groups of every switch by these rows and pins. Raises `ToolError`."""
        groups = {node: [rules.group_line(group, salt=node + 1) for group in own] for node, _, own in rows}
        flows = {
            node: [*(rules.flow_line(rule, copies=False) for rule in own), *pins.get(node, ())] for node, own, _ in rows
        }
        self.open_vswitch_of_state().write_tables(groups, flows)

    def open_vswitch_of_state(self) -> OpenVSwitch:
        """Returns the switches of a lab that is up, or that is being put up."""
        state = self.state()
        if state is None:
            raise bad_input(f"lab `{self.name}`: is not up")
        return OpenVSwitch(Blueprint.from_dict(state["blueprint"]), self.directory)

    # --- down

    def down(self) -> bool:
        """Removes all parts of the lab. Returns whether there were any. Raises `PathloomError`."""
        if not self.exists():
            return False
        if self._lock is None and not self._take_lock(LOCK_PATIENCE_S):
            state = self.state() or {}
            raise bad_input(
                f"lab `{self.name}`: is in use by process {state.get('process', '?')}; interrupt that first"
            )
        with system.uninterrupted():
            self._destroy()
        return True

    def _destroy(self) -> None:
        system.end_processes(self.directory, self.prefix)
        system.delete_namespaces(system.namespaces_of(self.prefix))
        hostd.remove(self.directory)
        program_switches.remove(self.directory)
        frr.forget(self.directory)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.directory)
        self.release()
        # Other labs may exist, or be starting.
        with suppress(OSError):
            RUN_DIRECTORY.rmdir()

    # --- the lock, which the kernel releases when a process ends

    def _claim(self) -> None:
        """Locks the run directory, and removes what a killed start has left. Raises `PathloomError`."""
        if not self._take_lock(0.0, make=True):
            process = (self.state() or {}).get("process", "?")
            raise bad_input(f"lab `{self.name}`: is in use by process {process}; choose another --name")
        state = self.state()
        if state is not None and state.get("state") == UP:
            self.release()
            self.check_stands()
            raise bad_input(
                f"lab `{self.name}`: is up already, with {state['fabric']}; take it down first "
                f"(`pathloom lab down --name {self.name}`), or choose another --name"
            )
        system.end_processes(self.directory, self.prefix)
        system.delete_namespaces(system.namespaces_of(self.prefix))
        hostd.remove(self.directory)
        program_switches.remove(self.directory)
        frr.forget(self.directory)
        for entry in self.directory.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def _take_lock(self, patience_s: float, make: bool = False) -> bool:
        return await_event(lambda: self._takes_lock(make), patience_s, 0.02)

    def _takes_lock(self, make: bool) -> bool:
        with suppress(FileNotFoundError, FileExistsError):
            if make or not self.directory.exists():
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The previous holder of the lock may have removed the directory that was opened here.
                if os.path.samestat(os.fstat(descriptor), self.directory.stat()):
                    self._lock = descriptor
                    return True
            except BlockingIOError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        return False

    def _kept(self) -> list[int]:
        """Returns descriptors that tools keep open, so that the lock is held until they have ended."""
        return [self._lock] if self._lock is not None else []

    def hold(self) -> None:
        """Locks a lab that is up, against `down`. Raises `PathloomError` if another process holds the lock."""
        if not self._take_lock(LOCK_PATIENCE_S):
            raise bad_input(f"lab `{self.name}`: is in use by process {(self.state() or {}).get('process', '?')}")

    def release(self) -> None:
        """Releases the lock, so that others can take the lab down."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def note(self, **more: object) -> None:
        """Adds to the record of a lab."""
        self._write_state({**(self.state() or {}), **more})

    def _write_state(self, state: dict[str, Any]) -> None:
        partial = self.directory / "lab.json.partial"
        partial.write_text(json.dumps(state), encoding="utf-8")
        partial.replace(self.directory / "lab.json")


def known_labs() -> list[str]:
    """Returns the names of all labs that have any part on this machine."""
    names = {name.removeprefix(NAMESPACE_PREFIX).rpartition(".")[0] for name in system.namespaces_of(NAMESPACE_PREFIX)}
    with suppress(FileNotFoundError):
        names |= {entry.name for entry in RUN_DIRECTORY.iterdir() if entry.is_dir()}
    return sorted(name for name in names if _NAME.match(name))


def differences(blueprint: Blueprint) -> list[str]:
    """Returns how a lab differs from its fabric, as notes for the reader of the results."""
    return [*links.differences(blueprint), *performance_notes()]


def daemon_count(target: str | None, wanted: int | None) -> int:
    """Returns over how many Open vSwitch daemons a lab spreads its switches, if its controller is at `target`.

    Each daemon has its own network namespace, so only one can reach an address inside the lab. Raises `PathloomError`
    if more are wanted for such a target.
    """
    if target is None or target == controller.OWN or target.startswith("unix:"):
        return system.usual_daemons() if wanted is None else wanted
    if wanted not in (None, 1):
        raise bad_input(
            f"--daemons {wanted}: only one daemon can reach `{target}`; let the controller listen on unix:PATH, "
            "or leave --daemons out"
        )
    return 1


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Yields a thread pool. After an error, tasks that have not started are cancelled."""
    pool = ThreadPoolExecutor(TOOLS_AT_ONCE)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
