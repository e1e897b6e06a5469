"""Three controllers and three etcds: one controller leads, and another one takes over when it is gone."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from live import K4, LEADS, QUIET, TTL_S, Live, permutation, spoil, until
from pathloom.lab import system
from pathloom.lab.members import election_timeout_ms, etcd_command
from pathloom.native import BENCH, program
from support import PATHLOOM, PATIENCE_S, figures, free_ports

NAMES = ("c0", "c1", "c2")
TOKEN = "0123456789abcdef0123456789abcdef"
FOLLOWS = "this one starts again and follows"


class Trio:
    """Three controllers and three etcds in the namespace of the first switches of a lab."""

    def __init__(self, live: Live, stack: ExitStack) -> None:
        self.live = live
        self.directory = live.lab.directory
        self.stack = stack
        tokens = self.directory / "tokens"
        tokens.write_text(f"operate test {TOKEN}\n", encoding="ascii")
        tokens.chmod(0o600)
        self.etcds = [self._etcd(number) for number in range(3)]
        until(self.is_etcd_up, "etcd answers")
        self.processes = {name: self.start(name) for name in NAMES}
        until(lambda: self.leader() is not None, "a controller leads")
        for switch in live.blueprint.switches:
            self._connect(switch.bridge)

    def run(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        """Starts a program in the namespace."""
        inside = ["ip", "netns", "exec", self.live.blueprint.namespace, *command]
        environment = {**os.environ, system.MARK: str(self.directory)}
        with (self.directory / log).open("ab") as out:
            process = subprocess.Popen(
                inside, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        self.stack.callback(_end, process)
        return process

    def _etcd(self, number: int) -> subprocess.Popen[bytes]:
        own, client = f"etcd{number}", f"http://127.0.0.1:{2379 + number}"
        peers = {f"etcd{one}": f"http://127.0.0.1:{2479 + one}" for one in range(3)}
        return self.run(etcd_command(own, self.directory / own, client, peers, election_timeout_ms(TTL_S)), "etcd.log")

    def asked(self, address: str, *more: str, patience_s: float = 1) -> str:
        """The answer to a request by HTTP; empty if there is none within this time."""
        command = ["curl", "--silent", "--max-time", str(patience_s), *more, f"http://127.0.0.1:{address}"]
        inside = ["ip", "netns", "exec", self.live.blueprint.namespace, *command]
        return subprocess.run(inside, capture_output=True, text=True, check=False).stdout

    def api(self, name: str, path: str, *more: str, patience_s: float = PATIENCE_S) -> str:
        """The answer of the API of a controller."""
        token = ["--header", f"Authorization: Bearer {TOKEN}"]
        return self.asked(f"{6680 + NAMES.index(name)}{path}", *token, *more, patience_s=patience_s)

    def status(self, name: str) -> str:
        """What `pathloom controller status` says about a controller."""
        url = f"http://127.0.0.1:{6680 + NAMES.index(name)}"
        inside = ["ip", "netns", "exec", self.live.blueprint.namespace, *PATHLOOM, "controller", "status", "--url", url]
        environment = {**os.environ, "PATHLOOM_TOKEN": TOKEN}
        done = subprocess.run(inside, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cluster(self, name: str) -> dict[str, Any]:
        """What a controller says about itself and the others; empty if it does not answer."""
        said = self.api(name, "/v1/cluster", patience_s=1)
        return dict(json.loads(said)) if said else {}

    def command(self, *words: str) -> subprocess.Popen[str]:
        """Starts a command for the controllers that has the addresses of all of them."""
        urls = ",".join(f"http://127.0.0.1:{6680 + number}" for number in range(len(NAMES)))
        inside = ["ip", "netns", "exec", self.live.blueprint.namespace, *PATHLOOM, "controller", *words, "--url", urls]
        environment = {**os.environ, "PATHLOOM_TOKEN": TOKEN}
        return self.stack.enter_context(
            subprocess.Popen(inside, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )

    def value(self, key: str) -> str | None:
        """The value of a key of etcd."""
        body = json.dumps({"key": base64.b64encode(f"/pathloom/{key}".encode()).decode()})
        for port in (2379, 2380, 2381):
            said = self.asked(f"{port}/v3/kv/range", "--data", body)
            if match := re.search(r'"value":"([^"]+)"', said):
                return base64.b64decode(match[1]).decode()
        return None

    def is_etcd_up(self) -> bool:
        """Whether etcd has a leader."""
        return '"header"' in self.asked("2379/v3/kv/range", "--data", '{"key": "YQ=="}')

    def socket(self, name: str) -> Path:
        """Where switches connect to a controller."""
        return self.directory / "ovs" / f"{name}.sock"

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Starts a controller."""
        endpoints = [f"http://127.0.0.1:{2379 + number}" for number in range(3)]
        words: dict[str, dict[str, object]] = {
            "fabric": {"spec": self.live.fabric.spec},
            "scheme": {"spec": QUIET, "seed": 1},
            "listen": {"unix": str(self.socket(name))},
            "discovery": {"hosts": "configured"},
            "hosts": {"unix": str(self.directory / f"{name}.hosts")},
            "api": {"address": f"127.0.0.1:{6680 + NAMES.index(name)}", "tokens": str(self.directory / "tokens")},
            "cluster": {"endpoints": endpoints, "name": name, "ttl": f"{TTL_S}s"},
        }
        lines: list[str] = []
        for table, keys in words.items():
            lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        # Without this line each controller would listen at the same address, too.
        text = "\n".join(lines).replace("[listen]", f'[listen]\naddress = "127.0.0.1:{6660 + NAMES.index(name)}"')
        file = self.directory / f"{name}.toml"
        file.write_text(text + "\n", encoding="utf-8")
        return self.run([program(), "--config", str(file)], f"{name}.log")

    def _connect(self, bridge: str) -> None:
        daemon = self.live.switches.daemon_of(bridge)
        daemon.vsctl(["set-controller", bridge, *(f"unix:{self.socket(name)}" for name in NAMES)])
        for row in re.findall(r"[0-9a-f-]{36}", daemon.vsctl(["get", "Bridge", bridge, "controller"])):
            daemon.vsctl(["set", "Controller", row, "connection_mode=out-of-band", "max_backoff=1000"])

    def log(self, name: str) -> str:
        """The log of a controller."""
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def led(self, name: str) -> int:
        """How often a controller has become the leader."""
        return self.log(name).count(LEADS)

    def leader(self) -> str | None:
        """The controller whose key etcd has."""
        return self.value("leader")

    def await_lead(self, others: tuple[str, ...]) -> str:
        """Waits until one of these controllers leads and has sessions with all switches. Returns its name."""
        until(lambda: self.leader() in others, f"one of {others} leads")
        name = self.leader()
        assert name is not None
        until(lambda: self.sessions(name) >= len(self.live.blueprint.switches), f"{name} has all switches")
        return name

    def sessions(self, name: str) -> int:
        """Number of sessions that a controller has begun since it last became the leader."""
        return self.log(name).rpartition(LEADS)[2].count("a session is up")


