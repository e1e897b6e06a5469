//! Exact placement of equal flows on a healthy FatTree, by colouring edges.
//!
//! Planes are colours of the flows between ToRs: if no two flows of a plane share a source or a destination ToR, no
//! cable of a ToR carries two. Within a plane, cores are colours of the flows between pods. Both are bipartite
//! multigraphs, so the degree of the busiest vertex is always a sufficient number of colours. Therefore a permutation
//! fills a FatTree completely. If links have capacity for several flows, a plane or core has as many colours. Flows
//! on good paths keep them as far as possible.

use super::colouring::Colouring;
use super::improve::Budget;
use super::placer::Placer;
use crate::fat_tree::FatTree;

/// A flow between two ToRs of the tree, by number, with its present plane and core.
struct Coloured {
    slot: u32,
    tors: [usize; 2],
    plane: Option<usize>,
    core: Option<usize>,
}

/// Gives every flow a plane and a core such that no link is overfull, if counting shows that this is possible. All links
/// of a FatTree must be up, and those of one tier must be equal. As many flows as meet on a link must fit on it, even if
/// each has the greatest demand. Otherwise, or if more flows would move than the budget allows, nothing changes. Returns
/// whether it was done.
pub(super) fn recolour(placer: &mut Placer, budget: &mut Budget) -> bool {
    let first = placer.slots.iter().flatten().find_map(|state| state.ends);
    let Some(tree) = first.and_then(|(from, _)| placer.tree(from)) else { return false };
    let Some(mut colours) = Colours::of(placer, &tree) else { return false };
    let done = colours.colour_planes() && colours.colour_cores();
    placer.extra_operations += colours.operations;
    done && colours.settle(placer, budget)
}

/// Planes and cores of all flows.
struct Colours<'a> {
    tree: &'a FatTree,
    flows: Vec<Coloured>,
    /// Number of flows that fit on a link of each tier.
    most: [usize; 2],
    /// Number of entries examined.
    operations: u64,
}

