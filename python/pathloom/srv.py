"""Controllers by their name in the DNS (RFC 2782): `srv:NAME` in place of a list of addresses."""

from __future__ import annotations

from pathloom.errors import ToolError, bad_input
from pathloom.extras import need

PREFIX = "srv:"
API, PATHS = "_pathloom._tcp", "_pathloom-paths._tcp"
"""The services: the HTTP API, and the address of applications that request paths."""
PATIENCE_S = 5.0


def find(name: str, service: str, option: str) -> list[tuple[str, int]]:
    """Host names and ports of a service of a domain, in the order in which they should be asked.

    Of records with one priority, those with a greater weight are first. There is no random choice among them: all
    controllers send clients to the same one. `option` is named in messages. Raises `PathloomError`, `ToolError`.
    """
    need("dns", option)
    import dns.exception
    import dns.resolver

    wanted = f"{service}.{name}"
    try:
        records = list(dns.resolver.resolve(wanted, "SRV", lifetime=PATIENCE_S))
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        told = f"the DNS has no SRV record of {wanted}; name the addresses"
        raise bad_input(f"{option} `{PREFIX}{name}`: {told}") from None
    except dns.exception.DNSException as error:
        raise ToolError(f"{option} `{PREFIX}{name}`: {wanted} is not resolved: {error}") from None
    rows = sorted((one.priority, -one.weight, one.target.to_text(omit_final_dot=True), one.port) for one in records)
    # The target `.` says that there is no such service.
    found = [(target, port) for _, _, target, port in rows if target != "."]
    if not found:
        raise bad_input(f"{option} `{PREFIX}{name}`: the DNS says that {wanted} is not offered")
    return found


def urls(text: str, option: str = "--url") -> list[str]:
    """The URLs in a list. `srv:NAME` stands for those of a domain, and `srv:https://NAME` for those with encryption."""
    found: list[str] = []
    for one in (part.strip() for part in text.split(",")):
        if one.startswith(PREFIX):
            scheme, _, name = one.removeprefix(PREFIX).rpartition("://")
            if scheme not in ("", "http", "https") or not name:
                raise bad_input(f"{option} `{one}`: expected srv:NAME or srv:https://NAME")
            found += [f"{scheme or 'http'}://{host}:{port}" for host, port in find(name, API, option)]
        else:
            found.append(one.rstrip("/"))
    return found


def places(text: str, option: str = "--controller") -> list[str]:
    """The places ADDRESS:PORT in a list. `srv:NAME` stands for those of a domain."""
    found: list[str] = []
    for one in (part.strip() for part in text.split(",")):
        if one.startswith(PREFIX):
            found += [f"{host}:{port}" for host, port in find(one.removeprefix(PREFIX), PATHS, option)]
        else:
            found.append(one)
    return found
