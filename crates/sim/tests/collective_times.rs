//! Times of collectives on a single switch, against their closed forms: steps · (delay) + bytes / rate.
//!
//! Connections stand, starts have no jitter, and queues hold a whole window, so nothing is lost. What the closed
//! form leaves out is the growth of the first windows, and that steps of ranks begin when data arrive, not at a common time.

use crate::cases::{finish, Case};
use pathloom_model::Nanos;
use pathloom_sim::{SimSettings, Simulation};
use pathloom_transport::TransportSpec;

const RATE_BPS: f64 = 100e9;
const DELAY_S: f64 = 1e-6;
const MSS_BYTES: f64 = 1448.0;
const HEADER_BYTES: f64 = 66.0;
/// An acknowledgement for every second frame.
const ACK_EVERY: f64 = 2.0;

/// What an algorithm does one after the other: steps, and bytes in all of them together.
#[derive(Clone, Copy, Debug, Default)]
struct Serial {
    steps: f64,
    /// Bytes in steps in which hosts send and receive, so that acknowledgements share links with data.
    both_ways_bytes: f64,
    /// Bytes in steps in which a host only sends or only receives.
    one_way_bytes: f64,
}

impl Serial {
    /// The closed form on a single switch.
    fn time_s(self) -> f64 {
        let byte_s = |more_bytes: f64| 8.0 / RATE_BPS * (MSS_BYTES + HEADER_BYTES + more_bytes) / MSS_BYTES;
        // Two cables, and the switch sends the last frame again.
        let step_s = 2.0 * DELAY_S + (MSS_BYTES + HEADER_BYTES) * 8.0 / RATE_BPS;
        self.steps * step_s + self.both_ways_bytes * byte_s(HEADER_BYTES / ACK_EVERY) + self.one_way_bytes * byte_s(0.0)
    }
}

fn both_ways(steps: f64, bytes: f64) -> Serial {
    Serial { steps, both_ways_bytes: bytes, one_way_bytes: 0.0 }
}

fn one_way(steps: f64, bytes: f64) -> Serial {
    Serial { steps, both_ways_bytes: 0.0, one_way_bytes: bytes }
}

fn star(ranks: u32) -> String {
    format!("leaf-spine:spines=1,leaves=1,hosts={ranks},rate=100Gbps,delay=1us,buffer=2000")
}

fn case<'a>(traffic: &'a str, fabric: &'a str) -> Case<'a> {
    Case { fabric, traffic, faults: "", duration: Nanos::from_secs(1), drain: 20, seed: 1 }
}

/// Time of a collective of `traffic` between `ranks` hosts at one switch, in seconds.
fn measured_s(traffic: &str, ranks: u32) -> f64 {
    let fabric = star(ranks);
    let case = case(traffic, &fabric);
    let transport = TransportSpec::parse("newreno:iw=64KB,rwnd=128KB,jitter=0s").unwrap();
    let outcome = finish(Simulation::new(SimSettings { transport, ..case.settings("spt", None) }).unwrap());
    assert_eq!(outcome.packets.dropped, 0, "{traffic}");
    outcome.flows.iter().map(|flow| flow.finish.unwrap()).max().unwrap().as_secs_f64()
}

const COUNTS: [u32; 6] = [2, 3, 4, 7, 8, 16];

/// Compares the times of an algorithm with its closed form, for all numbers of ranks that it allows.
fn compare(traffic: &str, counts: &[u32], form: impl Fn(f64) -> Serial) {
    for &ranks in counts {
        let (measured_s, expected_s) = (measured_s(traffic, ranks), form(f64::from(ranks)).time_s());
        let error = measured_s / expected_s - 1.0;
        assert!(error.abs() < 0.01, "{traffic}, {ranks} ranks: {measured_s} s, expected {expected_s} s");
    }
}

/// Bytes of the buffer of `size=16MB`.
const SIZE: f64 = 16e6;

#[test]
fn rings_take_their_closed_form() {
    let scatter = |n: f64| both_ways(n - 1.0, SIZE * (n - 1.0) / n);
    compare("all-reduce:size=16MB,jitter=0s", &COUNTS, |n| both_ways(2.0 * (n - 1.0), 2.0 * SIZE * (n - 1.0) / n));
    compare("reduce-scatter:size=16MB,jitter=0s", &COUNTS, scatter);
    compare("all-gather:size=16MB,jitter=0s", &COUNTS, scatter);
}

#[test]
fn halving_and_doubling_take_their_closed_form() {
    compare("all-reduce:algorithm=recursive,size=16MB,jitter=0s", &COUNTS, |n| {
        let most = n.log2().floor().exp2();
        let core = both_ways(2.0 * most.log2(), 2.0 * SIZE * (most - 1.0) / most);
        // One rank of each pair gives its buffer to the other before, and gets the result after.
        let extra = if n == most { 0.0 } else { 2.0 };
        Serial { steps: core.steps + extra, one_way_bytes: extra * SIZE, ..core }
    });
    let scatter = |n: f64| both_ways(n.log2(), SIZE * (n - 1.0) / n);
    compare("reduce-scatter:algorithm=recursive,size=16MB,jitter=0s", &[2, 4, 8, 16], scatter);
    compare("all-gather:algorithm=recursive,size=16MB,jitter=0s", &[2, 4, 8, 16], scatter);
}

