"""Long links: packets arrive after the delay of the link.

A cable with a delay is two veth pairs. Between them, `pathloom-delay` forwards each packet when it is due. The ends of
the cable set rate and queue as usual. A pair of links costs a few per cent of a processor at 10 Mbit/s. So a lab keeps
only delays that are long compared with the time that the machine itself takes for a hop.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from pathloom.errors import ToolError
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, HostPort, SwitchPort
from pathloom.native import find

PROGRAM = "pathloom-delay"
LEAST_PS = 1_000_000_000
"""Shortest delay that a lab keeps: 1 ms."""
_started: list[subprocess.Popen[bytes]] = []
"""Forwarders that this process has started. Their exit codes are collected when the next one is started."""


def is_kept(delay_ps: int) -> bool:
    """Returns whether a lab keeps this delay: it must be long, and `pathloom-delay` must be installed."""
    return delay_ps >= LEAST_PS and find(PROGRAM) is not None


def is_long(end: SwitchPort | HostPort, other: SwitchPort | HostPort) -> bool:
    """Returns whether the lab keeps the delay of a cable, in one direction or both."""
    return is_kept(max(end.shape.delay_ps, other.shape.delay_ps))


def far_end(end: SwitchPort | HostPort) -> str:
    """Returns the interface to which an end of a long cable is joined, in the namespace of the first switches."""
    return f"d{end.link}"


def cables(blueprint: Blueprint) -> Iterator[tuple[SwitchPort, SwitchPort | HostPort]]:
    """Yields the two ends of each long cable."""
    switch_ends = {port.link: port for port in blueprint.switch_ports}
    host_ends = {port.link: port for host in blueprint.hosts for port in host.ports}
    for port in blueprint.switch_ports:
        other = host_ends.get(port.link ^ 1) or switch_ends.get(port.link ^ 1)
        if other is not None and (isinstance(other, HostPort) or port.link % 2 == 0) and is_long(port, other):
            yield port, other


def interfaces(blueprint: Blueprint) -> list[str]:
    """Returns the interfaces that the forwarder joins, in the namespace of the first switches."""
    return [far_end(end) for pair in cables(blueprint) for end in pair]


def start(blueprint: Blueprint, directory: Path) -> None:
    """Joins the ends of long cables by one forwarder, if there are any. Raises `ToolError`."""
    pairs = list(cables(blueprint))
    if not pairs:
        return
    words = [
        f"{far_end(one)},{far_end(other)},{one.shape.delay_ps // 1000},{other.shape.delay_ps // 1000}"
        for one, other in pairs
    ]
    program = find(PROGRAM)
    assert program is not None, "long cables exist only if the program is installed"
    command = [*system.within(blueprint.namespace), program, *words]
    process = system.start_daemon(command, directory / "delay.log", directory, stdout=subprocess.PIPE)
    _started[:] = [*(one for one in _started if one.poll() is None), process]
    assert process.stdout is not None
    with process.stdout as said:
        if said.readline() != b"ready\n":
            last = system.last_line(directory / "delay.log")
            raise ToolError(f"`{PROGRAM}` did not start: {last or 'its log is empty'}")
