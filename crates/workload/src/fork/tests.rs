//! Tests of the traffic of forks.

use super::*;
use crate::random::seeded;
use crate::tests::{check, even, message, try_generate};
use crate::Workload;

/// A fork of two flows under way and, at 1000 flows/s, arrivals of 1 to 3 KB from h0 to h2 alone.
const FORK: &str = r#"{"format": "pathloom-fork", "version": 1, "fabric": {"nodes": []},
 "flows": {"src": ["h0", "h1"], "dst": ["h2", "h3"], "sent_bytes": [2000, 500], "size_bytes": [null, 900],
  "endless": [false, false], "rate_bps": [8000000, 0], "window_bytes": [4000, 0], "slow_start": [false, true], "path": [["e0", "core", "e1"], null]},
 "arrivals": {"flows_per_s": 1000, "batch_flows": 1, "batch_s": 0,
  "sizes": {"bytes": [1000, 3000], "share": [0, 1], "tail_exponent": 1.5},
  "pairs": {"src": ["h0", "h1"], "dst": ["h2", "h0"], "share": [0.5, 0]}}}"#;

fn workload(text: &str, keys: &str) -> Workload {
    try_generate(&format!("fork:file=now.plf{keys}"), &even(2, 2), 2.0, Some(text)).unwrap()
}

#[test]
fn flows_under_way_come_first_and_have_the_rest_to_send() {
    let fabric = even(2, 2);
    let workload = workload(FORK, "");
    check(&workload, &fabric, Nanos::from_secs(2));
    let (under_way, arrivals) = workload.flows.split_at(2);
    let known = under_way.iter().find(|flow| fabric.node(flow.src).name == "h1").unwrap();
    let other = under_way.iter().find(|flow| fabric.node(flow.src).name == "h0").unwrap();
    assert_eq!(known.size_bytes, Some(400));
    assert!((1..=1000).contains(&other.size_bytes.unwrap()), "{other:?}");
    let state = other.under_way.as_ref().unwrap();
    assert_eq!((state.window_bytes, state.rate_bps), (4000, 8_000_000));
    let names: Vec<&str> = state.path.iter().map(|&node| fabric.node(node).name.as_str()).collect();
    assert_eq!(names, ["e0", "core", "e1"]);
    assert!(known.under_way.as_ref().unwrap().path.is_empty());
    assert!(arrivals.iter().all(|flow| flow.under_way.is_none() && fabric.node(flow.dst).name == "h2"));
    assert!((1800..2200).contains(&arrivals.len()), "{}", arrivals.len());
    assert!(under_way.iter().all(|flow| matches!(flow.start, Start::At(at) if at < LONG_LIVED_JITTER)));
    assert!(arrivals.iter().all(|flow| matches!(flow.start, Start::At(at) if at >= LONG_LIVED_JITTER)));
}

#[test]
fn load_changes_times_and_neither_sizes_nor_flows_under_way() {
    let (once, twice) = (workload(FORK, ""), workload(FORK, ",load=2"));
    let sizes = |workload: &Workload| workload.flows.iter().map(|flow| flow.size_bytes).collect::<Vec<_>>();
    assert!(twice.flows.len() > once.flows.len() * 9 / 5);
    assert_eq!(sizes(&once)[..], sizes(&twice)[..once.flows.len()]);
    assert_eq!(workload(FORK, ",load=0").flows[..], once.flows[..2]);
}

#[test]
fn endless_flows_have_no_size() {
    let text = FORK.replace("\"endless\": [false, false]", "\"endless\": [true, false]");
    assert_eq!(workload(&text, ",load=0").flows.iter().filter(|flow| flow.size_bytes.is_none()).count(), 1);
}

