//! What a run is about to do, so that another world can do the same: the transfers with their five-tuples, the rules
//! of every switch, and the paths that packets will take.

use crate::hosts::Hosts;
use crate::network::Network;
use crate::tap::Tap;
use pathloom_model::rules::{Group, Meter, Rule};
use pathloom_model::spec::SpecError;
use pathloom_model::{Fabric, FailureState, Fault, FaultKind, FiveTuple, Headers, LinkId, LinkState, Nanos, NodeId};
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

/// The links that the data of a transfer would cross by the present rules. `None` if it has not started, has several
/// subflows, or if switches choose a path for each packet.
pub(crate) fn path_of<T: Tap>(hosts: &Hosts, network: &Network<T>, transfer: u32) -> Option<Vec<LinkId>> {
    let [ends] = hosts.transfers().subflows(transfer) else { return None };
    if network.sprays() {
        return None;
    }
    let headers = hosts.headers(transfer, hosts.transfers().five_tuple(transfer)?);
    Some(network.trace(ends.src.uplink, headers))
}

/// Every transfer, in the order of the workload.
pub(crate) fn offered<T: Tap>(hosts: &Hosts, network: &Network<T>) -> Vec<OfferedFlow> {
    let transfers = hosts.transfers();
    let flow = |flow: u32| {
        let (first, five_tuple) = (transfers.subflows(flow)[0], transfers.drawn(flow));
        let there = hosts.headers(flow, five_tuple);
        let back = Headers { five_tuple: five_tuple.reverse(), ..there };
        let (optimum_bps, ideal_fct) = transfers.yardsticks(flow);
        OfferedFlow {
            spec: transfers.spec(flow).clone(),
            five_tuple,
            dscp: there.dscp,
            optimum_bps,
            ideal_fct,
            paths: [network.trace(first.src.uplink, there), network.trace(first.dst.uplink, back)],
        }
    };
    (0..transfers.len() as u32).map(flow).collect()
}

/// See [`crate::Simulation::cable_faults`].
pub(crate) fn cable_faults(fabric: &Fabric, schedule: &[Fault]) -> Result<Vec<(Nanos, bool, Vec<LinkId>)>, SpecError> {
    let mut faults = schedule.to_vec();
    faults.sort_by_key(|fault| fault.at);
    let (mut failures, mut links) = (FailureState::of(fabric), LinkState::of(fabric));
    let row = |fault: &Fault| match fault.kind {
        FaultKind::Carrier { up, .. } => Ok((fault.at, up, failures.apply(fabric, fault, &mut links))),
        _ => Err(SpecError {
            what: "fault",
            spec: fault.text(fabric).to_string(),
            problem: "only the simulator does this; the lab can only take cables and switches down and up".into(),
        }),
    };
    faults.iter().map(row).collect()
}

/// Rules, groups and meters that every switch has so far, in the order of the fabric.
pub(crate) fn switch_tables<T: Tap>(fabric: &Fabric, network: &mut Network<T>) -> Vec<SwitchTables> {
    let tables = fabric.switches().iter().filter_map(|&node| {
        network.change_switch(node, |switch| SwitchTables {
            switch: node,
            rules: switch.rules().into_iter().map(|(rule, _)| rule.clone()).collect(),
            groups: switch.groups().cloned().collect(),
            meters: switch.meters().copied().collect(),
        })
    });
    tables.collect()
}
