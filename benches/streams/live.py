"""Table 1, Fig. 7 and Fig. 8 of the paper on parallel TCP streams: GridFTP in the lab, at a tenth of the rates.

Usage, as root: python benches/streams/live.py table1|fig8 [--seconds S] [--streams 3,6,…] [--buffer N] [--json FILE].
Needs globus-gridftp-server and globus-url-copy (scripts/prepare.sh lab).

Neither program knows Pathloom: the server, which sends, runs under `pathloom with-paths`. Times and bytes come from the
counters of switches, from the first hundredth of the file to the last, without the start of the programs.

table1: topology A, four paths of 10 Mbit/s. Four streams, on one path and on four. Prints the time of each, and the
rate of each stream by second (Fig. 7).

fig8: topology B (traces/topology-b-tenth.json of the published figures). At a tenth of the rate, a path holds a tenth
of the bytes. So a stream has a tenth of the window, 6 segments, and `a` is ten times the published one: the numbers of
streams are still 2, 2 and 18. Buffers keep their 100 packets by default, since a busy machine delays packets for longer
than ten packets last. The controller measures rates and round trips itself. Each transfer takes about S seconds with
the optimal policy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pathloom.fabrics import Fabric
from pathloom.lab import controller, system
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.hosts import HostStack, host_stack
from pathloom.lab.lab import Lab
from pathloom.lab.status import link_counters
from pathloom.lab.switches import OpenVSwitch

TOPOLOGY_A = "parallel-paths:rates=10Mbps/10Mbps/10Mbps/10Mbps,delays=1us,host_rate=100Mbps,buffer=100"
TOPOLOGY_B = Path(__file__).parents[2] / "python/pathloom/published/traces/topology-b-tenth.json"
TENTH = 10
A = 0.001495 * TENTH
MSS_BYTES = 1448
WINDOW_SEGMENTS = 6
"""A tenth of 83.6 KB, in whole segments."""
STREAM_BPS = 530_000
"""Approximate rate of a stream with this window. It determines the size of a file that takes S seconds."""
BLOCK_BYTES = 26_214
"""A tenth of GridFTP's default, so that the last block of a stream takes as long as at the full rate."""
PATHS_B = (("SW1", "SW5"), ("SW2", "SW3"), ("SW2", "SW4"))
"""A link of each path that no other path uses."""
STREAMS = (3, 6, 9, 12, 15, 18, 21, 22, 24, 27, 30, 33, 36, 39)
SIZE_A_BYTES = 2**30 // TENTH
PORT = 2811
PATHLOOM = str(Path(sys.executable).with_name("pathloom"))
SAMPLE_S = 0.25
_RULE = re.compile(r"n_bytes=(\d+),.*\btcp,.*tp_src=(\d+),tp_dst=(\d+)")


