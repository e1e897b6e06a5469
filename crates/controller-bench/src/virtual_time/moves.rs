//! Flows that move to other paths, and flows on cables that fail.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_testnet::Timing;

#[test]
fn moves_lose_no_packet_whatever_the_order_of_messages() {
    for migration in ["sfmm", "tagged"] {
        for seed in 0..4 {
            let scheme = format!("move:period=400ms,migration={migration}");
            let mut lab = Lab::with(K4, &scheme, "", Timing { work: (ms(0), ms(10)), ..Timing::SLOW }, seed);
            lab.begin_flows(8);
            lab.watched = lab.flows.clone();
            let (before, mut seen) = (lab.paths(), std::collections::BTreeSet::new());
            for _ in 0..100 {
                lab.traffic(ms(50));
                seen.extend(lab.paths()[0].first().map(|_| lab.paths()[0].clone()));
            }
            lab.nothing_is_lost();
            assert!(seen.len() > 2, "{migration}, seed {seed}: {before:?}");
            assert_eq!(lab.failures, [], "{migration}, seed {seed}: a packet would have been lost");
        }
    }
}

#[test]
fn hasty_barriers_are_noticed() {
    // If switches confirm changes before they have made them, moves lose packets: these tests would fail.
    let mut lab = Lab::bare(K4, "move:period=400ms", "", Timing::SLOW, 1);
    lab.devices.values_mut().for_each(|device| device.faults.hasty_barriers = true);
    lab.connect_all();
    lab.run_for(s(5));
    lab.begin_flows(8);
    lab.traffic(s(5));
    lab.run_for(ms(200));
    assert!(!lab.delivery_errors().is_empty());
}

#[test]
fn flows_on_a_cable_that_is_cut_move_at_once_and_nothing_is_lost_afterwards() {
    for seed in 0..4 {
        let mut lab = Lab::k4(QUIET, seed);
        lab.begin_flows(8);
        lab.traffic(s(1));
        let cuts: Vec<_> = lab.paths().iter().map(|path| path[1]).take(3).collect();
        let mut spans = Vec::new();
        for link in cuts {
            let begun = lab.now();
            lab.set_cable(link, false);
            lab.traffic(s(2));
            lab.await_paths();
            spans.push((begun, begun + ms(900)));
            assert!(lab.paths().iter().all(|path| !path.contains(&link)));
            lab.set_cable(link, true);
            lab.traffic(s(3));
        }
        lab.run_for(ms(200));
        let late = lab.delivery_errors();
        let late = late
            .iter()
            .filter(|report| !spans.iter().any(|&(from, to)| from <= report.sent + ms(20) && report.sent < to));
        let late: Vec<_> = late.collect();
        assert!(late.is_empty(), "seed {seed}: {:?} of {spans:?}", late.first());
    }
}
