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
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pathloom.errors import ToolError
from pathloom.lab import controller, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.hosts import Subflows
from pathloom.native import find

PROGRAM = "pathloom-hostd"
PROGRAMS_SOCKET = "hostd.sock"
"""Where programs that announce their own transfers find it, in the run directory."""
LONG_BYTES = 100_000
"""Acknowledged bytes from which a connection is long, where an experiment says nothing else."""
BUCKETS = 4096
"""Of a host's table of connections: to release a connection, all of a host's are visited."""
PATIENCE_S = 10.0
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)
_started: dict[int, subprocess.Popen[bytes]] = {}
"""Agents that this process has started, by process."""


def start(
    blueprint: Blueprint, directory: Path, long_bytes: int = LONG_BYTES, subflows: Subflows | None = None
) -> None:
    """Starts the agent of a lab in place of one that runs; without the program, does nothing.

    With `subflows` it opens them for every MPTCP connection.

    Raises `ToolError` when the program ends at once.
    """
    program = find(PROGRAM)
    if program is None:
        return
    stop(directory)
    _mount(directory)
    _write_config(blueprint, directory, long_bytes, subflows)
    with (directory / "hostd.log").open("ab") as log:
        process = subprocess.Popen(
            [program, "--config", str(_config(directory))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, system.MARK: str(directory)},
            start_new_session=True,
        )
    _started[process.pid] = process
    deadline = time.monotonic() + PATIENCE_S
    while not (directory / PROGRAMS_SOCKET).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ToolError(f"`{PROGRAM}` did not start: {last_words(directory) or f'exit code {process.poll()}'}")
        time.sleep(0.01)
    # It has a machine of its own elsewhere.
    system.run_at_once(process.pid)


def stop(directory: Path) -> None:
    """Ends the agent of a lab, if there is one; flows are released."""
    process = running(directory)
    (directory / PROGRAMS_SOCKET).unlink(missing_ok=True)
    _reap()
    if process is None:
        return
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while not system.is_over(process):
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    if process in _started:
        _started.pop(process).wait()


def _reap() -> None:
    """Asks for the exit codes of agents that have ended."""
    for over in [number for number, one in _started.items() if one.poll() is not None]:
        del _started[over]


def running(directory: Path) -> int | None:
    """Number of the process that is the agent of a lab; None if there is none."""
    found = controller.process_with(_config(directory))
    return None if found is None or system.is_over(found) else found


def enforces(directory: Path) -> bool:
    """Whether it paces and holds by BPF programs."""
    return (directory / "bpf" / "pathloom-hostd-1" / "link-hold").exists()


def join(directory: Path, process: int) -> None:
    """Moves a process into the cgroup of a lab, so that the agent sees the connections that it opens from now on."""
    members = _cgroup(directory) / "cgroup.procs"
    # Without an agent there is none.
    with suppress(FileNotFoundError):
        members.write_text(str(process), encoding="ascii")


def last_words(directory: Path) -> str | None:
    """The last line that the agent of a lab has logged; None if there is none."""
    try:
        said = (directory / "hostd.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:
        return None
    return said[-1] if said else None


def warning(directory: Path) -> str | None:
    """Why the agent can do less than it should; None if it can do all, or never ran."""
    try:
        lines = (directory / "hostd.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    said = [line.partition("BPF is not available")[2] for line in lines if "BPF is not available" in line]
    return f"BPF is not available{said[-1]}" if said and not enforces(directory) else None


def remove(directory: Path) -> None:
    """Takes away what `start` has made; the lab's processes have ended."""
    _reap()
    group = _cgroup(directory)
    deadline = time.monotonic() + PATIENCE_S
    while group.exists():
        try:
            group.rmdir()
        except OSError:
            # The kernel needs a moment for processes that have just ended.
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
    for place in (directory / "bpf", directory / "cgroup"):
        while place.exists() and _libc.umount2(str(place).encode(), _MNT_DETACH) == 0:
            pass


def add_namespaces(blueprint: Blueprint, keep_open: Sequence[int] = ()) -> None:
    """Makes the network namespaces of a lab; those of hosts have small tables of connections, where the kernel can.

    By default they share the machine's own, and to visit the connections of one host takes 14 ms instead of 0.1. The
    size is that of the namespace which makes another, so the lab's first one makes the rest: the machine's setting
    stays as it is. Raises `ToolError`.
    """
    first, *rest = blueprint.namespaces
    system.batch("ip", None, [f"netns add {first}"], keep_open)

    def add() -> None:
        # Before Linux 6.1 there is no such setting.
        with suppress(OSError):
            system.write_sysctls({"net.ipv4.tcp_child_ehash_entries": str(BUCKETS)})
        system.batch("ip", None, [f"netns add {name}" for name in rest], keep_open)

    system.inside(first, add)


def _config(directory: Path) -> Path:
    return directory / "hostd.toml"


def _cgroup(directory: Path) -> Path:
    # Every mount shows the same hierarchy, that of the machine.
    return directory / "cgroup" / f"pathloom-{directory.name}"


def _mount(directory: Path) -> None:
    """Mounts file systems for the programs and the cgroup; where that is refused, the agent goes on without BPF."""
    for place, kind in ((directory / "bpf", "bpf"), (directory / "cgroup", "cgroup2")):
        place.mkdir(exist_ok=True)
        if not place.is_mount():
            _libc.mount(b"pathloom", str(place).encode(), kind.encode(), ctypes.c_ulong(0), None)
    with suppress(OSError):
        _cgroup(directory).mkdir(exist_ok=True)


def _write_config(blueprint: Blueprint, directory: Path, long_bytes: int, subflows: Subflows | None) -> None:
    lines = ["[controller]", f"unix = {json.dumps(str(directory / controller.HOSTS_SOCKET))}"]
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
