"""`pathloom with-paths --map`: source ports chosen from a map, by the library and by policy."""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from fake_clock import FakeClock
from pathloom._core import PathloomError
from pathloom.cli.with_paths import port_broker
from pathloom.streams.port_broker import PortBroker
from pathloom.streams.source_ports import (
    MOST_OFFERED,
    PENDING_S,
    PORT_POLICIES,
    Connection,
    Ends,
    MapFiles,
    SourcePorts,
    open_connections,
    read_map,
)
from pathloom.streams.with_paths import find_library, run

ENDS = Ends("10.0.0.1", "10.0.7.2", 5201)
OTHER = Ends("10.0.0.1", "10.0.6.2", 5201)
FIRST, SECOND = (1, 33, 88, 4), (1, 35, 90, 4)
MAP = {40000: FIRST, 40001: FIRST, 40002: FIRST, 40003: SECOND, 40004: FIRST, 40005: SECOND}


def taken(ports: SourcePorts, ends: Ends = ENDS) -> tuple[int, ...]:
    """Opens a connection from the first port that is offered. Returns its path."""
    (first, *_) = ports.choose(ends)
    assert ports.took(Connection(ends, first))
    return ports.maps[ends][first]


def content(ends: Ends, paths: Mapping[int, tuple[int, ...]], protocol: str = "tcp") -> dict[str, object]:
    """What `pathloom lab paths --json` writes."""
    rows = [{"links": list(links), "nodes": [], "source_ports": [port]} for port, links in paths.items()]
    flow = {"source": ends.source, "target": ends.target, "port": ends.port, "protocol": protocol, "ipv6": False}
    return {"schema": 1, "flow": flow, "ends": {"source": ends.source, "target": ends.target}, "paths": rows}


def test_spread_takes_paths_in_turn_whatever_ends() -> None:
    ports = SourcePorts({ENDS: MAP}, "spread", connections=lambda: pytest.fail("spread needs no list"))
    assert Counter(taken(ports) for _ in range(4)) == {FIRST: 2, SECOND: 2}


def test_least_used_takes_the_path_whose_busiest_link_has_the_fewest_open_connections() -> None:
    shared = {40000: (1, 33, 92, 6), 40001: (1, 35, 94, 6)}
    carried = [Connection(ENDS, 40000), Connection(ENDS, 40001), Connection(ENDS, 40003)]
    clock = FakeClock()
    ports = SourcePorts({ENDS: MAP, OTHER: shared}, "least-used", lambda: carried, clock)
    # Two connections of another pair are on link 33, one is on link 35.
    assert taken(ports, OTHER) == (1, 35, 94, 6)
    assert taken(ports, ENDS)[1] in (33, 35)
    carried[:] = [Connection(ENDS, 40003), Connection(ENDS, 40005)]
    clock.sleep(PENDING_S)
    assert taken(ports, OTHER) == (1, 33, 92, 6)


def test_a_port_is_offered_to_one_connection_until_it_is_taken_or_time_passes() -> None:
    clock = FakeClock()
    ports = SourcePorts({ENDS: MAP}, "spread", clock=clock)
    first = ports.choose(ENDS)
    assert sorted(first) == sorted(MAP)
    assert ports.choose(ENDS) == []
    clock.sleep(PENDING_S)
    assert ports.choose(ENDS) == first, "a connection that was never opened counts no more"
    # Another port of the offer could be bound: the others are free again, and its path counts.
    assert ports.took(Connection(ENDS, 40003))
    assert MAP[ports.choose(ENDS)[0]] == FIRST
    assert not ports.took(Connection(ENDS, 1)), "the kernel chose it"
    assert (ports.chosen, ports.other) == (1, 1)
    assert len(SourcePorts({ENDS: dict.fromkeys(range(1, 99), FIRST)}).choose(ENDS)) == MOST_OFFERED


def test_programs_bind_the_ports_that_are_offered() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
    with socket.create_server((address, 0)) as door, socket.socket() as busy:
        to = door.getsockname()[1]
        free = free_ports(address, 4)
        # Another socket has the first port of the map.
        busy.bind((address, free[0]))
        ends = Ends(address, address, to)
        paths = dict(zip(free, (FIRST, FIRST, SECOND, SECOND), strict=True))
        said: list[str] = []
        broker = PortBroker(SourcePorts({ends: paths}), said.append)
        code = f"""
import socket, sys
for port in map(int, sys.argv[1:]):
    with socket.socket() as line:
        line.connect_ex(({address!r}, port))
"""
        command = [sys.executable, "-c", code, str(to), str(to), "9"]
        assert run(command, find_library(), broker, print) == 0
        peers = [peer_of(door) for _ in range(2)]
    assert {paths[port] for port in peers} == {FIRST, SECOND}
    assert free[0] not in peers
    assert (broker.claimed, broker.without_path) == (2, 1)
    assert len(said) == 1 and "no map has connections" in said[0] and "port 9;" in said[0], said


def peer_of(door: socket.socket) -> int:
    """Accepts and closes a connection. Returns its source port."""
    door.settimeout(60)
    one, peer = door.accept()
    one.close()
    return int(peer[1])


def free_ports(address: str, count: int) -> list[int]:
    """Ports that nobody has, in ascending order."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((address, 0))
        return sorted(one.getsockname()[1] for one in sockets)


def test_maps_are_read_and_other_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    file.write_text(json.dumps(content(ENDS, MAP)), encoding="utf-8")
    assert read_map(file) == (ENDS, MAP)
    wrong = content(ENDS, {0: FIRST})
    for text, said in (
        (json.dumps(content(ENDS, MAP, "udp")), "UDP"),
        (json.dumps(wrong), "no map of source ports"),
        ("[]", "no map of source ports"),
        ("{", "is not JSON"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(PathloomError, match=said):
            read_map(file)
    with pytest.raises(PathloomError, match="no such file"):
        read_map(tmp_path / "none")
    with pytest.raises(PathloomError, match="spread, least-used"):
        port_broker([], "optimal", print)


def test_open_connections_are_read_from_the_kernel(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as line:
        one = Connection(Ends("127.0.0.1", "127.0.0.1", door.getsockname()[1]), line.getsockname()[1])
        assert one in set(open_connections())
    assert one not in set(open_connections())
    assert list(open_connections(tmp_path)) == []


def test_a_map_that_changes_is_read_again(tmp_path: Path) -> None:
    file, partial = tmp_path / "map.json", tmp_path / "map.partial"

    def write(text: str) -> None:
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)

    write(json.dumps(content(ENDS, {40000: FIRST})))
    maps = MapFiles([file])
    ports = SourcePorts(maps.read(), renew=maps.renew)
    assert ports.choose(ENDS) == [40000]
    write(json.dumps(content(ENDS, {40001: SECOND})))
    assert ports.choose(ENDS) == [40001]
    assert ports.took(Connection(ENDS, 40000)), "it was offered before"
    # A file that cannot be read leaves the map as it was.
    write("{")
    file.unlink()
    assert ports.choose(ENDS) == []
    assert ports.took(Connection(ENDS, 40001))
    write(json.dumps(content(OTHER, {40002: SECOND})))
    assert ports.choose(OTHER) == [40002]
    assert ports.choose(ENDS) == []


def test_hosts_without_connections_begin_on_different_paths() -> None:
    for policy in PORT_POLICIES:
        first = {MAP[SourcePorts({ENDS: MAP}, policy, lambda: (), seed=seed).choose(ENDS)[0]] for seed in range(16)}
        assert first == {FIRST, SECOND}
