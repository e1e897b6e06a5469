//! Limits the rates of flows, either at their hosts or by meters at their source ToRs.
//!
//! A meter drops excess packets. Therefore a host that paces itself is better, if there is one. With
//! [`Enforcement::Any`], the controller uses for each flow what its host supports, and changes when an agent comes or
//! goes. The rule that counts the flow at its source ToR contains the meter. To set or remove the meter, the rule is
//! added again, which resets its counters. Therefore they are read just before. Only the bytes that the switch
//! forwards between its answer and the change are not counted.

use crate::config::Enforcement;
use crate::context::Context;
use crate::flows::{note, Flow, FlowTable};
use crate::io::Output;
use crate::plan::Version;
use crate::reasons::Decision;
use crate::switches::Purpose;
use crate::timers::Timer;
use pathloom_model::rules::{Meter, MeterId, Rule};
use pathloom_model::{Nanos, NodeId, PROTO_TCP};
use pathloom_scheme::FlowId;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// First identifier of the meters of the controller. Meters below it belong to others and are not changed.
pub const FIRST_METER: u32 = 0x1000;
/// First identifier after the meters of the controller.
const END_OF_METERS: u32 = 0xF000;
/// Duration of a meter's burst at the meter's rate, in milliseconds.
const BURST_MS: u64 = 50;
/// Smallest burst, because TCP sends in bursts. With a fifth of it, flows with meters on links of 10 Mbit/s lose
/// twice as many packets and take 8 % longer.
const LEAST_BURST_BYTES: u64 = 100 * 1518;

/// How long an adopted flow keeps a meter whose rate nobody has said. The scheme of the controller that set it may not be in
/// charge any more. Agents keep rates for the same time after their controller is lost.
const UNKNOWN_KEPT: Nanos = Nanos::from_secs(15);

/// The meters of one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meters {
    used: BTreeSet<u32>,
    last: u32,
}

impl Meters {
    /// Reserves an identifier that is not in use; `None` if all are in use.
    fn take(&mut self) -> Option<MeterId> {
        let after = self.last.clamp(FIRST_METER, END_OF_METERS - 1) + 1;
        let free = (after..END_OF_METERS).chain(FIRST_METER..after).find(|id| !self.used.contains(id))?;
        self.last = free;
        self.used.insert(free);
        Some(MeterId(free))
    }

    /// Marks an identifier as used, because a rule or a snapshot contains it.
    pub(crate) fn mark(&mut self, id: MeterId) {
        self.used.insert(id.0);
    }

    fn free(&mut self, id: MeterId) {
        self.used.remove(&id.0);
    }
}

/// Returns the meter that enforces a rate.
fn meter(id: MeterId, rate_bps: u64) -> Meter {
    let burst_bytes = (rate_bps / 8 / 1000).saturating_mul(BURST_MS).max(LEAST_BURST_BYTES);
    Meter { id, rate_bps, burst_bytes }
}

/// The host whose agent has a flow: that of its sender's address in the fabric. If the address has moved to the port of
/// another host, with a virtual machine or a container, its agent has moved with it and names it as before.
fn agent_of(cx: &Context, flow: &Flow) -> NodeId {
    cx.fabric.attachment(flow.key.five_tuple.src()).map_or(flow.key.src.host, |at| at.host)
}

/// Releases the released flows of a host again, because a message to its last agent may have been lost. If it was not,
/// the agent ignores the second one.
fn repeat_releases(cx: &mut Context, flows: &FlowTable, host: NodeId) {
    for (_, flow) in flows.iter().filter(|(_, flow)| !flow.closed) {
        if flow.extras().released && agent_of(cx, flow) == host {
            cx.put(Output::ReleaseFlow { host, five_tuple: flow.key.five_tuple });
        }
    }
}

/// The meters and agents that enforce rate limits.
pub(crate) struct Limits {
    /// Meters of each switch, by node.
    meters: Vec<Meters>,
    /// Hosts that have an agent.
    agents: BTreeSet<NodeId>,
}

impl Limits {
    pub(crate) fn new(nodes: usize) -> Limits {
        Limits { meters: vec![Meters::default(); nodes], agents: BTreeSet::new() }
    }

