//! How switches should divide the traffic to each destination among their next hops, so that no link is loaded more than it
//! must be.
//!
//! Each destination has a graph without cycles: the next hops of each place towards it. Any division of single flows over
//! paths of these graphs can be written as shares of next hops for each destination, so nothing is lost by it. The cost
//! of a link rises steeply with its utilisation. Shares move from next hops with a higher marginal cost to those with a
//! lower one (Gallager 1977, A Minimum Delay Routing Algorithm Using Distributed Computation), by factors, so that they
//! stay positive (mirror descent).

/// Exponent of the marginal cost of a link: its utilisation to this power. The higher it is, the closer is the result to the
/// least possible maximum.
const STEEPNESS: i32 = 8;
/// How strongly a share falls with its cost in one round. The product with [`STEEPNESS`] must be below 2, or shares swing.
const STEP: f64 = 0.2;
/// The rounds end when the cost has fallen by less than this share over [`WATCHED`] rounds.
const SETTLED: f64 = 1e-3;
const WATCHED: usize = 10;

/// A next hop of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Index of the link, into the capacities.
    pub link: u32,
    /// Index of the place to which it leads, above that of its own; the number of places for the destination.
    pub next: u32,
}

/// A place that traffic to a destination passes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Place {
    /// Traffic that enters here, in the unit of the capacities.
    pub entering: f64,
    /// Next hops, at least one.
    pub hops: Vec<Hop>,
}

/// The places that traffic to one destination passes, each before those that its next hops lead to.
pub type Destination = Vec<Place>;

/// Shares of the next hops of each place of each destination. Those of one place have the sum 1.
pub type Shares = Vec<Vec<Vec<f64>>>;

/// The result of [`split`].
#[derive(Clone, PartialEq, Debug)]
pub struct Split {
    /// The shares.
    pub shares: Shares,
    /// Utilisation of each link by them, 0 and more: more than 1 if the traffic does not fit.
    pub utilisation: Vec<f64>,
    /// Number of rounds.
    pub rounds: u32,
}

/// Shares in proportion to the capacities of the links. A next hop over a link without capacity gets nothing, unless there is
/// no other.
pub fn by_capacity(capacities: &[f64], destinations: &[Destination]) -> Shares {
    destinations.iter().map(|places| initial(capacities, places)).collect()
}

/// Divides the traffic to all destinations among the next hops, in at most `most_rounds` rounds. It begins with the shares
/// `first`. A share of 0 stays 0.
pub fn split(capacities: &[f64], destinations: &[Destination], first: Shares, most_rounds: u32) -> Split {
    let mut shares = first;
    let mut costs: Vec<f64> = Vec::new();
    let mut best = (f64::INFINITY, shares.clone(), vec![0.0; capacities.len()]);
    let mut rounds = 0;
    while rounds < most_rounds.max(1) {
        rounds += 1;
        let (utilisation, passing) = load(capacities, destinations, &shares);
        let cost: f64 =
            utilisation.iter().zip(capacities).map(|(used, capacity)| used.powi(STEEPNESS + 1) * capacity).sum();
        if cost < best.0 {
            best = (cost, shares.clone(), utilisation.clone());
        }
        let before = costs.len().checked_sub(WATCHED).map(|round| costs[round]);
        if before.is_some_and(|before| best.0 > before * (1.0 - SETTLED)) || cost == 0.0 {
            break;
        }
        costs.push(best.0);
        let prices: Vec<f64> = utilisation.iter().map(|used| used.powi(STEEPNESS)).collect();
        for ((places, shares), passing) in destinations.iter().zip(&mut shares).zip(&passing) {
            shift(&prices, places, shares, passing);
        }
    }
    Split { shares: best.1, utilisation: best.2, rounds }
}

fn initial(capacities: &[f64], places: &[Place]) -> Vec<Vec<f64>> {
    let capacity = |hop: &Hop| capacities[hop.link as usize].max(0.0);
    let shares = |place: &Place| {
        let sum: f64 = place.hops.iter().map(capacity).sum();
        let share = |hop: &Hop| if sum > 0.0 { capacity(hop) / sum } else { 1.0 / place.hops.len() as f64 };
        place.hops.iter().map(share).collect()
    };
    places.iter().map(shares).collect()
}

