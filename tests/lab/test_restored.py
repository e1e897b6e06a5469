"""Etcd is restored from a backup, and keys in etcd of another version."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from live import K4, LEADS, QUIET, permutation, spoil, until
from pathloom.lab import system
from pathloom.lab.members import Members
from pathloom.lab.members import name as name_of
from pathloom.native import program
from support import free_ports
from test_members import three

DOCS = Path(__file__).resolve().parents[2] / "docs"


def etcds(members: Members) -> list[int]:
    """The process numbers of the etcds."""
    found = subprocess.run(["pgrep", "-x", "etcd"], capture_output=True, text=True, check=False).stdout.split()
    own = str(members.directory).encode()
    return [int(one) for one in found if own in Path(f"/proc/{one}/cmdline").read_bytes()]


def etcdctl(members: Members, *words: str) -> str:
    """What etcdctl prints in the namespace of the first controller."""
    command = [*system.within(members.namespace(0)), "etcdctl", *words]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def end_etcds(members: Members) -> None:
    """Kills all etcds, as when a room loses its power."""
    for process in etcds(members):
        os.kill(process, signal.SIGKILL)
    until(lambda: not etcds(members), "the etcds have ended")


def restore_etcds(members: Members, backup: Path) -> None:
    """Replaces the data of all etcds by the backup, as the documentation says, and starts them."""
    peers = ",".join(f"{name_of(one)}=http://{members.address(one)}:2380" for one in members.numbers)
    for number in members.numbers:
        data = members.directory / f"{name_of(number)}.etcd"
        shutil.rmtree(data)
        own = f"http://{members.address(number)}:2380"
        words = [f"--name={name_of(number)}", f"--initial-cluster={peers}", f"--initial-advertise-peer-urls={own}"]
        etcdctl(members, "snapshot", "restore", str(backup), f"--data-dir={data}", *words)
        members.start_etcd(number)
    until(lambda: are_healthy(members), "the restored etcds answer")


def are_healthy(members: Members) -> bool:
    """Whether each etcd answers, and they have a leader."""
    urls = ",".join(f"http://{members.address(one)}:2379" for one in members.numbers)
    asked = [*system.within(members.namespace(0)), "etcdctl", f"--endpoints={urls}", "endpoint", "health"]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    return subprocess.run(asked, env=environment, capture_output=True, check=False).returncode == 0


def run_restored(members: Members, election: int) -> str:
    """What `pathloom-controller restored` prints."""
    command = [program(), "restored", str(members.config(0)), str(election)]
    inside = [*system.within(members.namespace(0)), *command]
    return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


def test_controllers_go_on_after_etcd_is_restored_from_a_backup(name: str) -> None:
    with three(name, QUIET) as (members, live, first):
        pairs = permutation(live, 4)
        with live.probes(pairs) as probes:
            live.await_paths(pairs)
            assert members.ask(first, "/v1/switches/c0/drain", "POST")["drained"]
            hosts = live.blueprint.hosts
            wanted = {"src": hosts[0].ports[0].address, "dst": hosts[-1].ports[0].address, "count": 2}
            assignment = members.ask(first, "/v1/assignments", "POST", {**wanted, "lifetime_s": 86_400})["id"]
            paths = live.await_paths(pairs)
            backup = members.directory / "etcd.backup"
            etcdctl(members, f"--endpoints=http://{members.address(0)}:2379", "snapshot", "save", str(backup))
            # After the backup, there is one more start, and one more election.
            members.kill(first)
            second = members.await_leader([one for one in members.numbers if one != first])
            election, epoch = members.cluster(second)["election"], members.ask(second, "/v1/state")["epoch"]
            # Everything is lost except the switches.
            for number in members.numbers:
                members.kill(number)
            end_etcds(members)
            restore_etcds(members, backup)
            said = run_restored(members, election)
            assert f"the next start has the number {epoch - 1 + 1000 + 1}" in said
            for number in members.numbers:
                members.start(number)
            leader = members.await_leader()
            log = members.log(leader).read_text(encoding="utf-8")
            assert "is_restored=true" in log.rpartition(LEADS)[2].splitlines()[0]
            assert members.cluster(leader)["election"] > election
            assert members.ask(leader, "/v1/state")["epoch"] == epoch + 1000
            assert members.ask(leader, "/v1/switches/c0")["drained"]
            assert members.ask(leader, f"/v1/assignments/{assignment}")["id"] == assignment
            assert live.await_paths(pairs) == paths
            tracks = probes.stop()
        assert not spoil(tracks)
        flows = [one["id"] for one in members.ask(leader, "/v1/flows?limit=1000")["items"]]
        assert len(set(flows)) == len(flows) >= len(pairs)


@contextmanager
def etcd_with(folder: Path, port: int, peer_port: int) -> Iterator[str]:
    """An etcd with the example of a configuration, at another address. Yields its URL."""
    text = (DOCS / "etcd.example.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith(("listen-", "advertise-", "initial-"))]
    url, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    lines += [f"listen-client-urls: {url}", f"advertise-client-urls: {url}", f"listen-peer-urls: {peer}"]
    lines += [f"initial-advertise-peer-urls: {peer}", f"initial-cluster: etcd0={peer}"]
    config = folder / "etcd.yaml"
    config.write_text("\n".join(lines).replace("/var/lib/pathloom-etcd/data", str(folder / "etcd")) + "\n", "utf-8")
    with (folder / "etcd.log").open("wb") as log:
        etcd = subprocess.Popen(["etcd", "--config-file", str(config)], stdout=log, stderr=log)
    try:
        asked = ["curl", "--silent", "--max-time", "1", f"{url}/version"]
        until(lambda: b"etcdserver" in subprocess.run(asked, capture_output=True, check=False).stdout, "etcd answers")
        yield url
    finally:
        etcd.kill()
        etcd.wait()


def test_a_controller_does_not_lead_with_keys_of_a_later_version(tmp_path: Path) -> None:
    port, peer_port, api_port = free_ports(3)
    with etcd_with(tmp_path, port, peer_port) as url:
        ctl = ["etcdctl", f"--endpoints={url}"]
        subprocess.run([*ctl, "put", "/pathloom/format", "2"], check=True, capture_output=True)
        config = tmp_path / "controller.toml"
        config.write_text(
            f'[fabric]\nspec = "{K4}"\n[listen]\nunix = "{tmp_path}/switches.sock"\naddress = "127.0.0.1:{api_port}"\n'
            f'[cluster]\nendpoints = ["{url}"]\nname = "c0"\nttl = "2s"\n',
            encoding="utf-8",
        )
        with (tmp_path / "log").open("wb") as log:
            controller = subprocess.Popen([program(), "--config", str(config)], stdout=log, stderr=log)
        try:

            def says(words: str) -> bool:
                return words in (tmp_path / "log").read_text(encoding="utf-8", errors="replace")

            until(lambda: says("the keys in etcd are of a later version"), "it says why it does not lead")
            leader = [*ctl, "get", "--print-value-only", "/pathloom/leader"]
            assert subprocess.run(leader, check=True, capture_output=True).stdout == b""
            # The keys are of its version again.
            subprocess.run([*ctl, "put", "/pathloom/format", "1"], check=True, capture_output=True)
            until(lambda: says(LEADS), "it leads")
            assert subprocess.run(leader, check=True, capture_output=True).stdout == b"c0\n"
            # Its number of a start is stored before the log says that it leads.
            said = subprocess.run([program(), "restored", str(config), "5000"], check=True, capture_output=True).stdout
            assert b"the next start has the number 1002" in said
            # It was deposed, starts again and is elected anew.
            until(lambda: (tmp_path / "log").read_text("utf-8").count(LEADS) == 2, "it leads again")
            epoch = [*ctl, "get", "--print-value-only", "/pathloom/epoch"]
            assert subprocess.run(epoch, check=True, capture_output=True).stdout == b"1002\n"
        finally:
            controller.kill()
            controller.wait()


@contextmanager
def late(url: str, delay_s: float) -> Iterator[str]:
    """Passes requests on to an etcd, and each answer back after a delay. Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with urllib.request.urlopen(urllib.request.Request(url + self.path, body)) as answer:
                said = answer.read()
            time.sleep(delay_s)
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_request(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_slow_etcd_is_waited_for_after_it_was_restored(tmp_path: Path) -> None:
    port, peer_port = free_ports(2)
    # A controller with this lease waits 0.33 s for an answer, so that it can try again before the lease ends.
    with etcd_with(tmp_path, port, peer_port) as url, late(url, 0.5) as slow:
        config = tmp_path / "controller.toml"
        config.write_text(
            f'[fabric]\nspec = "{K4}"\n[listen]\nunix = "{tmp_path}/switches.sock"\n'
            f'[cluster]\nendpoints = ["{slow}"]\nname = "c0"\nttl = "2s"\n',
            encoding="utf-8",
        )
        command = [program(), "restored", str(config), "20"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the next start has the number 1001" in done.stdout