class Site:
    """A lab with a sender and a receiver, and the counters of its switches."""

    def __init__(self, lab: Lab, blueprint: Blueprint, fabric: Fabric, folder: Path) -> None:
        self.lab, self.blueprint, self.links, self.folder = lab, blueprint, fabric.links, folder
        self.sender, self.receiver = blueprint.hosts
        self.switches = OpenVSwitch(blueprint, lab.directory)

    def start(self, host: str, *words: str) -> subprocess.Popen[str]:
        """Starts a program on a host."""
        command = [PATHLOOM, "lab", "exec", host, "--name", self.lab.name, "--", *words]
        environment = {**os.environ, system.MARK: str(self.lab.directory)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def carried_bytes(self) -> dict[int, int]:
        """Returns, by link, the bytes that the port of a switch has sent over it."""
        counters = link_counters(self.blueprint)
        return {port.link: counters[port.interface][0] for port in self.blueprint.switch_ports}

    def received_bytes(self) -> int:
        """Returns the bytes on the link to the receiver."""
        return self.carried_bytes()[self.receiver.ports[0].link ^ 1]

    def stream_bytes(self) -> dict[int, int]:
        """Returns, by source port, the bytes of data connections that the sender's switch has counted."""
        node = self.links["target"][self.sender.ports[0].link]
        bridge = next(switch.bridge for switch in self.blueprint.switches if switch.node == node)
        found: dict[int, int] = {}
        for line in self.switches.daemon_of(bridge).ofctl("dump-flows", bridge).splitlines():
            if (match := _RULE.search(line)) and str(PORT) not in (match[2], match[3]):
                found[int(match[2])] = max(found.get(int(match[2]), 0), int(match[1]))
        return found

    @contextmanager
    def server(self, paths: Sequence[str]) -> Iterator[None]:
        """Runs a GridFTP server on the sender. Its connections take paths by these options of `with-paths`."""
        address = self.sender.ports[0].address
        words = ["env", f"GLOBUS_HOSTNAME={address}", "globus-gridftp-server", "-aa", "-anonymous-user", "root"]
        words += ["-allow-root", "-home-dir", str(self.folder), "-no-detach", "-p", str(PORT)]
        words += ["-control-interface", address, "-data-interface", address, "-blocksize", str(BLOCK_BYTES)]
        process = self.start(self.sender.name, PATHLOOM, "with-paths", *paths, "-v", "--", *words)
        look = ["ip", "netns", "exec", self.sender.namespace, "ss", "-Hltn", f"sport = :{PORT}"]
        while not system.run_tool(look).strip():
            if process.poll() is not None:
                raise SystemExit(f"the server ended: {process.communicate()[1]}")
            time.sleep(0.1)
        try:
            yield
        finally:
            process.terminate()
            said = process.communicate(timeout=30)[1]
        if ", 0 had none" not in said:
            raise SystemExit(f"a connection had no path: {said}")

    def fetch(self, streams: int, size: int, look: Callable[[float], None] = lambda _now: None) -> float:
        """Fetches a file. Returns the seconds that its middle 98 hundredths take to the receiver."""
        source = f"ftp://{self.sender.ports[0].address}:{PORT}{self.folder}/data"
        words = ["env", f"GLOBUS_HOSTNAME={self.receiver.ports[0].address}", "globus-url-copy", "-p", str(streams)]
        words += ["-nodcau", "-bs", str(BLOCK_BYTES), "-len", str(size), source, f"file://{self.folder}/got"]
        before, samples = self.received_bytes(), []
        client = self.start(self.receiver.name, *words)
        while client.poll() is None:
            samples.append((time.monotonic(), self.received_bytes() - before))
            look(samples[-1][0])
            time.sleep(SAMPLE_S)
        said = client.communicate()[1]
        samples.append((time.monotonic(), self.received_bytes() - before))
        if client.returncode != 0 or (self.folder / "got").stat().st_size != size:
            raise SystemExit(f"globus-url-copy: {client.returncode}: {said}")
        (self.folder / "got").unlink()
        # The bytes include headers, so the hundredths are those of all carried bytes.
        carried = samples[-1][1]
        return _when(samples, carried * 0.99) - _when(samples, carried * 0.01)


def _when(samples: Sequence[tuple[float, int]], level: float) -> float:
    """Returns when `level` bytes were carried, by linear interpolation between two samples."""
    after = next(index for index, (_, done) in enumerate(samples) if done >= level)
    (early, first), (late, second) = samples[max(after - 1, 0)], samples[after]
    return late if second == first else early + (late - early) * (level - first) / (second - first)


@contextmanager
def site(fabric: Fabric, stack: HostStack | None) -> Iterator[Site]:
    """A lab of a fabric under the native controller, and a file on its sender."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lab = Lab(f"streams-{os.getpid()}")
        try:
            blueprint = lab.up(fabric, controller.OWN, "spt", stack)
            lab.release()
            with (folder / "data").open("wb") as file:
                file.truncate(SIZE_A_BYTES)
            yield Site(lab, blueprint, fabric, folder)
        finally:
            lab.down()


def table1() -> Iterator[dict[str, Any]]:
    """Yields the time over one path and over four, and the rate of each stream by second."""
    with site(Fabric(TOPOLOGY_A), None) as own:
        took = {}
        samples: list[tuple[float, dict[int, int]]] = []
        for paths in (1, 4):
            samples.clear()
            with own.server(["--paths", str(paths)]):
                took[paths] = own.fetch(4, SIZE_A_BYTES, lambda now: samples.append((now, own.stream_bytes())))
            yield {"paths": paths, "seconds": round(took[paths], 2), "streams_mbps": by_second(samples)}
        yield {"speed_up": round(took[1] / took[4], 3), "published": 3.87}


def by_second(samples: Sequence[tuple[float, dict[int, int]]]) -> dict[str, list[float]]:
    """Returns, by source port, the Mbit/s in each second, from the counters of its rule."""
    ports = sorted({port for _, counted in samples for port in counted})
    rates: dict[str, list[float]] = {str(port): [] for port in ports}
    last = samples[0]
    for now, counted in samples:
        if now - last[0] < 1:
            continue
        for port in ports:
            more = max(counted.get(port, 0) - last[1].get(port, 0), 0)
            rates[str(port)].append(round(more * 8 / 1e6 / (now - last[0]), 2))
        last = (now, counted)
    return rates


def topology_b(folder: Path, buffer_packets: int) -> Fabric:
    """Returns topology B at a tenth of its rates, with these buffers in its switches."""
    content = json.loads(TOPOLOGY_B.read_text(encoding="utf-8"))
    for link in content["edges"]:
        if not {link["source"], link["target"]} & {"A", "B"}:
            link["buffer_packets"] = buffer_packets
    (folder / "topology-b.json").write_text(json.dumps(content), encoding="utf-8")
    return Fabric(str(folder / "topology-b.json"))


def fig8(counts: Sequence[int], seconds: float, buffer_packets: int) -> Iterator[dict[str, Any]]:
    """Yields the speed of each policy by number of streams."""
    plain = host_stack("linux/reno", None)
    # The kernel counts half of a buffer for itself. Linux overrides the window of a route by the buffer.
    receive = 2 * WINDOW_SEGMENTS * MSS_BYTES
    buffers = {"net.ipv4.tcp_moderate_rcvbuf": "0", "net.ipv4.tcp_rmem": f"4096 {receive} {receive}"}
    stack = replace(plain, sysctls={**plain.sysctls, **buffers})
    with tempfile.TemporaryDirectory() as name, site(topology_b(Path(name), buffer_packets), stack) as own:
        names = {f"{one}-{other}": _link(own, one, other) for one, other in PATHS_B}
        for streams in counts:
            size = min(int(seconds * STREAM_BPS * min(streams, 21) / 8), SIZE_A_BYTES)
            for policy, options in (("optimal", ["--policy", "optimal", "--a", str(A)]), ("round-robin", [])):
                before = own.carried_bytes()
                with own.server(["--paths", "3", *options]):
                    took = own.fetch(streams, size)
                after = own.carried_bytes()
                shares = {name: after[link] - before[link] for name, link in names.items()}
                yield {
                    "streams": streams,
                    "policy": policy,
                    "mbps": round(size * 0.98 * 8 / 1e6 / took, 3),
                    "seconds": round(took, 2),
                    "megabytes_by_path": {name: round(share / 1e6, 2) for name, share in shares.items()},
                }
                # The controller reads its counters every 2 s. This transfer must not count for the next.
                time.sleep(4)


def _switch(own: Site, name: str) -> int:
    return next(switch.node for switch in own.blueprint.switches if switch.name == name)


def _link(own: Site, source: str, target: str) -> int:
    ends = _switch(own, source), _switch(own, target)
    pairs = zip(own.links["source"], own.links["target"], strict=True)
    return next(link for link, pair in enumerate(pairs) if pair == ends)


def main() -> None:
    """Prints a line of JSON for each transfer, and writes them to a file if asked to."""
    words = argparse.ArgumentParser(description="Parallel TCP streams live, at a tenth of the published rates.")
    words.add_argument("what", choices=("table1", "fig8"))
    words.add_argument("--seconds", type=float, default=20.0)
    words.add_argument("--streams", default=",".join(map(str, STREAMS)))
    words.add_argument("--buffer", type=int, default=100, help="packets in the buffers of topology B")
    words.add_argument("--json", type=Path)
    given = words.parse_args()
    counts = [int(one) for one in given.streams.split(",")]
    rows = table1() if given.what == "table1" else fig8(counts, given.seconds, given.buffer)
    kept = []
    for row in rows:
        kept.append(row)
        print(json.dumps(row), flush=True)
    if given.json is not None:
        given.json.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")


if __name__ == "__main__":
    main()
