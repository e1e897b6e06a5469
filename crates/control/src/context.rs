//! State that all components of the controller share: time, fabric, settings, the view of the scheme, messages to
//! send to switches, and answers that are expected from them.

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
use pathloom_model::{Address, Attachment, Fabric, FiveTuple, LinkState, Nanos, NodeId};
use pathloom_scheme::{Event, FlowId, Needs, View};
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Upper limit for the time that packets stay on a path of which only parts are known.
pub(crate) const UNKNOWN_DRAIN: Nanos = Nanos::from_secs(10);
/// A path has at most this many times the hops of a shortest path.
const DETOUR: u64 = 2;

/// Outputs that wait to be sent.
#[derive(Debug, Default)]
struct Outbox {
    outputs: VecDeque<Output>,
    /// Number of the last numbered message to a switch.
    xid: u32,
    /// Switches that get a barrier at the next [`Context::flush`].
    wants_barrier: Vec<NodeId>,
}

/// State that the components share.
pub(crate) struct Context {
    /// The time of the current input.
    pub now: Nanos,
    pub config: Config,
    pub fabric: Arc<Fabric>,
    /// Addresses that are not where the fabric specification puts them.
    pub places: Places,
    /// The needs of the scheme in charge, with the settings that override them.
    pub needs: Needs,
    /// The view of the scheme.
    pub view: View,
    /// Events that the scheme has not handled yet.
    pub events: VecDeque<Event>,
    pub reasons: Reasons,
    pub counts: Counts,
    pub timers: Timers,
    /// State of each switch, by node.
    pub switches: Vec<Switch>,
    outbox: Outbox,
    /// Longest time that a packet needs on any link of the fabric, with a full queue.
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

    /// Whether the controller can send rules to a switch now.
    pub(crate) fn is_ready(&self, switch: NodeId) -> bool {
        self.switches[switch.index()].session == Session::Ready
    }

    /// Number of rules that a switch may have, if it is limited: by the configuration, or by what its table can hold.
    /// Tables may share their memory, so rules of other tables count too.
    pub(crate) fn rule_limit(&self, switch: NodeId) -> Option<u32> {
        [self.config.rule_limit, self.switches[switch.index()].capacity].into_iter().flatten().min()
    }

    /// Number of rules for which a switch has room, besides those that moves in progress will add. `None` if it is not
    /// limited.
    pub(crate) fn free_rules(&self, switch: NodeId) -> Option<u32> {
        let state = &self.switches[switch.index()];
        self.rule_limit(switch).map(|limit| limit.saturating_sub(state.rules() + state.planned_rules))
    }

    /// Whether a switch has room for one more rule.
    pub(crate) fn has_room(&self, switch: NodeId) -> bool {
        self.free_rules(switch) != Some(0)
    }

    /// Returns the place of an address: where the address was placed, else where the fabric has it, else where the
    /// longest placed prefix that contains it is.
    pub(crate) fn attachment(&self, address: Address) -> Option<Attachment> {
        self.places.attachment(&self.fabric, address)
    }

    /// Whether the scheme treats a flow as long.
    pub(crate) fn is_long(&self, flow: FlowId) -> bool {
        self.view.flows.get(&flow).is_some_and(|view| view.long)
    }

    /// Whether a flow is a way back that has not become a long flow.
    pub(crate) fn is_way_back_only(&self, flow: FlowId) -> bool {
        is_way_back(flow) && !self.is_long(flow)
    }

    /// Whether the controller, not the scheme, manages a flow: a way back, or a direction of a connection on an
    /// assigned path.
    pub(crate) fn is_of_controller(&self, flow: FlowId) -> bool {
        is_bound(flow) || self.is_way_back_only(flow)
    }

