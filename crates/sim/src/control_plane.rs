//! Driver of the controller: carries its messages to switches and hosts and back, and models the time that they take.
//!
//! Each message takes the delay of the channel. The controller handles its messages in order, at most `batch` at a
//! time; a switch carries out its messages in order. The state machine is the same `control::Controller` that drives
//! live switches.

use crate::agenda::{Agenda, Event, Origin};
use crate::agents::Agents;
use crate::network::Network;
use crate::outcome::ControlOutcome;
use crate::settings::ControlSettings;
use crate::starts::{ControllerStarts, NoCentral};
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps, NEVER};
use pathloom_control::{
    Config, Controller, Enforcement, Input, Output, PortStats, Removal, RuleStats, SOURCE_COOKIE, SOURCE_COOKIE_MASK,
};
use pathloom_model::rules::Rule;
use pathloom_model::{Fabric, LinkState, Nanos, NodeId, PortNo};
use pathloom_scheme::Scheme;
use pathloom_switching::{Removed, Switch};
use std::collections::VecDeque;
use std::sync::Arc;

/// Observer of every message to and from the controller.
pub trait Journal {
    /// The controller is about to handle this input.
    fn input(&mut self, at: Nanos, input: &Input);
    /// The controller has produced this output.
    fn output(&mut self, at: Nanos, output: &Output);
}

/// Shortest time between two checks of a switch for rules that have timed out.
const SWEEP: Nanos = Nanos::from_millis(100);
/// Period over which the controller's load is measured.
const LOAD_WINDOW: Nanos = Nanos::from_secs(1);

pub(crate) struct ControlPlane {
    fabric: Arc<Fabric>,
    settings: ControlSettings,
    agents: Agents,
    pub(crate) controller: Controller,
    pub(crate) starts: ControllerStarts,
    waiting: VecDeque<Input>,
    /// Number of messages from `waiting` that the controller handles now; 0 while it is idle.
    serving: usize,
    /// Time of the controller's next timer event in the agenda; [`NEVER`] if there is none.
    timer: Ps,
    /// By node: when the switch will have carried out all messages that have reached it, and when it next checks for
    /// expired rules.
    agent_free: Vec<Ps>,
    sweep: Vec<Ps>,
    /// By node: when its flow counters were requested; [`NEVER`] if no answer is due.
    asked: Vec<Ps>,
    /// By node: whether the session is up, and its number, which each begin or end of a session increases.
    connected: Vec<bool>,
    sessions: Vec<u32>,
    /// By node: whether faults keep the session down, because it is lost itself or because its switch is down.
    session_cut: Vec<bool>,
    switch_dead: Vec<bool>,
    /// By node: time that the switch takes to carry out a change.
    pub(crate) install: Vec<Ps>,
    /// Whether switches answer barriers on arrival, before earlier messages are carried out. This is wrong on
    /// purpose, for tests.
    pub(crate) hasty_barriers: bool,
    messages: u64,
    rules_max: usize,
    busy: Ps,
    busy_at_last_measure: Ps,
    pub(crate) journal: Option<Box<dyn Journal + Send>>,
}

impl ControlPlane {
    pub(crate) fn new(
        fabric: Arc<Fabric>,
        settings: ControlSettings,
        agents: Agents,
        central: Option<Box<dyn Scheme>>,
    ) -> ControlPlane {
        let nodes = fabric.nodes().len();
        let rule_limit = settings.rule_limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let (enforcement, unlabelled) = (settings.enforcement, !agents.everywhere());
        let config = Config { rule_limit, enforcement: Some(enforcement), unlabelled, ..Config::default() };
        ControlPlane {
            starts: ControllerStarts::new(config.clone(), central.is_some()),
            controller: Controller::new(config, fabric.clone(), central.unwrap_or_else(|| Box::new(NoCentral))),
            fabric,
            agents,
            waiting: VecDeque::new(),
            serving: 0,
            timer: NEVER,
            agent_free: vec![0; nodes],
            sweep: vec![NEVER; nodes],
            asked: vec![NEVER; nodes],
            connected: vec![false; nodes],
            sessions: vec![0; nodes],
            session_cut: vec![false; nodes],
            switch_dead: vec![false; nodes],
            install: vec![to_ps(settings.install); nodes],
            hasty_barriers: false,
            messages: 0,
            rules_max: 0,
            busy: 0,
            busy_at_last_measure: 0,
            journal: None,
            settings,
        }
    }

