//! Finds connections whose first packet the controller did not see. Such a connection was open before the scheme was
//! put in charge or the controller started, or it was idle for so long that its flow was forgotten.
//!
//! Periodically, and after a scheme was put in charge, the ToRs copy those packets of their hosts that match no rule
//! of a flow, for a short time. A sender of such a packet becomes known as if its connection began. The rule also has
//! a hard time-out, so that a switch without a controller stops copying.

use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::io::Output;
use crate::tables::{self, DEFAULTS, LONG_FLOWS};
use crate::timers::Timer;
use pathloom_model::rules::{Match, Rule, RuleAction};
use pathloom_model::{Nanos, NodeId, LONG_FLOW_DSCP, PROTO_TCP};
use pathloom_scheme::Detection;

/// How long packets are copied. A connection with a tenth of 10 Mbit/s sends about twenty packets in this time.
const WINDOW: Nanos = Nanos::from_millis(250);
/// Hard time-out of the rule in seconds, in case the controller does not delete it.
const LONGEST_S: u16 = 1;
/// From the change of scheme to the first sweep. The other rules of the scheme are sent before.
const FIRST: Nanos = Nanos::from_millis(200);

/// State of the sweeps.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    /// Number of the sequence of sweeps of the scheme in charge. Timers of earlier schemes have other numbers and are
    /// ignored.
    number: u32,
    /// Whether packets are copied now.
    open: bool,
}

impl Sweeps {
    /// Starts the sweeps of a new scheme, because flows of interest can exist already.
    pub(crate) fn start(&mut self, cx: &mut Context) {
        self.number = self.number.wrapping_add(1);
        if cx.config.sweep.is_some() {
            let number = self.number;
            cx.timers.set(cx.now.saturating_add(FIRST), Timer::Sweep { number });
        }
    }

    /// Begins a sweep.
    pub(crate) fn begin(&mut self, cx: &mut Context, number: u32) {
        let Some(period) = cx.config.sweep.filter(|_| number == self.number) else { return };
        let Some(dscp) = self.copied_dscp(cx) else { return };
        for tor in cx.fabric.clone().tors().iter().copied().filter(|&tor| cx.is_ready(tor)).collect::<Vec<_>>() {
            if let Some(rule) = self.rule(cx, tor, dscp) {
                let xid = cx.next_xid();
                cx.switches[tor.index()].watch.touch(|| rule.key(), true);
                // A refusal needs no handling, because this rule does not change how packets are forwarded.
                cx.put(Output::AddRule { switch: tor, xid, rule });
            }
        }
        self.open = true;
        cx.timers.set(cx.now.saturating_add(WINDOW), Timer::SweepOver);
        cx.timers.set(cx.now.saturating_add(period), Timer::Sweep { number });
    }

    /// Ends the sweep.
    pub(crate) fn end(&mut self, cx: &mut Context) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let Some(dscp) = self.copied_dscp(cx) else { return };
        for tor in cx.fabric.clone().tors().iter().copied().filter(|&tor| cx.is_ready(tor)).collect::<Vec<_>>() {
            if let Some(rule) = self.rule(cx, tor, dscp) {
                cx.delete_rule(tor, rule.key());
            }
        }
    }

    /// The DSCP that a packet must have to be copied; `Some(None)` if all are copied. `None` if the scheme needs no
    /// flows that a sweep can find.
    fn copied_dscp(&self, cx: &Context) -> Option<Option<u8>> {
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