    /// Returns the planner, which makes the rules of flows.
    pub(crate) fn planner(&self) -> Planner<'_> {
        let Config { priorities, idle_timeout_s, .. } = self.config;
        let idle_timeout_s = self.needs.idle_timeout_s.map_or(idle_timeout_s, NonZeroU16::get);
        let path_idle_timeout_s = self.config.path_idle_timeout_s.unwrap_or(idle_timeout_s).min(idle_timeout_s);
        let watched = self.config.is_watched();
        Planner { fabric: &self.fabric, priorities, idle_timeout_s, path_idle_timeout_s, watched }
    }

    /// Upper limit for the time that packets of a flow stay on any path between its ToRs, as far as the fabric shows.
    pub(crate) fn unknown_drain(&self, five_tuple: &FiveTuple) -> Nanos {
        if let Some(drain) = self.config.drain {
            return drain;
        }
        let ends = self.attachment(five_tuple.src()).zip(self.attachment(five_tuple.dst()));
        let Some((src, dst)) = ends else { return UNKNOWN_DRAIN };
        let hops = ShortestPaths::between(&self.fabric, &LinkState::of(&self.fabric), src.tor, dst.tor).hops();
        let links = 2 + DETOUR * hops.unwrap_or(usize::MAX) as u64;
        Nanos(self.slowest_link.0.saturating_mul(links)).min(UNKNOWN_DRAIN)
    }

    /// Upper limit for the time that a packet stays on one link, including its queue.
    pub(crate) fn link_drain(&self) -> Nanos {
        self.config.drain.unwrap_or(self.slowest_link.min(UNKNOWN_DRAIN))
    }

    /// Queues an output.
    pub(crate) fn put(&mut self, output: Output) {
        self.counts.messages_out += 1;
        self.outbox.outputs.push_back(output);
    }

    /// Returns the next output to carry out. Outputs come in order.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outbox.outputs.pop_front()
    }

    /// Drops jobs of the scheme that the driver has not received yet.
    pub(crate) fn drop_jobs(&mut self) {
        self.outbox.outputs.retain(|output| !matches!(output, Output::Solve { .. }));
    }

    /// Returns a number for the next message.
    pub(crate) fn next_xid(&mut self) -> u32 {
        self.outbox.xid = self.outbox.xid.wrapping_add(1).max(1);
        self.outbox.xid
    }

    /// Number of the last message.
    pub(crate) fn last_xid(&self) -> u32 {
        self.outbox.xid
    }

    /// Adds a rule at a switch whose session is ready.
    pub(crate) fn add_rule(&mut self, switch: NodeId, rule: Rule, purpose: Purpose) {
        let xid = self.next_xid();
        self.switches[switch.index()].watch.touch(|| rule.key(), true);
        self.put(Output::AddRule { switch, xid, rule });
        self.await_answer(switch, xid, purpose);
    }

    /// Deletes a rule at a switch whose session is ready. Returns the number of the message.
    pub(crate) fn delete_rule(&mut self, switch: NodeId, key: RuleKey) -> u32 {
        let xid = self.next_xid();
        self.switches[switch.index()].watch.touch(|| key, false);
        self.put(Output::DeleteRule { switch, xid, key });
        xid
    }

    /// Records the purpose of message `xid`, and that a barrier must follow.
    pub(crate) fn await_answer(&mut self, switch: NodeId, xid: u32, purpose: Purpose) {
        let state = &mut self.switches[switch.index()];
        state.awaited.push_back((xid, purpose));
        if !state.wants_barrier && (purpose.is_urgent() || state.barriers.is_empty()) {
            state.wants_barrier = true;
            self.outbox.wants_barrier.push(switch);
        }
    }

    /// Whether no barrier waits for [`Context::flush`] and no output waits for [`Context::poll_output`].
    pub(crate) fn is_settled(&self) -> bool {
        self.outbox.wants_barrier.is_empty() && self.outbox.outputs.is_empty()
    }

    /// Sends the barriers that are needed.
    pub(crate) fn flush(&mut self) {
        let mut wants_barrier = std::mem::take(&mut self.outbox.wants_barrier);
        for switch in wants_barrier.drain(..) {
            // A switch whose session ended in the meantime needs no barrier.
            if std::mem::take(&mut self.switches[switch.index()].wants_barrier) {
                let xid = self.next_xid();
                self.put(Output::Barrier { switch, xid });
                self.switches[switch.index()].barriers.push_back(xid);
            }
        }
        self.outbox.wants_barrier = wants_barrier;
    }

    /// Handles the answer of a switch to a barrier. Returns whether this barrier was sent.
    pub(crate) fn take_barrier(&mut self, switch: NodeId, xid: u32) -> bool {
        let state = &mut self.switches[switch.index()];
        let Some(position) = state.barriers.iter().position(|&sent| sent == xid) else {
            self.counts.invalid_inputs += 1;
            return false;
        };
        state.barriers.drain(..=position);
        true
    }

    /// Returns the purpose of the next message that barrier `xid` confirms.
    pub(crate) fn next_confirmed(&mut self, switch: NodeId, xid: u32) -> Option<Purpose> {
        // Numbers wrap around. The number of a message before the barrier is less than half the number range below
        // that of the barrier.
        let before = |sent: u32| xid.wrapping_sub(sent) < u32::MAX / 2;
        let awaited = &mut self.switches[switch.index()].awaited;
        let &(_, purpose) = awaited.front().filter(|&&(sent, _)| before(sent))?;
        awaited.pop_front();
        Some(purpose)
    }

    /// All messages that a barrier confirms have been handled. If other messages wait for confirmation, the next
    /// barrier follows.
    pub(crate) fn barrier_done(&mut self, switch: NodeId) {
        let state = &mut self.switches[switch.index()];
        if !state.awaited.is_empty() && state.barriers.is_empty() && !state.wants_barrier {
            state.wants_barrier = true;
            self.outbox.wants_barrier.push(switch);
        }
    }

    /// Returns the purposes of a message that a switch refused.
    pub(crate) fn take_refused(&mut self, switch: NodeId, xid: u32) -> Vec<Purpose> {
        let awaited = &mut self.switches[switch.index()].awaited;
        let purposes = awaited.iter().filter(|&&(sent, _)| sent == xid).map(|&(_, purpose)| purpose).collect();
        awaited.retain(|&(sent, _)| sent != xid);
        purposes
    }

    /// Changes the number of flow rules that moves in progress will add to a switch.
    pub(crate) fn plan_rules(&mut self, switch: NodeId, added: i32) {
        let state = &mut self.switches[switch.index()];
        state.planned_rules = state.planned_rules.saturating_add_signed(added);
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
    use pathloom_fabrics::fabric_from_spec;

    #[test]
    fn a_barrier_confirms_only_earlier_messages() {
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
        assert_eq!(barrier, 2, "0 is not used as a number");
        send(&mut cx, 3);
        assert!(!cx.take_barrier(switch, barrier + 1), "no barrier with this number was sent");
        assert!(cx.take_barrier(switch, barrier));
        let confirmed: Vec<_> = std::iter::from_fn(|| cx.next_confirmed(switch, barrier)).collect();
        assert_eq!(confirmed, [Purpose::Stage { number: 1 }, Purpose::Stage { number: 2 }]);
        while cx.poll_output().is_some() {}
        assert_eq!((cx.counts.invalid_inputs, cx.is_settled()), (1, false), "the third waits for a barrier");
    }
}