    /// Lets the controller set up the fabric before the first packet. Its messages take no time. Returns the number
    /// of messages exchanged, or `None` if there are more than `limit`.
    pub(crate) fn start<T: Tap>(
        &mut self,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        links: &LinkState,
        limit: u64,
    ) -> Option<u64> {
        let switches = self.fabric.clone();
        for &switch in switches.switches().iter().filter(|_| self.starts.running) {
            self.connected[switch.index()] = true;
            self.waiting.push_back(Input::SwitchUp { switch, ports_down: self.ports_down(switch, links) });
        }
        if self.starts.running {
            let met: Vec<Input> = self.agents_met().collect();
            self.waiting.extend(met);
        }
        let mut exchanged = 0;
        loop {
            let input = match self.waiting.pop_front() {
                Some(input) => input,
                None if self.starts.running && self.controller.poll_timeout() == Some(Nanos::ZERO) => Input::Timeout,
                None => break,
            };
            self.feed(0, input);
            let mut outputs = self.outputs(0);
            exchanged += 1 + outputs.len() as u64;
            for output in outputs.drain(..) {
                if let Output::Solve { .. } = &output {
                    self.solve(0, output, agenda);
                } else if let Some(reply) = self.apply(0, network, agenda, output) {
                    self.waiting.push_back(reply);
                }
            }
            if exchanged > limit {
                return None;
            }
        }
        // Setting up is not part of the run.
        self.messages = 0;
        agenda.push(to_ps(LOAD_WINDOW), Event::MeasureLoad);
        self.arm(0, agenda);
        Some(exchanged)
    }

    /// Sends the controller a message about something that happened at a switch or host. A switch without a session
    /// sends none.
    pub(crate) fn tell(&mut self, now: Ps, agenda: &mut Agenda, input: Input) {
        let switch = input.switch();
        if switch.is_none_or(|switch| self.connected[switch.index()]) {
            let session = |switch: NodeId| Origin::Session(switch, self.sessions[switch.index()]);
            let origin = switch.map_or(Origin::Outside, session);
            agenda.push(now + to_ps(self.settings.delay), Event::Inform { input: Box::new(input), origin });
        }
    }

    /// A message has reached the controller.
    pub(crate) fn inform(&mut self, now: Ps, agenda: &mut Agenda, input: Input, origin: Origin) {
        let lost = match origin {
            Origin::Session(switch, session) => session != self.sessions[switch.index()],
            Origin::Controller(number) => number != self.starts.number,
            Origin::Outside => false,
        };
        if lost || !self.starts.running {
            return;
        }
        // Answers of the controller's own solver cross no channel.
        self.messages += u64::from(!matches!(input, Input::Solved { .. }));
        self.waiting.push_back(input);
        self.serve(now, agenda);
    }

    fn serve(&mut self, now: Ps, agenda: &mut Agenda) {
        if self.serving == 0 && !self.waiting.is_empty() {
            self.serving = self.waiting.len().min(self.settings.batch);
            let takes = to_ps(self.settings.service) * self.serving as Ps;
            self.busy += takes;
            agenda.push(now + takes, Event::Served { controller: self.starts.number });
        }
    }

