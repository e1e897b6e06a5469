//! The controller: it accepts inputs, returns outputs, and runs a scheme.
//!
//! [`Controller`] combines the components. It passes each input, and each action of the scheme, to the component that
//! handles it.

use crate::active_scheme::{ActiveScheme, MIN_TIMEOUT_GAP};
use crate::base_rules::BaseRules;
use crate::config::Config;
use crate::context::Context;
use crate::cookies::is_bound;
use crate::drain::Drains;
use crate::io::{Input, Output};
use crate::link_loads::LinkLoads;
use crate::links::Cables;
use crate::polling::{Polling, Reading};
use crate::reasons::Decision;
use crate::review::{Part, Reviews};
use crate::routes::Routes;
use crate::sfmm::CutoverOrder;
use crate::snapshot::{RestoreError, Snapshot};
use crate::sweep::Sweeps;
use crate::switches::Removed;
use crate::timers::Timer;
use pathloom_model::{Fabric, Nanos};
use pathloom_scheme::{Action, Event, FlowId, PlannedWeights, Scheme};
use std::sync::Arc;

/// Minimum number of events that a scheme gets within one input. The remaining events wait for [`MIN_TIMEOUT_GAP`], so
/// that a scheme that repeats a rejected request for ever cannot block the controller.
const EVENTS_AT_ONCE: usize = 10_000;

/// The controller as a pure state machine. A driver feeds it [`Input`]s, carries out its [`Output`]s, and sends
/// [`Input::Timeout`] at the time that [`Controller::poll_timeout`] returns.
pub struct Controller {
    pub(crate) context: Context,
    pub(crate) active_scheme: ActiveScheme,
    pub(crate) started: bool,
    /// Time of the first input.
    pub(crate) begun: Nanos,
    pub(crate) routes: Routes,
    /// Rules and groups that belong to no single flow.
    pub(crate) base: BaseRules,
    pub(crate) drains: Drains,
    pub(crate) cables: Cables,
    pub(crate) polling: Polling,
    pub(crate) link_loads: LinkLoads,
    pub(crate) reviews: Reviews,
    pub(crate) sweeps: Sweeps,
}

impl Controller {
    /// Creates a controller that knows only the fabric. It adopts the flows whose rules it finds in the switches.
    pub fn new(config: Config, fabric: Arc<Fabric>, scheme: Box<dyn Scheme>) -> Controller {
        let nodes = fabric.nodes().len();
        let mut context = Context::new(config, fabric, scheme.needs());
        Controller {
            active_scheme: ActiveScheme::new(&mut context, scheme),
            started: false,
            begun: Nanos::ZERO,
            routes: Routes::new(&context),
            base: BaseRules::new(nodes),
            drains: Drains::default(),
            cables: Cables::new(&context.fabric),
            polling: Polling::new(nodes),
            link_loads: LinkLoads::new(&context.fabric),
            reviews: Reviews::default(),
            sweeps: Sweeps::default(),
            context,
        }
    }

    /// Creates a controller with the state of a snapshot. No session is up yet. When a switch connects, the
    /// controller compares the rules of the switch with the snapshot. The clock must continue from the time of the
    /// snapshot, and the epoch should be a new one. Flows with an address that no longer exists are left out
    /// ([`Snapshot::homeless`]); their rules are deleted when they are found.
    pub fn restore(
        config: Config,
        fabric: Arc<Fabric>,
        mut scheme: Box<dyn Scheme>,
        snapshot: Snapshot,
        now: Nanos,
    ) -> Result<Controller, RestoreError> {
        snapshot.restore_scheme(&fabric, scheme.as_mut())?;
        let mut controller = Controller::new(config, fabric, scheme);
        snapshot.restore(&mut controller, now);
        Ok(controller)
    }

