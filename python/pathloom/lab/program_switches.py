"""The switches of a lab that find paths themselves: one process `pathloom-switch` for each, and no controller.

Each process has a configuration, a control socket, and a file for its next start in the run directory. If a process is
killed, the kernel still forwards its flows. `start` starts the process again, and it continues with its tables.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pathloom import _core
from pathloom.errors import ToolError, bad_input
from pathloom.fabrics import Fabric
from pathloom.lab import controller, system
from pathloom.lab.blueprint import Blueprint, Switch
from pathloom.native import program
from pathloom.tiers import SWITCH_LEVELS

PROGRAM = "pathloom-switch"
PROTOCOLS = ("tcp-path", "tfe", "arp-path")
"""Schemes that are protocols between switches."""
PATIENCE_S = 20.0
QUIET_S = 1.0
"""Seconds after its start during which a switch takes no part in explorations."""
_TIMERS = {
    "hello": ("hello_ms", 1),
    "lock": ("lock_ms", 1),
    "host_age": ("host_age_ms", 1),
    "recovery": ("recovery_retry_ms", 1),
    "age": ("connection_age_ms", 1),
}
_LIMITS = {"table": ("connections",), "explorations": ("explorations_per_s", "unused_explorations_per_s")}
_FOR_HOSTS = ("arp", "jitter", "elephant")
"""Keys for simulated hosts and cables. The lab ignores them, since its hosts and cables are real."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min)\Z")
_MS = {"ms": 1, "s": 1000, "min": 60_000}
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)
_started: dict[Path, subprocess.Popen[bytes]] = {}
"""Switches that this process has started, by configuration file."""


def is_protocol(scheme: str) -> bool:
    """Returns whether a scheme is a protocol between switches.

    >>> is_protocol("tfe:mark=dscp"), is_protocol("ecmp")
    (True, False)
    """
    return scheme.partition(":")[0] in PROTOCOLS


def settings_of(scheme: str) -> dict[str, dict[str, Any]]:
    """Returns the sections of a switch's configuration that set a scheme's keys. Raises `PathloomError`.

    >>> settings_of("tcp-path:hello=2s,table=100")
    {'timers': {'hello_ms': 2000, 'neighbour_age_ms': 6000}, 'limits': {'connections': 100}}
    """
    name, _, rest = scheme.partition(":")
    _core.scheme_name(scheme)  # Raises an error for a scheme that the simulator would refuse.
    sections: dict[str, dict[str, Any]] = {}
    given = dict(part.split("=", 1) for part in rest.split(",") if part)
    for key, value in given.items():
        if key in _TIMERS:
            sections.setdefault("timers", {})[_TIMERS[key][0]] = _milliseconds(scheme, key, value)
            if key == "hello":
                sections["timers"]["neighbour_age_ms"] = 3 * sections["timers"]["hello_ms"]
        elif key in _LIMITS:
            sections.setdefault("limits", {}).update(dict.fromkeys(_LIMITS[key], int(value)))
        elif key == "flood" and name == "tfe":
            sections.setdefault("elephants", {})["descend_only"] = value == "down"
        elif key not in (*_FOR_HOSTS, "mark", "ports"):
            raise bad_input(f"scheme `{scheme}`: the lab's switches have no setting for {key}; use --worlds sim")
    if name == "tfe":
        by_dscp = given.get("mark") == "dscp"
        ports = [int(end) for end in given.get("ports", "3500-4500").split("-")]
        marks = {"source_ports": [], "dscp": 8} if by_dscp else {"source_ports": ports, "dscp": 0}
        sections["elephants"] = {**sections.get("elephants", {}), **marks}
    return sections


def _milliseconds(scheme: str, key: str, value: str) -> int:
    found = _TIME.match(value)
    milliseconds = round(float(found[1]) * _MS[found[2]]) if found else 0
    if milliseconds == 0:
        raise bad_input(f"scheme `{scheme}`: {key} of `{value}`: expected whole milliseconds, such as 5s")
    return milliseconds


