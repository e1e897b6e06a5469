//! Handling of received LLDP frames, and the decision that a link with missing probes is down.

use super::ports::Heard;
use super::{LinkDiscovery, LinkLoss, LinkOutput, Timer};
use crate::alarm::AlarmKind;
use crate::lldp::{Probe, Received};
use crate::Place;
use pathloom_model::Nanos;

impl LinkDiscovery {
    pub(super) fn frame(&mut self, at: Place, frame: &[u8]) {
        let Some(port) = self.ports.get_mut(&at) else { return };
        if !port.bucket.take(self.now) {
            return self.alarm(at, AlarmKind::LldpFlood);
        }
        match self.probing.parse(frame) {
            Received::Own(probe) => self.probe_heard(at, probe),
            Received::Forged => self.alarm(at, AlarmKind::ForgedProbe),
            // LLDP of other senders is ignored, because it is not signed.
            Received::Foreign | Received::Malformed => {}
        }
    }

    fn probe_heard(&mut self, at: Place, probe: Probe) {
        let from = probe.from;
        if !self.accept(at, probe) {
            return;
        }
        let (Some(sender), Some(receiver)) = (self.ports.get(&from), self.ports.get(&at)) else { return };
        if sender.host || receiver.host {
            return self.alarm(at, AlarmKind::ProbeOnHostPort { from });
        }
        if !sender.usable() || !receiver.usable() || sender.shared_until > self.now {
            return;
        }
        let known = sender.link.is_some();
        let elsewhere = sender.link.is_some_and(|peer| peer != at) || receiver.link.is_some_and(|peer| peer != from);
        let other_way = receiver.heard.is_some_and(|heard| heard.at == from);
        if elsewhere {
            return self.alarm(at, AlarmKind::Contradiction { from });
        }
        self.note_heard(from, at, self.now.saturating_sub(probe.sent));
        if known {
            self.probing.stop(from);
        } else if other_way {
            self.link(from, at);
        } else {
            self.probe_back(at);
        }
    }

    fn note_heard(&mut self, from: Place, at: Place, took: Nanos) {
        let now = self.now;
        if let Some(receiver) = self.ports.get_mut(&at) {
            receiver.last_in = Some(now);
        }
        let Some(sender) = self.ports.get_mut(&from) else { return };
        sender.unheard = 0;
        sender.took.rotate_right(1);
        sender.took[0] = Some(took);
        if sender.heard.replace(Heard { at, last: now }).is_none() {
            self.timers.set(Timer::Check(from), now.saturating_add(self.settings.window()));
        }
    }

    /// Checks that a probe is recent, arrived for the first time, and came from another switch.
    fn accept(&mut self, at: Place, probe: Probe) -> bool {
        let from = probe.from;
        let age = self.now.saturating_sub(probe.sent);
        let hold = self.settings.idle_interval.saturating_add(self.settings.window());
        let sent = self.ports.get_mut(&from).map(|port| port.sent.iter_mut().flatten());
        let sent = sent.and_then(|mut sent| sent.find(|sent| sent.nonce == probe.nonce));
        let Some(sent) = sent.filter(|_| age <= self.settings.max_age) else {
            self.alarm(at, AlarmKind::StaleProbe { from, age });
            return false;
        };
        if from.dpid == at.dpid {
            self.alarm(at, AlarmKind::Looped { from });
            return false;
        }
        match sent.arrived.replace(at) {
            None => true,
            Some(first) if first == at => {
                self.alarm(at, AlarmKind::ReplayedProbe { from });
                false
            }
            Some(first) => {
                sent.arrived = Some(first);
                if let Some(port) = self.ports.get_mut(&from) {
                    port.shared_until = self.now.saturating_add(hold);
                    port.heard = None;
                }
                self.alarm(at, AlarmKind::TwoPlaces { from, first });
                self.unlink(from, LinkLoss::Doubtful);
                false
            }
        }
    }

    fn link(&mut self, from: Place, at: Place) {
        for (end, peer) in [(from, at), (at, from)] {
            self.leave_edge(end);
            self.timers.cancel(Timer::Settle(end));
            if let Some(port) = self.ports.get_mut(&end) {
                port.link = Some(peer);
            }
            self.probing.stop(end);
        }
        self.outputs.push_back(LinkOutput::LinkUp { a: from.min(at), b: from.max(at) });
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
