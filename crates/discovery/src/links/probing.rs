//! Times at which probes are sent, and the decision that a link with missing probes is down.

use super::ports::{Port, Sent};
use super::{LinkDiscovery, LinkLoss, LinkOutput, Timer};
use crate::lldp::{emit, Probe};
use crate::{Dpid, Place};
use pathloom_model::Nanos;
use rand::RngExt;

/// Minimum time between a probe of a port and a further one caused by a received probe.
const LATELY: Nanos = Nanos::from_millis(10);
/// Number of time steps per interval. Probe rounds start only at these steps.
const ROUNDS: u64 = 10;

impl LinkDiscovery {
    /// Whether a port is probed. A port with a host is not, because the host could relay the probe.
    fn probed(&self, place: Place) -> bool {
        self.has_session(place.dpid) && self.ports.get(&place).is_some_and(|port| port.usable() && !port.host)
    }

    pub(super) fn stop_probing(&mut self, place: Place) {
        self.urgent.cancel(place);
        self.routine.cancel(place);
    }

    /// Probes a port as soon as the rate limit allows.
    pub(super) fn probe_now(&mut self, place: Place) {
        if self.probed(place) {
            self.routine.cancel(place);
            self.urgent.set(place, self.now);
        }
    }

    /// Probes a port that has just received a probe, to test the other direction of its cable.
    pub(super) fn probe_back(&mut self, place: Place) {
        let Some(port) = self.ports.get_mut(&place) else { return };
        if port.last_sent.is_none_or(|at| self.now.saturating_sub(at) >= LATELY) {
            port.gap = self.settings.first_gap;
            self.probe_now(place);
        }
    }

    /// Sets the time of the next probe, after one was sent or when the hosts of a port have left. A link whose probe
    /// does not arrive is probed again soon, if the switch at the other end has a session. Other links and edge ports
    /// wait for the next round.
    pub(super) fn schedule(&mut self, place: Place) {
        if !self.probed(place) {
            return;
        }
        let peer = self.ports.get(&place).and_then(|port| port.link);
        let is_heard = peer.is_none_or(|peer| self.has_session(peer.dpid));
        let Some(port) = self.ports.get_mut(&place) else { return };
        let window = self.settings.window();
        let answers = port.last_in.is_some_and(|at| self.now.saturating_sub(at) < window);
        let gap = match port.link {
            Some(_) if is_heard => self.settings.retry,
            Some(_) => return,
            None if port.edge && !answers => return,
            None => {
                let gap = port.gap.min(self.settings.idle_interval);
                port.gap = Nanos(gap.0.saturating_mul(2));
                gap
            }
        };
        if gap <= self.settings.retry {
            self.urgent.set(place, self.now.saturating_add(gap));
        } else {
            let gap = self.jittered(gap);
            self.routine.set(place, self.now.saturating_add(gap));
        }
    }

    /// Cancels planned probes of a port whose probe arrived over a link. The next round sends the next probe.
    pub(super) fn cancel_probes(&mut self, place: Place) {
        self.stop_probing(place);
    }

    /// Starts a round: probes the ports of a switch that are part of a link or face hosts, except ports that will be
    /// probed again soon anyway.
    pub(super) fn round(&mut self, dpid: Dpid) {
        for place in self.ports_of(dpid).collect::<Vec<_>>() {
            let is_known = |port: &Port| port.edge || port.link.is_some();
            if self.probed(place) && self.ports.get(&place).is_some_and(is_known) && !self.urgent.has(place) {
                self.routine.set(place, self.now);
            }
        }
        self.next_round(dpid);
    }

    /// Sets the time of the next round of a switch. Rounds that are due within a tenth of an interval start together.
    /// Several switches may run in one process, which then wakes up once for all of them.
    pub(super) fn next_round(&mut self, dpid: Dpid) {
        let gap = self.jittered(self.settings.interval);
        let step = (self.settings.interval.0 / ROUNDS).max(1);
        let at = self.now.saturating_add(gap);
        self.rounds.set(dpid, Nanos(at.0 - at.0 % step));
    }

    /// Returns a random time in the last quarter of the span, so that ports that came up together are probed at
    /// different times.
    fn jittered(&mut self, gap: Nanos) -> Nanos {
        Nanos(gap.0 - self.rng.random_range(0..=gap.0 / 4))
    }

    /// Sends the probes that are due, urgent ones first, as far as the rate limit allows.
    pub(super) fn send_due(&mut self) {
        loop {
            let next = [self.urgent.next(), self.routine.next()].into_iter().flatten().min();
            if next.is_none_or(|at| at > self.now) || !self.pace.take(self.now) {
                return;
            }
            let place = self.urgent.pop(self.now).or_else(|| self.routine.pop(self.now));
            self.send(place.expect("one of the two is due"));
        }
    }

    fn send(&mut self, place: Place) {
        let Some(port) = self.ports.get_mut(&place) else { return };
        let probe = Probe { from: place, nonce: self.nonce, sent: self.now };
        port.sent.rotate_right(1);
        port.sent[0] = Some(Sent { nonce: self.nonce, arrived: None });
        self.nonce += 1;
        port.last_sent = Some(self.now);
        port.probes = port.probes.saturating_add(1);
        if port.unheard == 0 {
            port.unheard_since = self.now;
            if port.link.is_some() {
                self.timers.set(Timer::Check(place), self.now.saturating_add(self.settings.silence));
            }
        }
        port.unheard = port.unheard.saturating_add(1);
        let lasts = self.settings.interval.saturating_add(self.settings.window());
        let ttl_s = (lasts.0 / 1_000_000_000 + 1).min(u64::from(u16::MAX)) as u16;
        let frame = emit(&probe, port.mac, ttl_s, &self.key);
        self.outputs.push_back(LinkOutput::Send { place, frame });
        self.schedule(place);
    }

    /// Checks whether probes from `place` still arrive. Missing probes count only if they were sent, and if both
    /// switches have sessions. So a delayed controller or a lost session does not take down a link that still forwards.
    pub(super) fn check(&mut self, place: Place) {
        let Some(heard) = self.ports.get(&place).and_then(|port| port.heard) else { return };
        let watched = self.has_session(place.dpid) && self.has_session(heard.at.dpid);
        let port = self.ports.get_mut(&place).expect("found above");
        let is_link = port.link.is_some();
        let quiet_until = match is_link {
            true if port.unheard == 0 => return,
            true => port.unheard_since.saturating_add(self.settings.silence),
            false => heard.last.saturating_add(self.settings.window()),
        };
        if self.now < quiet_until {
            return self.timers.set(Timer::Check(place), quiet_until);
        }
        if watched && (port.unheard >= self.settings.missed || !is_link) {
            port.heard = None;
            return self.unlink(place, LinkLoss::Silent);
        }
        self.timers.set(Timer::Check(place), self.now.saturating_add(self.settings.silence));
    }
}
