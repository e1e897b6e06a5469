//! Max-min fair rates that follow changes: flows come, go and move, and capacities change.
//!
//! A change is local as a rule: it concerns the flows on a few links. [`IncrementalMaxMin::update`] begins with the flows
//! whose bottleneck has changed, gives them the capacity that all others leave, and tests the others by the property that
//! defines max-min rates: every flow has its demand, or a full link on which no flow has more per unit of weight
//! (Bertsekas and Gallager, Data Networks, §6.5.2). Flows that fail the test join, and the computation repeats. The
//! property determines the rates, so they equal those of [`max_min`](crate::max_min) up to rounding, whatever the order
//! of the changes. After [`MOST_ROUNDS`] rounds, or if more than half of all flows have joined, all others join too. So
//! an update costs at most that many full computations and one more.

mod refill;

use crate::{AllocationError, Limit};
use refill::Refill;

/// The tolerance that only rounding needs.
const EXACT: f64 = 1e-9;
/// Most rounds of an update before all flows join.
pub const MOST_ROUNDS: u32 = 16;

/// A link that a flow uses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkUse {
    /// The link.
    pub link: u32,
    /// What the link carries for each unit of the flow's rate, above 0: 1 for a flow with one path, the part that takes
    /// this link for one that is split, and the ratio of acknowledgements to data for a link of the way back.
    pub share: f64,
}

/// A use of a link, and its place in the link's list.
#[derive(Clone, Copy, Debug)]
struct Use {
    link: u32,
    place: u32,
    share: f64,
}

/// A flow that uses a link, and which of its uses this is.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    flow: u32,
    which: u32,
}

#[derive(Clone, Debug)]
struct Flow {
    uses: Vec<Use>,
    demand: f64,
    weight: f64,
    rate: f64,
    /// Rate per unit of weight.
    level: f64,
    limit: Limit,
    is_live: bool,
    /// The last update that has recomputed this flow, and the last round that has given it a rate.
    joined: u64,
    stopped: u64,
}

#[derive(Clone, Debug)]
struct Link {
    capacity: f64,
    crossing: Vec<Crossing>,
    /// The last update that has involved this link, and its number there.
    update: u64,
    local: u32,
}

/// A network whose max-min fair rates follow the changes of its flows and capacities.
#[derive(Clone, Debug)]
pub struct IncrementalMaxMin {
    links: Vec<Link>,
    flows: Vec<Flow>,
    free: Vec<u32>,
    live: usize,
    /// Flows that the next update recomputes in any case.
    seeds: Vec<u32>,
    /// Levels and loads that differ by less than this part count as equal.
    tolerance: f64,
    refill: Refill,
    changed: Vec<u32>,
}

impl IncrementalMaxMin {
    /// Creates a network of links with these capacities, without flows.
    ///
    /// # Errors
    /// A capacity that is not a finite number of at least 0.
    pub fn new(capacities: &[f64]) -> Result<IncrementalMaxMin, AllocationError> {
        let link = |(link, &capacity): (usize, &f64)| {
            check_capacity(link, capacity)?;
            Ok(Link { capacity, crossing: Vec::new(), update: 0, local: 0 })
        };
        Ok(IncrementalMaxMin {
            links: capacities.iter().enumerate().map(link).collect::<Result<_, _>>()?,
            flows: Vec::new(),
            free: Vec::new(),
            live: 0,
            seeds: Vec::new(),
            tolerance: EXACT,
            refill: Refill::default(),
            changed: Vec::new(),
        })
    }

    /// Lets flows keep their rates that are fair to within this part, from 1e-9 (rounding, the default) to 0.1. A link that
    /// limits a flow then carries at least 1 - `tolerance` of its capacity, and never more than all of it. On this link, no flow has a
    /// rate per unit of weight that is higher by more than this part. So small effects spread less far.
    pub fn with_tolerance(self, tolerance: f64) -> IncrementalMaxMin {
        IncrementalMaxMin { tolerance: tolerance.clamp(EXACT, 0.1), ..self }
    }

