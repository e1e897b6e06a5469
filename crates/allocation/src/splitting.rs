//! How switches should divide the traffic to each destination among their next hops, so that no link is loaded more than it
//! must be.
//!
//! Each destination has a graph without cycles: the next hops of each place towards it. Any division of single flows over
//! paths of these graphs can be written as shares of next hops for each destination, so nothing is lost by it. The cost
//! of a link rises steeply with its utilisation. Shares move from next hops with a higher marginal cost to those with a
//! lower one (Gallager 1977, A Minimum Delay Routing Algorithm Using Distributed Computation), by factors, so that they
//! stay positive (mirror descent).

use std::ops::Range;

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
    let capacity = |hop: &Hop| capacities[hop.link as usize].max(0.0);
    let shares = |place: &Place| {
        let sum: f64 = place.hops.iter().map(capacity).sum();
        let share = |hop: &Hop| if sum > 0.0 { capacity(hop) / sum } else { 1.0 / place.hops.len() as f64 };
        place.hops.iter().map(share).collect()
    };
    destinations.iter().map(|places| places.iter().map(shares).collect()).collect()
}

/// Divides the traffic to all destinations among the next hops, in at most `most_rounds` rounds. It begins with the shares
/// `first`. A share of 0 stays 0.
pub fn split(capacities: &[f64], destinations: &[Destination], first: &Shares, most_rounds: u32) -> Split {
    let mut flat = Flat::new(destinations, first);
    let mut costs: Vec<f64> = Vec::new();
    let mut best = (f64::INFINITY, flat.shares.clone(), vec![0.0; capacities.len()]);
    let mut rounds = 0;
    while rounds < most_rounds.max(1) {
        rounds += 1;
        let utilisation = flat.load(capacities);
        let cost: f64 =
            utilisation.iter().zip(capacities).map(|(used, capacity)| used.powi(STEEPNESS + 1) * capacity).sum();
        let prices: Vec<f64> = utilisation.iter().map(|used| used.powi(STEEPNESS)).collect();
        if cost < best.0 {
            best.1.clone_from(&flat.shares);
            (best.0, best.2) = (cost, utilisation);
        }
        let before = costs.len().checked_sub(WATCHED).map(|round| costs[round]);
        if before.is_some_and(|before| best.0 > before * (1.0 - SETTLED)) || cost == 0.0 {
            break;
        }
        costs.push(best.0);
        flat.shift(&prices);
    }
    flat.shares = best.1;
    Split { shares: flat.nested(destinations), utilisation: best.2, rounds }
}

/// All places of all destinations in one row, with what the rounds need of them.
struct Flat {
    /// By place: what enters there, and what passes it.
    entering: Vec<f64>,
    passing: Vec<f64>,
    /// By place: the cost of one more unit of traffic from there to the destination.
    marginal: Vec<f64>,
    /// By place, and one more: the index of its first next hop.
    first: Vec<u32>,
    /// By next hop: its link, the place to which it leads, and its share. The last place stands for all destinations.
    links: Vec<u32>,
    next: Vec<u32>,
    shares: Vec<f64>,
}

impl Flat {
    fn new(destinations: &[Destination], shares: &Shares) -> Flat {
        let end = destinations.iter().map(Vec::len).sum::<usize>();
        let (mut first, mut links, mut next, mut entering) = (vec![0], Vec::new(), Vec::new(), Vec::new());
        for places in destinations {
            let base = entering.len();
            for place in places {
                entering.push(place.entering);
                links.extend(place.hops.iter().map(|hop| hop.link));
                let to = |hop: &Hop| if (hop.next as usize) < places.len() { base + hop.next as usize } else { end };
                next.extend(place.hops.iter().map(|hop| to(hop) as u32));
                first.push(links.len() as u32);
            }
        }
        let (passing, marginal) = (vec![0.0; end + 1], vec![0.0; end + 1]);
        let shares = shares.iter().flatten().flatten().copied().collect();
        Flat { entering, passing, marginal, first, links, next, shares }
    }

    fn hops(&self, at: usize) -> Range<usize> {
        self.first[at] as usize..self.first[at + 1] as usize
    }

