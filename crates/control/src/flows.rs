//! The flows that a controller knows, and the rules of each of them.

use crate::context::Context;
use crate::cookies::{flow_id, PLANS};
use crate::move_phase::{Move, Stage};
use crate::plan::{plan_of_tag, FlowKey, Version, LEVELS};
use crate::reasons::{Decision, Placed};
use crate::short_list::ShortList;
use crate::timers::{Timer, Timers};
use hashbrown::hash_table::{Entry, HashTable};
use pathloom_model::rules::RuleKey;
use pathloom_model::{Fabric, FiveTuple, Nanos, NodeId, Path};
use pathloom_scheme::{FlowId, FlowMap, OptionU64};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::iter::successors;
use std::ops::BitOr;

/// Rules of abandoned versions, by five-tuple and plan. They stay until the packets in transit have passed. The key
/// is the five-tuple, because a new flow can use the ports of a finished one.
pub(crate) type Draining = BTreeMap<(FiveTuple, u8), DrainingRules>;

/// Rules of an abandoned version.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainingRules {
    /// Time when the last packet has passed all of them; see [`DrainingRules::wait`].
    pub until: Nanos,
    pub rules: Vec<(NodeId, RuleKey)>,
}

impl DrainingRules {
    /// Keeps the rules at least until this time. An earlier timer for them does nothing.
    pub(crate) fn wait(&mut self, timers: &mut Timers, of: (FiveTuple, u8), until: Nanos) {
        self.until = self.until.max(until);
        let (five_tuple, plan) = of;
        timers.set(self.until, Timer::Drained { five_tuple, plan });
    }
}

/// A rule of a flow at its source ToR.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SourceRule {
    /// Plan of its version.
    pub plan: u8,
    /// Its priority level.
    pub level: u8,
    /// Its byte counter at the last reading.
    pub bytes: u64,
    /// Whether the rule was sent, or waits for the session of the switch.
    pub sent: bool,
    /// Whether the switch is known to have, or to have had, the rule.
    pub confirmed: bool,
    /// Whether its deletion was sent, or waits for the session of the switch.
    pub leaving: bool,
}

/// Data that only some flows have: those that were moved, held or paced. It is allocated only for these.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Extras {
    /// Bytes that deleted rules counted.
    pub past_bytes: u64,
    /// Time until which the flow is held.
    pub held_until: Nanos,
    /// Whether it was released after its last hold. If this message was lost, its host still holds it.
    pub released: bool,
    /// How long it had sent nothing when its rule last expired, in seconds.
    pub silent_s: u16,
    /// Its rate limit, if it has one.
    pub pace_bps: Option<u64>,
    /// The previous flow with the same five-tuple, if it was still known when this flow began because it had rules
    /// for paths.
    pub before: Option<FlowId>,
}

/// A flow and its rules.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Identifier, addresses and their places.
    pub key: FlowKey,
    /// Whether it has ended. Its rules stay until no packet matches them any more.
    pub closed: bool,
    /// Its rules at the source ToR.
    pub sources: ShortList<SourceRule>,
    /// Versions with rules at later switches. Every version in `sources` and `current_move` that has a path is among
    /// them.
    pub versions: ShortList<Version>,
    /// The current move. Nearly always there is none.
    pub current_move: Option<Box<Move>>,
    /// Number of plans so far, modulo [`PLANS`].
    pub plans: u8,
    /// Bytes counted until the last reading. Unknown until the first reading if the counter did not start with the
    /// flow.
    pub measured_bytes: OptionU64,
    /// Allocated at the first change.
    pub extras: Option<Box<Extras>>,
    /// Number of times in a row that its counting rule was refused.
    pub refusals: u8,
    /// Whether everything known about it comes from a snapshot, because its source ToR has not been read yet.
    pub unverified: bool,
    /// Whether the scheme waits for a path whose set-up ended when the controller stopped.
    pub interrupted: bool,
    /// The decision that placed it.
    pub placed: Option<Placed>,
}

impl Flow {
    /// Creates a flow without rules.
    pub(crate) fn new(key: FlowKey) -> Flow {
        Flow {
            key,
            closed: false,
            sources: ShortList::None,
            versions: ShortList::None,
            current_move: None,
            plans: 0,
            measured_bytes: OptionU64::from(0u64),
            extras: None,
            refusals: 0,
            unverified: false,
            interrupted: false,
            placed: None,
        }
    }

    /// Its source ToR.
    pub(crate) fn tor(&self) -> NodeId {
        self.key.src.tor
    }

