"""Maps a fabric to the names, numbers and addresses of a lab. The same fabric always gives the same blueprint.

The convention, which controllers share (docs/lab.md):

- bridge `s<node name>` (`s+<node number>` if that is not a valid name of an interface),
- datapath id = node number + 1, OpenFlow port = the fabric's own port number, which counts from 1,
- `l<link number>` is the switch's end of the directed link that leaves it,
- a host's n-th port is `eth<n>` in its namespace, with the fabric's address and the MAC
  `02:00:<node number + 1>:<port>`.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Self

from pathloom.errors import bad_input
from pathloom.fabrics import Fabric
from pathloom.quantities import listed

NAMESPACE_PREFIX = "pathloom."
SWITCHES = "switches"
"""Last part of the name of the first daemon's namespace. The names of others end in this and the daemon's ordinal."""

_SAFE = re.compile(r"[A-Za-z0-9_-]+\Z")
_OF_SWITCHES = re.compile(rf"{SWITCHES}\d*\Z")
_INTERFACE_MOST = 15
"""Longest name of an interface in Linux (IFNAMSIZ - 1)."""


@dataclass(frozen=True)
class Shape:
    """Properties of one direction of a cable."""

    rate_bps: int
    delay_ps: int
    buffer_packets: int
    up: bool


@dataclass(frozen=True)
class Switch:
    """A node that becomes a bridge."""

    node: int
    name: str
    bridge: str
    dpid: str
    """16 hexadecimal digits."""
    namespace: str
    """Namespace of the daemon that runs the switch."""


@dataclass(frozen=True)
class SwitchPort:
    """A switch's end of a cable."""

    switch: int
    """Node number."""
    number: int
    """OpenFlow port."""
    link: int
    """The directed link that leaves by this port."""
    interface: str
    namespace: str
    """Namespace of the interface, which is the switch's."""
    shape: Shape


@dataclass(frozen=True)
class HostPort:
    """A host's end of a cable."""

    interface: str
    address: str
    mac: str
    link: int
    """The directed link from the host."""
    peer: str
    """Interface of the switch at the other end."""
    shape: Shape


@dataclass(frozen=True)
class Host:
    """A node that becomes a namespace."""

    node: int
    name: str
    namespace: str
    ports: tuple[HostPort, ...]


@dataclass(frozen=True)
class Blueprint:
    """Everything that a lab is built from."""

    lab: str
    fabric: str
    """Specification of the fabric."""
    switch_namespaces: tuple[str, ...]
    """Namespaces of the switches, one for each daemon."""
    switches: tuple[Switch, ...]
    switch_ports: tuple[SwitchPort, ...]
    hosts: tuple[Host, ...]

    @classmethod
    def of(cls, lab: str, fabric: Fabric, daemons: int = 1, routed: bool = False) -> Self:
        """Returns the blueprint of a fabric in a lab of this name, with its switches on at most `daemons` daemons.

        With `routed`, each switch is a router in a namespace of its own.
        """
        if keys := fabric.core.simulated_keys():
            only = "is for the simulator only" if len(keys) == 1 else "are for the simulator only"
            raise bad_input(f"--fabric: {listed([f'{key}=' for key in keys])} {only}; leave out what the lab cannot do")
        links, nodes = fabric.links, fabric.nodes
        is_host = [node["tier"] == "host" for node in nodes]
        daemon_of = spread(fabric, len(nodes) if routed else daemons)
        namespaces = tuple(
            f"{NAMESPACE_PREFIX}{lab}.{SWITCHES}{ordinal(number)}" for number in range(max(daemon_of.values()) + 1)
        )
        if routed:
            daemon_of = {switch: number for number, switch in enumerate(daemon_of)}
            namespaces = tuple(namespace_name(lab, nodes[switch]["name"], switch) for switch in daemon_of)
        switches = tuple(
            Switch(
                node, nodes[node]["name"], bridge_name(nodes[node]["name"], node), f"{node + 1:016x}", namespaces[one]
            )
            for node, one in daemon_of.items()
        )
        ports = tuple(
            SwitchPort(source, port, link, f"l{link}", namespaces[daemon_of[source]], _shape(links, link))
            for link, (source, port) in enumerate(zip(links["source"], links["source_port"], strict=True))
            if not is_host[source]
        )
        attached: dict[int, list[tuple[str, int]]] = {}
        for address, host, uplink in fabric._core.addresses():
            attached.setdefault(host, []).append((address, uplink))
        hosts = tuple(
            Host(number, node["name"], namespace_name(lab, node["name"], number), _host_ports(number, links, attached))
            for number, node in enumerate(nodes)
            if is_host[number]
        )
        return cls(lab, fabric.spec, namespaces, switches, ports, hosts)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Returns the blueprint from the result of `to_dict`."""
        switch_ports = [SwitchPort(**{**port, "shape": Shape(**port["shape"])}) for port in values["switch_ports"]]
        hosts = [
            Host(
                **{
                    **host,
                    "ports": tuple(HostPort(**{**port, "shape": Shape(**port["shape"])}) for port in host["ports"]),
                }
            )
            for host in values["hosts"]
        ]
        return cls(
            values["lab"],
            values["fabric"],
            tuple(values["switch_namespaces"]),
            tuple(Switch(**switch) for switch in values["switches"]),
            tuple(switch_ports),
            tuple(hosts),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def host_at(self, address: str) -> tuple[Host, HostPort]:
        """Returns the host with an address, and the port that has it. Raises `PathloomError`."""
        for host in self.hosts:
            for port in host.ports:
                if port.address == address:
                    return host, port
        raise bad_input(f"`{address}`: no host of {self.fabric} has this address")

    def host_port(self, text: str) -> tuple[Host, HostPort]:
        """Returns a host and its port: `h3` is the first one of host h3, `h3:eth1` its port eth1.

        Raises `PathloomError`.
        """
        hosts = {host.name: host for host in self.hosts}
        name, interface = (text, "") if text in hosts else text.rpartition(":")[::2]
        if name not in hosts:
            raise bad_input(f"`{text}` is no host of {self.fabric}; expected HOST or HOST:PORT, such as h0 or h0:eth1")
        ports = hosts[name].ports
        port = next((port for port in ports if interface in ("", port.interface)), None)
        if port is None:
            names = ", ".join(port.interface for port in ports)
            raise bad_input(f"`{text}`: host {name} has no port {interface}; expected one of {names}")
        return hosts[name], port

    @property
    def namespace(self) -> str:
        """The namespace of the first switches, where a controller runs."""
        return self.switch_namespaces[0]

    @property
    def namespaces(self) -> list[str]:
        """Names of all namespaces of the lab."""
        return [*self.switch_namespaces, *(host.namespace for host in self.hosts)]

    def ports_in(self, namespace: str) -> list[SwitchPort]:
        """The ports of the switches that are in a namespace."""
        return [port for port in self.switch_ports if port.namespace == namespace]

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of all links."""
        ends: list[SwitchPort | HostPort] = [*self.switch_ports, *(port for host in self.hosts for port in host.ports)]
        return [end.shape for end in ends]


