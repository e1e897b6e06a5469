//! A controller, a fabric of switches and flows of its hosts, in virtual time.

use super::driven::{self, Driven};
use pathloom_control::cookies::{Cookie, RuleKind};
use pathloom_control::{Input, SchemeChange, Snapshot, Target};
use pathloom_controller::config::{self, CheckedConfig};
use pathloom_host_agent::agent::ProgramId;
use pathloom_model::rules::{Rule, RuleAction};
use pathloom_model::{FiveTuple, Headers, Nanos, NodeId, PortNo, LONG_FLOW_DSCP, PROTO_UDP};
use pathloom_openflow::action::Action;
use pathloom_testnet::{Device, Faults, Network, Timing};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// Time between two packets of a flow.
const GAP: Nanos = Nanos::from_millis(3);

/// The rules and the number of meters of each switch.
pub(crate) type State = BTreeMap<NodeId, (Vec<Rule>, usize)>;

/// A cookie without the number of the start of the controller.
fn without_epoch(cookie: u64) -> u64 {
    let of = |epoch| Cookie::of_no_flow(RuleKind::Default, epoch).encode();
    cookie & !(of(u16::MAX) ^ of(0))
}

/// An action, or the outputs of the group that it names, if the switch has this group.
fn spelt_out(device: &Device, action: &RuleAction) -> Vec<RuleAction> {
    let RuleAction::Group(id) = *action else { return vec![*action] };
    let groups = device.tables.group_rows();
    let Some(group) = groups.iter().find(|group| group.id == id.0) else { return vec![*action] };
    let outputs = group.buckets.iter().flat_map(|bucket| bucket.actions.iter());
    let output = |action: &Action| match *action {
        Action::Output { port, .. } => Some(RuleAction::Output(PortNo(port))),
        _ => None,
    };
    outputs.filter_map(output).collect()
}

/// The network and the controller, which may be killed and started again.
pub(crate) struct World {
    network: Network<Driven>,
    config: CheckedConfig,
    epoch: u16,
    /// The scheme in charge.
    pub scheme: String,
    /// The first packet of each flow.
    pub flows: Vec<Headers>,
    /// Sizes that programs announce.
    sizes: BTreeMap<FiveTuple, Option<u64>>,
}

impl Deref for World {
    type Target = Network<Driven>;

    fn deref(&self) -> &Network<Driven> {
        &self.network
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Network<Driven> {
        &mut self.network
    }
}

impl World {
    /// A controller with this scheme, and additional sections of its configuration. No switch has connected.
    ///
    /// # Errors
    /// The configuration or the scheme is not valid.
    pub(crate) fn new(fabric: &str, scheme: &str, more: &str, timing: Timing, seed: u64) -> Result<World, String> {
        let text = format!("{more}\n[fabric]\nspec = \"{fabric}\"\n");
        let config = config::check(&text, Path::new("/")).map_err(|problem| problem.to_string())?;
        let machine = Driven::new(&config, scheme, 1, None, Nanos::ZERO)?;
        let network = Network::new(config.fabric.clone(), machine, timing, seed);
        let (flows, sizes) = (Vec::new(), BTreeMap::new());
        Ok(World { network, config, epoch: 1, scheme: scheme.to_owned(), flows, sizes })
    }

    /// All switches connect and get their rules.
    ///
    /// # Errors
    /// A switch has no session after 5 s.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        self.connect_all();
        self.run_for(Nanos::from_secs(5));
        let (sessions, switches) = (self.sessions(), self.fabric.switches().len());
        if sessions < switches {
            return Err(format!("{sessions} of {switches} switches have a session after 5 s"));
        }
        Ok(())
    }

    /// Runs with traffic until all switches have sessions.
    ///
    /// # Errors
    /// A switch has no session after 60 s.
    pub(crate) fn await_sessions(&mut self) -> Result<(), String> {
        let (end, switches) = (self.now() + Nanos::from_secs(60), self.fabric.switches().len());
        while self.sessions() < switches {
            if self.now() >= end {
                return Err(format!("{} of {switches} switches have a session after 60 s", self.sessions()));
            }
            self.traffic(Nanos::from_millis(50));
        }
        Ok(())
    }

    /// The operator takes a switch or cable out of service, or puts it back, unless the controller refuses it.
    pub(crate) fn drain(&mut self, target: Target, out: bool) {
        self.network.with(|machine, now| {
            let hub = &mut machine.hub;
            if hub.controller().is_some_and(|controller| controller.check_drain(now, target, out).is_ok()) {
                hub.handle(now, Input::Drain { target, out });
            }
        });
    }

    /// The operator puts another scheme in charge.
    ///
    /// # Errors
    /// The scheme is not valid.
    pub(crate) fn change_scheme(&mut self, spec: &str) -> Result<(), String> {
        let (scheme, change) = (driven::scheme(spec)?, SchemeChange { spec: spec.to_owned(), seed: 1 });
        self.network.with(|machine, now| machine.hub.set_scheme(now, change, scheme));
        spec.clone_into(&mut self.scheme);
        Ok(())
    }

    pub(crate) fn sessions(&mut self) -> usize {
        self.machine().hub.session_count()
    }

