//! How flows come to be known, and how they end.

use crate::controller::Controller;
use crate::cookies::{Cookie, RuleKind};
use crate::detection::{meaning, Meaning};
use crate::flows::{Flow, SourceRule};
use crate::io::Removal;
use crate::plan::{FlowKey, Version};
use crate::switches::{News, Purpose, Session, MOST_NEWS};
use pathloom_model::rules::RuleCounters;
use pathloom_model::{Attachment, FiveTuple, Headers, NodeId, PortNo};
use pathloom_scheme::{Detection, Event, FlowId, FlowView};

impl Controller {
    pub(crate) fn packet_in(&mut self, switch: NodeId, in_port: PortNo, headers: &Headers) {
        if !self.context.is_ready(switch) {
            return self.keep_news(switch, News::Packet(in_port, *headers));
        }
        let five_tuple = headers.five_tuple;
        // Only a host's own port can speak for its address.
        let at_home = |at: &Attachment| at.tor == switch && self.context.fabric.link(at.uplink).to_port == in_port;
        if self.context.attachment(five_tuple.src).filter(at_home).is_none() {
            self.context.counts.nonsense += 1;
            return;
        }
        if self.takes_packet(headers) {
            return;
        }
        match meaning(&self.context.config, &self.context.needs, headers) {
            // Known by now, or over: this packet was on its way.
            Meaning::Standing { .. } if self.flows.find(&five_tuple).is_some() => {}
            Meaning::Standing { long } => {
                let arrived = self.arrive(five_tuple, long);
                self.context.counts.standing += u64::from(arrived.is_some());
                if let Some(flow) = arrived.filter(|_| long) {
                    self.context.counts.labelled += 1;
                    self.tell(Event::FlowArrived { flow });
                }
            }
            Meaning::First { long, token, further } => {
                if let Some(id) = self.arrive(five_tuple, long) {
                    self.context.counts.labelled += u64::from(long && token.is_none());
                    if let Some(view) = self.context.view.flows.get_mut(&id) {
                        view.mptcp_token = token;
                    }
                    match token.filter(|_| further) {
                        Some(token) => self.tell(Event::SubflowArrived { flow: id, token: Some(token) }),
                        None if long => self.tell(Event::FlowArrived { flow: id }),
                        None => {}
                    }
                }
            }
            Meaning::Last => self.ended(&five_tuple),
            Meaning::Nothing => {}
        }
    }

    /// An application is about to send. Where flows are measured that tells their size, elsewhere it makes them known.
    pub(crate) fn announced(&mut self, five_tuple: FiveTuple, size_bytes: Option<u64>) {
        let long = match self.context.needs.detection {
            Detection::Nothing => return,
            Detection::Measured { .. } => false,
            Detection::Label | Detection::Announced | Detection::Any { .. } => true,
        };
        let tor = self.context.attachment(five_tuple.src).map(|at| at.tor);
        if let Some(tor) = tor.filter(|&tor| !self.context.is_ready(tor)) {
            return self.keep_news(tor, News::Announced(five_tuple, size_bytes));
        }
        let arrived = self.arrive(five_tuple, long);
        let Some(id) = arrived.or_else(|| self.flows.find(&five_tuple)) else { return };
        let Some(view) = self.context.view.flows.get_mut(&id) else { return };
        view.size_bytes = size_bytes.or(view.size_bytes.get()).into();
        if let Some(flow) = arrived.filter(|_| long) {
            self.tell(Event::FlowArrived { flow });
        }
    }

    /// Keeps what came before the rules of a ToR are known: a flow that begins may be found standing there.
    fn keep_news(&mut self, tor: NodeId, news: News) {
        let kept = &mut self.context.switches[tor.index()].news;
        if kept.len() < MOST_NEWS {
            kept.push(news);
        } else {
            self.context.counts.flows_refused += 1;
        }
    }

    /// The rules of a ToR are known now.
    pub(crate) fn read_news(&mut self, tor: NodeId) {
        for news in std::mem::take(&mut self.context.switches[tor.index()].news) {
            match news {
                News::Packet(in_port, headers) => self.packet_in(tor, in_port, &headers),
                News::Announced(five_tuple, size_bytes) => self.announced(five_tuple, size_bytes),
            }
        }
    }

