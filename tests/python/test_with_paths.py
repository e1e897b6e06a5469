"""`pathloom with-paths`: answers to the library, and requests to the controller."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from assigning import Controller
from fake_clock import FakeClock
from pathloom._core import PathloomError
from pathloom.cli.path_options import ratio_of
from pathloom.streams.opened import Expected
from pathloom.streams.paths import ControllerAddress
from pathloom.streams.policies import next_path
from pathloom.streams.with_paths import PAUSE_S, Broker, PathRequest, Ports, find_library, no_effect, run

PROGRAM = """
import socket, sys
for _ in range(int(sys.argv[2])):
    with socket.socket() as line:
        try:
            line.connect(("{address}", int(sys.argv[1])))
        except OSError:
            pass
        print(*line.getsockname())
"""


@pytest.fixture(scope="module")
def address() -> str:
    """An address of this machine outside the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.fail("this machine has no route to anywhere; the test needs an address of its own")
        return str(probe.getsockname()[0])


def accepted(door: socket.socket, count: int) -> list[int]:
    """Accepts and closes connections. Returns their source ports."""
    door.settimeout(60)
    ports = []
    for _ in range(count):
        one, peer = door.accept()
        one.close()
        ports.append(peer[1])
    return ports


def test_each_connection_is_claimed_before_it_is_opened(controller: Controller, address: str) -> None:
    broker = Broker(controller.place, PathRequest(2), lambda _text: None)
    with socket.create_server((address, 0)) as door:
        port = door.getsockname()[1]
        code = run(
            [sys.executable, "-c", f"{PROGRAM.format(address=address)}\nsys.exit(7)", str(port), "3"],
            find_library(),
            broker,
            print,
        )
        ports = accepted(door, 3)
    assert code == 7
    # The order is the same: a claim is answered before the first packet leaves.
    assert [claim["src_port"] for claim in controller.claims()] == ports
    assert {(claim["src"], claim["dst"]) for claim in controller.claims()} == {(address, address)}
    assert {claim["opens_to"] for claim in controller.claims()} == {port}
    assert controller.users == {}, "released when the program has ended"
    assert (broker.claimed, broker.without_path) == (3, 0)


def test_other_sockets_are_ignored(controller: Controller, tmp_path: Path) -> None:
    code = f"""
import socket
unix = socket.socket(socket.AF_UNIX)
unix.bind({str(tmp_path / "x")!r})
unix.listen()
socket.socket(socket.AF_UNIX).connect({str(tmp_path / "x")!r})
six = socket.create_server(("::1", 0), family=socket.AF_INET6)
socket.create_connection(("::1", six.getsockname()[1]))
near = socket.create_server(("127.0.0.1", 0))
socket.create_connection(("127.0.0.1", near.getsockname()[1]))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
"""
    assert (
        run([sys.executable, "-c", code], find_library(), Broker(controller.place, PathRequest(2), print), print) == 0
    )
    assert controller.calls == []


def test_mapped_addresses_and_fast_open_are_served_and_others_are_named(controller: Controller, address: str) -> None:
    code = f"""
import socket, sys
place = ("{address}", int(sys.argv[1]))
six = socket.socket(socket.AF_INET6)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
six.connect(("::ffff:" + place[0], place[1]))
socket.socket().sendto(b"x", socket.MSG_FASTOPEN, place)
socket.socket().sendmsg([b"x"], [], socket.MSG_FASTOPEN, place)
# No host has these addresses (RFC 3849).
for other in (1, 2):
    far = socket.socket(socket.AF_INET6)
    far.setblocking(False)
    far.connect_ex((f"2001:db8::{{other}}", 9))
"""
    said: list[str] = []
    broker = Broker(controller.place, PathRequest(2), said.append)
    with socket.create_server((address, 0)) as door:
        assert run([sys.executable, "-c", code, str(door.getsockname()[1])], find_library(), broker, print) == 0
        ports = accepted(door, 3)
    assert [claim["src_port"] for claim in controller.claims()] == ports
    assert {(claim["src"], claim["dst"]) for claim in controller.claims()} == {(address, address)}
    assert (broker.claimed, broker.without_path) == (3, 2)
    assert len(said) == 1
    assert "IPv6" in said[0]
    assert "[2001:db8::1]:9" in said[0]


def test_threads_children_and_sockets_that_do_not_block_are_served(controller: Controller, address: str) -> None:
    code = f"""
import errno, os, select, socket, subprocess, sys, threading
place = ("{address}", int(sys.argv[1]))
def quick():
    line = socket.socket()
    line.setblocking(False)
    assert line.connect_ex(place) in (0, errno.EINPROGRESS)
    select.select([], [line], [], 10)
    # Programs call it again to learn the state of the connection.
    assert line.connect_ex(place) in (0, errno.EISCONN)
threads = [threading.Thread(target=quick) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
if os.fork() == 0:
    quick()
    os._exit(0)
os.wait()
bound = socket.socket()
bound.bind(("{address}", 0))
bound.connect(place)
subprocess.run([sys.executable, "-c", "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])))",
                place[0], str(place[1])], check=True)
"""
    broker = Broker(controller.place, PathRequest(2), print)
    with socket.create_server((address, 0), backlog=100) as door:
        port = door.getsockname()[1]
        assert run([sys.executable, "-c", code, str(port)], find_library(), broker, print) == 0
        peers = accepted(door, 11)
    assert sorted(claim["src_port"] for claim in controller.claims()) == sorted(peers)


