"""Management network of a lab, over which programs on hosts ask the controller for paths.

Each host has a separate cable to the controller's namespace. The cable has no address of its own: a host uses its
address on the fabric, by which the controller identifies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, Host

ADDRESS = "169.254.255.254"
"""Address of the controller, in the namespace of the first switches."""
PORT = 8080
VARIABLE = "PATHLOOM_PATHS"
"""Environment variable with the controller's address, for programs on hosts."""
INTERFACE = "control"
"""Interface of a host to the controller, separate from the fabric."""
_MARK = "paths"
"""File in the run directory that exists if the lab has this network."""


def place() -> str:
    """Returns the address at which the controller serves programs on hosts: ADDRESS:PORT."""
    return f"{ADDRESS}:{PORT}"


def connect(blueprint: Blueprint, directory: Path) -> None:
    """Makes the cables. Raises `ToolError`."""
    system.batch("ip", blueprint.namespace, _controller_lines(blueprint))
    for host in blueprint.hosts:
        system.batch("ip", host.namespace, _host_lines(host))
    (directory / _MARK).write_text(place() + "\n", encoding="ascii")


def is_there(directory: Path) -> bool:
    """Whether a lab has this network."""
    return (directory / _MARK).exists()


def table(directory: Path) -> list[str]:
    """Returns the lines of the controller's configuration for this network; none in a lab without it."""
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
    """Hardware address of an end of a host's cable; end 0 is the controller's."""
    number = host.node + 1
    return f"02:01:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}:{end:02x}"
