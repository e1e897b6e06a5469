//! Runs whose transfers are not known from the start: a driver adds them while the run is under way, and is informed
//! when they finish. Another simulator, which knows what its hosts send, is such a driver.
//!
//! A packet-hop costs nothing more: when a transfer finishes, the agenda pauses, and the main loop ends as it does at
//! the end of a run.

use crate::agenda::Event;
use crate::checks::{are_hosts, check_without_flows};
use crate::plan::{Plan, Planner};
use crate::settings::{Fidelity, SimError, SimSettings};
use crate::simulation::Simulation;
use crate::tap::{NoTap, Tap};
use pathloom_model::{Nanos, NodeId};
use pathloom_workload::{FlowSpec, Start};

/// A transfer that a driver adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Host that sends.
    pub src: NodeId,
    /// Host that receives; it differs from `src`.
    pub dst: NodeId,
    /// Payload; 0 counts as 1.
    pub size_bytes: u64,
}

/// A run whose driver adds transfers.
pub struct Driven<T: Tap = NoTap> {
    simulation: Simulation<T>,
}

impl<T: Tap> Driven<T> {
    /// Sets up a run without transfers. The duration is the latest end of the run.
    ///
    /// # Errors
    /// As [`Simulation::new`]; also a workload that is not empty.
    pub fn new(settings: SimSettings, tap: T) -> Result<Driven<T>, SimError> {
        check_without_flows(&settings, false)?;
        if !settings.workload.flows.is_empty() {
            return Err(SimError::FlowsOfDriver(settings.workload.flows.len()));
        }
        let settings = settings.for_family();
        let planner = Planner::new(&settings.fabric, &settings.transport, settings.seed);
        let has_second_addresses = settings.fabric.attachments().len() > settings.fabric.hosts().len();
        if !planner.is_meshed() && !has_second_addresses {
            return Err(SimError::SingleAddresses);
        }
        let plan = Plan::empty(settings.transport.mptcp().is_some());
        let transport = settings.transport.settings().clone();
        let mut simulation = Simulation::with_plan(settings, tap, None, (plan, Fidelity::Packets))?;
        simulation.hosts.accept(planner, &transport);
        Ok(Driven { simulation })
    }

    /// Adds a transfer, which starts now. As with the transfers of a job, its hosts use connections that stand. Returns
    /// its number: 0 for the first one, and so on.
    ///
    /// # Errors
    /// The nodes are not two hosts, or the transfer would have too many subflows.
    pub fn send(&mut self, message: Message) -> Result<u32, SimError> {
        let Message { src, dst, size_bytes } = message;
        let simulation = &mut self.simulation;
        let not_hosts = SimError::NotHosts { flow: simulation.hosts.transfers().len() };
        if !are_hosts(&simulation.fabric, src, dst) {
            return Err(not_hosts);
        }
        let (start, size_bytes) = (Start::At(simulation.now()), Some(size_bytes.max(1)));
        let flow = FlowSpec { standing: true, ..FlowSpec::new(start, src, dst, size_bytes) };
        let transfer = simulation.hosts.add(flow)?.ok_or(not_hosts)?;
        simulation.agenda.push(simulation.now, Event::Start(transfer));
        Ok(transfer)
    }

    /// Simulates until transfers finish, and adds their numbers to `finished`, in the order of their ends. If none does
    /// up to and including `until`, simulates everything up to then. [`Simulation::now`] is the time that was reached.
    pub fn advance(&mut self, until: Nanos, finished: &mut Vec<u32>) {
        self.simulation.agenda.resume();
        self.simulation.advance(until);
        self.simulation.hosts.take_news(finished);
    }

    /// Number of transfers that have been added and have not finished.
    pub fn open(&self) -> usize {
        self.simulation.hosts.transfers().open()
    }

    /// The run, for its time and results.
    pub fn simulation(&self) -> &Simulation<T> {
        &self.simulation
    }
}
