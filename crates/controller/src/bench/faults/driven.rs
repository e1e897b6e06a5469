//! The hub as a machine of the virtual network.

use crate::config::{Addresses, CheckedConfig};
use crate::hub::connection::{ConnectionId, Transmit};
use crate::hub::hosts::AgentId;
use crate::hub::learnt::Learnt;
use crate::hub::live_discovery::LiveDiscovery;
use crate::hub::{Hub, Responder};
use pathloom_control::{Controller, Input, Snapshot};
use pathloom_model::Nanos;
use pathloom_scheme::Scheme;
use pathloom_schemes::Registry;
use pathloom_testnet::Machine;
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Id {
    Switch(ConnectionId),
    Agent(AgentId),
}

/// A scheme by its specification, which may be one for tests.
///
/// # Errors
/// It is no specification of a scheme of the controller.
pub(super) fn scheme(spec: &str) -> Result<Box<dyn Scheme>, String> {
    let entry = Registry::WithTestSchemes.parse(spec).map_err(|problem| problem.to_string())?;
    entry.require_central(1).map_err(|problem| problem.to_string())
}

/// The controller of a configuration, and what discovers hosts and cables for it.
fn parts(
    checked: &CheckedConfig,
    scheme: &str,
    epoch: u16,
    snapshot: Option<Snapshot>,
    now: Nanos,
) -> Result<(Controller, Option<LiveDiscovery>), String> {
    let scheme = self::scheme(scheme)?;
    let (config, fabric) = (checked.control(epoch), checked.fabric.clone());
    let controller = match snapshot {
        Some(snapshot) => Controller::restore(config, fabric.clone(), scheme, snapshot, now)
            .map_err(|problem| format!("the snapshot cannot be restored: {problem}"))?,
        None => Controller::new(config, fabric.clone(), scheme),
    };
    let any = checked.config.discovery.addresses == Addresses::Any;
    let learnt = (any, checked.allowed.clone(), checked.config.discovery.most_addresses);
    let learnt = Learnt::new(fabric.clone(), learnt, &checked.places);
    let datapaths = checked.datapaths.clone();
    Ok((controller, LiveDiscovery::new(&checked.config.discovery, fabric, datapaths, learnt, [7; 32])))
}

/// A hub of a configuration, without discovery.
fn empty_hub(checked: &CheckedConfig, responder: Responder) -> Hub {
    let settings = (checked.config.sessions.clone(), checked.config.limits.clone());
    let mut hub = Hub::new(responder, Some(checked.fabric.clone()), checked.datapaths.clone(), settings);
    hub.foreign = checked.config.reconcile.foreign;
    hub
}

/// Tells a new controller the configured places of addresses.
fn place(hub: &mut Hub, checked: &CheckedConfig, now: Nanos) {
    for &(prefix, at) in &checked.places {
        hub.handle(now, Input::Place { prefix, at: Some(at) });
    }
}

/// A hub and its open connections.
pub(crate) struct Driven {
    pub hub: Hub,
    open: BTreeSet<Id>,
    /// Connections to be closed, because their last bytes are written.
    closing: VecDeque<Id>,
}

impl Driven {
    /// The controller of a configuration, with a scheme that may be one for tests.
    ///
    /// # Errors
    /// The scheme or the snapshot does not fit the configuration.
    pub(crate) fn new(
        checked: &CheckedConfig,
        scheme: &str,
        epoch: u16,
        snapshot: Option<Snapshot>,
        now: Nanos,
    ) -> Result<Driven, String> {
        let (controller, discovery) = parts(checked, scheme, epoch, snapshot, now)?;
        let mut hub = empty_hub(checked, Responder::Fabric(controller));
        hub.discovery = discovery;
        hub.handle(now, Input::Timeout);
        place(&mut hub, checked, now);
        Ok(Driven { hub, open: BTreeSet::new(), closing: VecDeque::new() })
    }

