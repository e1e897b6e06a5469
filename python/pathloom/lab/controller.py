"""The live controller of a lab: the native `pathloom-controller`, in the namespace of the first switches."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from pathloom.errors import ToolError
from pathloom.fabrics import Fabric
from pathloom.lab import management, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.switches import OpenVSwitch
from pathloom.native import program

OWN = "pathloom"
"""What stands for the native controller where a lab is told where its controller is."""
_WITHIN = ("timeout", "solved", "solve", "load", "rtt", "reviewed", "review_request", "repaired", "resync")
"""What crosses no channel, and the reading of rules all the time, which the simulator does not do."""
ADDRESS = "127.0.0.1:6653"
"""Where those find it who are in the namespace of the first switches."""
SWITCHES_SOCKET = "controller.sock"
"""Where the switches of a lab find it, in their run directory, from whatever namespace."""
HOSTS_SOCKET = "hosts.sock"
"""Where host agents find it, in the run directory."""
STATIC_ARP, PROXY_ARP = "static", "proxy"
"""Whether hosts know each other's hardware addresses, or ask the controller."""
EVENTS = "events.jsonl"
"""Everything it was told and wanted, in the run directory."""
PATIENCE_S = 60.0
STOP_S = 5.0


def target(directory: Path) -> str:
    """What the switches of a lab call, given its run directory."""
    return f"unix:{_socket(directory)}"


def _socket(directory: Path) -> Path:
    # Open vSwitch calls nothing in the file system that is not beside its own sockets.
    return directory / "ovs" / SWITCHES_SOCKET


def start(
    blueprint: Blueprint, directory: Path, fabric: Fabric, scheme: str, seed: int, arp: str = STATIC_ARP
) -> subprocess.Popen[bytes]:
    """Starts the controller with a scheme; what it says goes to `controller.log` of the run directory."""
    write_config(directory, fabric, scheme, seed, arp)
    return launch(blueprint, directory)


def write_config(
    directory: Path, fabric: Fabric, scheme: str, seed: int, arp: str = STATIC_ARP, more: str = ""
) -> None:
    """Writes `controller.toml` of the run directory, with `more` at its end."""
    (directory / "fabric.json").write_text(fabric.to_node_link(), encoding="utf-8")
    from_file = fabric.text is not None or Path(fabric.spec.partition(":")[0]).suffix in (".json", ".graphml")
    spec = "fabric.json" if from_file else fabric.spec
    words = {
        "fabric": {"spec": spec},
        "listen": {"address": ADDRESS, "unix": str(_socket(directory))},
        "hosts": {"unix": str(directory / HOSTS_SOCKET)},
        "log": {"events": str(directory / EVENTS)},
        "scheme": {"spec": scheme},
    }
    lines = []
    for table, keys in words.items():
        # A text in JSON is a text in TOML.
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    lines += [f"seed = {seed}", "[discovery]", f'hosts = "{"learn" if arp == PROXY_ARP else "configured"}"']
    lines += [*management.table(directory), more, ""]
    (directory / "controller.toml").write_text("\n".join(lines), encoding="utf-8")


def launch(blueprint: Blueprint, directory: Path) -> subprocess.Popen[bytes]:
    """Starts the controller as `controller.toml` says."""
    file = directory / "controller.toml"
    command = [system.find_tool("ip") or "ip", "netns", "exec", blueprint.namespace, program(), "--config", str(file)]
    with (directory / "controller.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, system.MARK: str(directory)},
            start_new_session=True,
        )
    # It has a machine of its own elsewhere, and must not wait for the switches here.
    system.run_at_once(process.pid)
    return process


def await_routes(
    process: subprocess.Popen[bytes], switches: OpenVSwitch, directory: Path, rules: dict[int, int]
) -> None:
    """Waits until every switch has as many rules as are set up before the first flow. Raises `ToolError`."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        check(process, directory)
        if all(count >= rules[node] for node, count in switches.rule_counts().items()):
            return
        time.sleep(0.05)
    raise ToolError(
        f"the controller has not set up the switches within {PATIENCE_S:g} s; see {directory}/controller.log"
    )


def check(process: subprocess.Popen[bytes], directory: Path) -> None:
    """Raises `ToolError` with what a controller said last when it has ended by itself."""
    if process.poll() is not None:
        raise ToolError(f"the controller ended: {last_words(directory) or f'exit code {process.returncode}'}")


def await_sessions(process: subprocess.Popen[bytes], switches: OpenVSwitch, directory: Path) -> None:
    """Waits until every switch has its session. Raises `ToolError`."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        check(process, directory)
        connected = switches.connected_bridges()
        if all(connected.get(one.bridge) for one in switches.blueprint.switches):
            return
        time.sleep(0.05)
    raise ToolError(
        f"not all switches have called the controller within {PATIENCE_S:g} s; see {directory}/controller.log"
    )


def last_words(directory: Path) -> str | None:
    """The last line that the controller of a lab has logged; None if there is none."""
    try:
        said = (directory / "controller.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:
        return None
    return said[-1] if said else None


def running(directory: Path) -> int | None:
    """Number of the process that is the controller of a lab, whoever started it; None if there is none."""
    return process_with(directory / "controller.toml")


def process_with(config: Path) -> int | None:
    """Number of the process that runs with this configuration file; None if there is none."""
    file = os.fsencode(config)
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                try:
                    words = Path(f"/proc/{entry.name}/cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue  # It has ended meanwhile.
                # `ip netns exec` has the same words behind others of its own, until it becomes the controller.
                if words[1:3] == [b"--config", file]:
                    return int(entry.name)
    return None


def busy_ns(process: subprocess.Popen[bytes]) -> int:
    """Processor time that its main thread took, which is the controller."""
    try:
        return int(Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0


def messages(directory: Path, since_ns: int) -> int:
    """Messages that crossed the control channel, either way, from a time on (ns since 1970), by the event log."""
    count = 0
    with (directory / EVENTS).open(encoding="utf-8") as log:
        for line in log:
            if not line.endswith("\n"):
                break  # A controller that was killed may have begun it.
            record = json.loads(line)
            # A change of scheme is no message.
            if record.get("at", -1) >= since_ns and "scheme" not in record:
                what = record.get("input", record.get("output"))
                verb = what if isinstance(what, str) else next(iter(what))
                count += verb not in _WITHIN
    return count


def final_counts(directory: Path) -> dict[str, int]:
    """What a controller that was stopped in order has counted.

    `routes`, `reroutes`, `rules_max`, `polls` and `polling_ns`.
    """
    said = (directory / "controller.log").read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(said) if "the rules stay" in line), "")
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", last)}


def replay(directory: Path) -> str:
    """Gives a pure controller the events of a live one; says how many outputs agreed. Raises `ToolError` if not all."""
    return system.run_tool([program(), "replay", directory / "controller.toml", directory / EVENTS])


def stop(process: subprocess.Popen[bytes]) -> bool:
    """Ends a controller; the rules stay. Says whether it ended in order, and has said what it counted."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_S) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