    /// Bytes counted so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.extras().past_bytes + self.sources.iter().map(|source| source.bytes).sum::<u64>()
    }

    /// Returns the data that only some flows have, or its defaults.
    pub(crate) fn extras(&self) -> &Extras {
        const NOTHING: &Extras = &Extras {
            past_bytes: 0,
            held_until: Nanos::ZERO,
            released: false,
            silent_s: 0,
            pace_bps: None,
            before: None,
        };
        self.extras.as_deref().unwrap_or(NOTHING)
    }

    /// Returns the same data for a change.
    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Adds the bytes of a rule that was deleted or whose counter restarts.
    pub(crate) fn count_past(&mut self, bytes: u64) {
        if bytes > 0 {
            self.extras_mut().past_bytes += bytes;
        }
    }

    /// Whether packets may enter the version of this plan: a rule at the source ToR leads to it, or the current move
    /// concerns it.
    pub(crate) fn is_entered(&self, plan: u8) -> bool {
        let moves = |current_move: &Move| current_move.plan == plan || current_move.old_plan() == Some(plan);
        self.sources.iter().any(|source| source.plan == plan) || self.current_move.as_deref().is_some_and(moves)
    }

    /// Plans of the versions that no packet uses any more. A version with normal priority is still used if it has a
    /// rule on the path of a low version with the same tag, because that rule matches first.
    pub(crate) fn abandoned(&self, fabric: &Fabric) -> Vec<u8> {
        let low = self.versions.iter().filter(|version| version.low && self.is_entered(version.plan));
        let low: Vec<&Version> = low.collect();
        let acts = |version: &Version| {
            let meets = |other: &&Version| {
                let links = other.path.iter().flat_map(Path::links);
                let mut switches = links.map(|&link| fabric.link(link).to);
                other.tag == version.tag && switches.any(|switch| version.stands_at(fabric, switch))
            };
            !version.low && low.iter().any(meets)
        };
        let left = self.versions.iter().filter(|version| !self.is_entered(version.plan) && !acts(version));
        left.map(|version| version.plan).collect()
    }

    /// The plans that its rules use, as bits.
    fn plans_in_use(&self) -> u64 {
        let versions = self.versions.iter().map(|version| bit(version.plan) | tag_bit(Some(version.tag)));
        versions.chain(self.sources.iter().map(|source| bit(source.plan))).fold(0, BitOr::bitor)
    }

    /// Whether a rule that stays has this level, or the current move reserves it.
    fn has_level(&self, level: u8) -> bool {
        self.sources.iter().any(|source| source.level == level && !source.leaving)
            || self.current_move.as_ref().is_some_and(|current_move| current_move.level == level)
    }

    /// Returns the lowest free level: no rule that stays has it, and no move reserves it.
    pub(crate) fn free_level(&self) -> u8 {
        (0..LEVELS).find(|&level| !self.has_level(level)).unwrap_or(LEVELS - 1)
    }

    /// Returns the highest free level, which leaves levels below it for later moves.
    pub(crate) fn highest_free_level(&self) -> u8 {
        (0..LEVELS).rev().find(|&level| !self.has_level(level)).unwrap_or(LEVELS - 1)
    }

    /// Returns the highest free level below another one.
    pub(crate) fn level_below(&self, level: u8) -> Option<u8> {
        (0..level).rev().find(|&level| !self.has_level(level))
    }

    /// Returns the version of this plan.
    pub(crate) fn version(&self, plan: u8) -> Option<&Version> {
        self.versions.iter().find(|version| version.plan == plan)
    }

    /// The switch has confirmed the rule of this plan.
    pub(crate) fn confirm(&mut self, plan: u8) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.plan == plan) {
            (source.sent, source.confirmed) = (true, true);
        }
    }

    /// The rule of this plan was sent.
    pub(crate) fn mark_sent(&mut self, plan: u8) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.plan == plan) {
            source.sent = true;
        }
    }

    /// Whether an expired low rule at the source ToR is still needed, because the flow sent nothing while it moved.
    pub(crate) fn needs_low_source(&self, plan: u8) -> bool {
        let stage = self.current_move.as_ref().filter(|current_move| current_move.plan == plan).and_then(|m| m.stage());
        !self.closed && matches!(stage, Some(Stage::Before | Stage::Between))
    }

    /// The rules at the source ToR that are not being deleted.
    pub(crate) fn staying(&self) -> impl Iterator<Item = &SourceRule> {
        self.sources.iter().filter(|source| !source.leaving)
    }
}

/// All flows, by identifier and by five-tuple.
#[derive(Default)]
pub(crate) struct FlowTable {
    records: FlowMap<Flow>,
    /// Identifiers, by the hash of the five-tuple. The five-tuple itself is in the record.
    by_tuple: HashTable<FlowId>,
    per_host: Vec<u32>,
    per_tor: Vec<u32>,
    epoch: u16,
    serial: u64,
}

