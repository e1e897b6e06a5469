//! Bandwidth provision and start scheduling (OFPT §4, §5.2): the rate of each flow on its path, and which flows wait.
//!
//! Flows of known size take turns, minimum remaining time first: in that order each takes all that its path has left.
//! So of two flows with the same bottleneck the shorter one sends first, alone, and the longer one waits (the paper's
//! Fig. 2h). Flows of unknown size do not wait. They get their max-min fair share, by weight ([`super::sharing`]), and
//! also the capacity that the others leave.

use pathloom_allocation::{max_min, FlowSet, Limit};

/// A flow waits if less than this share of its access link is left for it. At such a rate it would only take capacity
/// from others.
pub(super) const LEAST_SHARE: f64 = 0.05;

/// The share of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Share {
    /// Its rate; 0 if it waits.
    pub rate_bps: u64,
    /// The link that limits it; `None` if it has the rate of its access link.
    pub limit: Option<u32>,
}

/// Flows that want to send.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Demands {
    /// The links of each flow, access links included. The demand is the rate of the access link.
    pub flows: FlowSet,
    /// Remaining payload bytes of each flow, if its size is known.
    pub remaining_bytes: Vec<Option<u64>>,
}

impl Demands {
    /// Empty, with room for this many flows that cross this many links in total.
    pub fn with_capacity(flows: usize, links: usize) -> Demands {
        Demands { flows: FlowSet::with_capacity(flows, links), remaining_bytes: Vec::with_capacity(flows) }
    }

    /// Adds a flow. Of two flows of unknown size on a full link, one with twice the weight gets twice the rate.
    pub fn push(&mut self, links: &[u32], access_bps: u64, weight: f64, remaining_bytes: Option<u64>) {
        self.flows.push_with(links, access_bps as f64, weight);
        self.remaining_bytes.push(remaining_bytes);
    }

    /// Some of the flows.
    fn flows_of(&self, which: &[usize]) -> FlowSet {
        let mut flows = FlowSet::new();
        for &index in which {
            flows.push_with(self.flows.links(index), self.access_bps(index), self.flows.weight(index));
        }
        flows
    }

    fn access_bps(&self, flow: usize) -> f64 {
        self.flows.demand(flow)
    }

    /// Remaining time of a flow at the rate of its access link, in nanoseconds.
    pub fn remaining_ns(&self, flow: usize) -> Option<u128> {
        Some(remaining_ns(self.remaining_bytes[flow]?, self.access_bps(flow) as u64))
    }
}

/// Time to send this many bytes at a rate, in nanoseconds.
pub(super) fn remaining_ns(bytes: u64, rate_bps: u64) -> u128 {
    u128::from(bytes) * 8_000_000_000 / u128::from(rate_bps.max(1))
}

/// The share of each flow. Links are indices of `capacity_bps`. A flow of known size over an unknown link gets nothing.
/// If a flow of unknown size crosses an unknown link, no flow of unknown size gets anything.
pub(super) fn provide(capacity_bps: &[f64], demands: &Demands) -> Vec<Share> {
    if demands.remaining_bytes.iter().all(Option::is_none) {
        return fair(capacity_bps, &demands.flows);
    }
    let (known, unknown): (Vec<usize>, Vec<usize>) =
        (0..demands.flows.len()).partition(|&index| demands.remaining_bytes[index].is_some());
    let all: Vec<usize> = (0..demands.flows.len()).collect();
    let shares = provide_beside(capacity_bps, demands, (&known, &unknown), &all);
    let waits = |&index: &usize| shares[index].rate_bps == 0;
    if unknown.is_empty() || !known.iter().any(waits) {
        return shares;
    }
    // Waiting flows take nothing, so flows of unknown size can have more than if all flows sent. The capacity that
    // this leaves on other links may suffice for a flow that waited.
    let sending: Vec<usize> =
        all.into_iter().filter(|index| !waits(index) || unknown.binary_search(index).is_ok()).collect();
    provide_beside(capacity_bps, demands, (&known, &unknown), &sending)
}

