"""Rules that others delete, change or add while the sessions are up."""

from __future__ import annotations

import signal
import time

import pytest

from live import K4, QUIET, Live, alive, permutation, until
from machine import timing
from support import figures

PERIOD_S = 5
MORE = f'[reconcile]\nperiod = "{PERIOD_S}s"\n'


def ofctl(live: Live, bridge: str, verb: str, *words: str) -> str:
    """Runs `ovs-ofctl` on a bridge, as an operator would."""
    return live.switches.daemon_of(bridge).ofctl(verb, bridge, *words)


def bridges(live: Live, tier: str) -> list[str]:
    """Returns the bridges of a tier: `e`, `a` or `c`."""
    return [switch.bridge for switch in live.blueprint.switches if switch.name.startswith(tier)]


def back(live: Live, before: dict[str, dict[int, list[str]]]) -> float:
    """Waits until all rules and groups are restored. Returns how long that took."""
    start = time.monotonic()
    until(lambda: live.state() == before, "the rules as they were", 60)
    return time.monotonic() - start


@pytest.mark.parametrize("tier", ["e", "a", "c"])
def test_deleted_rules_of_a_switch_are_restored_at_once(name: str, tier: str) -> None:
    # With the longest period, rules that are restored sooner are not restored by the periodic reading.
    with alive(name, K4, QUIET, more='[reconcile]\nperiod = "30s"\n') as live:
        pairs = permutation(live, 8)
        with live.probes(pairs) as probes:
            live.await_paths(pairs)
            time.sleep(2)
            before = live.state()
            took_s = []
            for bridge in bridges(live, tier)[:2]:
                ofctl(live, bridge, "del-flows")
                took_s.append(back(live, before))
            live.await_log("the controller restored them", 2)
            tracks = probes.stop()
        lost = sum(track.lost for track in tracks)
        figures(f"all rules of a switch of tier {tier} deleted", back_s=round(max(took_s), 2), lost=lost)
        with timing():
            assert max(took_s) < 5
            assert max(track.lost for track in tracks) < 5000, "probes were lost for seconds, at a thousand per second"


def test_groups_and_changed_rules_come_back_within_the_period(name: str) -> None:
    with alive(name, K4, "ecmp", more=MORE) as live:
        time.sleep(2)
        before = live.state()
        edge, aggregation = bridges(live, "e")[0], bridges(live, "a")[0]
        ofctl(live, edge, "del-groups")
        ofctl(live, aggregation, "mod-flows", "table=2,actions=drop")
        took_s = back(live, before)
        figures("a group deleted, rules changed", back_s=round(took_s, 2))
        with timing():
            assert took_s < 2 * PERIOD_S + 5


def test_sighup_makes_the_controller_read_all_switches_at_once(name: str) -> None:
    with alive(name, K4, "ecmp", more='[reconcile]\nperiod = "30s"\n') as live:
        time.sleep(2)
        before = live.state()
        for bridge in bridges(live, "a"):
            ofctl(live, bridge, "mod-flows", "table=2,actions=drop")
        assert live.process is not None
        live.process.send_signal(signal.SIGHUP)
        took_s = back(live, before)
        with timing():
            assert took_s < 5


def test_rules_of_others_are_named_and_removed_if_configured(name: str) -> None:
    stranger = "table=0,priority=60000,cookie=0x77,ip,nw_dst=10.0.0.0/8,actions=drop"
    with alive(name, K4, "ecmp", more=MORE) as live:
        time.sleep(1)
        before = live.state()
        edge = bridges(live, "e")[0]
        ofctl(live, edge, "add-flow", stranger)
        lines = live.await_log("a rule that is not the controller's", patience_s=2 * PERIOD_S + 5)
        assert "priority 60000" in lines and "0x77" in lines and "10.0.0.0" in lines
        time.sleep(PERIOD_S + 2)
        assert live.log().count("a rule that is not the controller's") == 1, "the rule is named once"
        assert live.state() != before, "the rule stays"
        live.kill()
        live.configure("ecmp", more=f'{MORE}foreign = "remove"\n')
        live.launch()
        until(lambda: "0x77" not in ofctl(live, edge, "dump-flows"), "the rule of another gone", 2 * PERIOD_S + 5)
