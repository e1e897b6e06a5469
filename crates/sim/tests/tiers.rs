//! Switches of one tier that choose next hops by queues, and controllers whose other flows are balanced so.

use crate::cases::{finish, Case, SEARCH};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Nanos, NodeId, Tier};
use pathloom_sim::{Outcome, SimError, Simulation};
use pathloom_workload::Workload;
use std::sync::Arc;

const LONG: Case<'static> =
    Case { traffic: "long-lived:pattern=permutation", duration: Nanos::from_millis(100), ..SEARCH };

/// A run with a single transfer, between two pods.
fn run_alone(scheme: &str) -> Outcome {
    let mut settings = LONG.settings(scheme, None);
    let (fabric, all) = (settings.fabric.clone(), (*settings.workload).clone());
    let pod = |host: NodeId| fabric.node(fabric.link(fabric.node(host).ports[0]).to).pod;
    let flows = all.flows.iter().filter(|flow| pod(flow.src) != pod(flow.dst)).take(1).cloned().collect();
    settings.workload = Arc::new(Workload { flows, ..all });
    finish(Simulation::new(settings).unwrap())
}

/// By switch of this tier: how many of its links to switches above it have carried full frames of data.
fn used_uplinks(outcome: &Outcome, tier: Tier) -> Vec<usize> {
    let fabric = fabric_from_spec(LONG.fabric).unwrap();
    let is_used = |link: &&pathloom_sim::LinkOutcome| {
        let of = fabric.link(link.link);
        let up = fabric.node(of.from).tier == tier && fabric.node(of.to).tier > tier;
        // Data have frames of 1500 bytes, acknowledgements have 66 or a few more.
        up && link.sent_packets > 0 && link.sent_bytes / link.sent_packets > 500
    };
    let mut counts = std::collections::BTreeMap::new();
    for link in outcome.links.iter().filter(is_used) {
        *counts.entry(fabric.link(link.link).from).or_insert(0) += 1;
    }
    counts.into_values().collect()
}

#[test]
fn only_switches_of_the_named_tier_divide_a_flow() {
    let uplinks = |scheme| {
        let outcome = run_alone(scheme);
        [Tier::Tor, Tier::Aggregation].map(|tier| used_uplinks(&outcome, tier))
    };
    assert_eq!(uplinks("ecmp"), [vec![1], vec![1]]);
    assert_eq!(uplinks("drill"), [vec![2], vec![2, 2]]);
    assert_eq!(uplinks("drill:at=tor"), [vec![2], vec![1, 1]]);
    assert_eq!(uplinks("drill:at=aggregation"), [vec![1], vec![2]]);
    assert_eq!(uplinks("drill:at=core"), [vec![1], vec![1]], "a core switch has one way down");
}

/// Without losses, everything arrives in the order in which it was sent, whichever tier makes flowcuts.
#[test]
fn flowcuts_of_one_tier_never_reorder() {
    let case = Case { fabric: "fat-tree:k=4,rate=1Gbps,buffer=20000", ..SEARCH };
    let run = |scheme: &str| case.run(scheme, Some("dctcp:sack=on,min_rto=2ms,initial_rto=10ms"));
    let [tor, aggregation, all, none] = ["flowcut:at=tor", "flowcut:at=aggregation", "flowcut", "ecmp"].map(|scheme| {
        let outcome = run(scheme);
        assert_eq!(outcome.packets.dropped, 0, "{scheme}");
        assert!(outcome.flows.iter().all(|flow| flow.reordered == 0), "{scheme}");
        outcome
    });
    assert!(tor != all && aggregation != all && tor != aggregation && tor != none, "they differ");
}

/// Number of flows of which nothing arrives out of order after the first 300 ms.
fn in_order(case: Case, scheme: &str) -> usize {
    let mut settings = case.settings(scheme, None);
    settings.control.delay = Nanos::from_micros(100);
    let mut simulation = Simulation::new(settings).unwrap();
    let mut reordered = |until: Nanos| -> Vec<u32> {
        simulation.advance(until);
        simulation.outcome().flows.iter().map(|flow| flow.reordered).collect()
    };
    let before = reordered(Nanos::from_millis(300));
    let after = reordered(Nanos::from_millis(400));
    before.iter().zip(&after).filter(|(before, after)| before == after).count()
}

/// A flow with rules of its own takes one path, and all others are divided.
#[test]
fn controllers_place_long_flows_and_balancers_divide_the_others() {
    let traffic = "long-lived:pattern=permutation";
    let case = Case { traffic, duration: Nanos::from_millis(400), ..SEARCH };
    let divided = in_order(case, "drill");
    for scheme in ["hedera:period=50ms", "ofpt", "lessor"] {
        let with = |more: &str| format!("{scheme}{}{more}", if scheme.contains(':') { "," } else { ":" });
        assert_eq!(case.run(&with("defaults=ecmp,at=all"), None), case.run(scheme, None), "{scheme}: its defaults");
        let placed = in_order(case, &with("defaults=drill"));
        // Where two long flows still share a link, losses let packets arrive late. ofpt leaves no such link here.
        let expected = if scheme == "ofpt" { 16 } else { divided + 1 };
        assert!(placed >= expected, "{scheme}: {placed} of 16 flows arrive in order; {divided} by drill alone");
    }
    let mice = Case { traffic: "web-search:load=0.5,max_size=50KB", ..SEARCH };
    for (hedera, balancer) in [
        ("hedera:defaults=drill", "drill"),
        ("hedera:defaults=drill,at=tor", "drill:at=tor"),
        ("hedera-sa:defaults=conga", "conga"),
        ("hedera:defaults=hula", "hula"),
        ("hedera:defaults=flowcut", "flowcut"),
    ] {
        assert!(mice.run(hedera, None).flows == mice.run(balancer, None).flows, "{hedera}: no flow is an elephant");
    }
}

#[test]
fn failures_and_restarts_leave_no_flow_behind() {
    let faults = "1ms:down:c0,5ms:down:e1_0-a1_1,9ms:reboot:a2_0,10ms:controller-restart,12ms:up:c0";
    let case = Case { faults, ..SEARCH };
    for scheme in
        ["ofpt:defaults=drill", "ofpt:defaults=flowcut,at=tor", "lessor:defaults=hula", "hedera:defaults=conga"]
    {
        let mut settings = case.settings(scheme, None);
        let spec = pathloom_schemes::parse(scheme).unwrap();
        settings.successor = Some(Box::new(move || spec.central(1)));
        let outcome = finish(Simulation::new(settings).unwrap());
        assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()), "{scheme}");
    }
}

#[test]
fn a_tier_that_a_fabric_lacks_is_refused() {
    let case = Case { fabric: "leaf-spine:spines=2,leaves=2,hosts=2", ..SEARCH };
    let error = Simulation::new(case.settings("drill:at=aggregation", None)).err().unwrap();
    assert_eq!(error, SimError::NoSwitchOfTier("aggregation"));
    assert!(Simulation::new(case.settings("drill:at=core", None)).is_ok());
}