    /// The controller has handled the messages that it took from the head of its queue.
    pub(crate) fn served(&mut self, now: Ps, agenda: &mut Agenda, controller: u32) {
        if controller != self.starts.number || !self.starts.running {
            return;
        }
        for input in self.waiting.drain(..std::mem::take(&mut self.serving)).collect::<Vec<Input>>() {
            self.measure_rtt(now, agenda, &input);
            self.feed(now, input);
        }
        self.flush(now, agenda);
        self.serve(now, agenda);
    }

    /// Measures the time from a request for flow counters to the moment when the controller reads the answer. It
    /// includes both directions of the channel, earlier messages to the switch, and the wait in the controller's
    /// queue.
    fn measure_rtt(&mut self, now: Ps, agenda: &mut Agenda, input: &Input) {
        let Input::FlowStats { switch, .. } = *input else { return };
        let asked = std::mem::replace(&mut self.asked[switch.index()], NEVER);
        if asked != NEVER {
            self.give(now, agenda, Input::Rtt { switch, rtt: to_nanos(now - asked) });
        }
    }

    /// Handles a timer event of the controller. The timer may have moved to a later time.
    pub(crate) fn timer_due(&mut self, now: Ps, agenda: &mut Agenda) {
        self.timer = NEVER;
        if !self.starts.running {
            return;
        }
        if self.controller.poll_timeout().is_some_and(|at| to_ps(at) <= now) {
            self.give(now, agenda, Input::Timeout);
        } else {
            self.arm(now, agenda);
        }
    }

    pub(crate) fn measure_load(&mut self, now: Ps, agenda: &mut Agenda) {
        let busy = self.busy - std::mem::replace(&mut self.busy_at_last_measure, self.busy);
        let busy_share = (busy as f64 / to_ps(LOAD_WINDOW) as f64).min(1.0);
        if self.starts.running {
            self.give(now, agenda, Input::Load { busy_share });
        }
        agenda.push(now + to_ps(LOAD_WINDOW), Event::MeasureLoad);
    }

    fn give(&mut self, now: Ps, agenda: &mut Agenda, input: Input) {
        self.feed(now, input);
        self.flush(now, agenda);
    }

    /// Passes an input to the controller. The caller must call [`ControlPlane::flush`] afterwards.
    fn feed(&mut self, now: Ps, input: Input) {
        let at = to_nanos(now);
        if let Some(journal) = &mut self.journal {
            journal.input(at, &input);
        }
        self.controller.feed(at, input);
    }

    /// Sends the messages that the controller has produced from its inputs.
    fn flush(&mut self, now: Ps, agenda: &mut Agenda) {
        for output in self.outputs(now) {
            match output {
                Output::Solve { .. } => self.solve(now, output, agenda),
                other => {
                    self.messages += 1;
                    if let Output::FlowStatsRequest { switch } = other {
                        self.asked[switch.index()] = now;
                    }
                    let session = other.switch().map_or(0, |switch| self.sessions[switch.index()]);
                    let event = Event::Deliver { output: Box::new(other), session };
                    agenda.push(now + to_ps(self.settings.delay), event);
                }
            }
        }
        self.arm(now, agenda);
    }

    fn outputs(&mut self, now: Ps) -> Vec<Output> {
        let at = to_nanos(now);
        self.controller.flush();
        let outputs: Vec<Output> = std::iter::from_fn(|| self.controller.poll_output()).collect();
        if let Some(journal) = &mut self.journal {
            outputs.iter().for_each(|output| journal.output(at, output));
        }
        outputs
    }

    fn solve(&mut self, now: Ps, output: Output, agenda: &mut Agenda) {
        if let Output::Solve { ticket, input, modelled } = output {
            let answer = self.controller.solver()(self.controller.view(), &input);
            let solved = Input::Solved { ticket, answer };
            let origin = Origin::Controller(self.starts.number);
            agenda.push(now + to_ps(modelled), Event::Inform { input: Box::new(solved), origin });
        }
    }

