//! Periodic work of the hub: echoes, silent peers, datapath identifiers that two connections claim, warnings about
//! flows that the scheme in charge does not see.

use crate::config::Sessions;
use crate::connection::{ConnectionId, Stage};
use crate::hub::Hub;
use pathloom_model::Nanos;
use pathloom_openflow::Message;
use pathloom_scheme::Detection;
use std::time::Duration;

/// How long a session has to show that it is alive, when another connection claims its datapath identifier.
const DUPLICATE_TIMEOUT: Nanos = Nanos::from_secs(2);
/// How long a connection that is being closed has to read its last message.
const CLOSE_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Time after the start of a scheme within which some flow should have the label of long flows.
const LABELS_BY: Nanos = Nanos::from_secs(60);
/// Time between two log lines about uncounted flows.
const UNCOUNTED_EVERY: Nanos = Nanos::from_secs(60);

/// Time between two checks of peers, flows and hosts.
const TICK: Nanos = Nanos::from_millis(250);
/// Number of ticks between two readings of the counters of refused frames.
const REFUSED_TICKS: u64 = 20;

/// When periodic work is due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Periodic {
    next_tick: Nanos,
    ticks: u64,
    /// Time between two readings of port counters; 0 if they are not read.
    port_period: Nanos,
    next_ports: Nanos,
}

impl Periodic {
    /// When the next work is due.
    pub(crate) fn next(&self) -> Nanos {
        if self.port_period == Nanos::ZERO {
            return self.next_tick;
        }
        self.next_tick.min(self.next_ports)
    }
}

/// Warnings that the log already has.
#[derive(Default)]
pub(crate) struct Warned {
    /// Start time of the scheme for which the log already says that no host labels its flows.
    unlabelled: Option<Nanos>,
    /// Number of uncounted flows at the last warning, and the time of that warning.
    uncounted: (u64, Nanos),
}

impl Hub {
    /// From `now` on, reads the port counters of all switches once in each period; 0 ends it.
    pub fn read_ports_every(&mut self, now: Nanos, period: Nanos) {
        self.periodic.port_period = period;
        self.periodic.next_ports = now.saturating_add(period);
    }

    /// Does the periodic work that is due.
    pub(crate) fn do_periodic_work(&mut self, now: Nanos) {
        let Periodic { next_tick, ticks, port_period, next_ports } = self.periodic;
        if port_period > Nanos::ZERO && now >= next_ports {
            self.periodic.next_ports = now.saturating_add(port_period);
            self.read_ports();
        }
        if now < next_tick {
            return;
        }
        // The first tick comes at once.
        if ticks > 0 {
            self.gauges.lag.add(now.saturating_sub(next_tick));
        }
        (self.periodic.next_tick, self.periodic.ticks) = (now.saturating_add(TICK), ticks + 1);
        self.tick(now);
        if self.periodic.ticks.is_multiple_of(REFUSED_TICKS) {
            self.read_refused();
            self.look_after_places();
        }
    }

    /// Checks learnt addresses for which no host has sent ARP.
    fn look_after_places(&mut self) {
        let placed: Vec<_> = self.controller().map(|controller| controller.placed().collect()).unwrap_or_default();
        if let Some(discovery) = &mut self.discovery {
            discovery.look_after_places(&placed);
        }
    }

