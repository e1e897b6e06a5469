"""Compares files of web-search sizes, fetched by curl from nginx in the lab, with the same simulated transfers.

Usage, as root: python benches/hostd/web.py [LOAD [SECONDS [SEED]]]; 0.5, 30 s and 1 by default. Needs nginx
and curl (scripts/prepare.sh web).

The simulator draws the transfers and runs them under each scheme with CUBIC. Then a lab of the same fabric runs under
Pathloom's own controller. Every host has an nginx, and the receiver of each transfer fetches a file of its size by curl
at the start time of the simulated transfer. The time is measured by curl, from the start of the connection to the last
byte. Neither program knows Pathloom; the host agent labels, announces and paces their connections. Prints a line of
JSON for each scheme.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from pathloom.fabrics import Fabric
from pathloom.lab import controller, hostd
from pathloom.lab.blueprint import Host
from pathloom.lab.hosts import host_stack
from pathloom.lab.lab import Lab

FABRIC = "fat-tree:k=4,rate=10Mbps,buffer=150"
SCHEMES = ("ecmp", "ofpt")
PORT = 8080
LONGEST_S = 300


def simulated(load: float, seconds: float, seed: int, out: Path) -> pl.DataFrame:
    """Returns the transfers of the simulator, under each scheme."""
    traffic = f"web-search:load={load},pattern=random"
    command = ["compare", "--fabric", FABRIC, "--traffic", traffic, "--schemes", ",".join(SCHEMES)]
    command += ["--transport", "cubic", "--duration", f"{seconds}s", "--until", "finished", "--runs", "1"]
    command += ["--seed", str(seed), "--out", str(out)]
    subprocess.run([sys.executable, "-m", "pathloom", *command], check=True, stdout=subprocess.DEVNULL)
    return pl.read_parquet(out / "flows.parquet")


def on_host(lab: Lab, host: Host, *words: str) -> subprocess.Popen[bytes]:
    """Starts a program on a host, in the cgroup whose connections the agent sees."""
    join = f'echo $$ > {lab.directory}/cgroup/pathloom-{lab.directory.name}/cgroup.procs; exec "$@"'
    command = ["sh", "-c", join, "sh", "ip", "netns", "exec", host.namespace, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@contextmanager
def servers(lab: Lab, hosts: list[Host], files: Path) -> Iterator[None]:
    """An nginx on each host, with the files of a folder."""
    running = []
    try:
        for host in hosts:
            own = files.parent / f"nginx-{host.name}"
            own.mkdir(exist_ok=True)
            (own / "nginx.conf").write_text(
                f"user root; daemon off; worker_processes 1; pid {own}/pid; error_log {own}/error.log;\n"
                f"events {{}}\nhttp {{ access_log off; sendfile on; server {{ listen {PORT}; root {files}; }} }}\n",
                encoding="utf-8",
            )
            running.append(on_host(lab, host, "nginx", "-p", str(own), "-c", str(own / "nginx.conf")))
        time.sleep(2)
        yield
    finally:
        for process in running:
            process.terminate()
            process.wait(20)


def fetched_s(lab: Lab, hosts: dict[str, Host], transfers: list[tuple[str, str, int, float]]) -> list[float | None]:
    """Fetches each transfer (source, receiver, bytes, start in s) at its start. Returns the times that they took."""
    times: list[float | None] = [None] * len(transfers)
    began = time.monotonic() + 1

    def fetch(number: int) -> None:
        source, receiver, size_bytes, start_s = transfers[number]
        time.sleep(max(began + start_s - time.monotonic(), 0))
        url = f"http://{hosts[source].ports[0].address}:{PORT}/{size_bytes}"
        words = ("curl", "-sf", "-o", "/dev/null", "-m", str(LONGEST_S), "-w", "%{time_total}", url)
        said, _ = on_host(lab, hosts[receiver], *words).communicate()
        times[number] = float(said) if said else None

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(len(transfers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def live(scheme: str, transfers: list[tuple[str, str, int, float]], folder: Path) -> list[float | None]:
    """Returns the times of the transfers in a lab under a scheme."""
    files = folder / "files"
    files.mkdir(exist_ok=True)
    for _, _, size_bytes, _ in transfers:
        with (files / str(size_bytes)).open("wb") as file:
            file.truncate(size_bytes)
    lab = Lab("web-figures")
    try:
        blueprint = lab.up(Fabric(FABRIC), controller.OWN, scheme, host_stack("linux/cubic", None))
        if not hostd.enforces(lab.directory):
            raise SystemExit(f"the host agent neither paces nor holds here: {hostd.warning(lab.directory)}")
        hosts = {host.name: host for host in blueprint.hosts}
        with servers(lab, list(hosts.values()), files):
            return fetched_s(lab, hosts, transfers)
    finally:
        lab.down()


def measure(load: float, seconds: float, seed: int) -> None:
    """Prints the figures of each scheme."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        flows = simulated(load, seconds, seed, folder / "simulated")
        for scheme in SCHEMES:
            own = flows.filter(pl.col("scheme") == scheme).sort("flow")
            transfers = list(own.select("src", "dst", "size_bytes", "start_s").iter_rows())
            took_s = live(scheme, transfers, folder)
            done = [one for one in took_s if one is not None]
            row = {
                "scheme": scheme,
                "transfers": len(transfers),
                "finished": len(done),
                "simulated_mean_fct_s": round(float(own["fct_s"].mean()), 3),  # type: ignore[arg-type]
                "lab_mean_fct_s": round(sum(done) / max(len(done), 1), 3),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    load, seconds, seed = [*sys.argv[1:], *("0.5", "30", "1")[len(sys.argv) - 1 :]]
    measure(float(load), float(seconds), int(seed))
