//! Connections whose first packet nobody saw: those that stood before a scheme was put in charge, or the controller was
//! started, and those that were silent for longer than a flow is remembered.
//!
//! From time to time, and when a scheme is put in charge, the ToRs copy packets of their hosts that meet no rule of a flow,
//! for a moment. Whoever sends in that moment becomes known, as if the connection began. The rule has a hard time-out as
//! well, so that a switch without a controller does not go on copying.

use crate::controller::Controller;
use crate::cookies::{Cookie, RuleKind};
use crate::io::Output;
use crate::tables::{self, DEFAULTS, LONG_FLOWS};
use crate::timers::Timer;
use pathloom_model::rules::{Match, Rule, RuleAction};
use pathloom_model::{Nanos, NodeId, LONG_FLOW_DSCP, PROTO_TCP};
use pathloom_scheme::Detection;

/// How long packets are copied. A connection that takes a tenth of 10 Mbit/s sends twenty in this time.
const WINDOW: Nanos = Nanos::from_millis(250);
/// The time-out of the rule, should the controller not delete it.
const LONGEST_S: u16 = 1;
/// From putting a scheme in charge to the first time: its other rules come first.
const FIRST: Nanos = Nanos::from_millis(200);

/// Which sweeps are to come.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    /// Of the scheme in charge: timers of others find another number.
    number: u32,
    /// Whether packets are copied now.
    open: bool,
}

impl Controller {
    /// Another scheme is in charge: what it has to hear of may stand already.
    pub(crate) fn start_sweeps(&mut self) {
        self.sweeps.number = self.sweeps.number.wrapping_add(1);
        if self.context.config.sweep.is_some() {
            let number = self.sweeps.number;
            self.context.timers.set(self.context.now.saturating_add(FIRST), Timer::Sweep { number });
        }
    }

    /// The next sweep begins.
    pub(crate) fn sweep(&mut self, number: u32) {
        let Some(period) = self.context.config.sweep.filter(|_| number == self.sweeps.number) else { return };
        let Some(dscp) = self.swept() else { return };
        for tor in self
            .context
            .fabric
            .clone()
            .tors()
            .iter()
            .copied()
            .filter(|&tor| self.context.is_ready(tor))
            .collect::<Vec<_>>()
        {
            if let Some(rule) = self.sweeper(tor, dscp) {
                let xid = self.context.next_xid();
                self.context.switches[tor.index()].watch.touch(|| rule.key(), true);
                // One that is refused makes no difference to what is forwarded.
                self.context.put(Output::AddRule { switch: tor, xid, rule });
            }
        }
        self.sweeps.open = true;
        self.context.timers.set(self.context.now.saturating_add(WINDOW), Timer::SweepOver);
        self.context.timers.set(self.context.now.saturating_add(period), Timer::Sweep { number });
    }

    /// The sweep ends.
    pub(crate) fn sweep_over(&mut self) {
        if !std::mem::take(&mut self.sweeps.open) {
            return;
        }
        let Some(dscp) = self.swept() else { return };
        for tor in self
            .context
            .fabric
            .clone()
            .tors()
            .iter()
            .copied()
            .filter(|&tor| self.context.is_ready(tor))
            .collect::<Vec<_>>()
        {
            if let Some(rule) = self.sweeper(tor, dscp) {
                self.context.delete_rule(tor, rule.key());
            }
        }
    }

    /// Which code point the packets to be copied bear, if only some are; `None` if the scheme is told of no flows that
    /// could be found so.
    fn swept(&self) -> Option<Option<u8>> {
        match self.context.needs.detection {
            Detection::Label => Some(Some(LONG_FLOW_DSCP)),
            Detection::Measured { .. } | Detection::Any { .. } => Some(None),
            Detection::Nothing | Detection::Announced => None,
        }
    }

    fn sweeper(&self, tor: NodeId, dscp: Option<u8>) -> Option<Rule> {
        let src = Some(self.context.fabric.tor_prefix(tor)?);
        let matches = Match { src, proto: Some(PROTO_TCP), dscp, ..Match::default() };
        let priority = self.context.config.priorities.unknown;
        let mut rule = tables::rule(LONG_FLOWS, priority, matches, [RuleAction::Copy].into(), Some(DEFAULTS));
        rule.cookie = Cookie::fixed(RuleKind::Detection, self.context.config.epoch).encode();
        rule.hard_timeout_s = LONGEST_S;
        Some(rule)
    }
}
