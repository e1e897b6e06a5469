//! The scheme ethereal: transfers in parts, each on a path of its own.

use crate::cases::Case;
use pathloom_model::Nanos;
use pathloom_sim::{Outcome, SimError, Simulation};
use std::collections::BTreeMap;

const DCTCP: Option<&str> = Some("dctcp:sack=on,min_rto=2ms,initial_rto=10ms,handshake=off");

fn case(traffic: &'static str) -> Case<'static> {
    Case {
        fabric: "fat-tree:k=4,rate=10Gbps,delay=1us,buffer=2000",
        traffic,
        faults: "",
        duration: Nanos::from_millis(5),
        drain: 60,
        seed: 1,
    }
}

/// When the last transfer had finished, in ms.
fn last_ms(outcome: &Outcome) -> f64 {
    assert_eq!(outcome.packets.dropped, 0);
    outcome.flows.iter().map(|flow| flow.finish.unwrap().0).max().unwrap() as f64 / 1e6
}

fn reordered(outcome: &Outcome) -> u64 {
    outcome.flows.iter().map(|flow| u64::from(flow.reordered)).sum()
}

/// A step in which each host sends to one other, and one in which each sends to all.
#[test]
fn a_step_takes_hardly_longer_than_with_sprayed_packets_and_stays_in_order() {
    for traffic in ["all-to-all:size=8MB", "permutation"] {
        let run = |scheme: &str| match traffic {
            "permutation" => Simulation::new(permutation(scheme)).map(crate::cases::finish).unwrap(),
            _ => case(traffic).run(scheme, DCTCP),
        };
        let [ecmp, drb, ethereal] = ["ecmp", "drb", "ethereal"].map(run);
        let [ecmp_ms, drb_ms, ethereal_ms] = [&ecmp, &drb, &ethereal].map(last_ms);
        println!("{traffic}: ecmp {ecmp_ms:.2}, drb {drb_ms:.2}, ethereal {ethereal_ms:.2} ms");
        assert!(ethereal_ms < 1.1 * drb_ms && ethereal_ms < ecmp_ms, "{traffic}: {ecmp_ms} {drb_ms} {ethereal_ms}");
        assert_eq!(reordered(&ethereal), 0, "{traffic}");
        assert!(reordered(&drb) > 0, "{traffic}");
    }
}

/// Each of 16 hosts sends 4 MB to the one after the next four.
fn permutation(scheme: &str) -> pathloom_sim::SimSettings {
    let rows = crate::packets::shift(4_000_000);
    let listed = crate::packets::settings(case("").fabric, &rows, "newreno", "");
    let own = case("all-to-all:size=1KB").settings(scheme, DCTCP);
    pathloom_sim::SimSettings { workload: listed.workload, ..own }
}

#[test]
fn each_part_takes_a_path_of_its_own_and_together_they_take_all() {
    let outcome = Simulation::new(permutation("ethereal")).map(crate::cases::finish).unwrap();
    let mut sizes: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for part in &outcome.subflows {
        sizes.entry(part.transfer).or_default().push(part.delivered_bytes);
    }
    assert_eq!(sizes.len(), 16);
    assert!(sizes.values().all(|sizes| *sizes == [1_000_000; 4]), "{sizes:?}");
    // The bytes of links between switches tell that all paths were taken alike.
    let fabric = pathloom_fabrics::fabric_from_spec(case("").fabric).unwrap();
    let sent = outcome.links.iter().filter(|row| fabric.is_switch_link(row.link)).map(|row| row.sent_bytes);
    let (least, most) = sent.fold((u64::MAX, 0), |(least, most), bytes| (least.min(bytes), most.max(bytes)));
    assert!(least as f64 > 0.9 * most as f64, "{least} {most}");
}

#[test]
fn only_hosts_with_tcp_divide_transfers() {
    for transport in ["roce", "mptcp:subflows=2"] {
        let error = Simulation::new(case("all-to-all:size=1MB").settings("ethereal", Some(transport))).err();
        assert!(matches!(error, Some(SimError::NeedsTcp { .. })), "{transport}: {error:?}");
    }
}

#[test]
fn failures_leave_no_transfer_behind() {
    let faults = "100us:down:e0_0-a0_0,2ms:up:e0_0-a0_0,1ms:loss:c0:0.01";
    let outcome = Case { faults, ..case("all-to-all:size=4MB") }.run("ethereal", DCTCP);
    assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()) && outcome.packets.dropped > 0);
}