    /// The connection is over, as its last packet or its application says.
    pub(crate) fn ended(&mut self, five_tuple: &FiveTuple) {
        if let Some(id) = self.flows.find(five_tuple) {
            self.finish(id);
        }
    }

    /// Takes note of a flow that begins. `None` if it is known, or cannot be.
    fn arrive(&mut self, five_tuple: FiveTuple, long: bool) -> Option<FlowId> {
        let (src, dst) = match (self.context.attachment(five_tuple.src), self.context.attachment(five_tuple.dst)) {
            (Some(src), Some(dst)) if src.address != dst.address => (src, dst),
            _ => {
                self.context.counts.nonsense += 1;
                return None;
            }
        };
        let mut plans = 0;
        if let Some(id) = self.flows.find(&five_tuple) {
            let last = self.flows.get(id)?;
            plans = last.plans;
            if !last.closed {
                // The first packet again; unless a way back turns out to be a long flow of its own.
                return (long && self.context.leads_back(id)).then(|| self.make_long(id)).flatten();
            }
            // The ports are used again before the rules of their last connection have run out.
            self.retire(id);
        }
        if self.orphans.has(&five_tuple) {
            return None;
        }
        if self.flows.of_host(src.host) >= self.context.config.max_flows_per_host {
            self.context.counts.flows_refused += 1;
            return None;
        }
        if !long && self.flows.of_host(src.host) >= self.room_to_count(src.tor) {
            self.context.counts.uncounted += 1;
            return None;
        }
        let key = FlowKey { id: self.flows.next_id(), five_tuple, src, dst, meter: None };
        self.insert_flow(Flow { plans, ..Flow::new(key) }, long);
        self.fresh.push(key.id);
        Some(key.id)
    }

    /// A flow that is known is long.
    fn make_long(&mut self, id: FlowId) -> Option<FlowId> {
        self.context.view.flows.get_mut(&id)?.long = true;
        Some(id)
    }

    /// Flows of a ToR's hosts that may still be counted.
    fn room_to_count(&self, tor: NodeId) -> u32 {
        self.context.config.max_counted_per_tor.saturating_sub(self.flows.of_tor(tor))
    }

    /// Adds a flow to what is known.
    pub(crate) fn insert_flow(&mut self, flow: Flow, long: bool) {
        let FlowKey { id, five_tuple, src, dst, .. } = flow.key;
        let view = FlowView { long, ..FlowView::new(five_tuple, &src, &dst, self.context.now) };
        self.context.counts.flows += 1;
        self.context.view.flows.insert(id, view);
        self.flows.insert(flow);
    }

