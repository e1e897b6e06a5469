"""Measures data movers in the lab: the goodput of GridFTP, XRootD, bbcp and rclone with and without assigned paths.

`sudo python benches/live/data_movers.py --out movers.jsonl` takes ten minutes per fabric. It builds a lab with
Pathloom's controller under ecmp. Then it copies files between hosts by each recipe, once on the hashed routes and once
under `pathloom with-paths`, by turns. A line for each copy has the goodput (bytes of the file by the time between the
first and the last bytes at the receiver), the time of the command, the connections that had a path, and the share of
the busiest of the cables from the senders' ToRs. The summary has the ratio of each pair of turns. A recipe whose tool
is not installed is named and left out.

bbcp is in no Debian package: `--bbcp FILE` names a binary of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pathloom.fabrics import Fabric
from pathloom.lab import system
from pathloom.lab.blueprint import Host
from pathloom.lab.lab import Lab
from pathloom.lab.status import link_counters
from pathloom.waiting import await_event

FABRICS = {
    "fat-tree:k=4,rate=10Mbps,buffer=150": ([("h0", "h8"), ("h1", "h9"), ("h2", "h10"), ("h3", "h11")], 12_000_000),
    "parallel-paths:rates=10Mbps/10Mbps/10Mbps/10Mbps,host_rate=100Mbps": ([("h0", "h1")], 24_000_000),
}
"""Who sends to whom, and the bytes of each file: all hosts of a pod to another pod, and one host over four paths."""
STREAMS = 4
SMALL_CHUNKS = ("XRD_CPCHUNKSIZE=262144", "XRD_CPPARALLELCHUNKS=8")
"""By default xrdcp asks for four chunks of 8 MiB at a time. It assigns them to connections when it asks."""
LAB = "movers"
PATHLOOM = str(Path(sys.executable).with_name("pathloom"))
PATIENCE_S = 30.0
COPY_S = 240.0
SAMPLE_S = 0.05
END_SHARE = 0.02
"""Share of the bytes at each end of a copy that is not counted: programs start slowly on a busy machine."""
HAD_PATHS = re.compile(r"(\d+) connections had a path of their own, (\d+) had none")


@dataclass(frozen=True)
class Transfer:
    """A copy from one host to another."""

    source: Host
    target: Host
    folder: Path
    """Has `data`, the folder `parts` with the same bytes in several files, and what the servers need."""

    @property
    def data(self) -> Path:
        """The file that is sent."""
        return self.folder / "data"

    @property
    def copy(self) -> Path:
        """Where it arrives."""
        return self.folder / f"copy-{self.target.name}"

    def address(self, of: Host) -> str:
        """The address of a host."""
        return of.ports[0].address


@dataclass(frozen=True)
class Recipe:
    """How a tool copies a file: what runs on which host."""

    name: str
    needs: tuple[str, ...]
    sends: bool
    """Whether the client runs on the host that sends. It is the one that gets paths."""
    port: int
    """Port of the server."""
    server: Callable[[Transfer], list[str]]
    client: Callable[[Transfer], list[str]]
    files: int = 1

    def hosts(self, transfer: Transfer) -> tuple[Host, Host]:
        """The hosts of client and server."""
        pair = (transfer.source, transfer.target)
        return pair if self.sends else (pair[1], pair[0])


def gridftp_server(one: Transfer) -> list[str]:
    """A server for anonymous users."""
    own = one.address(one.target)
    words = ["globus-gridftp-server", "-aa", "-anonymous-user", "nobody", "-p", "2811"]
    return [*words, "-control-interface", own, "-data-interface", own]


def gridftp_put(one: Transfer) -> list[str]:
    """The client sends."""
    words = ["globus-url-copy", "-p", str(STREAMS), "-nodcau"]
    there = f"ftp://{one.address(one.target)}:2811{one.copy}"
    return [*words, f"file://{one.data}", there]


def xrootd_server(one: Transfer) -> list[str]:
    """A server, which may not run as root."""
    config = one.folder / f"xrootd-{one.source.name}.cfg"
    admin = one.folder / f"xrootd-{one.source.name}"
    config.write_text(f"all.export {one.folder}\nall.adminpath {admin}\nall.pidpath {admin}\nxrd.port 1094\n")
    return ["xrootd", "-R", "nobody", "-l", f"{admin}.log", "-c", str(config)]


def xrdcp(*setting: str) -> Callable[[Transfer], list[str]]:
    """The client receives, with these variables in its environment."""

    def command(one: Transfer) -> list[str]:
        words = ["xrdcp", "-f", "-N", "-s", "-S", str(STREAMS)]
        return ["env", *setting, *words, f"root://{one.source.name}/{one.data}", str(one.copy)]

    return command


def ssh_server(one: Transfer, of: Host) -> list[str]:
    """An SSH server with a key of its own."""
    keys = one.folder / "ssh"
    options = {"AuthorizedKeysFile": keys / "user.pub", "PidFile": "none", "UsePAM": "no", "StrictModes": "no"}
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    sftp = ["-o", "Subsystem=sftp internal-sftp", "-o", "PermitRootLogin=yes"]
    return [
        "/usr/sbin/sshd",
        "-D",
        "-f",
        "/dev/null",
        "-h",
        str(keys / "host"),
        "-o",
        f"ListenAddress={one.address(of)}",
        *words,
        *sftp,
    ]


def bbcp_push(program: str) -> Callable[[Transfer], list[str]]:
    """The client sends, after it has started the receiver by SSH."""

    def command(one: Transfer) -> list[str]:
        known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        remote = f"ssh -x -a {known} -i {one.folder}/ssh/user %I -l %U %H {program}"
        return [program, "-f", "-s", str(STREAMS), "-T", remote, str(one.data), f"root@{one.target.name}:{one.copy}"]

    return command


def rclone_serve(kind: str, of: str) -> Callable[[Transfer], list[str]]:
    """A server of rclone, on the host that sends or on the one that receives."""

    def command(one: Transfer) -> list[str]:
        host = one.source if of == "source" else one.target
        return ["rclone", "serve", kind, str(one.folder), "--addr", f"{one.address(host)}:8080", "-q"]

    return command


ONE_FILE = ["--multi-thread-streams", str(STREAMS), "--multi-thread-cutoff", "1M"]
"""One file in parts, over a connection for each."""
MANY_FILES = ["--transfers", str(STREAMS), "--multi-thread-streams", "0"]
"""Several files at the same time."""
RCLONE = ["rclone", "--config", "/dev/null", "--ignore-times", "-q"]


def rclone_http(one: Transfer) -> list[str]:
    """The client receives."""
    return [*RCLONE, *ONE_FILE, "--http-url", f"http://{one.source.name}:8080", "copyto", ":http:data", str(one.copy)]


def rclone_sftp(one: Transfer) -> list[str]:
    """The client receives."""
    there = ["--sftp-host", one.source.name, "--sftp-user", "root", "--sftp-key-file", f"{one.folder}/ssh/user"]
    return [*RCLONE, *ONE_FILE, *there, "copyto", f":sftp:{one.data}", str(one.copy)]


def rclone_webdav(one: Transfer) -> list[str]:
    """The client sends."""
    there = ["--webdav-url", f"http://{one.target.name}:8080"]
    return [*RCLONE, *MANY_FILES, *there, "copy", f"{one.folder}/parts", f":webdav:{one.copy.name}"]


def recipes(bbcp: str) -> list[Recipe]:
    """All recipes."""
    ssh = "/usr/sbin/sshd"
    grid = ("globus-gridftp-server", "globus-url-copy")
    xrootd, rclone = ("xrootd", "xrdcp"), ("rclone",)
    http = rclone_serve("http", "source")
    return [
        Recipe("globus-url-copy -p 4", grid, True, 2811, gridftp_server, gridftp_put),
        Recipe("bbcp -s 4", (bbcp, ssh), True, 22, lambda one: ssh_server(one, one.target), bbcp_push(bbcp)),
        Recipe("rclone, http, one file", rclone, False, 8080, http, rclone_http),
        Recipe(
            "rclone, sftp, one file", (*rclone, ssh), False, 22,
            lambda one: ssh_server(one, one.source), rclone_sftp,
        ),
        Recipe(
            "rclone, webdav, four files", rclone, True, 8080, rclone_serve("webdav", "target"), rclone_webdav, STREAMS
        ),
        Recipe("xrdcp -S 4", xrootd, False, 1094, xrootd_server, xrdcp()),
        Recipe("xrdcp -S 4, small chunks", xrootd, False, 1094, xrootd_server, xrdcp(*SMALL_CHUNKS)),
    ]  # fmt: skip


def on(host: Host, *words: str) -> list[str]:
    """A command on a host of the lab."""
    return [PATHLOOM, "lab", "exec", "--name", LAB, host.name, "--", *words]


@contextmanager
def serving(recipe: Recipe, transfers: Sequence[Transfer], log: Path) -> Iterator[None]:
    """The servers of all transfers."""
    running = []
    try:
        with log.open("ab") as out:
            for one in transfers:
                running.append(subprocess.Popen(on(recipe.hosts(one)[1], *recipe.server(one)), stdout=out, stderr=out))
        for one in transfers:
            server = recipe.hosts(one)[1]
            answering = partial(answers, one.address(server), recipe.port)
            if not await_event(partial(system.inside, server.namespace, answering), PATIENCE_S, 0.1):
                raise SystemExit(f"{recipe.name}: no server on {server.name}; see {log}")
        yield
    finally:
        for server in running:
            server.terminate()
        for server in running:
            server.wait()


def answers(address: str, port: int) -> bool:
    """Whether a server listens in the namespace of the calling thread."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


