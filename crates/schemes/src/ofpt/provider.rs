//! Keeps the rates of flows (their provision) up to date while flows come and go. It recomputes only the rates of flows
//! that share a bottleneck with a flow that came or went.
//!
//! A flow's level is its rate divided by its weight. Flows of unknown size share links. Each of them has the rate of
//! its access link, or the link that limits it is full and carries no flow with a higher level. That makes rates
//! max-min fair (Bertsekas and Gallager, Data Networks, §6.5.2). Flows of known size take turns. None of them waits, or
//! sends less than it could, while there is room. On a link that limits a flow, the flow displaces flows with more
//! remaining time. All this holds to within [`TOLERANCE`].
//!
//! When a flow comes or goes, the provider serves the flows that share a bottleneck with it: [`provide`] divides among
//! them what all other flows leave. This is the first ring. The next ring consists of the other flows that can now
//! have more, or that now have too much compared with those served; and so on. After [`MOST_LOOKS`] the provider stops
//! and reports [`Provider::is_inexact`]: all rates must be computed exactly ([`Provider::settle_all`]). Until then it
//! serves only the first ring. Links are overbooked by [`SLACK`] at most, except when even the first ring is too large.
//! Then a new flow gets as much as each of the others, in addition to their rates.

use super::provision::{provide, remaining_ns, Demands, Share, LEAST_SHARE};
use super::sharing::Sharing;
use pathloom_scheme::FlowId;
use rustc_hash::FxHashMap;

/// Differences up to this share of a link, or of a rate, do not cause flows to be served again.
pub(super) const TOLERANCE: f64 = 0.02;
/// Share of a link by which it may be overbooked before the flows that it limits are served again. If many flows share
/// a link, one more changes each rate so little that the controller would do nothing else than announce new rates.
pub(super) const SLACK: f64 = 0.015;
/// A flow's rate is returned as new when it differs by more than this share from the rate returned before.
pub(super) const REPORT_STEP: f64 = 0.02;
/// Limit of the work for one change: (flow, link) pairs that are examined.
const MOST_LOOKS: usize = 3000;
/// A link that is not in the region.
const NONE: u32 = u32::MAX;

/// Payload bytes left of a flow, if its size is known.
pub(super) type Remaining<'a> = &'a dyn Fn(FlowId) -> Option<u64>;

/// A flow that has a share.
#[derive(Clone, Debug)]
struct Served {
    id: FlowId,
    links: Box<[u32]>,
    access_bps: u64,
    weight: f64,
    /// The rate that was last returned as new.
    reported_bps: Option<u64>,
    /// Whether its size is known, so that it takes turns.
    known: bool,
    /// Whether it is a member of the region.
    inside: bool,
    /// Whether it has not been served yet.
    fresh: bool,
}

impl Served {
    /// Whether its rate differs enough from the one returned last.
    fn is_reportable(&self, rate_bps: u64) -> bool {
        self.reported_bps.is_none_or(|told| {
            (told == 0) != (rate_bps == 0) || told.abs_diff(rate_bps) as f64 > REPORT_STEP * told as f64
        })
    }
}

/// The flows that are being served, and the links that they cross.
#[derive(Clone, Debug, Default)]
struct Region {
    members: Vec<u32>,
    /// New flows that got their share without serving others ([`Provider::try_fit`]).
    fitted: Vec<u32>,
    /// By link: its index in `links`, or [`NONE`].
    local: Vec<u32>,
    links: Vec<Crossed>,
    looks: usize,
}

/// A link that flows of the region cross.
#[derive(Clone, Copy, Debug)]
struct Crossed {
    link: u32,
    /// Number of members that cross it.
    inside: u32,
    /// Number of members that it limits.
    limited: u32,
    /// Lowest level of the members of unknown size that it limits.
    level_bps: u64,
    /// Highest level of a member that crosses it.
    most_bps: u64,
    /// Shortest remaining time of the members of known size that it limits.
    first_ns: Option<u128>,
}

/// Keeps the rate of every flow. Links are indices.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    sharing: Sharing,
    capacity_bps: Vec<u64>,
    used_bps: Vec<u64>,
    /// By link: the number of flows that it limits.
    limited: Vec<u32>,
    /// By link: the lowest level that a flow of unknown size was given there since the link last limited no flow.
    level_bps: Vec<u64>,
    on_link: Vec<Vec<u32>>,
    slots: Vec<Option<Served>>,
    /// By slot: the share of the flow. A vector of its own, because the flows of a link are searched for those that it
    /// limits.
    shares: Vec<Share>,
    /// By slot: the level of the flow.
    levels_bps: Vec<u64>,
    free: Vec<u32>,
    /// The slot of a flow. Only for look-ups, never iterated.
    names: FxHashMap<FlowId, u32>,
    /// Flows that came, and links that flows left, since the rates were last computed.
    fresh: Vec<FlowId>,
    left: Vec<u32>,
    inexact: bool,
    region: Region,
}

