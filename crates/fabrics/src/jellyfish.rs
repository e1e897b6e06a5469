//! Jellyfish (Singla et al., NSDI 2012): a random regular graph of switches, and its dual-homed variant.

use super::check_size;
use super::settings::LinkKeys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{FabricBuilder, NodeId, Tier};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeSet;

const MOST_SWITCHES: u64 = 100_000;
const MOST_PORTS: u64 = 10_000;
/// Number of graphs drawn until one can be connected. Only tiny ones cannot be connected.
const DRAWS: usize = 20;
/// Consecutive random pairs that can fail before all remaining pairs are listed.
const TRIES: usize = 64;

/// Jellyfish as MPTCP-aware SDN §IV-A builds it. Hosts are spread evenly, at most ⌈N/S⌉ per switch. Random pairs of
/// switches are connected until no ports are left. With `homes=2`, every host has a second cable to another random
/// switch. Each switch has at most ⌈N/S⌉ of these second cables too.
pub(super) fn jellyfish(spec: &Spec, keys: &LinkKeys) -> Result<FabricBuilder, SpecError> {
    let switches = spec.count("switches", 1, MOST_SWITCHES)?.unwrap_or(60);
    let ports = spec.count("ports", 1, MOST_PORTS)?.unwrap_or(8);
    let hosts = spec.count("hosts", 2, 1_000_000)?.unwrap_or(2 * switches);
    let homes = spec.count("homes", 1, 2)?.unwrap_or(1);
    let seed = spec.count("seed", 0, u64::MAX)?.unwrap_or(1);
    spec.finish()?;
    if homes > switches {
        return Err(spec.error("homes: 2 needs at least 2 switches"));
    }
    check_size(spec, hosts * homes + switches * ports.min(switches) / 2)?;
    let mut rng = Pcg64::seed_from_u64(seed);
    let first = first_homes(switches as usize, hosts as usize);
    let second = if homes == 2 { second_homes(&first, switches as usize, &mut rng) } else { Vec::new() };
    let mut free = vec![ports; switches as usize];
    for &switch in first.iter().chain(&second) {
        let left = free[switch as usize].checked_sub(1);
        free[switch as usize] = left.ok_or_else(|| too_few_ports(spec, ports, hosts * homes, switches))?;
    }
    if switches > 1 && (free.contains(&0) || free.iter().sum::<u64>() < 2 * (switches - 1)) {
        return Err(too_few_ports(spec, ports, hosts * homes, switches));
    }
    let free: Vec<u32> = free.into_iter().map(|ports| ports as u32).collect();
    let cables = connected_graph(&free, &mut rng).ok_or_else(|| {
        spec.error(format!(
            "none of {DRAWS} random graphs was connected; give the switches more ports, or another seed"
        ))
    })?;
    Ok(assemble(spec, keys, &first, &second, switches, &cables))
}

fn too_few_ports(spec: &Spec, ports: u64, host_ports: u64, switches: u64) -> SpecError {
    spec.error(format!(
        "ports: {ports} are too few to hold {host_ports} host ports on {switches} switches and join all switches; \
         expected more ports or fewer hosts"
    ))
}

fn assemble(
    spec: &Spec,
    keys: &LinkKeys,
    first: &[u32],
    second: &[u32],
    switches: u64,
    cables: &[(u32, u32)],
) -> FabricBuilder {
    let mut builder = FabricBuilder::new(spec.text());
    let switches: Vec<NodeId> =
        (0..switches).map(|index| builder.switch(format!("e{index}"), Tier::Tor, None)).collect();
    let hosts: Vec<NodeId> = (0..first.len()).map(|index| builder.host(format!("h{index}"), None)).collect();
    for homes in [first, second] {
        for (&host, &home) in hosts.iter().zip(homes) {
            builder.cable(switches[home as usize], host, keys.host());
        }
    }
    for &(a, b) in cables {
        builder.cable(switches[a as usize], switches[b as usize], keys.switch());
    }
    builder
}

/// Returns the switch of every host. Hosts with neighbouring numbers are on the same or neighbouring switches, and
/// the numbers of hosts per switch differ by at most one.
fn first_homes(switches: usize, hosts: usize) -> Vec<u32> {
    let (each, more) = (hosts / switches, hosts % switches);
    (0..switches).flat_map(|switch| std::iter::repeat_n(switch as u32, each + usize::from(switch < more))).collect()
}

