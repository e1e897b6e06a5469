"""Series of a run in the lab, `--series 100ms`: what flows received and what links sent in each step.

The agent that carries the flows records what they received. This process reads the counters of the switches'
interfaces. The queue and the drops of a host's own interface are not read: its link is measured at the switch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.agent import FlowStep
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.run_task import RunTask
from pathloom.lab.status import link_counters


class LinkSteps(RunTask):
    """Reads the counters of all links at the end of each step, during a run."""

    def __init__(self, blueprint: Blueprint, step_s: float, missing_header_bytes: int) -> None:
        """`missing_header_bytes`: bytes by which the lab's frames are shorter than those of the simulator."""
        super().__init__()
        self._blueprint = blueprint
        self._step_ns = round(step_s * 1e9)
        self._missing_header_bytes = missing_header_bytes
        self._ports = {port.interface: port.link for port in blueprint.switch_ports}
        self._uplinks = {port.link for host in blueprint.hosts for port in host.ports}
        self._readings: list[tuple[int, int, dict[int, tuple[int, int, int]]]] = []

    def _carry_out(self, zero_ns: int) -> None:
        step = 0
        while not self._over.wait(max(zero_ns + step * self._step_ns - time.monotonic_ns(), 0) / 1e9):
            counts = self._read()
            now_ns = time.monotonic_ns() - zero_ns
            self._readings.append((step, now_ns, counts))
            # A reading that took longer than a step also covers the steps that have passed.
            step = max(step + 1, now_ns // self._step_ns + 1)

    def _read(self) -> dict[int, tuple[int, int, int]]:
        """Returns, by link, bytes sent, packets dropped and packets waiting."""
        found = {}
        for interface, (sent_bytes, packets, drops, waiting) in link_counters(self._blueprint).items():
            found[self._ports[interface]] = (sent_bytes + packets * self._missing_header_bytes, drops, waiting)
        for namespace in self._blueprint.switch_namespaces:
            rows = json.loads(system.run_tool(["ip", "-n", namespace, "-s", "-json", "link", "show"]))
            for row in rows:
                link = self._ports.get(row["ifname"], -1) ^ 1
                if link in self._uplinks:
                    received = row["stats64"]["rx"]
                    found[link] = (received["bytes"] + received["packets"] * self._missing_header_bytes, 0, 0)
        return found

    def series(self, fabric: Fabric, flow_steps: Iterable[FlowStep]) -> dict[str, Any]:
        """Returns the series of a run in the simulator's form, with the agent's records of flows, without paths."""
        return {**self._links(fabric), **_flows(flow_steps, self._step_ns / 1e9)}

    def _links(self, fabric: Fabric) -> dict[str, Any]:
        """Returns one row per step and active link."""
        rates_bps = fabric.links["rate_bps"]
        rows: list[tuple[float, int, float, float, int]] = []
        for (last, before_ns, before), (step, now_ns, now) in pairwise(self._readings):
            ends_s = [one * self._step_ns / 1e9 for one in range(last + 1, step + 1)]
            seconds = (now_ns - before_ns) / 1e9
            for link, (sent_bytes, drops, waiting) in sorted(now.items()):
                old_bytes, old_drops, _ = before.get(link, (0, 0, 0))
                bits = 8 * max(sent_bytes - old_bytes, 0)
                if bits or waiting or drops > old_drops:
                    busy_share, dropped = bits / seconds / rates_bps[link], max(drops - old_drops, 0)
                    rows += [(at_s, link, busy_share, waiting, 0) for at_s in ends_s[:-1]]
                    rows.append((ends_s[-1], link, busy_share, waiting, dropped))
        names = ("at_s", "link", "busy_share", "mean_queue", "dropped_packets")
        kinds = (np.float64, np.uint32, np.float64, np.float64, np.int64)
        return _columns("link", names, kinds, rows)


def _flows(steps: Iterable[FlowStep], step_s: float) -> dict[str, Any]:
    """Returns one row per step and flow with a window or received bytes. A late record also covers missed steps."""
    rows: list[tuple[float, int, float, int]] = []
    last, before_ns = 0, 0
    for end_ns, now_ns, flows in steps:
        seconds, step = max(now_ns - before_ns, 1) / 1e9, round(end_ns / 1e9 / step_s)
        for at_s in (round(one * step_s, 9) for one in range(last + 1, step + 1)):
            rows += [(at_s, flow, 8 * received / seconds, window) for flow, received, window in flows]
        last, before_ns = step, now_ns
    names = ("at_s", "flow", "goodput_bps", "window_bytes")
    return _columns("flow", names, (np.float64, np.uint32, np.float64, np.int64), rows)


def _columns(table: str, names: Sequence[str], kinds: Sequence[Any], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {
        f"{table}.{name}": np.array(column, dtype=kind)
        for name, kind, column in zip(names, kinds, columns, strict=True)
    }