class Agents:
    """The agent of a host with a connection to each controller, which only notes what they say."""

    def __init__(self, three: Trio, stack: ExitStack, address: str) -> None:
        self.three = three
        self.stack = stack
        self.address = address
        self.lines = {name: self.connect(name) for name in NAMES}

    def connect(self, name: str) -> IO[bytes]:
        """Connects to a controller, and says for which host."""
        path = self.three.directory / f"{name}.hosts"
        until(path.exists, f"{name} listens for agents")
        end = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        end.settimeout(PATIENCE_S)
        end.connect(str(path))
        end.sendall(json.dumps({"hello": {"version": 1, "hosts": [self.address]}}).encode() + b"\n")
        return end.makefile("rb")

    def heard(self, name: str) -> dict[str, dict[str, Any]]:
        """The next line of a controller."""
        said: dict[str, dict[str, Any]] = json.loads(self.lines[name].readline())
        return said

    def election(self, name: str) -> int:
        """The number of the election in the welcome that comes next from a controller."""
        return int(self.heard(name)["welcome"]["election"])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def trio(name: str) -> Iterator[Trio]:
    """A lab with three controllers."""
    live = Live(name, K4, QUIET)
    with ExitStack() as stack:
        yield Trio(live, stack)


def others(name: str) -> tuple[str, ...]:
    """The other controllers."""
    return tuple(one for one in NAMES if one != name)