/// Draws a second switch for every host: not its first switch, and no switch more than ⌈N/S⌉ times.
fn second_homes(first: &[u32], switches: usize, rng: &mut Pcg64) -> Vec<u32> {
    let quota = first.len().div_ceil(switches);
    let mut slots: Vec<u32> = (0..switches as u32).flat_map(|switch| std::iter::repeat_n(switch, quota)).collect();
    slots.shuffle(rng);
    let mut second: Vec<u32> = Vec::with_capacity(first.len());
    for &own in first {
        match slots.iter().rposition(|&slot| slot != own) {
            Some(index) => second.push(slots.swap_remove(index)),
            None => {
                // Only slots on the host's own switch are left. An earlier host takes such a slot and gives its own
                // slot to this host.
                let start = rng.random_range(0..second.len());
                let giver = (0..second.len())
                    .map(|step| (start + step) % second.len())
                    .find(|&host| first[host] != own && second[host] != own);
                let giver = giver.expect("with a slot free on `own`, more hosts went elsewhere than `own` has");
                let given = std::mem::replace(&mut second[giver], own);
                second.push(given);
                slots.pop();
            }
        }
    }
    second
}

/// A graph during its random construction.
struct RandomGraph {
    /// Unused ports of each switch.
    free: Vec<u32>,
    neighbours: Vec<BTreeSet<u32>>,
}

impl RandomGraph {
    fn new(free: Vec<u32>) -> RandomGraph {
        RandomGraph { neighbours: vec![BTreeSet::new(); free.len()], free }
    }

    fn are_joined(&self, a: u32, b: u32) -> bool {
        self.neighbours[a as usize].contains(&b)
    }

    fn may_join(&self, a: u32, b: u32) -> bool {
        a != b && self.free[a as usize] > 0 && self.free[b as usize] > 0 && !self.are_joined(a, b)
    }

    fn link(&mut self, a: u32, b: u32) {
        self.neighbours[a as usize].insert(b);
        self.neighbours[b as usize].insert(a);
    }

    fn cut(&mut self, a: u32, b: u32) {
        self.neighbours[a as usize].remove(&b);
        self.neighbours[b as usize].remove(&a);
    }

    fn join(&mut self, a: u32, b: u32) {
        self.free[a as usize] -= 1;
        self.free[b as usize] -= 1;
        self.link(a, b);
    }

    fn open(&self) -> Vec<u32> {
        (0..self.free.len() as u32).filter(|&switch| self.free[switch as usize] > 0).collect()
    }

    /// Returns both ends of every cable, in ascending order.
    fn cables(&self) -> Vec<(u32, u32)> {
        let switches = self.neighbours.iter().enumerate();
        switches.flat_map(|(a, others)| others.range(a as u32 + 1..).map(move |&b| (a as u32, b))).collect()
    }

    /// Connects random pairs until no two unconnected switches both have a free port.
    fn join_pairs(&mut self, rng: &mut Pcg64) {
        let mut open = self.open();
        let mut tries = 0;
        while open.len() > 1 && tries < TRIES {
            let (i, j) = (rng.random_range(0..open.len()), rng.random_range(0..open.len()));
            let (a, b) = (open[i], open[j]);
            if !self.may_join(a, b) {
                tries += 1;
                continue;
            }
            tries = 0;
            self.join(a, b);
            // Remove the later place first, so that the earlier one stays valid.
            for place in [i.max(j), i.min(j)] {
                if self.free[open[place] as usize] == 0 {
                    open.swap_remove(place);
                }
            }
        }
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (index, &a) in open.iter().enumerate() {
            pairs.extend(open[index + 1..].iter().filter(|&&b| self.may_join(a, b)).map(|&b| (a, b)));
        }
        pairs.shuffle(rng);
        for (a, b) in pairs {
            if self.may_join(a, b) {
                self.join(a, b);
            }
        }
    }