def plan_dict(blueprint: Blueprint, fabric: Fabric) -> dict[str, Any]:
    """Returns the parts of a lab, for other programs: switches, hosts, and cables with the ports at both ends."""
    links = fabric.links
    names = ("source", "target", "source_port", "target_port", "rate_bps", "delay_ps", "buffer_packets", "up")
    cables = [{name: links[name][link] for name in names} for link in range(0, len(links["source"]), 2)]
    values = blueprint.to_dict()
    keys = ("lab", "fabric", "switch_namespaces", "switches", "hosts")
    return {"schema": 1, **{key: values[key] for key in keys}, "cables": cables}


def spread(fabric: Fabric, daemons: int) -> dict[int, int]:
    """Spreads the switches of a fabric over at most `daemons` daemons. Returns the daemon, from 0 on, by node number.

    Each daemon gets about the same sum of port rates in every tier, since one tier may be busy while others are not.

    >>> spread(Fabric("fat-tree:k=2"), 2)
    {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    """
    links, nodes = fabric.links, fabric.nodes
    rates_bps = [0] * len(nodes)
    for source, rate_bps in zip(links["source"], links["rate_bps"], strict=True):
        rates_bps[source] += rate_bps
    switches = [number for number, node in enumerate(nodes) if node["tier"] != "host"]
    count = max(1, min(daemons, len(switches)))
    of_all, of_tier = [0] * count, {nodes[switch]["tier"]: [0] * count for switch in switches}
    found = {}
    for switch in sorted(switches, key=lambda one: -rates_bps[one]):
        own = of_tier[nodes[switch]["tier"]]
        least = min(range(count), key=lambda one: (own[one], of_all[one]))
        found[switch] = least
        own[least] += rates_bps[switch]
        of_all[least] += rates_bps[switch]
    return dict(sorted(found.items()))


def ordinal(number: int) -> str:
    """Returns the suffix in the names of a daemon's files and namespace; the first daemon has none.

    >>> [ordinal(number) for number in range(3)]
    ['', '2', '3']
    """
    return str(number + 1) if number else ""


def bridge_name(name: str, number: int) -> str:
    """Name of the bridge of a switch.

    >>> bridge_name("a0_1", 9), bridge_name("a name, with spaces", 9)
    ('sa0_1', 's+9')
    """
    bridge = f"s{name}"
    return bridge if _SAFE.match(name) and len(bridge) <= _INTERFACE_MOST else f"s+{number}"


def namespace_name(lab: str, name: str, number: int) -> str:
    """Name of the namespace of a host.

    >>> [namespace_name("lab", name, 23) for name in ("h3", "Oulu, north", "switches2")]
    ['pathloom.lab.h3', 'pathloom.lab.+23', 'pathloom.lab.+23']
    """
    plain = _SAFE.match(name) and len(name) <= 64 and not _OF_SWITCHES.match(name)
    return f"{NAMESPACE_PREFIX}{lab}.{name if plain else f'+{number}'}"


def mac_of(node: int, port: int) -> str:
    """MAC of a host's port, locally administered.

    >>> mac_of(20, 1)
    '02:00:00:00:15:01'
    """
    digits = f"0200{node + 1:06x}{port:02x}"
    return ":".join(digits[place : place + 2] for place in range(0, 12, 2))


def _host_ports(
    node: int, links: dict[str, list[Any]], attached: dict[int, list[tuple[str, int]]]
) -> tuple[HostPort, ...]:
    in_port_order = sorted(attached[node], key=lambda one: links["source_port"][one[1]])
    return tuple(
        HostPort(
            f"eth{index}", address, mac_of(node, links["source_port"][uplink]), uplink, f"l{uplink ^ 1}",
            _shape(links, uplink),
        )
        for index, (address, uplink) in enumerate(in_port_order)
    )  # fmt: skip


def _shape(links: dict[str, list[Any]], link: int) -> Shape:
    return Shape(links["rate_bps"][link], links["delay_ps"][link], links["buffer_packets"][link], links["up"][link])