impl Provider {
    /// No flows on links of these rates.
    pub(super) fn new(capacity_bps: Vec<u64>, sharing: Sharing) -> Provider {
        let links = capacity_bps.len();
        Provider {
            sharing,
            used_bps: vec![0; links],
            limited: vec![0; links],
            level_bps: vec![0; links],
            on_link: vec![Vec::new(); links],
            region: Region { local: vec![NONE; links], ..Region::default() },
            capacity_bps,
            slots: Vec::new(),
            shares: Vec::new(),
            levels_bps: Vec::new(),
            free: Vec::new(),
            names: FxHashMap::default(),
            fresh: Vec::new(),
            left: Vec::new(),
            inexact: false,
        }
    }

    /// The rate of a flow; `None` if the flow is unknown.
    pub(super) fn rate_bps(&self, id: FlowId) -> Option<u64> {
        let slot = *self.names.get(&id)?;
        Some(self.share(slot).rate_bps)
    }

    /// Whether rates may deviate by more than the tolerance, because there were too many flows to serve.
    pub(super) fn is_inexact(&self) -> bool {
        self.inexact
    }

    /// Adds a flow over these links, or replaces the links of a flow. Unknown links are ignored.
    pub(super) fn put(&mut self, id: FlowId, links: &[u32], access_bps: u64, known: bool) {
        self.put_weighted(id, links, access_bps, known, 1.0);
    }

