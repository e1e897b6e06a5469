//! Outputs of the controller and periodic requests, sent to switches.

use crate::config::Launch;
use crate::hub::connection::{Connection, ConnectionId, Pending, Stage};
use crate::hub::hosts::Wants;
use crate::hub::incoming::ask;
use crate::hub::job::Job;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::numbers;
use crate::hub::own_rules;
use crate::hub::reading::{Reading, Why};
use crate::hub::refused::{self, Row};
use crate::hub::roles::{self, Roles, Standing};
use crate::hub::scheme_process::{self, SchemeProcess};
use crate::hub::upkeep::{self, Tick, Verdict};
use crate::hub::{Hub, Responder};
use pathloom_control::{Controller, Input, Output, CONTROL, DEFAULTS, SOURCE_COOKIE, SOURCE_COOKIE_MASK};
use pathloom_model::rules::Refusal;
use pathloom_model::{Nanos, NodeId};
use pathloom_openflow::action::Action;
use pathloom_openflow::convert::{self, UnsupportedRule};
use pathloom_openflow::{
    ErrorMessage, FlowStatsRequest, Message, PacketOut, Request, RoleMessage, SwitchConfig, NO_BUFFER, PORT_CONTROLLER,
};
use pathloom_scheme::remote::Order;
use pathloom_scheme::{Detection, State};
use std::borrow::Cow;

/// Number of bytes that a switch sends to the controller of a packet without a matching rule. Every packet matches a
/// rule, so the value has no effect.
const MISS_BYTES: u16 = 128;

impl Hub {
    /// The hub follows another controller. To be called before the first connection.
    pub fn follow(&mut self) {
        self.roles.set(Standing::Follows);
        self.hosts.follow(None);
    }

    /// The hub follows the controller with this name, if one leads.
    pub fn set_leader(&mut self, leader: Option<String>) {
        self.hosts.follow(leader);
    }

    /// Etcd does not confirm any more that this controller leads.
    pub fn doubt(&mut self) {
        self.hosts.doubt();
    }

    /// The hub leads by the election with this number, with a new controller. It takes over all sessions. Its driver gives
    /// it discovery before.
    pub fn lead(&mut self, now: Nanos, election: u64, controller: Controller) {
        self.advance(now);
        self.responder = Responder::Fabric(controller);
        self.hosts.lead(election);
        self.handle(now, Input::Timeout);
        self.renew_lead(now, election);
    }

    /// The hub, which led, leads by another election. Sessions go on.
    pub fn renew_lead(&mut self, now: Nanos, election: u64) {
        self.advance(now);
        self.roles.set(Standing::Leads(election));
        self.hosts.lead(election);
        self.ask_for_roles(|_| true);
    }

    /// Whether a switch has refused this controller as the leader since the last call.
    pub fn take_refusal(&mut self) -> bool {
        self.roles.take_refusal()
    }