/// The traffic of each place of each destination that fits, if it is divided by these shares: all traffic grows in proportion
/// until a link is full. Then the traffic over that link stays, and the rest grows on.
pub fn fitting(capacities: &[f64], destinations: &[Destination], shares: &Shares) -> Vec<Vec<f64>> {
    let mut fitting: Vec<Vec<f64>> = destinations.iter().map(|places| vec![0.0; places.len()]).collect();
    let mut growing: Vec<Growing> = Vec::new();
    for (index, (places, shares)) in destinations.iter().zip(shares).enumerate() {
        for at in (0..places.len()).filter(|&at| places[at].entering > 0.0) {
            growing.push(Growing { destination: index, at, links: links_from(places, shares, at) });
        }
    }
    // What is left of each link by the traffic that stays.
    let mut left = capacities.to_vec();
    while !growing.is_empty() {
        let mut load = vec![0.0; capacities.len()];
        growing.iter().flat_map(|one| &one.links).for_each(|&(link, traffic)| load[link as usize] += traffic);
        let full_at = |link: usize| if load[link] > 0.0 { left[link].max(0.0) / load[link] } else { f64::INFINITY };
        let level = (0..capacities.len()).map(full_at).fold(1.0, f64::min);
        let is_full: Vec<bool> = (0..capacities.len()).map(|link| full_at(link) <= level * (1.0 + 1e-9)).collect();
        let stays = |one: &Growing| level >= 1.0 || one.links.iter().any(|&(link, _)| is_full[link as usize]);
        for Growing { destination, at, links } in growing.extract_if(.., |one| stays(one)) {
            fitting[destination][at] = destinations[destination][at].entering * level;
            links.iter().for_each(|&(link, traffic)| left[link as usize] -= traffic * level);
        }
    }
    fitting
}

/// The traffic of one place of a destination that still grows, and the links that it uses, each with all that wants to use it.
struct Growing {
    destination: usize,
    at: usize,
    links: Vec<(u32, f64)>,
}

/// The links that the traffic of one place uses, each with its traffic.
fn links_from(places: &[Place], shares: &[Vec<f64>], from: usize) -> Vec<(u32, f64)> {
    let mut passing = vec![0.0; places.len()];
    passing[from] = places[from].entering;
    let mut links = Vec::new();
    for at in from..places.len() {
        for (hop, share) in places[at].hops.iter().zip(&shares[at]) {
            let part = passing[at] * share;
            if part <= 0.0 {
                continue;
            }
            links.push((hop.link, part));
            if let Some(next) = passing.get_mut(hop.next as usize) {
                *next += part;
            }
        }
    }
    links
}

/// Utilisation of each link, and the traffic that passes each place of each destination.
fn load(capacities: &[f64], destinations: &[Destination], shares: &Shares) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mut load = vec![0.0; capacities.len()];
    let pass = |(places, shares): (&Destination, &Vec<Vec<f64>>)| {
        let mut passing: Vec<f64> = places.iter().map(|place| place.entering).collect();
        for (at, place) in places.iter().enumerate() {
            for (hop, share) in place.hops.iter().zip(&shares[at]) {
                let part = passing[at] * share;
                load[hop.link as usize] += part;
                if let Some(next) = passing.get_mut(hop.next as usize) {
                    *next += part;
                }
            }
        }
        passing
    };
    let passing = destinations.iter().zip(shares).map(pass).collect();
    let used = |(load, capacity): (&f64, &f64)| if *load > 0.0 { load / capacity.max(f64::MIN_POSITIVE) } else { 0.0 };
    (load.iter().zip(capacities).map(used).collect(), passing)
}

