"""Probes of cables at low cost, cables that fail silently, and cables at other ports than configured."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from api import PERIOD_S, ask, with_api
from live import K4, QUIET, Live, alive, permutation, until
from pathloom.lab import system
from pathloom.lab.links import switch_shape_lines
from support import figures, loop_share, measured

K8 = "fat-tree:k=8,rate=10Mbps"


def forwarding_s(live: Live) -> float:
    """Returns the processor time that the daemons of the switches have used."""
    ticks = 0
    for daemon in live.switches.daemons:
        fields = Path(f"/proc/{daemon.process()}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.measure
def test_probes_take_little_of_the_switches_time(name: str) -> None:
    with alive(name, K8, "ecmp", arp="proxy") as live:
        live.await_log("every cable is as configured")
        time.sleep(5)
        before_s, started = forwarding_s(live), time.monotonic()
        time.sleep(10)
        share = (forwarding_s(live) - before_s) / (time.monotonic() - started)
        measured("daemons of 80 idle switches, probes and all else", "cores", share, loop_share(), "an empty loop")


def swap(live: Live, one: int, two: int) -> int:
    """Swaps the ports of two interfaces of a switch, as if their cables were swapped. Returns when."""
    ports = {port.link: port for port in live.blueprint.switch_ports}
    bridge = next(switch.bridge for switch in live.blueprint.switches if switch.node == ports[one].switch)
    daemon = live.switches.daemon_of(bridge)
    numbers = [int(daemon.vsctl(["get", "Interface", f"l{link}", "ofport"])) for link in (one, two)]
    now_ns = time.time_ns()
    daemon.vsctl(["del-port", bridge, f"l{one}", "--", "del-port", bridge, f"l{two}"])
    arguments = []
    for link, number in zip((one, two), reversed(numbers), strict=True):
        words = f"-- add-port {bridge} l{link} -- set Interface l{link} ofport_request={number}"
        arguments += words.split()
    daemon.vsctl(arguments[1:])
    # `add-port` removes queues.
    system.batch("tc", live.place_of(one), switch_shape_lines([ports[one], ports[two]], 0))
    return now_ns


def test_swapped_uplinks_are_used_and_named(name: str, tmp_path: Path) -> None:
    with alive(name, K4, QUIET, more=with_api(tmp_path)) as live:
        pairs = permutation(live, 8)
        shorts = permutation(live, 8)
        live.await_log("every cable is as configured")
        with live.probes(pairs) as probes, live.probes(shorts, dscp=0, first_port=21_000) as defaults:
            live.await_paths(pairs)
            time.sleep(3)
            one, two = uplinks(live)
            spans = []
            for swapped in (True, False):
                seen = len(live.log())
                start_ns = swap(live, one, two)
                what = "it is used as that of" if swapped else "every cable is as configured"
                live.await_log(what, 2 if swapped else 1, seen)
                loads_bps = []
                for _ in range(4):
                    time.sleep(PERIOD_S)
                    loads_bps += [row["load_bps"] or 0 for row in ask(live, "/v1/links?limit=1000")["items"]]
                cabling = ask(live, "/v1/state")["cabling"]
                assert (len(cabling["adopted"]), cabling["refused"]) == (2 if swapped else 0, [])
                metric = f'pathloom_cabling_differences{{treatment="adopted"}} {2 if swapped else 0}'
                assert metric in ask(live, "/metrics")
                figures("the highest load of a link of 10 Mbit/s, as the controller counts it", bps=max(loads_bps))
                spans.append((start_ns, time.time_ns()))
            tracks = {"flows": probes.stop(), "defaults": defaults.stop()}
        for what, all_of in tracks.items():
            outages = [track.outage_ns(*span) for span in spans for track in all_of]
            assert None not in outages, f"{what} stayed black-holed"
            out_ms = sorted(round((one or 0) / 1e6) for one in outages)
            figures(f"two swapped uplinks, and back: {what}", longest_ms=out_ms[-1], hit=sum(map(bool, out_ms)))
        assert "cabling: the cable from" in live.log()


@pytest.mark.long
def test_counters_of_another_interface_are_not_a_load(name: str, tmp_path: Path) -> None:
    # Without discovery probes, the swapped ports are not detected.
    with alive(name, K4, QUIET, more=f'links = "off"\n{with_api(tmp_path)}') as live:
        with live.probes(permutation(live, 1), rate_hz=600, payload_bytes=1200):
            time.sleep(5)
        swap(live, *uplinks(live))
        loads_bps = []
        for _ in range(4 * PERIOD_S * 5):
            time.sleep(0.2)
            loads_bps += [row["load_bps"] or 0 for row in ask(live, "/v1/links?limit=1000")["items"]]
        figures("an interface that carried 4 MB comes to another port", highest_bps=max(loads_bps))
        assert max(loads_bps) < 11e6, "no link carries more than it can"


def uplinks(live: Live) -> list[int]:
    """The links from the first host's ToR to other switches."""
    tor = live.links["target"][next(host for host in live.blueprint.hosts if host.name == "h0").ports[0].link]
    return [link for link, node in enumerate(live.links["source"]) if node == tor and link_joins(live, link)]


def link_joins(live: Live, link: int) -> bool:
    """Returns whether a link leads to another switch."""
    return live.links["target"][link] in {switch.node for switch in live.blueprint.switches}


@pytest.mark.long
def test_adopted_wiring_survives_a_restart_of_the_controller(name: str, tmp_path: Path) -> None:
    more = f'[state]\ndirectory = "{tmp_path / "state"}"'
    with alive(name, K4, QUIET, more=more) as live:
        pairs = permutation(live, 8)
        live.await_log("every cable is as configured")
        one, two = uplinks(live)
        swap(live, one, two)
        live.await_log("it is used as that of", 2)
        until(
            lambda: (
                (tmp_path / "state" / "wiring.json").exists()
                and "[]" not in (tmp_path / "state" / "wiring.json").read_text()
            ),
            "the numbers are kept",
        )
        with live.probes(pairs) as probes:
            time.sleep(5)
            before = live.state()
            live.kill()
            live.launch()
            time.sleep(3)
            tracks = probes.stop()
            assert live.state() == before
        assert [track.lost for track in tracks] == [0] * 8
