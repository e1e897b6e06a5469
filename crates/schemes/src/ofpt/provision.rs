//! Bandwidth provision and start scheduling (OFPT §4, §5.2): how much each flow gets on its path, and who waits.
//!
//! Flows of known size are served by minimum remaining time first: in that order each takes all that its path has left,
//! so that of two flows on one bottleneck the shorter goes first, alone, and the longer waits for it (the paper's
//! Fig. 2h). Flows of unknown size wait for nobody and keep nobody waiting: they have their max-min fair share, and
//! share what the others leave.

use pathloom_mcf::{max_min, FlowSet};

/// A flow that is left less than this share of its access link waits: at a trickle it would only keep others from
/// theirs.
const LEAST_SHARE: f64 = 0.05;

/// A flow and what is known of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    /// Everything it crosses, access links included.
    pub links: Vec<u32>,
    /// Rate of its access link.
    pub access_bps: u64,
    /// Payload bytes left, if its size is known.
    pub remaining_bytes: Option<u64>,
}

impl Candidate {
    /// Time it would take alone, in nanoseconds.
    fn remaining_ns(&self) -> Option<u128> {
        Some(u128::from(self.remaining_bytes?) * 8_000_000_000 / u128::from(self.access_bps.max(1)))
    }
}

/// The rate of each flow in bits per second; 0 for those that wait. Of `capacity_bps` links are the indices; a flow over
/// a link that is not there gets nothing.
pub(super) fn provide(capacity_bps: &[u64], flows: &[Candidate]) -> Vec<u64> {
    let mut left: Vec<f64> = capacity_bps.iter().map(|&bps| bps as f64).collect();
    let mut rates = vec![0.0; flows.len()];
    let fair = shares(&left, flows, |_| true);
    let (known, unknown): (Vec<usize>, Vec<usize>) =
        (0..flows.len()).partition(|&index| flows[index].remaining_bytes.is_some());
    for &index in &unknown {
        take(&mut left, &flows[index], fair[index]);
    }
    let mut in_turn = known;
    in_turn.sort_by_key(|&index| (flows[index].remaining_ns(), index));
    for index in in_turn {
        let flow = &flows[index];
        let room =
            flow.links.iter().map(|&link| left.get(link as usize).copied().unwrap_or(0.0)).fold(f64::MAX, f64::min);
        let rate = room.min(flow.access_bps as f64);
        if rate >= LEAST_SHARE * flow.access_bps as f64 {
            take(&mut left, flow, rate);
            rates[index] = rate;
        }
    }
    for &index in &unknown {
        take(&mut left, &flows[index], -fair[index]);
    }
    for (index, share) in shares(&left, flows, |flow| flow.remaining_bytes.is_none()).into_iter().enumerate() {
        if flows[index].remaining_bytes.is_none() {
            rates[index] = share;
        }
    }
    rates.into_iter().map(|rate| rate as u64).collect()
}

/// Max-min fair rates of those flows that `counts`; 0 for the others, and for all where links are missing.
fn shares(left: &[f64], flows: &[Candidate], counts: impl Fn(&Candidate) -> bool) -> Vec<f64> {
    let mut set = FlowSet::new();
    for flow in flows {
        match counts(flow) {
            true => set.push_with(&flow.links, flow.access_bps as f64, 1.0),
            false => set.push_with(&[], 0.0, 1.0),
        };
    }
    // Sums of rates come off again with rounding.
    let left: Vec<f64> = left.iter().map(|left| left.max(0.0)).collect();
    max_min(&left, &set).map_or_else(|_| vec![0.0; flows.len()], |result| result.rates)
}

fn take(left: &mut [f64], flow: &Candidate, rate: f64) {
    for &link in &flow.links {
        if let Some(left) = left.get_mut(link as usize) {
            *left -= rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(links: &[u32], remaining_bytes: Option<u64>) -> Candidate {
        Candidate { links: links.to_vec(), access_bps: 100, remaining_bytes }
    }

    #[test]
    fn the_shorter_goes_first_and_the_longer_waits() {
        let flows = [flow(&[0], Some(80)), flow(&[0], Some(20)), flow(&[1], Some(60)), flow(&[1], Some(40))];
        assert_eq!(provide(&[100, 100], &flows), [0, 100, 0, 100]);
        assert_eq!(provide(&[100, 100], &flows[2..]), [0, 100]);
        assert_eq!(provide(&[150, 100], &flows), [50, 100, 0, 100]);
        assert_eq!(provide(&[104, 100], &flows), [0, 100, 0, 100], "a trickle is not worth starting for");
    }

    #[test]
    fn flows_of_unknown_size_share() {
        let flows = [flow(&[0], None), flow(&[0], None), flow(&[0, 1], None)];
        assert_eq!(provide(&[90, 100], &flows), [30, 30, 30]);
        // A flow of known size gets what the shares leave, here nothing but its own.
        let flows = [flow(&[0], None), flow(&[0], Some(5)), flow(&[0], Some(6))];
        assert_eq!(provide(&[90], &flows), [30, 60, 0]);
        // What is left by it goes to the others.
        let flows = [flow(&[0], None), flow(&[0, 1], Some(5))];
        assert_eq!(provide(&[90, 30], &flows), [60, 30]);
    }

    #[test]
    fn bad_links_give_nothing() {
        assert_eq!(provide(&[0], &[flow(&[0], Some(1)), flow(&[0], None)]), [0, 0]);
        assert_eq!(provide(&[9], &[flow(&[7], Some(1)), flow(&[7], None)]), [0, 0]);
        let nowhere = Candidate { links: vec![0], access_bps: 0, remaining_bytes: Some(u64::MAX) };
        assert_eq!(provide(&[9], &[nowhere]), [0]);
        assert_eq!(provide(&[], &[]), Vec::<u64>::new());
    }

    fn candidate() -> impl Strategy<Value = Candidate> {
        let size = prop::option::of(0u64..1000);
        (prop::collection::btree_set(0u32..6, 1..4), 1u64..100, size).prop_map(
            |(links, access_bps, remaining_bytes)| Candidate {
                links: links.into_iter().collect(),
                access_bps,
                remaining_bytes,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_link_is_overbooked_and_nobody_starves_without_need(
            capacity in prop::collection::vec(1u64..1000, 6), flows in prop::collection::vec(candidate(), 0..12),
        ) {
            let rates = provide(&capacity, &flows);
            let mut used = [0u64; 6];
            for (flow, &rate) in flows.iter().zip(&rates) {
                prop_assert!(rate <= flow.access_bps);
                flow.links.iter().for_each(|&link| used[link as usize] += rate);
            }
            for (used, &capacity) in used.iter().zip(&capacity) {
                prop_assert!(*used <= capacity, "{used} of {capacity}");
            }
            for (flow, &rate) in flows.iter().zip(&rates).filter(|(_, &rate)| rate == 0) {
                let room = flow.links.iter().map(|&link| capacity[link as usize] - used[link as usize]).min().unwrap();
                // Rates are cut to whole numbers, one for each flow.
                prop_assert!((room as f64) < LEAST_SHARE * flow.access_bps as f64 + 13.0, "{rate} {room} {flow:?}");
            }
        }
    }
}
