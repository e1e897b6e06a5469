//! Handles sessions and ports that come up or go down, the rules of a switch at the start of a session, confirmations
//! and refusals.

use crate::controller::Controller;
use crate::io::{Output, Target};
use crate::links::Report;
use crate::reasons::Decision;
use crate::switches::{Purpose, Session};
use crate::timers::Timer;
use pathloom_model::rules::{Group, Meter, Refusal, Rule};
use pathloom_model::{LinkId, Nanos, NodeId, PortNo, Prefix};
use pathloom_scheme::Event;

/// Wait before the rules of a switch are read again after a refusal. It is doubled for each refusal in a row, up to
/// 64 times.
const READ_AGAIN: Nanos = Nanos::from_secs(1);

impl Controller {
    /// Opens a session. Tables are never cleared: the controller reads the rules of the switch first, and then sends
    /// only the differences.
    pub(crate) fn switch_up(&mut self, switch: NodeId, ports_down: &[PortNo]) {
        if self.context.switches[switch.index()].session != Session::Down {
            self.switch_down(switch);
        }
        let state = &mut self.context.switches[switch.index()];
        state.session = Session::Reading;
        state.no_more_groups = false;
        for port in (1..=self.context.fabric.node(switch).ports.len() as u32).map(PortNo) {
            self.port_status(switch, port, !ports_down.contains(&port));
        }
        self.context.put(Output::DumpRequest { switch });
        self.drains.session_begun(&mut self.context);
    }

    pub(crate) fn switch_down(&mut self, switch: NodeId) {
        let cx = &mut self.context;
        cx.switches[switch.index()].close();
        self.polling.session_lost(cx.now, switch);
        self.drains.session_lost(cx, switch);
        self.routes.session_lost(cx, switch);
    }

    pub(crate) fn port_status(&mut self, switch: NodeId, port: PortNo, up: bool) {
        let cx = &mut self.context;
        let Some(link) = cx.fabric.out_link(switch, port) else {
            cx.counts.invalid_inputs += 1;
            return;
        };
        self.link_loads.port_changed(cx, link);
        match self.cables.report(cx.now, link, up, &cx.view.links) {
            Report::Same => {}
            Report::Now(up) => self.set_link(link, up),
            Report::Later { at, changes } => cx.timers.set(at, Timer::LinkQuiet { link, changes }),
        }
    }

    pub(crate) fn link_quiet(&mut self, link: LinkId, changes: u64) {
        if self.cables.is_quiet(link, changes) {
            self.set_link(link, true);
        }
    }

    fn set_link(&mut self, link: LinkId, up: bool) {
        let Controller { context: cx, routes, .. } = self;
        let useless = cx.fabric.link(link).settings.rate_bps == 0 || self.drains.out.covers(&cx.fabric, link);
        if up && useless {
            return;
        }
        // Only the switch reports the state of the link to a host.
        if !cx.view.links.set_cable(link, up) || !cx.fabric.is_switch_link(link) {
            return;
        }
        self.base.may_have_changed();
        if !up {
            routes.rescue_from(cx, link);
        }
        for link in [link.min(link.reverse()), link.max(link.reverse())] {
            cx.events.push_back(Event::LinkChanged { link, up });
        }
        routes.reassign(cx);
    }

    /// Carries out [`crate::Input::Drain`].
    pub(crate) fn drain(&mut self, target: Target, out: bool) {
        let Controller { context: cx, routes, base, drains, cables, .. } = self;
        if drains.check(cx, target, out).is_err() {
            cx.counts.invalid_inputs += 1;
            return;
        }
        drains.drain(cx, base, cables, target, out);
        routes.reassign(cx);
        if out {
            drains.leave_time(cx);
        }
    }

    /// Carries out [`crate::Input::Place`].
    pub(crate) fn place(&mut self, prefix: Prefix, at: Option<(NodeId, PortNo)>) {
        let Controller { context: cx, routes, base, .. } = self;
        match cx.places.place(&cx.fabric, prefix, at) {
            None => cx.counts.invalid_inputs += 1,
            Some(false) => {}
            Some(true) => {
                base.may_have_changed();
                routes.places_moved(cx);
            }
        }
    }

