//! The same connections get the same paths as over OpenFlow, by switches that share no code with those of the binder.

use crate::support::{binder, fat_tree, five_tuple, know, long, scheme};
use pathloom_control::{Config, Controller};
use pathloom_model::{FiveTuple, Headers, LinkId, Nanos, NodeId, LONG_FLOW_DSCP, TCP_ACK, TCP_FIN, TCP_SYN};
use pathloom_routed::Opening;
use pathloom_testkit::{Network, Timing};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Opens or closes the connection of a pair of hosts.
#[derive(Clone, Copy, Debug)]
struct Step {
    pair: (usize, usize),
    long: bool,
    pause_ms: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pair = (0..16usize, 1..16usize).prop_map(|(src, further)| (src, (src + further) % 16));
    let step = (pair, prop::bool::weighted(0.8), 1..200u64);
    prop::collection::vec(step.prop_map(|(pair, long, pause_ms)| Step { pair, long, pause_ms }), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn paths_are_those_of_openflow_switches(
        steps in steps(),
        spec in prop::sample::select(vec!["ofpt", "lessor", "ecmp", "spt"]),
    ) {
        let fabric = fat_tree();
        let mut binder = binder(&fabric, scheme(spec));
        let controller = Controller::new(Config::default(), fabric.clone(), scheme(spec));
        let mut network = Network::new(fabric.clone(), controller, Timing::NONE, 1);
        for switch in fabric.switches().to_vec() {
            network.connect(switch);
        }
        let mut open: BTreeSet<(FiveTuple, u8)> = BTreeSet::new();
        for (number, step) in (1000..).zip(steps) {
            let now = network.now() + Nanos::from_millis(step.pause_ms);
            network.run_until(now);
            while let Some(at) = binder.poll_timeout().filter(|&at| at <= now) {
                binder.advance(at);
            }
            if binder.counts().moves_refused > 0 {
                // From here on the two differ, as documented.
                break;
            }
            let dscp = if step.long { LONG_FLOW_DSCP } else { 0 };
            if let Some(&(tuple, dscp)) = open.iter().find(|(tuple, _)| *tuple == five_tuple(&fabric, step.pair, tuple.src_port())) {
                open.remove(&(tuple, dscp));
                network.send(Headers { tcp_flags: TCP_FIN | TCP_ACK, dscp, ..Headers::plain(tuple) });
                binder.close(now, &tuple);
                continue;
            }
            let tuple = five_tuple(&fabric, step.pair, number);
            open.insert((tuple, dscp));
            network.send(Headers { tcp_flags: TCP_SYN, dscp, ..Headers::plain(tuple) });
            network.run_until(now);
            let packet = network.send(Headers { dscp, ..Headers::plain(tuple) });
            network.run_until(now);
            know(&mut binder, &fabric, &tuple);
            let bound = binder.open(now, Opening { long: step.long, ..long(tuple) }).expect("the hosts exist");
            binder.sent(now, &tuple, (1, 1000));
            let entered = |link: &LinkId| fabric.link(*link).to;
            let switches: Vec<NodeId> = bound.path.iter().map(entered).filter(|&node| !fabric.is_host(node)).collect();
            let controller = &network.controller;
            let routed = controller.find_flow(&tuple).and_then(|flow| controller.view().flows[&flow].route.clone());
            prop_assert_eq!(bound.chosen, routed.is_some(), "connection {} under {}", number, spec);
            if bound.chosen || spec == "spt" {
                // On the default routes of other schemes, the two kinds of switches hash differently.
                prop_assert_eq!(&switches, &network.packets[packet].switches, "connection {} under {}", number, spec);
            }
            prop_assert!(bound.port.is_some(), "{:?} has no port", bound);
        }
    }
}
