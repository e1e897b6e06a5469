"""The routers of a lab: addresses, forwarding and routes in the namespace of each switch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TypeVar

from pathloom.errors import ToolError
from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.blueprint import Blueprint, Host, Switch, SwitchPort
from pathloom.lab.hosts import HostStack, host_sysctls
from pathloom.lab.routed import frr, srv6
from pathloom.lab.routed.neighbours import neighbour_lines
from pathloom.lab.routed.numbering import (
    HOSTS6,
    as_numbers,
    check_size,
    host6,
    link_address,
    link_address6,
    mac_of_link,
    prefix6,
    router_address,
    router_address6,
)
from pathloom.lab.routed.routes import (
    Route,
    address_inside,
    longest,
    next_switches,
    prefixes_of_tors,
    route_lines,
    routes_of,
)
from pathloom.lab.routed.settings import FRR, RouterSettings
from pathloom.lab.switches import TOOLS_AT_ONCE
from pathloom.lab.tables import SwitchTables
from pathloom.waiting import await_event

Value = TypeVar("Value")
CONVERGENCE_S = 60.0
"""Longest wait for the routes of BGP."""
HASH_SEED = "net.ipv4.fib_multipath_hash_seed"
"""Sysctl of Linux 6.11 and later. Without it, all routers on a path make the same choice."""
FIVE_TUPLE = 0x37
"""Fields that routers hash: addresses, protocol and ports (FIB_MULTIPATH_HASH_FIELD_ of Linux, from 5.14 on)."""
_FORWARDING = {
    # IPv6 has no unrequested packets: no addresses of its own making, and no duplicate address detection.
    "net.ipv6.conf.all.addr_gen_mode": "1",
    "net.ipv6.conf.default.addr_gen_mode": "1",
    "net.ipv6.conf.all.accept_dad": "0",
    "net.ipv6.conf.default.accept_dad": "0",
    "net.ipv6.conf.all.disable_ipv6": "0",
    "net.ipv6.conf.default.disable_ipv6": "0",
    "net.ipv6.conf.all.keep_addr_on_down": "1",
    "net.ipv6.conf.default.keep_addr_on_down": "1",
}
_ROUTER = {
    "net.ipv4.ip_forward": "1",
    "net.ipv6.conf.all.forwarding": "1",
    # By policy 1, which names the same fields, a router would take the hash that the sender's kernel has put beside the
    # packet for its own use. It is random, changes during a connection, and all routers would choose by it.
    **{f"net.{family}.fib_multipath_hash_policy": "3" for family in ("ipv4", "ipv6")},
    **{f"net.{family}.fib_multipath_hash_fields": str(FIVE_TUPLE) for family in ("ipv4", "ipv6")},
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    "net.ipv4.conf.all.ignore_routes_with_linkdown": "1",
    "net.ipv4.conf.default.ignore_routes_with_linkdown": "1",
    "net.ipv6.conf.all.ignore_routes_with_linkdown": "1",
    "net.ipv6.conf.default.ignore_routes_with_linkdown": "1",
    # The answer to a probe names the interface at which it arrived, at any rate of probes.
    "net.ipv4.icmp_errors_use_inbound_ifaddr": "1",
    "net.ipv4.icmp_ratelimit": "0",
    "net.ipv4.icmp_ratemask": "0",
    "net.ipv6.icmp.ratelimit": "0",
    "net.ipv6.icmp.ratemask": "0",
}
_REASONS = {"InNoRoutes": "no_route", "InHdrErrors": "ttl", "InAddrErrors": "address"}
"""Counters of packets that a router drops outside its queues, by their names in /proc/net/snmp."""


class Routers:
    """The routers of one lab."""

    def __init__(self, blueprint: Blueprint, run_directory: Path, settings: RouterSettings) -> None:
        self.blueprint = blueprint
        self.settings = settings
        self.daemons = frr.Daemons(run_directory)
        self._host_at = {port.link ^ 1: (host, port) for host in blueprint.hosts for port in host.ports}

    # --- building

    def prepare(self, keep: Sequence[int]) -> None:
        """Gives every router its addresses and lets it forward. Raises `ToolError`."""

        def one(switch: Switch) -> None:
            values = {**_FORWARDING, **_ROUTER}
            if has_hash_seed():
                values[HASH_SEED] = str(switch.node + 1)
            if srv6.is_possible():
                values |= srv6.sysctls(port.interface for port in self.blueprint.ports_in(switch.namespace))
            system.inside(switch.namespace, partial(system.write_sysctls, values))
            system.batch("ip", switch.namespace, self._address_lines(switch), keep)
            if srv6.is_possible():
                lines = srv6.router_lines(self.blueprint.ports_in(switch.namespace), self._host_at)
                system.batch("ip", switch.namespace, lines, keep)

        self._on_switches(one)

    def _address_lines(self, switch: Switch) -> Iterator[str]:
        """Lines for `ip -batch` in the namespace of a router: addresses, and the MACs of its neighbours."""
        yield "link set lo up"
        yield f"address add {router_address(switch.node)}/32 dev lo"
        yield f"address add {router_address6(switch.node)}/128 dev lo nodad"
        for port in self.blueprint.ports_in(switch.namespace):
            name, link = port.interface, port.link
            own, own6 = link_address(link), link_address6(link)
            _, end = self._host_at.get(link, (None, None))
            yield f"link set {name} address {mac_of_link(link)}"
            if end is not None:
                yield f"address add {own} peer {end.address}/32 dev {name}"
                yield f"address add {own6} peer {host6(end.address)}/128 nodad dev {name}"
            else:
                yield f"address add {own}/31 dev {name}"
                yield f"address add {own6}/127 nodad dev {name}"
            yield f"link set {name} {'up' if port.shape.up else 'down'}"
            yield from neighbour_lines(port, end)

    def write_routes(self, fabric: Fabric, tables: Sequence[SwitchTables]) -> None:
        """Replaces the routes of every router by those of its scheme. Raises `PathloomError`, `ToolError`."""
        check_size(fabric)
        routes = routes_of(self.blueprint, tables)
        if self.settings.kind == FRR:
            self.daemons.stop(self.blueprint.switches)
            routers = self.routers(fabric, routes)
            self.daemons.configure(routers)
            self.daemons.start(routers)
            self.await_routes(fabric, tables)
            return

        def one(switch: Switch) -> None:
            for family in ("-4", "-6"):
                system.run_tool(["ip", "-n", switch.namespace, family, "route", "flush", "type", "blackhole"])
            system.batch("ip", switch.namespace, ["nexthop flush"])
            lines = route_lines(self.blueprint.ports_in(switch.namespace), routes[switch.node], set(self._host_at))
            system.batch("ip", switch.namespace, lines)

        self._on_switches(one)

    def routers(self, fabric: Fabric, routes: dict[int, list[Route]]) -> list[frr.Router]:
        """Returns the routers of FRR."""
        numbers = as_numbers(fabric, next_switches(self.blueprint, fabric, routes))
        prefixes = prefixes_of_tors(self.blueprint, fabric)
        target = fabric.links["target"]
        paths = 1 if self.settings.one_path else frr.MOST_PATHS
        return [
            frr.Router(
                switch,
                numbers[switch.node],
                tuple(
                    (port.link, numbers[target[port.link]])
                    for port in self.blueprint.ports_in(switch.namespace)
                    if self._joins(port)
                ),
                tuple(prefixes.get(switch.node, ())),
                paths,
                self.settings.bfd,
            )
            for switch in self.blueprint.switches
        ]

    # --- routes of BGP

    def await_routes(self, fabric: Fabric, tables: Sequence[SwitchTables]) -> None:
        """Waits until BGP has found the next hops of the scheme everywhere, and BFD all neighbours. Raises `ToolError`.

        Under `spt`, BGP chooses the one path by its own rules, so only the number of next hops must be right. Static
        routes are there at once.
        """
        if self.settings.kind != FRR:
            return
        wanted = self._wanted(fabric, routes_of(self.blueprint, tables))
        self._on_switches(lambda switch: self._await_router(switch, wanted[switch.node]))

    def _await_router(self, switch: Switch, wanted: dict[str, set[str]]) -> None:
        missing: list[tuple[str, list[str], list[str]]] = []
        unreached: list[str] = []

        def has_routes() -> bool:
            missing[:] = self._missing(switch, wanted)
            return not missing

        def has_bfd() -> bool:
            unreached[:] = self._without_bfd(switch)
            return not unreached

        if not await_event(has_routes, CONVERGENCE_S, 0.05):
            prefix, expected, found = missing[0]
            raise ToolError(
                f"router {switch.name}: BGP did not converge within {CONVERGENCE_S:g} s: {prefix} has next hops "
                f"{found}, expected {expected}"
            )
        if self.settings.bfd and not await_event(has_bfd, CONVERGENCE_S, 0.05):
            raise ToolError(f"router {switch.name}: BFD does not reach {unreached}")

    def _without_bfd(self, switch: Switch) -> list[str]:
        """Returns the neighbours of a router that BFD does not reach."""
        peers = json.loads(self.daemons.ask(switch, "bfdd", "show bfd peers json"))
        own = {link_address(port.link ^ 1) for port in self.blueprint.ports_in(switch.namespace) if self._joins(port)}
        reached = {peer["peer"] for peer in peers if peer["status"] == "up"}
        return sorted(set(map(str, own)) - reached)

    def _joins(self, port: SwitchPort) -> bool:
        """Returns whether a port is joined to another router by a cable that is up."""
        return port.link not in self._host_at and port.shape.up

    def _wanted(self, fabric: Fabric, routes: dict[int, list[Route]]) -> dict[int, dict[str, set[str]]]:
        """Returns, by switch and prefix, the interfaces of the next hops, IPv4 and IPv6."""
        wanted: dict[int, dict[str, set[str]]] = {switch.node: {} for switch in self.blueprint.switches}
        for tor, prefixes in prefixes_of_tors(self.blueprint, fabric).items():
            for prefix in prefixes:
                inside = address_inside(self.blueprint, prefix)
                for node, own in routes.items():
                    route = longest(own, inside)
                    if node != tor and route is not None and route.hops:
                        names = {f"l{link}" for link, _ in route.hops}
                        wanted[node][str(prefix)] = wanted[node][str(prefix6(prefix))] = names
        return wanted

    def _missing(self, switch: Switch, wanted: dict[str, set[str]]) -> list[tuple[str, list[str], list[str]]]:
        found = self.next_hops(switch)
        rows = []
        for prefix, names in wanted.items():
            own = found.get(prefix, set())
            right = len(own) == 1 if self.settings.one_path else own == names
            if not right:
                rows.append((prefix, sorted(names), sorted(own)))
        return rows

    def next_hops(self, switch: Switch) -> dict[str, set[str]]:
        """Returns the interfaces of the next hops that the kernel of a router has, by prefix. Raises `ToolError`."""
        found: dict[str, set[str]] = {}
        for family in ("-4", "-6"):
            text = system.run_tool(["ip", "-n", switch.namespace, family, "-json", "route", "show"])
            for row in json.loads(text):
                hops = row.get("nexthops", [row])
                if (row["dst"] != "default" and "gateway" in hops[0]) or "via" in hops[0]:
                    prefix = str(ip_network(row["dst"]))
                    found.setdefault(prefix, set()).update(
                        hop["dev"] for hop in hops if not {"dead", "linkdown"} & set(hop.get("flags", ()))
                    )
        return found

    # --- state

    def runs(self) -> bool:
        """Returns whether all routers forward: their namespaces exist, and the processes of FRR run."""
        there = set(system.namespaces_of(""))
        daemons = frr.daemons_of(self.settings.bfd) if self.settings.kind == FRR else ()
        return all(
            switch.namespace in there and all(self.daemons.alive(switch, daemons).values())
            for switch in self.blueprint.switches
        )

    def most_routes(self) -> int:
        """Returns the largest number of prefixes that a router has next hops for, IPv4 and IPv6. Raises `ToolError`."""
        return max(self._on_switches(lambda switch: len(self.next_hops(switch))), default=0)

    def drops(self) -> dict[str, int]:
        """Returns how many packets routers have dropped outside their queues, by reason, IPv4 and IPv6."""
        total = dict.fromkeys(sorted(set(_REASONS.values())), 0)
        for counts in self._on_switches(lambda switch: system.inside(switch.namespace, _ip_counters)):
            for name, reason in _REASONS.items():
                total[reason] += counts.get(name, 0)
        return total

    def _on_switches(self, act: Callable[[Switch], Value]) -> list[Value]:
        with ThreadPoolExecutor(TOOLS_AT_ONCE) as pool:
            return list(pool.map(act, self.blueprint.switches))


def has_hash_seed() -> bool:
    """Returns whether routers of this kernel can have different hashes."""
    return Path("/proc/sys", *HASH_SEED.split(".")).exists()


def notes() -> list[str]:
    """Returns how routers of this machine differ from those of a fabric, as notes for the reader of results."""
    if has_hash_seed():
        return []
    why = "this kernel has one hash for all routers (Linux 6.11 has seeds)"
    return [f"{why}, so half of the paths of a fat tree are idle"]


def host_sysctls_of(host: Host, stack: HostStack) -> dict[str, str]:
    """Returns the sysctls of a host in a lab of routers: IPv6 is on, without packets of its own."""
    own = host_sysctls(host, stack) | _segment_sysctls(host)
    return {**own, **_FORWARDING, "net.ipv6.conf.all.accept_ra": "0", "net.ipv6.conf.default.accept_ra": "0"}


def _segment_sysctls(host: Host) -> dict[str, str]:
    return srv6.sysctls(port.interface for port in host.ports) if srv6.is_possible() else {}


def host_lines(host: Host) -> Iterator[str]:
    """Lines for `ip -batch` in a host's namespace: IPv6 addresses, and the router of each port."""
    for index, port in enumerate(host.ports):
        gateway, gateway6 = link_address(port.link ^ 1), link_address6(port.link ^ 1)
        mac = mac_of_link(port.link ^ 1)
        for one in (gateway, gateway6):
            yield f"neighbour add {one} lladdr {mac} dev {port.interface} nud permanent"
        yield f"address add {host6(port.address)}/128 dev {port.interface} nodad"
        if port.shape.up:
            route = f"{HOSTS6} via {gateway6} dev {port.interface} onlink src {host6(port.address)}"
            yield f"route add {route} metric {100 + index}"
    if srv6.is_possible():
        yield from srv6.host_lines(host.ports)


def _ip_counters() -> dict[str, int]:
    """Returns the counters of IPv4 and IPv6 of the calling thread's namespace; those of IPv6 are added."""
    found: dict[str, int] = {}
    lines = Path("/proc/thread-self/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("Ip:"))
    found.update(zip(names, map(int, values), strict=True))
    for line in Path("/proc/thread-self/net/snmp6").read_text(encoding="ascii").splitlines():
        name, value = line.split()
        if name.startswith("Ip6"):
            found[name[3:]] = found.get(name[3:], 0) + int(value)
    return found
