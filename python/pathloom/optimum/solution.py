"""Demands and solutions, as all methods of `pathloom.optimum` have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pathloom.errors import bad_input

Flow = tuple[int, int, float]
"""Sending and receiving host (node numbers, as in `_core.Fabric.nodes()`), demand in b/s, which may be infinite."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """An optimum, or the best solution that the solver found."""

    value: float
    """λ (`max_concurrent`), or the sum of rates in b/s (`max_throughput`); NaN if no solution was found in time."""
    rates_bps: npt.NDArray[np.float64]
    """Rate of each flow in the solution that was found."""
    exact: bool
    """Whether the solver proved the optimum, to its tolerance; false if it ran out of time."""
    time_s: float
    """Time to build and solve the program."""
    variables: int
    """Number of variables of the program."""
    method: str
    """Method that solved the program."""


def two_hosts(is_host: npt.NDArray[np.bool_], index: int, src: int, dst: int) -> None:
    """Checks that a flow is between two hosts. Raises `PathloomError` if it is not."""
    for host in (src, dst):
        if not (0 <= host < len(is_host) and is_host[host]):
            raise bad_input(f"flow {index}: node {host} is no host of the fabric")