/// Moves shares of all places that traffic passes towards cheaper next hops.
fn shift(prices: &[f64], places: &[Place], shares: &mut [Vec<f64>], passing: &[f64]) {
    // The cost of one more unit of traffic from each place to the destination.
    let mut marginal = vec![0.0; places.len()];
    for at in (0..places.len()).rev() {
        let cost = |hop: &Hop| prices[hop.link as usize] + marginal.get(hop.next as usize).copied().unwrap_or(0.0);
        let costs: Vec<f64> = places[at].hops.iter().map(cost).collect();
        let mean: f64 = costs.iter().zip(&shares[at]).map(|(cost, share)| cost * share).sum();
        marginal[at] = mean;
        if mean <= 0.0 || passing[at] <= 0.0 || costs.len() < 2 {
            continue;
        }
        for (share, cost) in shares[at].iter_mut().zip(&costs) {
            *share *= (STEP * (1.0 - cost / mean).max(-10.0)).exp();
        }
        let sum: f64 = shares[at].iter().sum();
        shares[at].iter_mut().for_each(|share| *share /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place with these next hops, each a link and the place to which it leads.
    fn place(entering: f64, hops: &[(u32, u32)]) -> Place {
        Place { entering, hops: hops.iter().map(|&(link, next)| Hop { link, next }).collect() }
    }

    fn divided(capacities: &[f64], destinations: &[Destination], most_rounds: u32) -> Split {
        split(capacities, destinations, by_capacity(capacities, destinations), most_rounds)
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.02), "{found:?}, expected {expected:?}");
    }

    #[test]
    fn equal_links_have_equal_shares() {
        let one = vec![place(3.0, &[(0, 1), (1, 1), (2, 1)])];
        let found = divided(&[2.0; 3], &[one], 100);
        assert_near(&found.shares[0][0], &[1.0 / 3.0; 3]);
        assert_near(&found.utilisation, &[0.5; 3]);
    }

    #[test]
    fn a_bottleneck_further_on_counts() {
        // Two middle places, of which the second one has a link of a quarter.
        let one = vec![place(1.0, &[(0, 1), (1, 2)]), place(0.0, &[(2, 3)]), place(0.0, &[(3, 3)])];
        let found = divided(&[1.0, 1.0, 1.0, 0.25], &[one], 300);
        assert_near(&found.shares[0][0], &[0.8, 0.2]);
        assert!(found.utilisation[3] < 0.88, "{found:?}");
    }

    #[test]
    fn traffic_avoids_links_that_others_need() {
        // The second destination can use link 1 only, so the first one takes link 0.
        let free = vec![place(1.0, &[(0, 1), (1, 1)])];
        let bound = vec![place(1.0, &[(1, 1)])];
        let found = divided(&[1.0, 1.0], &[free, bound], 300);
        assert!(found.shares[0][0][0] > 0.95, "{found:?}");
        assert!(found.utilisation.iter().all(|&used| used < 1.06), "{found:?}");
    }

    #[test]
    fn traffic_grows_until_a_link_of_its_own_is_full() {
        // Two flows to one destination. The second one shares the link of the first one by half, and has a slow one.
        let places = vec![place(1.0, &[(0, 2), (1, 2)]), place(1.0, &[(0, 2)]), place(0.0, &[(2, 3)])];
        let shares = vec![vec![vec![0.5, 0.5], vec![1.0], vec![1.0]]];
        let fits = |capacities: &[f64]| fitting(capacities, std::slice::from_ref(&places), &shares)[0].clone();
        assert_near(&fits(&[9.0, 9.0, 9.0]), &[1.0, 1.0, 0.0]);
        assert_near(&fits(&[9.0, 0.1, 9.0]), &[0.2, 1.0, 0.0]);
        assert_near(&fits(&[0.6, 9.0, 9.0]), &[0.4, 0.4, 0.0]);
        assert_near(&fits(&[9.0, 9.0, 0.0]), &[0.0, 0.0, 0.0]);
    }

    #[test]
    fn nothing_breaks_without_traffic_or_capacity() {
        assert_eq!(divided(&[], &[], 10), Split { shares: vec![], utilisation: vec![], rounds: 1 });
        let idle = divided(&[1.0, 0.0], &[vec![place(0.0, &[(0, 1), (1, 1)])]], 10);
        assert_eq!(idle.shares[0][0], [1.0, 0.0]);
        let blocked = divided(&[0.0, 0.0], &[vec![place(1.0, &[(0, 1), (1, 1)])]], 10);
        assert_eq!(blocked.shares[0][0], [0.5, 0.5]);
    }
}
