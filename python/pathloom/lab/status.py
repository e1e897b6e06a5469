"""The state of a lab and of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pathloom.errors import ToolError
from pathloom.lab import controller, door, hostd, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.lab import STARTING, UP, Lab
from pathloom.lab.members import Members
from pathloom.lab.program_switches import PathFindingSwitches
from pathloom.lab.queues import queue_counters
from pathloom.lab.switches import OpenVSwitch


def lab_status(name: str) -> dict[str, Any]:
    """Returns the row of a lab in `pathloom lab status --json`.

    `state` is `up`, `starting`, `broken` (parts of it are missing), `orphaned` (the run that built it was killed) or
    `down`. The row of a lab that never was up has only its name and state. Those of a broken and of an orphaned lab
    have `way_out`: what to do. `controller_process` is the process of Pathloom's own controller. It is null if the
    controller has ended, and `way_out` then says what to do. A lab with several controllers has `controllers` instead:
    the process of each, and whether it leads. `api` has the URL of the controller's API on this machine, the file with
    its token, and whether it is `open`; null for a lab without it. `host_agent` describes the agent of the hosts: its
    process (null if it does not run), whether it paces and holds, and why not. `programs` describes switches that find
    paths themselves: their protocol, and the tables and counters of each; null for others. `routers` describes switches
    that are routers: their kind, and how many packets they dropped outside queues, by reason; null for others.
    """
    lab = Lab(name)
    if not lab.exists():
        return {"name": name, "state": "down"}
    state = lab.state()
    if state is None or state.get("state") != UP:
        alive = state is not None and state.get("state") == STARTING and Path(f"/proc/{state['process']}").exists()
        return {"name": name, "state": STARTING} if alive else {"name": name, **_broken(lab)}
    blueprint = Blueprint.from_dict(state["blueprint"])
    programs = PathFindingSwitches(blueprint, lab.directory) if state.get("switches") else None
    switches = OpenVSwitch(blueprint, lab.directory)
    routers = lab.routers()
    switching = (routers or programs or switches).runs()
    missing = set(blueprint.namespaces) - set(system.namespaces_of(lab.prefix))
    connected: dict[str, bool] = {}
    notes = list(state.get("notes", []))
    if switching and state["controller"]:
        try:
            connected = switches.connected_bridges()
        except ToolError as error:
            # They may be ending just now.
            switching = False
            notes.append(f"the switches do not answer: {error}")
    condition = _orphaned(lab, state.get("keeper")) or ({"state": UP} if switching and not missing else _broken(lab))
    return {
        "name": name,
        "fabric": state["fabric"],
        "controller": state["controller"],
        # A broken lab is removed, whatever its controller would need.
        **_controller(lab, state),
        **condition,
        "api": door.row(lab.directory),
        "host_agent": {
            "process": hostd.running(lab.directory),
            "enforces": hostd.enforces(lab.directory),
            "warning": hostd.warning(lab.directory),
        },
        "scheme": state["scheme"],
        "programs": None if programs is None else {"protocol": state["switches"], "switches": programs.show()},
        "routers": None if routers is None else {**state["routed"], "drops": {} if missing else routers.drops()},
        "stack": state["stack"]["name"],
        "switching": switching,
        "run_directory": str(lab.directory),
        "switches": [
            {"name": one.name, "bridge": one.bridge, "dpid": one.dpid, "connected": connected.get(one.bridge)}
            for one in blueprint.switches
        ],
        "hosts": [
            {"name": one.name, "namespace": one.namespace, "addresses": [port.address for port in one.ports]}
            for one in blueprint.hosts
        ],
        "links": _links(blueprint) if not missing else [],
        "notes": notes,
    }


def _orphaned(lab: Lab, keeper: list[int] | None) -> dict[str, str]:
    """Returns the state of a lab whose run was killed; nothing for other labs."""
    if keeper is None or (system.started_at(keeper[0]) == keeper[1] and not system.is_over(keeper[0])):
        return {}
    way_out = (
        f"process {keeper[0]}, which built it for a run, has ended; `pathloom lab down --name {lab.name}` removes it"
    )
    return {"state": "orphaned", "way_out": way_out}


def _broken(lab: Lab) -> dict[str, str]:
    """Returns the state of a lab of which parts are left, as after its processes were killed."""
    return {"state": "broken", "way_out": lab.remedy()}


def _controller(lab: Lab, state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of Pathloom's own controller, or of several ones; nothing for a lab without it."""
    if state["controller"] != controller.OWN:
        return {}
    if count := state.get("controllers"):
        return {"controllers": Members(Blueprint.from_dict(state["blueprint"]), lab.directory, count).rows()}
    process = controller.running(lab.directory)
    if process is not None:
        return {"controller_process": process}
    way_out = (
        f"the controller has ended, and the switches keep the rules that they have; "
        f"`pathloom lab controller --name {lab.name}` starts it again"
    )
    return {
        "controller_process": None,
        "way_out": way_out,
        "last_words": controller.last_log_line(lab.directory),
    }


def _links(blueprint: Blueprint) -> list[dict[str, Any]]:
    found = link_counters(blueprint)
    names = {one.node: one.name for one in blueprint.switches}
    rows = []
    for port in blueprint.switch_ports:
        sent_bytes, packets, drops, waiting = found.get(port.interface, (0, 0, 0, 0))
        rows.append(
            {
                "link": port.link,
                "switch": names[port.switch],
                "port": port.number,
                "interface": port.interface,
                "rate_bps": port.shape.rate_bps,
                "sent_bytes": sent_bytes,
                "sent_packets": packets,
                "dropped_packets": drops,
                "waiting_packets": waiting,
            }
        )
    return rows


def link_counters(blueprint: Blueprint) -> dict[str, tuple[int, int, int, int]]:
    """Returns, by interface of a switch, bytes and packets sent, packets dropped and waiting. Raises `ToolError`."""
    found = {}
    for namespace in blueprint.switch_namespaces:
        found.update(queue_counters(namespace))
    return found