    /// An agent of a host came or went. An agent that came gets the releases and the rates of the host's flows; without
    /// one, meters enforce the rates if they may.
    pub(crate) fn agent(&mut self, cx: &mut Context, flows: &mut FlowTable, host: NodeId, speaks: bool) {
        let changed = if speaks { self.agents.insert(host) } else { self.agents.remove(&host) };
        if speaks {
            repeat_releases(cx, flows, host);
        }
        let matters = match cx.config.enforcement.unwrap_or_default() {
            Enforcement::Any => changed || speaks,
            Enforcement::Host => speaks,
            Enforcement::Meter => false,
        };
        if !matters {
            return;
        }
        let paced: Vec<(FlowId, u64)> = (flows.iter())
            .filter(|(_, flow)| agent_of(cx, flow) == host)
            .filter_map(|(id, flow)| Some((id, flow.extras().pace_bps?)))
            .collect();
        for (id, rate_bps) in paced {
            self.pace(cx, flows, id, Some(rate_bps));
        }
    }

    /// Whether the rate of a flow is enforced by a meter, not by its host.
    fn is_metered(&self, cx: &Context, flow: &Flow) -> bool {
        match cx.config.enforcement.unwrap_or_default() {
            Enforcement::Host => false,
            Enforcement::Meter => true,
            Enforcement::Any => flow.key.five_tuple.proto() != PROTO_TCP || !self.agents.contains(&agent_of(cx, flow)),
        }
    }

    /// Marks a meter as used, because a rule or a snapshot contains it.
    pub(crate) fn mark(&mut self, switch: NodeId, meter: MeterId) {
        self.meters[switch.index()].mark(meter);
    }

    /// A flow is adopted whose rules have a meter. Its rate is not known, so it must be said soon.
    pub(crate) fn adopted(&mut self, cx: &mut Context, flow: FlowId, switch: NodeId, meter: MeterId) {
        self.mark(switch, meter);
        cx.timers.set(cx.now.saturating_add(UNKNOWN_KEPT), Timer::UnknownMeter { flow });
    }

    /// Removes the meter of an adopted flow, if the scheme has not said its rate.
    pub(crate) fn end_unknown(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId) {
        let unknown = |flow: &Flow| flow.key.meter.is_some() && flow.extras().pace_bps.is_none();
        if flows.get(id).is_some_and(unknown) {
            self.lift_meter(cx, flows, id);
        }
    }

    /// Carries out [`pathloom_scheme::Action::Hold`].
    pub(crate) fn hold(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId, lease: Nanos) {
        let until = cx.now.saturating_add(lease);
        if let Some(flow) = flows.get_mut(id).filter(|flow| !flow.closed) {
            let extras = flow.extras_mut();
            (extras.held_until, extras.released) = (until, false);
            let (host, five_tuple) = (agent_of(cx, flow), flow.key.five_tuple);
            cx.put(Output::HoldFlow { host, five_tuple, lease });
            note(cx, flows, id, Decision::Hold);
        }
    }

    /// Carries out [`pathloom_scheme::Action::Pace`].
    pub(crate) fn pace(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId, rate_bps: Option<u64>) {
        let Some(flow) = flows.get_mut(id).filter(|flow| !flow.closed) else { return };
        if rate_bps.is_some() || flow.extras.is_some() {
            flow.extras_mut().pace_bps = rate_bps;
        }
        let (metered, has_meter) = (self.is_metered(cx, flow), flow.key.meter.is_some());
        match rate_bps {
            Some(rate_bps) if metered => {
                if !self.set_meter(cx, flows, id, rate_bps) {
                    self.pace_by_host(cx, flows, id);
                }
            }
            None if has_meter => self.lift_meter(cx, flows, id),
            _ => {
                // An agent has come and replaces the meter.
                if has_meter {
                    self.lift_meter(cx, flows, id);
                }
                self.pace_by_host(cx, flows, id);
            }
        }
    }

    /// Carries out [`pathloom_scheme::Action::Release`].
    pub(crate) fn release(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId) {
        if let Some(flow) = flows.get_mut(id).filter(|flow| !flow.closed) {
            // Its host may hold the flow for an earlier start of the controller, which no snapshot has told.
            let extras = flow.extras_mut();
            (extras.held_until, extras.released) = (Nanos::ZERO, true);
            let (host, five_tuple) = (agent_of(cx, flow), flow.key.five_tuple);
            cx.put(Output::ReleaseFlow { host, five_tuple });
            note(cx, flows, id, Decision::Release);
        }
    }

    /// The scheme in charge is replaced. Nobody will renew its leases or change its rates, so its limits are removed.
    /// Leases end at once, or when the agent of the host connects again.
    pub(crate) fn lift_all(&mut self, cx: &mut Context, flows: &mut FlowTable) {
        let limited = |flow: &Flow| flow.extras.is_some() || flow.key.meter.is_some();
        let limited: Vec<FlowId> = flows.iter().filter(|(_, flow)| limited(flow)).map(|(id, _)| id).collect();
        for id in limited {
            self.lift(cx, flows, id);
        }
    }