    /// In what a switch differs from one that works well.
    pub(crate) fn faults(&mut self, node: NodeId) -> &mut Faults {
        let device = self.devices.get_mut(&node);
        &mut device.expect("a network has all switches of its fabric").faults
    }

    /// Headers of a labelled flow between the hosts with these numbers.
    pub(crate) fn packet(&self, from: usize, to: usize, src_port: u16) -> Headers {
        let address = |host: usize| self.hosts[host].address;
        let five_tuple = FiveTuple::new(PROTO_UDP, (address(from), src_port), (address(to), 80));
        Headers { dscp: LONG_FLOW_DSCP, tcp_flags: 0, ..Headers::plain(five_tuple) }
    }

    /// A flow begins. The agent of its host, if there is one, is told its size.
    pub(crate) fn begin_flow(&mut self, (from, to, port): (usize, usize, u16), size_bytes: Option<u64>) {
        let headers = self.packet(from, to, port);
        self.flows.push(headers);
        self.sizes.insert(headers.five_tuple, size_bytes);
        if let Some(agent) = self.agent_of(from) {
            self.announce_flow(agent, headers.five_tuple);
        }
    }

    fn announce_flow(&mut self, agent: usize, flow: FiveTuple) {
        let size_bytes = self.sizes.get(&flow).copied().flatten();
        let program = ProgramId(flow.src_port().into());
        // An agent has room for many more flows than there are.
        self.with_agent(agent, |agent| agent.handle_announce(program, flow, size_bytes).ok());
    }

    /// The flow with this number ends.
    pub(crate) fn end_flow(&mut self, number: usize) {
        let flow = self.flows.remove(number).five_tuple;
        let host = self.hosts.iter().position(|host| host.address == flow.src());
        if let Some(agent) = host.and_then(|host| self.agent_of(host)) {
            self.with_agent(agent, |agent| agent.handle_finish(ProgramId(flow.src_port().into()), flow));
        }
    }

    /// The agent of a host is killed and starts again. Programs announce their flows again.
    pub(crate) fn kill_agent(&mut self, host: usize) {
        let (Some(agent), address) = (self.agent_of(host), self.hosts[host].address) else { return };
        self.restart_agent(agent);
        let flows: Vec<FiveTuple> = self.flows.iter().map(|headers| headers.five_tuple).collect();
        for flow in flows.into_iter().filter(|flow| flow.src() == address) {
            self.announce_flow(agent, flow);
        }
    }

    /// Advances the time while all flows send that are not held.
    pub(crate) fn traffic(&mut self, time: Nanos) {
        let end = self.now() + time;
        while self.now() < end {
            for headers in self.flows.clone() {
                if !self.is_held(&headers.five_tuple) {
                    self.send(headers);
                }
            }
            self.run_for(GAP);
        }
    }

    /// The rules of all switches that stay: without those of a sweep, which expire by themselves; without the number of
    /// the start of the controller that added them; and with the ports of a group in place of its number, which depends
    /// on the groups that the switch had before.
    pub(crate) fn state(&self) -> State {
        let of = |(&node, device): (&NodeId, &Device)| {
            let rules = device.tables.rules().into_iter().filter(|rule| rule.hard_timeout_s == 0);
            let lasting = |rule: Rule| Rule {
                cookie: without_epoch(rule.cookie),
                actions: rule.actions.as_slice().iter().flat_map(|action| spelt_out(device, action)).collect(),
                ..rule
            };
            (node, (rules.map(lasting).collect(), device.tables.meter_count()))
        };
        self.devices.iter().map(of).collect()
    }

    /// Switches with other rules than then, each with the first rule that it lacks, the first one that it has in
    /// addition, and the numbers of meters.
    pub(crate) fn changed_since(&self, then: &State) -> Vec<String> {
        let now = self.state();
        let line = |node: &NodeId, before: &(Vec<Rule>, usize), after: &(Vec<Rule>, usize)| {
            let lacked = before.0.iter().find(|rule| !after.0.contains(rule));
            let surplus = after.0.iter().find(|rule| !before.0.contains(rule));
            let (name, meters) = (&self.fabric.node(*node).name, (before.1, after.1));
            format!("{name}: lacks {lacked:?}, has {surplus:?}, meters {meters:?}")
        };
        let changed = then.iter().filter(|(node, before)| now[node] != **before);
        changed.map(|(node, before)| line(node, before, &now[node])).collect()
    }

    /// The controller is killed. Returns its last snapshot, unless none was running.
    pub(crate) fn kill_controller(&mut self) -> Option<Snapshot> {
        self.kill()?.hub.controller().map(|controller| controller.snapshot())
    }

    /// Another controller starts, from a snapshot if there is one.
    ///
    /// # Errors
    /// The scheme or the snapshot is not valid.
    pub(crate) fn start_controller(&mut self, scheme: &str, snapshot: Option<Snapshot>) -> Result<(), String> {
        self.epoch += 1;
        scheme.clone_into(&mut self.scheme);
        let machine = Driven::new(&self.config, scheme, self.epoch, snapshot, self.now())?;
        self.start(machine);
        Ok(())
    }
}
