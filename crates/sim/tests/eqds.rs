//! EQDS: packets wait for credit, and time-outs send requests.

use crate::packets::{all_finish, fcts_us, incast, run, run_with, settings, shift, FAT_TREE, TRIMMING};
use pathloom_sim::{LargeFabric, Outcome};

const PAYLOAD: u64 = 4086;

fn fabric() -> String {
    format!("{FAT_TREE},{TRIMMING}")
}

fn last_us(outcome: &Outcome) -> f64 {
    fcts_us(outcome).into_iter().fold(0.0, f64::max)
}

fn total(outcome: &Outcome, of: impl Fn(&pathloom_sim::FlowOutcome) -> u32) -> u64 {
    outcome.flows.iter().map(|flow| u64::from(of(flow))).sum()
}

/// Each data packet has one acknowledgement, and all but those of the first window have credit of their own. A request has a
/// negative acknowledgement.
#[test]
fn a_lone_transfer_takes_as_many_packets_as_its_beginning_says() {
    let fct = |transport: &str, expected: u64| {
        let outcome = run(settings(&fabric(), &[(0, 0, 15, Some(200 * PAYLOAD))], transport, ""));
        let flow = &outcome.flows[0];
        assert_eq!((flow.packets, flow.retransmits, flow.timeouts), (expected, 0, 0), "{transport}");
        assert_eq!(outcome.packets.trimmed, 0);
        fcts_us(&outcome)[0]
    };
    let speculative = fct("eqds:iw=41500B", 2 * 200 + 190);
    let ndp = fct("ndp:iw=41500B", 2 * 200 + 190);
    let usual = fct("eqds", 2 * 200 + 200 - 25);
    let request = fct("eqds:start=request", 2 * 200 + 200 + 2);
    // Credit is for up to one and a half windows, so a window below the product of rate and round trip loses less.
    assert!(speculative < ndp, "{speculative} {ndp}");
    // 200 packets take 66.4 us. A request and its credit cross six links each, in 3.0 us and little more.
    assert!((6.0..8.0).contains(&(request - usual)), "{request} {usual}");
}

#[test]
fn an_incast_of_requests_trims_nothing_and_takes_hardly_longer_than_its_link_needs() {
    for senders in [5, 15] {
        let ideal_us = senders as f64 * 400_000.0 * 4150.0 / PAYLOAD as f64 * 8e-5;
        let asked = run(settings(&fabric(), &incast(senders, 400_000), "eqds:start=request", ""));
        assert!(all_finish(&asked));
        assert_eq!((asked.packets.trimmed, asked.packets.dropped, total(&asked, |flow| flow.retransmits)), (0, 0, 0));
        let begun = run(settings(&fabric(), &incast(senders, 400_000), "eqds", ""));
        assert!(all_finish(&begun) && begun.packets.trimmed > 0 && begun.packets.dropped == 0);
        assert_eq!(total(&begun, |flow| flow.retransmits), begun.packets.trimmed, "what is trimmed, and nothing else");
        for outcome in [asked, begun] {
            assert!(last_us(&outcome) < 1.06 * ideal_us + 15.0, "{} {ideal_us}", last_us(&outcome));
        }
    }
}

#[test]
fn a_permutation_uses_all_paths_and_is_repeatable() {
    let set = || settings(&fabric(), &shift(1_000_000), "eqds", "");
    let outcome = run(set());
    // 1 MB takes 81 us at 100 Gbit/s.
    assert!(all_finish(&outcome) && last_us(&outcome) < 115.0, "{}", last_us(&outcome));
    assert_eq!(outcome, run_with(set(), LargeFabric));
}

#[test]
fn what_is_lost_is_asked_for_and_every_transfer_finishes() {
    for (fabric, faults) in [
        (FAT_TREE.to_owned(), ""),
        (fabric(), "10us:down:e0_0-h0,300us:up:e0_0-h0"),
        (fabric(), "0s:loss:c0:0.05,0s:loss:a0_0:0.02"),
    ] {
        for transport in ["eqds", "eqds:start=request"] {
            let mut flows = shift(200_000);
            flows.extend(incast(15, 200_000));
            let outcome = run(settings(&fabric, &flows, transport, faults));
            assert!(all_finish(&outcome), "{fabric} {faults} {transport}: {:?}", outcome.packets);
            assert!(total(&outcome, |flow| flow.timeouts) > 0 || faults.is_empty());
        }
    }
}
