"""Runs csg-htsim on a case."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from setups import (
    FRAME,
    HEADER,
    QUEUE_PACKETS,
    RATE_BPS,
    TCP_FRAME,
    TCP_QUEUE_PACKETS,
    WINDOW_PACKETS,
    Case,
    connection_matrix,
    tcp_packets,
)

HERE = Path(__file__).resolve().parent
END_US = 100_000
OBJECTS = ("fat_tree_topology", "fat_tree_switch", "connection_matrix", "firstfit")
"""What our program needs beside the library."""
FINISHED = re.compile(r"Flow \w+?_(\d+)_(\d+) .*finished at ([\d.e+]+)")


def build_dctcp(root: Path, folder: Path) -> Path:
    """Builds our program with the library of htsim. Writes nothing into its folder."""
    if shutil.which("g++") is None:
        raise SystemExit("dctcp needs a compiler; install it with `apt-get install g++`")
    sim, program = root / "sim", folder / "dctcp"
    line = ["g++", "-O2", "-std=c++17", f"-I{sim}", f"-I{sim / 'datacenter'}", "-o", str(program)]
    line += [str(HERE / "dctcp.cc"), *(str(sim / "datacenter" / f"{name}.o") for name in OBJECTS)]
    done = subprocess.run([*line, str(sim / "libhtsim.a")], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dctcp.cc does not build; is {root} built as README.md says?\n{done.stderr[-2000:]}")
    return program


def command(case: Case, root: Path, folder: Path) -> list[str]:
    """The command line of a run."""
    hosts, rate_mbps = case.k**3 // 4, RATE_BPS // 1_000_000
    if case.is_tcp:
        numbers = (hosts, rate_mbps, TCP_FRAME, TCP_QUEUE_PACKETS, case.slow.links, END_US)
        return [str(build_dctcp(root, folder)), *map(str, numbers)]
    program, _, choice = case.transport.partition("-")
    # The packets of htsim_ndp have the headers on top of -mtu, those of htsim_eqds within.
    mtu = FRAME - HEADER if program == "ndp" else FRAME
    line = [str(root / f"sim/datacenter/htsim_{program}"), "-o", str(folder / "log"), "-nodes", str(hosts)]
    line += ["-tm", str(folder / "flows.cm"), "-mtu", str(mtu), "-q", str(QUEUE_PACKETS), "-cwnd", str(WINDOW_PACKETS)]
    line += ["-linkspeed", str(rate_mbps), "-seed", str(case.seed), "-end", str(END_US)]
    return [*line, "-strat", choice] if choice else line


def run(case: Case, root: Path) -> list[float]:
    """The FCT of each transfer in us, until its last acknowledgement is back, in the order of the case."""
    environment = {**os.environ, "SLOW_LINKS": str(case.slow.links), "SLOWER": str(case.slow.factor)}
    if case.transport == "dctcp-marked":
        environment["ONLY_MARKED"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flows.cm").write_text(connection_matrix(case))
        lines = [f"{f.source} {f.target} {f.aggregation} {f.core} {tcp_packets(f)}\n" for f in case.flows]
        line = ["nice", "-n", "5", *command(case, root, folder)]
        done = subprocess.run(
            line, input="".join(lines), env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(f"{case.key}: ended with {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    if case.slow.links and not case.is_tcp and "Adding link failure" not in done.stdout:
        raise SystemExit(f"{root} knows no SLOW_LINKS; change it as README.md says")
    rows = (row.split() for row in done.stdout.splitlines())
    ended = {(int(a), int(b)): float(at) for a, b, at in (rows if case.is_tcp else FINISHED.findall(done.stdout))}
    times = [ended.get((flow.source, flow.target), -1) for flow in case.flows]
    if min(times) < 0:
        raise SystemExit(f"{case.key}: {sum(time > 0 for time in times)} of {len(times)} transfers finished")
    return times