class Cables:
    """The cables from the ToRs of the hosts that send to other switches."""

    def __init__(self, transfers: Sequence[Transfer]) -> None:
        self.blueprint = Lab(LAB).blueprint()
        links = Fabric(self.blueprint.fabric).links
        hosts = {host.node for host in self.blueprint.hosts}
        tors = {int(links["target"][one.source.ports[0].link]) for one in transfers}
        self._interfaces = [
            port.interface
            for port in self.blueprint.switch_ports
            if port.switch in tors and int(links["target"][port.link]) not in hosts
        ]

    def sent(self) -> list[int]:
        """Bytes that each of them has carried."""
        counters = link_counters(self.blueprint)
        return [counters[cable][0] for cable in self._interfaces]


class Arrivals(threading.Thread):
    """What has arrived at hosts, sampled until all commands have ended."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        super().__init__(daemon=True)
        self._hosts = hosts
        self._samples: list[tuple[float, list[int]]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        """Takes samples."""
        while True:
            ending = self._ended.is_set()
            arrived = [system.inside(host.namespace, received) for host in self._hosts]
            self._samples.append((time.monotonic(), arrived))
            if ending:
                return
            self._ended.wait(SAMPLE_S)

    def stop(self) -> None:
        """Takes the last sample."""
        self._ended.set()
        self.join()

    def took_s(self) -> list[float]:
        """Time between the first and the last bytes at each host, without a share at both ends."""
        times = []
        for number in range(len(self._hosts)):
            first, last = self._samples[0][1][number], self._samples[-1][1][number]
            ends = [first + share * (last - first) for share in (END_SHARE, 1 - END_SHARE)]
            began, over = (next(at for at, row in self._samples if row[number] >= end) for end in ends)
            times.append(over - began)
        return times


def received() -> int:
    """Bytes that a host has received over the fabric, in whose namespace the calling thread is."""
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()
    return sum(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("eth"))


def copy(recipe: Recipe, transfers: Sequence[Transfer], paths: bool) -> dict[str, Any]:
    """Copies all files at the same time. Returns what was measured."""
    cables = Cables(transfers)
    before = cables.sent()
    given = [PATHLOOM, "with-paths", "--paths", str(STREAMS), "-v", "--"] if paths else []
    for one in transfers:
        clear(one.copy, recipe.files > 1)
    arrivals = Arrivals([one.target for one in transfers])
    arrivals.start()
    began = time.monotonic()
    running = [
        subprocess.Popen(
            on(recipe.hosts(one)[0], *given, *recipe.client(one)),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for one in transfers
    ]  # fmt: skip
    if not await_event(lambda: all(process.poll() is not None for process in running), COPY_S, 0.02):
        for process in running:
            process.kill()
        raise SystemExit(f"{recipe.name}: not over within {COPY_S:g} s")
    command_s = time.monotonic() - began
    arrivals.stop()
    said = [process.communicate()[0] for process in running]
    for process, text, one in zip(running, said, transfers, strict=True):
        if process.returncode != 0:
            raise SystemExit(f"{recipe.name}: ended with {process.returncode}: {text}")
        if problem := difference(recipe, one):
            raise SystemExit(f"{recipe.name}: {problem}: {text}")
    bulk = (1 - 2 * END_SHARE) * transfers[0].data.stat().st_size
    spread = [after - earlier for after, earlier in zip(cables.sent(), before, strict=True)]
    counted = [found for text in said if (found := HAD_PATHS.search(text))]
    return {
        "recipe": recipe.name,
        "paths": paths,
        "goodput_mbps": round(statistics.mean(8e-6 * bulk / one for one in arrivals.took_s()), 3),
        "slowest_mbps": round(8e-6 * bulk / max(arrivals.took_s()), 3),
        "command_s": round(command_s, 2),
        "busiest_cable": round(max(spread) / sum(spread), 3),
        "connections_with_path": sum(int(found[1]) for found in counted) if paths else None,
        "connections_without": sum(int(found[2]) for found in counted) if paths else None,
    }


def clear(place: Path, folder: bool) -> None:
    """Removes what an earlier copy has left."""
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    if folder:
        place.mkdir()


def difference(recipe: Recipe, one: Transfer) -> str | None:
    """What is wrong with a copy; None if it has the bytes of the original."""
    if recipe.files == 1:
        same = one.copy.read_bytes() == one.data.read_bytes()
    else:
        parts = range(1, recipe.files + 1)
        same = b"".join((one.copy / str(part)).read_bytes() for part in parts) == one.data.read_bytes()
    return None if same else f"{one.copy} is not what was sent"


def prepare(folder: Path, size: int) -> None:
    """Makes the files and the keys."""
    folder.chmod(0o777)
    content = os.urandom(size)
    (folder / "data").write_bytes(content)
    (folder / "parts").mkdir()
    share = size // STREAMS
    for part in range(STREAMS):
        (folder / "parts" / str(part + 1)).write_bytes(content[part * share : (part + 1) * share])
    (folder / "ssh").mkdir()
    for key in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "ssh" / key)]
        subprocess.run(words, check=True)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def measure(spec: str, chosen: Sequence[Recipe], turns: int, out: Path) -> list[dict[str, Any]]:
    """Measures recipes on a fabric. Returns all lines."""
    subprocess.run(
        [PATHLOOM, "lab", "up", spec, "--controller", "pathloom", "--scheme", "ecmp", "--name", LAB], check=True
    )
    lines = []
    pairs, size = FABRICS[spec]
    try:
        # In memory, so that no disk decides.
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="movers") as place:
            folder = Path(place)
            prepare(folder, size)
            hosts = {host.name: host for host in Lab(LAB).blueprint().hosts}
            transfers = [Transfer(hosts[source], hosts[target], folder) for source, target in pairs]
            for recipe in chosen:
                with serving(recipe, transfers, Path(f"{out}.log")):
                    for turn in range(turns):
                        # The order changes from turn to turn.
                        for paths in ((False, True), (True, False))[turn % 2]:
                            line = {"fabric": spec, "turn": turn, **copy(recipe, transfers, paths)}
                            lines.append(line)
                            print(json.dumps(line), flush=True)
                            with out.open("a", encoding="utf-8") as file:
                                file.write(json.dumps(line) + "\n")
    finally:
        subprocess.run([PATHLOOM, "lab", "down", "--name", LAB], check=False)
    return lines


def summarise(lines: Sequence[dict[str, Any]]) -> None:
    """Prints a row for each recipe: the goodput of both ways, and the ratio of each turn."""
    groups: dict[tuple[str, str], dict[int, dict[bool, float]]] = {}
    for line in lines:
        turns = groups.setdefault((line["fabric"], line["recipe"]), {})
        turns.setdefault(line["turn"], {})[line["paths"]] = line["goodput_mbps"]
    for (fabric, recipe), turns in groups.items():
        hashed, given = ([one[paths] for one in turns.values()] for paths in (False, True))
        ratios = [one[True] / one[False] for one in turns.values()]
        print(
            f"{fabric.partition(':')[0]:15} {recipe:27} hashed {statistics.median(hashed):6.2f}, "
            f"with paths {statistics.median(given):6.2f} Mbit/s, "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def main() -> int:
    """Measures all recipes on all fabrics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines that is appended to")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bbcp", default="bbcp", help="program of bbcp")
    parser.add_argument("--only", default="", help="recipes whose names have this text")
    parser.add_argument("--fabrics", default="", help="fabrics whose specifications have this text")
    given = parser.parse_args()
    chosen = []
    for recipe in recipes(given.bbcp):
        missing = [one for one in recipe.needs if system.find_tool(one) is None]
        if missing:
            print(f"{recipe.name}: left out, because {', '.join(missing)} is missing", file=sys.stderr)
        elif given.only in recipe.name:
            chosen.append(recipe)
    lines = []
    for spec in FABRICS:
        if given.fabrics in spec:
            lines += measure(spec, chosen, given.turns, given.out)
    summarise(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