    /// Removes the limits of a flow.
    pub(crate) fn lift(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId) {
        let Some((flow, extras)) = flows.get(id).map(|flow| (flow, flow.extras())) else { return };
        let (paced, held) = (extras.pace_bps.is_some() || flow.key.meter.is_some(), extras.held_until > cx.now);
        if paced {
            self.pace(cx, flows, id, None);
        }
        if held {
            self.release(cx, flows, id);
        }
    }

    fn pace_by_host(&mut self, cx: &mut Context, flows: &FlowTable, id: FlowId) {
        let Some(flow) = flows.get(id) else { return };
        let (host, five_tuple, rate_bps) = (agent_of(cx, flow), flow.key.five_tuple, flow.extras().pace_bps);
        cx.put(Output::PaceFlow { host, five_tuple, rate_bps });
    }

    /// Gives a flow a meter, or changes the rate of its meter. Returns false if no identifier was free.
    fn set_meter(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId, rate_bps: u64) -> bool {
        let Some(flow) = flows.get_mut(id) else { return false };
        let (tor, had) = (flow.tor(), flow.key.meter);
        let Some(name) = had.or_else(|| self.meters[tor.index()].take()) else { return false };
        flow.key.meter = Some(name);
        self.send_meter(cx, flows, id, rate_bps);
        if had.is_none() {
            self.renew_sources(cx, flows, id);
        }
        true
    }

    fn send_meter(&mut self, cx: &mut Context, flows: &FlowTable, id: FlowId, rate_bps: u64) {
        let Some(flow) = flows.get(id) else { return };
        let (switch, Some(name)) = (flow.tor(), flow.key.meter) else { return };
        if cx.is_ready(switch) {
            let xid = cx.next_xid();
            cx.put(Output::AddMeter { switch, xid, meter: meter(name, rate_bps) });
            cx.await_answer(switch, xid, Purpose::Meter { flow: id });
        }
    }

    /// Removes the meter of a flow from its rules, and deletes it.
    fn lift_meter(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId) {
        let Some(flow) = flows.get_mut(id) else { return };
        let tor = flow.tor();
        let Some(name) = flow.key.meter.take() else { return };
        self.renew_sources(cx, flows, id);
        self.delete_meter(cx, tor, name);
    }

    /// Deletes a meter that no rule uses any more.
    pub(crate) fn delete_meter(&mut self, cx: &mut Context, switch: NodeId, meter: MeterId) {
        self.meters[switch.index()].free(meter);
        if cx.is_ready(switch) {
            let xid = cx.next_xid();
            cx.put(Output::DeleteMeter { switch, xid, meter });
        }
    }

    /// Adds the rules of a flow at its source ToR again, with the meter that they should have now.
    fn renew_sources(&mut self, cx: &mut Context, flows: &FlowTable, id: FlowId) {
        let Some(flow) = flows.get(id) else { return };
        let (switch, key) = (flow.tor(), flow.key);
        if !cx.is_ready(switch) {
            return;
        }
        let rules: Vec<(u8, Version, u8)> = flow
            .staying()
            .filter(|source| source.sent)
            .map(|source| {
                let version = flow.version(source.plan).cloned();
                (source.plan, version.unwrap_or_else(|| Version::new(source.plan, None)), source.level)
            })
            .collect();
        if !rules.is_empty() {
            cx.put(Output::FlowStatsRequest { switch });
        }
        for (plan, version, level) in rules {
            let rule = cx.planner().source(&key, &version, level);
            cx.add_rule(switch, rule, Purpose::Renewed { flow: id, plan });
        }
    }

    /// A switch refused a meter, or a rule because of its meter. The host must enforce the rate.
    pub(crate) fn meter_refused(&mut self, cx: &mut Context, flows: &mut FlowTable, id: FlowId) {
        let Some(flow) = flows.get(id).filter(|flow| flow.key.meter.is_some()) else { return };
        let paced = !flow.closed && flow.extras().pace_bps.is_some();
        self.lift_meter(cx, flows, id);
        if paced {
            self.pace_by_host(cx, flows, id);
        }
    }

    /// Deletes a found rule that is not needed, and its meter.
    pub(crate) fn delete_found(&mut self, cx: &mut Context, flows: &FlowTable, switch: NodeId, rule: &Rule) {
        cx.delete_rule(switch, rule.key());
        self.meter_unnamed(cx, flows, switch, rule);
    }

