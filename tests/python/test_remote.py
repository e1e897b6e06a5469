"""`pathloom controller status` and similar commands, with a real controller on the loopback interface."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pathloom._core import PathloomError
from pathloom.cli import run
from pathloom.errors import ToolError
from pathloom.native import program
from pathloom.remote import Controller, find_token, make_token
from pathloom.streams.paths import ControllerAddress, Paths

Ask = Callable[..., tuple[int, str, str]]


PATIENCE_S = 60.0
_PORT = re.compile(r"the API listens.*?127\.0\.0\.1:(\d+)")
_COLOURS = re.compile(r"\x1b\[\d*m")


class Running:
    """A controller without switches. The kernel chooses the port of its API, and its log names it."""

    def __init__(self, place: Path) -> None:
        self.place, self.tokens = place, place / "tokens"
        make_token("looker", "read", self.tokens)
        make_token("doer", "operate", self.tokens)
        (place / "controller.toml").write_text(
            'fabric = { spec = "fat-tree:k=4,rate=10Mbps" }\n'
            f'listen = {{ unix = "{place}/openflow", address = "127.0.0.1:0" }}\n'
            f'discovery = {{ links = "off" }}\n[api]\naddress = "127.0.0.1:0"\ntokens = "tokens"\n'
        )
        command = [program(), "--config", str(place / "controller.toml")]
        with (place / "log").open("w") as log:
            self.process = subprocess.Popen(command, stderr=log)
        self.url = f"http://127.0.0.1:{self._port()}"
        Controller(self.url, find_token(self.tokens)).ask("GET", "/v1/state")

    def _port(self) -> int:
        end = time.monotonic() + PATIENCE_S
        while (found := _PORT.search(_COLOURS.sub("", log := (self.place / "log").read_text()))) is None:
            assert time.monotonic() < end and self.process.poll() is None, log
            time.sleep(0.05)
        return int(found[1])

    def await_drains(self) -> None:
        """Waits until the controller takes something out of service, although no switch has had a session."""
        doer, end = Controller(self.url, find_token(self.tokens)), time.monotonic() + PATIENCE_S
        while True:
            try:
                doer.ask("POST", "/v1/links/e0_0:3/drain")
                break
            except PathloomError as problem:
                assert "has had no session yet" in str(problem) and time.monotonic() < end, problem
                time.sleep(0.2)
        doer.ask("POST", "/v1/links/e0_0:3/undrain")

    def end(self) -> None:
        """Ends the controller by SIGTERM, as an operator does."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("controller")
    one = Running(place)
    try:
        yield one
    finally:
        one.end()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def ask(running: Running, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("PATHLOOM_URL", running.url)
    monkeypatch.setenv("PATHLOOM_TOKEN", find_token(running.tokens))

    def asked(*words: str) -> tuple[int, str, str]:
        code = run(["controller", *words])
        out, err = capfd.readouterr()
        return code, out, err

    return asked


def test_commands_show_the_state_of_the_controller(ask: Ask) -> None:
    code, out, _ = ask("status")
    assert code == 0 and "ecmp is in charge of fat-tree:k=4" in out and "0 of 20 connected" in out
    code, out, _ = ask("switches")
    assert code == 0 and len(out.splitlines()) == 21 and "not connected" in out
    code, out, _ = ask("links", "--json", "-")
    assert code == 0 and len(json.loads(out)["links"]) == 96
    code, out, _ = ask("flows")
    assert code == 0 and "five-tuple" in out


def test_commands_change_the_state_of_the_controller(ask: Ask, running: Running) -> None:
    link = "e0_0:3"
    running.await_drains()
    code, out, err = ask("drain", link)
    assert (code, out.startswith(f"{link}: drain")) == (0, True), err
    assert "out of service" in ask("status")[1] and "31 up, 0 down, 1 out" in ask("status")[1]
    code, _, err = ask("drain", link)
    assert code == 2 and "out of service already" in err
    assert ask("resync")[:2] == (0, "all switches: 0 connected, being read\n")
    assert ask("resync", "e0_0")[:2] == (0, "e0_0: 0 connected, being read\n")
    assert ask("undrain", link)[:2] == (0, f"{link}: up\n")
    assert ask("scheme", "ofpt:sizes=announced")[:2] == (0, "ofpt:sizes=announced is in charge\n")
    assert ask("announce", "10.0.0.1:4000,10.0.7.1:80,tcp", "--size-bytes", "1000000")[0] == 0
    code, out, _ = ask("dry-run", "hedera")
    assert code == 0 and "would move 0 of 0 flows of ofpt:sizes=announced" in out
    assert ask("fall-back")[:2] == (0, "ecmp is in charge\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["why", "123"], "no flow `123` is known"),
        (["why", "x"], "SRC:PORT,DST:PORT"),
        (["drain", "e9_9"], "no switch `e9_9`"),
        (["resync", "e9_9"], "no switch `e9_9`"),
        (["drain", "e0_0"], "hosts are connected to e0_0"),
        (["scheme", "ecpm"], "ecmp"),
        (["announce", "x"], "expected SRC:PORT"),
        (["announce", "9.9.9.9:1,10.0.7.1:2"], "9.9.9.9"),
        (["status", "--url", "ftp://x"], "expected http://HOST:PORT"),
        (["status", "--token-file", "/missing"], "/missing"),
        (["status", "--jsn"], "--jsn"),
        (["token", "two words"], "expected one word"),
        (["token", "x", "--role", "root"], "read or operate"),
    ],
)
def test_bad_input_is_one_line(ask: Ask, words: list[str], told: str) -> None:
    code, out, err = ask(*words)
    assert (code, out) == (2, "") and told in err and len(err.strip().splitlines()) == 1, err


