//! Tests of whole workloads: from a specification to flows.

mod arrivals;
mod collectives;
mod files;
mod pairs;
mod simai;
mod specs;

use crate::{FlowSpec, Start, TrafficSpec, Workload, WorkloadError};
use pathloom_model::{Fabric, FabricBuilder, LinkSettings, Nanos, Tier};
use proptest::prelude::*;

/// A fabric with one ToR per entry, and a core that connects the ToRs. An entry has the access rates of the ToR's
/// hosts in Mbps.
pub(crate) fn fabric(tors: &[&[u64]]) -> Fabric {
    let mut builder = FabricBuilder::new("test");
    let settings =
        |rate_mbps| LinkSettings { rate_bps: rate_mbps * 1_000_000, delay_ps: 1_000_000, buffer_packets: 100 };
    let core = builder.switch("core", Tier::Core, None);
    let mut number = 0;
    for (index, hosts) in tors.iter().enumerate() {
        let tor = builder.switch(format!("e{index}"), Tier::Tor, None);
        builder.cable(tor, core, settings(10_000));
        for &rate_mbps in *hosts {
            let host = builder.host(format!("h{number}"), None);
            builder.cable(host, tor, settings(rate_mbps));
            number += 1;
        }
    }
    builder.build().unwrap()
}

/// `tors` ToRs of `hosts` hosts at 1 Gbps.
pub(crate) fn even(tors: usize, hosts: usize) -> Fabric {
    fabric(&vec![&vec![1000; hosts][..]; tors])
}

/// Any fabric of 2 to 24 hosts at 1 to 100 Mbps.
pub(crate) fn any_fabric() -> impl Strategy<Value = Fabric> {
    let tor = prop::collection::vec(1u64..100, 1..6);
    prop::collection::vec(tor, 1..5).prop_filter_map("needs two hosts", |tors| {
        let hosts: usize = tors.iter().map(Vec::len).sum();
        (hosts >= 2).then(|| fabric(&tors.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    })
}

pub(crate) fn try_generate(text: &str, fabric: &Fabric, s: f64, file: Option<&str>) -> Result<Workload, WorkloadError> {
    TrafficSpec::parse(text)?.generate(fabric, crate::poisson::nanos(s), 1, file)
}

pub(crate) fn generate(text: &str, fabric: &Fabric, s: f64) -> Workload {
    try_generate(text, fabric, s, None).unwrap()
}

/// The error message of a specification that must be refused.
pub(crate) fn message(text: &str, fabric: &Fabric, s: f64, file: Option<&str>) -> String {
    match try_generate(text, fabric, s, file) {
        Ok(workload) => panic!("{text} was accepted: {}", workload.description),
        Err(error) => error.to_string(),
    }
}

/// Host numbers of a flow.
pub(crate) fn pair(flow: &FlowSpec, fabric: &Fabric) -> (usize, usize) {
    let number = |node| fabric.hosts().iter().position(|&host| host == node).unwrap();
    (number(flow.src), number(flow.dst))
}

/// Checks what holds for every workload.
pub(crate) fn check(workload: &Workload, fabric: &Fabric, duration: Nanos) {
    let mut last = Nanos::ZERO;
    let mut waiting = false;
    for (index, flow) in workload.flows.iter().enumerate() {
        assert!(fabric.is_host(flow.src) && fabric.is_host(flow.dst) && flow.src != flow.dst, "{flow:?}");
        assert_ne!(flow.size_bytes, Some(0));
        match &flow.start {
            Start::At(time) => {
                assert!(!waiting && *time >= last && *time < duration, "{index}: {flow:?} after {last:?}");
                last = *time;
            }
            Start::After { flows, .. } => {
                waiting = true;
                // Only lower indices, so the graph has no cycle.
                assert!(
                    !flows.is_empty() && flows.iter().all(|&needed| (needed as usize) < index),
                    "{index}: {flow:?}"
                );
                let endless = flows.iter().any(|&needed| workload.flows[needed as usize].size_bytes.is_none());
                assert!(!endless, "{index} waits for a flow that never ends");
            }
        }
    }
    assert!(!workload.description.is_empty() && !workload.description.contains('\n'));
}
