//! NDP: receivers pull packets at the rate of their links.

use crate::packets::{all_finish, fcts_us, incast, run, run_with, settings, shift, FAT_TREE, TRIMMING};
use pathloom_sim::{LargeFabric, Outcome};

const PAYLOAD: u64 = 4086;

fn fabric() -> String {
    format!("{FAT_TREE},{TRIMMING}")
}

fn last_us(outcome: &Outcome) -> f64 {
    fcts_us(outcome).into_iter().fold(0.0, f64::max)
}

/// Each data packet has one acknowledgement, and all but those of the first window have one pull.
#[test]
fn a_lone_transfer_has_a_report_for_each_packet_and_a_pull_for_each_after_the_first_window() {
    for (first, packets) in [(10, 200), (30, 200), (30, 20)] {
        let transport = format!("ndp:iw={}B", first * 4150);
        let outcome = run(settings(&fabric(), &[(0, 0, 15, Some(packets * PAYLOAD))], &transport, ""));
        let flow = &outcome.flows[0];
        assert_eq!((u64::from(flow.segments), flow.retransmits, flow.timeouts), (packets, 0, 0));
        assert_eq!(flow.packets, 2 * packets + packets.saturating_sub(first), "{first} of {packets}");
    }
}

#[test]
fn the_default_window_fills_the_path() {
    let outcome = run(settings(&fabric(), &[(0, 0, 15, Some(2_000_000))], "ndp", ""));
    assert!(outcome.flows[0].throughput.unwrap() > 0.95, "{:?}", outcome.flows[0].throughput);
    assert_eq!(outcome.packets.trimmed, 0);
}

/// Pulls arrive as fast as the link of the receiver sends, so it is busy from the first packet to the last.
#[test]
fn an_incast_takes_hardly_longer_than_its_link_needs() {
    for senders in [5, 15] {
        let outcome = run(settings(&fabric(), &incast(senders, 400_000), "ndp", ""));
        assert!(all_finish(&outcome) && outcome.packets.trimmed > 0, "{:?}", outcome.packets);
        assert_eq!((outcome.packets.dropped, outcome.flows.iter().map(|flow| flow.timeouts).sum::<u32>()), (0, 0));
        let ideal_us = senders as f64 * 400_000.0 * 4150.0 / PAYLOAD as f64 * 8e-5;
        assert!(last_us(&outcome) < 1.05 * ideal_us + 10.0, "{} {ideal_us}", last_us(&outcome));
        // What is trimmed, and nothing else, is sent again.
        let again: u32 = outcome.flows.iter().map(|flow| flow.retransmits).sum();
        assert_eq!(u64::from(again), outcome.packets.trimmed);
        // The host pulls for all in turn. They differ in what of their first window was not trimmed.
        let first_us = fcts_us(&outcome).into_iter().fold(f64::MAX, f64::min);
        assert!(first_us > 0.75 * last_us(&outcome), "{first_us} {}", last_us(&outcome));
    }
}

#[test]
fn a_permutation_uses_all_paths_and_is_repeatable() {
    let set = || settings(&fabric(), &shift(1_000_000), "ndp", "");
    let outcome = run(set());
    // 1 MB takes 81 us at 100 Gbit/s.
    assert!(all_finish(&outcome) && last_us(&outcome) < 115.0, "{}", last_us(&outcome));
    assert_eq!(outcome, run_with(set(), LargeFabric));
}

/// Pulls and packets that are lost delay transfers but end none.
#[test]
fn every_transfer_finishes_without_trimming_and_when_packets_and_pulls_are_lost() {
    for (fabric, faults) in [
        (FAT_TREE.to_owned(), ""),
        (fabric(), "10us:down:e0_0-h0,300us:up:e0_0-h0"),
        (fabric(), "0s:loss:c0:0.05,0s:loss:a0_0:0.02"),
    ] {
        let mut flows = shift(200_000);
        flows.extend(incast(15, 200_000));
        let outcome = run(settings(&fabric, &flows, "ndp", faults));
        assert!(all_finish(&outcome) && outcome.packets.dropped > 0, "{fabric} {faults}: {:?}", outcome.packets);
    }
}