def test_the_next_controller_takes_over_and_no_probe_is_lost(name: str) -> None:
    with trio(name) as three:
        first = three.await_lead(NAMES)
        pairs = permutation(three.live, 6)
        with three.live.probes(pairs) as probes, ExitStack() as stack:
            paths = three.live.await_paths(pairs)
            agents = Agents(three, stack, three.live.blueprint.hosts[0].ports[0].address)
            elections = [agents.election(first)]
            assert all("standby" in agents.heard(one) for one in others(first))
            # The leader is killed.
            three.processes[first].kill()
            began = time.monotonic()
            second = three.await_lead(others(first))
            took_s = time.monotonic() - began
            assert three.live.await_paths(pairs) == paths
            # The agent needs no new connection to the next leader.
            elections.append(agents.election(second))
            ended = f"the lease of {first} ended"
            until(lambda: ended in three.cluster(second)["hand_over"]["cause"], "the hand-over is noted")
            three.processes[first] = three.start(first)
            # A follower says who leads, and sends all other requests there.
            until(lambda: three.cluster(first).get("leader") == second, f"{first} follows {second}")
            assert "pathloom_cluster_leads 0" in three.api(first, "/metrics")
            until(lambda: "location" in json.loads(three.api(first, "/v1/state")), f"{first} knows the address")
            moved = json.loads(three.api(first, "/v1/switches/c0/drain", "--request", "POST"))
            there = f"http://127.0.0.1:{6680 + NAMES.index(second)}/v1/switches/c0/drain"
            assert (moved["status"], moved["leader"], moved["location"]) == (307, second, there)
            said, problem = three.command("status").communicate(timeout=PATIENCE_S)
            assert not problem
            assert re.search(rf"^leader +{second} since", said, re.MULTILINE)
            assert all(re.search(rf"^members .*\b{one} \d+\.\d s ago", said, re.MULTILINE) for one in NAMES)
            assert ended in said
            # The leader stands still for longer than its lease, and goes on.
            three.processes[second].send_signal(signal.SIGSTOP)
            third = three.await_lead(others(second))
            three.processes[second].send_signal(signal.SIGCONT)
            until(lambda: FOLLOWS in three.log(second), f"{second} follows")
            assert three.leader() == third
            if third != first:
                elections.append(agents.election(third))
            assert three.live.await_paths(pairs) == paths
            # The leader is told to stop. Another one leads at once.
            three.processes[third].send_signal(signal.SIGTERM)
            fourth = three.await_lead(others(third))
            stopped = {"from": third, "cause": f"{third} was told to stop"}
            until(lambda: stopped.items() <= three.cluster(fourth)["hand_over"].items(), "the last hand-over is noted")
            assert three.live.await_paths(pairs) == paths
            tracks = probes.stop()
        assert elections == sorted(set(elections)), "each leader has a greater number than the one before"
        assert not spoil(tracks)
        assert [three.led(one) >= 1 for one in (first, second, third, fourth)] == [True] * 4
        figures("a killed leader: seconds until the next one has all switches", took_s=round(took_s, 2))


def test_without_etcd_the_leader_goes_on_and_no_other_takes_over(name: str) -> None:
    with trio(name) as three:
        leader = three.await_lead(NAMES)
        pairs = permutation(three.live, 6)
        with three.live.probes(pairs[:3]) as probes, ExitStack() as later:
            paths = three.live.await_paths(pairs[:3])
            assert re.search(rf"leader +{leader} since .*, election \d+$", three.status(leader), re.MULTILINE)
            assert "pathloom_cluster_confirmed 1" in three.api(leader, "/metrics")
            for etcd in three.etcds:
                _end(etcd)
            until(lambda: "etcd does not confirm" in three.log(leader), "the leader knows that etcd is gone")
            time.sleep(1.5 * TTL_S)
            assert "etcd does not confirm it" in three.status(leader)
            assert "pathloom_cluster_confirmed 0" in three.api(leader, "/metrics")
            refused = json.loads(three.api(leader, "/v1/switches/c0/drain", "--request", "POST"))
            assert (refused["status"], refused["title"]) == (503, "this controller may not lead")
            # A new flow gets a path of its own.
            more = later.enter_context(three.live.probes(pairs[3:], first_port=21_000))
            addresses = {host.name: host.ports[0].address for host in three.live.blueprint.hosts}
            wanted = [(addresses[source], 21_000 + index) for index, (source, _) in enumerate(pairs[3:])]
            until(lambda: all(one in three.live.flow_rules() for one in wanted), "the new flows have their paths")
            late, tracks = more.stop(), probes.stop()
        assert not spoil(tracks)
        assert not spoil(late)
        assert [three.led(one) for one in others(leader)] == [0, 0]
        assert len(paths) == 3


def test_the_next_leader_knows_what_is_out_of_service(name: str) -> None:
    with trio(name) as three:
        first = three.await_lead(NAMES)
        pairs = permutation(three.live, 4)
        with three.live.probes(pairs) as probes:
            three.live.await_paths(pairs)
            # The answer says that etcd has stored it, so the leader may be killed at once.
            said = three.command("drain", "c0").communicate(timeout=PATIENCE_S)
            assert said == ("c0: out of service\n", "")
            three.processes[first].kill()
            second = three.await_lead(others(first))
            assert "is_restored=true" in three.log(second)
            assert json.loads(three.api(second, "/v1/switches/c0"))["drained"]
            paths = three.live.await_paths(pairs)
            tracks = probes.stop()
        core = next(switch.node for switch in three.live.blueprint.switches if switch.name == "c0")
        assert all(three.live.links["target"][link] != core for path in paths for link in path)
        assert not spoil(tracks)


