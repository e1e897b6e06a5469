"""Measures plain programs in the lab under several schemes: the shares that iperf3 gets, in both directions.

`sudo python benches/live/programs.py` takes three minutes per scheme. For each it builds a lab of a FatTree
with k=4, links of 10 Mbit/s and Pathloom's controller. Then iperf3 with CUBIC runs on a permutation of its 16 hosts,
once so that the host that connects sends, and once so that the other one does. A line for each run has the mean and the
lowest share of the payload rate of a link, and the idle share of the processors.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FABRIC = "fat-tree:k=4,rate=10Mbps,buffer=150"
HOSTS = 16
PAYLOAD_BPS = 10e6 * 1448 / 1514
"""Of a segment of 1448 bytes in a frame of 1514 bytes."""
LAB = "programs"
PATHLOOM = str(Path(sys.executable).with_name("pathloom"))


def command(*words: str) -> list[str]:
    """A command of the lab."""
    return [PATHLOOM, "lab", *words]


def idle_share() -> tuple[float, float]:
    """Idle and total time of all processors so far, in ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]]
    return float(ticks[3] + ticks[4]), float(sum(ticks))


def permutation(seed: int) -> list[int]:
    """The receiver of each host: another one, and each of them once."""
    draw = random.Random(seed)
    while True:
        receivers = draw.sample(range(HOSTS), HOSTS)
        if all(host != receiver for host, receiver in enumerate(receivers)):
            return receivers


def shares(receivers: Sequence[int], seconds: int, reverse: bool) -> list[float]:
    """The share of the payload rate that each of 16 connections had, all at the same time."""
    words = ["iperf3", "-J", "-C", "cubic", "-t", str(seconds), *(["-R"] if reverse else [])]
    running = [
        subprocess.Popen(
            command("exec", "--name", LAB, f"h{host}", "--", *words, "-c", f"h{receiver}"), stdout=subprocess.PIPE
        )
        for host, receiver in enumerate(receivers)
    ]
    answers = [json.loads(one.communicate(timeout=seconds + 60)[0]) for one in running]
    return [answer["end"]["sum_received"]["bits_per_second"] / PAYLOAD_BPS for answer in answers]


def measure(scheme: str, runs: int, seconds: int) -> None:
    """Prints a line for each run under a scheme."""
    subprocess.run(
        command("up", FABRIC, "--controller", "pathloom", "--scheme", scheme, "--name", LAB),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    servers = []
    try:
        for host in range(HOSTS):
            words = command("exec", "--name", LAB, f"h{host}", "--", "iperf3", "-s")
            servers.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(3)
        for run in range(1, runs + 1):
            for reverse in (False, True):
                idle_before, total_before = idle_share()
                found = shares(permutation(run), seconds, reverse)
                idle, total = idle_share()
                line = {
                    "scheme": scheme,
                    "run": run,
                    "sender": "server" if reverse else "client",
                    "mean": round(statistics.mean(found), 3),
                    "lowest": round(min(found), 3),
                    "idle": round((idle - idle_before) / (total - total_before), 2),
                }
                print(json.dumps(line), flush=True)
    finally:
        for server in servers:
            server.kill()
        subprocess.run(command("down", "--name", LAB), check=False, stdout=subprocess.DEVNULL)


def main() -> int:
    """Measures all schemes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemes", default="ecmp,hedera,lessor,ofpt")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20)
    of = parser.parse_args()
    for scheme in of.schemes.split(","):
        measure(scheme, of.runs, of.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