    /// Handles the rules of a switch. At the start of a session all rules are compared with those that the switch
    /// should have; after a refusal only those of no single flow.
    pub(crate) fn rule_dump(&mut self, switch: NodeId, rules: Vec<Rule>, groups: &[Group], meters: &[Meter]) {
        let state = &mut self.context.switches[switch.index()];
        let first = state.session == Session::Reading;
        let again = state.session == Session::Ready && state.reread;
        if !(first || again) {
            self.context.counts.invalid_inputs += 1;
            return;
        }
        state.session = Session::Ready;
        state.reread = false;
        let known = std::mem::replace(&mut state.read, true);
        self.base.found(&mut self.context, switch, &rules, groups);
        if !known {
            let (cx, found) = (&self.context, &self.base.tables[switch.index()].defaults);
            // Addresses that an earlier start of the controller placed there must be known before the first
            // comparison.
            for (prefix, port) in cx.places.unplaced(&cx.fabric, switch, found.single_addresses()) {
                self.place(prefix, Some((switch, port)));
            }
        }
        let Controller { context: cx, routes, base, drains, .. } = self;
        drains.rules_read(cx, base, &routes.assignments, switch);
        if first {
            routes.rules.labels.reconcile(cx, switch, &rules);
            let named = rules.iter().filter_map(|rule| rule.meter).collect();
            routes.rules.limits.reconcile(cx, &mut routes.rules.flows, switch, meters, &named);
            routes.reconcile_flows(cx, switch, rules);
        }
    }

    /// Reads the rules of a switch again, in order to add the refused ones.
    pub(crate) fn reread(&mut self, switch: NodeId) {
        if self.context.is_ready(switch) && self.context.switches[switch.index()].reread {
            self.context.put(Output::DumpRequest { switch });
        }
    }

    pub(crate) fn barrier_reply(&mut self, switch: NodeId, xid: u32) {
        if self.context.take_barrier(switch, xid) {
            while let Some(purpose) = self.context.next_confirmed(switch, xid) {
                self.confirmed(switch, purpose);
            }
            self.context.barrier_done(switch);
        }
    }

    /// Handles the confirmation of a message with this purpose.
    fn confirmed(&mut self, switch: NodeId, purpose: Purpose) {
        let Controller { context: cx, routes, drains, .. } = self;
        match purpose {
            Purpose::Step { flow, number } => routes.step_confirmed(cx, flow, number),
            Purpose::Gone { flow, plan } => routes.rules.gone(cx, flow, plan),
            Purpose::Count { flow, plan } => routes.rules.count_confirmed(flow, plan),
            Purpose::Base | Purpose::Copies => {
                let state = &mut cx.switches[switch.index()];
                state.refusals = if state.reread { state.refusals } else { 0 };
            }
            Purpose::Label { label } => routes.rules.labels.confirm(switch, label),
            Purpose::Renewed { flow, plan } => routes.rules.flows.count_anew(flow, plan),
            Purpose::Stage { number } => drains.stage_confirmed(cx, switch, number),
            Purpose::Hop { .. } | Purpose::Meter { .. } => {}
        }
    }

    /// Handles the refusal of a message.
    pub(crate) fn refused(&mut self, switch: NodeId, xid: u32, why: Refusal) {
        self.context.counts.refused += 1;
        for purpose in self.context.take_refused(switch, xid) {
            let Controller { context: cx, routes, drains, .. } = self;
            match purpose {
                Purpose::Step { flow, number } => routes.step_refused(cx, switch, flow, number, why),
                Purpose::Count { flow, plan } => routes.count_refused(cx, flow, plan),
                Purpose::Gone { flow, plan } => routes.rules.gone(cx, flow, plan),
                Purpose::Hop { flow } => routes.unroute_by(cx, flow, Decision::Unroute),
                Purpose::Meter { flow } => routes.rules.limits.meter_refused(cx, &mut routes.rules.flows, flow),
                // The old rule is still there (OpenFlow 1.3 §6.4: a refused message changes nothing).
                Purpose::Renewed { flow, .. } => routes.rules.limits.meter_refused(cx, &mut routes.rules.flows, flow),
                Purpose::Label { label } => routes.label_refused(cx, switch, label),
                // No message has this number, so no switch refuses it.
                Purpose::Stage { number } => drains.stage_confirmed(cx, switch, number),
                Purpose::Base | Purpose::Copies => {
                    let state = &mut cx.switches[switch.index()];
                    state.no_more_groups |= matches!(why, Refusal::GroupsFull | Refusal::GroupUnsupported);
                    if !std::mem::replace(&mut state.reread, true) {
                        let wait = Nanos(READ_AGAIN.0 << state.refusals.min(6));
                        state.refusals += 1;
                        cx.timers.set(cx.now.saturating_add(wait), Timer::Reread { switch });
                    }
                }
            }
        }
    }
}