    fn arm(&mut self, now: Ps, agenda: &mut Agenda) {
        if let Some(at) = self.controller.poll_timeout() {
            let at = to_ps(at).max(now);
            if at < self.timer {
                self.timer = at;
                agenda.push(at, Event::ControllerTimer);
            }
        }
    }

    /// A message of the controller has reached a switch. The caller handles messages to hosts.
    pub(crate) fn reached_switch(
        &mut self,
        now: Ps,
        agenda: &mut Agenda,
        switch: NodeId,
        (output, session): (Box<Output>, u32),
    ) {
        if !self.stands(switch, session) {
            return;
        }
        if let (Output::Barrier { xid, .. }, true) = (&*output, self.hasty_barriers) {
            return self.tell(now, agenda, Input::BarrierReply { switch, xid: *xid });
        }
        let changes = matches!(
            *output,
            Output::AddRule { .. }
                | Output::DeleteRule { .. }
                | Output::AddGroup { .. }
                | Output::DeleteGroup { .. }
                | Output::AddMeter { .. }
                | Output::DeleteMeter { .. }
        );
        let takes = if changes { self.install[switch.index()] } else { 0 };
        let done = self.agent_free[switch.index()].max(now) + takes;
        self.agent_free[switch.index()] = done;
        agenda.push(done, Event::Apply { output, session });
    }

    fn stands(&self, switch: NodeId, session: u32) -> bool {
        self.connected[switch.index()] && self.sessions[switch.index()] == session
    }

