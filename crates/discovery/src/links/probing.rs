//! Times at which probes are sent, and the probes themselves.

use super::ports::{Port, Sent};
use super::ProbeSettings;
use crate::agenda::Agenda;
use crate::limits::TokenBucket;
use crate::lldp::{emit, parse, Probe, ProbeKey, Received};
use crate::{Dpid, Place};
use pathloom_model::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64;

/// Minimum time between a probe of a port and a further one caused by a received probe.
const LATELY: Nanos = Nanos::from_millis(10);
/// Number of time steps per interval. Probe rounds start only at these steps.
const ROUNDS: u64 = 10;

/// Which ports are probed when.
pub(super) struct Probing {
    settings: ProbeSettings,
    key: ProbeKey,
    rng: Pcg64,
    /// Urgent probes after an event. They are sent before the routine ones.
    urgent: Agenda<Place>,
    routine: Agenda<Place>,
    /// Time of the next probe round of each switch.
    rounds: Agenda<Dpid>,
    pace: TokenBucket,
    nonce: u64,
}

impl Probing {
    pub(super) fn new(settings: ProbeSettings, key: ProbeKey, rng: Pcg64) -> Probing {
        Probing {
            pace: TokenBucket::new(Nanos::ZERO, settings.sends),
            settings,
            key,
            rng,
            urgent: Agenda::new(),
            routine: Agenda::new(),
            rounds: Agenda::new(),
            nonce: 0,
        }
    }

    /// Cancels the planned probes of a port. If it has a link, the next round sends the next one.
    pub(super) fn stop(&mut self, place: Place) {
        self.urgent.cancel(place);
        self.routine.cancel(place);
    }

    /// Probes a port as soon as the rate limit allows.
    pub(super) fn soon(&mut self, now: Nanos, place: Place) {
        self.routine.cancel(place);
        self.urgent.set(place, now);
    }

    /// Whether a port that has just received a probe is probed, to test the other direction of its cable.
    pub(super) fn answers(now: Nanos, port: &Port) -> bool {
        port.last_sent.is_none_or(|at| now.saturating_sub(at) >= LATELY)
    }

    /// Sets the time of the next probe, after one was sent or when the hosts of a port have left. A link whose probe
    /// does not arrive is probed again soon, if the switch at the other end has a session (`is_heard`). Other links and
    /// edge ports wait for the next round.
    pub(super) fn schedule(&mut self, now: Nanos, place: Place, port: &mut Port, is_heard: bool) {
        let window = self.settings.window();
        let answers = port.last_in.is_some_and(|at| now.saturating_sub(at) < window);
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
            self.urgent.set(place, now.saturating_add(gap));
        } else {
            let gap = self.jittered(gap);
            self.routine.set(place, now.saturating_add(gap));
        }
    }

    /// Probes a port in the present round, unless it will be probed again soon anyway.
    pub(super) fn in_round(&mut self, now: Nanos, place: Place) {
        if !self.urgent.has(place) {
            self.routine.set(place, now);
        }
    }

    /// A switch whose round starts now.
    pub(super) fn pop_round(&mut self, now: Nanos) -> Option<Dpid> {
        self.rounds.pop(now)
    }

    /// Ends the rounds of a switch.
    pub(super) fn end_rounds(&mut self, dpid: Dpid) {
        self.rounds.cancel(dpid);
    }

    /// Sets the time of the next round of a switch. Rounds that are due within a tenth of an interval start together.
    /// Several switches may run in one process, which then wakes up once for all of them.
    pub(super) fn next_round(&mut self, now: Nanos, dpid: Dpid) {
        let gap = self.jittered(self.settings.interval);
        let step = (self.settings.interval.0 / ROUNDS).max(1);
        let at = now.saturating_add(gap);
        self.rounds.set(dpid, Nanos(at.0 - at.0 % step));
    }

    /// Returns a random time in the last quarter of the span, so that ports that came up together are probed at
    /// different times.
    fn jittered(&mut self, gap: Nanos) -> Nanos {
        Nanos(gap.0 - self.rng.random_range(0..=gap.0 / 4))
    }

    /// Time of the next probe or round.
    pub(super) fn next(&self) -> Option<Nanos> {
        let probe = self.next_probe().map(|at| at.max(self.pace.ready_at()));
        [self.rounds.next(), probe].into_iter().flatten().min()
    }

    fn next_probe(&self) -> Option<Nanos> {
        [self.urgent.next(), self.routine.next()].into_iter().flatten().min()
    }

    /// A port to probe now, urgent ones first, as far as the rate limit allows.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<Place> {
        if self.next_probe().is_none_or(|at| at > now) || !self.pace.take(now) {
            return None;
        }
        self.urgent.pop(now).or_else(|| self.routine.pop(now))
    }

    /// Returns the frame of the next probe of a port.
    pub(super) fn probe(&mut self, now: Nanos, place: Place, port: &mut Port) -> Vec<u8> {
        let probe = Probe { from: place, nonce: self.nonce, sent: now };
        port.sent.rotate_right(1);
        port.sent[0] = Some(Sent { nonce: self.nonce, arrived: None });
        self.nonce += 1;
        port.last_sent = Some(now);
        port.probes = port.probes.saturating_add(1);
        let lasts = self.settings.interval.saturating_add(self.settings.window());
        let ttl_s = (lasts.0 / 1_000_000_000 + 1).min(u64::from(u16::MAX)) as u16;
        emit(&probe, port.mac, ttl_s, &self.key)
    }

    /// Reads a received frame.
    pub(super) fn parse(&self, frame: &[u8]) -> Received {
        parse(frame, &self.key)
    }
}
