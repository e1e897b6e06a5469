//! What a run is about to do, so that another world can do the same: the transfers under their five-tuples, what every
//! switch has been told, and the ways that packets will go.

use crate::simulation::Simulation;
use crate::tap::Tap;
use pathloom_model::rules::{Group, Meter, Rule};
use pathloom_model::spec::SpecError;
use pathloom_model::{Damage, Fault, FaultKind, FiveTuple, LinkId, LinkState, Nanos, NodeId};
use pathloom_workload::FlowSpec;

/// One transfer as the run will offer it.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedFlow {
    /// When it starts, between which hosts, and how much it sends.
    pub spec: FlowSpec,
    /// The five-tuple that was drawn for its first subflow. Should another flow under way bear it, the next free source port is taken.
    pub five_tuple: FiveTuple,
    /// Differentiated-services code point of its packets, the label of a long flow included.
    pub dscp: u8,
    /// See [`crate::FlowOutcome::optimum_bps`].
    pub optimum_bps: f64,
    /// See [`crate::FlowOutcome::ideal_fct`].
    pub ideal_fct: Option<Nanos>,
    /// Links that the data of its first subflow will cross by the rules as they stand, and those of its acknowledgements.
    /// An end that is not a host says where packets would be lost.
    pub ways: [Vec<LinkId>; 2],
}

/// What a switch has been told.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchTables {
    /// The switch.
    pub switch: NodeId,
    /// Its rules, ordered by key.
    pub rules: Vec<Rule>,
    /// Its groups by identifier.
    pub groups: Vec<Group>,
    /// Its meters by identifier.
    pub meters: Vec<Meter>,
}

impl<T: Tap> Simulation<T> {
    /// Every transfer, in the order of the workload.
    pub fn offered(&self) -> Vec<OfferedFlow> {
        let way = |uplink, headers| self.network.trace(uplink, headers);
        let flow = |flow: u32| {
            let (first, five_tuple) = (self.hosts.transfers.subflows(flow)[0], self.hosts.transfers.drawn(flow));
            let there = self.hosts.headers(flow, five_tuple);
            let back = pathloom_model::Headers { five_tuple: five_tuple.reverse(), ..there };
            let (optimum_bps, ideal_fct) = self.hosts.transfers.yardsticks(flow);
            OfferedFlow {
                spec: self.hosts.transfers.spec(flow).clone(),
                five_tuple,
                dscp: there.dscp,
                optimum_bps,
                ideal_fct,
                ways: [way(first.src.uplink, there), way(first.dst.uplink, back)],
            }
        };
        (0..self.hosts.transfers.len() as u32).map(flow).collect()
    }

    /// The cables that faults take down and bring back, in order of time: when, whether they come back, and one direction
    /// of each.
    ///
    /// # Errors
    /// The first fault that is none of cables and nodes.
    pub fn cable_faults(&self) -> Result<Vec<(Nanos, bool, Vec<LinkId>)>, SpecError> {
        let mut faults = self.faults.clone();
        faults.sort_by_key(|fault| fault.at);
        let (mut damage, mut state) = (Damage::of(&self.fabric), LinkState::of(&self.fabric));
        let row = |fault: &Fault| match fault.kind {
            FaultKind::Carrier { up, .. } => Ok((fault.at, up, damage.apply(&self.fabric, fault, &mut state))),
            _ => Err(SpecError {
                what: "fault",
                spec: fault.text(&self.fabric).to_string(),
                problem: "only the simulator does this; the lab takes cables and switches down and up".into(),
            }),
        };
        faults.iter().map(row).collect()
    }

    /// What every switch has been told so far, in the order of the fabric.
    pub fn switch_tables(&mut self) -> Vec<SwitchTables> {
        let fabric = self.fabric.clone();
        let tables = fabric.switches().iter().filter_map(|&node| {
            self.network.change_switch(node, |switch| SwitchTables {
                switch: node,
                rules: switch.rules().into_iter().map(|(rule, _)| rule.clone()).collect(),
                groups: switch.groups().cloned().collect(),
                meters: switch.meters().copied().collect(),
            })
        });
        tables.collect()
    }
}