impl FlowTable {
    /// Creates an empty table for a fabric of `nodes` nodes.
    pub(crate) fn new(epoch: u16, nodes: usize) -> FlowTable {
        FlowTable { per_host: vec![0; nodes], per_tor: vec![0; nodes], epoch, ..FlowTable::default() }
    }

    /// Returns a plan that no rule for the flow's five-tuple uses, neither itself nor by its tag. `None` if there is
    /// none, because rules of earlier flows can be draining under every plan.
    pub(crate) fn free_plan(&self, id: FlowId, draining: &Draining) -> Option<u8> {
        let flow = self.get(id)?;
        let first = u32::from(flow.plans);
        // Rules of earlier flows with the same five-tuple are not in `draining` until their source ToR has confirmed
        // that no packet enters them.
        let with_earlier = successors(Some(flow), |flow| self.get(flow.extras().before?));
        let standing = with_earlier.map(Flow::plans_in_use).fold(0, BitOr::bitor);
        let used = standing | plans_draining(flow.key.five_tuple, draining);
        let free = !used.rotate_right(first);
        (free != 0).then(|| ((first + free.trailing_zeros()) % u32::from(PLANS)) as u8)
    }

    /// Reserves the plan of [`FlowTable::free_plan`] for a version that is about to be created.
    pub(crate) fn take_plan(&mut self, id: FlowId, draining: &Draining) -> Option<u8> {
        let plan = self.free_plan(id, draining)?;
        self.get_mut(id)?.plans = (plan + 1) % PLANS;
        Some(plan)
    }

    /// The rule of a plan at the source ToR was added again. Its new counter is added to the bytes so far.
    pub(crate) fn count_anew(&mut self, id: FlowId, plan: u8) {
        let Some(flow) = self.get_mut(id) else { return };
        if let Some(source) = flow.sources.iter_mut().find(|source| source.plan == plan) {
            let bytes = std::mem::take(&mut source.bytes);
            flow.count_past(bytes);
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: FlowId) -> Option<&Flow> {
        self.records.get(&id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.records.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.records.iter().map(|(&id, flow)| (id, flow))
    }

    /// All flows from this identifier on, in the order of their identifiers.
    pub(crate) fn range(&self, from: FlowId) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.records.range(from..).map(|(&id, flow)| (id, flow))
    }

    pub(crate) fn for_each_mut(&mut self, change: impl FnMut(FlowId, &mut Flow)) {
        self.records.for_each_mut(change);
    }

    pub(crate) fn find(&self, five_tuple: &FiveTuple) -> Option<FlowId> {
        self.by_tuple.find(hash(five_tuple), |&id| self.has_tuple(id, five_tuple)).copied()
    }

    fn has_tuple(&self, id: FlowId, five_tuple: &FiveTuple) -> bool {
        self.records.get(&id).is_some_and(|flow| flow.key.five_tuple == *five_tuple)
    }

    /// Number of flows that a host sends.
    pub(crate) fn of_host(&self, host: NodeId) -> u32 {
        self.per_host[host.index()]
    }

    /// Number of flows whose source ToR is `tor`.
    pub(crate) fn of_tor(&self, tor: NodeId) -> u32 {
        self.per_tor[tor.index()]
    }

    /// Returns an identifier that was never used.
    pub(crate) fn next_id(&mut self) -> FlowId {
        loop {
            let id = flow_id(self.epoch, self.serial);
            self.serial += 1;
            if !self.records.contains_key(&id) {
                return id;
            }
        }
    }

    /// Number of identifiers used so far in this epoch.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Skips all identifiers of this epoch with a number below `serial`.
    pub(crate) fn skip_to(&mut self, serial: u64) {
        self.serial = self.serial.max(serial);
    }

    /// Adds a flow. From now on its five-tuple finds it.
    pub(crate) fn insert(&mut self, flow: Flow) {
        let id = flow.key.id;
        let five_tuple = flow.key.five_tuple;
        self.per_host[flow.key.src.host.index()] += 1;
        self.per_tor[flow.key.src.tor.index()] += 1;
        self.records.insert(id, flow);
        let FlowTable { by_tuple, records, .. } = self;
        let same = |&other: &FlowId| records.get(&other).is_some_and(|flow| flow.key.five_tuple == five_tuple);
        // Every identifier in this table has a record, so the default hash is never used.
        let hash_of = |id: &FlowId| records.get(id).map_or(0, |flow| hash(&flow.key.five_tuple));
        let before = match by_tuple.entry(hash(&five_tuple), same, hash_of) {
            Entry::Occupied(mut entry) => Some(std::mem::replace(entry.get_mut(), id)),
            Entry::Vacant(entry) => {
                entry.insert(id);
                None
            }
        };
        if let (Some(_), Some(flow)) = (before, self.records.get_mut(&id)) {
            flow.extras_mut().before = before;
        }
    }

    /// Removes a flow. Its five-tuple then finds the flow before it, if that flow still exists.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Flow> {
        let flow = self.records.get(&id)?;
        let before = flow.extras().before.filter(|before| self.records.contains_key(before));
        if let Ok(mut entry) = self.by_tuple.find_entry(hash(&flow.key.five_tuple), |&other| other == id) {
            match before {
                Some(before) => *entry.get_mut() = before,
                None => {
                    entry.remove();
                }
            }
        }
        let flow = self.records.remove(&id)?;
        self.per_host[flow.key.src.host.index()] -= 1;
        self.per_tor[flow.key.src.tor.index()] -= 1;
        Some(flow)
    }
}

