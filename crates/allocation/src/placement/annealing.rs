//! Simulated annealing.

use super::Paths;
use rand::{Rng, RngExt};

/// A host that receives flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Its slot in the last round, or any number for a new host; taken modulo the number of slots.
    pub slot: u32,
    /// Hosts of one group (a pod, or the whole fabric) swap slots with each other.
    pub group: u32,
}

/// A flow that needs a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnealedFlow {
    /// Index of its destination. A flow with an unknown destination takes no part.
    pub destination: u32,
    /// The pair of its ends. A flow whose pair has no path takes no part.
    pub pair: u32,
    /// The load that it adds to every link of its path.
    pub demand_bps: u64,
}

/// The number of steps, and how readily steps uphill are accepted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AnnealingSettings {
    /// Number of neighbours tried. Also the temperature at the start, which falls by one with each of them.
    pub iterations: u32,
    /// The paper's c as a multiple of the first temperature. The greater it is, the fewer steps uphill are accepted
    /// (0.5 for the paper's 16 hosts, 1000 for its large fabrics).
    pub cooling: f64,
    /// The rate that counts as an energy of 1: the rate of a NIC.
    pub unit_bps: u64,
}

/// The result of [`anneal`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Annealing {
    /// Slot of each destination in the best state found.
    pub slots: Vec<u32>,
    /// Path index of each flow in that state; `None` if its pair has no path.
    pub paths: Vec<Option<u64>>,
    /// Exceeded capacity in that state, summed over links.
    pub energy_bps: u128,
    /// Number of links examined.
    pub operations: u64,
}

/// Hedera §4.3.2, Simulated Annealing. A state gives each destination host one slot, so that all flows to a host use
/// the same core. This keeps the search space small. In the paper, a slot is a core switch of a FatTree. Here, the
/// number of slots is the maximum number of paths of a pair, and slot s means path ⌊s·count/slots⌋ of a pair with
/// fewer paths. In a FatTree whose paths are in order of ports, this is the same core for all pods. Within a pod, it
/// is the aggregation switch below that core. The energy is the exceeded capacity, summed over links. A neighbour
/// swaps the slots of two hosts of one group, or gives one host another slot (otherwise, unused slots would stay
/// unused). From a state with energy e, a neighbour with energy e' is accepted if e' < e, and otherwise with
/// probability exp(c·(e − e')/T).
pub fn anneal(
    capacity_bps: &[u64],
    destinations: &[Destination],
    flows: &[AnnealedFlow],
    paths: &impl Paths,
    settings: &AnnealingSettings,
    rng: &mut impl Rng,
) -> Annealing {
    let mut state = State::new(capacity_bps, destinations, flows, paths);
    let (mut best, mut best_slots) = (state.energy_bps, state.slots.clone());
    let groups = Groups::new(destinations);
    for temperature in (1..=settings.iterations).rev() {
        if best == 0 || state.slot_count < 2 {
            break;
        }
        let before = state.energy_bps;
        let undo = state.step(&groups, rng);
        if state.energy_bps < best {
            (best, best_slots) = (state.energy_bps, state.slots.clone());
        }
        if state.energy_bps > before {
            let uphill = (state.energy_bps - before) as f64 / settings.unit_bps.max(1) as f64;
            let cold = settings.cooling * f64::from(settings.iterations) / f64::from(temperature);
            // The function of `libm`, not of the system: it gives the same bits on every machine.
            if libm::exp(-uphill * cold) <= rng.random::<f64>() {
                for (destination, slot) in undo.into_iter().flatten() {
                    state.give(destination, slot);
                }
            }
        }
    }
    let indices = flows.iter().map(|flow| {
        let (slot, count) = (best_slots.get(flow.destination as usize)?, paths.count(flow.pair));
        (count > 0).then(|| path_index(*slot, state.slot_count, count))
    });
    Annealing { paths: indices.collect(), slots: best_slots, energy_bps: best, operations: state.operations }
}

/// The index of the path that a slot means for a pair with `count` paths.
fn path_index(slot: u32, slots: u32, count: u64) -> u64 {
    u64::from(slot) * count / u64::from(slots)
}

/// Destinations by group.
struct Groups {
    of: Vec<u32>,
    members: Vec<Vec<u32>>,
}