/// Reserves for flows of unknown size the fair share that they have if all `rivals` send. Flows of known size take
/// turns in the rest.
fn provide_beside(
    capacity_bps: &[f64],
    demands: &Demands,
    (known, unknown): (&[usize], &[usize]),
    rivals: &[usize],
) -> Vec<Share> {
    let mut left = capacity_bps.to_vec();
    let mut shares = vec![Share::default(); demands.flows.len()];
    if !unknown.is_empty() {
        for (&index, share) in rivals.iter().zip(fair(capacity_bps, &demands.flows_of(rivals))) {
            shares[index] = share;
        }
    }
    let reserved_bps: Vec<f64> = unknown.iter().map(|&index| shares[index].rate_bps as f64).collect();
    for (&index, &rate_bps) in unknown.iter().zip(&reserved_bps) {
        take(&mut left, demands.flows.links(index), rate_bps);
    }
    serve_in_turn(&mut left, demands, known.to_vec(), &mut shares);
    for (&index, &rate_bps) in unknown.iter().zip(&reserved_bps) {
        take(&mut left, demands.flows.links(index), -rate_bps);
    }
    for (&index, share) in unknown.iter().zip(fair(&left, &demands.flows_of(unknown))) {
        shares[index] = share;
    }
    shares
}

/// Flows of known size take all that is left for them, minimum remaining time first.
fn serve_in_turn(left: &mut [f64], demands: &Demands, mut known: Vec<usize>, shares: &mut [Share]) {
    known.sort_by_cached_key(|&index| (demands.remaining_ns(index), index));
    for index in known {
        let (links, access_bps) = (demands.flows.links(index), demands.access_bps(index));
        let room_on = |link: u32| left.get(link as usize).copied().unwrap_or(0.0);
        let tightest = links.iter().copied().min_by(|&a, &b| room_on(a).total_cmp(&room_on(b)));
        let room = tightest.map_or(f64::MAX, room_on);
        let rate = room.min(access_bps);
        let limit = tightest.filter(|_| room < access_bps);
        if rate >= LEAST_SHARE * access_bps {
            // Rounded down to whole bits per second, so that sums of rates do not exceed the capacity.
            take(left, links, rate.floor());
            shares[index] = Share { rate_bps: rate as u64, limit };
        } else {
            shares[index] = Share { rate_bps: 0, limit };
        }
    }
}

/// Max-min fair shares by weight; 0 for all flows if a link is unknown.
fn fair(left: &[f64], flows: &FlowSet) -> Vec<Share> {
    // Rounding of sums may leave a small negative rest.
    let left: Vec<f64> = left.iter().map(|left| left.max(0.0)).collect();
    let Ok(result) = max_min(&left, flows) else { return vec![Share::default(); flows.len()] };
    let limit = |limit| match limit {
        Limit::Link(link) => Some(link),
        Limit::Demand => None,
    };
    let shares = result.rates.into_iter().zip(result.limits);
    shares.map(|(rate, by)| Share { rate_bps: rate as u64, limit: limit(by) }).collect()
}

