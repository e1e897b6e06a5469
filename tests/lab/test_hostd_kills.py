"""Agent and controller are killed under traffic: no flow stays held or paced, and BPF programs are taken over."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hosted import (
    LEASE_MS,
    PACED_BPS,
    PACES_KEPT_S,
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
from pathloom.lab import hostd
from pathloom.lab.lab import Lab
from support import figures

OWN_FABRIC = "dumbbell:hosts=2,rate=10Mbps,buffer=150"
SLACK_S = 1.0
"""Additional time for a busy machine, and for `ss`, which measures."""


ENOUGH_BYTES = 20_000
"""More than the packets that pass during a hold."""


class Watch:
    """The worst times of a test."""

    def __init__(self) -> None:
        self.held_s = 0.0
        self.paced_s = 0.0

    def order(self, fake: Fake, flow: dict[str, Any], lab: Lab, lease_ms: int = LEASE_MS) -> float:
        """Orders the agent to pace and hold a flow. Returns when its lease ends."""
        fake.say({"pace": {"flow": flow, "rate_bps": PACED_BPS}})
        until(lambda: pace_limit_bps(lab, "h0") is not None)
        fake.say({"hold": {"flow": flow, "lease_ms": lease_ms}})
        ends = time.monotonic() + lease_ms / 1000
        time.sleep(0.4)
        return ends

    def await_data(self, lab: Lab, lease_ends: float) -> None:
        """Waits until a held connection sends again, without any further order."""
        before = acked(lab, "h0")
        until(lambda: acked(lab, "h0") > before + ENOUGH_BYTES)
        late_s = time.monotonic() - lease_ends
        self.held_s = max(self.held_s, late_s)

    def await_full_speed(self, lab: Lab, lost_at: float) -> None:
        """Waits until the connection is not paced any more, after the loss of the controller."""
        time.sleep(max(lost_at + PACES_KEPT_S - 2 - time.monotonic(), 0))
        until(lambda: pace_limit_bps(lab, "h0") is None)
        paced_s = time.monotonic() - lost_at
        self.paced_s = max(self.paced_s, paced_s)

    def tell(self, what: str) -> None:
        """Records the worst times."""
        figures(what, held_beyond_lease_s=round(self.held_s, 2), paced_after_loss_s=round(self.paced_s, 2))


@pytest.mark.long
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
            # The next agent takes the BPF programs over.
            hostd.start(lab.blueprint(), lab.directory)
            fake.accept()
            assert fake.wait("announce")["flow"] == flow
            assert label(lab, "h0") == 8
        watch.tell(f"agent killed {times} times")
        programs = lab.directory / "bpf" / "pathloom-hostd-1"
        assert (programs / "link-hold").exists()
        hostd.stop(lab.directory)
        assert not programs.exists(), "an agent that ends removes its BPF programs"


@pytest.mark.long
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_killed_controller_holds_and_paces_no_flow_for_long(name: str, times: int) -> None:
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
                # An agent that restarts without its controller does not extend the pace.
                time.sleep(max(lost + 8 - time.monotonic(), 0))
                hostd.start(lab.blueprint(), lab.directory)
            # In other turns, the pace ends as after a kill of the agent alone, which another short test checks.
            if turn % 2 == 0 or times > 2:
                watch.await_full_speed(lab, lost)
            assert label(lab, "h0") == 8
            if turn % 2:
                hostd.start(lab.blueprint(), lab.directory)
            fake.accept()
        watch.tell(f"agent and controller killed together {times} times")


@pytest.mark.long
def test_a_long_lease_ends_in_time_without_an_agent(name: str) -> None:
    watch = Watch()
    with lab_with_agent(name) as (lab, fake), iperf(name, lab, 3600):
        flow = fake.wait("announce")["flow"]
        # Without an acknowledgement, TCP would meanwhile double its time-out to more than 10 s, or give up.
        ends = watch.order(fake, flow, lab, 15_000)
        kill_agent(lab)
        before = acked(lab, "h0")
        time.sleep(max(ends - 1 - time.monotonic(), 0))
        assert acked(lab, "h0") - before < ENOUGH_BYTES, "the connection is not held"
        watch.await_data(lab, ends)
        watch.tell("a lease of 15 s without an agent")


@pytest.mark.long
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_fabric_recovers_when_its_own_controller_and_the_agent_are_killed(name: str, times: int) -> None:
    live = Live(name, OWN_FABRIC, "ofpt")
    watch = Watch()
    try:
        live.launch()
        hostd.start(live.blueprint, live.lab.directory)
        with iperf(name, live.lab, 3600):
            for turn in range(times):
                until(lambda: pace_limit_bps(live.lab, "h0") is not None)
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
