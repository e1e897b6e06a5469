//! The controller: inputs in, outputs out, and the scheme in between.

use crate::assignments::Assignments;
use crate::config::Config;
use crate::context::Context;
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
use crate::plan::Step;
use crate::polling::{Polling, Reading};
use crate::reasons::{Cause, Decision};
use crate::review::Reviews;
use crate::sfmm::{self, CutoverOrder};
use crate::sweep::Sweeps;
use crate::switches::Switch;
use crate::timers::Timer;
use crate::times::DurationHistogram;
use pathloom_model::{Fabric, FiveTuple, Nanos, NodeId};
use pathloom_scheme::{Action, Event, FlowId, Needs, Scheme, State, View};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Events handed to a scheme within one input, at least, before the rest waits for a moment: a scheme that answers every
/// rejection with the same demand must not hang the controller.
const EVENTS_AT_ONCE: usize = 10_000;
/// How long the rest waits, and how long a scheme that asks for a time that has passed.
const BREATH: Nanos = Nanos::from_millis(1);

/// The controller as a pure state machine: feed it [`Input`]s, carry out its [`Output`]s, and wake it when it asks.
pub struct Controller {
    pub(crate) context: Context,
    pub(crate) scheme: Box<dyn Scheme>,
    pub(crate) started: bool,
    pub(crate) flows: FlowTable,
    /// Flows that may need a counting rule when the input at hand has been dealt with.
    pub(crate) fresh: Vec<FlowId>,
    /// Rules of abandoned versions that stay until the packets under way have passed.
    pub(crate) draining: Draining,
    pub(crate) orphans: Orphans,
    pub(crate) assignments: Assignments,
    pub(crate) labels: Labels,
    pub(crate) cables: Cables,
    pub(crate) drains: Drains,
    pub(crate) staged: Staged,
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
    actions: Vec<Action>,
    /// Room for the steps of a phase, kept from one to the next.
    pub(crate) steps: Vec<Step>,
    deaf_until: Nanos,
}

impl Controller {
    /// A controller that knows the fabric and nothing else. What it finds in the switches it adopts.
    pub fn new(config: Config, fabric: Arc<Fabric>, scheme: Box<dyn Scheme>) -> Controller {
        let nodes = fabric.nodes().len();
        let mut controller = Controller {
            started: false,
            flows: FlowTable::new(config.epoch, nodes),
            fresh: Vec::new(),
            draining: Draining::new(),
            orphans: Orphans::default(),
            assignments: Assignments::new(config.epoch),
            labels: Labels::default(),
            cables: Cables::new(&fabric),
            drains: Drains::default(),
            staged: Staged::default(),
            set_up: DurationHistogram::default(),
            routes: None,
            compiler: Compiler::default(),
            stale: false,
            polling: Polling::new(nodes),
            link_loads: LinkLoads::new(&fabric),
            reviews: Reviews::default(),
            sweeps: Sweeps::default(),
            order: sfmm::bottleneck_first,
            loads: None,
            solving: BTreeMap::new(),
            solved: 0,
            moves: NonZeroU32::MIN,
            actions: Vec::new(),
            steps: Vec::new(),
            deaf_until: Nanos::ZERO,
            context: Context::new(config, fabric, scheme.needs()),
            scheme,
        };
        controller.context.reasons.in_charge(controller.scheme.name());
        controller
    }

