"""A lab's network beside its links, by which programs on hosts ask the controller for paths.

Each host has a cable of its own to the controller's namespace. It has no address: a host calls from the address that it
has on the fabric, by which the controller knows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, Host

ADDRESS = "169.254.255.254"
"""The controller's, in the namespace of the first switches."""
PORT = 8080
VARIABLE = "PATHLOOM_PATHS"
"""Environment variable by which programs on hosts find it."""
INTERFACE = "control"
"""The interface of a host to the controller, beside the fabric."""
_MARK = "paths"
"""File of the run directory that says that this network is there."""


def place() -> str:
    """Where the controller serves programs on hosts: ADDRESS:PORT."""
    return f"{ADDRESS}:{PORT}"


def connect(blueprint: Blueprint, directory: Path) -> None:
    """Lays the cables. Raises `ToolError`."""
    system.batch("ip", blueprint.namespace, _controller_lines(blueprint))
    for host in blueprint.hosts:
        system.batch("ip", host.namespace, _host_lines(host))
    (directory / _MARK).write_text(place() + "\n", encoding="ascii")


def is_there(directory: Path) -> bool:
    """Whether a lab has this network."""
    return (directory / _MARK).exists()


def table(directory: Path) -> list[str]:
    """What the controller's configuration says of it; nothing in a lab without it."""
    return ["[paths]", f'address = "{place()}"'] if is_there(directory) else []


def _controller_lines(blueprint: Blueprint) -> Iterator[str]:
    yield f"address add {ADDRESS}/32 dev lo"
    for host in blueprint.hosts:
        own, theirs = f"m{host.node}", _mac(host, 1)
        peer = f"peer name {INTERFACE} address {theirs} netns {host.namespace}"
        yield f"link add {own} address {_mac(host, 0)} type veth {peer}"
        yield f"link set {own} up"
        for port in host.ports:
            yield f"route add {port.address}/32 dev {own} src {ADDRESS}"
            yield f"neighbour add {port.address} lladdr {theirs} dev {own} nud permanent"


def _host_lines(host: Host) -> Iterator[str]:
    yield f"link set {INTERFACE} up"
    yield f"neighbour add {ADDRESS} lladdr {_mac(host, 0)} dev {INTERFACE} nud permanent"
    yield f"route add {ADDRESS}/32 dev {INTERFACE} src {host.ports[0].address}"


def _mac(host: Host, end: int) -> str:
    """Hardware address of an end of a host's cable: 0 is the controller's."""
    number = host.node + 1
    return f"02:01:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}:{end:02x}"
