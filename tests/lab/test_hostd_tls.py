"""Agents that connect by TLS: accepted and refused ones, the messages, and the effect of a reload."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hosted import until
from pathloom.lab import system
from pathloom.native import program
from support import PATIENCE_S

CONTROLLER, PORT = "10.255.0.1", 6634
MINE, OTHER, STRANGER = "10.0.0.1", "10.0.1.1", "10.9.9.9"
"""Two hosts of a k=4 FatTree, and an address that the fabric does not have."""
TOKEN, OTHER_TOKEN = "the-token-of-the-first-host", "the-token-of-another-host"
ACCEPTED = "the controller has accepted this agent"


class Place:
    """A namespace whose loopback has all addresses, the files of a test, and a controller with TLS for agents."""

    def __init__(self, namespace: str, directory: Path) -> None:
        self.namespace, self.directory = namespace, directory
        self.running: list[subprocess.Popen[bytes]] = []
        for name in ("ca", "wrong-ca"):
            self._openssl("req", "-x509", *_key(name), "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "1")
        self.certify("controller", "ca", CONTROLLER)
        self.certify("good", "ca")
        self.certify("stranger", "wrong-ca")
        self.certify("expired", "ca", days=-1)
        self.write_tokens(f"{TOKEN} {MINE}\n{OTHER_TOKEN} {OTHER}\n")
        config = f"""
fabric = {{ spec = "fat-tree:k=4,rate=10Mbps" }}
listen = {{ unix = "{directory}/openflow.sock", address = "{CONTROLLER}:6653" }}
[hosts]
address = "{CONTROLLER}:{PORT}"
tokens = "tokens"
tls = {{ certificate = "controller.pem", key = "controller.key", client_ca = "ca.pem" }}
"""
        (directory / "controller.toml").write_text(config, encoding="utf-8")
        self.start_controller()

    def start_controller(self) -> None:
        """Starts a controller with an empty log."""
        (self.directory / "controller.log").unlink(missing_ok=True)
        command = [program(), "--config", str(self.directory / "controller.toml")]
        self.controller = self._start(command, "controller.log")
        until(lambda: "listening for host agents" in self.log("controller.log"))

    def restart_controller(self) -> None:
        """Ends the controller, and starts another one that knows nothing of refused agents."""
        self.controller.kill()
        self.controller.wait()
        self.start_controller()

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def certify(self, name: str, ca: str, address: str = MINE, days: int = 1) -> None:
        """Makes NAME.pem and NAME.key, issued by an authority. With -1 days, the certificate has expired."""
        self._openssl("req", "-new", *_key(name), "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.directory / "names").write_text(f"subjectAltName=IP:{address}\n", encoding="ascii")
        issuer = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", str(days), "-extfile", "names")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *issuer, "-out", f"{name}.pem")

    def write_tokens(self, text: str) -> None:
        file = self.directory / "tokens"
        file.touch(0o600)
        file.write_text(text, encoding="ascii")

    def _start(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.directory / log).open("ab") as out:
            inside = ["ip", "netns", "exec", self.namespace, *command]
            process = subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.running.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.directory / name).read_text(encoding="utf-8", errors="replace")

    def reload(self) -> None:
        """Makes the controller read its files again."""
        seen = len(self.log("controller.log"))
        self.controller.send_signal(signal.SIGHUP)
        until(lambda: "were read again" in self.log("controller.log")[seen:])

    @contextmanager
    def agent(
        self, certificate: str = "good", ca: str = "ca", token: str | None = TOKEN, source: str = MINE, host: str = MINE
    ) -> Iterator[Callable[[], str]]:
        """Runs a real agent. Yields a function that returns its log."""
        log, config = f"hostd-{len(self.running)}.log", self.directory / f"hostd-{len(self.running)}.toml"
        shown = ""
        if token is not None:
            (self.directory / "token").write_text(token, encoding="ascii")
            shown = f'token_file = "{self.directory}/token"'
        text = f"""