    /// Takes one input. `now` never goes back; if it does, the later time counts.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.feed(now, input);
        self.flush();
    }

    /// As [`Controller::handle`], but puts off the barriers until [`Controller::flush`], which must follow: a driver that has
    /// many inputs at hand gives all of them first, and each switch gets one barrier for all that these lead to.
    pub fn feed(&mut self, now: Nanos, input: Input) {
        self.context.now = self.context.now.max(now);
        self.context.counts.messages_in += 1;
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
        self.context.poll_output()
    }

    /// When [`Input::Timeout`] is wanted, if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let scheme = self.scheme.poll_timeout().map(|at| at.max(self.deaf_until));
        let rest = (!self.context.events.is_empty()).then(|| self.context.now.saturating_add(BREATH));
        let own =
            [self.context.timers.next(), self.polling.next(), self.link_loads.next(), self.assignments.poll_timeout()];
        [scheme, rest].into_iter().chain(own).flatten().min()
    }

    /// Puts another scheme in charge. Flows stay where they are; what the last one kept them from sending ends with it. The
    /// new scheme is told of all long ones.
    pub fn set_scheme(&mut self, now: Nanos, scheme: Box<dyn Scheme>) {
        self.context.now = self.context.now.max(now);
        self.loads = None;
        self.scheme = scheme;
        self.context.needs = self.context.config.needs(self.scheme.needs());
        self.context.reasons.in_charge(self.scheme.name());
        self.context.events.clear();
        self.solving.clear();
        self.context.reasons.forget_jobs();
        self.context.drop_jobs();
        self.deaf_until = Nanos::ZERO;
        self.lift_limits();
        if self.started {
            self.polling.start(self.context.now, self.context.needs.poll_period);
            self.read_ports_every(self.context.needs.link_loads_every);
            self.start_sweeps();
            self.stale = true;
            self.context.events.push_back(Event::Started);
            // A flow that had finished leaves with the scheme that was to be told.
            let gone: Vec<FlowId> = self
                .context
                .view
                .flows
                .keys()
                .copied()
                .filter(|&id| self.flows.get(id).is_none_or(|f| f.closed))
                .collect();
            for id in gone {
                self.context.view.flows.remove(&id);
            }
            if !self.context.needs.both_directions {
                self.leave_all_back();
            }
            self.context.events.extend(self.context.view.long_flows().map(|(flow, _)| Event::FlowAdopted { flow }));
            self.settle_all();
            self.flush();
        }
    }

    /// What the controller knows; solvers get a clone of it.
    pub fn view(&self) -> &View {
        &self.context.view
    }

    /// Carries out [`Output::Solve`].
    pub fn solver(&self) -> fn(&View, &State) -> State {
        self.scheme.solver()
    }

    /// The flow that has a five-tuple now.
    pub fn find_flow(&self, five_tuple: &FiveTuple) -> Option<FlowId> {
        self.flows.find(five_tuple).filter(|id| self.context.view.flows.contains_key(id))
    }

    /// Whether a flow was told to wait, and still is to.
    pub fn is_held(&self, flow: FlowId) -> bool {
        self.flows.get(flow).is_some_and(|flow| flow.more().held_until > self.context.now)
    }

    /// Flows that were told to wait, and still are to.
    pub fn held_flows(&self) -> usize {
        self.flows.iter().filter(|(_, flow)| !flow.closed && flow.more().held_until > self.context.now).count()
    }

    /// Name of the scheme in charge.
    pub fn scheme_name(&self) -> &'static str {
        self.scheme.name()
    }

    /// What that scheme needs.
    pub fn needs(&self) -> &Needs {
        &self.context.needs
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.context.config
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        let rules_now = self.context.switches.iter().map(Switch::rules).max().unwrap_or(0);
        Counts { rules_now, ..self.context.counts }
    }

    /// How long it took to set up paths, from the scheme's wish to the last confirmation.
    pub fn set_up_times(&self) -> &DurationHistogram {
        &self.set_up
    }

    /// Rules that a switch should have, or should have had when its session ended.
    pub fn rules_at(&self, switch: NodeId) -> u32 {
        self.context.switches.get(switch.index()).map_or(0, Switch::rules)
    }

    fn start(&mut self) {
        self.started = true;
        self.polling.begin(self.context.now);
        self.next_round();
        self.start_sweeps();
        self.polling.start(self.context.now, self.context.needs.poll_period);
        self.read_ports_every(self.context.needs.link_loads_every);
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
            Input::SwitchUp { switch, ports_down } if self.context.is_switch(switch) => {
                self.switch_up(switch, &ports_down)
            }
            Input::SwitchDown { switch } if self.context.is_switch(switch) => self.switch_down(switch),
            Input::PortStatus { switch, port, up } if self.context.is_switch(switch) => {
                self.port_status(switch, port, up)
            }
            Input::PacketIn { switch, in_port, headers } if self.context.is_switch(switch) => {
                self.context.counts.packet_ins += 1;
                self.packet_in(switch, in_port, &headers);
            }
            Input::FlowStats { switch, rows } if self.context.is_switch(switch) => self.flow_stats(switch, &rows),
            Input::RuleRemoved { switch, key, cookie, counters, why } if self.context.is_switch(switch) => {
                if !self.is_lost(switch, &key, cookie, why) {
                    self.rule_removed(switch, cookie, counters, why);
                }
            }
            Input::Refused { switch, xid, why } if self.context.is_switch(switch) => self.refused(switch, xid, why),
            Input::BarrierReply { switch, xid } if self.context.is_switch(switch) => self.barrier_reply(switch, xid),
            Input::RuleDump { switch, rules, groups, meters } if self.context.is_switch(switch) => {
                self.rule_dump(switch, rules, &groups, &meters);
            }
            Input::Reviewed { switch, number, rules, groups, meters, last } if self.context.is_switch(switch) => {
                self.reviewed(switch, number, rules, last.then_some((&groups, &meters)));
            }
            Input::Resync { switch } if switch.is_none_or(|switch| self.context.is_switch(switch)) => {
                self.resync(switch)
            }
            Input::TransferAnnounced { five_tuple, size_bytes } => self.announced(five_tuple, size_bytes),
            Input::TransferEnded { five_tuple } => self.ended(&five_tuple),
            Input::AssignPaths { .. } | Input::ClaimPath { .. } | Input::ReleasePaths { .. } => {
                self.answer_application(input);
            }
            Input::Load { busy_share } if !busy_share.is_nan() => {
                self.context.view.busy_share = busy_share.clamp(0.0, 1.0)
            }
            Input::Rtt { switch, rtt } if self.context.is_switch(switch) => {
                self.context.view.switch_rtt[switch.index()] = Some(rtt)
            }
            // What a scheme that is not in charge any more asked for is nobody's business.
            Input::Solved { ticket, answer } => match self.solving.remove(&ticket) {
                Some((ticket, cause)) => {
                    self.context.reasons.answer(cause);
                    self.tell(Event::Solved { ticket, answer });
                }
                None => self.context.counts.nonsense += 1,
            },
            Input::Drain { target, out } => self.drain(target, out),
            Input::Place { prefix, at } => self.place(prefix, at),
            Input::PortStats { switch, rows } if self.context.is_switch(switch) => self.port_stats(switch, &rows),
            Input::Timeout => {}
            _ => self.context.counts.nonsense += 1,
        }
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.context.timers.pop(self.context.now) {
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
        if self.scheme.poll_timeout().is_some_and(|at| at.max(self.deaf_until) <= self.context.now) {
            self.tell(Event::Timeout);
            self.deaf_until = self.context.now.saturating_add(BREATH);
        }
    }

    /// Notes something for the scheme. It does not hear of ways back, nor of connections on assigned paths.
    pub(crate) fn tell(&mut self, event: Event) {
        match event {
            Event::RouteConfirmed { flow } if is_bound(flow) => self.assignments.forget_retry(flow),
            Event::RouteRejected { flow, .. } if is_bound(flow) => self.lead_later(flow),
            Event::RouteConfirmed { flow } | Event::RouteRejected { flow, .. } if self.context.leads_back(flow) => {}
            event => self.context.events.push_back(event),
        }
    }

    fn pump(&mut self) {
        let mut left = EVENTS_AT_ONCE + 16 * self.context.view.flows.len();
        while let Some(event) = self.context.events.pop_front() {
            let mut actions = std::mem::take(&mut self.actions);
            self.context.reasons.begin(&event);
            self.scheme.handle(self.context.now, &event, &self.context.view, &mut actions);
            if let Event::FlowFinished { flow } = event {
                self.context.view.flows.remove(&flow);
            }
            for action in actions.drain(..) {
                self.act(action);
            }
            self.actions = actions;
            self.context.reasons.end();
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }

    fn act(&mut self, action: Action) {
        if action.flow().is_some_and(is_bound) {
            // A scheme that looks through all flows may come upon it, but has no say in where it goes.
            self.context.counts.rejected += 1;
            return;
        }
        match action {
            Action::SetDefaults(how) => {
                self.stale |= self.context.view.defaults != how;
                self.context.view.defaults = how;
            }
            Action::Route { flow, path, rate_bps } => self.route(flow, path, rate_bps),
            Action::Unroute { flow } => {
                self.note(flow, Decision::Unroute);
                self.unroute(flow);
                self.leave_back(flow);
            }
            Action::Hold { flow, lease } => {
                let until = self.context.now.saturating_add(lease);
                if let Some(known) = self.flows.get_mut(flow).filter(|known| !known.closed) {
                    known.more_mut().held_until = until;
                    let (host, five_tuple) = (known.key.src.host, known.key.five_tuple);
                    self.context.put(Output::HoldFlow { host, five_tuple, lease });
                    self.note(flow, Decision::Hold);
                }
            }
            Action::Release { flow } => self.release(flow),
            Action::Pace { flow, rate_bps } => self.pace(flow, rate_bps),
            Action::Measure => self.measure(Reading::Round),
            Action::MeasureAgain => self.measure(Reading::Again),
            Action::Solve { ticket, input, modelled } => {
                self.solved += 1;
                self.solving.insert(self.solved, (ticket, self.context.reasons.cause()));
                self.context.put(Output::Solve { ticket: self.solved, input, modelled });
            }
        }
    }

    /// Whether nothing waits for [`Controller::flush`] or [`Controller::poll_output`].
    pub fn is_settled(&self) -> bool {
        self.context.is_settled()
    }

    /// Sends the barriers that what was fed leads to.
    pub fn flush(&mut self) {
        self.context.flush();
    }

    fn barrier_reply(&mut self, switch: NodeId, xid: u32) {
        if self.context.take_barrier(switch, xid) {
            while let Some(purpose) = self.context.next_confirmed(switch, xid) {
                self.confirmed(switch, purpose);
            }
            self.context.barrier_done(switch);
        }
    }
}
