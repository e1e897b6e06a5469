//! Connections whose first packet nobody saw: those that stood before a scheme was put in charge, or the controller was
//! started, and those that were silent for longer than a flow is remembered.
//!
//! From time to time, and when a scheme is put in charge, the ToRs copy packets of their hosts that meet no rule of a flow,
//! for a moment. Whoever sends in that moment becomes known, as if the connection began. The rule has a hard time-out as
//! well, so that a switch without a controller does not go on copying.

use crate::context::Context;
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

impl Sweeps {
    /// Another scheme is in charge: what it has to hear of may stand already.
    pub(crate) fn start(&mut self, cx: &mut Context) {
        self.number = self.number.wrapping_add(1);
        if cx.config.sweep.is_some() {
            let number = self.number;
            cx.timers.set(cx.now.saturating_add(FIRST), Timer::Sweep { number });
        }
    }

    /// The next sweep begins.
    pub(crate) fn begin(&mut self, cx: &mut Context, number: u32) {
        let Some(period) = cx.config.sweep.filter(|_| number == self.number) else { return };
        let Some(dscp) = self.swept(cx) else { return };
        for tor in cx.fabric.clone().tors().iter().copied().filter(|&tor| cx.is_ready(tor)).collect::<Vec<_>>() {
            if let Some(rule) = self.rule(cx, tor, dscp) {
                let xid = cx.next_xid();
                cx.switches[tor.index()].watch.touch(|| rule.key(), true);
                // One that is refused makes no difference to what is forwarded.
                cx.put(Output::AddRule { switch: tor, xid, rule });
            }
        }
        self.open = true;
        cx.timers.set(cx.now.saturating_add(WINDOW), Timer::SweepOver);
        cx.timers.set(cx.now.saturating_add(period), Timer::Sweep { number });
    }

    /// The sweep ends.
    pub(crate) fn end(&mut self, cx: &mut Context) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let Some(dscp) = self.swept(cx) else { return };
        for tor in cx.fabric.clone().tors().iter().copied().filter(|&tor| cx.is_ready(tor)).collect::<Vec<_>>() {
            if let Some(rule) = self.rule(cx, tor, dscp) {
                cx.delete_rule(tor, rule.key());
            }
        }
    }

    /// Which code point the packets to be copied bear, if only some are; `None` if the scheme is told of no flows that
    /// could be found so.
    fn swept(&self, cx: &Context) -> Option<Option<u8>> {
        match cx.needs.detection {
            Detection::Label => Some(Some(LONG_FLOW_DSCP)),
            Detection::Measured { .. } | Detection::Any { .. } => Some(None),
            Detection::Nothing | Detection::Announced => None,
        }
    }

    fn rule(&self, cx: &Context, tor: NodeId, dscp: Option<u8>) -> Option<Rule> {
        let src = Some(cx.fabric.tor_prefix(tor)?);
        let matches = Match { src, proto: Some(PROTO_TCP), dscp, ..Match::default() };
        let priority = cx.config.priorities.unknown;
        let mut rule = tables::rule(LONG_FLOWS, priority, matches, [RuleAction::Copy].into(), Some(DEFAULTS));
        rule.cookie = Cookie::of_no_flow(RuleKind::Detection, cx.config.epoch).encode();
        rule.hard_timeout_s = LONGEST_S;
        Some(rule)
    }
}
