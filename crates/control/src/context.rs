//! What every component of the controller works with: the time, the fabric, the settings, what schemes see, and what is sent to
//! the switches and expected from them.

use crate::config::Config;
use crate::cookies::{is_bound, is_way_back};
use crate::counts::Counts;
use crate::io::Output;
use crate::places::Places;
use crate::plan::{slowest_link, Planner};
use crate::reasons::Reasons;
use crate::switches::{Purpose, Session, Switch};
use crate::timers::Timers;
use pathloom_model::rules::{Rule, RuleKey};
use pathloom_model::search::ShortestPaths;
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkState, Nanos, NodeId};
use pathloom_scheme::{Event, FlowId, Needs, View};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::sync::Arc;

/// How long packets may be under way at most on a path of which only parts are known.
pub(crate) const UNKNOWN_DRAIN: Nanos = Nanos::from_secs(10);
/// Paths are not longer than this many shortest ones.
const DETOUR: u64 = 2;

/// What goes out.
#[derive(Debug, Default)]
struct Outbox {
    outputs: VecDeque<Output>,
    /// Number of the last message to a switch that has one.
    xid: u32,
    /// Switches that get a barrier at the next [`Context::flush`].
    wants_barrier: Vec<NodeId>,
}

/// What the components share.
pub(crate) struct Context {
    /// The time of the input at hand.
    pub now: Nanos,
    /// Settings.
    pub config: Config,
    pub fabric: Arc<Fabric>,
    /// Addresses that are elsewhere than the fabric lays them out.
    pub places: Places,
    /// What the scheme in charge needs, with the settings that override it.
    pub needs: Needs,
    /// What the scheme sees.
    pub view: View,
    /// What the scheme has not heard yet.
    pub events: VecDeque<Event>,
    pub reasons: Reasons,
    pub counts: Counts,
    pub timers: Timers,
    /// By node.
    pub switches: Vec<Switch>,
    outbox: Outbox,
    /// How long a packet may take over any link.
    slowest_link: Nanos,
}

impl Context {
    pub(crate) fn new(config: Config, fabric: Arc<Fabric>, needs: Needs) -> Context {
        Context {
            now: Nanos::ZERO,
            needs: config.needs(needs),
            view: View::new(fabric.clone()),
            places: Places::default(),
            events: VecDeque::new(),
            reasons: Reasons::default(),
            counts: Counts::default(),
            timers: Timers::default(),
            switches: fabric.nodes().iter().map(|_| Switch::default()).collect(),
            outbox: Outbox::default(),
            slowest_link: slowest_link(&fabric),
            config,
            fabric,
        }
    }

    pub(crate) fn is_switch(&self, node: NodeId) -> bool {
        self.fabric.nodes().get(node.index()).is_some_and(|_| !self.fabric.is_host(node))
    }

    /// Whether a switch can be told things now.
    pub(crate) fn is_ready(&self, switch: NodeId) -> bool {
        self.switches[switch.index()].session == Session::Ready
    }

    /// Whether one rule more fits into a switch, as far as it is known.
    pub(crate) fn has_room(&self, switch: NodeId) -> bool {
        self.config.rule_limit.is_none_or(|limit| self.switches[switch.index()].rules() < limit)
    }

    /// Where an address is: where it was placed, where the fabric lays it out, or where a prefix was placed that it is in.
    pub(crate) fn attachment(&self, address: Ipv4Addr) -> Option<Attachment> {
        self.places.attachment(&self.fabric, address)
    }

    /// Whether a flow is long, for the scheme.
    pub(crate) fn is_long(&self, flow: FlowId) -> bool {
        self.view.flows.get(&flow).is_some_and(|view| view.long)
    }

    /// Whether a flow is a way back that has not become a long flow.
    pub(crate) fn leads_back(&self, flow: FlowId) -> bool {
        is_way_back(flow) && !self.is_long(flow)
    }

    /// Whether a flow is none of the scheme's: a way back, or a direction of a connection on an assigned path.
    pub(crate) fn is_of_controller(&self, flow: FlowId) -> bool {
        is_bound(flow) || self.leads_back(flow)
    }

