"""The neighbours of routers, which are permanent entries: links carry neither ARP nor neighbour discovery."""

from __future__ import annotations

from collections.abc import Iterator

from pathloom.lab.blueprint import HostPort, SwitchPort
from pathloom.lab.routed.numbering import host6, link_address, link_address6, mac_of_link


def neighbour_lines(port: SwitchPort, host: HostPort | None) -> Iterator[str]:
    """Yields lines for `ip -batch` in a router's namespace: the MAC of what is at the other end, for IPv4 and IPv6.

    `host` is the port of the host there, None for another router. The kernel deletes the entries of an interface that
    is set down. IPv4 then finds its neighbour again by ARP; IPv6 does not, as interfaces of routers have no link-local
    address from which to ask. So these lines belong after each `link set up`.
    """
    if host is not None:
        ends, mac = (host.address, str(host6(host.address))), host.mac
    else:
        ends, mac = (str(link_address(port.link ^ 1)), str(link_address6(port.link ^ 1))), mac_of_link(port.link ^ 1)
    yield from (f"neighbour replace {end} lladdr {mac} dev {port.interface} nud permanent" for end in ends)
