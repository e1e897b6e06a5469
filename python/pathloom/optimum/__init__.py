"""The exact optimum of a fabric for given demands (the yardstick), as a linear program that HiGHS solves.

Traffic may be split over any paths in any shares, so no routing does better. Flows to one ToR are one commodity, with
one variable per link: a k=16 FatTree needs half a million variables instead of one per path. Links that are down from
the start carry nothing.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.extras import need
from pathloom.optimum.solution import Flow, Optimum, two_hosts

__all__ = ["Flow", "Method", "Optimum", "max_concurrent", "max_throughput"]

Method = Literal["choose", "simplex", "ipm", "pdlp", "paths"]
"""Method that solves a program. `paths` (`pathloom.optimum.by_paths`) needs `max_concurrent` without links of hosts."""

TOLERANCE: Final = 1e-6
"""Tolerance of the constraints and of the optimum, for PDLP and interior points."""

LARGE: Final = 5_000
"""Number of variables from which another method is chosen: `paths` if possible, else the first-order PDLP."""


def max_concurrent(
    fabric: _core.Fabric,
    flows: Sequence[Flow],
    *,
    access_links: bool = False,
    method: Method = "choose",
    time_limit_s: float = math.inf,
    tolerance: float = TOLERANCE,
) -> Optimum:
    """The greatest λ such that every flow can send λ times its demand at once (maximum concurrent flow).

    Unless `access_links` is set, the links of hosts do not limit λ. It then depends only on the demands between ToRs,
    and flows within a ToR are left out. λ is infinite if nothing limits it. Raises `PathloomError` for unknown hosts,
    for demands that are not positive and finite, and if there are no flows.
    """
    for index, (_, _, demand_bps) in enumerate(flows):
        if not 0 < demand_bps < math.inf:
            raise bad_input(f"flow {index}: a demand of {demand_bps} b/s; expected a positive, finite number")
    program = _Program(fabric, flows, access_links)
    one_port = all(len(pairs) == 1 for pairs in program.access_pairs)
    if method == "paths" or (method == "choose" and one_port and not access_links and len(program.objective) >= LARGE):
        from pathloom.optimum.by_paths import max_concurrent_by_paths

        if access_links:
            raise bad_input("optimum: the method `paths` ignores links of hosts; use another method, such as `choose`")
        return max_concurrent_by_paths(fabric, flows, time_limit_s=time_limit_s, tolerance=tolerance)
    level = program.variable(1.0)
    for index, (_, _, demand_bps) in enumerate(flows):
        row = program.row(0.0, 0.0)
        program.put(row, level, -demand_bps / program.unit_bps)
        for pair in program.access_pairs[index]:
            program.put(row, pair, 1.0)
    return program.solve(method, time_limit_s, tolerance, lambda solution: float(solution[level]))


def max_throughput(
    fabric: _core.Fabric,
    flows: Sequence[Flow],
    *,
    weights: Sequence[float] | None = None,
    method: Method = "choose",
    time_limit_s: float = math.inf,
    tolerance: float = TOLERANCE,
) -> Optimum:
    """The greatest sum of rates with no flow above its demand and no link, links of hosts included, above its rate.

    With `weights`, one per flow, the weighted sum is maximised; `value` is still the plain sum of the rates. The result
    is an upper bound of the throughput of any routing, with one path per flow or many. Raises `PathloomError` as
    `max_concurrent` does, but a demand may be infinite.
    """
    for index, (_, _, demand_bps) in enumerate(flows):
        if not demand_bps > 0:
            raise bad_input(f"flow {index}: a demand of {demand_bps} b/s; expected a positive number, or infinity")
    program = _Program(fabric, flows, access_links=True)
    heaviest = max(weights) if weights is not None else 1.0
    for index, (_, _, demand_bps) in enumerate(flows):
        row = program.row(0.0, demand_bps / program.unit_bps)
        for pair in program.access_pairs[index]:
            program.objective[pair] = weights[index] / heaviest if weights is not None else 1.0
            program.put(row, pair, 1.0)
    pairs = [pair for pairs in program.access_pairs for pair in pairs]
    return program.solve(
        method, time_limit_s, tolerance, lambda solution: float(solution[pairs].sum()) * program.unit_bps
    )


_Value = Callable[[npt.NDArray[np.float64]], float]
"""Computes the value of the optimum from a solution."""


class _Program:
    """A linear program under construction: conservation of every commodity at every switch, capacity of every link.

    Rates are in units of the fastest link, so that the numbers are near 1.
    """

    def __init__(self, fabric: _core.Fabric, flows: Sequence[Flow], access_links: bool) -> None:
        self.started = time.perf_counter()
        if not flows:
            raise bad_input("no flows: an optimum needs at least one")
        links = fabric.links()
        self.source: npt.NDArray[Any] = links["source"].astype(np.int64)
        self.target: npt.NDArray[Any] = links["target"].astype(np.int64)
        self.unit_bps = float(links["rate_bps"].max())
        self.rate: npt.NDArray[Any] = np.where(links["up"], links["rate_bps"] / self.unit_bps, 0.0)
        self.is_host: npt.NDArray[Any] = np.array([node["tier"] == "host" for node in fabric.nodes()])
        self.flow_count = len(flows)
        self.objective: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.blocks: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]] = []
        self.access_pairs: list[list[int]] = []
        supplies = self._add_access_pairs(flows, access_links)
        self._add_commodities(supplies)

    def variable(self, objective: float = 0.0) -> int:
        """Adds a variable of at least 0. Returns its number."""
        self.objective.append(objective)
        return len(self.objective) - 1

    def row(self, lower: float, upper: float) -> int:
        """Adds a constraint. Returns its number."""
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1

    def put(self, row: int, column: int, value: float) -> None:
        """Adds an entry to the matrix."""
        self.rows.append(row)
        self.columns.append(column)
        self.values.append(value)

    def _add_access_pairs(self, flows: Sequence[Flow], access_links: bool) -> dict[int, dict[int, list[int]]]:
        """Adds a variable for every flow and pair of links of its two hosts. Returns them by last and first ToR."""
        uplinks: dict[int, list[int]] = defaultdict(list)
        downlinks: dict[int, list[int]] = defaultdict(list)
        for link in np.flatnonzero(self.is_host[self.source] & (self.rate > 0)).tolist():
            uplinks[int(self.source[link])].append(link)
        for link in np.flatnonzero(self.is_host[self.target] & (self.rate > 0)).tolist():
            downlinks[int(self.target[link])].append(link)
        supplies: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        over: dict[int, list[int]] = defaultdict(list)
        for index, (src, dst, _) in enumerate(flows):
            two_hosts(self.is_host, index, src, dst)
            self.access_pairs.append([])
            for up in uplinks[src]:
                for down in downlinks[dst]:
                    pair = self.variable()
                    self.access_pairs[index].append(pair)
                    over[up].append(pair)
                    over[down].append(pair)
                    first, last = int(self.target[up]), int(self.source[down])
                    if first != last:
                        supplies[last][first].append(pair)
        for link, pairs in over.items() if access_links else ():
            row = self.row(-math.inf, float(self.rate[link]))
            for pair in pairs:
                self.put(row, pair, 1.0)
        return supplies

    def _add_commodities(self, supplies: dict[int, dict[int, list[int]]]) -> None:
        """Adds variables per destination ToR and link between switches, conservation at switches, capacity of links."""
        between = np.flatnonzero(~self.is_host[self.source] & ~self.is_host[self.target] & (self.rate > 0))
        switches = np.flatnonzero(~self.is_host)
        first_capacity = len(self.lower)
        capacity_row = np.full(len(self.source), -1)
        capacity_row[between] = first_capacity + np.arange(len(between))
        self.lower += [-math.inf] * len(between)
        self.upper += self.rate[between].tolist()
        for last, firsts in supplies.items():
            # Links out of the destination ToR are left out: traffic that has arrived gains nothing by leaving it again.
            used = between[self.source[between] != last]
            columns = len(self.objective) + np.arange(len(used))
            self.objective += [0.0] * len(used)
            node_row = np.full(len(self.is_host), -1)
            others = switches[switches != last]
            node_row[others] = len(self.lower) + np.arange(len(others))
            self.lower += [0.0] * len(others)
            self.upper += [0.0] * len(others)
            ones = np.ones(len(used))
            into = self.target[used] != last
            self.blocks.append((capacity_row[used], columns, ones))
            self.blocks.append((node_row[self.source[used]], columns, ones))
            self.blocks.append((node_row[self.target[used[into]]], columns[into], -ones[into]))
            for first, pairs in firsts.items():
                for pair in pairs:
                    self.put(int(node_row[first]), pair, -1.0)

    def _matrix(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """The matrix by columns: start of each column, row indices and values."""
        parts = [*self.blocks, (np.array(self.rows), np.array(self.columns), np.array(self.values))]
        rows, columns, values = (np.concatenate([part[index] for part in parts]) for index in range(3))
        order = np.lexsort((rows, columns))
        starts = np.searchsorted(columns[order], np.arange(len(self.objective) + 1))
        return starts.astype(np.int32), rows[order].astype(np.int32), values[order].astype(np.float64)

    def solve(self, method: Method, time_limit_s: float, tolerance: float, value: _Value) -> Optimum:
        """Solves the program with HiGHS."""
        need("optimum", "an exact optimum")
        import highspy

        starts, rows, values = self._matrix()
        size = len(self.objective)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = size, len(self.lower)
        # Minimises the negated objective: when PDLP maximises, its dual values have the wrong sign, and HiGHS doubts
        # the result.
        program.col_cost_ = -np.array(self.objective)
        program.col_lower_, program.col_upper_ = np.zeros(size), np.full(size, highspy.kHighsInf)
        program.row_lower_ = np.maximum(np.array(self.lower), -highspy.kHighsInf)
        program.row_upper_ = np.minimum(np.array(self.upper), highspy.kHighsInf)
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_, program.a_matrix_.index_, program.a_matrix_.value_ = starts, rows, values
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        if method == "paths":
            raise bad_input("optimum: the method `paths` cannot maximise throughput; use another, such as `choose`")
        chosen = ("pdlp" if size >= LARGE else "simplex") if method == "choose" else method
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("solver", chosen)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("kkt_tolerance", tolerance)
        if time_limit_s < math.inf:
            solver.setOptionValue("time_limit", float(time_limit_s))
        solver.passModel(program)
        solver.run()
        return self._read(solver, chosen, value)

    def _read(self, solver: Any, chosen: str, value: _Value) -> Optimum:
        import highspy

        status = solver.getModelStatus()
        solution = np.array(solver.getSolution().col_value)
        found, rates = math.nan, np.full(self.flow_count, math.nan)
        if status in (highspy.HighsModelStatus.kUnbounded, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            # A program is never infeasible here: all rates 0 is a solution.
            found = math.inf
        elif len(solution) == len(self.objective):
            found = value(solution)
            rates = np.array([solution[pairs].sum() for pairs in self.access_pairs]) * self.unit_bps
        exact = status == highspy.HighsModelStatus.kOptimal or found == math.inf
        elapsed = time.perf_counter() - self.started
        return Optimum(found, rates, exact, elapsed, len(self.objective), chosen)
