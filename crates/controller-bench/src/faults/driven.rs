//! The hub as a machine of the virtual network.

use pathloom_control::{Controller, Input, Snapshot};
use pathloom_controller::config::CheckedConfig;
use pathloom_controller::embed::{
    configured_hub, discover, place_addresses, AgentId, ConnectionId, Hub, Responder, Transmit,
};
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

/// Signs the probes of discovery.
const SECRET: [u8; 32] = [7; 32];

/// The controller of a configuration.
fn controller(
    checked: &CheckedConfig,
    scheme: &str,
    epoch: u16,
    snapshot: Option<Snapshot>,
    now: Nanos,
) -> Result<Controller, String> {
    let scheme = self::scheme(scheme)?;
    let (config, fabric) = (checked.control(epoch), checked.fabric.clone());
    match snapshot {
        Some(snapshot) => Controller::restore(config, fabric, scheme, snapshot, now)
            .map_err(|problem| format!("the snapshot cannot be restored: {problem}")),
        None => Ok(Controller::new(config, fabric, scheme)),
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
        let controller = controller(checked, scheme, epoch, snapshot, now)?;
        let mut hub = configured_hub(checked, Responder::Fabric(controller));
        discover(&mut hub, checked, SECRET);
        hub.handle(now, Input::Timeout);
        place_addresses(&mut hub, checked, now);
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
        let mut hub = configured_hub(checked, Responder::SurveyOnly);
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
        let controller = controller(checked, scheme, epoch, snapshot, now)?;
        discover(&mut self.hub, checked, SECRET);
        self.hub.lead(now, election, controller);
        place_addresses(&mut self.hub, checked, now);
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
            self.end(self.hub.now(), id, "it was closed");
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
        Some(self.hub.poll_timeout().max(self.hub.now()))
    }

    fn timeout(&mut self, now: Nanos) {
        self.hub.handle_timeout(now);
        while let Some(job) = self.hub.poll_job() {
            self.hub.solved(now, Nanos::ZERO, job.run());
        }
    }
}
