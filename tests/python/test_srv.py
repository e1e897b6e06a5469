"""Controllers by a name in the DNS, with a server of it on the loopback interface."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from pathloom._core import PathloomError
from pathloom.errors import ToolError
from pathloom.remote import Controller
from pathloom.streams.paths import ControllerAddress

RECORDS = {
    "_pathloom._tcp.fabric.test.": ["20 0 6680 c2.test.", "10 5 6680 c0.test.", "10 9 6681 c1.test."],
    "_pathloom-paths._tcp.fabric.test.": ["0 0 8080 c0.test.", "1 0 8080 c1.test."],
    "_pathloom._tcp.nothing.test.": ["0 0 0 ."],
    "_pathloom._tcp.broken.test.": [],
}


def serve(own: socket.socket) -> None:
    while True:
        wire, client = own.recvfrom(4096)
        if not wire:
            return
        asked = dns.message.from_wire(wire)
        answer = dns.message.make_response(asked)
        name = asked.question[0].name
        rows = RECORDS.get(name.to_text())
        if rows:
            answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", "SRV", rows))
        else:
            answer.set_rcode(dns.rcode.NXDOMAIN if rows is None else dns.rcode.SERVFAIL)
        own.sendto(answer.to_wire(), client)


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of the DNS, which is the only one that is asked."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=serve, args=(own,))
        thread.start()
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], own.getsockname()[1]
        monkeypatch.setattr(dns.resolver, "default_resolver", resolver)
        yield
        own.sendto(b"", own.getsockname())
        thread.join()


def test_a_name_stands_for_all_controllers_in_the_order_of_their_records() -> None:
    found = Controller("srv:fabric.test", "token").urls
    assert found == ["http://c1.test:6681", "http://c0.test:6680", "http://c2.test:6680"]
    found = Controller("srv:https://fabric.test, http://10.0.0.9:6680/", "token").urls
    assert found == ["https://c1.test:6681", "https://c0.test:6680", "https://c2.test:6680", "http://10.0.0.9:6680"]
    place = ControllerAddress.parse("srv:fabric.test")
    assert [(one.address, one.port) for one in (place, *place.others)] == [("c0.test", 8080), ("c1.test", 8080)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("srv:elsewhere.test", "the DNS has no SRV record of _pathloom._tcp.elsewhere.test"),
        ("srv:nothing.test", "_pathloom._tcp.nothing.test is not offered"),
        ("srv:ftp://fabric.test", "expected srv:NAME or srv:https://NAME"),
        ("srv:", "expected srv:NAME or srv:https://NAME"),
    ],
)
def test_a_name_without_controllers_is_named(text: str, told: str) -> None:
    with pytest.raises(PathloomError, match=told):
        Controller(text, "token")


def test_a_server_that_fails_is_named() -> None:
    with pytest.raises(ToolError, match=r"_pathloom._tcp.broken.test is not resolved"):
        Controller("srv:broken.test", "token")
