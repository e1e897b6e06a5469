"""Records the values of links and flows in each step of a run, for `--series 10ms`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pathloom import _core


class Recorder:
    """Records the changes in each step of a run."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._taken = 0
        self._before_s = 0.0
        self._before: dict[str, np.ndarray[Any, Any]] | None = None
        self._rows: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._paths: dict[tuple[int, int], tuple[list[int], str | None]] = {}
        self._changed_paths: list[tuple[float, int, int, list[int], str | None]] = []

    @property
    def due_s(self) -> float:
        """Time when the next step ends. It is computed from the number of steps, so that errors do not add up."""
        return round((self._taken + 1) * self._step_s, 9)

    def take(self, simulation: _core.Simulation, now_s: float) -> None:
        """Records the step that ends now."""
        self._taken += 1
        took_s = now_s - self._before_s
        if took_s <= 0:
            return
        outcome = simulation.outcome()
        links, flows = outcome["links"], outcome["flows"]
        # Runs without packets know no drops.
        counts_drops = "dropped_packets" in links
        # Means of the core are over the time since the start.
        now = {
            "busy_s": links["utilisation"] * now_s,
            "waited": links["mean_queue"] * now_s,
            "dropped": links["dropped_packets"].astype(np.int64)
            if counts_drops
            else np.zeros(len(links["sent_bytes"])),
            # Bytes after a gap count when they arrive. If they counted when the gap closes, the rate of a step could
            # exceed that of the link.
            "arrived": flows["arrived_bytes"].astype(np.int64),
        }
        before = self._before or {name: np.zeros_like(column) for name, column in now.items()}
        # Sums of many numbers have rounding errors, so negative differences count as 0.
        step = {name: np.maximum(column - before[name], 0) for name, column in now.items()}
        used = np.flatnonzero((step["busy_s"] > 1e-12) | (step["waited"] > 1e-12) | (step["dropped"] > 0))
        arrived = np.flatnonzero((step["arrived"] > 0) | (flows["window_bytes"] > 0))
        self._add("link", now_s, used.astype(np.uint32), "link")
        self._append("link.busy_share", step["busy_s"][used] / took_s)
        self._append("link.mean_queue", step["waited"][used] / took_s)
        self._append("link.dropped_packets", step["dropped"][used] if counts_drops else np.full(len(used), -1))
        self._add("flow", now_s, flows["index"][arrived].astype(np.uint32), "flow")
        self._append("flow.goodput_bps", step["arrived"][arrived] * 8 / took_s)
        self._append("flow.window_bytes", flows["window_bytes"][arrived])
        self._before, self._before_s = now, now_s
        self._take_paths(simulation, now_s)

    def _take_paths(self, simulation: _core.Simulation, now_s: float) -> None:
        for flow, src_port, links, why in simulation.take_ways():
            known = self._paths.get((flow, src_port))
            # A subflow that closed in this step is reported without a reason.
            if known is None or known[0] != links or (why is not None and known[1] != why):
                self._paths[flow, src_port] = links, why
                self._changed_paths.append((now_s, flow, src_port, links, why))

    def _add(self, table: str, now_s: float, which: np.ndarray[Any, Any], name: str) -> None:
        self._append(f"{table}.at_s", np.full(len(which), now_s))
        self._append(f"{table}.{name}", which)

    def _append(self, name: str, column: np.ndarray[Any, Any]) -> None:
        self._rows.setdefault(name, []).append(column)

    def columns(self) -> dict[str, Any]:
        """All rows so far, by table and column; the rows of ways as tuples."""
        return {**{name: np.concatenate(parts) for name, parts in self._rows.items()}, "ways": self._changed_paths}
