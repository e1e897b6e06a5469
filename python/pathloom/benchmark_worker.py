"""Carries out one run in a separate process and prints its figures as JSON. Started by `pathloom.benchmark`."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

from pathloom import _core


def resident_mb(field: str) -> float:
    """Memory of this process in MB (10⁶ bytes): `VmRSS` is the present value, `VmHWM` the peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / 1e6


def main() -> None:
    """Carries out the run that the first argument describes."""
    # Makes arrays before the run: the memory that the array library takes when it loads is not the simulator's.
    _core.Fabric.from_spec("dumbbell").links()
    interpreter_rss_mb = resident_mb("VmRSS")
    simulation = _core.Simulation(sys.argv[1])
    cpu_s, start_up_s = 0.0, _core.parse_time_s(json.loads(sys.argv[1])["duration"]) * float(sys.argv[2])
    goodputs_bps: list[float | None] = []
    delivered_bits, since_s = 0, 0.0
    for until_s in (start_up_s, simulation.end_s):
        started = time.thread_time()
        simulation.advance(until_s)
        cpu_s += time.thread_time() - started
        peak_rss_mb = resident_mb("VmHWM")
        outcome = simulation.outcome()
        bits, now_s = int(outcome["flows"]["delivered_bytes"].sum()) * 8, outcome["end_ns"] / 1e9
        goodputs_bps.append((bits - delivered_bits) / (now_s - since_s) if now_s > since_s else None)
        delivered_bits, since_s = bits, now_s
    flows, goodput_bps = outcome["flows"], delivered_bits / since_s
    optimum_bps = math.fsum(flows["optimum_bps"].tolist())
    print(
        json.dumps(
            {
                "hops": int(outcome["packets"]["hops"]),
                "events": int(outcome["packets"]["events"]),
                "cpu_s": cpu_s,
                "goodput": goodput_bps / optimum_bps,
                "goodput_bps": goodput_bps,
                **{
                    name: goodput / optimum_bps if goodput is not None else None
                    for name, goodput in zip(("goodput_start_up", "goodput_after"), goodputs_bps, strict=True)
                },
                "peak_rss_mb": peak_rss_mb,
                "interpreter_rss_mb": interpreter_rss_mb,
            }
        )
    )


if __name__ == "__main__":
    main()