#[test]
fn trees_take_their_closed_form() {
    const CHUNKS: f64 = 32.0;
    let chunks = |rounds: f64| both_ways(rounds, rounds * SIZE / CHUNKS);
    // Steps beyond two for each chunk.
    let fill = |n: f64| match n as u32 {
        3 => 2.0,
        4 => 4.0,
        7 | 8 => 6.0,
        _ => 12.0,
    };
    compare("all-reduce:algorithm=tree,chunks=32,size=16MB,jitter=0s", &COUNTS, |n| {
        chunks(if n == 2.0 { CHUNKS } else { 2.0 * CHUNKS + fill(n) })
    });
    for name in ["broadcast", "reduce"] {
        compare(&format!("{name}:algorithm=tree,chunks=32,size=16MB,jitter=0s"), &[4, 8, 16], |n| {
            chunks(CHUNKS + 2.0 * n.log2() - 1.0)
        });
        compare(&format!("{name}:algorithm=tree,chunks=32,size=16MB,jitter=0s"), &[2], |_| one_way(CHUNKS, SIZE));
    }
}

#[test]
fn chains_and_binomial_trees_take_their_closed_form() {
    const CHUNKS: f64 = 32.0;
    for name in ["broadcast", "reduce"] {
        compare(&format!("{name}:algorithm=ring,chunks=32,size=16MB,jitter=0s"), &COUNTS, |n| {
            let rounds = CHUNKS + n - 2.0;
            match n as u32 {
                2 => one_way(rounds, SIZE),
                _ => both_ways(rounds, rounds * SIZE / CHUNKS),
            }
        });
        compare(&format!("{name}:algorithm=binomial,size=16MB,jitter=0s"), &COUNTS, |n| {
            one_way(n.log2().ceil(), n.log2().ceil() * SIZE)
        });
    }
}

#[test]
fn exchanges_take_their_closed_form() {
    for (algorithm, serial_steps) in [("windowed", true), ("pairwise", true), ("direct", false)] {
        compare(&format!("all-to-all:algorithm={algorithm},size=2MB,jitter=0s"), &COUNTS, |n| {
            both_ways(if serial_steps { n - 1.0 } else { 1.0 }, (n - 1.0) * 2e6)
        });
    }
    compare("all-to-all:algorithm=bruck,size=2MB,jitter=0s", &COUNTS, |n| {
        let blocks: u32 = (1..n as u32).map(u32::count_ones).sum();
        both_ways(n.log2().ceil(), f64::from(blocks) * 2e6)
    });
}

/// Rings inside groups of g hosts, then across n/g groups, then inside again.
#[test]
fn hierarchies_take_their_closed_form() {
    for (groups, n) in [(2, 4), (2, 8), (4, 8), (4, 16), (8, 16)] {
        let traffic = format!("all-reduce:algorithm=hierarchical,groups={groups},size=16MB,jitter=0s");
        let (g, count) = (f64::from(groups), f64::from(n / groups));
        compare(&traffic, &[n], |_| {
            let inside = both_ways(2.0 * (g - 1.0), 2.0 * SIZE * (g - 1.0) / g);
            let across = both_ways(2.0 * (count - 1.0), 2.0 * SIZE / g * (count - 1.0) / count);
            both_ways(inside.steps + across.steps, inside.both_ways_bytes + across.both_ways_bytes)
        });
    }
}

/// Bytes that the busiest port sends or receives in the dispatch, and in the combine.
fn busiest_bytes(traffic: &str, ranks: u32) -> [f64; 2] {
    let flows = case(traffic, &star(ranks)).settings("spt", None).workload.flows.clone();
    [0, 1].map(|phase| {
        let mut ports = std::collections::BTreeMap::new();
        for flow in flows.iter().filter(|flow| flow.coflow == Some(phase)) {
            *ports.entry((false, flow.src)).or_insert(0) += flow.size_bytes.unwrap();
            *ports.entry((true, flow.dst)).or_insert(0) += flow.size_bytes.unwrap();
        }
        ports.into_values().max().unwrap() as f64
    })
}

/// Each phase lasts as long as the busiest port needs.
#[test]
fn experts_take_their_closed_form() {
    let traffic = "moe:tokens=16000,token=1448B,jitter=0s";
    for ranks in [2, 4, 8, 16] {
        let [dispatch, combine] = busiest_bytes(traffic, ranks);
        compare(traffic, &[ranks], |_| both_ways(2.0, dispatch + combine));
    }
}

/// The rank of the most popular expert first receives all its tokens, then sends all results. Other ranks send results
/// earlier, some of them to this rank, where they delay tokens. So it takes longer than the two phases alone.
#[test]
fn a_popular_expert_delays_all_ranks() {
    let traffic = "moe:tokens=16000,token=1448B,skew=1,jitter=0s";
    for ranks in [4, 8, 16] {
        let [dispatch, combine] = busiest_bytes(traffic, ranks);
        let least_s = both_ways(2.0, dispatch + combine).time_s();
        let measured_s = measured_s(traffic, ranks);
        assert!((0.99..1.25).contains(&(measured_s / least_s)), "{ranks}: {measured_s} s, at least {least_s} s");
        let even_s = self::measured_s("moe:tokens=16000,token=1448B,jitter=0s", ranks);
        assert!(measured_s > 1.3 * even_s, "{ranks}: {measured_s} s, without skew {even_s} s");
    }
}
