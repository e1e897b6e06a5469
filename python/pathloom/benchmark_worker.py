"""One run in a process that does nothing else; prints its figures as JSON. Started by `pathloom.benchmark`."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

from pathloom import _core


def resident_mb(field: str) -> float:
    """Memory of this process: `VmRSS` now, `VmHWM` at its peak. 1 MB is 10⁶ bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / 1e6


def main() -> None:
    """Carries out the run that the first argument describes."""
    # Arrays are first made at the end of the run; what that loads is not the simulator's.
    _core.Fabric.from_spec("dumbbell").links()
    interpreter_rss_mb = resident_mb("VmRSS")
    simulation = _core.Simulation(sys.argv[1])
    started = time.thread_time()
    simulation.advance(simulation.end_s)
    cpu_s = time.thread_time() - started
    peak_rss_mb = resident_mb("VmHWM")
    outcome = simulation.outcome()
    flows, seconds = outcome["flows"], outcome["end_ns"] / 1e9
    goodput_bps = int(flows["delivered_bytes"].sum()) * 8 / seconds
    print(
        json.dumps(
            {
                "hops": int(outcome["packets"]["hops"]),
                "events": int(outcome["packets"]["events"]),
                "cpu_s": cpu_s,
                "goodput": goodput_bps / math.fsum(flows["optimum_bps"].tolist()),
                "goodput_bps": goodput_bps,
                "peak_rss_mb": peak_rss_mb,
                "interpreter_rss_mb": interpreter_rss_mb,
            }
        )
    )


if __name__ == "__main__":
    main()
