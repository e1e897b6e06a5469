"""The live controller of a lab: the native `pathloom-controller`, in the namespace of the first switches."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pathloom.errors import ToolError
from pathloom.fabrics import FABRIC_FILES, Fabric
from pathloom.lab import door, management, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.switches import OpenVSwitch
from pathloom.native import program
from pathloom.specs import is_python_spec
from pathloom.waiting import SYSTEM, Clock, await_event

OWN = "pathloom"
"""Value for the native controller, where a lab otherwise gets the address of a controller."""
_WITHIN = ("timeout", "solved", "solve", "load", "rtt", "reviewed", "review_request", "repaired", "resync")
"""Events that cross no control channel, and the periodic reading of rules, which the simulator does not do."""
ADDRESS = "127.0.0.1:6653"
"""Address of the controller in the namespace of the first switches."""
SWITCHES_SOCKET = "controller.sock"
"""Socket of the controller for the switches of a lab, in their run directory. Every namespace can reach it."""
HOSTS_SOCKET = "hosts.sock"
"""Socket of the controller for host agents, in the run directory."""
STATIC_ARP, PROXY_ARP = "static", "proxy"
"""Whether hosts know each other's hardware addresses, or ask the controller."""
EVENTS = "events.jsonl"
"""Event log with all inputs and outputs of the controller, in the run directory."""
PATIENCE_S = 60.0
STOP_S = 5.0


def target(directory: Path) -> str:
    """Returns the target to which the switches of a lab connect, given its run directory."""
    return f"unix:{_socket(directory)}"


def _socket(directory: Path) -> Path:
    # Open vSwitch connects only to sockets that are in the directory of its own sockets.
    return directory / "ovs" / SWITCHES_SOCKET


def start(
    blueprint: Blueprint, directory: Path, fabric: Fabric, scheme: str, seed: int, arp: str = STATIC_ARP
) -> subprocess.Popen[bytes]:
    """Starts the controller with a scheme. It logs to `controller.log` in the run directory."""
    write_config(directory, fabric, scheme, seed, arp)
    return launch(blueprint, directory)


def write_config(
    directory: Path, fabric: Fabric, scheme: str, seed: int, arp: str = STATIC_ARP, more: str = ""
) -> None:
    """Writes `controller.toml` of the run directory, with `more` at its end."""
    words: dict[str, dict[str, object]] = {
        "fabric": {"spec": write_fabric(directory, fabric)},
        "listen": {"address": ADDRESS, "unix": str(_socket(directory))},
        "hosts": {"unix": str(directory / HOSTS_SOCKET)},
        "log": {"events": str(directory / EVENTS)},
        "scheme": scheme_table(scheme, seed),
        "discovery": {"hosts": "learn" if arp == PROXY_ARP else "configured"},
    }
    lines = [*toml_lines(words), *management.table(directory), *door.table(directory), more, ""]
    (directory / "controller.toml").write_text("\n".join(lines), encoding="utf-8")


def write_fabric(directory: Path, fabric: Fabric) -> str:
    """Writes `fabric.json` of the run directory. Returns how a configuration beside it names the fabric."""
    (directory / "fabric.json").write_text(fabric.to_node_link(), encoding="utf-8")
    from_file = fabric.text is not None or Path(fabric.spec.partition(":")[0]).suffix in FABRIC_FILES
    return "fabric.json" if from_file else fabric.spec


