//! Connections that stand: transfers of a collective need no SYN exchange, and requests of services do.

use crate::cases::{finish, Case};
use pathloom_model::Nanos;
use pathloom_sim::{Outcome, SimSettings, Simulation};
use pathloom_transport::TransportSpec;

fn run(fabric: &str, traffic: &str, scheme: &str, transport: &str) -> Outcome {
    let case = Case { fabric, traffic, faults: "", duration: Nanos::from_secs(2), drain: 20, seed: 1 };
    let transport = TransportSpec::parse(transport).unwrap();
    finish(Simulation::new(SimSettings { transport, ..case.settings(scheme, None) }).unwrap())
}

fn makespan_s(outcome: &Outcome) -> f64 {
    let ends = outcome.flows.iter().map(|flow| flow.finish.expect("every transfer ends"));
    ends.max().unwrap().as_secs_f64()
}

/// All-to-all of 4 MB between 32 hosts, all transfers at once. The cables between leaves and spines need 3.8 ms for the
/// payload. A lost SYN costs 1 s.
#[test]
fn no_syn_delays_a_collective() {
    const FABRIC: &str = "leaf-spine:spines=4,leaves=4,hosts=8,rate=400Gbps";
    let case = |transport: &str| run(FABRIC, "all-to-all:size=4MB,parallel=31", "ecmp", transport);
    let (standing, new) = (case("dctcp:min_rto=60us"), case("dctcp:min_rto=60us,handshake=on"));
    assert!(makespan_s(&standing) < 7.6e-3, "{} s", makespan_s(&standing));
    assert!(makespan_s(&new) > 1.0, "{} s", makespan_s(&new));
    assert!(standing.flows.iter().all(|flow| flow.timeout_wait.initial == Nanos::ZERO));
    assert_eq!(case("dctcp:min_rto=60us").flows, standing.flows, "the same seed gives the same result");
}

#[test]
fn requests_of_services_connect() {
    for (traffic, scheme) in
        [("incast:senders=8,size=100KB,period=100ms", "ecmp"), ("web-search:load=0.3,max_size=1MB", "ecmp")]
    {
        let case = |transport: &str| run("fat-tree:k=4,rate=1Gbps", traffic, scheme, transport);
        assert_eq!(case("newreno").flows, case("newreno:handshake=on").flows, "{traffic}");
    }
}

/// The scheme learns the connection of a subflow from the SYN exchange.
#[test]
fn schemes_that_read_the_syn_exchange_keep_it() {
    let case = |transport: &str| run("fat-tree:k=4,rate=1Gbps", "all-to-all:size=100KB", "mptcp-aware", transport);
    assert_eq!(case("mptcp").flows, case("mptcp:handshake=on").flows);
}

/// Two hosts exchange chunks over one connection in each direction.
#[test]
fn a_transfer_continues_with_the_window_of_the_last_one_unless_it_was_idle_for_long() {
    let fcts = |gap: &str| {
        let traffic = format!("all-reduce:size=200KB,hosts=2,iterations=2,gap={gap},jitter=0s");
        let outcome = run("dumbbell:hosts=2,rate=1Gbps,delay=1ms", &traffic, "spt", "newreno:jitter=0s");
        let fct = |flow: &pathloom_sim::FlowOutcome| (flow.finish.unwrap() - flow.start.unwrap()).as_secs_f64();
        outcome.flows.iter().map(fct).collect::<Vec<f64>>()
    };
    let (soon, late) = (fcts("0s"), fcts("10s"));
    // Four steps of two transfers. The first one begins with the initial window.
    assert!(soon[6] < 0.5 * soon[0], "{soon:?}");
    assert!(late[4] > 0.9 * late[0] && late[6] < 0.5 * late[0], "{late:?}");
}

/// The controller learns of a transfer from its first segment, so the scheme acts as it does with new connections.
#[test]
fn controllers_learn_of_transfers_on_standing_connections() {
    for scheme in ["ofpt", "hedera:period=10ms", "lessor"] {
        let traffic = "all-to-all:size=2MB,order=random";
        let routes = |transport: &str| run("fat-tree:k=4,rate=1Gbps", traffic, scheme, transport).control.routes;
        let (standing, new) = (routes("newreno"), routes("newreno:handshake=on"));
        assert!(standing > 0 && standing * 2 > new, "{scheme}: {standing} paths, {new} with new connections");
    }
}
