//! A dry run predicts what another scheme does.

use pathloom_control::{dry_run, Config, Controller, DefaultPaths};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, FiveTuple, Headers, Nanos, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
use pathloom_testkit::{Network, Timing, SECOND};
use std::sync::Arc;

fn scheme(spec: &str) -> Box<dyn pathloom_scheme::Scheme> {
    pathloom_schemes::parse(spec).unwrap().central(1).unwrap()
}

fn standing(fabric: &Arc<Fabric>, spec: &str) -> Network {
    let controller = Controller::new(Config::default(), fabric.clone(), scheme(spec));
    let mut network = Network::new(fabric.clone(), controller, Timing::NONE, 1);
    network.start();
    network.run_until(Nanos::from_millis(100));
    let all = fabric.attachments();
    for (index, at) in all.iter().enumerate() {
        let dst = all[(index + all.len() / 2) % all.len()].address;
        let five_tuple = FiveTuple::new(PROTO_TCP, (at.address, 1), (dst, 2));
        network.send(Headers { dscp: LONG_FLOW_DSCP, tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) });
    }
    network.run_until(SECOND);
    network
}

#[test]
fn a_dry_run_predicts_a_change_of_scheme_and_changes_nothing() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut network = standing(&fabric, "ofpt");
    let before = network.controller.view().clone();
    assert_eq!(before.long_flows().count(), 16);
    assert!(before.flows.values().all(|flow| flow.route.is_some()));
    for spec in ["ecmp", "lessor", "ofpt"] {
        let run = dry_run(before.clone(), scheme(spec), network.now());
        assert!(run.settled && run.rejected == 0, "{spec}");
        let routed = run.view.flows.values().filter(|flow| flow.route.is_some()).count();
        // The flows and their ways back.
        assert_eq!(routed, if spec == "ecmp" { 0 } else { 32 }, "{spec}");
        assert_eq!(*network.controller.view().flows, *before.flows);
        assert!(network.controller.poll_output().is_none());
    }
    let foretold = dry_run(before, scheme("ecmp"), network.now()).view;
    network.set_scheme(scheme("ecmp"));
    network.run_until(SECOND + SECOND);
    let routes = |view: &pathloom_scheme::View| view.flows.values().map(|flow| flow.route.clone()).collect::<Vec<_>>();
    assert_eq!(routes(network.controller.view()), routes(&foretold));
    assert_eq!(network.controller.view().defaults, foretold.defaults);
}

#[test]
fn packets_use_the_predicted_default_paths() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,fail=0.1,fail_seed=3").unwrap());
    for spec in ["spt", "ofpt:defaults=per-host", "ecmp"] {
        let mut network = standing(&fabric, spec);
        let view = network.controller.view().clone();
        let mut guesses = 0;
        let mut paths = DefaultPaths::new(&fabric, &view.links, view.defaults);
        for at in fabric.attachments() {
            let dst = fabric.attachments().iter().rev().find(|other| other.tor != at.tor).unwrap().address;
            let five_tuple = FiveTuple::new(PROTO_TCP, (at.address, 9), (dst, 9));
            let sent = network.send(Headers::plain(five_tuple));
            let later = network.now() + SECOND;
            network.run_until(later);
            let (path, sure) = paths.path(&five_tuple).unwrap();
            assert_eq!(path.check(&fabric), Ok(()));
            assert!(sure || spec == "ecmp", "{spec}");
            guesses += usize::from(!sure);
            if sure {
                assert_eq!(path.switches(&fabric, at.tor), network.packets[sent].switches, "{spec}");
            }
        }
        assert_eq!(guesses > 0, spec == "ecmp", "{spec}");
    }
}