class PathFindingSwitches:
    """The switches of one lab."""

    def __init__(self, blueprint: Blueprint, run_directory: Path) -> None:
        self.blueprint = blueprint
        self.lab_directory = run_directory
        self.directory = run_directory / "programs"

    def configure(self, fabric: Fabric, scheme: str) -> None:
        """Writes the configuration of each switch. Raises `PathloomError`."""
        sections = settings_of(scheme)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        links, nodes = fabric.links, fabric.nodes
        for switch in self.blueprint.switches:
            mac = f"{(0x06 << 40) + switch.node + 1:012x}"
            top: dict[str, Any] = {
                "name": f"{self.blueprint.lab}-{switch.node}",
                "protocol": scheme.partition(":")[0],
                "mac": ":".join(mac[place : place + 2] for place in range(0, 12, 2)),
                "namespace": str(system.NETNS / switch.namespace),
                "directory": str(self.directory / str(switch.node)),
                "bpf_fs": str(self._bpf_fs()),
                **_level("tier", nodes[switch.node]["tier"]),
            }
            lines = [f"{key} = {json.dumps(value)}" for key, value in top.items()]
            for port in self.blueprint.switch_ports:
                if port.switch == switch.node:
                    other = nodes[links["target"][port.link]]["tier"]
                    role = {"role": "host"} if other == "host" else {"role": "switch", **_level("tier", other)}
                    row = {"number": port.number, "interface": port.interface, **role}
                    lines += ["[[ports]]", *(f"{key} = {json.dumps(value)}" for key, value in row.items())]
            for name, values in sections.items():
                lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
            self.config(switch).write_text("\n".join([*lines, ""]), encoding="utf-8")

    def config(self, switch: Switch) -> Path:
        """Returns the configuration file of a switch."""
        return self.directory / f"{switch.node}.toml"

    def log(self, switch: Switch) -> str:
        """Returns the log of a switch."""
        try:
            return self._log(switch).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def start(self, switches: Iterable[Switch] | None = None) -> None:
        """Starts switches, all if none are named, and returns when they answer. Raises `ToolError`."""
        self._mount()
        chosen = list(self.blueprint.switches if switches is None else switches)
        for switch in chosen:
            command = [program(PROGRAM), "--config", str(self.config(switch))]
            process = system.start_daemon(command, self._log(switch), self.lab_directory)
            _started[self.config(switch)] = process
            system.give_priority(process.pid)
            # One switch after another sets a connection up, and each has to be woken for it. The kernel limits the work
            # that a host can cause, so the switches leave processor time to others.
            with suppress(OSError):
                os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(1))
        for switch in chosen:
            process = _started[self.config(switch)]
            if not system.await_start(process, partial(self._answers, switch, process.pid), PATIENCE_S, 0.005):
                said = self.log(switch).strip().splitlines()
                raise ToolError(f"`{PROGRAM}` of {switch.name} did not start: {said[-1] if said else 'no reason'}")

    def await_quiet(self) -> None:
        """Waits until switches that have just started take part in explorations."""
        time.sleep(QUIET_S + 0.1)

    def process(self, switch: Switch) -> int | None:
        """Returns the process number of a switch; None if it does not run."""
        started = _started.get(self.config(switch))
        if started is not None and started.poll() is None:
            return started.pid
        found = controller.process_with(self.config(switch))
        return None if found is None or system.is_over(found) else found

    def kill(self, switch: Switch) -> None:
        """Kills a switch, as a crash would."""
        process = self.process(switch)
        if process is not None:
            system.end(process)
            started = _started.pop(self.config(switch), None)
            if started is not None:
                started.wait()

    def stop(self) -> None:
        """Ends all switches, and stops the kernel from forwarding for them. Raises `ToolError`."""
        for switch in self.blueprint.switches:
            self.kill(switch)
        system.run_tool([program(PROGRAM), "clean", *map(self.config, self.blueprint.switches)])

    def runs(self) -> bool:
        """Returns whether the processes of all switches run."""
        return all(self.process(switch) is not None for switch in self.blueprint.switches)

    def show(self) -> list[dict[str, Any]]:
        """Returns the tables and counters of all switches from `pathloom-switch show --json`. Raises `ToolError`."""
        text = system.run_tool([program(PROGRAM), "show", *map(self.config, self.blueprint.switches), "--json"])
        rows: list[dict[str, Any]] = json.loads(text)
        return rows

    def _answers(self, switch: Switch, process: int) -> bool:
        """Returns whether this process answers on the control socket of a switch."""
        with socket.socket(socket.AF_UNIX) as door, suppress(OSError, ValueError):
            door.settimeout(PATIENCE_S)
            door.connect(str(self.directory / str(switch.node) / "control.sock"))
            said = b"".join(iter(lambda: door.recv(1 << 16), b""))
            return bool(json.loads(said)["process"] == process)
        return False

    def _log(self, switch: Switch) -> Path:
        return self.directory / f"{switch.node}.log"

    def _bpf_fs(self) -> Path:
        return self.lab_directory / "bpf-switches"

    def _mount(self) -> None:
        place = self._bpf_fs()
        place.mkdir(exist_ok=True)
        if not place.is_mount() and _libc.mount(b"pathloom", str(place).encode(), b"bpf", ctypes.c_ulong(0), None) != 0:
            raise ToolError(f"{place}: cannot mount a BPF file system: {os.strerror(ctypes.get_errno())}")


def remove(run_directory: Path) -> None:
    """Removes the mounts of `start`. The lab's processes must have ended."""
    for file in [file for file in _started if file.is_relative_to(run_directory)]:
        _started.pop(file).wait()
    place = run_directory / "bpf-switches"
    while place.exists() and _libc.umount2(str(place).encode(), _MNT_DETACH) == 0:
        pass
    with suppress(OSError):
        place.rmdir()


def _level(key: str, tier: str) -> dict[str, str]:
    """Returns the tier of a node as a setting, if the switches have a name for it; otherwise nothing."""
    return {key: tier} if tier in SWITCH_LEVELS else {}