    /// Adds a flow that takes at most `demand`, in the unit of the capacities, and `weight` times the rate of a flow of
    /// weight 1. Its rate is 0 until the next update. Returns its number; numbers of removed flows are used again.
    ///
    /// # Errors
    /// An unknown link, a share, demand or weight out of range, or a flow that nothing limits. Nothing is added then.
    pub fn add(&mut self, uses: &[LinkUse], demand: f64, weight: f64) -> Result<u32, AllocationError> {
        let number = self.free.last().copied().unwrap_or(self.flows.len() as u32);
        self.check_uses(number, uses)?;
        check_demand(number, demand, uses.is_empty())?;
        if !weight.is_finite() || weight <= 0.0 {
            return Err(AllocationError::BadWeight { flow: number as usize, weight });
        }
        let (rate, level, limit) = (0.0, 0.0, Limit::Demand);
        let flow = Flow { uses: Vec::new(), demand, weight, rate, level, limit, is_live: true, joined: 0, stopped: 0 };
        match self.free.pop() {
            Some(_) => self.flows[number as usize] = flow,
            None => self.flows.push(flow),
        }
        self.live += 1;
        self.connect(number, uses);
        self.seeds.push(number);
        Ok(number)
    }

    /// Removes a flow. Does nothing if there is none of this number.
    pub fn remove(&mut self, flow: u32) {
        if !self.is_live(flow) {
            return;
        }
        self.disconnect(flow);
        self.flows[flow as usize].is_live = false;
        self.free.push(flow);
        self.live -= 1;
    }

    /// Moves a flow to other links. Does nothing if there is none of this number.
    ///
    /// # Errors
    /// As [`IncrementalMaxMin::add`]. The flow then stays where it is.
    pub fn set_uses(&mut self, flow: u32, uses: &[LinkUse]) -> Result<(), AllocationError> {
        if !self.is_live(flow) {
            return Ok(());
        }
        self.check_uses(flow, uses)?;
        check_demand(flow, self.flows[flow as usize].demand, uses.is_empty())?;
        self.disconnect(flow);
        self.connect(flow, uses);
        self.seeds.push(flow);
        Ok(())
    }

    /// Changes the demand of a flow. Does nothing if there is none of this number.
    ///
    /// # Errors
    /// A demand out of range, or a flow that nothing limits. The demand then stays as it is.
    pub fn set_demand(&mut self, flow: u32, demand: f64) -> Result<(), AllocationError> {
        if !self.is_live(flow) {
            return Ok(());
        }
        check_demand(flow, demand, self.flows[flow as usize].uses.is_empty())?;
        self.flows[flow as usize].demand = demand;
        self.seeds.push(flow);
        Ok(())
    }

    /// Changes the capacity of a link.
    ///
    /// # Errors
    /// An unknown link, or a capacity that is not a finite number of at least 0.
    pub fn set_capacity(&mut self, link: u32, capacity: f64) -> Result<(), AllocationError> {
        check_capacity(link as usize, capacity)?;
        let links = self.links.len();
        let of = self.links.get_mut(link as usize).ok_or(AllocationError::NoLink { link, links })?;
        of.capacity = capacity;
        self.seeds.extend(of.crossing.iter().map(|crossing| crossing.flow));
        Ok(())
    }

    /// Brings all rates up to date. Returns the flows whose rates have changed, in no particular but always the same
    /// order.
    pub fn update(&mut self) -> &[u32] {
        self.changed.clear();
        if self.seeds.is_empty() {
            return &self.changed;
        }
        self.refill.begin();
        for seed in std::mem::take(&mut self.seeds) {
            self.join(seed);
        }
        for round in 0.. {
            if round == MOST_ROUNDS || self.refill.len() * 2 > self.live {
                (0..self.flows.len() as u32).for_each(|flow| self.join(flow));
            }
            self.refill();
            if self.refill.len() == self.live || !self.join_affected() {
                break;
            }
        }
        let (flows, changed) = (&self.flows, &mut self.changed);
        let members = self.refill.members().iter().filter(|member| flows[member.flow as usize].rate != member.before);
        changed.extend(members.map(|member| member.flow));
        changed
    }

    /// Rate of a flow at the last update; 0 if there is none of this number.
    pub fn rate(&self, flow: u32) -> f64 {
        self.flows.get(flow as usize).filter(|flow| flow.is_live).map_or(0.0, |flow| flow.rate)
    }

