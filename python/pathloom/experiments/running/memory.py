"""Estimates the memory of a run, so that a run that does not fit is refused before it starts.

The figures per flow, link and rule are measured: for six runs, from k=8 to k=24 and up to 83,000 flows, the estimate is
within 30 % of the peak of the resident memory. `tests/python/test_memory.py` measures some again. Connections that are
open at the same time are known only if they open at the beginning, as in collectives. Other runs may need more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.experiments.settings.model import Job
from pathloom.quantities import size_text

PREPARED_PER_FLOW_BYTES, PER_FLOW_BYTES = 350, 760
"""Memory of a flow in a prepared run, and at the end of a run, its row in the outcome included."""
PREPARED_PER_LINK_BYTES, PER_LINK_BYTES = 1000, 1700
"""The same for one direction of a cable, its queue included."""
PER_TCP_SUBFLOW_BYTES, PER_PACKET_SUBFLOW_BYTES = 4000, 2200
"""Memory of a subflow under way: of TCP, and of transports that acknowledge packets."""
PER_RULE_BYTES = 30
LINKS_PER_SWITCH = 16
"""Lower bound of the directions of cables per switch in fabrics with many rules."""
PER_RUN_BYTES = 3_000_000


def run_bytes(simulation: _core.Simulation) -> tuple[int, int]:
    """Memory of a prepared run, and at most of the whole run."""
    outcome: Mapping[str, Any] = simulation.outcome()
    subflows, acknowledges_packets = simulation.first_subflows
    under_way = subflows * (PER_PACKET_SUBFLOW_BYTES if acknowledges_packets else PER_TCP_SUBFLOW_BYTES)
    flows, links = len(outcome["flows"]["index"]), len(outcome["links"]["sent_bytes"])
    rules = int(outcome["control"]["rules_max"]) * (links // LINKS_PER_SWITCH) * PER_RULE_BYTES
    prepared = flows * PREPARED_PER_FLOW_BYTES + links * PREPARED_PER_LINK_BYTES + rules
    return prepared, PER_RUN_BYTES + flows * PER_FLOW_BYTES + under_way + links * PER_LINK_BYTES + rules


def available_bytes() -> int | None:
    """Memory that this process may still use, by the machine and its control group; None if unknown."""
    found = [_of_machine(), _of_group()]
    known = [one for one in found if one is not None]
    return min(known) if known else None


def check_room(simulation: _core.Simulation, job: Job, others: int = 0) -> None:
    """Raises `PathloomError` if there is too little memory to finish a prepared run and to prepare `others`."""
    available = available_bytes()
    if available is None:
        return
    prepared, most = run_bytes(simulation)
    needed = most - prepared + others * prepared
    if needed > available:
        more = f" and {others} more" if others else ""
        raise bad_input(
            f"run {job.run} of {job.scheme} (seed {job.seed}){more}: needs about {size_text(needed)} of memory, and "
            f"{size_text(available)} are free; take fewer flows (--duration, load=) or a smaller fabric, or --jobs 1"
        )


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _of_group() -> int | None:
    """Memory below the limit of the innermost control group (version 2) of this process."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        name = next(line.partition("::")[2] for line in own if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / name.lstrip("/")
        limit = (folder / "memory.max").read_text(encoding="utf-8").strip()
        return None if limit == "max" else max(int(limit) - int((folder / "memory.current").read_text()), 0)
    except (OSError, StopIteration, ValueError):
        return None
