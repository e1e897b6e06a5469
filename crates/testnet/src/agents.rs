//! Agents of hosts: the state machine of `pathloom-hostd`, with the orders that a kernel would carry out.

use crate::machine::Machine;
use crate::network::{Event, Network};
use crate::sessions::REDIAL;
use pathloom_host_agent::agent::{Agent, ControllerId, Order, Settings, PACES_KEPT};
use pathloom_model::{FiveTuple, Nanos};
use std::collections::BTreeMap;

/// The agent of a host, and its connection.
#[derive(Debug)]
pub(crate) struct HostAgent {
    host: usize,
    agent: Agent,
    /// The open connections, by the number of their controller.
    peers: BTreeMap<usize, usize>,
    /// Orders in force. They outlive the agent, as those of a kernel do.
    orders: BTreeMap<FiveTuple, Order>,
    /// The next time for which an event is planned.
    planned: Option<Nanos>,
}

impl<M: Machine> Network<M> {
    fn new_agent(&self, host: usize) -> Agent {
        Agent::new(Settings {
            hosts: self.hosts[host].address.v4().into_iter().collect(),
            token: None,
            max_flows: 1000,
        })
    }

    /// The agent of a host starts, and connects whenever it has no connection.
    pub fn start_agent(&mut self, host: usize) {
        let agent = self.new_agent(host);
        self.agents.push(HostAgent { host, agent, peers: BTreeMap::new(), orders: BTreeMap::new(), planned: None });
        self.dial_agent(self.agents.len() - 1);
    }

    /// Number of the agent of a host, if it has one.
    pub fn agent_of(&self, host: usize) -> Option<usize> {
        self.agents.iter().position(|one| one.host == host)
    }

    /// Number of agents.
    pub fn agent_count(&self) -> usize {
        self.agents.len()
    }

    /// Calls an agent as its kernel and its programs do, and sends what results.
    pub fn with_agent<T>(&mut self, agent: usize, call: impl FnOnce(&mut Agent) -> T) -> T {
        let result = call(&mut self.agents[agent].agent);
        self.agent_changed(agent);
        result
    }

    /// The connections of an agent break.
    pub fn break_agent(&mut self, agent: usize) {
        let peers: Vec<usize> = self.agents[agent].peers.values().copied().collect();
        peers.into_iter().for_each(|peer| self.break_connection(peer));
    }

    /// An agent is killed, and another one starts and takes over the orders in force. Programs must announce their
    /// transfers again.
    pub fn restart_agent(&mut self, agent: usize) {
        self.break_agent(agent);
        let (now, mut new) = (self.now, self.new_agent(self.agents[agent].host));
        for (&flow, &order) in &self.agents[agent].orders {
            new.adopt(now, flow, order, now + PACES_KEPT);
        }
        new.adopt_election(self.agents[agent].agent.newest_election());
        self.agents[agent].agent = new;
        self.agent_changed(agent);
    }

    /// Whether an agent has ordered that a flow sends nothing now.
    pub fn is_held(&self, flow: &FiveTuple) -> bool {
        let orders = self.agents.iter().filter_map(|one| one.orders.get(flow));
        orders.filter_map(|order| order.hold_until).any(|until| until > self.now || self.keeps_holds)
    }

    /// An agent connects to all controllers that it has no connection with.
    pub(crate) fn dial_agent(&mut self, agent: usize) {
        let missing = (0..self.controllers).filter(|controller| !self.agents[agent].peers.contains_key(controller));
        let missing: Vec<usize> = missing.collect();
        let refused = missing.into_iter().filter(|&controller| !self.dial_agent_to(agent, controller)).count();
        if refused > 0 && self.is_controlled() {
            self.plan_dial_agent(agent);
        }
    }

    /// An agent connects to a controller. Returns whether it is accepted.
    fn dial_agent_to(&mut self, agent: usize, controller: usize) -> bool {
        let now = self.now;
        let address = self.hosts[self.agents[agent].host].address.to_string();
        let Some(machine) = self.called() else { return false };
        let id = machine.connect_agent_to(now, controller, &address);
        let Some(peer) = self.opened(id, None, Some(agent)) else { return false };
        self.peers[peer].controller = controller;
        self.agents[agent].peers.insert(controller, peer);
        self.with_agent(agent, |agent| agent.handle_connected(ControllerId(controller)));
        true
    }

    pub(crate) fn plan_dial_agent(&mut self, agent: usize) {
        let at = self.now + self.draw(REDIAL);
        self.plan(at, Event::DialAgent(agent));
    }

    /// The connection of an agent is over.
    pub(crate) fn agent_lost(&mut self, agent: usize, peer: usize) {
        let controller = self.peers[peer].controller;
        if self.agents[agent].peers.get(&controller) == Some(&peer) {
            let now = self.now;
            self.agents[agent].peers.remove(&controller);
            self.with_agent(agent, |agent| agent.handle_lost(now, ControllerId(controller)));
            self.plan_dial_agent(agent);
        }
    }

    /// An agent handles the lines that have arrived.
    pub(crate) fn at_agent(&mut self, agent: usize, peer: usize) {
        let (now, controller) = (self.now, ControllerId(self.peers[peer].controller));
        while let Some(end) = self.peers[peer].heard.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.peers[peer].heard.drain(..=end).collect();
            self.with_agent(agent, |agent| agent.handle_line(now, controller, &line[..end]));
        }
    }

    pub(crate) fn agent_time(&mut self, agent: usize) {
        let now = self.now;
        self.agents[agent].planned = None;
        self.with_agent(agent, |agent| agent.handle_time(now));
    }

    /// Carries out an agent's orders, and sends its lines.
    fn agent_changed(&mut self, agent: usize) {
        let (one, keeps_holds) = (&mut self.agents[agent], self.keeps_holds);
        while let Some((flow, order)) = one.agent.poll_order() {
            let held = one.orders.get(&flow).is_some_and(|order| order.hold_until.is_some());
            if keeps_holds && held {
                continue;
            }
            match order.hold_until.is_some() || order.pace_bps.is_some() {
                true => one.orders.insert(flow, order),
                false => one.orders.remove(&flow),
            };
        }
        while one.agent.poll_program().is_some() {}
        let lines: Vec<(ControllerId, String)> = std::iter::from_fn(|| one.agent.poll_line()).collect();
        let timeout = one.agent.poll_timeout();
        if let Some(at) = timeout.filter(|&at| one.planned.is_none_or(|planned| at < planned)) {
            one.planned = Some(at);
            self.plan(at.max(self.now), Event::AgentTime(agent));
        }
        for (ControllerId(controller), line) in lines {
            if let Some(&peer) = self.agents[agent].peers.get(&controller) {
                self.say(peer, format!("{line}\n").as_bytes());
            }
        }
    }
}