    /// Checks peers, agents and flows.
    fn tick(&mut self, now: Nanos) {
        self.hosts.tick(now);
        self.queued.extend(self.hosts.changes());
        for (whose, times) in self.log_limiter.overdue(now) {
            tracing::warn!(whose, times, "refused again since the last message about it");
        }
        let age = |since: Nanos| Duration::from_nanos(now.saturating_sub(since).0);
        let Sessions { echo_interval, echo_timeout, handshake_timeout } = self.sessions.clone();
        let all: Vec<ConnectionId> = self.connections.iter().map(|connection| connection.id).collect();
        for id in all {
            let Some(connection) = self.connection_mut(id) else { continue };
            match connection.stage {
                Stage::Closed if now.saturating_sub(connection.since) > CLOSE_TIMEOUT => {
                    self.disconnect(now, id, "it was closed, and the peer did not read");
                }
                Stage::Closed => {}
                Stage::Duplicate { dpid, since } if now.saturating_sub(since) > DUPLICATE_TIMEOUT => {
                    self.resolve_duplicate(now, id, dpid, since);
                }
                Stage::Up { .. } if age(connection.last_heard) > echo_timeout => {
                    self.close(id, "it was silent for longer than sessions.echo_timeout");
                }
                Stage::Up { .. } if age(connection.last_echo) > echo_interval => self.echo(now, id),
                Stage::Hello | Stage::Features | Stage::Ports { .. } if age(connection.since) > handshake_timeout => {
                    self.offence(id, "it did not finish its handshake in time");
                }
                _ => {}
            }
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.review(now);
        }
        self.renew_punts(now);
        self.warn_unlabelled(now);
        self.warn_uncounted(now);
    }

    /// Logs once a minute that flows are not counted, if any were not.
    fn warn_uncounted(&mut self, now: Nanos) {
        let Some(controller) = self.controller() else { return };
        let (uncounted, most) = (controller.counts().uncounted, controller.config().max_counted_per_tor);
        let (said, at) = self.warned.uncounted;
        if uncounted > said && (said == 0 || now.saturating_sub(at) >= UNCOUNTED_EVERY) {
            let flows = uncounted - said;
            let way_out = "they use the default routes; raise control.max_counted_per_tor if the tables have room";
            tracing::warn!(flows, most, way_out, "flows are not counted, because their ToR has no more rules for it");
            self.warned.uncounted = (uncounted, now);
        }
    }

    /// Logs once per scheme that no host labels or announces its long flows, if the scheme in charge relies on that.
    fn warn_unlabelled(&mut self, now: Nanos) {
        let (scheme, since) = self.gauges.scheme.clone();
        let standing = !self.by_dpid.is_empty() && now.saturating_sub(since) >= LABELS_BY;
        if !standing || self.warned.unlabelled == Some(since) {
            return;
        }
        let Some(controller) = self.controller() else { return };
        let way_out = match controller.needs().detection {
            Detection::Label => {
                "mark long flows with DSCP 8 (TOS 0x20), or let the scheme find them otherwise: detect=any"
            }
            Detection::Any { .. } => {
                "flows are found by their counters, up to a polling period late; DSCP 8 (TOS 0x20) marks them at once"
            }
            Detection::Nothing | Detection::Announced | Detection::Measured { .. } => return,
        };
        let counts = controller.counts();
        if counts.labelled == 0 && counts.announced == 0 {
            tracing::warn!(%scheme, way_out, "no long flow was labelled or announced yet");
        }
        self.warned.unlabelled = Some(since);
    }

    pub(crate) fn echo(&mut self, now: Nanos, id: ConnectionId) {
        if let Some(connection) = self.connection_mut(id) {
            connection.last_echo = now;
            connection.queue(&Message::EchoRequest(&now.0.to_be_bytes()));
            self.mark(id);
        }
    }

    /// Two connections claim one datapath identifier. The existing session stays if it has sent anything since.
    fn resolve_duplicate(&mut self, now: Nanos, id: ConnectionId, dpid: u64, since: Nanos) {
        let owner = self.owner(dpid).and_then(|owner| {
            let connection = self.connection_mut(owner)?;
            Some((owner, connection.peer.clone(), connection.last_heard, connection.is_closed()))
        });
        match owner {
            Some((_, peer, heard, false)) if heard > since => {
                let why = format!(
                    "switch {dpid:016x} is connected from {peer} already; give one of them another datapath identifier"
                );
                self.offence(id, &why);
            }
            Some((owner, ..)) => {
                self.close(owner, "another connection of the same switch took its place");
                self.disconnect(now, owner, "replaced");
                self.admit(id, dpid);
            }
            None => self.admit(id, dpid),
        }
    }
}