    /// Begins the session with a switch that is known. If there are several controllers, asks for a role first.
    pub(crate) fn begin(&mut self, id: ConnectionId, dpid: u64) {
        if self.roles.is_alone() {
            return self.begin_session(id, dpid);
        }
        let now = self.now;
        let Hub { connections, roles, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        connection.stage = Stage::Standby { dpid };
        roles.ask(now, connection);
        self.mark(id);
    }

    fn begin_session(&mut self, id: ConnectionId, dpid: u64) {
        let now = self.now;
        let Some(connection) = self.connection_mut(id) else { return };
        if matches!(connection.stage, Stage::Standby { .. }) {
            // It may have stood by for hours, and its time to answer begins now.
            connection.since = now;
        }
        connection.stage = Stage::Ports { dpid };
        connection.queue(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: MISS_BYTES }));
        ask(connection, Request::Description, Pending::Description);
        ask(connection, Request::PortDesc, Pending::Ports(Vec::new()));
        self.mark(id);
    }

    /// Asks for the role of this controller in these sessions.
    fn ask_for_roles(&mut self, wanted: impl Fn(&Connection) -> bool) {
        let now = self.now;
        let all: Vec<ConnectionId> =
            self.connections.iter().filter(|&connection| wanted(connection)).map(|connection| connection.id).collect();
        for id in all {
            let Hub { connections, roles, .. } = self;
            connections.get_mut(id).into_iter().for_each(|connection| roles.ask(now, connection));
            self.mark(id);
        }
    }

    /// A switch has granted a role.
    pub(crate) fn role_granted(&mut self, now: Nanos, id: ConnectionId, xid: u32, granted: RoleMessage) {
        let Hub { connections, roles, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        match roles.granted(now, connection, xid, granted) {
            Some(dpid) => self.begin_session(id, dpid),
            None => self.mark(id),
        }
    }

    /// Handles an error, if it is about roles. Returns whether it is.
    pub(crate) fn is_role_refused(&mut self, now: Nanos, id: ConnectionId, xid: u32, error: &ErrorMessage<'_>) -> bool {
        let Hub { connections, roles, .. } = self;
        let refusal = connections.get_mut(id).and_then(|connection| roles.refused(now, connection, xid, error));
        match refusal {
            None => return false,
            Some(roles::Refusal::NoRoles) => {
                self.offence(id, "it does not know roles, so it cannot have several controllers");
            }
            Some(roles::Refusal::NewerLeader { stood: false }) => {}
            Some(roles::Refusal::NewerLeader { stood: true }) => self.forget_switch(now, id),
        }
        true
    }

    /// The switch of a session is no longer this controller's. The session stays.
    fn forget_switch(&mut self, now: Nanos, id: ConnectionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        let (node, discovered) = (connection.node, connection.discovered_dpid.take());
        if let Some(node) = node.filter(|&node| self.switches.end_session(node, id)) {
            self.queued.push_back(Input::SwitchDown { switch: node });
        }
        if let (Some(dpid), Some(discovery)) = (discovered, &mut self.discovery) {
            discovery.switch_down(now, dpid);
        }
    }

    /// Carries out one output. Outputs for a switch without a session are dropped. With its next session, the
    /// controller compares what the switch has with what it should have.
    pub(crate) fn carry_out(&mut self, now: Nanos, output: Output) {
        match output {
            Output::AddRule { switch, xid, ref rule } => {
                let rule = self
                    .port_map(switch)
                    .map_or(Cow::Borrowed(rule), |map| Cow::Owned(numbers::rule_to_switch(map, rule)));
                self.change(switch, xid, |connection| convert::emit_add_rule(&rule, xid, &mut connection.out));
                own_rules::add_arp_route(self, switch, &rule);
            }
            Output::DeleteRule { switch, xid, key } => {
                self.change(switch, xid, |connection| convert::emit_delete_rule(&key, xid, &mut connection.out));
                own_rules::delete_arp_route(self, switch, &key);
            }
            Output::Barrier { switch, xid } => {
                self.change(switch, xid, |connection| Ok(Message::BarrierRequest.emit(xid, &mut connection.out)?));
            }
            Output::AddGroup { switch, xid, ref group } => {
                let group = self
                    .port_map(switch)
                    .map_or(Cow::Borrowed(group), |map| Cow::Owned(numbers::group_to_switch(map, group)));
                self.change(switch, xid, |connection| {
                    let group = connection.hash_step.to_switch(&group);
                    let message = convert::group_mod(&group, !connection.groups.insert(group.id.0))?;
                    Ok(message.emit(xid, &mut connection.out)?)
                });
            }
            Output::DeleteGroup { switch, xid, group } => self.change(switch, xid, |connection| {
                connection.groups.remove(&group.0);
                Ok(convert::group_delete(group).emit(xid, &mut connection.out)?)
            }),
            Output::AddMeter { switch, xid, meter } => self.change(switch, xid, |connection| {
                let exists = !connection.meters.insert(meter.id.0);
                Ok(convert::meter_mod(&meter, exists).emit(xid, &mut connection.out)?)
            }),
            Output::DeleteMeter { switch, xid, meter } => self.change(switch, xid, |connection| {
                connection.meters.remove(&meter.0);
                Ok(convert::meter_delete(meter).emit(xid, &mut connection.out)?)
            }),
            Output::FlowStatsRequest { switch } => self.ask(switch, |connection| {
                let (cookie, cookie_mask) = (SOURCE_COOKIE, SOURCE_COOKIE_MASK);
                let request = FlowStatsRequest { cookie, cookie_mask, ..FlowStatsRequest::ALL };
                ask(connection, Request::Flows(request), Pending::FlowStats { asked: now, rows: Vec::new() });
            }),
            Output::PortStatsRequest { switch } => self.ask(switch, |connection| {
                ask(connection, Request::Ports, Pending::PortStats(Vec::new()));
            }),
            Output::DumpRequest { switch } => self.ask(switch, |connection| read_all(connection, Why::Dump)),
            Output::ReviewRequest { switch, number } => {
                self.ask(switch, |connection| read_all(connection, Why::Review(number)))
            }
            Output::Repaired { at, restored, surplus } => self.say_repaired(at, restored, surplus),
            Output::Solve { ticket, input, .. } => {
                let Some(input) = self.order_of_process(ticket, input) else { return };
                if let Some(controller) = self.controller() {
                    let (solver, view) = (controller.solver(), controller.view().clone());
                    self.jobs.push_back(Job { ticket, solver, view, input });
                }
            }
            Output::HoldFlow { .. } | Output::ReleaseFlow { .. } | Output::PaceFlow { .. } => {
                self.hosts.carry_out(&output)
            }
            Output::Assigned { request, .. } | Output::Claimed { request, .. } | Output::Released { request, .. } => {
                if let Some(output) = self.assigning.answered(request, output) {
                    self.tell_agent(output);
                }
            }
        }
    }

    /// Tells host agents what the scheme in charge needs from them, if that has changed.
    pub(crate) fn report_scheme_needs(&mut self) {
        if let Responder::Fabric(controller) = &self.responder {
            let detection = controller.needs().detection;
            let announce = detection == Detection::Announced;
            self.hosts.set_wants(Wants { announce, report: matches!(detection, Detection::Any { .. }) });
        }
    }

    /// Passes an answer to an agent. The answer to an assignment waits until its connections will be seen.
    fn tell_agent(&mut self, output: Output) {
        if let Output::Assigned { answer: Ok(assigned), .. } = &output {
            let id = assigned.assignment;
            if let Some(listed) = self.controller().and_then(|controller| controller.assignments().get(id)) {
                return self.assigning.agent_waits(listed.request.src, output);
            }
        }
        self.hosts.carry_out(&output);
    }

    /// Sends the waiting answers whose connections will now be seen.
    pub(crate) fn send_visible_answers(&mut self) {
        let Responder::Fabric(controller) = &self.responder else { return };
        for output in self.assigning.seen(self.now, |src| controller.sees_connections_of(src)) {
            self.hosts.carry_out(&output);
        }
    }

    /// Sends a frame out of a port. If the switch has no session, a frame of hosts takes the trees instead.
    pub(crate) fn send_frame(&mut self, now: Nanos, (dpid, port): (u64, u32), data: &[u8]) {
        match self.standing(dpid) {
            Some(id) => self.packet_out(id, &[Action::Output { port, max_len: 0 }], data),
            None if LiveDiscovery::is_of_hosts(data) => self.send_elsewhere(now, None, data),
            None => {}
        }
    }

    /// Sends a frame of hosts to the switches without a session, along the trees. These forward it to all of their hosts
    /// ([`crate::hub::punts`]). It enters the trees at the switch with this datapath identifier, if it has a session.
    pub(crate) fn send_elsewhere(&mut self, now: Nanos, dpid: Option<u64>, data: &[u8]) {
        let (Some(fabric), Some(discovery)) = (self.fabric.clone(), &mut self.discovery) else { return };
        let alone = |tor: &&_| self.switches.session(**tor).is_none();
        if !fabric.tors().iter().any(|tor| alone(&tor)) || !discovery.note_elsewhere(now, data) {
            return;
        }
        let any = || fabric.tors().iter().find_map(|&tor| self.switches.session(tor));
        let Some(id) = dpid.and_then(|dpid| self.standing(dpid)).or_else(any) else { return };
        let Some(node) = self.connections.get(id).and_then(|connection| connection.node) else { return };
        let ports = self.discovery.as_ref().map(|discovery| discovery.tree_ports(&fabric, node)).unwrap_or_default();
        self.packet_out(id, &ports.along_trees(), data);
    }

    /// The connection of a switch whose session is up.
    pub(crate) fn standing(&self, dpid: u64) -> Option<ConnectionId> {
        let id = self.switches.owner(dpid)?;
        self.connections.get(id).filter(|connection| matches!(connection.stage, Stage::Up { .. })).map(|_| id)
    }

    fn packet_out(&mut self, id: ConnectionId, actions: &[Action], data: &[u8]) {
        let Some(connection) = self.connection_mut(id).filter(|_| !actions.is_empty()) else { return };
        let actions = Cow::Borrowed(actions);
        connection.queue(&Message::PacketOut(PacketOut { buffer: NO_BUFFER, in_port: PORT_CONTROLLER, actions, data }));
        self.mark(id);
    }

    /// Does the periodic work that is due.
    pub(crate) fn do_periodic_work(&mut self, now: Nanos) {
        if self.periodic.take_ports(now) {
            self.read_ports();
        }
        let Some(Tick { lag, with_refused }) = self.periodic.take_tick(now) else { return };
        lag.into_iter().for_each(|lag| self.gauges.lag.add(lag));
        self.tick(now);
        if with_refused {
            self.read_refused();
            self.look_after_places(now);
        }
    }

    /// Checks learnt addresses for which no host has sent ARP.
    fn look_after_places(&mut self, now: Nanos) {
        let placed: Vec<_> = self.controller().map(|controller| controller.placed().collect()).unwrap_or_default();
        if let Some(discovery) = &mut self.discovery {
            discovery.look_after_places(now, &placed);
        }
    }

    /// Checks peers, agents and flows.
    fn tick(&mut self, now: Nanos) {
        self.hosts.tick(now);
        self.queued.extend(self.hosts.changes());
        for (whose, times) in self.log_limiter.overdue(now) {
            tracing::warn!(whose, times, "refused again since the last message about it");
        }
        let sessions = self.sessions.clone();
        let all: Vec<ConnectionId> = self.connections.iter().map(|connection| connection.id).collect();
        for id in all {
            match self.connections.get(id).and_then(|connection| upkeep::verdict(connection, now, &sessions)) {
                Some(Verdict::Echo) => self.echo(now, id),
                Some(Verdict::Close(why)) => self.close(id, why),
                Some(Verdict::Offence(why)) => self.offence(id, why),
                Some(Verdict::Over(why)) => self.disconnect(now, id, why),
                Some(Verdict::Claim { dpid, since }) => self.resolve_duplicate(now, id, dpid, since),
                None => {}
            }
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.review(now);
        }
        own_rules::renew_punts(self, now);
        self.ask_for_roles(|connection| Roles::is_due(now, connection));
        let Responder::Fabric(controller) = &self.responder else { return };
        if self.switches.owners() > 0 {
            self.warned.unlabelled(now, controller, &self.gauges.scheme);
        }
        self.warned.uncounted(now, controller);
        self.warned.over_budget(now, controller);
    }

    pub(crate) fn echo(&mut self, now: Nanos, id: ConnectionId) {
        if let Some(connection) = self.connection_mut(id) {
            connection.last_echo = now;
            connection.queue(&Message::EchoRequest(&now.0.to_be_bytes()));
            self.mark(id);
        }
    }

    /// Reads from every switch how many frames of hosts it refused. Skips switches that have not answered the last
    /// request.
    fn read_refused(&mut self) {
        let standing: Vec<ConnectionId> = self.switches.sessions().flatten().collect();
        for id in standing {
            let Some(connection) = self.connection_mut(id) else { continue };
            if connection.pending.values().any(|pending| matches!(pending, Pending::Refused(_))) {
                continue;
            }
            let (cookie, cookie_mask) = refused::SELECTED;
            let own = FlowStatsRequest { cookie, cookie_mask, table: CONTROL, ..FlowStatsRequest::ALL };
            let left_over = FlowStatsRequest { table: DEFAULTS, ..FlowStatsRequest::ALL };
            for request in [own, left_over] {
                ask(connection, Request::Flows(request), Pending::Refused(Vec::new()));
            }
            self.mark(id);
        }
    }

    /// Counts the frames that a switch refused, and logs them.
    pub(crate) fn count_refused(&mut self, now: Nanos, id: ConnectionId, rows: &[Row]) {
        let Some(switch) = self.connection_mut(id).and_then(|connection| connection.node) else { return };
        let Some(fabric) = self.fabric.clone() else { return };
        for row in rows {
            if let Some(frames) = self.refused.take(now, switch, row) {
                refused::log_refused(&fabric.node(switch).name, row, frames);
            }
        }
    }

    /// Logs wrong rules that a review found. There are at most a few reviews a second per switch.
    fn say_repaired(&mut self, at: NodeId, restored: u64, surplus: u64) {
        let name = self.fabric.as_ref().map_or("", |fabric| &fabric.node(at).name);
        tracing::warn!(
            switch = name,
            restored,
            surplus,
            "rules were changed by somebody else; the controller restored them"
        );
    }

    /// Reads the port counters of every switch.
    fn read_ports(&mut self) {
        let standing: Vec<ConnectionId> = self.switches.sessions().flatten().collect();
        for id in standing {
            let Some(connection) = self.connection_mut(id) else { continue };
            // Skips switches that have not answered the last request.
            if !connection.pending.values().any(|pending| matches!(pending, Pending::PortStats(_))) {
                ask(connection, Request::Ports, Pending::PortStats(Vec::new()));
                self.mark(id);
            }
        }
    }

    /// Queues a message that the switch may refuse.
    #[inline]
    fn change(&mut self, switch: NodeId, xid: u32, emit: impl FnOnce(&mut Connection) -> Result<(), UnsupportedRule>) {
        let Some(id) = self.switches.session(switch) else { return };
        let Some(connection) = self.connection_mut(id) else { return };
        if let Err(problem) = emit(connection) {
            tracing::error!(peer = %connection.peer, node = ?switch, %problem, "OpenFlow cannot express a message");
            self.queued.push_back(Input::Refused { switch, xid, why: Refusal::Unsupported });
        }
        self.mark(id);
    }

    fn ask(&mut self, switch: NodeId, ask: impl FnOnce(&mut Connection)) {
        let Some(id) = self.switches.session(switch) else { return };
        if let Some(connection) = self.connection_mut(id) {
            ask(connection);
            self.mark(id);
        }
    }

    /// Passes a job to the process if it is an order for it. Returns the input of another job.
    pub(crate) fn order_of_process(&mut self, ticket: u64, input: State) -> Option<State> {
        let now = self.now;
        let Some(process) = &mut self.process else { return Some(input) };
        match Order::from_state(input.clone()) {
            Some(order) => process.order(now, ticket, order),
            None => return Some(input),
        }
        self.take_answers();
        None
    }

    /// A line of the process with this number.
    pub(crate) fn process_line(&mut self, now: Nanos, number: u64, line: &str) {
        self.with_process(now, |process, now| process.line(now, number, line));
    }

    /// The process with this number has ended.
    pub(crate) fn process_ended(&mut self, now: Nanos, number: u64, why: &str) {
        self.with_process(now, |process, now| process.ended(now, number, why));
    }

    /// Begins anew with a process that is launched so. Flows keep their paths.
    pub(crate) fn reload_process(&mut self, now: Nanos, launch: Launch, answer_within: Nanos) {
        self.with_process(now, |process, now| process.reload(now, launch, answer_within));
    }

    fn with_process(&mut self, now: Nanos, work: impl FnOnce(&mut SchemeProcess, Nanos)) {
        let now = self.advance(now);
        if let Some(process) = &mut self.process {
            work(process, now);
        }
        self.take_answers();
        self.settle(now);
    }

    /// Handles the time-outs of the process.
    pub(crate) fn time_out_process(&mut self, now: Nanos) {
        if let Some(process) = &mut self.process {
            process.timeout(now);
        }
        self.take_answers();
    }

    /// Queues the answers for the scheme.
    fn take_answers(&mut self) {
        while let Some((ticket, answer)) = self.process.as_mut().and_then(SchemeProcess::poll_answer) {
            self.queued.push_back(Input::Solved { ticket, answer: answer.to_state() });
        }
    }

    /// What the driver of the process must do next.
    pub(crate) fn poll_process(&mut self) -> Option<scheme_process::Output> {
        self.process.as_mut()?.poll_output()
    }

    /// Whether the driver of the process must do something.
    pub(crate) fn wants_process(&self) -> bool {
        self.process.as_ref().is_some_and(SchemeProcess::has_outputs)
    }
}

/// Requests all rules, groups and meters. The rules come last, because their answer is the longest.
pub(crate) fn read_all(connection: &mut Connection, why: Why) {
    if let Some(before) = connection.reading.take() {
        // The previous reading was not answered in time.
        before.waiting.iter().for_each(|xid| drop(connection.pending.remove(xid)));
    }
    let mut reading = Reading::new(why, [connection.groups.clone(), connection.meters.clone()]);
    let requests = [Request::GroupDesc, Request::MeterConfigs, Request::Flows(FlowStatsRequest::ALL)];
    reading.waiting = requests.into_iter().map(|request| ask(connection, request, Pending::Reading)).collect();
    reading.rules_xid = reading.waiting[2];
    connection.reading = Some(reading);
}