def test_without_a_controller_the_program_runs_and_one_line_is_printed(address: str) -> None:
    said: list[str] = []
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        broker = Broker(ControllerAddress("127.0.0.1", nobody.getsockname()[1], "token"), PathRequest(2), said.append)
        with socket.create_server((address, 0)) as door:
            command = [sys.executable, "-c", PROGRAM.format(address=address), str(door.getsockname()[1]), "20"]
            assert run(command, find_library(), broker, said.append) == 0
    assert len(said) == 1 and "does not answer" in said[0] and "default routes" in said[0], said
    assert (broker.claimed, broker.without_path) == (0, 20)


def test_a_controller_that_refuses_is_asked_again_after_a_pause(controller: Controller) -> None:
    clock = FakeClock()
    broker = Broker(controller.place, PathRequest(2), lambda _text: None, clock)
    controller.refusal = (503, "the fabric is not known yet")

    def claims(port: int) -> bool:
        return broker.claim("10.0.0.1", "10.0.1.1", Ports(port))

    assert not any(claims(port) for port in range(5001, 5021))
    assert len(controller.calls) == 1, "one request for 20 connections"
    controller.refusal = None
    clock.sleep(PAUSE_S - 0.001)
    assert not claims(5021)
    assert len(controller.calls) == 1
    clock.sleep(0.001)
    assert claims(5022)
    assert [claim["src_port"] for claim in controller.claims()] == [5022]
    broker.release()


def test_an_expired_assignment_is_requested_again_and_a_refusal_is_reported_once(controller: Controller) -> None:
    said: list[str] = []
    broker = Broker(controller.place, PathRequest(2), said.append)
    assert broker.claim("10.0.0.1", "10.0.1.1", Ports(5001))
    controller.users.clear()
    controller.users[99] = Counter()
    assert broker.claim("10.0.0.1", "10.0.1.1", Ports(5002))
    assert [claim["src_port"] for claim in controller.claims()] == [5001, 5002, 5002]
    broker.release()
    controller.refusal = (404, "no host of the fabric has the address 10.9.9.9")
    assert not any(broker.claim("10.0.0.1", "10.9.9.9", Ports(port)) for port in (5003, 5004))
    assert len(said) == 1 and "10.9.9.9" in said[0], said
    broker.release()


def test_connections_are_close_to_the_ratio_of_a_policy(controller: Controller) -> None:
    broker = Broker(controller.place, PathRequest(2, ratio=lambda _rows: (1.0, 3.0)), print)
    assert all(broker.claim("10.0.0.1", "10.0.1.1", Ports(port)) for port in range(5000, 5008))
    assert Counter(claim["path"] for claim in controller.claims()) == {0: 2, 1: 6}
    broker.release()
    assert next_path((), (1, 2)) is None
    assert next_path((1.0,), (5, 0)) == 0


def test_programs_on_which_it_has_no_effect_are_named(tmp_path: Path) -> None:
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    static, script = tmp_path / "static", tmp_path / "script"
    subprocess.run(["cc", "-static", "-o", static, source], check=True)
    script.write_text(f"#!{static}\n", encoding="ascii")
    script.chmod(0o755)
    assert no_effect(sys.executable) is None
    assert no_effect("no-such-program") is None
    for one in (static, script):
        assert no_effect(str(one)) == "is linked statically"


def test_a_connection_that_library_and_kernel_report_is_served_once() -> None:
    expected = Expected()
    for _ in range(2):
        expected.add("none", "ipv6", "[2001:db8::1]:9")
    expected.add("open", "10.0.0.1:5001", "10.0.1.1:80")
    assert expected.take("open", "10.0.0.1:5001", "10.0.1.1:80")
    assert not expected.take("open", "10.0.0.1:5001", "10.0.1.1:80")
    assert [expected.take("none", "ipv6", "[2001:db8::1]:9") for _ in range(3)] == [True, True, False]


def test_what_the_kernel_never_reports_again_does_not_stay() -> None:
    expected = Expected()
    for port in range(70_000):
        expected.add("open", f"10.0.0.1:{port}", "10.0.1.1:80")
    assert not expected.take("open", "10.0.0.1:0", "10.0.1.1:80")
    assert expected.take("open", "10.0.0.1:69999", "10.0.1.1:80")


def test_the_place_of_a_controller_must_be_an_address_and_a_port() -> None:
    assert ControllerAddress.parse("[::1]:8080") == ControllerAddress("::1", 8080)
    for wrong in ("", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:70000", "http://10.0.0.1:80", ":80"):
        with pytest.raises(PathloomError, match="expected ADDRESS:PORT"):
            ControllerAddress.parse(wrong)


def test_the_optimal_policy_uses_the_controllers_measurements(controller: Controller) -> None:
    # n = a B R: 0.001495 times 50 and 26 is 2, times 100 and 120 is 18.
    broker = Broker(controller.place, PathRequest(2, ratio=ratio_of("optimal", [], 0.001495)), print)
    assert all(broker.claim("10.0.0.1", "10.0.1.1", Ports(port)) for port in range(5000, 5020))
    assert Counter(claim["path"] for claim in controller.claims()) == {0: 2, 1: 18}
    broker.release()
    for policy, paths, a in (("optimal", [], None), ("max-flow", [], 1.0), ("best", [], 1.0), ("optimal", ["x"], 1.0)):
        with pytest.raises(PathloomError):
            ratio_of(policy, paths, a)
