"""The maximum concurrent flow by column generation: a program over some paths of each ToR pair that gains better ones.

`pathloom.optimum` has a variable per destination and link: half a million at k=16, which no method of HiGHS solves
within minutes. Here a variable is a path. About sixteen shortest paths of each pair are drawn at first. HiGHS solves
that program with interior points in a second. Its dual values are prices of links, which give the cheapest of all paths
for every pair, longer paths included. Σ capacity·price / Σ demand·distance is an upper bound of λ for all routings, so
the optimum is known once λ is close enough to it. Otherwise the cheapest paths become columns, and HiGHS solves the
program again (Dantzig and Wolfe 1960). Interior points end in the middle of all optimal prices, and such prices find
good paths.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.optimum.solution import Flow, Optimum, two_hosts

DRAWS: Final = 24
"""Number of shortest paths that are drawn at first per pair of ToRs; duplicates are dropped."""

FLOOR: Final = 1e-7
"""Amount that is added to the price of every link, as a share of the mean: it keeps paths short and free of loops."""

ROUNDS: Final = 100
"""Maximum number of programs that are solved."""

_Floats = npt.NDArray[np.float64]
_Pair = tuple[int, int]


def max_concurrent_by_paths(
    fabric: _core.Fabric, flows: Sequence[Flow], *, time_limit_s: float = math.inf, tolerance: float = 1e-6
) -> Optimum:
    """Does the same as `pathloom.optimum.max_concurrent` without `access_links`, for hosts with one port each.

    The result is exact if λ is within a share of `tolerance` of the bound that the prices prove. Raises `PathloomError`
    for unknown hosts and for hosts with several ports. The caller checks the demands.
    """
    started = time.perf_counter()
    network = _Network(fabric)
    demands: dict[_Pair, float] = defaultdict(float)
    for index, (src, dst, demand_bps) in enumerate(flows):
        two_hosts(network.is_host, index, src, dst)
        pair = (network.tor(src), network.tor(dst))
        if pair[0] != pair[1]:
            demands[pair] += demand_bps / network.unit_bps
    if not demands:
        return _found(math.inf, flows, True, started, 0)
    if not network.connects(demands):
        return _found(0.0, flows, True, started, 0)
    program = _Program(network, demands)
    best, bound, exact = 0.0, math.inf, False
    for _ in range(ROUNDS):
        left_s = time_limit_s - (time.perf_counter() - started)
        solved = program.solve(left_s, tolerance) if left_s > 0 else None
        if solved is None:
            break
        level, prices = solved
        proved, better = program.price(prices)
        best, bound = max(best, level), min(bound, proved)
        exact = best >= bound * (1 - tolerance)
        if exact or program.add(better) == 0:
            break
    value = best if program.solved else math.nan
    return _found(value, flows, exact, started, len(program.paths) + 1)


def _found(value: float, flows: Sequence[Flow], exact: bool, started: float, variables: int) -> Optimum:
    rates = np.array([value * demand_bps for _, _, demand_bps in flows])
    return Optimum(value, rates, exact, time.perf_counter() - started, variables, "paths")


class _Network:
    """The links between switches that are up, in order of their source node, and the ToRs of hosts."""

    def __init__(self, fabric: _core.Fabric) -> None:
        links = fabric.links()
        source, target = links["source"].astype(np.int64), links["target"].astype(np.int64)
        self.unit_bps = float(links["rate_bps"].max())
        rate = np.where(links["up"], links["rate_bps"] / self.unit_bps, 0.0)
        self.is_host: npt.NDArray[np.bool_] = np.array([node["tier"] == "host" for node in fabric.nodes()])
        self.tors: dict[int, set[int]] = defaultdict(set)
        for link in np.flatnonzero(self.is_host[source]).tolist():
            self.tors[int(source[link])].add(int(target[link]))
        between = np.flatnonzero(~self.is_host[source] & ~self.is_host[target] & (rate > 0))
        between = between[np.argsort(source[between], kind="stable")]
        self.source, self.target, self.rate = source[between], target[between], rate[between]
        self.nodes = len(self.is_host)
        self.first, self.starts = np.unique(self.source, return_index=True)
        self.starts_of = np.searchsorted(self.source, np.arange(self.nodes + 1))

    def tor(self, host: int) -> int:
        """The ToR of a host."""
        tors = self.tors[host]
        if len(tors) != 1:
            raise bad_input(
                f"node {host} has {len(tors)} ToRs; expected one, because the method `paths` needs hosts with one port"
            )
        return next(iter(tors))

    def distances(self, lengths: _Floats, ends: Sequence[int]) -> _Floats:
        """Distances from every node (rows) to the nodes `ends` (columns)."""
        distance = np.full((self.nodes, len(ends)), np.inf)
        distance[np.asarray(ends), np.arange(len(ends))] = 0.0
        if len(self.source) == 0:
            return distance
        while True:
            found = np.minimum.reduceat(distance[self.target] + lengths[:, None], self.starts, axis=0)
            known = distance[self.first]
            if not (found < known).any():
                return distance
            distance[self.first] = np.minimum(known, found)

    def connects(self, demands: dict[_Pair, float]) -> bool:
        """Whether every pair has a path."""
        ends = sorted({last for _, last in demands})
        column = {last: index for index, last in enumerate(ends)}
        hops = self.distances(np.ones(len(self.source)), ends)
        return all(np.isfinite(hops[first, column[last]]) for first, last in demands)


class _Program:
    """Maximises λ such that the paths of each pair carry λ times its demand and no link exceeds its capacity."""

    def __init__(self, network: _Network, demands: dict[_Pair, float]) -> None:
        self.network = network
        self.pairs = sorted(demands)
        self.demand = np.array([demands[pair] for pair in self.pairs])
        self.ends = sorted({last for _, last in self.pairs})
        self.column = np.searchsorted(self.ends, [last for _, last in self.pairs])
        self.firsts = np.array([first for first, _ in self.pairs])
        self.paths: list[tuple[int, tuple[int, ...]]] = []
        self.known: set[tuple[int, tuple[int, ...]]] = set()
        self.solved = False
        self._draw()

    def _draw(self) -> None:
        """Draws some shortest paths of every pair, at random but with a fixed seed."""
        draw = random.Random(1)
        hops = self.network.distances(np.ones(len(self.network.source)), self.ends)
        nearer: dict[_Pair, list[int]] = {}
        for index, (first, last) in enumerate(self.pairs):
            column = int(self.column[index])
            for _ in range(DRAWS):
                node, path = first, []
                while node != last:
                    if (node, last) not in nearer:
                        nearer[node, last] = self._nearer(hops[:, column], node)
                    path.append(draw.choice(nearer[node, last]))
                    node = int(self.network.target[path[-1]])
                self.add([(index, tuple(path))])

    def _nearer(self, hops: _Floats, node: int) -> list[int]:
        """Links out of a node that lead one hop nearer to the destination."""
        out = range(int(self.network.starts_of[node]), int(self.network.starts_of[node + 1]))
        return [link for link in out if hops[self.network.target[link]] == hops[node] - 1]

    def add(self, paths: list[tuple[int, tuple[int, ...]]]) -> int:
        """Adds paths (pair and links). Returns how many were new."""
        new = [path for path in dict.fromkeys(paths) if path not in self.known]
        self.paths += new
        self.known.update(new)
        return len(new)

    def solve(self, time_limit_s: float, tolerance: float) -> tuple[float, _Floats] | None:
        """Solves the program. Returns λ and the prices of the links, or None if no optimum is found in time."""
        import highspy

        links, pairs, size = len(self.network.source), len(self.pairs), len(self.paths) + 1
        lengths = np.array([pairs, *(len(path) + 1 for _, path in self.paths)])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        rows = [*range(links, links + pairs)]
        for pair, path in self.paths:
            rows += [*path, links + pair]
        values = np.concatenate([-self.demand, np.ones(len(rows) - pairs)])
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = size, links + pairs
        program.col_cost_ = np.concatenate([[-1.0], np.zeros(size - 1)])
        program.col_lower_, program.col_upper_ = np.zeros(size), np.full(size, highspy.kHighsInf)
        program.row_lower_ = np.concatenate([np.full(links, -highspy.kHighsInf), np.zeros(pairs)])
        program.row_upper_ = np.concatenate([self.network.rate, np.full(pairs, highspy.kHighsInf)])
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = starts.astype(np.int32)
        program.a_matrix_.index_, program.a_matrix_.value_ = np.array(rows, dtype=np.int32), values
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options = {"output_flag": False, "solver": "ipm", "run_crossover": "off", "threads": 1}
        for name, value in options.items():
            solver.setOptionValue(name, value)
        solver.setOptionValue("kkt_tolerance", tolerance / 10)
        if time_limit_s < math.inf:
            solver.setOptionValue("time_limit", time_limit_s)
        solver.passModel(program)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        self.solved = True
        solution = solver.getSolution()
        return float(solution.col_value[0]), np.maximum(-np.array(solution.row_dual)[:links], 0.0)

    def price(self, prices: _Floats) -> tuple[float, list[tuple[int, tuple[int, ...]]]]:
        """Returns the bound on λ over all possible paths that the prices prove, and the cheapest path of every pair."""
        lengths = prices + FLOOR * (float(prices.mean()) or 1.0)
        distance = self.network.distances(lengths, self.ends)
        cost = float(self.demand @ distance[self.firsts, self.column])
        cheapest = [
            (index, self._cheapest(lengths, distance[:, self.column[index]], first, last))
            for index, (first, last) in enumerate(self.pairs)
        ]
        return float(self.network.rate @ lengths) / cost, cheapest

    def _cheapest(self, lengths: _Floats, distance: _Floats, first: int, last: int) -> tuple[int, ...]:
        node, path = first, []
        while node != last:
            out = slice(int(self.network.starts_of[node]), int(self.network.starts_of[node + 1]))
            link = out.start + int(np.argmin(lengths[out] + distance[self.network.target[out]]))
            path.append(link)
            node = int(self.network.target[link])
        return tuple(path)
