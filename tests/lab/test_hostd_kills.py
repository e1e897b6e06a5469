"""Agent and controller are killed under traffic: nobody stays held or paced, and programs are taken over."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hosted import (
    LEASE_MS,
    PACED_BPS,
    PACES_KEPT_S,
    PROBE_S,
    Fake,
    acked,
    iperf,
    kill_agent,
    lab_with_agent,
    label,
    pace_limit_bps,
    until,
)
from live import Live
from machine import timing
from pathloom.lab import hostd
from pathloom.lab.lab import Lab
from support import figures

OWN_FABRIC = "dumbbell:hosts=2,rate=10Mbps,buffer=150"
SLACK_S = 1.0
"""Of a busy machine, and of `ss`, which says when."""


ENOUGH_BYTES = 20_000
"""More than the packets that pass during a hold."""


class Watch:
    """The worst times of a test."""

    def __init__(self) -> None:
        self.held_s = 0.0
        self.paced_s = 0.0

    def order(self, fake: Fake, flow: dict[str, Any], lab: Lab, lease_ms: int = LEASE_MS) -> float:
        """Has a flow paced and held; returns when its lease ends."""
        fake.say({"pace": {"flow": flow, "rate_bps": PACED_BPS}})
        until(lambda: pace_limit_bps(lab, "h0") is not None)
        fake.say({"hold": {"flow": flow, "lease_ms": lease_ms}})
        ends = time.monotonic() + lease_ms / 1000
        time.sleep(0.4)
        return ends

    def await_data(self, lab: Lab, lease_ends: float) -> None:
        """Waits until a held connection sends again, without anybody's help."""
        before = acked(lab, "h0")
        until(lambda: acked(lab, "h0") > before + ENOUGH_BYTES, 30)
        late_s = time.monotonic() - lease_ends
        self.held_s = max(self.held_s, late_s)
        with timing():
            assert late_s < PROBE_S + SLACK_S, "it is held for longer than its lease"

    def await_full_speed(self, lab: Lab, lost_at: float) -> None:
        """Waits until the connection has no pace any more, which the controller's loss ends."""
        time.sleep(max(lost_at + PACES_KEPT_S - 2 - time.monotonic(), 0))
        with timing():
            assert pace_limit_bps(lab, "h0") is not None, "the pace ends too early"
        until(lambda: pace_limit_bps(lab, "h0") is None, 30)
        paced_s = time.monotonic() - lost_at
        self.paced_s = max(self.paced_s, paced_s)
        with timing():
            assert paced_s < PACES_KEPT_S, "it is paced for too long"

    def tell(self, what: str) -> None:
        """Tells the worst times."""
        figures(what, held_beyond_lease_s=round(self.held_s, 2), paced_after_loss_s=round(self.paced_s, 2))


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_a_killed_agent_leaves_nothing_held_or_paced(name: str, times: int) -> None:
    watch = Watch()
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 3600):
        flow = fake.wait("announce")["flow"]
        for turn in range(times):
            ends = watch.order(fake, flow, lab)
            kill_agent(lab)
            killed = time.monotonic()
            watch.await_data(lab, ends)
            if turn % 2 == 0:
                watch.await_full_speed(lab, killed)
            assert label(lab, "h0") == 8
            # The next agent takes the programs over.
            hostd.start(lab.blueprint(), lab.directory)
            fake.accept()
            assert fake.wait("announce")["flow"] == flow
            assert label(lab, "h0") == 8
        watch.tell(f"agent killed {times} times")
        programs = lab.directory / "bpf" / "pathloom-hostd-1"
        assert (programs / "link-hold").exists()
        hostd.stop(lab.directory)
        assert not programs.exists(), "the programs are gone with an agent that ends"


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_killed_controller_holds_and_paces_nobody_for_long(name: str, times: int) -> None:
    watch = Watch()
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 3600):
        for _ in range(times):
            flow = fake.wait("announce")["flow"]
            ends = watch.order(fake, flow, lab)
            fake.hang_up()
            lost = time.monotonic()
            watch.await_data(lab, ends)
            watch.await_full_speed(lab, lost)
            assert label(lab, "h0") == 8
            fake.accept()
        watch.tell(f"controller killed {times} times")


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_agent_and_controller_killed_together_leave_nothing_held_or_paced(name: str, times: int) -> None:
    watch = Watch()
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 3600):
        for turn in range(times):
            flow = fake.wait("announce")["flow"]
            ends = watch.order(fake, flow, lab)
            kill_agent(lab)
            fake.hang_up()
            lost = time.monotonic()
            watch.await_data(lab, ends)
            if turn % 2 == 0:
                # An agent that comes back without its controller does not prolong the pace.
                time.sleep(max(lost + 8 - time.monotonic(), 0))
                hostd.start(lab.blueprint(), lab.directory)
            # The other turn's pace ends as after the death of the agent alone, which the short version leaves to that.
            if turn % 2 == 0 or times > 2:
                watch.await_full_speed(lab, lost)
            assert label(lab, "h0") == 8
            if turn % 2:
                hostd.start(lab.blueprint(), lab.directory)
            fake.accept()
        watch.tell(f"agent and controller killed together {times} times")


def test_a_long_lease_ends_in_time_though_the_agent_is_dead(name: str) -> None:
    watch = Watch()
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 3600):
        flow = fake.wait("announce")["flow"]
        # TCP without an acknowledgement would double its time-out meanwhile, to more than 10 s, or give up.
        ends = watch.order(fake, flow, lab, 15_000)
        kill_agent(lab)
        before = acked(lab, "h0")
        time.sleep(max(ends - 1 - time.monotonic(), 0))
        assert acked(lab, "h0") - before < ENOUGH_BYTES, "it is not held"
        watch.await_data(lab, ends)
        watch.tell("a lease of 15 s without an agent")


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_fabric_recovers_when_its_own_controller_and_the_agent_are_killed(name: str, times: int) -> None:
    live = Live(name, OWN_FABRIC, "ofpt")
    watch = Watch()
    try:
        live.launch()
        hostd.start(live.blueprint, live.lab.directory)
        with iperf(name, live.lab, 3600):
            for turn in range(times):
                until(lambda: pace_limit_bps(live.lab, "h0") is not None, 30)
                assert label(live.lab, "h0") == 8
                kill_agent(live.lab)
                live.kill()
                lost = time.monotonic()
                if turn % 2 == 0:
                    watch.await_full_speed(live.lab, lost)
                before = acked(live.lab, "h0")
                until(lambda before=before: acked(live.lab, "h0") > before)  # type: ignore[misc]
                assert label(live.lab, "h0") == 8
                live.launch()
                hostd.start(live.blueprint, live.lab.directory)
        watch.tell(f"ofpt and its agent killed together {times} times")
    finally:
        live.end()