    /// Takes a snapshot of the controller.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self)
    }

    /// Sets another order of deletions for moves in place. Tests use it to show that they detect a wrong order.
    pub fn with_cutover_order(mut self, order: CutoverOrder) -> Controller {
        self.routes.moves.order = order;
        self
    }

    /// Handles one input. If `now` is earlier than the time of the last input, the later time counts.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.feed(now, input);
        self.flush();
    }

    /// Like [`Controller::handle`], but sends no barriers. The driver must call [`Controller::flush`] afterwards. A
    /// driver that has several inputs ready feeds all of them first; then each switch gets one barrier for all of
    /// them.
    pub fn feed(&mut self, now: Nanos, input: Input) {
        self.context.now = self.context.now.max(now);
        self.context.counts.messages_in += 1;
        if !self.started {
            self.start();
        }
        self.routes.moves.forget_loads();
        self.fire_timers();
        self.take(input);
        self.settle_all();
    }

    /// Returns the next output to carry out. Outputs come in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.context.poll_output()
    }

    /// Whether no barrier waits for [`Controller::flush`] and no output waits for [`Controller::poll_output`].
    pub fn is_settled(&self) -> bool {
        self.context.is_settled()
    }

    /// Sends the barriers that the inputs since the last call require.
    pub fn flush(&mut self) {
        self.context.flush();
    }

    /// The time at which the driver must send [`Input::Timeout`], unless another input comes earlier.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let rest = (!self.context.events.is_empty()).then(|| self.context.now.saturating_add(MIN_TIMEOUT_GAP));
        let assignments = self.routes.assignments.poll_timeout();
        let own = [self.context.timers.next(), self.polling.next(), self.link_loads.next(), assignments];
        [self.active_scheme.poll_timeout(), rest].into_iter().chain(own).flatten().min()
    }

    /// Puts another scheme in charge. Flows stay on their paths, but the holds and paces of the last scheme end. The
    /// new scheme gets [`Event::FlowAdopted`] for each long flow.
    pub fn set_scheme(&mut self, now: Nanos, scheme: Box<dyn Scheme>) {
        let Controller { context: cx, routes, .. } = self;
        cx.now = cx.now.max(now);
        routes.moves.forget_loads();
        self.active_scheme.replace(cx, scheme);
        routes.rules.limits.lift_all(cx, &mut routes.rules.flows);
        if self.started {
            self.polling.start(cx.now, cx.needs.poll_period);
            self.link_loads.read_every(cx, cx.needs.link_loads_every);
            self.sweeps.start(cx);
            self.base.scheme_changed();
            cx.events.push_back(Event::Started);
            // Finished flows that the last scheme was not told about are removed from the view.
            let over = |id: &FlowId| routes.rules.flows.get(*id).is_none_or(|flow| flow.closed);
            let gone: Vec<FlowId> = cx.view.flows.keys().copied().filter(over).collect();
            for id in gone {
                cx.view.flows.remove(&id);
            }
            if !cx.needs.both_directions {
                routes.unroute_all_ways_back(cx);
            }
            cx.events.extend(cx.view.long_flows().map(|(flow, _)| Event::FlowAdopted { flow }));
            self.settle_all();
            self.flush();
        }
    }

    fn start(&mut self) {
        let cx = &mut self.context;
        (self.started, self.begun) = (true, cx.now);
        self.polling.begin(cx.now);
        self.reviews.next_round(cx);
        self.sweeps.start(cx);
        self.polling.start(cx.now, cx.needs.poll_period);
        self.link_loads.read_every(cx, cx.needs.link_loads_every);
        cx.events.push_back(Event::Started);
        self.pump();
    }

    /// Passes all events to the scheme, carries out its actions, and sends the messages that result.
    fn settle_all(&mut self) {
        self.pump();
        let Controller { context: cx, routes, base, drains, .. } = self;
        routes.count_fresh(cx);
        drains.update_all(cx, base, &routes.assignments);
        base.refresh_copies(cx, &mut routes.assignments);
        drains.next_stage(cx, base, &routes.assignments);
    }

    /// Passes an input to the component that handles it.
    fn take(&mut self, input: Input) {
        let about = match input {
            Input::Rtt { switch, .. } => Some(switch),
            Input::Resync { switch } => switch,
            _ => input.switch(),
        };
        if about.is_some_and(|switch| !self.context.is_switch(switch)) {
            self.context.counts.invalid_inputs += 1;
            return;
        }
        let Controller { context: cx, routes, base, .. } = self;
        match input {
            Input::SwitchUp { switch, ports_down } => self.switch_up(switch, &ports_down),
            Input::SwitchDown { switch } => self.switch_down(switch),
            Input::PortStatus { switch, port, up } => self.port_status(switch, port, up),
            Input::PacketIn { switch, in_port, headers } => {
                cx.counts.packet_ins += 1;
                routes.packet_in(cx, switch, in_port, &headers);
            }
            Input::FlowStats { switch, rows } => self.polling.flow_stats(cx, &mut routes.rules.flows, switch, &rows),
            Input::RuleRemoved { switch, key, cookie, counters, why } => {
                let removed = Removed { key, cookie, counters, why };
                if !self.reviews.is_lost(cx, routes, base, switch, &removed) {
                    routes.rule_removed(cx, switch, &removed);
                }
            }
            Input::Refused { switch, xid, why } => self.refused(switch, xid, why),
            Input::BarrierReply { switch, xid } => self.barrier_reply(switch, xid),
            Input::RuleDump { switch, rules, groups, meters } => self.rule_dump(switch, rules, &groups, &meters),
            Input::Reviewed { switch, number, rules, groups, meters, last } => {
                let last = last.then_some((groups, meters));
                self.reviews.reviewed(cx, routes, base, switch, Part { number, rules, last });
            }
            Input::Resync { switch } => self.reviews.resync(cx, switch),
            Input::TransferAnnounced { five_tuple, size_bytes } => routes.announced(cx, five_tuple, size_bytes),
            Input::TransferEnded { five_tuple } => routes.ended(cx, &five_tuple),
            Input::Agent { host, speaks } if host.index() < cx.fabric.nodes().len() => {
                routes.rules.limits.agent(cx, &mut routes.rules.flows, host, speaks);
            }
            Input::Agent { .. } => cx.counts.invalid_inputs += 1,
            Input::AssignPaths { .. } | Input::ClaimPath { .. } | Input::ReleasePaths { .. } => {
                routes.answer_application(cx, input);
            }
            Input::Capacity { switch, rules } => {
                cx.switches[switch.index()].capacity = Some(rules).filter(|&rules| rules > 0);
            }
            Input::Load { busy_share } if !busy_share.is_nan() => cx.view.busy_share = busy_share.clamp(0.0, 1.0),
            Input::Load { .. } => cx.counts.invalid_inputs += 1,
            Input::Rtt { switch, rtt } => cx.view.switch_rtt[switch.index()] = Some(rtt),
            Input::Solved { ticket, answer } => self.active_scheme.solved(cx, ticket, answer),
            Input::Drain { target, out } => self.drain(target, out),
            Input::Place { prefix, at } => self.place(prefix, at),
            Input::PortStats { switch, rows } => self.link_loads.take_stats(cx, switch, &rows),
            Input::Timeout => {}
        }
    }

    /// Handles expired timers.
    fn fire_timers(&mut self) {
        while let Some(timer) = self.context.timers.pop(self.context.now) {
            let Controller { context: cx, routes, base, .. } = self;
            match timer {
                Timer::Drained { five_tuple, plan } => routes.rules.drained(cx, five_tuple, plan),
                Timer::Count { flow } => routes.count_soon(flow),
                Timer::UnknownMeter { flow } => routes.rules.limits.end_unknown(cx, &mut routes.rules.flows, flow),
                Timer::LinkQuiet { link, changes } => self.link_quiet(link, changes),
                Timer::Label { switch, label } => routes.rules.labels.delete_unclaimed(cx, switch, label),
                Timer::Groups { switch } => base.delete_unnamed_groups(cx, switch),
                Timer::Reread { switch } => self.reread(switch),
                Timer::MakeRoom => routes.make_room(cx),
                Timer::Drain => self.drains.unroute_rest(cx, routes),
                Timer::Stage => self.drains.stage_settled(cx.now),
                Timer::Sweep { number } => self.sweeps.begin(cx, number),
                Timer::SweepOver => self.sweeps.end(cx),
                Timer::Round => self.reviews.round(cx),
                Timer::Review { switch } => self.reviews.review_if_due(cx, switch),
                Timer::Scan { switch, number } => self.reviews.scan(cx, routes, switch, number),
            }
        }
        let Controller { context: cx, routes, .. } = self;
        self.polling.poll_if_due(cx, &mut routes.rules.flows);
        self.link_loads.read_if_due(cx);
        routes.assignments_if_due(cx);
        self.active_scheme.wake_if_due(cx);
    }

    /// Passes all events to the scheme, and carries out its actions.
    fn pump(&mut self) {
        let mut left = EVENTS_AT_ONCE + 16 * self.context.view.flows.len();
        while let Some(event) = self.context.events.pop_front() {
            let mut actions = self.active_scheme.handle_event(&mut self.context, &event);
            if let Event::FlowFinished { flow } = event {
                self.context.view.flows.remove(&flow);
            }
            for action in actions.drain(..) {
                self.act(action);
            }
            self.active_scheme.return_buffer(&mut self.context, actions);
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }

    /// Carries out an action of the scheme.
    fn act(&mut self, action: Action) {
        let Controller { context: cx, routes, .. } = self;
        if action.flow().is_some_and(is_bound) {
            // The view contains flows on assigned paths, but a scheme must not move them.
            cx.counts.rejected += 1;
            return;
        }
        match action {
            Action::SetDefaults(how) => {
                if cx.view.defaults != how {
                    cx.view.defaults = how;
                    self.base.scheme_changed();
                }
            }
            Action::SetWeights(weights) => {
                cx.view.weights = weights
                    .into_iter()
                    .map(|one| ((one.switch, one.tor), one.weights))
                    .collect::<PlannedWeights>()
                    .into();
                self.base.scheme_changed();
            }
            Action::Route { flow, path, rate_bps } => routes.route(cx, flow, path, rate_bps),
            Action::Unroute { flow } => {
                routes.unroute_by(cx, flow, Decision::Unroute);
                routes.unroute_way_back(cx, flow);
            }
            Action::Hold { flow, lease } => routes.rules.limits.hold(cx, &mut routes.rules.flows, flow, lease),
            Action::Release { flow } => routes.rules.limits.release(cx, &mut routes.rules.flows, flow),
            Action::Pace { flow, rate_bps } => routes.rules.limits.pace(cx, &mut routes.rules.flows, flow, rate_bps),
            Action::Measure => self.polling.measure(cx, &mut routes.rules.flows, Reading::Round),
            Action::MeasureAgain => self.polling.measure(cx, &mut routes.rules.flows, Reading::Again),
            Action::Solve { ticket, input, modelled } => self.active_scheme.begin_job(cx, ticket, input, modelled),
        }
    }
}