impl Colours<'_> {
    /// The present planes and cores; `None` if the tree is not healthy, there are no flows, or one is not between ToRs
    /// of the tree.
    fn of<'a>(placer: &Placer, tree: &'a FatTree) -> Option<Colours<'a>> {
        let capacities = Colours::capacities(placer, tree)?;
        let flows = Colours::flows(placer, tree)?;
        let greatest_bps = flows.iter().map(|flow| placer.flow_state(flow.slot).demand_bps).max()?;
        let most = capacities.map(|capacity_bps| (capacity_bps / greatest_bps.max(1)) as usize);
        let operations = placer.network.links().len() as u64 + flows.len() as u64;
        Some(Colours { tree, flows, most, operations })
    }

    /// Capacities of the links of both tiers, if all are up and those of a tier are equal.
    fn capacities(placer: &Placer, tree: &FatTree) -> Option<[u64; 2]> {
        let mut capacities = [u64::MAX; 2];
        for (tier, capacity_bps) in tree.tiers().into_iter().zip(&mut capacities) {
            for (index, link) in tier.enumerate() {
                let own_bps = placer.network.capacity_bps(link);
                if !placer.routes.is_up(link) || (index > 0 && own_bps != *capacity_bps) {
                    return None;
                }
                *capacity_bps = own_bps;
            }
        }
        Some(capacities)
    }

    /// All flows between different ToRs, with their present planes and cores; `None` if one is not between ToRs of
    /// the tree.
    fn flows(placer: &Placer, tree: &FatTree) -> Option<Vec<Coloured>> {
        let mut flows = Vec::new();
        for slot in 0..placer.slots.len() as u32 {
            let Some(state) = &placer.slots[slot as usize] else { continue };
            if state.flow.src_tor == state.flow.dst_tor {
                continue;
            }
            let (from, to) = state.ends?;
            let tors = [tree.tor_at(from)?, tree.tor_at(to)?];
            let (mut plane, mut core) = (None, None);
            if let Some(path) = state.path.as_deref() {
                plane = (0..tree.planes).find(|&plane| tree.tor_cable(tors[0], plane).up == path[0]);
                if path.len() == 4 {
                    let up = |core: usize| tree.core_cable(tree.pod_of(tors[0]), plane.unwrap_or(0), core).up;
                    core = (0..tree.cores).find(|&core| up(core) == path[1]);
                }
            }
            flows.push(Coloured { slot, tors, plane, core });
        }
        Some(flows)
    }

    /// Gives every flow a plane. If its plane changes, its core is undecided again.
    fn colour_planes(&mut self) -> bool {
        let Colours { tree, flows, most: [most, _], operations } = self;
        let ends: Vec<[u32; 2]> = flows.iter().map(|flow| flow.tors.map(|tor| tor as u32)).collect();
        let wishes: Vec<Option<usize>> = flows.iter().map(|flow| flow.plane).collect();
        let Some(planes) = groups((tree.pods * tree.tors, tree.planes), ends, &wishes, *most, operations) else {
            return false;
        };
        for (flow, plane) in flows.iter_mut().zip(planes) {
            flow.core = flow.core.filter(|_| flow.plane == Some(plane));
            flow.plane = Some(plane);
        }
        true
    }

    /// Gives every flow between pods a core of its plane.
    fn colour_cores(&mut self) -> bool {
        let Colours { tree, flows, most: [_, most], operations } = self;
        for plane in 0..tree.planes {
            let between = |flow: &&mut Coloured| {
                flow.plane == Some(plane) && tree.pod_of(flow.tors[0]) != tree.pod_of(flow.tors[1])
            };
            let members: Vec<&mut Coloured> = flows.iter_mut().filter(between).collect();
            let ends = members.iter().map(|flow| flow.tors.map(|tor| tree.pod_of(tor) as u32)).collect();
            let wishes: Vec<Option<usize>> = members.iter().map(|flow| flow.core).collect();
            let Some(cores) = groups((tree.pods, tree.cores), ends, &wishes, *most, operations) else { return false };
            members.into_iter().zip(cores).for_each(|(flow, core)| flow.core = Some(core));
        }
        true
    }

    /// Moves the flows to their planes and cores, if the budget allows that.
    fn settle(&self, placer: &mut Placer, budget: &mut Budget) -> bool {
        let Colours { tree, flows, .. } = self;
        let mut path = Vec::new();
        let mut moves: Vec<(u32, Box<[u32]>)> = Vec::new();
        for flow in flows {
            tree.write((flow.tors[0], flow.tors[1]), flow.plane.unwrap_or(0), flow.core.unwrap_or(0), &mut path);
            if placer.flow_state(flow.slot).path.as_deref() != Some(&path) {
                moves.push((flow.slot, path.as_slice().into()));
            }
        }
        if !budget.allows_all(moves.iter().map(|&(slot, _)| slot)) {
            return false;
        }
        for (slot, path) in &moves {
            if let Some(before) = placer.flow_state(*slot).path.clone() {
                budget.note(*slot, &before);
            }
            placer.lift(*slot);
            placer.put(*slot, path);
        }
        true
    }
}

/// Distributes edges over `groups` of colours such that at most `most` edges of a group meet at a vertex, and as
/// few as possible; `None` if there are too many. Wishes are met first, as far as they are compatible.
fn groups(
    (vertices, groups): (usize, usize),
    ends: Vec<[u32; 2]>,
    wishes: &[Option<usize>],
    most: usize,
    operations: &mut u64,
) -> Option<Vec<usize>> {
    let mut degree = [vec![0usize; vertices], vec![0usize; vertices]];
    for ends in &ends {
        (0..2).for_each(|side| degree[side][ends[side] as usize] += 1);
    }
    let busiest = degree.iter().flatten().copied().max().unwrap_or(0);
    let room = busiest.div_ceil(groups.max(1));
    if room > most {
        return None;
    }
    let mut colouring = Colouring::new([vertices; 2], groups * room, ends);
    for (edge, wish) in wishes.iter().enumerate() {
        if let Some(group) = wish {
            colouring.put(edge, group * room..(group + 1) * room);
        }
    }
    let all = (0..wishes.len()).all(|edge| colouring.colour(edge).is_some() || colouring.insert(edge));
    *operations += colouring.operations;
    let group = |edge| colouring.colour(edge).map(|colour| colour as usize / room);
    (0..wishes.len()).map(group).collect::<Option<Vec<usize>>>().filter(|_| all)
}
