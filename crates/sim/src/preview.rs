//! What a run is about to do, so that another world can do the same: the transfers with their five-tuples, the rules
//! of every switch, and the paths that packets will take.

use crate::simulation::Simulation;
use crate::tap::Tap;
use pathloom_model::rules::{Group, Meter, Rule};
use pathloom_model::spec::SpecError;
use pathloom_model::{FailureState, Fault, FaultKind, FiveTuple, LinkId, LinkState, Nanos, NodeId};
use pathloom_workload::FlowSpec;

/// One transfer as the run will offer it.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedFlow {
    /// When it starts, between which hosts, and how much it sends.
    pub spec: FlowSpec,
    /// Five-tuple that was drawn for its first subflow. If another flow under way has it, the next free source port
    /// is used.
    pub five_tuple: FiveTuple,
    /// Differentiated-services code point (DSCP) of its packets, including the label of a long flow.
    pub dscp: u8,
    /// See [`crate::FlowOutcome::optimum_bps`].
    pub optimum_bps: f64,
    /// See [`crate::FlowOutcome::ideal_fct`].
    pub ideal_fct: Option<Nanos>,
    /// Links that the data of its first subflow will cross by the present rules, and links that its acknowledgements
    /// will cross. If a list does not end at a host, its end shows where packets would be lost.
    pub paths: [Vec<LinkId>; 2],
}

/// Rules, groups and meters of a switch.
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
    /// The links that the data of a transfer would cross by the present rules. `None` if it has not started, has several
    /// subflows, or if switches choose a path for each packet.
    pub fn path_of(&self, transfer: u32) -> Option<Vec<LinkId>> {
        let [ends] = self.hosts.transfers().subflows(transfer) else { return None };
        if self.network.sprays() {
            return None;
        }
        let headers = self.hosts.headers(transfer, self.hosts.transfers().five_tuple(transfer)?);
        Some(self.network.trace(ends.src.uplink, headers))
    }

    /// Every transfer, in the order of the workload.
    pub fn offered(&self) -> Vec<OfferedFlow> {
        let path = |uplink, headers| self.network.trace(uplink, headers);
        let flow = |flow: u32| {
            let (first, five_tuple) = (self.hosts.transfers().subflows(flow)[0], self.hosts.transfers().drawn(flow));
            let there = self.hosts.headers(flow, five_tuple);
            let back = pathloom_model::Headers { five_tuple: five_tuple.reverse(), ..there };
            let (optimum_bps, ideal_fct) = self.hosts.transfers().yardsticks(flow);
            OfferedFlow {
                spec: self.hosts.transfers().spec(flow).clone(),
                five_tuple,
                dscp: there.dscp,
                optimum_bps,
                ideal_fct,
                paths: [path(first.src.uplink, there), path(first.dst.uplink, back)],
            }
        };
        (0..self.hosts.transfers().len() as u32).map(flow).collect()
    }

    /// The cables that faults take down and bring back, in order of time. A row has the time, whether the cables come
    /// back, and one direction of each cable.
    ///
    /// # Errors
    /// The first fault that does not take cables or nodes down or bring them back.
    pub fn cable_faults(&self) -> Result<Vec<(Nanos, bool, Vec<LinkId>)>, SpecError> {
        let mut faults = self.faults.clone();
        faults.sort_by_key(|fault| fault.at);
        let (mut failure_state, mut state) = (FailureState::of(&self.fabric), LinkState::of(&self.fabric));
        let row = |fault: &Fault| match fault.kind {
            FaultKind::Carrier { up, .. } => Ok((fault.at, up, failure_state.apply(&self.fabric, fault, &mut state))),
            _ => Err(SpecError {
                what: "fault",
                spec: fault.text(&self.fabric).to_string(),
                problem: "only the simulator does this; the lab can only take cables and switches down and up".into(),
            }),
        };
        faults.iter().map(row).collect()
    }

    /// Rules, groups and meters that every switch has so far, in the order of the fabric.
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