def test_the_model_of_etcd_answers_as_etcd_does(tmp_path: Path) -> None:
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    command = ["etcd", "--data-dir", str(tmp_path / "etcd"), "--listen-client-urls", client]
    command += ["--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    with (tmp_path / "log").open("wb") as log:
        etcd = subprocess.Popen([*command, "--initial-cluster", f"default={peer}"], stdout=log, stderr=log)
    try:
        asked = ["curl", "--silent", "--max-time", "1", f"{client}/version"]
        until(lambda: b"etcdserver" in subprocess.run(asked, capture_output=True, check=False).stdout, "etcd answers")
        for seed in range(4):
            words = [program(BENCH), "etcd", client, "--seed", str(seed), "--requests", "1000"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert "agree" in done.stdout
    finally:
        _end(etcd)


def certificate(folder: Path, name: str) -> None:
    """Makes a certificate for the loopback address, and its key."""
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n", "ascii")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]
    request = ["openssl", "req", *key, "-out", f"{name}.csr", "-subj", "/"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "extensions"]
    sign = ["openssl", "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed]
    for command in (request, sign):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_etcd_with_certificates_and_users_restarts_under_a_leader(tmp_path: Path) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key"]
    authority = ["openssl", "req", "-x509", *key, "-out", "ca.pem", "-subj", "/CN=authority", "-days", "30"]
    authority += ["-addext", "basicConstraints=critical,CA:TRUE"]
    subprocess.run(authority, cwd=tmp_path, check=True, capture_output=True)
    certificate(tmp_path, "etcd")
    certificate(tmp_path, "controller")
    client_port, peer_port, switch_port = free_ports(3)
    client, peer = f"https://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    words = {
        "data-dir": "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "cert-file": "etcd.pem",
        "key-file": "etcd.key",
        "trusted-ca-file": "ca.pem",
    }
    command = ["etcd", *(f"--{key}={value}" for key, value in words.items()), "--client-cert-auth"]

    def ask(path: str, **body: object) -> str:
        own = ["--cacert", "ca.pem", "--cert", "controller.pem", "--key", "controller.key"]
        asked = ["curl", "--silent", "--max-time", "2", *own, "--data", json.dumps(body), f"{client}/v3/{path}"]
        return subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    with (tmp_path / "log").open("wb") as log, ExitStack() as stack:

        def start(words: list[str]) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(words, cwd=tmp_path, stdout=log, stderr=log)
            stack.callback(_end, process)
            return process

        def await_line(words: str) -> None:
            until(lambda: words in (tmp_path / "log").read_text("utf-8", errors="replace"), f"the log says: {words}")

        etcd = start(command)
        until(lambda: "header" in ask("auth/user/add", name="root", password="secret0"), "etcd answers")
        ask("auth/user/add", name="pathloom", password="secret1")
        for user in ("root", "pathloom"):
            ask("auth/role/add", name=user)
            ask("auth/user/grant", user=user, role=user)
        first, end = (base64.b64encode(key).decode() for key in (b"/pathloom/", b"/pathloom0"))
        ask("auth/role/grant", name="pathloom", perm={"permType": "READWRITE", "key": first, "range_end": end})
        assert "header" in ask("auth/enable")
        config = f"""
            [fabric]
            spec = "{K4}"
            [listen]
            unix = "{tmp_path / "switches.sock"}"
            address = "127.0.0.1:{switch_port}"
            [cluster]
            endpoints = ["{client}"]
            name = "c0"
            ttl = "2s"
            ca = "ca.pem"
            certificate = "controller.pem"
            key = "controller.key"
            user = "pathloom"
            password_file = "password"
        """
        (tmp_path / "controller.toml").write_text(config, encoding="utf-8")
        (tmp_path / "password").write_text("wrong\n", encoding="ascii")
        refused = start([program(), "--config", "controller.toml"])
        await_line("etcd refuses cluster.user")
        _end(refused)
        (tmp_path / "password").write_text("secret1\n", encoding="ascii")
        start([program(), "--config", "controller.toml"])
        await_line(LEADS)
        # Etcd forgets what it has given for the password.
        _end(etcd)
        await_line("etcd does not confirm")
        start(command)
        await_line("etcd confirms again")
