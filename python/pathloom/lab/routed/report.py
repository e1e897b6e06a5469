"""The map of source ports and paths, as `pathloom lab paths` shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pathloom.errors import ToolError, bad_input, reason
from pathloom.lab.lab import Lab
from pathloom.lab.routed.entropy import Flow, Lookups, PathMap, sources_of
from pathloom.lab.routed.numbering import host6
from pathloom.lab.routed.prober import Prober

_SHOWN = 6
"""Source ports of a path that the table shows."""


def found_paths(
    lab: Lab, source: str, target: str, port: int, ports: Iterable[int], protocol: str, ipv6: bool, by: str
) -> dict[str, Any]:
    """Returns which of the source ports take which path, for JSON.

    `source` and `target` are hosts or their ports, `by` is `probes` or `routes`. Raises `PathloomError` for unknown
    hosts and labs without routers, and `ToolError`.
    """
    blueprint = lab.blueprint()
    if lab.routers() is None:
        raise bad_input(f"lab `{lab.name}`: its switches are no routers; `lab up --switches kernel` or frr builds some")
    if ipv6 and by == "routes":
        raise bad_input("lab paths: --by routes: routers answer for IPv4 only; leave --ipv6 or --by out")
    (_, start), (_, end) = blueprint.host_port(source), blueprint.host_port(target)
    if start.address == end.address:
        raise bad_input(f"lab paths: {source} and {target} are one host; name two")
    flow = Flow(start.address, end.address, port, protocol)
    ends = [str(host6(one)) if ipv6 else one for one in (flow.source, flow.target)]
    known, wanted = PathMap(flow), list(ports)
    if by == "routes":
        known.refresh(Lookups(blueprint, flow).find, wanted)
    else:
        try:
            with Prober(blueprint, flow, ipv6) as prober:
                known.refresh(prober.find, wanted)
        except OSError as error:
            raise ToolError(f"lab paths: probes of {source}: {reason(error)}") from None
    names, sources = {one.node: one.name for one in blueprint.switches}, sources_of(blueprint)
    rows = [
        {"links": list(path), "nodes": [names[sources[link]] for link in path[1:]], "source_ports": own}
        for path, own in known.by_path().items()
    ]
    return {
        "schema": 1,
        "flow": flow._asdict() | {"ipv6": ipv6},
        "ends": {"source": ends[0], "target": ends[1]},
        "by": by,
        "paths": rows,
        "unknown": [one for one in wanted if one not in known.paths],
    }


def path_rows(content: dict[str, Any]) -> list[list[str]]:
    """Returns the rows of a table of `found_paths`: path, number of source ports, and the first of them."""
    rows = []
    for row in content["paths"]:
        own = row["source_ports"]
        more = " …" if len(own) > _SHOWN else ""
        rows.append([" ".join(row["nodes"]), str(len(own)), " ".join(map(str, own[:_SHOWN])) + more])
    if content["unknown"]:
        rows.append(["unknown", str(len(content["unknown"])), " ".join(map(str, content["unknown"][:_SHOWN]))])
    return rows