fn take(left: &mut [f64], links: &[u32], rate: f64) {
    for &link in links {
        if let Some(left) = left.get_mut(link as usize) {
            *left -= rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Links, rate of the access link, bytes left.
    type Candidate = (Vec<u32>, u64, Option<u64>);

    fn flow(links: &[u32], remaining_bytes: Option<u64>) -> Candidate {
        (links.to_vec(), 100, remaining_bytes)
    }

    fn rates(capacity_bps: &[u64], flows: &[Candidate]) -> Vec<u64> {
        let mut demands = Demands::default();
        flows.iter().for_each(|(links, access_bps, bytes)| demands.push(links, *access_bps, 1.0, *bytes));
        let capacity: Vec<f64> = capacity_bps.iter().map(|&bps| bps as f64).collect();
        provide(&capacity, &demands).into_iter().map(|share| share.rate_bps).collect()
    }

    #[test]
    fn the_shorter_flow_sends_first_and_the_longer_one_waits() {
        let flows = [flow(&[0], Some(80)), flow(&[0], Some(20)), flow(&[1], Some(60)), flow(&[1], Some(40))];
        assert_eq!(rates(&[100, 100], &flows), [0, 100, 0, 100]);
        assert_eq!(rates(&[100, 100], &flows[2..]), [0, 100]);
        assert_eq!(rates(&[150, 100], &flows), [50, 100, 0, 100]);
        assert_eq!(rates(&[104, 100], &flows), [0, 100, 0, 100], "too little capacity is left to start a flow");
    }

    #[test]
    fn flows_of_unknown_size_share() {
        let flows = [flow(&[0], None), flow(&[0], None), flow(&[0, 1], None)];
        assert_eq!(rates(&[90, 100], &flows), [30, 30, 30]);
        // A flow of known size gets the capacity that the shares leave.
        let flows = [flow(&[0], None), flow(&[0], Some(5)), flow(&[0], Some(6))];
        assert_eq!(rates(&[90], &flows), [45, 45, 0], "one waits, and two share");
        // One waits, so one of unknown size gets more here. That leaves room elsewhere for a third one.
        let flows = [flow(&[0], None), flow(&[0, 1], Some(5)), flow(&[0], Some(6)), flow(&[1], Some(7))];
        assert_eq!(rates(&[100, 70], &flows), [50, 50, 0, 20]);
        // Capacity that the flow of known size cannot use goes to the other flow.
        let flows = [flow(&[0], None), flow(&[0, 1], Some(5))];
        assert_eq!(rates(&[90, 30], &flows), [60, 30]);
    }

    #[test]
    fn unknown_links_and_links_without_capacity_give_nothing() {
        assert_eq!(rates(&[0], &[flow(&[0], Some(1)), flow(&[0], None)]), [0, 0]);
        assert_eq!(rates(&[9], &[flow(&[7], Some(1)), flow(&[7], None)]), [0, 0]);
        let nowhere = (vec![0], 0, Some(u64::MAX));
        assert_eq!(rates(&[9], &[nowhere]), [0]);
        assert_eq!(rates(&[], &[]), Vec::<u64>::new());
    }

    fn candidate() -> impl Strategy<Value = Candidate> {
        let size = prop::option::of(0u64..1000);
        (prop::collection::btree_set(0u32..6, 1..4), 1u64..100, size)
            .prop_map(|(links, access_bps, remaining_bytes)| (links.into_iter().collect(), access_bps, remaining_bytes))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_link_is_overbooked_and_no_flow_waits_without_need(
            capacity in prop::collection::vec(1u64..1000, 6), flows in prop::collection::vec(candidate(), 0..12),
        ) {
            let rates = rates(&capacity, &flows);
            let mut used = [0u64; 6];
            for ((links, access_bps, _), &rate) in flows.iter().zip(&rates) {
                prop_assert!(rate <= *access_bps);
                links.iter().for_each(|&link| used[link as usize] += rate);
            }
            for (used, &capacity) in used.iter().zip(&capacity) {
                prop_assert!(*used <= capacity, "{used} of {capacity}");
            }
            for ((links, access_bps, bytes), &rate) in flows.iter().zip(&rates).filter(|(_, &rate)| rate == 0) {
                let room = links.iter().map(|&link| capacity[link as usize] - used[link as usize]).min().unwrap();
                // The rate of each flow is rounded down to a whole number.
                prop_assert!((room as f64) < LEAST_SHARE * *access_bps as f64 + 13.0, "{rate} {room} {bytes:?}");
            }
        }
    }
}
