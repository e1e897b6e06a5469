"""Measures the cost of the host agent on a fast link: paired runs of iperf3 with and without the agent.

Usage, as root: python benches/hostd/cost.py [PAIRS [SECONDS]]; 40 pairs of 1 s each by default.

Two namespaces are joined by a veth link. The agent always runs, and iperf3 runs in its cgroup or outside of it. Each
pair has one run of each kind, in an order that changes from pair to pair, so that slow changes of the machine cancel
out. The result is the median of the pairs' ratios of throughput, with a confidence interval that assumes no
distribution (binomial, of order statistics). Prints one line of JSON; `loss_percent` is positive if the agent costs
throughput.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pathloom.native import program

NEAR, FAR = "10.253.0.1", "10.253.0.2"
RATE = "10gbit"
PORT = "5209"


def run(*words: str | Path) -> str:
    """Runs a tool. Returns its output."""
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """Returns the narrowest symmetric pair of order statistics that contains the median with this confidence."""
    ordered, count = sorted(values), len(values)
    covered, rank = 0.0, count // 2
    while rank > 0:
        rank -= 1
        covered = sum(math.comb(count, k) for k in range(rank + 1, count - rank)) / 2**count
        if covered >= confidence:
            break
    return ordered[rank], ordered[count - 1 - rank]


@contextmanager
def link() -> Iterator[tuple[str, str]]:
    """Two namespaces with a link of 10 Gbit/s."""
    near, far = "pathloom-cost-a", "pathloom-cost-b"
    try:
        for name in (near, far):
            run("ip", "netns", "add", name)
        run("ip", "-n", near, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", far)
        for name, address in ((near, NEAR), (far, FAR)):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
            run("tc", "-n", name, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", "rate", RATE)
        yield near, far
    finally:
        for name in (near, far):
            with suppress(subprocess.CalledProcessError):
                run("ip", "netns", "delete", name)


@contextmanager
def agent(near: str, place: Path) -> Iterator[Path]:
    """Runs the agent for the near namespace. Yields the cgroup that it watches."""
    mounts = {"cgroup2": place / "cgroup", "bpf": place / "bpf"}
    for kind, folder in mounts.items():
        folder.mkdir()
        run("mount", "-t", kind, "none", folder)
    group = mounts["cgroup2"] / "pathloom-cost"
    group.mkdir()
    config = place / "hostd.toml"
    config.write_text(
        f'[controller]\nunix = "{place}/nobody.sock"\n[[hosts]]\naddresses = ["{NEAR}"]\n'
        f'namespace = "/run/netns/{near}"\n[kernel]\nbpf = "required"\n'
        f'cgroup = "{group}"\nbpf_fs = "{mounts["bpf"]}"\n',
        encoding="utf-8",
    )
    process = subprocess.Popen([program("pathloom-hostd"), "--config", config], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not (mounts["bpf"] / "pathloom-hostd-1/link-hold").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the agent did not start; `pathloom-hostd check` says what this machine permits")
            time.sleep(0.05)
        yield group
    finally:
        process.terminate()
        process.wait(20)
        with suppress(OSError):
            group.rmdir()
        for folder in mounts.values():
            run("umount", folder)


def throughput_bps(near: str, group: Path | None, seconds: float) -> float:
    """Returns the payload rate of iperf3, in the agent's cgroup or, if `group` is None, outside of it."""
    join = f"echo $$ > {group}/cgroup.procs && " if group is not None else ""
    command = f"{join}exec ip netns exec {near} iperf3 -c {FAR} -p {PORT} -t {seconds} --json"
    done = json.loads(run("sh", "-c", command))
    return float(done["end"]["sum_received"]["bits_per_second"])


def measure(pairs: int, seconds: float) -> dict[str, object]:
    """Runs `pairs` pairs of runs of `seconds` each. Returns the figures."""
    with tempfile.TemporaryDirectory() as folder, link() as (near, far), agent(near, Path(folder)) as group:
        server = subprocess.Popen(
            ["ip", "netns", "exec", far, "iperf3", "-s", "-p", PORT],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(0.5)
            throughput_bps(near, None, seconds)
            with_agent, without = [], []
            for pair in range(pairs):
                kinds = [(with_agent, group), (without, None)]
                for values, where in kinds if pair % 2 else reversed(kinds):
                    values.append(throughput_bps(near, where, seconds))
        finally:
            server.terminate()
            server.wait()
    ratios = [one / other for one, other in zip(with_agent, without, strict=True)]
    low, high = interval(ratios)
    return {
        "pairs": pairs,
        "seconds": seconds,
        "with_gbps": round(statistics.median(with_agent) / 1e9, 3),
        "without_gbps": round(statistics.median(without) / 1e9, 3),
        "loss_percent": round(100 * (1 - statistics.median(ratios)), 2),
        "loss_percent_95": [round(100 * (1 - high), 2), round(100 * (1 - low), 2)],
    }


if __name__ == "__main__":
    print(
        json.dumps(
            measure(int(sys.argv[1] if len(sys.argv) > 1 else 40), float(sys.argv[2] if len(sys.argv) > 2 else 1))
        )
    )