class Answers:
    """A server that gives each request the same answer, with exceptions, and notes the requests."""

    def __init__(self, status: int, body: object, own: Mapping[str, object] | None = None, **headers: str) -> None:
        """`own` has the answers to requests for some paths, with the status 200.

        `headers` are sent with other answers. `Location` gets the path of the request.
        """
        self.asked: list[tuple[str, str, str | None]] = []
        asked, other, exceptions = self.asked, json.dumps(body).encode(), own or {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                asked.append((self.command, self.path, self.headers["Authorization"]))
                is_other = self.path not in exceptions
                content = other if is_other else json.dumps(exceptions[self.path]).encode()
                self.send_response(status if is_other else 200)
                for name, value in headers.items() if is_other else ():
                    self.send_header(name.replace("_", "-"), value + (self.path if name == "Location" else ""))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.place}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def servers() -> Iterator[Callable[..., Answers]]:
    begun: list[Answers] = []

    def begin(*words: Any, **more: Any) -> Answers:
        begun.append(Answers(*words, **more))
        return begun[-1]

    yield begin
    for server in begun:
        server.end()


def test_the_client_of_a_list_goes_to_the_leader(servers: Callable[..., Answers]) -> None:
    gone = servers(200, {})
    gone.end()
    leader = servers(200, {"by": "leader"})
    moved = {"status": 307, "detail": "this controller follows c1"}
    follower = servers(307, moved, Location=leader.url)
    without = servers(503, {"status": 503, "detail": "no controller is elected now"})
    client = Controller(f"{gone.url},{follower.url}", "secret")
    for method in ("POST", "GET", "GET"):
        assert client.ask(method, "/v1/x?y=1") == {"by": "leader"}
    assert leader.asked == [(method, "/v1/x?y=1", "Bearer secret") for method in ("POST", "GET", "GET")]
    assert len(follower.asked) == 1, "the client remembers the leader"
    # Reads go on to the next controller if there is no leader for the first one.
    assert Controller(f"{without.url},{leader.url}", "secret").ask("GET", "/v1/x") == {"by": "leader"}
    # A change goes on only if the first controller has not carried it out.
    with pytest.raises(PathloomError, match="no controller is elected now"):
        Controller(f"{without.url},{leader.url}", "secret").ask("POST", "/v1/x")
    not_done = servers(503, {"status": 503, "detail": "no controller is elected now"}, Retry_After="1")
    assert Controller(f"{not_done.url},{leader.url}", "secret").ask("POST", "/v1/x") == {"by": "leader"}
    with pytest.raises(PathloomError, match="no controller is elected now"):
        Controller(f"{not_done.url},{not_done.url}", "secret").ask("POST", "/v1/x")
    # What the leader says about itself counts, not that the others name it.
    doubtful = servers(503, {"status": 503, "detail": "etcd does not confirm it"}, Retry_After="1")
    names_it = servers(307, moved, Location=doubtful.url)
    for urls in (f"{doubtful.url},{names_it.url}", f"{names_it.url},{doubtful.url},{names_it.url}"):
        with pytest.raises(PathloomError, match="etcd does not confirm it"):
            Controller(urls, "secret").ask("POST", "/v1/x")
    with pytest.raises(ToolError, match="no HTTP answer"):
        Controller(gone.url, "secret").ask("GET", "/v1/x")


