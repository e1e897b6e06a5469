"""The agent of a lab's hosts: one native `pathloom-hostd` for all of them.

It labels, announces, paces and holds the connections of every program that runs in the lab's cgroup: those of
`lab exec`, and the agent that carries the flows of a run.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pathloom.errors import ToolError
from pathloom.lab import controller, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.hosts import Subflows
from pathloom.native import find
from pathloom.waiting import await_event

PROGRAM = "pathloom-hostd"
PROGRAMS_SOCKET = "hostd.sock"
"""Socket of the agent for programs that announce their own transfers, in the run directory."""
LONG_BYTES = 100_000
"""Acknowledged bytes from which a connection is long, unless an experiment sets another value."""
BUCKETS = 4096
"""Buckets of a host's table of connections. To release a connection, the agent visits the whole table."""
PATIENCE_S = 10.0
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)
_started: dict[int, subprocess.Popen[bytes]] = {}
"""Agents that this process has started, by process number."""


def start(
    blueprint: Blueprint,
    directory: Path,
    long_bytes: int = LONG_BYTES,
    subflows: Subflows | None = None,
    sockets: Sequence[Path] = (),
) -> None:
    """Starts the agent of a lab, and ends a running one before. Does nothing if the program is not installed.

    With `subflows`, the agent opens subflows for every MPTCP connection. `sockets` are those of several controllers.

    Raises `ToolError` if the program ends at once, or does not listen within `PATIENCE_S`.
    """
    program = find(PROGRAM)
    if program is None:
        return
    stop(directory)
    _mount(directory)
    _write_config(blueprint, directory, long_bytes, subflows, sockets)
    command = [program, "--config", str(_config(directory))]
    process = system.start_daemon(command, directory / "hostd.log", directory)
    _started[process.pid] = process
    if not system.await_start(process, (directory / PROGRAMS_SOCKET).exists, PATIENCE_S, 0.01):
        raise ToolError(f"`{PROGRAM}` did not start: {last_log_line(directory) or f'exit code {process.poll()}'}")
    # In a real network, each host runs the agent on its own processors.
    system.give_priority(process.pid)


def stop(directory: Path) -> None:
    """Ends the agent of a lab, if it runs. Held flows are released."""
    process = running(directory)
    (directory / PROGRAMS_SOCKET).unlink(missing_ok=True)
    _reap()
    if process is None:
        return
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
    if not await_event(lambda: system.is_over(process), PATIENCE_S, 0.01):
        system.end(process)
    if process in _started:
        _started.pop(process).wait()


def _reap() -> None:
    """Collects the exit codes of agents that have ended."""
    for over in [number for number, one in _started.items() if one.poll() is not None]:
        del _started[over]


def running(directory: Path) -> int | None:
    """Returns the process number of a lab's agent; None if it does not run."""
    found = controller.process_with(_config(directory))
    return None if found is None or system.is_over(found) else found


def enforces(directory: Path) -> bool:
    """Returns whether the agent paces and holds connections by BPF programs."""
    return (directory / "bpf" / "pathloom-hostd-1" / "link-hold").exists()


def join(directory: Path, process: int) -> None:
    """Moves a process into the cgroup of a lab, so that the agent sees the connections that it opens from now on."""
    members = _cgroup(directory) / "cgroup.procs"
    # Without an agent, the cgroup does not exist.
    with suppress(FileNotFoundError):
        members.write_text(str(process), encoding="ascii")


def last_log_line(directory: Path) -> str | None:
    """Returns the last line of the agent's log; None if the log is empty or missing."""
    return system.last_line(directory / "hostd.log")


def warning(directory: Path) -> str | None:
    """Returns why the agent cannot use BPF; None if it can, or never ran."""
    try:
        lines = (directory / "hostd.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    said = [line.partition("BPF is not available")[2] for line in lines if "BPF is not available" in line]
    return f"BPF is not available{said[-1]}" if said and not enforces(directory) else None


def remove(directory: Path) -> None:
    """Removes the cgroup and the mounts that `start` made. The lab's processes must have ended."""
    _reap()
    group = _cgroup(directory)

    def is_removed() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    # The kernel needs a moment for processes that have just ended.
    await_event(is_removed, PATIENCE_S, 0.01)
    for place in (directory / "bpf", directory / "cgroup"):
        while place.exists() and _libc.umount2(str(place).encode(), _MNT_DETACH) == 0:
            pass


def add_namespaces(blueprint: Blueprint, keep_open: Sequence[int] = ()) -> None:
    """Makes the network namespaces of a lab. If the kernel can, the hosts get small tables of connections.

    By default, all namespaces share the machine's table, and a visit to the connections of one host takes 14 ms instead
    of 0.1 ms. A new namespace takes the size from a setting of the namespace that makes it. So the first namespace of
    the lab makes the others, and the machine's setting does not change. Raises `ToolError`.
    """
    first, *rest = blueprint.namespaces
    system.batch("ip", None, [f"netns add {first}"], keep_open)

    def add() -> None:
        # Linux before 6.1 does not have this setting.
        with suppress(OSError):
            system.write_sysctls({"net.ipv4.tcp_child_ehash_entries": str(BUCKETS)})
        system.batch("ip", None, [f"netns add {name}" for name in rest], keep_open)

    system.inside(first, add)


def _config(directory: Path) -> Path:
    return directory / "hostd.toml"


def _cgroup(directory: Path) -> Path:
    # Every mount of cgroup2 shows the hierarchy of the machine.
    return directory / "cgroup" / f"pathloom-{directory.name}"


def _mount(directory: Path) -> None:
    """Mounts file systems for BPF programs and the cgroup. If that fails, the agent runs without BPF."""
    for place, kind in ((directory / "bpf", "bpf"), (directory / "cgroup", "cgroup2")):
        place.mkdir(exist_ok=True)
        if not place.is_mount():
            _libc.mount(b"pathloom", str(place).encode(), kind.encode(), ctypes.c_ulong(0), None)
    with suppress(OSError):
        _cgroup(directory).mkdir(exist_ok=True)


def _write_config(
    blueprint: Blueprint, directory: Path, long_bytes: int, subflows: Subflows | None, sockets: Sequence[Path]
) -> None:
    where = f"unix = {json.dumps(str(directory / controller.HOSTS_SOCKET))}"
    if sockets:
        where = f"sockets = {json.dumps([str(one) for one in sockets])}"
    lines = ["[controller]", where]
    for host in blueprint.hosts:
        addresses = json.dumps([port.address for port in host.ports])
        lines += ["[[hosts]]", f"addresses = {addresses}"]
        lines += [f"namespace = {json.dumps(str(system.NETNS / host.namespace))}"]
    lines += ["[flows]", f"threshold_bytes = {long_bytes}"]
    lines += ["[kernel]", f"cgroup = {json.dumps(str(_cgroup(directory)))}"]
    lines += [f"bpf_fs = {json.dumps(str(directory / 'bpf'))}"]
    lines += ["[programs]", f"unix = {json.dumps(str(directory / PROGRAMS_SOCKET))}", ""]
    if subflows is not None:
        lines += ["[mptcp]", f"subflows = {subflows.count}", f"manager = {json.dumps(subflows.manager)}", ""]
    _config(directory).write_text("\n".join(lines), encoding="utf-8")