    /// Uses up free ports that have no partner left, two at a time. A random cable x-y is cut, and x and y are
    /// connected to the free ports (Jellyfish §3). The two ports belong to one switch, or to two that are neighbours
    /// already.
    fn splice(&mut self, rng: &mut Pcg64) {
        let mut open = self.open();
        while let Some(&p) = open.first() {
            let q = if self.free[p as usize] >= 2 { Some(p) } else { open.get(1).copied() };
            let Some((q, (x, y))) = q.and_then(|q| Some((q, self.find_cut(p, q, rng)?))) else {
                open.remove(0);
                continue;
            };
            self.cut(x, y);
            self.join_freed_port(p, x);
            self.join_freed_port(q, y);
            open.retain(|&switch| self.free[switch as usize] > 0);
        }
    }

    /// Connects a free port of `a` to a port of `b` that has just become free.
    fn join_freed_port(&mut self, a: u32, b: u32) {
        self.free[a as usize] -= 1;
        self.link(a, b);
    }

    /// Returns a cable x-y that can be cut so that x is connected to `p` and y to `q`. The choice is uniform in a
    /// regular graph.
    fn find_cut(&self, p: u32, q: u32, rng: &mut Pcg64) -> Option<(u32, u32)> {
        let fits = |end: u32, port: u32| end != p && end != q && !self.are_joined(end, port);
        let all = self.free.len() as u32;
        let start = rng.random_range(0..all);
        for x in (0..all).map(|step| (start + step) % all).filter(|&x| fits(x, p)) {
            let ends: Vec<u32> = self.neighbours[x as usize].iter().copied().filter(|&y| fits(y, q)).collect();
            if !ends.is_empty() {
                return Some((x, ends[rng.random_range(0..ends.len())]));
            }
        }
        None
    }

    /// Connects the parts of the graph. A cable a-b on a cycle and a cable c-d of another part are cut, and replaced
    /// by a-c and b-d. So every switch keeps its number of ports. Returns whether that was possible.
    fn connect(&mut self, rng: &mut Pcg64) -> bool {
        let mut parts = Parts { parent: (0..self.free.len() as u32).collect() };
        // Cables that close a cycle, and for each part (identified by one of its switches) a cable that does not
        // close a cycle.
        let mut spare: Vec<(u32, u32)> = Vec::new();
        let mut tree: Vec<Option<(u32, u32)>> = vec![None; self.free.len()];
        let mut cables = self.cables();
        cables.shuffle(rng);
        for (a, b) in cables {
            if parts.unite(a, b) {
                tree[parts.find(a) as usize] = Some((a, b));
            } else {
                spare.push((a, b));
            }
        }
        let roots: Vec<u32> = (0..self.free.len() as u32).filter(|&switch| parts.find(switch) == switch).collect();
        let mut rest = roots.into_iter().peekable();
        let Some(mut whole) = rest.next() else { return true };
        while let Some(&other) = rest.peek() {
            let Some((a, b)) = spare.pop() else { return false };
            let here = parts.find(a);
            let partner = if here == parts.find(whole) { other } else { whole };
            let Some((c, d)) = tree[parts.find(partner) as usize] else { return false };
            self.cut(a, b);
            self.cut(c, d);
            self.link(a, c);
            self.link(b, d);
            let kept = tree[here as usize];
            parts.unite(a, c);
            whole = parts.find(a);
            // The cable of a-b's part that closed no cycle still closes none.
            tree[whole as usize] = kept;
            while rest.next_if(|&root| parts.find(root) == whole).is_some() {}
        }
        true
    }
}

/// Union-find.
struct Parts {
    parent: Vec<u32>,
}

impl Parts {
    fn find(&mut self, mut node: u32) -> u32 {
        while self.parent[node as usize] != node {
            let above = self.parent[self.parent[node as usize] as usize];
            self.parent[node as usize] = above;
            node = above;
        }
        node
    }

    /// Returns whether the two were in different sets.
    fn unite(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a as usize] = b;
        a != b
    }
}

/// Returns the cables of a connected random graph. Switch `i` has `free[i]` ports, or fewer if they cannot be used up.
fn connected_graph(free: &[u32], rng: &mut Pcg64) -> Option<Vec<(u32, u32)>> {
    (0..DRAWS).find_map(|_| {
        let mut graph = RandomGraph::new(free.to_vec());
        graph.join_pairs(rng);
        graph.splice(rng);
        graph.connect(rng).then(|| graph.cables())
    })
}
