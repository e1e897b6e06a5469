"""How streams are spread over paths: on one, in turn, in the ratio of what the paths can use, or by maximum flow.

Paths may share links. `max-flow` takes them into account: its ratio is that of the rates in an optimal solution of a
linear program over the links. The other policies look at each path by itself, as published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import numpy as np

from pathloom.errors import bad_input
from pathloom.extras import need
from pathloom.streams.model import optimum

Policy = Literal["single", "round-robin", "optimal", "max-flow"]
POLICIES: Final = get_args(Policy)


@dataclass(frozen=True, slots=True)
class Route:
    """A path: its rate without other paths, its latency, and the links that it may share with others."""

    rate_bps: float
    latency_s: float
    links: Mapping[str, float] = field(default_factory=dict)
    """Rate of each shared link on the path, by name, in b/s."""


def ratio(policy: Policy, routes: Sequence[Route], a: float) -> list[float]:
    """Returns the shares of the paths, in any unit. Raises `PathloomError` without paths."""
    if not routes:
        raise bad_input("no path was given; expected at least one")
    match policy:
        case "single":
            return [1.0, *([0.0] * (len(routes) - 1))]
        case "round-robin":
            return [1.0] * len(routes)
        case "optimal":
            return [float(optimum(a, route.rate_bps, route.latency_s)) for route in routes]
        case "max-flow":
            return max_flow(routes)


def apportion(shares: Sequence[float], streams: int) -> list[int]:
    """Returns numbers of streams: one for each path with a share, the rest close to the shares (Sainte-Laguë).

    >>> apportion([1, 1, 9], 22), apportion([4, 1, 5, 1], 22), apportion([1, 1], 3)
    ([2, 2, 18], [8, 2, 10, 2], [2, 1])
    """
    order = assign(shares, streams)
    return [order.count(path) for path in range(len(shares))]


def assign(shares: Sequence[float], streams: int) -> list[int]:
    """The path of each of so many streams, in the order in which they open; empty without a path with a share.

    >>> assign([1, 1, 9], 5)
    [2, 0, 1, 2, 2]
    """
    counts, order = [0] * len(shares), []
    for _ in range(streams):
        path = next_path(shares, counts)
        if path is None:
            break
        counts[path] += 1
        order.append(path)
    return order


def next_path(shares: Sequence[float], users: Sequence[int]) -> int | None:
    """Returns the path for one more connection, closest to the shares (Sainte-Laguë); None without shares.

    >>> next_path([1, 1, 9], [1, 1, 1]), next_path([1, 1, 9], [0, 0, 1]), next_path([1, 1], [2, 1])
    (2, 0, 1)
    """
    known = [index for index in range(min(len(shares), len(users))) if shares[index] > 0]

    def lack(path: int) -> float:
        return (2 * users[path] + 1) / shares[path] if users[path] else -shares[path]

    return min(known, key=lack, default=None)


def throughput_bps(shares: Sequence[float], routes: Sequence[Route]) -> float:
    """Returns the total rate of paths that carry bytes in this ratio, so that all of them finish at the same time.

    >>> slow, fast = Route(10e6, 0.0), Route(30e6, 0.0)
    >>> throughput_bps([1, 1], [slow, fast]), throughput_bps([1, 3], [slow, fast])
    (20000000.0, 40000000.0)
    """
    used: dict[tuple[str, int] | str, float] = {}
    rates: dict[tuple[str, int] | str, float] = {}
    for index, (share, route) in enumerate(zip(shares, routes, strict=True)):
        limits: list[tuple[tuple[str, int] | str, float]] = [(("path", index), route.rate_bps), *route.links.items()]
        for key, rate_bps in limits:
            used[key] = used.get(key, 0.0) + share
            rates[key] = rate_bps
    scale = min((rates[key] / share for key, share in used.items() if share > 0), default=0.0)
    return scale * sum(shares)


def max_flow(routes: Sequence[Route]) -> list[float]:
    """Returns rates of the paths, in b/s, with the largest sum for which no link carries more than its rate.

    HiGHS returns one of the optima, always the same for the same input. Raises `PathloomError` if a link has two rates.
    """
    links: dict[str, float] = {}
    for route in routes:
        for name, rate_bps in route.links.items():
            if links.setdefault(name, rate_bps) != rate_bps:
                raise bad_input(f"link `{name}` has two rates, {links[name]:g} and {rate_bps:g} b/s; expected one")
    need("optimum", "the policy max-flow")
    import highspy

    # In units of the fastest path, so that the solver's tolerances are relative.
    unit = max(route.rate_bps for route in routes)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    columns = [solver.addVariable(lb=0.0, ub=route.rate_bps / unit, obj=-1.0) for route in routes]
    for name, rate_bps in links.items():
        crossing = [column for column, route in zip(columns, routes, strict=True) if name in route.links]
        solver.addConstr(sum(crossing[1:], start=1.0 * crossing[0]) <= rate_bps / unit)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"a bounded flow problem has an optimum, and HiGHS says {solver.getModelStatus()}")
    values = np.asarray(solver.getSolution().col_value)
    return [float(value) * unit for value in np.maximum(values, 0.0)]
