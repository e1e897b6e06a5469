//! The controller: inputs in, outputs out, and the scheme in between.

use crate::assignments::Assignments;
use crate::config::Config;
use crate::cookies::is_bound;
use crate::counts::Counts;
use crate::defaults::{Compiler, Routes};
use crate::drain::{Drains, Staged};
use crate::flows::{Draining, FlowTable};
use crate::io::{Input, Output};
use crate::labels::Labels;
use crate::link_loads::LinkLoads;
use crate::links::Cables;
use crate::orphans::Orphans;
use crate::places::Places;
use crate::plan::{Planner, Step};
use crate::polling::{Polling, Reading};
use crate::reasons::{Cause, Decision, Reasons};
use crate::review::Reviews;
use crate::sfmm::{self, CutoverOrder};
use crate::sweep::Sweeps;
use crate::switches::{Purpose, Session, Switch};
use crate::timers::{Timer, Timers};
use crate::times::DurationHistogram;
use pathloom_model::rules::{Rule, RuleKey};
use pathloom_model::{Fabric, FiveTuple, Nanos, NodeId};
use pathloom_scheme::{Action, Event, FlowId, Needs, Scheme, State, View};
use std::collections::{BTreeMap, VecDeque};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

/// Events handed to a scheme within one input, at least, before the rest waits for a moment: a scheme that answers every
/// rejection with the same demand must not hang the controller.
const EVENTS_AT_ONCE: usize = 10_000;
/// How long the rest waits, and how long a scheme that asks for a time that has passed.
const BREATH: Nanos = Nanos::from_millis(1);

/// The controller as a pure state machine: feed it [`Input`]s, carry out its [`Output`]s, and wake it when it asks.
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) fabric: Arc<Fabric>,
    /// Addresses that are elsewhere than the fabric lays them out.
    pub(crate) places: Places,
    pub(crate) scheme: Box<dyn Scheme>,
    pub(crate) needs: Needs,
    pub(crate) view: View,
    pub(crate) started: bool,
    pub(crate) now: Nanos,
    /// By node.
    pub(crate) switches: Vec<Switch>,
    pub(crate) flows: FlowTable,
    /// Flows that may need a counting rule when the input at hand has been dealt with.
    pub(crate) fresh: Vec<FlowId>,
    /// Rules of abandoned versions that stay until the packets under way have passed.
    pub(crate) draining: Draining,
    /// How long a packet may take over any link.
    pub(crate) slowest_link: Nanos,
    pub(crate) orphans: Orphans,
    pub(crate) assignments: Assignments,
    pub(crate) labels: Labels,
    pub(crate) cables: Cables,
    pub(crate) drains: Drains,
    pub(crate) staged: Staged,
    pub(crate) reasons: Reasons,
    /// From asking for a path to its confirmation.
    pub(crate) set_up: DurationHistogram,
    pub(crate) routes: Option<Routes>,
    pub(crate) compiler: Compiler,
    /// Whether rules of no single flow may have to change.
    pub(crate) stale: bool,
    pub(crate) polling: Polling,
    pub(crate) link_loads: LinkLoads,
    pub(crate) reviews: Reviews,
    pub(crate) sweeps: Sweeps,
    pub(crate) timers: Timers,
    /// In which order a move in place deletes the old rules.
    pub(crate) order: CutoverOrder,
    /// What each link carries, as far as it was worked out for the input at hand.
    pub(crate) loads: Option<Vec<u64>>,
    /// Jobs of the scheme in charge that have not been answered: the number given to the driver, the scheme's mark, and
    /// what they were begun for.
    solving: BTreeMap<u64, (u64, Option<Cause>)>,
    /// Jobs given to the driver.
    solved: u64,
    pub(crate) moves: NonZeroU32,
    pub(crate) xid: u32,
    pub(crate) events: VecDeque<Event>,
    actions: Vec<Action>,
    /// Room for the steps of a phase, kept from one to the next.
    pub(crate) steps: Vec<Step>,
    outputs: VecDeque<Output>,
    wants_barrier: Vec<NodeId>,
    deaf_until: Nanos,
    pub(crate) counts: Counts,
}