impl Groups {
    fn new(destinations: &[Destination]) -> Groups {
        let mut names: Vec<u32> = destinations.iter().map(|destination| destination.group).collect();
        names.sort_unstable();
        names.dedup();
        let mut members = vec![Vec::new(); names.len()];
        let mut of = Vec::with_capacity(destinations.len());
        for (index, destination) in destinations.iter().enumerate() {
            let group = names.partition_point(|&name| name < destination.group);
            members[group].push(index as u32);
            of.push(group as u32);
        }
        Groups { of, members }
    }
}

struct State<'a, P> {
    capacity_bps: &'a [u64],
    paths: &'a P,
    flows: &'a [AnnealedFlow],
    flows_to: Vec<Vec<u32>>,
    slot_count: u32,
    slots: Vec<u32>,
    /// 128 bits, so that no sum of demands overflows and every step can be undone exactly.
    load_bps: Vec<u128>,
    energy_bps: u128,
    operations: u64,
    /// Buffer that is kept between calls to save allocations.
    links: Vec<u32>,
}

/// How to undo a step: destinations and their previous slots.
type Undo = [Option<(u32, u32)>; 2];

impl<'a, P: Paths> State<'a, P> {
    fn new(
        capacity_bps: &'a [u64],
        destinations: &[Destination],
        flows: &'a [AnnealedFlow],
        paths: &'a P,
    ) -> State<'a, P> {
        let most = flows.iter().map(|flow| paths.count(flow.pair)).max().unwrap_or(0);
        let slot_count = u32::try_from(most).unwrap_or(u32::MAX).max(1);
        let mut flows_to = vec![Vec::new(); destinations.len()];
        for (index, flow) in flows.iter().enumerate().filter(|(_, flow)| paths.count(flow.pair) > 0) {
            if let Some(flows) = flows_to.get_mut(flow.destination as usize) {
                flows.push(index as u32);
            }
        }
        let slots = destinations.iter().map(|destination| destination.slot % slot_count).collect();
        let load_bps = vec![0; capacity_bps.len()];
        let links = Vec::new();
        let mut state = State {
            capacity_bps,
            paths,
            flows,
            flows_to,
            slot_count,
            slots,
            load_bps,
            energy_bps: 0,
            operations: 0,
            links,
        };
        for destination in 0..destinations.len() as u32 {
            state.shift(destination, true);
        }
        state
    }

    /// Moves to a random neighbour. Returns how to undo that.
    fn step(&mut self, groups: &Groups, rng: &mut impl Rng) -> Undo {
        let one = rng.random_range(0..self.slots.len() as u32);
        let slot = self.slots[one as usize];
        let members = &groups.members[groups.of[one as usize] as usize];
        if members.len() > 1 && rng.random::<bool>() {
            let other = members[rng.random_range(0..members.len() as u32) as usize];
            let others_slot = self.slots[other as usize];
            self.give(one, others_slot);
            self.give(other, slot);
            [Some((one, slot)), Some((other, others_slot))]
        } else {
            self.give(one, rng.random_range(0..self.slot_count));
            [Some((one, slot)), None]
        }
    }

    /// Moves all flows of a destination to another slot.
    fn give(&mut self, destination: u32, slot: u32) {
        if self.slots[destination as usize] != slot {
            self.shift(destination, false);
            self.slots[destination as usize] = slot;
            self.shift(destination, true);
        }
    }

    /// Adds the flows of a destination to the links of its slot, or removes them.
    fn shift(&mut self, destination: u32, on: bool) {
        let mut links = std::mem::take(&mut self.links);
        for position in 0..self.flows_to[destination as usize].len() {
            let flow = self.flows[self.flows_to[destination as usize][position] as usize];
            let count = self.paths.count(flow.pair);
            links.clear();
            self.paths.links(
                flow.pair,
                path_index(self.slots[destination as usize], self.slot_count, count),
                &mut links,
            );
            for &link in &links {
                self.load(link as usize, flow.demand_bps, on);
            }
        }
        self.links = links;
    }

    fn load(&mut self, link: usize, demand_bps: u64, on: bool) {
        self.operations += 1;
        if link >= self.load_bps.len() {
            self.load_bps.resize(link + 1, 0);
        }
        let capacity_bps = u128::from(self.capacity_bps.get(link).copied().unwrap_or(0));
        let load_bps = &mut self.load_bps[link];
        let before = load_bps.saturating_sub(capacity_bps);
        *load_bps = if on { *load_bps + u128::from(demand_bps) } else { *load_bps - u128::from(demand_bps) };
        self.energy_bps = self.energy_bps - before + load_bps.saturating_sub(capacity_bps);
    }
}