#[test]
fn sizes_beyond_are_those_of_larger_flows() {
    let table = SizeTable::new("t", vec![(0.0, 0.0), (1000.0, 0.5), (3000.0, 1.0)]).unwrap();
    assert_eq!(table.share_at_most(500.0), 0.25);
    assert_eq!((table.share_at_most(3000.0), table.share_at_most(-1.0)), (1.0, 0.0));
    // A quarter of all flows is above 2000 bytes, evenly up to 3000.
    assert_eq!(size_beyond(&table, 1.5, 2000, 0.5), 2500);
    let mut rng = seeded(1, "test", 0);
    let mut beyond = |sent| (0..20_000).map(|_| size_beyond(&table, 2.0, sent, uniform(&mut rng)) as f64).collect();
    let pareto: Vec<f64> = beyond(10_000);
    assert!(pareto.iter().all(|&size| size > 10_000.0));
    // Half of the flows are below sent · 2^(1 / exponent).
    let below = pareto.iter().filter(|&&size| size < 10_000.0 * 2f64.sqrt()).count();
    assert!((9_700..10_300).contains(&below), "{below}");
}

#[test]
fn batches_make_counts_disperse_as_their_mean_says() {
    // Batches of 3 on average: an index of dispersion of 5.
    let bursty = FORK.replace("\"batch_flows\": 1", "\"batch_flows\": 3");
    let fabric = even(2, 2);
    let starts = |text: &str| {
        let workload = try_generate("fork:file=now.plf", &fabric, 60.0, Some(text)).unwrap();
        workload.flows.iter().map(|flow| flow.start.clone()).collect()
    };
    let dispersion = |starts: Vec<Start>| {
        let mut counts = vec![0f64; 600];
        for start in &starts {
            let Start::At(at) = start else { continue };
            counts[(at.0 / 100_000_000) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 600.0;
        counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 599.0 / mean
    };
    let (even, uneven) = (dispersion(starts(FORK)), dispersion(starts(&bursty)));
    assert!((0.8..1.2).contains(&even) && (4.0..6.0).contains(&uneven), "{even}, {uneven}");
}

#[test]
fn damaged_files_are_refused_with_the_field() {
    for (from, to, words) in [
        ("pathloom-fork", "other", "now.plf: format: `other`"),
        ("\"version\": 1", "\"version\": 2", "version: 2 is not 1"),
        ("\"version\": 1,", "", "version"),
        ("\"dst\": [\"h2\", \"h3\"]", "\"dst\": [\"h2\"]", "flows.dst: has 1 values; expected 2"),
        (
            "\"src\": [\"h0\", \"h1\"], \"dst\": [\"h2\", \"h3\"]",
            "\"src\": [\"h0\", \"h1\"], \"dst\": [\"h0\", \"h3\"]",
            "flows.dst[0]: host h0 sends to itself",
        ),
        ("\"dst\": [\"h2\", \"h3\"]", "\"dst\": [\"h9\", \"h3\"]", "flows.dst[0]: `h9` is not a host"),
        ("\"core\"", "\"h1\"", "flows.path[0]: `h1` is not a switch"),
        ("[null, 900]", "[null, 0]", "flows.size_bytes[1]: expected 1"),
        ("\"share\": [0, 1]", "\"share\": [0, 0.5]", "arrivals.sizes: quantile 1"),
        ("\"batch_flows\": 1", "\"batch_flows\": 0", "arrivals.batch_flows: 0 is not a number from 1"),
        ("[0.5, 0]", "[0, 0]", "arrivals.pairs: no pair has a share"),
        ("[0.5, 0]", "[-1, 2]", "arrivals.pairs.share[0]: -1"),
    ] {
        assert!(FORK.contains(from), "{from}");
        let text = FORK.replace(from, to);
        let message = message("fork:file=now.plf", &even(2, 2), 2.0, Some(&text));
        assert!(message.contains(words), "{from} → {to}: {message}");
    }
    let cut = message("fork:file=now.plf", &even(2, 2), 2.0, Some(&FORK[..300]));
    assert!(cut.contains("is not a whole fork") && cut.contains("twin fork"), "{cut}");
}