    /// What makes the rules of flows.
    pub(crate) fn planner(&self) -> Planner<'_> {
        let Config { priorities, idle_timeout_s, .. } = self.config;
        let idle_timeout_s = self.needs.idle_timeout_s.map_or(idle_timeout_s, NonZeroU16::get);
        let path_idle_timeout_s = self.config.path_idle_timeout_s.unwrap_or(idle_timeout_s).min(idle_timeout_s);
        let watched = self.config.is_watched();
        Planner { fabric: &self.fabric, priorities, idle_timeout_s, path_idle_timeout_s, watched }
    }

    /// How long packets of a flow may be under way on any path between its ToRs, as far as the fabric tells.
    pub(crate) fn unknown_drain(&self, five_tuple: &FiveTuple) -> Nanos {
        if let Some(drain) = self.config.drain {
            return drain;
        }
        let ends = self.attachment(five_tuple.src).zip(self.attachment(five_tuple.dst));
        let Some((src, dst)) = ends else { return UNKNOWN_DRAIN };
        let hops = ShortestPaths::between(&self.fabric, &LinkState::of(&self.fabric), src.tor, dst.tor).hops();
        let links = 2 + DETOUR * hops.unwrap_or(usize::MAX) as u64;
        Nanos(self.slowest_link.0.saturating_mul(links)).min(UNKNOWN_DRAIN)
    }

    /// How long a packet may be under way on one link, its queue included.
    pub(crate) fn link_drain(&self) -> Nanos {
        self.config.drain.unwrap_or(self.slowest_link.min(UNKNOWN_DRAIN))
    }

    /// Sends something.
    pub(crate) fn put(&mut self, output: Output) {
        self.counts.messages_out += 1;
        self.outbox.outputs.push_back(output);
    }

    /// What is to be done next, in order.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outbox.outputs.pop_front()
    }

    /// Drops jobs of the scheme that were not given out.
    pub(crate) fn drop_jobs(&mut self) {
        self.outbox.outputs.retain(|output| !matches!(output, Output::Solve { .. }));
    }

    /// Number of the next message.
    pub(crate) fn next_xid(&mut self) -> u32 {
        self.outbox.xid = self.outbox.xid.wrapping_add(1).max(1);
        self.outbox.xid
    }

    /// Number of the last message.
    pub(crate) fn last_xid(&self) -> u32 {
        self.outbox.xid
    }

    /// Adds a rule at a switch that is ready.
    pub(crate) fn add_rule(&mut self, switch: NodeId, rule: Rule, purpose: Purpose) {
        let xid = self.next_xid();
        self.switches[switch.index()].watch.touch(|| rule.key(), true);
        self.put(Output::AddRule { switch, xid, rule });
        self.await_answer(switch, xid, purpose);
    }

    /// Deletes a rule at a switch that is ready.
    pub(crate) fn delete_rule(&mut self, switch: NodeId, key: RuleKey) -> u32 {
        let xid = self.next_xid();
        self.switches[switch.index()].watch.touch(|| key, false);
        self.put(Output::DeleteRule { switch, xid, key });
        xid
    }

    /// Notes what message `xid` was for, and that a barrier must follow.
    pub(crate) fn await_answer(&mut self, switch: NodeId, xid: u32, purpose: Purpose) {
        let state = &mut self.switches[switch.index()];
        state.awaited.push_back((xid, purpose));
        if !state.wants_barrier && (purpose.is_urgent() || state.barriers.is_empty()) {
            state.wants_barrier = true;
            self.outbox.wants_barrier.push(switch);
        }
    }

    /// Whether nothing waits for [`Context::flush`] or [`Context::poll_output`].
    pub(crate) fn is_settled(&self) -> bool {
        self.outbox.wants_barrier.is_empty() && self.outbox.outputs.is_empty()
    }

    /// Sends the barriers that are wanted.
    pub(crate) fn flush(&mut self) {
        let mut wants_barrier = std::mem::take(&mut self.outbox.wants_barrier);
        for switch in wants_barrier.drain(..) {
            // A session that ended in the meantime wants none any more.
            if std::mem::take(&mut self.switches[switch.index()].wants_barrier) {
                let xid = self.next_xid();
                self.put(Output::Barrier { switch, xid });
                self.switches[switch.index()].barriers.push_back(xid);
            }
        }
        self.outbox.wants_barrier = wants_barrier;
    }

    /// A switch has answered a barrier; returns whether it was asked.
    pub(crate) fn take_barrier(&mut self, switch: NodeId, xid: u32) -> bool {
        let state = &mut self.switches[switch.index()];
        let Some(position) = state.barriers.iter().position(|&sent| sent == xid) else {
            self.counts.nonsense += 1;
            return false;
        };
        state.barriers.drain(..=position);
        true
    }

    /// What the next message was for that barrier `xid` has confirmed.
    pub(crate) fn next_confirmed(&mut self, switch: NodeId, xid: u32) -> Option<Purpose> {
        // Numbers wrap around; what was sent before the barrier is behind it by less than half of all numbers.
        let before = |sent: u32| xid.wrapping_sub(sent) < u32::MAX / 2;
        let awaited = &mut self.switches[switch.index()].awaited;
        let &(_, purpose) = awaited.front().filter(|&&(sent, _)| before(sent))?;
        awaited.pop_front();
        Some(purpose)
    }

    /// All is taken that a barrier has confirmed: the next one follows, if anything waits for it.
    pub(crate) fn barrier_done(&mut self, switch: NodeId) {
        let state = &mut self.switches[switch.index()];
        if !state.awaited.is_empty() && state.barriers.is_empty() && !state.wants_barrier {
            state.wants_barrier = true;
            self.outbox.wants_barrier.push(switch);
        }
    }

    /// A switch has refused a message: gives what that was for.
    pub(crate) fn take_refused(&mut self, switch: NodeId, xid: u32) -> Vec<Purpose> {
        let awaited = &mut self.switches[switch.index()].awaited;
        let purposes = awaited.iter().filter(|&&(sent, _)| sent == xid).map(|&(_, purpose)| purpose).collect();
        awaited.retain(|&(sent, _)| sent != xid);
        purposes
    }

    /// Changes the number of flow rules that a switch should have.
    pub(crate) fn count_rules(&mut self, switch: NodeId, added: i32) {
        let state = &mut self.switches[switch.index()];
        state.flow_rules = state.flow_rules.saturating_add_signed(added);
        self.counts.rules_max = self.counts.rules_max.max(state.rules());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::fabric_from_spec;

    #[test]
    fn a_barrier_confirms_what_was_sent_before_it_and_nothing_later() {
        let fabric = Arc::new(fabric_from_spec("leaf-spine:spines=1,leaves=2,hosts=1").unwrap());
        let switch = fabric.tors()[0];
        let mut cx = Context::new(Config::default(), fabric, Needs::NOTHING);
        // Numbers wrap around between the first message and its barrier.
        cx.outbox.xid = u32::MAX - 1;
        let send = |cx: &mut Context, number: u32| {
            let xid = cx.next_xid();
            cx.await_answer(switch, xid, Purpose::Stage { number });
        };
        send(&mut cx, 1);
        send(&mut cx, 2);
        cx.flush();
        let barrier = cx.last_xid();
        assert_eq!(barrier, 2, "0 is no number of a message");
        send(&mut cx, 3);
        assert!(!cx.take_barrier(switch, barrier + 1), "nobody sent that one");
        assert!(cx.take_barrier(switch, barrier));
        let confirmed: Vec<_> = std::iter::from_fn(|| cx.next_confirmed(switch, barrier)).collect();
        assert_eq!(confirmed, [Purpose::Stage { number: 1 }, Purpose::Stage { number: 2 }]);
        while cx.poll_output().is_some() {}
        assert_eq!((cx.counts.nonsense, cx.is_settled()), (1, false), "the third waits for a barrier");
    }
}