    /// As [`Provider::put`], with a factor of the flow's weight on full links.
    pub(super) fn put_weighted(&mut self, id: FlowId, links: &[u32], access_bps: u64, known: bool, factor: f64) {
        let weight = self.sharing.weight(links.len()) * factor;
        if let Some(&slot) = self.names.get(&id) {
            let same = |served: &Served| *served.links == *links && served.known == known && served.weight == weight;
            if self.slots[slot as usize].as_ref().is_some_and(same) {
                return;
            }
            self.remove(id);
        }
        let links: Box<[u32]> = links.iter().copied().filter(|&link| (link as usize) < self.used_bps.len()).collect();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.shares.push(Share::default());
            self.levels_bps.push(0);
            self.slots.len() as u32 - 1
        });
        links.iter().for_each(|&link| self.on_link[link as usize].push(slot));
        self.slots[slot as usize] =
            Some(Served { id, links, access_bps, weight, reported_bps: None, known, inside: false, fresh: true });
        self.names.insert(id, slot);
        self.fresh.push(id);
    }

    /// Removes a flow; returns whether it was there.
    pub(super) fn remove(&mut self, id: FlowId) -> bool {
        let Some(slot) = self.names.remove(&id) else { return false };
        self.withdraw(slot);
        let Some(served) = self.slots[slot as usize].take() else { return false };
        for &link in &served.links {
            let slots = &mut self.on_link[link as usize];
            if let Some(position) = slots.iter().position(|&other| other == slot) {
                slots.swap_remove(position);
            }
            self.left.push(link);
        }
        self.free.push(slot);
        true
    }

    /// Computes the rates of all flows exactly. Returns the flows with a new rate, ascending, with that rate.
    pub(super) fn settle_all(&mut self, remaining: Remaining<'_>) -> Vec<(FlowId, u64)> {
        self.fresh.clear();
        self.left.clear();
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].is_some() {
                self.enter(slot);
            }
        }
        self.serve(remaining);
        self.inexact = false;
        self.end()
    }

    /// Serves the flows that the changes since the last call affect. Returns the flows with a new rate, ascending, with
    /// that rate.
    pub(super) fn settle(&mut self, remaining: Remaining<'_>) -> Vec<(FlowId, u64)> {
        self.begin();
        let mut served = 0;
        while served < self.region.members.len() {
            let looks = self.looks_to_serve();
            if self.region.looks + looks > MOST_LOOKS {
                self.inexact = true;
                break;
            }
            self.region.looks += looks;
            served = self.region.members.len();
            self.serve(remaining);
            if self.inexact {
                // Further rings would find the remaining deviations of earlier changes again and again.
                break;
            }
            self.enter_neighbours(remaining);
        }
        if served == 0 && self.inexact {
            self.assign_provisional_rates();
        }
        self.end()
    }

    /// Removes a flow's share from its links.
    fn withdraw(&mut self, slot: u32) {
        let Some(served) = &self.slots[slot as usize] else { return };
        let Share { rate_bps, limit } = std::mem::take(&mut self.shares[slot as usize]);
        self.levels_bps[slot as usize] = 0;
        served.links.iter().for_each(|&link| self.used_bps[link as usize] -= rate_bps);
        limit.into_iter().for_each(|link| self.limited[link as usize] -= 1);
    }

    fn grant(&mut self, slot: u32, share: Share) {
        let Some(served) = &self.slots[slot as usize] else { return };
        let share_level_bps = level_bps(share.rate_bps, served.weight);
        self.shares[slot as usize] = share;
        self.levels_bps[slot as usize] = share_level_bps;
        served.links.iter().for_each(|&link| self.used_bps[link as usize] += share.rate_bps);
        if let Some(link) = share.limit {
            let alone = self.limited[link as usize] == 0;
            self.limited[link as usize] += 1;
            if !served.known {
                let level_bps = &mut self.level_bps[link as usize];
                *level_bps = if alone { share_level_bps } else { share_level_bps.min(*level_bps) };
            }
        }
    }

    fn share(&self, slot: u32) -> Share {
        self.shares[slot as usize]
    }

    fn served(&self, slot: u32) -> &Served {
        self.slots[slot as usize].as_ref().expect("slots on links hold a flow")
    }

    fn enter(&mut self, slot: u32) {
        let served = self.slots[slot as usize].as_mut().expect("slots on links hold a flow");
        if !std::mem::replace(&mut served.inside, true) {
            self.region.members.push(slot);
        }
    }

    /// Finds the first ring: new flows, the flows that share a bottleneck with them, and the flows that can use what
    /// departed flows left.
    fn begin(&mut self) {
        for id in std::mem::take(&mut self.fresh) {
            let Some(&slot) = self.names.get(&id) else { continue };
            if self.try_fit(slot) {
                self.region.fitted.push(slot);
                continue;
            }
            self.enter(slot);
            let served = self.served(slot);
            // For a flow that takes turns, the next ring finds the flows on the links that it fills.
            // If there are too many flows to examine, none of them will be served.
            if !served.known && self.region.looks <= MOST_LOOKS {
                let links = served.links.clone();
                links.iter().for_each(|&link| self.enter_limited(link));
            }
        }
        for link in std::mem::take(&mut self.left) {
            if self.is_overbooked(link) {
                self.enter_if(link, |_, _| true);
            } else if self.has_room(link) {
                self.enter_limited(link);
            }
        }
    }

    /// Gives a new flow the level of the others on its tightest link, if it then fits within [`SLACK`]. Then no other
    /// flow needs to be served.
    fn try_fit(&mut self, slot: u32) -> bool {
        let served = self.served(slot);
        let fits = |link: &u32, rate_bps: u64| {
            let link = *link as usize;
            (self.used_bps[link] + rate_bps) as f64 <= self.capacity_bps[link] as f64 * (1.0 + SLACK)
        };
        let part = |link: &u32| {
            let link = *link as usize;
            let room_bps = self.capacity_bps[link].saturating_sub(self.used_bps[link]);
            if self.limited[link] > 0 {
                weighted_bps(self.level_bps[link], served.weight)
            } else {
                room_bps
            }
        };
        let tightest = served.links.iter().copied().min_by_key(|link| part(link));
        let Some(link) = tightest.filter(|&link| served.fresh && !served.known && self.limited[link as usize] > 0)
        else {
            return false;
        };
        let rate_bps = part(&link);
        if rate_bps == 0 || rate_bps >= served.access_bps || !served.links.iter().all(|link| fits(link, rate_bps)) {
            return false;
        }
        self.grant(slot, Share { rate_bps, limit: Some(link) });
        self.slots[slot as usize].iter_mut().for_each(|served| served.fresh = false);
        true
    }

    fn is_overbooked(&self, link: u32) -> bool {
        let (used, capacity) = (self.used_bps[link as usize], self.capacity_bps[link as usize]);
        used as f64 > capacity as f64 * (1.0 + SLACK) + 1.0
    }

    fn has_room(&self, link: u32) -> bool {
        let (used, capacity) = (self.used_bps[link as usize], self.capacity_bps[link as usize]);
        capacity.saturating_sub(used) as f64 > TOLERANCE * capacity as f64
    }

    /// Makes the flows that a link limits members of the region.
    fn enter_limited(&mut self, link: u32) {
        if self.limited[link as usize] == 0 {
            return;
        }
        let room = self.capacity_bps[link as usize].saturating_sub(self.used_bps[link as usize]);
        self.enter_if(link, |this, slot| {
            let Share { rate_bps, limit } = this.share(slot);
            let waits = |served: &Served| served.known && (room as f64) < LEAST_SHARE * served.access_bps as f64;
            limit == Some(link) && !(rate_bps == 0 && waits(this.served(slot)))
        });
    }

    /// Makes those flows of a link members of the region for which `wanted` is true.
    fn enter_if(&mut self, link: u32, wanted: impl Fn(&Provider, u32) -> bool) {
        self.region.looks += self.on_link[link as usize].len();
        for position in 0..self.on_link[link as usize].len() {
            let slot = self.on_link[link as usize][position];
            if wanted(self, slot) {
                self.enter(slot);
            }
        }
    }

    fn looks_to_serve(&self) -> usize {
        self.region.members.iter().map(|&slot| self.served(slot).links.len()).sum()
    }

    /// Divides among the members of the region what all other flows leave.
    fn serve(&mut self, remaining: Remaining<'_>) {
        let members = std::mem::take(&mut self.region.members);
        self.forget_links();
        let crossed = members.iter().map(|&slot| self.served(slot).links.len()).sum();
        let mut demands = Demands::with_capacity(members.len(), crossed);
        let mut numbers = Vec::new();
        for &slot in &members {
            self.withdraw(slot);
            let served = self.slots[slot as usize].as_ref().expect("members are flows");
            numbers.clear();
            numbers.extend(served.links.iter().map(|&link| self.region.cross(link)));
            let left = if served.known { Some(remaining(served.id).unwrap_or(0)) } else { None };
            demands.push(&numbers, served.access_bps, served.weight, left);
        }
        let fair = demands.remaining_bytes.iter().all(Option::is_none);
        let left = |crossed: &Crossed| {
            let link = crossed.link as usize;
            // The members were withdrawn, so `limited` counts only other flows. Members get their proportional part of
            // the slack.
            let inside = f64::from(crossed.inside) / self.on_link[link].len().max(1) as f64;
            let slack = if self.limited[link] > 0 && fair { SLACK * inside } else { 0.0 };
            (self.capacity_bps[link] as f64 * (1.0 + slack) - self.used_bps[link] as f64).max(0.0)
        };
        let left: Vec<f64> = self.region.links.iter().map(left).collect();
        let shares = provide(&left, &demands);
        for (index, share) in shares.iter().copied().enumerate() {
            let level_bps = level_bps(share.rate_bps, demands.flows.weight(index));
            if let Some(local) = share.limit {
                let crossed = &mut self.region.links[local as usize];
                crossed.limited += 1;
                match demands.remaining_ns(index) {
                    None => crossed.level_bps = crossed.level_bps.min(level_bps),
                    Some(ns) => {
                        crossed.first_ns = Some(crossed.first_ns.map_or(ns, |first| first.min(ns)));
                    }
                }
            }
            for &local in demands.flows.links(index) {
                let crossed = &mut self.region.links[local as usize];
                crossed.most_bps = crossed.most_bps.max(level_bps);
            }
            let limit = share.limit.map(|local| self.region.links[local as usize].link);
            self.grant(members[index], Share { limit, ..share });
        }
        if !fair {
            self.region.extend_next_ring(&demands, &shares);
        }
        self.region.members = members;
    }

    /// Finds the next ring: flows that can now have more, or that have a higher level than members beside them.
    fn enter_neighbours(&mut self, remaining: Remaining<'_>) {
        for index in 0..self.region.links.len() {
            let Crossed { link, inside, limited, level_bps, most_bps, first_ns } = self.region.links[index];
            let on_link = self.on_link[link as usize].len() as u32;
            if on_link == inside {
                continue;
            }
            let others = self.limited[link as usize] > limited;
            let excess = exceeds(most_bps, self.level_bps[link as usize]);
            if others && (self.has_room(link) || excess && first_ns.is_none()) {
                self.enter_limited(link);
            }
            if let Some(first_ns) = first_ns {
                self.enter_if(link, |this, slot| {
                    let served = this.served(slot);
                    let later = || remaining(served.id).is_some_and(|b| remaining_ns(b, served.access_bps) > first_ns);
                    this.share(slot).rate_bps > 0 && (!served.known || later())
                });
            }
            if level_bps < u64::MAX {
                let most_bps = (level_bps as f64 * (1.0 + TOLERANCE)) as u64 + 1;
                self.enter_if(link, |this, slot| this.levels_bps[slot as usize] > most_bps);
            }
        }
    }

    /// Gives new flows a provisional rate when there are too many flows to serve. On each link a flow may take the
    /// capacity divided by the number of flows, times its weight, or the free capacity if that is more. The links are
    /// then overbooked only a little, because each carries many flows.
    fn assign_provisional_rates(&mut self) {
        for position in 0..self.region.members.len() {
            let slot = self.region.members[position];
            let served = self.served(slot);
            if !served.fresh || served.known {
                continue;
            }
            let part = |link: &u32| {
                let link = *link as usize;
                let left = self.capacity_bps[link].saturating_sub(self.used_bps[link]);
                let equal = self.capacity_bps[link] / self.on_link[link].len().max(1) as u64;
                left.max(weighted_bps(equal, served.weight))
            };
            let tightest = served.links.iter().copied().min_by_key(|link| part(link));
            let rate_bps = tightest.map_or(u64::MAX, |link| part(&link)).min(served.access_bps);
            let limit = tightest.filter(|_| rate_bps < served.access_bps);
            self.grant(slot, Share { rate_bps, limit });
        }
    }

    /// Empties the region. Returns the flows with new rates.
    fn end(&mut self) -> Vec<(FlowId, u64)> {
        self.forget_links();
        self.region.looks = 0;
        let mut changed = Vec::new();
        let mut members = std::mem::take(&mut self.region.members);
        // A fitted flow that later became a member is there twice. The second time its rate is not new.
        members.append(&mut self.region.fitted);
        for &slot in &members {
            let served = self.slots[slot as usize].as_mut().expect("members are flows");
            (served.inside, served.fresh) = (false, false);
            let rate_bps = self.shares[slot as usize].rate_bps;
            if served.is_reportable(rate_bps) {
                served.reported_bps = Some(rate_bps);
                changed.push((served.id, rate_bps));
            }
        }
        self.region.members = members;
        self.region.members.clear();
        changed.sort_unstable();
        changed
    }

    fn forget_links(&mut self) {
        for crossed in self.region.links.drain(..) {
            self.region.local[crossed.link as usize] = NONE;
        }
    }
}