def toml_lines(tables: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Returns tables with their keys as lines of TOML."""
    lines: list[str] = []
    for table, keys in tables.items():
        # A JSON string, number or list is also one of TOML.
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return lines


def scheme_table(scheme: str, seed: int) -> dict[str, object]:
    """The scheme in the configuration; one in a Python file runs in a process with the rights of the user of sudo."""
    if not is_python_spec(scheme):
        return {"spec": scheme, "seed": seed}
    file, colon, rest = scheme.partition(":")
    table = {"spec": f"{Path(file).resolve()}{colon}{rest}", "python": sys.executable, "seed": seed}
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    return table | ({"user": f"{user}:{group}"} if user and group else {})


def launch(blueprint: Blueprint, directory: Path) -> subprocess.Popen[bytes]:
    """Starts the controller with the configuration `controller.toml`."""
    file = directory / "controller.toml"
    command = [*system.within(blueprint.namespace), program(), "--config", str(file)]
    process = system.start_daemon(command, directory / "controller.log", directory)
    # In a real network, the controller has its own machine. Here it must not wait for the switches.
    system.give_priority(process.pid)
    return process


def await_routes(
    process: subprocess.Popen[bytes],
    switches: OpenVSwitch,
    directory: Path,
    rules: dict[int, int],
    clock: Clock = SYSTEM,
) -> None:
    """Waits until every switch has the number of rules that exist before the first flow. Raises `ToolError`."""

    def have_rules() -> bool:
        check(process, directory)
        return all(count >= rules[node] for node, count in switches.rule_counts().items())

    if not await_event(have_rules, PATIENCE_S, 0.05, clock):
        raise ToolError(
            f"the controller has not set up the switches within {PATIENCE_S:g} s; see {directory}/controller.log"
        )


def check(process: subprocess.Popen[bytes], directory: Path) -> None:
    """Raises `ToolError` with the last line of the controller's log if the controller has ended by itself."""
    if process.poll() is not None:
        raise ToolError(f"the controller ended: {last_log_line(directory) or f'exit code {process.returncode}'}")


def await_sessions(
    process: subprocess.Popen[bytes], switches: OpenVSwitch, directory: Path, clock: Clock = SYSTEM
) -> None:
    """Waits until every switch has a session with the controller. Raises `ToolError`."""

    def are_connected() -> bool:
        check(process, directory)
        connected = switches.connected_bridges()
        return all(connected.get(one.bridge) for one in switches.blueprint.switches)

    if not await_event(are_connected, PATIENCE_S, 0.05, clock):
        raise ToolError(
            f"not all switches have connected to the controller within {PATIENCE_S:g} s; see {directory}/controller.log"
        )


def last_log_line(directory: Path) -> str | None:
    """Returns the last line of the controller's log; None if the log is empty or missing."""
    return system.last_line(directory / "controller.log")


def running(directory: Path) -> int | None:
    """Returns the process number of a lab's controller, whoever started it; None if it does not run."""
    return process_with(directory / "controller.toml")


def process_with(config: Path) -> int | None:
    """Returns the number of the process that runs with this configuration file; None if there is none."""
    # Until `ip netns exec` becomes the controller, it has the same words behind its own words.
    wanted = [b"--config", os.fsencode(config)]
    return system.process_where(lambda words: words[1:3] == wanted)


def busy_ns(process: subprocess.Popen[bytes]) -> int:
    """Returns the processor time, in nanoseconds, of the main thread, which runs the controller."""
    try:
        return int(Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0


def messages(directory: Path, since_ns: int) -> int:
    """Counts the messages in the event log that crossed the control channel, in both directions.

    Only messages from `since_ns` on count (nanoseconds since 1970).
    """
    count = 0
    with (directory / EVENTS).open(encoding="utf-8") as log:
        for line in log:
            if not line.endswith("\n"):
                break  # A killed controller may have left an incomplete line.
            record = json.loads(line)
            # A change of scheme is not a message.
            if record.get("at", -1) >= since_ns and "scheme" not in record:
                what = record.get("input", record.get("output"))
                verb = what if isinstance(what, str) else next(iter(what))
                count += verb not in _WITHIN
    return count


def final_counts(directory: Path) -> dict[str, int]:
    """Returns the counts that a controller logs when it is stopped by SIGTERM.

    They are `routes`, `reroutes`, `bound`, `rules_max`, `polls` and `polling_ns`.
    """
    said = (directory / "controller.log").read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(said) if "the rules stay" in line), "")
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", last)}


def cables_without_probes(directory: Path) -> list[str]:
    """Returns the cables that the last controller ceased to use because no probe got through, as `a to b`."""
    said = (directory / "controller.log").read_text(encoding="utf-8", errors="replace")
    # The log also has the controllers of earlier runs.
    last = said.rpartition("the controller runs")[2]
    ends = re.findall(r'no probe gets through a cable.* a="([^"]*)" b="([^"]*)"', last)
    return list(dict.fromkeys(f"{a} to {b}" for a, b in ends))


def without_probes_text(cables: Sequence[str]) -> str:
    """Describes what `cables_without_probes` means in a run without faults."""
    many, their = ("1 cable", "its") if len(cables) == 1 else (f"{len(cables)} cables", "their")
    why = f"because {their} probes were late or lost ({', '.join(cables[:3])}{', ...' if len(cables) > 3 else ''})"
    return f"flows left {many} without a fault, {why}: the machine is too busy for the lab"


def replay(directory: Path) -> str:
    """Replays the events of a live controller. Returns how many outputs agreed; raises `ToolError` if not all did."""
    return system.run_tool([program(), "replay", directory / "controller.toml", directory / EVENTS])


def paths(directory: Path, patience_s: float) -> str:
    """The changes of the paths of flows, as lines of JSON, from the log of an ended controller. Raises `ToolError`."""
    command: list[str | Path] = [program(), "paths", directory / "controller.toml", directory / EVENTS]
    return system.run_tool(command, timeout_s=patience_s)


def stop(process: subprocess.Popen[bytes]) -> bool:
    """Ends a controller; its rules stay. Returns whether it exited normally, and so logged its counts."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_S) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