    fn open(&mut self, id: Option<Id>) -> Option<Id> {
        self.open.extend(id);
        id
    }

    fn end(&mut self, now: Nanos, id: Id, why: &str) {
        match id {
            Id::Switch(id) => self.hub.disconnect(now, id, why),
            Id::Agent(id) => self.hub.hosts.disconnect(now, id, why),
        }
    }
}

/// One of several controllers.
#[cfg(test)]
impl Driven {
    /// A controller of a configuration that follows another one.
    pub(crate) fn follower(checked: &CheckedConfig) -> Driven {
        let mut hub = empty_hub(checked, Responder::SurveyOnly);
        hub.follow();
        Driven { hub, open: BTreeSet::new(), closing: VecDeque::new() }
    }

    /// A follower leads by the election with this number.
    ///
    /// # Errors
    /// The scheme or the snapshot does not fit the configuration.
    pub(crate) fn lead(
        &mut self,
        (checked, scheme): (&CheckedConfig, &str),
        epoch: u16,
        snapshot: Option<Snapshot>,
        now: Nanos,
        election: u64,
    ) -> Result<(), String> {
        let (controller, discovery) = parts(checked, scheme, epoch, snapshot, now)?;
        self.hub.discovery = discovery;
        self.hub.lead(now, election, controller);
        place(&mut self.hub, checked, now);
        Ok(())
    }

    /// The open connections.
    pub(crate) fn open_connections(&self) -> impl Iterator<Item = Id> + '_ {
        self.open.iter().copied()
    }
}

impl Machine for Driven {
    type Id = Id;

    fn connect(&mut self, now: Nanos, peer: &str) -> Option<Id> {
        let id = self.hub.connect(now, peer.to_owned(), None);
        self.open(id.map(Id::Switch))
    }

    fn connect_agent(&mut self, now: Nanos, peer: &str) -> Option<Id> {
        let id = self.hub.hosts.connect(now, peer.to_owned(), peer.parse().ok());
        self.open(id.map(Id::Agent))
    }

    fn disconnect(&mut self, now: Nanos, id: Id) {
        self.open.remove(&id);
        self.end(now, id, "the peer closed it");
    }

    fn received(&mut self, now: Nanos, id: Id, bytes: &[u8]) -> usize {
        match id {
            Id::Switch(id) => {
                let received = self.hub.received(now, id, bytes, usize::MAX);
                self.hub.settle(now);
                received.used
            }
            Id::Agent(id) => {
                self.hub.agent_received(now, id, bytes);
                bytes.len()
            }
        }
    }

    fn poll_transmit(&mut self) -> Option<(Id, Vec<u8>)> {
        loop {
            let mut bytes = Vec::new();
            let (id, transmit) = match self.hub.poll_writable() {
                Some(id) => (Id::Switch(id), self.hub.transmit(id, &mut bytes)),
                None => {
                    let id = self.hub.hosts.poll_writable()?;
                    (Id::Agent(id), self.hub.hosts.transmit(id, &mut bytes))
                }
            };
            if transmit == Transmit::Closing {
                self.closing.push_back(id);
            }
            if !bytes.is_empty() {
                return Some((id, bytes));
            }
        }
    }

    fn poll_closed(&mut self) -> Option<Id> {
        while let Some(id) = self.closing.pop_front() {
            self.end(self.hub.now, id, "it was closed");
        }
        loop {
            let switch = self.hub.poll_ended().map(Id::Switch);
            let id = switch.or_else(|| self.hub.hosts.poll_ended().map(Id::Agent))?;
            if self.open.remove(&id) {
                return Some(id);
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Nanos> {
        Some(self.hub.poll_timeout().max(self.hub.now))
    }

    fn timeout(&mut self, now: Nanos) {
        self.hub.handle_timeout(now);
        while let Some(job) = self.hub.poll_job() {
            self.hub.solved(now, Nanos::ZERO, job.run());
        }
    }
}