/// The level of a flow with this rate and weight.
fn level_bps(rate_bps: u64, weight: f64) -> u64 {
    (rate_bps as f64 / weight) as u64
}

/// Whether a level exceeds another one by more than the tolerance.
fn exceeds(level_bps: u64, other_bps: u64) -> bool {
    level_bps as f64 > other_bps as f64 * (1.0 + TOLERANCE) + 1.0
}

/// The rate of a flow of this weight at a level.
fn weighted_bps(level_bps: u64, weight: f64) -> u64 {
    (level_bps as f64 * weight) as u64
}

impl Region {
    /// Counts one more member on a link; returns the link's index in `links`.
    fn cross(&mut self, link: u32) -> u32 {
        let local = &mut self.local[link as usize];
        if *local == NONE {
            *local = self.links.len() as u32;
            self.links.push(Crossed { link, inside: 0, limited: 0, level_bps: u64::MAX, most_bps: 0, first_ns: None });
        }
        self.links[*local as usize].inside += 1;
        *local
    }

    /// Extends the next ring for flows of unknown size beside flows that take turns. Such a flow may be limited by a
    /// link on which a flow of known size has a higher level. That flow took what the first one could not use, because
    /// another link of the first one is full of flows outside the region. So the flows on all links of the first one
    /// are examined.
    fn extend_next_ring(&mut self, demands: &Demands, shares: &[Share]) {
        for (index, share) in shares.iter().enumerate().filter(|&(index, _)| demands.remaining_bytes[index].is_none()) {
            let level_bps = level_bps(share.rate_bps, demands.flows.weight(index));
            let beside_more = |local: u32| exceeds(self.links[local as usize].most_bps, level_bps);
            if share.limit.is_some_and(beside_more) {
                for &local in demands.flows.links(index) {
                    let crossed = &mut self.links[local as usize];
                    crossed.level_bps = crossed.level_bps.min(level_bps);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