    /// A found rule was removed. Deletes its meter, unless a flow uses it.
    pub(crate) fn meter_unnamed(&mut self, cx: &mut Context, flows: &FlowTable, switch: NodeId, rule: &Rule) {
        let Some(name) = rule.meter.filter(|name| (FIRST_METER..END_OF_METERS).contains(&name.0)) else { return };
        if !flows.iter().any(|(_, flow)| flow.tor() == switch && flow.key.meter == Some(name)) {
            self.delete_meter(cx, switch, name);
        }
    }

    /// A flow is removed. Deletes its meter, which no rule uses any more.
    pub(crate) fn forget(&mut self, cx: &mut Context, flows: &FlowTable, id: FlowId) {
        if let Some((tor, Some(name))) = flows.get(id).map(|flow| (flow.tor(), flow.key.meter)) {
            self.delete_meter(cx, tor, name);
        }
    }

    /// A review has read the meters of a switch, and those that its rules use (`named`). Meters of flows that somebody
    /// deleted are added again. Meters that nothing uses are deleted: a switch refuses to delete a meter while it has a
    /// rule with it, and may have refused to replace this rule.
    pub(crate) fn review(
        &mut self,
        cx: &mut Context,
        flows: &FlowTable,
        switch: NodeId,
        meters: &[Meter],
        named: &FxHashSet<MeterId>,
    ) {
        let ours = meters.iter().map(|meter| meter.id).filter(|id| (FIRST_METER..END_OF_METERS).contains(&id.0));
        for name in ours.filter(|name| !named.contains(name)) {
            if !self.meters[switch.index()].used.contains(&name.0) {
                self.delete_meter(cx, switch, name);
            }
        }
        let there = |name: MeterId| meters.iter().any(|meter| meter.id == name);
        if self.meters[switch.index()].used.iter().all(|&name| there(MeterId(name))) {
            return;
        }
        let lacks = |flow: &Flow| flow.tor() == switch && flow.key.meter.is_some_and(|name| !there(name));
        let lacking: Vec<(FlowId, u64)> = flows
            .iter()
            .filter(|(_, flow)| lacks(flow))
            .filter_map(|(id, flow)| Some((id, flow.extras().pace_bps?)))
            .collect();
        for (id, rate_bps) in lacking {
            self.send_meter(cx, flows, id, rate_bps);
        }
    }

    /// The meters of a switch are known. The meters of its flows are added again, and those that no rule uses are
    /// deleted.
    pub(crate) fn reconcile(
        &mut self,
        cx: &mut Context,
        flows: &mut FlowTable,
        switch: NodeId,
        meters: &[Meter],
        named: &BTreeSet<MeterId>,
    ) {
        let of_flows: Vec<(FlowId, MeterId, Option<u64>)> = flows
            .iter()
            .filter(|(_, flow)| flow.tor() == switch)
            .filter_map(|(id, flow)| Some((id, flow.key.meter?, flow.extras().pace_bps)))
            .collect();
        for &(id, name, rate_bps) in &of_flows {
            match rate_bps {
                Some(rate_bps) => self.send_meter(cx, flows, id, rate_bps),
                // The rate is not known, so the meter cannot be added again. Rules must not use a missing meter.
                None if !meters.iter().any(|meter| meter.id == name) => {
                    flows.get_mut(id).into_iter().for_each(|flow| flow.key.meter = None);
                }
                None => {}
            }
        }
        let kept = |name: MeterId| named.contains(&name) || of_flows.iter().any(|&(_, other, _)| other == name);
        let ours = meters.iter().map(|meter| meter.id).filter(|id| (FIRST_METER..END_OF_METERS).contains(&id.0));
        for name in ours {
            if kept(name) {
                self.meters[switch.index()].mark(name);
            } else {
                self.delete_meter(cx, switch, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meter_identifiers_are_reused_as_late_as_possible() {
        let mut meters = Meters::default();
        let first = meters.take().unwrap();
        let second = meters.take().unwrap();
        assert!(first.0 >= FIRST_METER && second != first);
        meters.free(first);
        assert!(![first, second].contains(&meters.take().unwrap()));
        let left = (FIRST_METER..END_OF_METERS).filter_map(|_| meters.take()).count();
        assert_eq!(left as u32, END_OF_METERS - FIRST_METER - 2);
        assert_eq!(meters.take(), None);
        meters.free(second);
        assert_eq!(meters.take(), Some(second));
    }

    #[test]
    fn a_burst_has_a_minimum_size() {
        assert_eq!(meter(MeterId(1), 1_000_000).burst_bytes, LEAST_BURST_BYTES);
        assert_eq!(meter(MeterId(1), 1_000_000_000).burst_bytes, 6_250_000);
    }
}
