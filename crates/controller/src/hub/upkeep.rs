//! Periodic work of the hub: when it is due, what becomes of silent and unfinished connections, and warnings about flows
//! that the scheme in charge does not see.

use crate::config::Sessions;
use crate::hub::connection::{Connection, Stage};
use pathloom_control::Controller;
use pathloom_model::{Nanos, NodeId};
use pathloom_scheme::Detection;
use std::time::Duration;

/// How long a session has to show that it is alive, when another connection claims its datapath identifier.
const DUPLICATE_TIMEOUT: Nanos = Nanos::from_secs(2);
/// How long a connection that is being closed has to read its last message.
const CLOSE_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Time after the start of a scheme within which some flow should have the label of long flows.
const LABELS_BY: Nanos = Nanos::from_secs(60);
/// Time between two log lines about uncounted flows, and between two about flows without rules.
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

/// A check of peers, flows and hosts that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// How late it is. The first one has no time at which it is due.
    pub lag: Option<Nanos>,
    /// Whether the counters of refused frames are due, too.
    pub with_refused: bool,
}

impl Periodic {
    /// When the next work is due.
    pub(crate) fn next(&self) -> Nanos {
        if self.port_period == Nanos::ZERO {
            return self.next_tick;
        }
        self.next_tick.min(self.next_ports)
    }

    /// From `now` on, the port counters of all switches are read once in each period; 0 ends it.
    pub(crate) fn read_ports_every(&mut self, now: Nanos, period: Nanos) {
        (self.port_period, self.next_ports) = (period, now.saturating_add(period));
    }

    /// Whether the port counters are to be read now.
    pub(crate) fn take_ports(&mut self, now: Nanos) -> bool {
        let is_due = self.port_period > Nanos::ZERO && now >= self.next_ports;
        if is_due {
            self.next_ports = now.saturating_add(self.port_period);
        }
        is_due
    }

    /// The check that is to be made now.
    pub(crate) fn take_tick(&mut self, now: Nanos) -> Option<Tick> {
        if now < self.next_tick {
            return None;
        }
        let lag = (self.ticks > 0).then(|| now.saturating_sub(self.next_tick));
        (self.next_tick, self.ticks) = (now.saturating_add(TICK), self.ticks + 1);
        Some(Tick { lag, with_refused: self.ticks.is_multiple_of(REFUSED_TICKS) })
    }
}

/// What happens to a connection at a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It gets an echo request.
    Echo,
    /// It is closed.
    Close(&'static str),
    /// It is closed because of what its peer did.
    Offence(&'static str),
    /// It is over.
    Over(&'static str),
    /// The session that has its datapath identifier had time, since then, to show that it is alive.
    Claim { dpid: u64, since: Nanos },
}

/// What happens to a connection now.
pub(crate) fn verdict(connection: &Connection, now: Nanos, sessions: &Sessions) -> Option<Verdict> {
    let age = |since: Nanos| Duration::from_nanos(now.saturating_sub(since).0);
    match connection.stage {
        Stage::Closed if now.saturating_sub(connection.since) > CLOSE_TIMEOUT => {
            Some(Verdict::Over("it was closed, and the peer did not read"))
        }
        Stage::Duplicate { dpid, since } if now.saturating_sub(since) > DUPLICATE_TIMEOUT => {
            Some(Verdict::Claim { dpid, since })
        }
        Stage::Up { .. } | Stage::Standby { .. } if age(connection.last_heard) > sessions.echo_timeout => {
            Some(Verdict::Close("it was silent for longer than sessions.echo_timeout"))
        }
        Stage::Up { .. } | Stage::Standby { .. } if age(connection.last_echo) > sessions.echo_interval => {
            Some(Verdict::Echo)
        }
        Stage::Hello | Stage::Features | Stage::Ports { .. } if age(connection.since) > sessions.handshake_timeout => {
            Some(Verdict::Offence("it did not finish its handshake in time"))
        }
        _ => None,
    }
}

/// Warnings that the log already has.
#[derive(Default)]
pub(crate) struct Warned {
    /// Start time of the scheme for which the log already says that no host labels its flows.
    unlabelled: Option<Nanos>,
    /// Number of uncounted flows at the last warning, and the time of that warning.
    uncounted: (u64, Nanos),
    /// Number of flows and paths refused for lack of rules at the last warning, and the time of that warning.
    over_budget: (u64, Nanos),
}

impl Warned {
    /// Logs once a minute that flows are not counted, if any were not.
    pub(crate) fn uncounted(&mut self, now: Nanos, controller: &Controller) {
        let (uncounted, most) = (controller.counts().uncounted, controller.config().max_counted_per_tor);
        let (said, at) = self.uncounted;
        if uncounted > said && (said == 0 || now.saturating_sub(at) >= UNCOUNTED_EVERY) {
            let flows = uncounted - said;
            let way_out = "they use the default routes; raise control.max_counted_per_tor if the tables have room";
            tracing::warn!(flows, most, way_out, "flows are not counted, because their ToR has no more rules for it");
            self.uncounted = (uncounted, now);
        }
    }

    /// Logs once a minute that hosts have their share of the rules of switches, if flows or paths were refused for that.
    pub(crate) fn over_budget(&mut self, now: Nanos, controller: &Controller) {
        let counts = controller.counts();
        let (said, at) = self.over_budget;
        if counts.over_budget > said && (said == 0 || now.saturating_sub(at) >= UNCOUNTED_EVERY) {
            let refused = counts.over_budget - said;
            let name = |node: NodeId| controller.view().fabric.node(node).name.clone();
            let largest = controller.largest_holder();
            let largest = largest.map_or_else(String::new, |(switch, host, rules)| {
                format!("{} has {rules} at {}", name(host), name(switch))
            });
            let (limit, made_room) = (controller.config().rule_limit, counts.made_room);
            let way_out = "they use the default routes; raise control.rule_limit if the tables have room";
            tracing::warn!(
                refused,
                made_room,
                limit,
                largest,
                way_out,
                "hosts have their share of the rules of switches"
            );
            self.over_budget = (counts.over_budget, now);
        }
    }

    /// Logs once per scheme that no host labels or announces its long flows, if the scheme in charge relies on that.
    /// `scheme` has its name and the time of its start.
    pub(crate) fn unlabelled(&mut self, now: Nanos, controller: &Controller, scheme: &(String, Nanos)) {
        let (scheme, since) = (&scheme.0, scheme.1);
        if now.saturating_sub(since) < LABELS_BY || self.unlabelled == Some(since) {
            return;
        }
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
        self.unlabelled = Some(since);
    }
}
