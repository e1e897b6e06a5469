"""Rules that others delete, change or add while the sessions are up."""

from __future__ import annotations

import signal
import time

import pytest

from live import K4, Live, alive, until
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
    until(lambda: live.state() == before, "the rules as they were")
    return time.monotonic() - start


def test_groups_and_changed_rules_come_back_within_the_period(name: str) -> None:
    with alive(name, K4, "ecmp", more=MORE) as live:
        time.sleep(2)
        before = live.state()
        edge, aggregation = bridges(live, "e")[0], bridges(live, "a")[0]
        ofctl(live, edge, "del-groups")
        ofctl(live, aggregation, "mod-flows", "table=2,actions=drop")
        took_s = back(live, before)
        figures("a group deleted, rules changed", back_s=round(took_s, 2))


@pytest.mark.long
def test_sighup_makes_the_controller_read_all_switches_at_once(name: str) -> None:
    with alive(name, K4, "ecmp", more='[reconcile]\nperiod = "30s"\n') as live:
        time.sleep(2)
        before = live.state()
        for bridge in bridges(live, "a"):
            ofctl(live, bridge, "mod-flows", "table=2,actions=drop")
        assert live.process is not None
        live.process.send_signal(signal.SIGHUP)
        figures("rules of all switches changed, SIGHUP", back_s=round(back(live, before), 2))