impl Controller {
    /// A controller that knows the fabric and nothing else. What it finds in the switches it adopts.
    pub fn new(config: Config, fabric: Arc<Fabric>, scheme: Box<dyn Scheme>) -> Controller {
        let nodes = fabric.nodes().len();
        Controller {
            needs: config.needs(scheme.needs()),
            view: View::new(fabric.clone()),
            started: false,
            now: Nanos::ZERO,
            switches: (0..nodes).map(|_| Switch::default()).collect(),
            flows: FlowTable::new(config.epoch, nodes),
            fresh: Vec::new(),
            draining: Draining::new(),
            slowest_link: crate::plan::slowest_link(&fabric),
            orphans: Orphans::default(),
            assignments: Assignments::new(config.epoch),
            labels: Labels::default(),
            cables: Cables::new(&fabric),
            drains: Drains::default(),
            staged: Staged::default(),
            reasons: Reasons::default(),
            set_up: DurationHistogram::default(),
            routes: None,
            compiler: Compiler::default(),
            stale: false,
            polling: Polling::new(nodes),
            link_loads: LinkLoads::new(&fabric),
            reviews: Reviews::default(),
            sweeps: Sweeps::default(),
            timers: Timers::default(),
            order: sfmm::bottleneck_first,
            loads: None,
            solving: BTreeMap::new(),
            solved: 0,
            moves: NonZeroU32::MIN,
            xid: 0,
            events: VecDeque::new(),
            actions: Vec::new(),
            steps: Vec::new(),
            outputs: VecDeque::new(),
            wants_barrier: Vec::new(),
            deaf_until: Nanos::ZERO,
            counts: Counts::default(),
            places: Places::default(),
            config,
            fabric,
            scheme,
        }
    }