    /// Utilisation of each link. Notes what passes each place.
    fn load(&mut self, capacities: &[f64]) -> Vec<f64> {
        let mut load = vec![0.0; capacities.len()];
        self.passing[..self.entering.len()].copy_from_slice(&self.entering);
        for at in 0..self.entering.len() {
            let passing = self.passing[at];
            if passing <= 0.0 {
                continue;
            }
            for hop in self.hops(at) {
                let part = passing * self.shares[hop];
                load[self.links[hop] as usize] += part;
                self.passing[self.next[hop] as usize] += part;
            }
        }
        let used =
            |(load, capacity): (f64, &f64)| if load > 0.0 { load / capacity.max(f64::MIN_POSITIVE) } else { 0.0 };
        load.into_iter().zip(capacities).map(used).collect()
    }

    /// Moves shares of all places that traffic passes towards cheaper next hops.
    fn shift(&mut self, prices: &[f64]) {
        for at in (0..self.entering.len()).rev() {
            if self.passing[at] <= 0.0 {
                continue;
            }
            let hops = self.hops(at);
            let cost =
                |hop: usize, marginal: &[f64]| prices[self.links[hop] as usize] + marginal[self.next[hop] as usize];
            let mean: f64 = hops.clone().map(|hop| cost(hop, &self.marginal) * self.shares[hop]).sum();
            if mean > 0.0 && hops.len() > 1 {
                let factor = |hop| (STEP * (1.0 - cost(hop, &self.marginal) / mean).max(-10.0)).exp();
                let changed: Vec<f64> = hops.clone().map(|hop| self.shares[hop] * factor(hop)).collect();
                let sum: f64 = changed.iter().sum();
                self.shares[hops].iter_mut().zip(changed).for_each(|(share, changed)| *share = changed / sum);
            }
            self.marginal[at] = mean;
        }
    }

    fn nested(&self, destinations: &[Destination]) -> Shares {
        let mut shares = self.shares.iter().copied();
        let mut of = |place: &Place| shares.by_ref().take(place.hops.len()).collect();
        destinations.iter().map(|places| places.iter().map(&mut of).collect()).collect()
    }
}

/// The traffic of each place of each destination that fits, if it is divided by these shares: all traffic grows in proportion
/// until a link is full. Then the traffic over that link stays, and the rest grows on.
pub fn fitting(capacities: &[f64], destinations: &[Destination], shares: &Shares) -> Vec<Vec<f64>> {
    let mut fitting: Vec<Vec<f64>> = destinations.iter().map(|places| vec![0.0; places.len()]).collect();
    let mut growing = Vec::new();
    // By link: what still grows over it, and the load of that.
    let (mut over, mut load) = (vec![Vec::new(); capacities.len()], vec![0.0; capacities.len()]);
    for (destination, (places, shares)) in destinations.iter().zip(shares).enumerate() {
        for at in (0..places.len()).filter(|&at| places[at].entering > 0.0) {
            let links = links_from(places, shares, at);
            for &(link, traffic) in &links {
                over[link as usize].push(growing.len());
                load[link as usize] += traffic;
            }
            growing.push(Some(Growing { destination, at, links }));
        }
    }
    // What is left of each link by the traffic that stays.
    let mut left = capacities.to_vec();
    let mut count = growing.len();
    while count > 0 {
        let full_at = |link: usize| if load[link] > 0.0 { left[link].max(0.0) / load[link] } else { f64::INFINITY };
        let level = (0..capacities.len()).map(full_at).fold(1.0, f64::min);
        let full: Vec<usize> = (0..capacities.len()).filter(|&link| full_at(link) <= level * (1.0 + 1e-9)).collect();
        let all = 0..growing.len();
        let stay: Vec<usize> = match level >= 1.0 {
            true => all.collect(),
            false => full.iter().flat_map(|&link| std::mem::take(&mut over[link])).collect(),
        };
        for index in stay {
            let Some(Growing { destination, at, links }) = growing[index].take() else { continue };
            count -= 1;
            fitting[destination][at] = destinations[destination][at].entering * level;
            for (link, traffic) in links {
                left[link as usize] -= traffic * level;
                load[link as usize] -= traffic;
            }
        }
        // What rounding leaves of the load would be full at any level.
        full.into_iter().for_each(|link| load[link] = 0.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A place with these next hops, each a link and the place to which it leads.
    fn place(entering: f64, hops: &[(u32, u32)]) -> Place {
        Place { entering, hops: hops.iter().map(|&(link, next)| Hop { link, next }).collect() }
    }

    fn divided(capacities: &[f64], destinations: &[Destination], most_rounds: u32) -> Split {
        split(capacities, destinations, &by_capacity(capacities, destinations), most_rounds)
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
