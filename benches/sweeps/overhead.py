"""Measures the cost of a sweep in addition to its simulations: python benches/sweeps/overhead.py [FILE.toml].

The same runs are carried out twice on two threads: alone, and by `pathloom sweep`, which also stores them and makes
tables, plots and the report. Other work on the machine changes processor time little. Wall-clock time is printed too.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pathloom.experiments.running.simulation import RunFiles, simulation
from pathloom.experiments.sweeps.plan import SweepPlan

THREADS = 2


def bare(path: Path) -> None:
    """Carries out the simulations alone."""
    plan = SweepPlan.read(path)
    todo = iter([(point.settings, job) for point in plan.points for job in point.settings.jobs("sim")])
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                settings, job = next(todo, (None, None))
            if settings is None or job is None:
                return
            run = simulation(settings, None, job, RunFiles())
            run.advance(run.end_s)
            run.outcome()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(*command: str) -> tuple[float, float]:
    """Returns the processor time and wall-clock time of a command, in seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, time.perf_counter() - started


def main() -> None:
    """Prints both times and their ratios."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--bare"]:
        bare(Path(arguments[1]))
        return
    path = arguments[0] if arguments else str(Path(__file__).with_name("overhead.toml"))
    with tempfile.TemporaryDirectory() as folder:
        alone = measured(__file__, "--bare", path)
        swept = measured("-m", "pathloom", "sweep", path, "--jobs", str(THREADS), "--out", folder)
    print(f"simulations alone: {alone[0]:.1f} s of processor time in {alone[1]:.1f} s")
    print(f"pathloom sweep:    {swept[0]:.1f} s of processor time in {swept[1]:.1f} s")
    print(
        f"ratio:             {swept[0] / alone[0]:.3f} of processor time, {swept[1] / alone[1]:.3f} of wall-clock time"
    )


if __name__ == "__main__":
    main()