def test_the_status_without_a_leader_is_what_a_follower_knows(servers: Callable[..., Answers], ask: Ask) -> None:
    card = {"name": "c2", "api": None, "version": "0.3.0", "lag_s": 9.06}
    left = {"election": 812, "from": "c0", "to": "c1", "at_s": 0.0, "cause": "c0 was told to stop", "count": 2}
    known = {"name": "c2", "leader": None, "election": None, "leads_since_s": None, "confirmed": False, "age_s": 0.81}
    cluster = {**known, "members": [card], "hand_over": left, "stored_before_s": None}
    refusal = {"status": 503, "detail": "no controller is elected now", "way_out": "ask again in a moment"}
    follower, gone = servers(503, refusal, own={"/v1/cluster": cluster}), servers(200, {})
    gone.end()
    urls = f"{gone.url},{follower.url}"
    code, out, err = ask("status", "--url", urls)
    assert code == 1
    assert out.splitlines()[:2] == [
        "leader    none, as c2 knows since 0.8 s",
        "members   told etcd about themselves: c2 9.1 s ago",
    ]
    assert "c0 was told to stop" in out
    assert err == "pathloom: the controller says: no controller is elected now; ask again in a moment\n"
    code, out, _ = ask("status", "--url", urls, "--json", "-")
    assert (code, json.loads(out)) == (1, {"schema": 1, "state": None, "cluster": cluster})
    # A controller that is alone, or none at all, is an error as before.
    code, out, err = ask("status", "--url", gone.url)
    assert (code, out) == (1, "") and "no HTTP answer" in err


def test_a_leader_that_does_not_answer_is_named(servers: Callable[..., Answers]) -> None:
    follower = servers(307, {"status": 307, "detail": "it follows another one"}, Location="http://127.0.0.1:1")
    with pytest.raises(ToolError, match=r"127\.0\.0\.1:1: no HTTP answer"):
        Controller(follower.url, "secret").ask("GET", "/v1/x")


def test_applications_go_to_the_leader_of_a_list(servers: Callable[..., Answers]) -> None:
    gone = servers(200, {})
    gone.end()
    leader = servers(200, {"id": 7, "paths": []})
    follower = servers(307, {"status": 307, "detail": "this controller follows c1"}, Location=leader.url)
    paths = Paths(ControllerAddress.parse(f"{gone.place},{follower.place}"), None)
    try:
        for _ in range(2):
            assert paths.assign("10.0.0.1", "10.0.7.1", 2)["id"] == 7
    finally:
        paths.close()
    assert [path for _, path, _ in leader.asked] == ["/v1/assignments"] * 2
    assert len(follower.asked) == 1, "the connection to the leader stays"


