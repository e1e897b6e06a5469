"""Puts a plan of weights into the static routes of a lab's routers, and takes it out again.

Each change makes new groups of next hops beside the old ones, then points the routes to them, then deletes the old
groups. A route is replaced in one step, so no packet is without a route.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pathloom.errors import bad_input
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, Switch
from pathloom.lab.routed.numbering import prefix6
from pathloom.lab.routed.plan import Plan
from pathloom.lab.routed.routers import Routers
from pathloom.lab.routed.routes import FIRST_GROUP, Route, next_hop
from pathloom.lab.routed.settings import KERNEL
from pathloom.lab.switches import TOOLS_AT_ONCE

Hops = tuple[tuple[int, int], ...]
"""Directed links and their weights."""


class Difference(NamedTuple):
    """A route that has other weights than the plan."""

    switch: str
    prefix: str
    before: Hops
    """What the kernel of the router has; empty without such a route."""
    planned: Hops


def check_weights(routers: Routers) -> None:
    """Raises `PathloomError` if the routes of a lab are not ours to change."""
    if routers.settings.kind != KERNEL:
        raise bad_input(
            f"lab `{routers.blueprint.lab}`: BGP chooses the next hops of its routers, and would undo other weights; "
            "`lab up --switches kernel` builds routers with static routes"
        )


def present(routers: Routers) -> dict[int, dict[str, Hops]]:
    """Returns the next hops of each router with their weights, by node number and IPv4 prefix. Raises `ToolError`."""

    def one(switch: Switch) -> tuple[int, dict[str, Hops]]:
        groups, _ = _next_hops(switch)
        rows = json.loads(system.run_tool(["ip", "-n", switch.namespace, "-4", "-json", "route", "show"]))
        found = {str(row["dst"]): groups.get(row["nhid"], ((row["nhid"] - 1, 1),)) for row in rows if "nhid" in row}
        return switch.node, {prefix if "/" in prefix else f"{prefix}/32": hops for prefix, hops in found.items()}

    with ThreadPoolExecutor(TOOLS_AT_ONCE) as pool:
        return dict(pool.map(one, routers.blueprint.switches))


def differences(blueprint: Blueprint, before: Mapping[int, Mapping[str, Hops]], plan: Plan) -> list[Difference]:
    """Returns the routes of a plan whose weights routers do not have."""
    names = {switch.node: switch.name for switch in blueprint.switches}
    return [
        Difference(names[switch], str(route.prefix), before.get(switch, {}).get(str(route.prefix), ()), route.hops)
        for switch, own in sorted(plan.routes.items())
        for route in own
        if before.get(switch, {}).get(str(route.prefix)) != route.hops
    ]


def apply(routers: Routers, plan: Plan) -> None:
    """Gives routers the weights of a plan, for IPv4 and IPv6. Other routes stay. Raises `ToolError`."""

    def one(switch: Switch) -> None:
        routes = plan.routes.get(switch.node, ())
        groups, used = _next_hops(switch)
        if routes:
            system.batch("ip", switch.namespace, change_lines(routes, max(used, default=FIRST_GROUP) + 1))
            still = _in_use(switch)
            gone = sorted(set(groups) - still)
            system.batch("ip", switch.namespace, [f"nexthop del id {number}" for number in gone])

    with ThreadPoolExecutor(TOOLS_AT_ONCE) as pool:
        list(pool.map(one, routers.blueprint.switches))


def change_lines(routes: Iterable[Route], first: int) -> list[str]:
    """Returns lines for `ip -batch`: groups of next hops with identifiers from `first` on, then routes to them.

    >>> from ipaddress import IPv4Network
    >>> change_lines([Route(IPv4Network("10.0.1.0/24"), ((8, 3), (10, 1)))], 7)[0]
    'nexthop add id 7 group 9,3/11,1'
    """
    lines, known = [], dict[Hops, int]()
    routes = list(routes)
    for route in routes:
        if len(route.hops) > 1 and route.hops not in known:
            known[route.hops] = first + 2 * len(known)
            for family in (0, 1):
                members = "/".join(f"{next_hop(link, family)},{weight}" for link, weight in route.hops)
                lines.append(f"nexthop add id {known[route.hops] + family} group {members}")
    for route in routes:
        for family, prefix in enumerate((str(route.prefix), str(prefix6(route.prefix)))):
            single = next_hop(route.hops[0][0], family)
            target = known[route.hops] + family if len(route.hops) > 1 else single
            lines.append(f"route replace {prefix} nhid {target}")
    return lines


def _next_hops(switch: Switch) -> tuple[dict[int, Hops], set[int]]:
    """Returns the groups of a router by identifier, and all identifiers. Weights are those of directed links."""
    rows = json.loads(system.run_tool(["ip", "-n", switch.namespace, "-json", "nexthop", "show"]) or "[]")
    groups = {
        row["id"]: tuple(sorted((member["id"] - 1, member.get("weight", 1)) for member in row["group"]))
        for row in rows
        if "group" in row
    }
    return groups, {row["id"] for row in rows}


def _in_use(switch: Switch) -> set[int]:
    """Returns the next hops and groups that routes of a router use."""
    found: set[int] = set()
    for family in ("-4", "-6"):
        rows = json.loads(system.run_tool(["ip", "-n", switch.namespace, family, "-json", "route", "show"]))
        found |= {row["nhid"] for row in rows if "nhid" in row}
    return found