/// The plans of the draining rules for a five-tuple, as bits.
fn plans_draining(tuple: FiveTuple, draining: &Draining) -> u64 {
    let left = draining.range((tuple, 0)..=(tuple, u8::MAX));
    // The tag of a version can belong to an earlier plan.
    let tags = |left: &DrainingRules| left.rules.iter().fold(0, |bits, (_, key)| bits | tag_bit(key.matches.tag));
    left.fold(0, |bits, (&(_, plan), left)| bits | bit(plan) | tags(left))
}

/// A plan as one of [`PLANS`] bits.
fn bit(plan: u8) -> u64 {
    1 << (plan % PLANS)
}

/// The plan that a tag belongs to, as a bit; 0 for a label.
fn tag_bit(tag: Option<u16>) -> u64 {
    tag.and_then(plan_of_tag).map_or(0, bit)
}

/// The hash of a five-tuple. It is computed from two numbers, which is faster than from five.
fn hash(tuple: &FiveTuple) -> u64 {
    let ports = u64::from(tuple.src_port()) << 24 | u64::from(tuple.dst_port()) << 8 | u64::from(tuple.proto());
    FxBuildHasher.hash_one((tuple.address_bits(), ports))
}

/// Stores a decision, and in its flow if it places the flow.
pub(crate) fn note(cx: &mut Context, flows: &mut FlowTable, flow: FlowId, decision: Decision) {
    let placed = cx.reasons.note(cx.now, flow, decision);
    if let (Some(placed), Some(known)) = (placed, flows.get_mut(flow)) {
        known.placed = Some(placed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::PROTO_TCP;

    /// Creates a table for the flows of one five-tuple, and a function that creates such flows.
    fn table() -> (FlowTable, impl Fn(u64, u8) -> Flow) {
        let fabric = fabric_from_spec("leaf-spine:spines=1,leaves=2,hosts=1").unwrap();
        let (src, dst) = (fabric.attachments()[0], fabric.attachments()[1]);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src.address, 1), (dst.address, 2));
        let flow = move |id: u64, plans: u8| {
            let key = FlowKey { id: FlowId(id), five_tuple, src, dst, meter: None };
            Flow { plans, ..Flow::new(key) }
        };
        (FlowTable::new(1, fabric.nodes().len()), flow)
    }

    #[test]
    fn plans_can_be_used_up() {
        let (mut table, flow) = table();
        table.insert(flow(1, 60));
        let (mut draining, five_tuple) = (Draining::new(), flow(1, 0).key.five_tuple);
        (0..PLANS)
            .filter(|&plan| plan != 3)
            .for_each(|plan| drop(draining.insert((five_tuple, plan), DrainingRules::default())));
        assert_eq!(table.take_plan(FlowId(1), &draining), Some(3));
        draining.insert((five_tuple, 3), DrainingRules::default());
        assert_eq!(table.take_plan(FlowId(1), &draining), None);
    }

    #[test]
    fn a_flow_takes_no_plan_of_earlier_flows_with_its_ports() {
        let (mut table, flow) = table();
        let standing = |id: u64, plan: u8| {
            let mut flow = flow(id, 0);
            flow.versions.push(Version::new(plan, None));
            flow
        };
        let draining = Draining::new();
        table.insert(standing(1, 5));
        table.insert(standing(2, 6));
        table.insert(flow(3, 5));
        assert_eq!(table.take_plan(FlowId(3), &draining), Some(7));
        // The newest flow is removed before the earlier ones, and another one arrives.
        table.remove(FlowId(3));
        table.insert(flow(4, 5));
        assert_eq!(table.take_plan(FlowId(4), &draining), Some(7));
        table.remove(FlowId(1));
        table.remove(FlowId(2));
        table.insert(flow(5, 5));
        assert_eq!(table.take_plan(FlowId(5), &draining), Some(5));
    }
}