def test_a_twin_is_forked_asked_and_applied(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATHLOOM_TOKEN", running.tokens.read_text().split()[2])
    doer = Controller(running.url, find_token(running.tokens))
    running.await_drains()
    doer.ask("POST", "/v1/switches/c1/drain")
    try:
        assert run(["twin", "fork", "--controller", running.url, "--learn", "10ms", "--names"]) == 0
        fork = json.loads(Path("now.plf").read_text())
        failed = [edge for edge in fork["fabric"]["edges"] if edge.get("failed")]
        assert len(failed) == 4 and all("c1" in (edge["source"], edge["target"]) for edge in failed)
        assert (fork["scheme"], fork["flows"]["src"]) == ("ecmp", [])
        assert "0 flows under way on 16 hosts under ecmp, 4 cables out of service" in capfd.readouterr()[0]
        # Records of flows give the fork some traffic.
        rows = [f"{at / 100},h{at % 16},h{(at + 5) % 16},20000,{at / 100 + 0.001}" for at in range(100)]
        Path("flows.csv").write_text("start_s,src,dst,bytes,end_s\n" + "\n".join(rows))
        options = ["--records", "flows.csv", "--fabric", "fat-tree:k=4,rate=10Mbps", "--at", "900ms"]
        assert run(["twin", "fork", *options]) == 0
        asked = ["twin", "ask", "now.plf", "drain:c0", "scheme:spt", "--runs", "2", "--duration", "50ms"]
        assert run([*asked, "--ledger", "twin.sqlite"]) == 0
        applied = ["twin", "apply", "1", "drain:c0", "--url", running.url, "--do", "--token-file", str(running.tokens)]
        # With c1 out of service, two of the four paths between pods are left.
        assert run([*applied, "--least-paths", "3"]) == 2 and not doer.ask("GET", "/v1/switches/c0")["drained"]
        assert run(applied) == 0 and doer.ask("GET", "/v1/switches/c0")["drained"]
        assert run([*applied, "--back"]) == 0 and not doer.ask("GET", "/v1/switches/c0")["drained"]
    finally:
        doer.ask("POST", "/v1/switches/c1/undrain")


def test_a_token_limits_what_its_user_may_do(running: Running) -> None:
    reader = Controller(running.url, running.tokens.read_text().split()[2])
    assert reader.ask("GET", "/v1/state")["switches"] == 20
    with pytest.raises(PathloomError, match="may only read"):
        reader.ask("POST", "/v1/scheme/fall-back")
    with pytest.raises(PathloomError, match="no token like this"):
        Controller(running.url, "x" * 40).ask("GET", "/v1/state")
    refused = r"no HTTP answer: connection refused; check that the controller runs"
    with socket.socket() as nobody, pytest.raises(ToolError, match=refused):
        nobody.bind(("127.0.0.1", 0))
        Controller(f"http://127.0.0.1:{nobody.getsockname()[1]}", "x").ask("GET", "/v1/state")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "no HTTP answer: "),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no HTTP answer: SSH-2.0-OpenSSH_9.6"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "no HTTP answer: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "the answer is not JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe\x00", "the answer is not JSON"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "the controller answered with 502 Bad Gateway"),
        (b"HTTP/1.1 500 Oops\r\n\r\n[1]", "the controller answered with 500 Oops"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 99\r\n\r\n{", "the controller answered with 500 Oops"),
    ],
)
def test_another_server_at_the_address_is_named_in_one_line(answer: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(1 << 16)
                caller.sendall(answer)

        responder = threading.Thread(target=respond)
        responder.start()
        with pytest.raises((ToolError, PathloomError)) as caught:
            Controller(f"http://127.0.0.1:{server.getsockname()[1]}", "x").ask("GET", "/v1/state")
        responder.join(PATIENCE_S)
    assert told in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("url", "token"), [("http://127.0.0.1:1", "secret\nX: y"), ("http://a..b:1", "secret")])
def test_an_address_or_a_token_that_http_cannot_carry_is_named(url: str, token: str) -> None:
    with pytest.raises(PathloomError, match="characters that HTTP does not allow") as caught:
        Controller(url, token).ask("GET", "/v1/state")
    assert "secret" not in str(caught.value)


def test_tokens_go_into_a_file_that_nobody_else_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tokens"
    first = make_token("a", "read", file)
    second = make_token("b", "operate", file)
    assert file.read_text() == f"{first}\n{second}\n" and first != second
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find_token(file) == second.split()[2]
    with pytest.raises(PathloomError, match="`a` has a token"):
        make_token("a", "read", file)
    file.chmod(0o644)
    with pytest.raises(PathloomError, match="chmod 600"):
        make_token("c", "read", file)
    monkeypatch.delenv("PATHLOOM_TOKEN", raising=False)
    with pytest.raises(PathloomError, match="PATHLOOM_TOKEN"):
        find_token(None)
