"""Parallel TCP streams: how many of them a path can use, and how they are spread over several paths.

The model is that of the multipath controller for parallel TCP streams (Huang et al., 2017, §3.2): n = max(1, a·B·R).
"""

from pathloom.streams.model import Fit, Measured, fit, optimum, predicted, read_measurements
from pathloom.streams.policies import POLICIES, Policy, Route, apportion, max_flow, ratio, throughput_bps

__all__ = [
    "POLICIES",
    "Fit",
    "Measured",
    "Policy",
    "Route",
    "apportion",
    "fit",
    "max_flow",
    "optimum",
    "predicted",
    "ratio",
    "read_measurements",
    "throughput_bps",
]