[controller]
address = "{CONTROLLER}:{PORT}"
source = "{source}"
{shown}
[controller.tls]
ca = "{self.directory}/{ca}.pem"
certificate = "{self.directory}/{certificate}.pem"
key = "{self.directory}/{certificate}.key"
[[hosts]]
addresses = ["{host}"]
[kernel]
bpf = "off"
"""
        config.write_text(text, encoding="utf-8")
        process = self._start([program("pathloom-hostd"), "--config", str(config)], log)
        try:
            yield lambda: self.log(log)
        finally:
            process.terminate()
            process.wait(60)

    def end(self) -> None:
        for process in self.running:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait(10)


def _key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]


@pytest.fixture
def place(name: str, tmp_path: Path) -> Iterator[Place]:
    namespace = f"pathloom.{name}.tls"
    system.run_tool(["ip", "netns", "add", namespace])
    found = None
    try:
        system.run_tool(["ip", "-n", namespace, "link", "set", "lo", "up"])
        for address in (CONTROLLER, MINE, OTHER, STRANGER):
            system.run_tool(["ip", "-n", namespace, "address", "add", f"{address}/32", "dev", "lo"])
        found = Place(namespace, tmp_path)
        yield found
    finally:
        if found is not None:
            found.end()
        system.run_tool(["ip", "netns", "delete", namespace])


def test_the_right_certificate_and_token_are_accepted(place: Place) -> None:
    with place.agent() as log:
        until(lambda: ACCEPTED in log())
    assert "an agent represents hosts" in place.log("controller.log")
    assert "an agent is disconnected" not in place.log("controller.log")


FALSE_IDENTITIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "wrong CA": ({"certificate": "stranger"}, ("TLS handshake failed", "UnknownIssuer")),
    "expired": ({"certificate": "expired"}, ("TLS handshake failed", "xpired")),
    "no token": ({"token": None}, ("a token is needed",)),
    "unknown token": ({"token": "nobody-knows-this-token"}, ("the token is not known",)),
    "token of another": ({"token": OTHER_TOKEN}, ("the token is for other hosts",)),
    "address": ({"source": OTHER}, (f"{MINE} is not the address this connection comes from",)),
    "token elsewhere": ({"source": OTHER, "host": OTHER}, ("the token is for other hosts",)),
    "no host of the fabric": ({"source": STRANGER}, (f"{MINE} is not the address",)),
}
"""Arguments of `Place.agent`, and what the controller says."""


def test_an_agent_with_a_false_identity_is_refused_in_one_line(place: Place) -> None:
    for what, (how, why) in FALSE_IDENTITIES.items():
        place.restart_controller()
        with place.agent(**how) as log:
            until(lambda: "an agent is disconnected" in place.log("controller.log"))
            # The agent tries again and again. The controller logs it once, with the address.
            time.sleep(1.5)
            lines = [line for line in place.log("controller.log").splitlines() if "an agent is disconnected" in line]
            assert len(lines) == 1, (what, lines)
            assert all(word in lines[0] for word in why), (what, lines)
            assert how.get("source", MINE) in lines[0]
            assert ACCEPTED not in log()
            until(lambda log=log: "no session with a controller" in log())  # type: ignore[misc]
            # One line each: BPF is off, the refusal, the end of the session.
            assert len([line for line in log().splitlines() if "WARN" in line]) <= 3, (what, log())


def test_an_agent_does_not_trust_a_controller_of_another_authority(place: Place) -> None:
    with place.agent(ca="wrong-ca") as log:
        until(lambda: "no session with a controller" in log())
        assert "UnknownIssuer" in log() or "invalid peer certificate" in log(), log()
        until(lambda: "TLS handshake failed" in place.log("controller.log"))


def test_a_reload_reads_other_tokens_and_another_authority(place: Place) -> None:
    with place.agent() as first:
        until(lambda: ACCEPTED in first())
        place.write_tokens(f"another-token-of-this-host {MINE}\n")
        place.reload()
        with place.agent(source=OTHER, host=OTHER, token=OTHER_TOKEN):
            until(lambda: "the token is not known" in place.log("controller.log"))
        # An accepted agent stays connected.
        assert "no session" not in first()
    with place.agent(token="another-token-of-this-host") as second:
        until(lambda: ACCEPTED in second())
    # The controller trusts another authority now, and an agent may change its certificate while it runs.
    (place.directory / "ca.pem").rename(place.directory / "old-ca.pem")
    (place.directory / "ca.pem").write_bytes((place.directory / "wrong-ca.pem").read_bytes())
    place.reload()
    with place.agent(ca="old-ca", token="another-token-of-this-host") as third:
        until(lambda: "UnknownIssuer" in place.log("controller.log"))
        assert ACCEPTED not in third()
        for kind in ("pem", "key"):
            (place.directory / f"good.{kind}").write_bytes((place.directory / f"stranger.{kind}").read_bytes())
        until(lambda: ACCEPTED in third())


def test_a_client_without_tls_or_with_half_a_handshake_disturbs_no_other(place: Place) -> None:
    def connect() -> socket.socket:
        return system.inside(
            place.namespace, lambda: socket.create_connection((CONTROLLER, PORT), PATIENCE_S, (OTHER, 0))
        )

    plain, silent = connect(), connect()
    with plain, silent:
        plain.sendall(b'{"hello":{"version":1,"hosts":["10.0.1.1"]}}\n')
        context = ssl.create_default_context(cafile=str(place.directory / "ca.pem"))
        with place.agent() as log:
            until(lambda: ACCEPTED in log())
            until(lambda: "TLS handshake failed" in place.log("controller.log"))
            bare = connect()
            wrapped = context.wrap_socket(bare, server_hostname=CONTROLLER)
            with wrapped, pytest.raises(ssl.SSLError):
                # This client has no certificate.
                wrapped.settimeout(PATIENCE_S)
                wrapped.sendall(b'{"hello":{"version":1,"hosts":["10.0.1.1"]}}\n')
                wrapped.recv(100)
            until(lambda: "did not end in time" in place.log("controller.log"))
            assert "no session" not in log()
