//! The hub as a machine of the virtual network.

use crate::addresses::Learnt;
use crate::config::{Addresses, CheckedConfig};
use crate::connection::ConnectionId;
use crate::hosts::{AgentId, Hosts};
use crate::hub::{Hub, Responder};
use crate::live_discovery::LiveDiscovery;
use pathloom_control::{Controller, Input, Snapshot};
use pathloom_model::Nanos;
use pathloom_schemes::Registry;
use pathloom_testnet::Machine;
use std::collections::BTreeSet;

/// How often periodic work is done, and the number of ticks between two readings of refused frames.
const TICK: Nanos = Nanos::from_millis(250);
const REFUSED: u64 = 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Id {
    Switch(ConnectionId),
    Agent(AgentId),
}

/// A hub with the periodic work of its drivers.
pub(crate) struct Driven {
    pub hub: Hub,
    tick: (Nanos, u64),
    open: BTreeSet<ConnectionId>,
    agents: BTreeSet<AgentId>,
}

impl Driven {
    /// The controller of a configuration, with a scheme that may be one for tests.
    pub(crate) fn new(
        checked: &CheckedConfig,
        scheme: &str,
        epoch: u16,
        snapshot: Option<Snapshot>,
        now: Nanos,
    ) -> Driven {
        let scheme = Registry::WithTestSchemes.parse(scheme).unwrap().require_central(1).unwrap();
        let (config, fabric) = (checked.control(epoch), checked.fabric.clone());
        let controller = match snapshot {
            Some(snapshot) => Controller::restore(config, fabric.clone(), scheme, snapshot, now).unwrap(),
            None => Controller::new(config, fabric.clone(), scheme),
        };
        let settings = (checked.config.sessions.clone(), checked.config.limits.clone());
        let datapaths = checked.datapaths.clone();
        let mut hub = Hub::new(Responder::Fabric(controller), Some(fabric.clone()), datapaths.clone(), settings);
        hub.clock.fixed = Some(now);
        let any = checked.config.discovery.addresses == Addresses::Any;
        let learnt = (any, checked.allowed.clone(), checked.config.discovery.most_addresses);
        let learnt = Learnt::new(fabric.clone(), learnt, &checked.places);
        hub.discovery = LiveDiscovery::new(&checked.config.discovery, fabric, datapaths, learnt, [7; 32]);
        hub.foreign = checked.config.reconcile.foreign;
        hub.queue_and_settle(Input::Timeout);
        for &(prefix, at) in &checked.places {
            hub.queue_and_settle(Input::Place { prefix, at: Some(at) });
        }
        Driven { hub, tick: (now, 0), open: BTreeSet::new(), agents: BTreeSet::new() }
    }
}

impl Machine for Driven {
    type Id = Id;

    fn connect(&mut self, now: Nanos, peer: &str) -> Option<Id> {
        self.hub.clock.fixed = Some(now);
        let id = self.hub.connect(peer.to_owned())?;
        self.open.insert(id);
        Some(Id::Switch(id))
    }

    fn connect_agent(&mut self, now: Nanos, peer: &str) -> Option<Id> {
        let id = self.hub.hosts.connect(now, peer.to_owned(), peer.parse().ok())?;
        self.agents.insert(id);
        Some(Id::Agent(id))
    }

    fn disconnect(&mut self, now: Nanos, id: Id) {
        self.hub.clock.fixed = Some(now);
        match id {
            Id::Switch(id) => {
                self.open.remove(&id);
                self.hub.disconnect(id, "the peer closed it");
            }
            Id::Agent(id) => {
                self.agents.remove(&id);
                self.hub.hosts.disconnect(id, "the peer closed it");
            }
        }
    }

    fn received(&mut self, now: Nanos, id: Id, bytes: &[u8]) -> usize {
        self.hub.clock.fixed = Some(now);
        match id {
            Id::Switch(id) => {
                let received = self.hub.received(id, bytes);
                self.hub.settle();
                received.used
            }
            Id::Agent(id) => {
                let mut used = 0;
                while let Some(length) = bytes[used..].iter().position(|&byte| byte == b'\n') {
                    if let Some(input) = self.hub.hosts.line(id, &bytes[used..used + length]) {
                        self.hub.queue_and_settle(input);
                    }
                    used += length + 1;
                }
                used
            }
        }
    }

    fn poll_transmit(&mut self) -> Option<(Id, Vec<u8>)> {
        for &id in &self.agents {
            let mut bytes = Vec::new();
            self.hub.hosts.take_output(id, &mut bytes);
            if !bytes.is_empty() {
                return Some((Id::Agent(id), bytes));
            }
        }
        let id = self.hub.all_connections().find(|connection| !connection.out.is_empty())?.id;
        Some((Id::Switch(id), self.hub.take_output(id)))
    }

    fn poll_closed(&mut self) -> Option<Id> {
        let closed = |hosts: &mut Hosts, id| hosts.take_output(id, &mut Vec::new()).unwrap_or(true);
        if let Some(id) = self.agents.iter().copied().find(|&id| closed(&mut self.hub.hosts, id)) {
            self.agents.remove(&id);
            self.hub.hosts.disconnect(id, "it was disconnected");
            return Some(Id::Agent(id));
        }
        let closed = self.hub.all_connections().find(|connection| connection.is_closed()).map(|one| one.id);
        if let Some(id) = closed {
            self.hub.disconnect(id, "it was closed");
        }
        let id = self.open.iter().copied().find(|&id| self.hub.connection_mut(id).is_none())?;
        self.open.remove(&id);
        Some(Id::Switch(id))
    }

    fn poll_timeout(&mut self) -> Option<Nanos> {
        let next = self.hub.next_timeout();
        Some(next.unwrap_or(self.tick.0).min(self.tick.0))
    }

    fn timeout(&mut self, now: Nanos) {
        self.hub.clock.fixed = Some(now);
        self.hub.timeout();
        for job in std::mem::take(&mut self.hub.jobs) {
            let answer = (job.solver)(&job.view, &job.input);
            self.hub.queue_and_settle(Input::Solved { ticket: job.ticket, answer });
        }
        if now >= self.tick.0 {
            self.tick = (now + TICK, self.tick.1 + 1);
            self.hub.tick();
            if self.tick.1.is_multiple_of(REFUSED) {
                self.hub.read_refused();
                self.hub.look_after_places();
            }
        }
    }
}
