"""Configurations of SONiC switches for a plan of weights: addresses of cables, static routes, segments.

`config_db.json` has tables of CONFIG_DB, by the YANG models sonic-interface, sonic-static-route and sonic-srv6. Its
static routes have no weights, as the model has none: they are plain ECMP. `routes.json` has the weights, as entries of
ROUTE_TABLE of APPL_DB (doc/swss-schema.md of sonic-swss), for the tool `swssconfig`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import Any

from pathloom.errors import bad_input, reason
from pathloom.lab.blueprint import Blueprint, SwitchPort
from pathloom.lab.routed.numbering import link_address, link_address6, prefix6
from pathloom.lab.routed.plan import Plan
from pathloom.lab.routed.routes import Route

LANES = 4
"""Ports of SONiC are usually numbered by lanes: Ethernet0, Ethernet4, and so on."""
BLOCK = IPv6Network("fcbb:bbbb::/32")
"""Block of the segments, as in the examples of RFC 9800 for compressed segments."""
NODE_BITS, FUNCTION_BITS = 16, 16
LOCATOR = "pathloom"
FIRST_ADJACENCY = 0xE000
"""Function of the first port's segment: outside those that other programs usually give out."""
_PORT = re.compile(r"Ethernet\d{1,4}\Z")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")

Config = dict[str, dict[str, dict[str, str]]]
"""Tables of CONFIG_DB, their keys and fields."""


@dataclass(frozen=True)
class PortNames:
    """Names of the ports of SONiC switches."""

    given: Mapping[str, Mapping[str, str]]
    """By switch and port number of the fabric, both as text."""

    @classmethod
    def read(cls, file: Path | None) -> PortNames:
        """Reads JSON such as {"e0": {"3": "Ethernet48"}}. Raises `PathloomError`."""
        if file is None:
            return cls({})
        try:
            given = json.loads(file.read_text(encoding="utf-8"))
            names = [(switch, port, name) for switch, own in given.items() for port, name in own.items()]
        except (OSError, ValueError, AttributeError) as error:
            why = reason(error) if isinstance(error, OSError) else 'expected JSON such as {"e0": {"3": "Ethernet48"}}'
            raise bad_input(f"--ports {file}: {why}") from None
        for switch, port, name in names:
            if not isinstance(name, str) or not _PORT.match(name):
                raise bad_input(f"--ports {file}: {switch}, port {port}: `{name}` is no port such as Ethernet48")
            if list(given[switch].values()).count(name) > 1:
                raise bad_input(f"--ports {file}: {switch}: two ports are called {name}")
        return cls(given)

    def of(self, switch: str, port: int) -> str:
        """Returns the name of a port. Raises `PathloomError` if a file has the switch without it.

        >>> PortNames({}).of("e0", 3)
        'Ethernet8'
        """
        own = self.given.get(switch)
        if own is None:
            return f"Ethernet{LANES * (port - 1)}"
        if str(port) not in own:
            raise bad_input(f"--ports: {switch} has no name for port {port}")
        return own[str(port)]


@dataclass(frozen=True)
class Export:
    """What is written for one switch."""

    switch: str
    config: Config
    routes: list[dict[str, Any]]
    """Entries for `swssconfig`: the routes with unequal weights."""
    number: int
    """Number of the switch among the switches of the fabric."""

    @property
    def folder(self) -> str:
        """Name of the folder of its files: its own name if a folder can have it."""
        return self.switch if _FOLDER.match(self.switch) else f"switch{self.number}"

    def files(self) -> dict[str, str]:
        """Returns the files of the switch by name. Without weights there is no `routes.json`."""
        found: dict[str, Any] = {"config_db.json": self.config}
        if self.routes:
            found["routes.json"] = self.routes
        return {name: json.dumps(content, indent=2) + "\n" for name, content in found.items()}


def exports_of(blueprint: Blueprint, plan: Plan, names: PortNames, with_segments: bool) -> list[Export]:
    """Returns the configuration of each switch. Raises `PathloomError` for ports without a name."""
    to_hosts = {port.link ^ 1 for host in blueprint.hosts for port in host.ports}
    found = []
    for number, switch in enumerate(blueprint.switches):
        ports = [port for port in blueprint.switch_ports if port.switch == switch.node and port.link not in to_hosts]
        called = {port.link: names.of(switch.name, port.number) for port in ports}
        routes = plan.routes.get(switch.node, ())
        config: Config = {"INTERFACE": _interfaces(called), "STATIC_ROUTE": _static_routes(routes, called)}
        if with_segments:
            config |= _segments(number, ports, called)
        tables = {table: rows for table, rows in config.items() if rows}
        found.append(Export(switch.name, tables, _weighted(routes, called), number))
    return found


def _interfaces(called: Mapping[int, str]) -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for link, name in called.items():
        rows[name] = {}
        rows[f"{name}|{link_address(link)}/31"] = {}
        rows[f"{name}|{link_address6(link)}/127"] = {}
    return rows


def _next_hops(route: Route, called: Mapping[int, str]) -> list[tuple[str, dict[str, str]]]:
    """Returns prefix and next hops of a route, for IPv4 and IPv6."""
    links = [link for link, _ in route.hops]
    names = ",".join(called[link] for link in links)
    return [
        (str(prefix), {"nexthop": ",".join(str(address(link ^ 1)) for link in links), "ifname": names})
        for prefix, address in ((route.prefix, link_address), (prefix6(route.prefix), link_address6))
    ]


def _static_routes(routes: Sequence[Route], called: Mapping[int, str]) -> dict[str, dict[str, str]]:
    return {f"default|{prefix}": hops for route in routes for prefix, hops in _next_hops(route, called)}


def _weighted(routes: Sequence[Route], called: Mapping[int, str]) -> list[dict[str, Any]]:
    rows = []
    for route in routes:
        weights = [weight for _, weight in route.hops]
        if len(set(weights)) > 1:
            more = {"weight": ",".join(map(str, weights))}
            rows += [
                {f"ROUTE_TABLE:{prefix}": {**hops, **more}, "OP": "SET"} for prefix, hops in _next_hops(route, called)
            ]
    return rows


def _segments(number: int, ports: Sequence[SwitchPort], called: Mapping[int, str]) -> Config:
    """Returns the locator of a switch, its own segment (uN), and one for each cable to another switch (uA)."""
    if number + 1 >= 1 << NODE_BITS:
        raise bad_input(f"--srv6: there are segments for {(1 << NODE_BITS) - 1} switches at most")
    node = int(BLOCK.network_address) + ((number + 1) << (128 - BLOCK.prefixlen - NODE_BITS))
    node_bits = BLOCK.prefixlen + NODE_BITS
    function_bits = node_bits + FUNCTION_BITS
    locator = {
        "prefix": str(IPv6Address(node)),
        "block_len": str(BLOCK.prefixlen),
        "node_len": str(NODE_BITS),
        "func_len": str(FUNCTION_BITS),
    }
    sids: dict[str, dict[str, str]] = {f"{LOCATOR}|{IPv6Address(node)}/{node_bits}": {"action": "uN"}}
    for port in ports:
        address = IPv6Address(node + ((FIRST_ADJACENCY + port.number) << (128 - function_bits)))
        sids[f"{LOCATOR}|{address}/{function_bits}"] = {"action": "uA", "interface": called[port.link]}
    return {"SRV6_MY_LOCATORS": {LOCATOR: locator}, "SRV6_MY_SIDS": sids}