    /// A switch has carried out a message of this session.
    pub(crate) fn applied<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        (output, session): (Output, u32),
    ) {
        if output.switch().is_some_and(|switch| self.stands(switch, session)) {
            if let Some(reply) = self.apply(now, network, agenda, output) {
                self.tell(now, agenda, reply);
            }
        }
    }

    /// A switch carries out a message. Returns its answer, if any.
    fn apply<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        output: Output,
    ) -> Option<Input> {
        let switch = output.switch()?;
        let at = to_nanos(now);
        let refused = |xid: u32| move |why| Input::Refused { switch, xid, why };
        let reply = match output {
            Output::AddRule { xid, rule, .. } => {
                let matches = rule.matches;
                network.change_rule(switch, &matches, |s| s.add_rule(at, rule))?.err().map(refused(xid))
            }
            Output::DeleteRule { key, .. } => network
                .change_rule(switch, &key.matches, |s| s.delete_rule(&key))?
                .and_then(|removed| notice(switch, removed, Removal::Deleted)),
            Output::AddGroup { xid, group, .. } => {
                network.change_switch(switch, |s| s.add_group(group))?.err().map(refused(xid))
            }
            Output::DeleteGroup { xid, group, .. } => {
                network.change_switch(switch, |s| s.delete_group(group))?.err().map(refused(xid))
            }
            Output::AddMeter { meter, .. } => {
                network.change_switch(switch, |s| s.add_meter(at, meter));
                None
            }
            Output::DeleteMeter { xid, meter, .. } => {
                network.change_switch(switch, |s| s.delete_meter(meter))?.err().map(refused(xid))
            }
            Output::Barrier { xid, .. } => Some(Input::BarrierReply { switch, xid }),
            Output::FlowStatsRequest { .. } => {
                let rows = network.with_switch(switch, flow_rows)?;
                Some(Input::FlowStats { switch, rows })
            }
            Output::PortStatsRequest { .. } => Some(self.port_stats(now, switch, network)),
            Output::DumpRequest { .. } => network.with_switch(switch, |s| dump(switch, s)),
            _ => None,
        };
        let rules = network.change_switch(switch, |s| s.rule_count()).unwrap_or(0);
        self.rules_max = self.rules_max.max(rules);
        self.arm_sweep(now, switch, network, agenda);
        reply
    }

    fn port_stats<T: Tap>(&self, now: Ps, switch: NodeId, network: &mut Network<T>) -> Input {
        for &link in &self.fabric.node(switch).ports {
            network.links.catch_up(now, link);
            network.links.catch_up(now, link.reverse());
        }
        let rows = self.fabric.node(switch).ports.iter().map(|&link| PortStats {
            port: self.fabric.link(link).from_port,
            tx_bytes: network.links.sent_bytes(link, now),
            rx_bytes: network.links.sent_bytes(link.reverse(), now),
            tx_dropped: network.links[link.index()].dropped_packets(),
        });
        Input::PortStats { switch, rows: rows.collect() }
    }

    fn arm_sweep<T: Tap>(&mut self, now: Ps, switch: NodeId, network: &Network<T>, agenda: &mut Agenda) {
        if self.sweep[switch.index()] == NEVER {
            if let Some(at) = network.switch_timeout(switch) {
                let at = at.max(now + to_ps(SWEEP));
                self.sweep[switch.index()] = at;
                agenda.push(at, Event::Sweep(switch));
            }
        }
    }

    /// A switch removes the rules that have timed out. It informs the controller of those that have `notify_removal`.
    pub(crate) fn sweep<T: Tap>(&mut self, now: Ps, switch: NodeId, network: &mut Network<T>, agenda: &mut Agenda) {
        self.sweep[switch.index()] = NEVER;
        for removed in network.expire(now, switch) {
            let why = if removed.hard { Removal::Hard } else { Removal::Idle };
            if let Some(input) = notice(switch, removed, why) {
                self.tell(now, agenda, input);
            }
        }
        self.arm_sweep(now, switch, network, agenda);
    }

    /// A switch failed or came back.
    pub(crate) fn set_switch(&mut self, now: Ps, agenda: &mut Agenda, switch: NodeId, up: bool, links: &LinkState) {
        self.switch_dead[switch.index()] = !up;
        self.see_to_session(now, agenda, switch, links);
    }

    /// The session to a switch is lost, or may be established again.
    pub(crate) fn set_session(&mut self, now: Ps, agenda: &mut Agenda, switch: NodeId, up: bool, links: &LinkState) {
        self.session_cut[switch.index()] = !up;
        self.see_to_session(now, agenda, switch, links);
    }

    /// Ends the session to a switch and begins a new one, if it was up.
    pub(crate) fn renew_session(&mut self, now: Ps, agenda: &mut Agenda, switch: NodeId, links: &LinkState) {
        let cut = std::mem::replace(&mut self.session_cut[switch.index()], true);
        self.see_to_session(now, agenda, switch, links);
        self.set_session(now, agenda, switch, !cut, links);
    }

    /// Begins or ends the session to a switch if faults, or the state of the controller, require it.
    fn see_to_session(&mut self, now: Ps, agenda: &mut Agenda, switch: NodeId, links: &LinkState) {
        let up = self.starts.running && !self.session_cut[switch.index()] && !self.switch_dead[switch.index()];
        if std::mem::replace(&mut self.connected[switch.index()], up) == up {
            return;
        }
        self.sessions[switch.index()] += 1;
        self.asked[switch.index()] = NEVER;
        if !self.starts.running {
            return;
        }
        let input = match up {
            true => Input::SwitchUp { switch, ports_down: self.ports_down(switch, links) },
            false => Input::SwitchDown { switch },
        };
        let origin = Origin::Controller(self.starts.number);
        agenda.push(now + to_ps(self.settings.delay), Event::Inform { input: Box::new(input), origin });
    }

    /// The controller stops without notice: its unhandled messages are lost, and so are messages under way between it
    /// and switches.
    pub(crate) fn kill(&mut self, now: Ps, agenda: &mut Agenda, links: &LinkState) {
        self.starts.end(&self.controller);
        self.waiting.clear();
        self.serving = 0;
        for &switch in self.fabric.clone().switches() {
            self.see_to_session(now, agenda, switch, links);
        }
    }

    /// A controller starts, and the switches connect to it.
    pub(crate) fn restart(&mut self, now: Ps, agenda: &mut Agenda, links: &LinkState, from_snapshot: bool) {
        if self.starts.running {
            self.kill(now, agenda, links);
        }
        let Some(controller) = self.starts.begin(&self.fabric, to_nanos(now), from_snapshot) else { return };
        self.controller = controller;
        self.timer = NEVER;
        for &switch in self.fabric.clone().switches() {
            self.see_to_session(now, agenda, switch, links);
        }
        let at = now + to_ps(self.settings.delay);
        for input in self.agents_met() {
            agenda.push(at, Event::Inform { input: Box::new(input), origin: Origin::Outside });
        }
        self.arm(now, agenda);
    }

    /// Inputs that tell the controller which host agents have connected. Only a controller with enforcement `Any`
    /// needs them.
    fn agents_met(&self) -> impl Iterator<Item = Input> + '_ {
        let decides = self.settings.enforcement == Enforcement::Any;
        let hosts = self.fabric.hosts().iter().copied().filter(move |&host| decides && self.agents.at(host));
        hosts.map(|host| Input::Agent { host, speaks: true })
    }

    /// The controller writes its snapshot. Schedules the next one.
    pub(crate) fn write_snapshot(&mut self, now: Ps, agenda: &mut Agenda) {
        self.starts.store_snapshot(&self.controller);
        agenda.push(now + to_ps(self.settings.snapshot), Event::WriteSnapshot);
    }

    /// Puts another scheme in charge. A controller that does not run is not informed.
    pub(crate) fn set_scheme(&mut self, now: Ps, agenda: &mut Agenda, scheme: Box<dyn Scheme>) {
        if self.starts.running {
            self.controller.set_scheme(to_nanos(now), scheme);
            self.flush(now, agenda);
        }
    }

    /// Whether the controller runs and has a session to every switch.
    pub(crate) fn is_whole(&self) -> bool {
        self.fabric.switches().iter().all(|switch| self.connected[switch.index()])
    }

    fn ports_down(&self, switch: NodeId, links: &LinkState) -> Vec<PortNo> {
        let down = self.fabric.node(switch).ports.iter().filter(|&&link| !links.is_up(link));
        down.map(|&link| self.fabric.link(link).from_port).collect()
    }

    pub(crate) fn outcome(&self, now: Ps) -> ControlOutcome {
        let [routes, reroutes, polls] = self.starts.counted(&self.controller);
        ControlOutcome {
            messages: self.messages,
            rules_max: self.rules_max as u64,
            routes,
            reroutes,
            polls,
            polling_period: self.controller.counts().polling_period(),
            busy_share: if now == 0 { 0.0 } else { (self.busy as f64 / now as f64).min(1.0) },
            sizes: self.controller.scheme_sizes(),
        }
    }
}

fn notice(switch: NodeId, removed: Removed, why: Removal) -> Option<Input> {
    let Removed { rule, counters, .. } = removed;
    rule.notify_removal.then(|| Input::RuleRemoved { switch, key: rule.key(), cookie: rule.cookie, counters, why })
}

/// Returns the rules that count a flow, with their counters.
fn flow_rows(switch: &mut Switch) -> Vec<RuleStats> {
    let row = |(rule, counters): (&Rule, _)| RuleStats { key: rule.key(), cookie: rule.cookie, counters };
    switch.rules().into_iter().filter(|(rule, _)| rule.cookie & SOURCE_COOKIE_MASK == SOURCE_COOKIE).map(row).collect()
}

fn dump(node: NodeId, switch: &mut Switch) -> Input {
    Input::RuleDump {
        switch: node,
        rules: switch.rules().into_iter().map(|(rule, _)| rule.clone()).collect(),
        groups: switch.groups().cloned().collect(),
        meters: switch.meters().copied().collect(),
    }
}
