"""Addresses and AS numbers of a lab of routers. The same fabric always gives the same numbers.

| what | IPv4 | IPv6 |
| --- | --- | --- |
| a host's port | the fabric's address | `fd70:6c:0:a::` + the IPv4 address |
| a router's end of the directed link n | `172.24.0.0` + n | `fd70:6c:0:1::` + n |
| a router | `172.16.0.0` + its number in the fabric + 1 | `fd70:6c::` + the same |

The two ends of a cable have the links 2n and 2n + 1, so their addresses are a /31 (RFC 3021) and a /127 (RFC 6164).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from pathloom.errors import bad_input
from pathloom.fabrics import Fabric

HOSTS6 = IPv6Network("fd70:6c:0:a::/96")
"""Every IPv6 address of a host."""
FIRST_AS = 4_200_000_001
"""First of the private AS numbers of four octets (RFC 6996)."""
_LINKS, _LINKS6 = IPv4Network("172.24.0.0/13"), IPv6Network("fd70:6c:0:1::/64")
_ROUTERS, _ROUTERS6 = IPv4Network("172.16.0.0/13"), IPv6Network("fd70:6c::/64")


def check_size(fabric: Fabric) -> None:
    """Raises `PathloomError` if the fabric has more links or nodes than there are addresses."""
    most = _LINKS.num_addresses
    if len(fabric.links["source"]) > most or len(fabric.nodes) >= most:
        raise bad_input(f"fabric `{fabric.spec}`: a lab of routers has addresses for up to {most} directed links")


def host6(address: str) -> IPv6Address:
    """Returns the IPv6 address of a host's port with this IPv4 address.

    >>> host6("10.0.1.2")
    IPv6Address('fd70:6c:0:a::a00:102')
    """
    return HOSTS6[int(IPv4Address(address))]


def prefix6(prefix: IPv4Network) -> IPv6Network:
    """Returns the IPv6 prefix of the hosts with this IPv4 prefix.

    >>> prefix6(IPv4Network("10.0.1.0/24"))
    IPv6Network('fd70:6c:0:a::a00:100/120')
    """
    return IPv6Network((host6(str(prefix.network_address)), HOSTS6.prefixlen + prefix.prefixlen))


def link_address(link: int) -> IPv4Address:
    """Returns the address of the router's interface from which a directed link leaves.

    >>> link_address(0), link_address(300)
    (IPv4Address('172.24.0.0'), IPv4Address('172.24.1.44'))
    """
    return _LINKS[link]


def link_address6(link: int) -> IPv6Address:
    """Returns the IPv6 address of the router's interface from which a directed link leaves."""
    return _LINKS6[link]


def link_of(address: str) -> int | None:
    """Returns the directed link that leaves from the interface with this address; None for other addresses.

    >>> link_of("172.24.1.44"), link_of("fd70:6c:0:1::9"), link_of("10.0.0.1")
    (300, 9, None)
    """
    if ":" in address:
        own6 = IPv6Address(address)
        return int(own6) - int(_LINKS6.network_address) if own6 in _LINKS6 else None
    own = IPv4Address(address)
    return int(own) - int(_LINKS.network_address) if own in _LINKS else None


def router_address(node: int) -> IPv4Address:
    """Returns the address of a router, which is its BGP identifier as well."""
    return _ROUTERS[node + 1]


def router_address6(node: int) -> IPv6Address:
    """Returns the IPv6 address of a router."""
    return _ROUTERS6[node + 1]


def mac_of_link(link: int) -> str:
    """Returns the MAC of the router's interface from which a directed link leaves.

    >>> mac_of_link(300)
    '02:01:00:00:01:2c'
    """
    digits = f"0201{link:08x}"
    return ":".join(digits[place : place + 2] for place in range(0, 12, 2))


def as_numbers(fabric: Fabric, next_hops: Iterable[Mapping[int, Iterable[int]]]) -> dict[int, int]:
    """Returns the AS number of each switch, by node number (RFC 7938 §5.2.1).

    Each ToR has one of its own. Aggregation switches above the same ToRs share one, which are those of a pod, and so
    do all cores. A router refuses a route whose path has its own AS number. If that excluded a shortest path, as in
    fabrics without tiers, each switch has a number of its own. `next_hops` has, for each destination, the switches that
    follow each switch on a shortest path.
    """
    nodes, links = fabric.nodes, fabric.links
    switches = [number for number, node in enumerate(nodes) if node["tier"] != "host"]
    below: dict[int, set[int]] = {switch: set() for switch in switches}
    for source, target in zip(links["source"], links["target"], strict=True):
        if source in below and nodes[target]["tier"] == "tor":
            below[source].add(target)
    shared: dict[int, object] = {}
    for switch in switches:
        tier = nodes[switch]["tier"]
        shared[switch] = "cores" if tier == "core" else (switch,) if tier == "tor" else frozenset(below[switch])
        if tier not in ("tor", "core") and not below[switch]:
            shared[switch] = (switch,)
    groups = shared if not _meets_itself(shared, next_hops) else {switch: switch for switch in switches}
    order = {group: number for number, group in enumerate(dict.fromkeys(groups.values()))}
    return {switch: FIRST_AS + order[groups[switch]] for switch in switches}


def _meets_itself(group_of: Mapping[int, object], next_hops: Iterable[Mapping[int, Iterable[int]]]) -> bool:
    """Returns whether a shortest path has two switches of one group."""
    return any(_repeats(group_of, following) for following in next_hops)


def _repeats(group_of: Mapping[int, object], following: Mapping[int, Iterable[int]]) -> bool:
    """Returns whether a path along these next hops has two switches of one group."""
    ahead: dict[int, frozenset[object]] = {}

    def groups_from(switch: int) -> frozenset[object]:
        """Returns the groups on all paths from a switch on, without its own."""
        if switch not in ahead:
            further = ({group_of[one]} | groups_from(one) for one in following.get(switch, ()))
            ahead[switch] = frozenset().union(*further)
        return ahead[switch]

    return any(group_of[switch] in groups_from(switch) for switch in following)
