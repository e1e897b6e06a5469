"""Routes of a lab of routers: the default routes of a scheme, as prefixes with next hops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pathloom.errors import bad_input
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint, SwitchPort
from pathloom.lab.routed.numbering import link_address, link_address6, prefix6
from pathloom.lab.tables import SwitchTables

_HOPS6, FIRST_GROUP = 1 << 20, 1 << 21
"""First identifiers of IPv6 next hops and of groups. IPv4 next hops have the number of their link + 1."""


def next_hop(link: int, family: int) -> int:
    """Returns the identifier of the next hop over a directed link; `family` is 0 for IPv4 and 1 for IPv6."""
    return _HOPS6 * family + link + 1


@dataclass(frozen=True)
class Route:
    """A prefix and the links that lead to it, with their weights."""

    prefix: IPv4Network
    hops: tuple[tuple[int, int], ...]
    """Directed link and weight of each next hop. Empty: packets to this prefix are dropped."""


def routes_of(blueprint: Blueprint, tables: Iterable[SwitchTables]) -> dict[int, list[Route]]:
    """Returns the routes of each switch, by node number, that do the same as its default rules.

    `tables` has number, rules and groups of every switch. Raises `PathloomError` for rules that routes cannot express.
    """
    link_at = {(port.switch, port.number): port.link for port in blueprint.switch_ports}
    found: dict[int, list[Route]] = {}
    for node, rules, groups in tables:
        by_id = {group["id"]: group for group in groups}
        own = found[node] = []
        for rule in rules:
            matched = {key: value for key, value in rule["matches"].items() if value is not None}
            if rule["goto"] is not None and not matched:
                continue
            if matched.keys() != {"dst"} or rule["goto"] is not None:
                raise bad_input(f"routes: a rule matches {sorted(matched)}; routers forward by destination only")
            prefix = IPv4Network((matched["dst"]["address"], matched["dst"]["len"]))
            hops = tuple((link_at[node, port], weight) for port, weight in _ports(rule["actions"], by_id))
            own.append(Route(prefix, hops))
    return found


def _ports(actions: Sequence[Mapping[str, int]], groups: Mapping[int, Any]) -> Iterator[tuple[int, int]]:
    """Yields the ports over which actions spread flows, with their weights."""
    for action in actions:
        ((kind, value),) = action.items()
        if kind == "Output":
            yield value, 1
        elif kind == "Group" and groups[value]["kind"] == "Select":
            for bucket in groups[value]["buckets"]:
                yield from ((port, bucket["weight"]) for port, _ in _ports(bucket["actions"], groups))
        else:
            raise bad_input(f"routes: a rule has the action {kind}; routers only forward")


def longest(routes: Iterable[Route], address: str) -> Route | None:
    """Returns the route that a packet to an address takes; None if there is none."""
    own = IPv4Address(address)
    fitting = [route for route in routes if own in route.prefix]
    return max(fitting, key=lambda route: route.prefix.prefixlen, default=None)


def prefixes_of_tors(blueprint: Blueprint, fabric: Fabric) -> dict[int, list[IPv4Network]]:
    """Returns the prefixes that each ToR announces: the /24 of its hosts, or each address if ToRs share a /24."""
    at: dict[int, list[IPv4Address]] = {}
    for host in blueprint.hosts:
        for port in host.ports:
            at.setdefault(fabric.links["target"][port.link], []).append(IPv4Address(port.address))
    owners: dict[IPv4Network, set[int]] = {}
    for tor, addresses in at.items():
        for address in addresses:
            owners.setdefault(IPv4Network((address, 24), strict=False), set()).add(tor)
    found: dict[int, list[IPv4Network]] = {}
    for tor, addresses in sorted(at.items()):
        wide = {one: IPv4Network((one, 24), strict=False) for one in addresses}
        chosen = {net if len(owners[net]) == 1 else IPv4Network(one) for one, net in wide.items()}
        found[tor] = sorted(chosen)
    return found


def next_switches(
    blueprint: Blueprint, fabric: Fabric, routes: Mapping[int, Sequence[Route]]
) -> Iterator[dict[int, list[int]]]:
    """Yields, for each prefix of a ToR, the switches that follow each switch on the way to it."""
    target = fabric.links["target"]
    switches = {switch.node for switch in blueprint.switches}
    for prefixes in prefixes_of_tors(blueprint, fabric).values():
        for prefix in prefixes:
            inside = address_inside(blueprint, prefix)
            following = {}
            for switch, own in routes.items():
                route = longest(own, inside)
                hops = [target[link] for link, _ in route.hops] if route is not None else []
                following[switch] = [hop for hop in hops if hop in switches]
            yield following


def address_inside(blueprint: Blueprint, prefix: IPv4Network) -> str:
    """Returns the address of a host in a prefix."""
    return next(port.address for host in blueprint.hosts for port in host.ports if IPv4Address(port.address) in prefix)


def route_lines(ports: Iterable[SwitchPort], routes: Iterable[Route], host_links: set[int]) -> Iterator[str]:
    """Yields lines for `ip -batch` in the namespace of a switch: next hops, groups of them, and routes, IPv4 and IPv6.

    Routes to hosts are left out, since the addresses of their links include them.
    """
    live = {port.link: port for port in ports if port.link not in host_links and port.shape.up}
    for link, port in live.items():
        yield f"nexthop add id {link + 1} via {link_address(link ^ 1)} dev {port.interface}"
        yield f"nexthop add id {_HOPS6 + link + 1} via {link_address6(link ^ 1)} dev {port.interface}"
    groups: dict[tuple[tuple[int, int], ...], int] = {}
    for route in routes:
        if any(link in host_links for link, _ in route.hops):
            continue
        prefixes = (f"{route.prefix}", f"{prefix6(route.prefix)}")
        if not route.hops:
            yield from (f"route add blackhole {prefix}" for prefix in prefixes)
            continue
        if len(route.hops) > 1 and route.hops not in groups:
            groups[route.hops] = FIRST_GROUP + 2 * len(groups)
            for first, own in ((0, 0), (_HOPS6, 1)):
                members = "/".join(f"{first + link + 1},{weight}" for link, weight in route.hops)
                yield f"nexthop add id {groups[route.hops] + own} group {members}"
        for prefix, first, own in zip(prefixes, (0, _HOPS6), (0, 1), strict=True):
            one = groups[route.hops] + own if len(route.hops) > 1 else first + route.hops[0][0] + 1
            yield f"route add {prefix} nhid {one}"