    /// The flow is over: the scheme is told at once. Packets may be sent again after the last one, so the rules of a
    /// path stay until they have seen none for their idle time-out.
    pub(crate) fn finish(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id).filter(|flow| !flow.closed) else { return };
        flow.closed = true;
        let early = flow.moving.as_ref().is_some_and(|moving| moving.phase == 0);
        if self.context.view.flows.get(&id).is_some_and(|view| view.long) {
            self.tell(Event::FlowFinished { flow: id });
        } else {
            self.context.view.flows.remove(&id);
        }
        if early {
            self.undo_move(id);
        }
        self.end_back(id);
        self.end_bound(id);
        let Some(flow) = self.flows.get(id) else { return };
        let on_path = flow.moving.is_some() || flow.staying().any(|source| flow.version(source.plan).is_some());
        if !on_path {
            self.retire(id);
        }
    }

    /// Ends a flow whose five-tuple another one takes over. Returns the plans it made, from which the other goes on: its rules
    /// may stand for a while.
    pub(crate) fn replace(&mut self, id: FlowId) -> Option<u8> {
        let plans = self.flows.get(id)?.plans;
        self.finish(id);
        self.retire(id);
        Some(plans)
    }

    /// Takes away all rules of a flow that is over.
    pub(crate) fn retire(&mut self, id: FlowId) {
        if self.flows.get(id).is_some_and(|flow| flow.moving.is_some()) {
            self.undo_move(id);
        }
        let Some(flow) = self.flows.get(id) else { return };
        for plan in flow.staying().map(|source| source.plan).collect::<Vec<_>>() {
            self.leave(id, plan);
        }
        self.forget_if_done(id);
    }

    /// Forgets a flow that is over and has no rule left at its source ToR.
    pub(crate) fn forget_if_done(&mut self, id: FlowId) {
        let done = |flow: &Flow| flow.closed && flow.sources.is_empty() && flow.moving.is_none();
        if self.flows.get(id).is_some_and(done) {
            self.settle(id);
            self.forget_meter(id);
            self.flows.remove(id);
        }
    }

    /// A switch has removed a rule that was to say so.
    pub(crate) fn rule_removed(&mut self, switch: NodeId, cookie: u64, counters: RuleCounters, why: Removal) {
        let Some(Cookie { kind: RuleKind::Source, flow: id, plan }) = Cookie::decode(cookie) else { return };
        let Some(flow) = self.flows.get_mut(id).filter(|flow| flow.key.src.tor == switch) else {
            return self.orphan_rule_removed(switch, id, plan);
        };
        let Some(source) = flow.sources.iter_mut().find(|source| source.plan == plan) else { return };
        source.bytes = counters.bytes;
        if !source.leaving {
            let rests = why == Removal::Idle && self.rests(id, plan, counters.packets > 0);
            self.source_lost(id, plan, rests);
        }
    }

    /// Whether a flow whose rule ran out only rests: it has been silent for less than its time. `sent` tells whether the rule
    /// had seen a packet.
    fn rests(&mut self, id: FlowId, plan: u8, sent: bool) -> bool {
        let planner = self.context.planner();
        let (patience_s, lasted_s) = (planner.idle_timeout_s, planner.path_idle_timeout_s);
        let Some(flow) = self.flows.get_mut(id) else { return false };
        let on_path = flow.version(plan).is_some_and(|version| version.path.is_some());
        if !on_path || flow.closed || lasted_s >= patience_s {
            return false;
        }
        let before_s = if sent { 0 } else { flow.more().silent_s };
        let silent_s = before_s.saturating_add(lasted_s);
        flow.more_mut().silent_s = silent_s;
        silent_s < patience_s
    }

    /// A rule at the source ToR that was to stay is gone: nothing came for its idle time-out. A flow that `rests` gets it
    /// again.
    pub(crate) fn source_lost(&mut self, id: FlowId, plan: u8, rests: bool) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(index) = flow.sources.iter().position(|source| source.plan == plan && !source.leaving) else { return };
        let lost = flow.sources.remove(index);
        flow.count_past(lost.bytes);
        let tor = flow.tor();
        let (closed, last) = (flow.closed, flow.staying().next().is_none());
        let held = flow.more().held_until > self.context.now;
        self.context.count_rules(tor, -1);
        if !last {
            return if self.still_needed(id, plan) { self.add_source(id, lost) } else { self.settle(id) };
        }
        if (held || rests) && !closed {
            // It was told not to send, or may go on; that is no end.
            return self.add_source(id, lost);
        }
        self.finish(id);
        self.retire(id);
        self.settle(id);
    }

    /// Adds a rule at the source ToR again.
    pub(crate) fn add_source(&mut self, id: FlowId, lost: SourceRule) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let (tor, key, plan) = (flow.tor(), flow.key, lost.plan);
        let version = flow.version(plan).cloned().unwrap_or_else(|| Version::new(plan, None));
        let sent = self.context.switches[tor.index()].session == Session::Ready;
        flow.sources.push(SourceRule { bytes: 0, sent, confirmed: false, leaving: false, ..lost });
        self.context.count_rules(tor, 1);
        if sent {
            let rule = self.context.planner().source(&key, &version, lost.level);
            self.context.add_rule(tor, rule, Purpose::Count { flow: id, plan });
        }
    }
}
