"""Groups of switches under Pathloom's controller: which links their flows take."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from live import K4, Live
from pathloom.lab import system
from pathloom.lab.status import link_counters
from support import PATIENCE_S, figures

CONNECTIONS = 64
DATA_BYTES = 10_000


def sent_to_cores(live: Live) -> dict[str, int]:
    """Returns the bytes that the aggregation switches of the first pod have sent, by core switch."""
    counters = link_counters(live.blueprint)
    names = {switch.node: switch.name for switch in live.blueprint.switches}
    sent: dict[str, int] = {}
    for port in live.blueprint.switch_ports:
        source, target = (names.get(live.links[end][port.link], "") for end in ("source", "target"))
        if source.startswith("a0_") and target.startswith("c"):
            sent[target] = sent.get(target, 0) + counters[port.interface][0]
    return sent


def test_connections_between_two_pods_take_every_core(name: str) -> None:
    """Every Open vSwitch hashes alike. Two tiers must not decide by the same bits of the hash."""
    live = Live(name, K4, "ecmp")
    with ExitStack() as opened:
        opened.callback(live.end)
        live.launch()
        source, target = (next(one for one in live.blueprint.hosts if one.name == host) for host in ("h0", "h15"))
        place = (target.ports[0].address, 7000)
        server = opened.enter_context(system.inside(target.namespace, lambda: socket.create_server(("", 7000))))
        before = sent_to_cores(live)
        assert len(before) == 4
        for _ in range(CONNECTIONS):
            line = system.inside(source.namespace, lambda: socket.create_connection(place, PATIENCE_S))
            opened.enter_context(line)
            line.sendall(bytes(DATA_BYTES))
            answered = opened.enter_context(server.accept()[0])
            answered.settimeout(PATIENCE_S)
            assert len(opened.enter_context(answered.makefile("rb")).read(DATA_BYTES)) == DATA_BYTES
        carried = {core: sent - before[core] for core, sent in sent_to_cores(live).items()}
        used = [core for core, sent in carried.items() if sent > DATA_BYTES]
        figures("cores that 64 connections between two pods take", used=f"{len(used)} of 4", bytes=carried)
        assert len(used) == 4