    /// Takes one input. `now` never goes back; if it does, the later time counts.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.feed(now, input);
        self.flush();
    }

    /// As [`Controller::handle`], but puts off the barriers until [`Controller::flush`], which must follow: a driver that has
    /// many inputs at hand gives all of them first, and each switch gets one barrier for all that these lead to.
    pub fn feed(&mut self, now: Nanos, input: Input) {
        self.now = self.now.max(now);
        self.counts.messages_in += 1;
        if !self.started {
            self.start();
        }
        self.loads = None;
        self.fire_timers();
        self.take(input);
        self.settle_all();
    }

    /// What is to be done next, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Timeout`] is wanted, if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let scheme = self.scheme.poll_timeout().map(|at| at.max(self.deaf_until));
        let rest = (!self.events.is_empty()).then(|| self.now.saturating_add(BREATH));
        let own = [self.timers.next(), self.polling.next(), self.link_loads.next(), self.assignments.poll_timeout()];
        [scheme, rest].into_iter().chain(own).flatten().min()
    }

    /// Puts another scheme in charge. Flows stay where they are; what the last one kept them from sending ends with it. The
    /// new scheme is told of all long ones.
    pub fn set_scheme(&mut self, now: Nanos, scheme: Box<dyn Scheme>) {
        self.now = self.now.max(now);
        self.loads = None;
        self.scheme = scheme;
        self.needs = self.config.needs(self.scheme.needs());
        self.events.clear();
        self.solving.clear();
        self.reasons.forget_jobs();
        self.outputs.retain(|output| !matches!(output, Output::Solve { .. }));
        self.deaf_until = Nanos::ZERO;
        self.lift_limits();
        if self.started {
            self.polling.start(self.now, self.needs.poll_period);
            self.read_ports_every(self.needs.link_loads_every);
            self.start_sweeps();
            self.stale = true;
            self.events.push_back(Event::Started);
            // A flow that had finished leaves with the scheme that was to be told.
            let gone: Vec<FlowId> =
                self.view.flows.keys().copied().filter(|&id| self.flows.get(id).is_none_or(|f| f.closed)).collect();
            for id in gone {
                self.view.flows.remove(&id);
            }
            if !self.needs.both_directions {
                self.leave_all_back();
            }
            self.events.extend(self.view.long_flows().map(|(flow, _)| Event::FlowAdopted { flow }));
            self.settle_all();
            self.flush();
        }
    }

    /// What the controller knows; solvers get a clone of it.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Carries out [`Output::Solve`].
    pub fn solver(&self) -> fn(&View, &State) -> State {
        self.scheme.solver()
    }

    /// The flow that has a five-tuple now.
    pub fn find_flow(&self, five_tuple: &FiveTuple) -> Option<FlowId> {
        self.flows.find(five_tuple).filter(|id| self.view.flows.contains_key(id))
    }

    /// Whether a flow was told to wait, and still is to.
    pub fn is_held(&self, flow: FlowId) -> bool {
        self.flows.get(flow).is_some_and(|flow| flow.more().held_until > self.now)
    }

    /// Flows that were told to wait, and still are to.
    pub fn held_flows(&self) -> usize {
        self.flows.iter().filter(|(_, flow)| !flow.closed && flow.more().held_until > self.now).count()
    }

    /// Name of the scheme in charge.
    pub fn scheme_name(&self) -> &'static str {
        self.scheme.name()
    }

    /// What that scheme needs.
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        let rules_now = self.switches.iter().map(Switch::rules).max().unwrap_or(0);
        Counts { rules_now, ..self.counts }
    }

    /// How long it took to set up paths, from the scheme's wish to the last confirmation.
    pub fn set_up_times(&self) -> &DurationHistogram {
        &self.set_up
    }

    /// Rules that a switch should have, or should have had when its session ended.
    pub fn rules_at(&self, switch: NodeId) -> u32 {
        self.switches.get(switch.index()).map_or(0, Switch::rules)
    }

    fn start(&mut self) {
        self.started = true;
        self.polling.begin(self.now);
        self.next_round();
        self.start_sweeps();
        self.polling.start(self.now, self.needs.poll_period);
        self.read_ports_every(self.needs.link_loads_every);
        self.tell(Event::Started);
        self.pump();
    }

    /// Hands everything that has happened to the scheme, carries out what it wants, and sends what that leads to.
    fn settle_all(&mut self) {
        self.pump();
        self.count_fresh();
        self.refresh_fixed();
        self.refresh_copies();
        self.next_stage();
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::SwitchUp { switch, ports_down } if self.is_switch(switch) => self.switch_up(switch, &ports_down),
            Input::SwitchDown { switch } if self.is_switch(switch) => self.switch_down(switch),
            Input::PortStatus { switch, port, up } if self.is_switch(switch) => self.port_status(switch, port, up),
            Input::PacketIn { switch, in_port, headers } if self.is_switch(switch) => {
                self.counts.packet_ins += 1;
                self.packet_in(switch, in_port, &headers);
            }
            Input::FlowStats { switch, rows } if self.is_switch(switch) => self.flow_stats(switch, &rows),
            Input::RuleRemoved { switch, key, cookie, counters, why } if self.is_switch(switch) => {
                if !self.is_lost(switch, &key, cookie, why) {
                    self.rule_removed(switch, cookie, counters, why);
                }
            }
            Input::Refused { switch, xid, why } if self.is_switch(switch) => self.refused(switch, xid, why),
            Input::BarrierReply { switch, xid } if self.is_switch(switch) => self.barrier_reply(switch, xid),
            Input::RuleDump { switch, rules, groups, meters } if self.is_switch(switch) => {
                self.rule_dump(switch, rules, &groups, &meters);
            }
            Input::Reviewed { switch, number, rules, groups, meters, last } if self.is_switch(switch) => {
                self.reviewed(switch, number, rules, last.then_some((&groups, &meters)));
            }
            Input::Resync { switch } if switch.is_none_or(|switch| self.is_switch(switch)) => self.resync(switch),
            Input::TransferAnnounced { five_tuple, size_bytes } => self.announced(five_tuple, size_bytes),
            Input::TransferEnded { five_tuple } => self.ended(&five_tuple),
            Input::AssignPaths { .. } | Input::ClaimPath { .. } | Input::ReleasePaths { .. } => {
                self.answer_application(input);
            }
            Input::Load { busy_share } if !busy_share.is_nan() => self.view.busy_share = busy_share.clamp(0.0, 1.0),
            Input::Rtt { switch, rtt } if self.is_switch(switch) => self.view.switch_rtt[switch.index()] = Some(rtt),
            // What a scheme that is not in charge any more asked for is nobody's business.
            Input::Solved { ticket, answer } => match self.solving.remove(&ticket) {
                Some((ticket, cause)) => {
                    self.reasons.answer(cause);
                    self.tell(Event::Solved { ticket, answer });
                }
                None => self.counts.nonsense += 1,
            },
            Input::Drain { target, out } => self.drain(target, out),
            Input::Place { prefix, at } => self.place(prefix, at),
            Input::PortStats { switch, rows } if self.is_switch(switch) => self.port_stats(switch, &rows),
            Input::Timeout => {}
            _ => self.counts.nonsense += 1,
        }
    }

    pub(crate) fn is_switch(&self, node: NodeId) -> bool {
        self.fabric.nodes().get(node.index()).is_some_and(|_| !self.fabric.is_host(node))
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Drained { five_tuple, plan } => self.drained(five_tuple, plan),
                Timer::Count { flow } => self.fresh.push(flow),
                Timer::LinkQuiet { link, changes } => self.link_quiet(link, changes),
                Timer::Label { switch, label } => self.label_unclaimed(switch, label),
                Timer::Groups { switch } => self.delete_unnamed_groups(switch),
                Timer::Reread { switch } => self.reread(switch),
                Timer::Drain => self.drain_rest(),
                Timer::Sweep { number } => self.sweep(number),
                Timer::SweepOver => self.sweep_over(),
                Timer::Round => self.round(),
                Timer::Review { switch } => self.review_if_due(switch),
                Timer::Scan { switch, number } => self.scan(switch, number),
            }
        }
        self.poll_if_due();
        self.read_ports_if_due();
        self.assignments_if_due();
        if self.scheme.poll_timeout().is_some_and(|at| at.max(self.deaf_until) <= self.now) {
            self.tell(Event::Timeout);
            self.deaf_until = self.now.saturating_add(BREATH);
        }
    }

    /// Notes something for the scheme. It does not hear of ways back, nor of connections on assigned paths.
    pub(crate) fn tell(&mut self, event: Event) {
        match event {
            Event::RouteConfirmed { flow } if is_bound(flow) => self.assignments.forget_retry(flow),
            Event::RouteRejected { flow, .. } if is_bound(flow) => self.lead_later(flow),
            Event::RouteConfirmed { flow } | Event::RouteRejected { flow, .. } if self.leads_back(flow) => {}
            event => self.events.push_back(event),
        }
    }

    /// Whether a flow is none of the scheme's: a way back, or a direction of a connection on an assigned path.
    pub(crate) fn is_of_controller(&self, flow: FlowId) -> bool {
        is_bound(flow) || self.leads_back(flow)
    }

    fn pump(&mut self) {
        let mut left = EVENTS_AT_ONCE + 16 * self.view.flows.len();
        while let Some(event) = self.events.pop_front() {
            let mut actions = std::mem::take(&mut self.actions);
            self.reasons.begin(&event);
            self.scheme.handle(self.now, &event, &self.view, &mut actions);
            if let Event::FlowFinished { flow } = event {
                self.view.flows.remove(&flow);
            }
            for action in actions.drain(..) {
                self.act(action);
            }
            self.actions = actions;
            self.reasons.end();
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }

    fn act(&mut self, action: Action) {
        if action.flow().is_some_and(is_bound) {
            // A scheme that looks through all flows may come upon it, but has no say in where it goes.
            self.counts.rejected += 1;
            return;
        }
        match action {
            Action::SetDefaults(how) => {
                self.stale |= self.view.defaults != how;
                self.view.defaults = how;
            }
            Action::Route { flow, path, rate_bps } => self.route(flow, path, rate_bps),
            Action::Unroute { flow } => {
                self.note(flow, Decision::Unroute);
                self.unroute(flow);
                self.leave_back(flow);
            }
            Action::Hold { flow, lease } => {
                let until = self.now.saturating_add(lease);
                if let Some(known) = self.flows.get_mut(flow).filter(|known| !known.closed) {
                    known.more_mut().held_until = until;
                    let (host, five_tuple) = (known.key.src.host, known.key.five_tuple);
                    self.put(Output::HoldFlow { host, five_tuple, lease });
                    self.note(flow, Decision::Hold);
                }
            }
            Action::Release { flow } => self.release(flow),
            Action::Pace { flow, rate_bps } => self.pace(flow, rate_bps),
            Action::Measure => self.measure(Reading::Round),
            Action::MeasureAgain => self.measure(Reading::Again),
            Action::Solve { ticket, input, modelled } => {
                self.solved += 1;
                self.solving.insert(self.solved, (ticket, self.reasons.cause()));
                self.put(Output::Solve { ticket: self.solved, input, modelled });
            }
        }
    }

    /// What makes the rules of flows.
    pub(crate) fn planner(&self) -> Planner<'_> {
        let Config { priorities, idle_timeout_s, .. } = self.config;
        let idle_timeout_s = self.needs.idle_timeout_s.map_or(idle_timeout_s, NonZeroU16::get);
        let path_idle_timeout_s = self.config.path_idle_timeout_s.unwrap_or(idle_timeout_s).min(idle_timeout_s);
        let watched = self.config.is_watched();
        Planner { fabric: &self.fabric, priorities, idle_timeout_s, path_idle_timeout_s, watched }
    }

    /// Whether a switch can be told things now.
    pub(crate) fn is_ready(&self, switch: NodeId) -> bool {
        self.switches[switch.index()].session == Session::Ready
    }

    pub(crate) fn put(&mut self, output: Output) {
        self.counts.messages_out += 1;
        self.outputs.push_back(output);
    }

    pub(crate) fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1).max(1);
        self.xid
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
            self.wants_barrier.push(switch);
        }
    }

    /// Whether nothing waits for [`Controller::flush`] or [`Controller::poll_output`].
    pub fn is_settled(&self) -> bool {
        self.wants_barrier.is_empty() && self.outputs.is_empty()
    }

    /// Sends the barriers that what was fed leads to.
    pub fn flush(&mut self) {
        let mut wants_barrier = std::mem::take(&mut self.wants_barrier);
        for switch in wants_barrier.drain(..) {
            // A session that ended in the meantime wants none any more.
            if std::mem::take(&mut self.switches[switch.index()].wants_barrier) {
                let xid = self.next_xid();
                self.put(Output::Barrier { switch, xid });
                self.switches[switch.index()].barriers.push_back(xid);
            }
        }
        self.wants_barrier = wants_barrier;
    }

    fn barrier_reply(&mut self, switch: NodeId, xid: u32) {
        let state = &mut self.switches[switch.index()];
        let Some(position) = state.barriers.iter().position(|&sent| sent == xid) else {
            self.counts.nonsense += 1;
            return;
        };
        state.barriers.drain(..=position);
        // Numbers wrap around; what was sent before the barrier is behind it by less than half of all numbers.
        let before = |sent: u32| xid.wrapping_sub(sent) < u32::MAX / 2;
        while let Some(&(sent, purpose)) = self.switches[switch.index()].awaited.front() {
            if !before(sent) {
                break;
            }
            self.switches[switch.index()].awaited.pop_front();
            self.confirmed(switch, purpose);
        }
        let state = &mut self.switches[switch.index()];
        if !state.awaited.is_empty() && state.barriers.is_empty() && !state.wants_barrier {
            state.wants_barrier = true;
            self.wants_barrier.push(switch);
        }
    }

    /// Changes the number of flow rules that a switch should have.
    pub(crate) fn count_rules(&mut self, switch: NodeId, added: i32) {
        let state = &mut self.switches[switch.index()];
        state.flow_rules = state.flow_rules.saturating_add_signed(added);
        self.counts.rules_max = self.counts.rules_max.max(state.rules());
    }
}