    /// What limits a flow; `None` if there is none of this number.
    pub fn limit(&self, flow: u32) -> Option<Limit> {
        self.flows.get(flow as usize).filter(|flow| flow.is_live).map(|flow| flow.limit)
    }

    /// Capacity of a link; 0 if there is no such link.
    pub fn capacity(&self, link: u32) -> f64 {
        self.links.get(link as usize).map_or(0.0, |link| link.capacity)
    }

    /// The flows that use a link, each once.
    pub fn crossing(&self, link: u32) -> impl Iterator<Item = u32> + '_ {
        self.links.get(link as usize).into_iter().flat_map(|link| &link.crossing).map(|crossing| crossing.flow)
    }

    /// What a link carries at the last update.
    pub fn load(&self, link: u32) -> f64 {
        let crossing = self.links.get(link as usize).into_iter().flat_map(|link| &link.crossing);
        crossing
            .map(|at| self.flows[at.flow as usize].rate * self.flows[at.flow as usize].uses[at.which as usize].share)
            .sum()
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    fn is_live(&self, flow: u32) -> bool {
        self.flows.get(flow as usize).is_some_and(|flow| flow.is_live)
    }

    fn check_uses(&self, flow: u32, uses: &[LinkUse]) -> Result<(), AllocationError> {
        let (flow, links) = (flow as usize, self.links.len());
        for &LinkUse { link, share } in uses {
            if link as usize >= links {
                return Err(AllocationError::UnknownLink { flow, link, links });
            }
            if !share.is_finite() || share <= 0.0 {
                return Err(AllocationError::BadShare { flow, link, share });
            }
        }
        Ok(())
    }

    /// Enters a flow in the lists of its links. The flows that these links limit lose some of their rates.
    fn connect(&mut self, flow: u32, uses: &[LinkUse]) {
        let mut merged: Vec<LinkUse> = Vec::with_capacity(uses.len());
        merged.extend_from_slice(uses);
        merged.sort_by_key(|of| of.link);
        merged.dedup_by(|later, kept| {
            let is_same = later.link == kept.link;
            kept.share += if is_same { later.share } else { 0.0 };
            is_same
        });
        let own = merged.iter().zip(0..).map(|(&LinkUse { link, share }, which)| {
            let crossing = &mut self.links[link as usize].crossing;
            crossing.push(Crossing { flow, which });
            Use { link, place: crossing.len() as u32 - 1, share }
        });
        self.flows[flow as usize].uses = own.collect();
        merged.iter().for_each(|of| self.seed_limited_by(of.link));
    }

    /// Removes a flow from the lists of its links. The flows that these links limit may gain.
    fn disconnect(&mut self, flow: u32) {
        let uses = std::mem::take(&mut self.flows[flow as usize].uses);
        for of in &uses {
            let crossing = &mut self.links[of.link as usize].crossing;
            crossing.swap_remove(of.place as usize);
            if let Some(&Crossing { flow: moved, which }) = crossing.get(of.place as usize) {
                self.flows[moved as usize].uses[which as usize].place = of.place;
            }
        }
        uses.iter().for_each(|of| self.seed_limited_by(of.link));
    }

    fn seed_limited_by(&mut self, link: u32) {
        let (flows, crossing) = (&self.flows, &self.links[link as usize].crossing);
        let limited = crossing.iter().map(|at| at.flow).filter(|&flow| flows[flow as usize].limit == Limit::Link(link));
        self.seeds.extend(limited);
    }
}

fn check_capacity(link: usize, capacity: f64) -> Result<(), AllocationError> {
    match capacity.is_finite() && capacity >= 0.0 {
        true => Ok(()),
        false => Err(AllocationError::BadCapacity { link, capacity }),
    }
}

fn check_demand(flow: u32, demand: f64, is_alone: bool) -> Result<(), AllocationError> {
    let flow = flow as usize;
    if demand.is_nan() || demand < 0.0 {
        return Err(AllocationError::BadDemand { flow, demand });
    }
    if is_alone && demand.is_infinite() {
        return Err(AllocationError::Unbounded { flow });
    }
    Ok(())
}
