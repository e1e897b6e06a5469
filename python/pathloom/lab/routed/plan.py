"""A plan of weights: for each switch and prefix, in which ratio flows take the next hops.

A plan comes from a scheme whose routes go by destination (`plan_of`), such as wcmp, or from a file (`read_plan`), so
any program can make one. The lab's routers carry it as weighted groups of next hops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from pathloom import _core
from pathloom.errors import bad_input, nearest_hint, reason
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.routed.routes import Route, prefixes_of_tors, routes_of
from pathloom.lab.tables import default_tables

MOST_WEIGHT = 255
"""Largest weight of a next hop: Linux before 6.12 keeps it in 8 bits."""


@dataclass(frozen=True)
class Plan:
    """Weights of next hops."""

    routes: Mapping[int, tuple[Route, ...]]
    """Routes of each switch, by node number. The links of each have a weight, 1 or more."""

    def to_dict(self, blueprint: Blueprint, fabric: Fabric) -> dict[str, Any]:
        """Returns the plan as JSON, in the form that `read_plan` reads."""
        names = [node["name"] for node in fabric.nodes]
        target = fabric.links["target"]
        rows = [
            {
                "switch": names[switch],
                "prefix": str(route.prefix),
                "next_hops": [{"to": names[target[link]], "link": link, "weight": one} for link, one in route.hops],
            }
            for switch, own in sorted(self.routes.items())
            for route in own
        ]
        return {"schema": 1, "fabric": blueprint.fabric, "routes": rows}


def plan_of(blueprint: Blueprint, fabric: Fabric, scheme: str) -> Plan:
    """Returns the weights of a scheme's routes. Routes of a switch to its own hosts are left out.

    Raises `PathloomError` for a scheme whose routes do not go by destination alone.
    """
    own_links = {port.link ^ 1 for host in blueprint.hosts for port in host.ports}
    found = {}
    for switch, routes in routes_of(blueprint, default_tables(fabric, scheme)).items():
        further = [one for one in routes if one.hops and not any(link in own_links for link, _ in one.hops)]
        found[switch] = tuple(further)
    return Plan(found)


def read_plan(file: Path, blueprint: Blueprint, fabric: Fabric) -> Plan:
    """Reads a plan. Raises `PathloomError` that names the first route which does not fit the fabric."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        rows = content["routes"]
        assert isinstance(rows, list)
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        why = reason(error) if isinstance(error, OSError) else "expected JSON with a list `routes`"
        raise bad_input(f"plan {file}: {why}; `pathloom lab weights --scheme wcmp --json FILE` writes one") from None
    reader = _Reader(file, blueprint, fabric)
    found: dict[int, dict[IPv4Network, Route]] = {}
    for number, row in enumerate(rows, start=1):
        switch, route = reader.route(f"route {number}", row)
        if route.prefix in found.setdefault(switch, {}):
            raise bad_input(f"plan {file}: route {number}: {row['switch']} has another route to {route.prefix}")
        found[switch][route.prefix] = route
    return Plan({switch: tuple(own.values()) for switch, own in sorted(found.items())})


class _Reader:
    """Reads the routes of a plan."""

    def __init__(self, file: Path, blueprint: Blueprint, fabric: Fabric) -> None:
        self._file, self._target = file, fabric.links["target"]
        self._names = [node["name"] for node in fabric.nodes]
        self._switches = {switch.name: switch for switch in blueprint.switches}
        self._ports = {switch.node: [] for switch in blueprint.switches}  # type: dict[int, list[int]]
        for port in blueprint.switch_ports:
            self._ports[port.switch].append(port.link)
        self._prefixes = {one for own in prefixes_of_tors(blueprint, fabric).values() for one in own}

    def route(self, where: str, row: Any) -> tuple[int, Route]:
        """Returns the switch and the route of a row. Raises `PathloomError`."""
        try:
            name, prefix = str(row["switch"]), IPv4Network(row["prefix"])
            hops = [(str(hop["to"]), hop.get("link"), hop["weight"]) for hop in row["next_hops"]]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._wrong(where, "expected `switch`, `prefix` and `next_hops` with `to` and `weight`") from None
        if name not in self._switches:
            raise self._wrong(where, f"`{name}` is no switch{nearest_hint(name, self._switches)}")
        if not any(one.subnet_of(prefix) for one in self._prefixes):
            known = [str(one) for one in sorted(self._prefixes)]
            raise self._wrong(where, f"{prefix} has no prefix of a ToR{nearest_hint(str(prefix), known)}")
        switch = self._switches[name].node
        shares = [(self._link(where, switch, to, link), self._weight(where, weight)) for to, link, weight in hops]
        if not shares or len({link for link, _ in shares}) < len(shares):
            raise self._wrong(where, "expected at least one next hop, and each cable once")
        return switch, Route(prefix, tuple(sorted(shares)))

    def _link(self, where: str, switch: int, to: str, link: Any) -> int:
        fitting = [one for one in self._ports[switch] if self._names[self._target[one]] == to]
        if link is not None:
            fitting = [one for one in fitting if one == link]
        if len(fitting) != 1:
            many = f"{len(fitting)} cables lead there; name one by `link`" if fitting else "no cable leads there"
            raise self._wrong(where, f"next hop `{to}` of {self._names[switch]}: {many}")
        return fitting[0]

    def _weight(self, where: str, weight: Any) -> int:
        if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MOST_WEIGHT:
            raise self._wrong(where, f"weight {weight!r}: expected 1 to {MOST_WEIGHT}; leave unused next hops out")
        return weight

    def _wrong(self, where: str, what: str) -> _core.PathloomError:
        return bad_input(f"plan {self._file}: {where}: {what}")
