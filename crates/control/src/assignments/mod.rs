//! Path assignments. An application requests paths between two addresses, and claims the next of them for each
//! connection that it is about to open. The connection uses that path in both directions from its first packet on.
//! (This is the controller of the parallel TCP paper: its AssignMultipath is [`Assignments::assign`], and its
//! MakePath is [`Assignments::claim`].)
//!
//! Assignments belong to the controller. They do not depend on the scheme in charge, and schemes get no events about
//! them. This component stores which paths are assigned, claimed and in use. [`crate::routes`] puts the connections
//! on them.
//!
//! An assignment ends when its owner releases it, or when nobody has used it for its lifetime. A released assignment
//! accepts no claims, and is removed when its last connection has ended. A claim ends if no first packet arrives in
//! time.

mod listing;
mod restart;
mod search;
#[cfg(test)]
mod tests;
mod upkeep;

pub use listing::Listed;
pub use restart::SavedAssignments;

use crate::assign_error::AssignError;
use crate::config::AssignmentLimits;
use crate::path_requests::{Assigned, AssignmentId, ClaimKey, Owner, PathRequest, PathSearch};
use crate::places::Places;
use pathloom_model::{Address, Attachment, Fabric, FiveTuple, LinkState, Nanos, NodeId, Path, PROTO_TCP};
use pathloom_scheme::FlowId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Number of identifiers per epoch of the controller. If an epoch uses more, it continues with those of the next
/// epoch.
const IDS_PER_EPOCH: u32 = 1 << 16;
/// Identifiers fit into a signed number of 32 bits, the only integer type of XML-RPC.
const ID_MASK: u32 = i32::MAX as u32;

/// The part of the controller's state that assignments use.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub now: Nanos,
    pub fabric: &'a Fabric,
    pub links: &'a LinkState,
    pub places: &'a Places,
    pub limits: &'a AssignmentLimits,
}

impl Facts<'_> {
    fn attachment(&self, address: Address) -> Result<Attachment, AssignError> {
        self.places.attachment(self.fabric, address).ok_or(AssignError::UnknownAddress { address })
    }

    /// Returns the ToRs that an assignment connects.
    fn ends(&self, src: Address, dst: Address) -> Result<(NodeId, NodeId), AssignError> {
        let (from, to) = (self.attachment(src)?, self.attachment(dst)?);
        if from.host == to.host {
            return Err(AssignError::SameHost { src, dst });
        }
        Ok((from.tor, to.tor))
    }
}

/// A path of an assignment.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Slot {
    path: Path,
    /// Number of claims and connections on it.
    users: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Assignment {
    owner: Owner,
    request: PathRequest,
    lifetime: Nanos,
    /// ToRs that the paths connect.
    ends: (NodeId, NodeId),
    /// Different paths, at least one.
    slots: Vec<Slot>,
    claims: BTreeSet<ClaimKey>,
    /// When it expires, if it has no claims.
    until: Nanos,
    /// Whether it was released and only waits for its connections to end.
    released: bool,
}

/// The flows of a connection on an assigned path, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Connection {
    flow: Option<FlowId>,
    back: Option<FlowId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claimed {
    /// The first packet has not arrived yet.
    Waiting { until: Nanos },
    /// The connection is open.
    Bound(Connection),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Claim {
    id: AssignmentId,
    slot: usize,
    state: Claimed,
}

/// Direction of a flow of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Forth,
    Back,
}

/// Timers of assignments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// A claim expires.
    Claim(ClaimKey),
    /// An assignment expires, because it was not used for its lifetime.
    Assignment(AssignmentId),
    /// A flow whose path was refused is put on it again.
    Retry(FlowId),
    /// The first packet of a connection should have been seen by this time.
    Unseen(ClaimKey),
}

/// All assignments.
#[derive(Debug, Default)]
pub struct Assignments {
    assignments: BTreeMap<AssignmentId, Assignment>,
    claims: BTreeMap<ClaimKey, Claim>,
    flows: BTreeMap<FlowId, (ClaimKey, Way)>,
    per_owner: BTreeMap<Owner, u32>,
    /// Number of assignments by the address of their sender. First and last packets from these addresses are copied.
    per_source: BTreeMap<Address, u32>,
    /// Senders that were added or removed since [`Assignments::take_changed_sources`] was last called.
    changed_sources: BTreeSet<Address>,
    /// Flows that will be put on their paths again, with the time and the number of refusals in a row.
    retries: BTreeMap<FlowId, (Nanos, u32)>,
    /// Claims that get their path without a first packet, with the time and the port to which their connections are
    /// opened.
    unseen: BTreeMap<ClaimKey, (Nanos, u16)>,
    due: BTreeSet<(Nanos, Due)>,
    /// The last identifier that was used.
    last: u32,
}

impl Assignments {
    /// Creates an empty list. The identifiers of two successive epochs differ until one of them has used 65,536.
    pub(crate) fn new(epoch: u16) -> Assignments {
        Assignments { last: u32::from(epoch).wrapping_mul(IDS_PER_EPOCH) & ID_MASK, ..Assignments::default() }
    }

    /// Finds up to `request.count` paths and assigns them to `owner`.
    pub(crate) fn assign(
        &mut self,
        at: &Facts<'_>,
        owner: Owner,
        request: PathRequest,
    ) -> Result<Assigned, AssignError> {
        let (limits, PathRequest { src, dst, count, .. }) = (at.limits, request);
        if count == 0 || count > limits.most_paths {
            return Err(AssignError::Count { asked: count, most: limits.most_paths });
        }
        let lifetime = request.lifetime.unwrap_or(limits.lifetime);
        if request.lifetime == Some(Nanos::ZERO) || lifetime > limits.longest_lifetime.max(limits.lifetime) {
            return Err(AssignError::Lifetime {
                asked: lifetime,
                longest: limits.longest_lifetime.max(limits.lifetime),
            });
        }
        let ends = at.ends(src, dst)?;
        if self.assignments.len() >= limits.most as usize {
            return Err(AssignError::Full { most: limits.most });
        }
        if self.per_owner.get(&owner).is_some_and(|&count| count >= limits.most_per_owner) {
            return Err(AssignError::OwnerFull { most: limits.most_per_owner });
        }
        let paths = search::find(at.fabric, at.links, ends, request.search, count as usize);
        if paths.is_empty() {
            return Err(AssignError::NoPath { src, dst });
        }
        let assignment = self.next_id();
        let slots = paths.iter().map(|path| Slot { path: path.clone(), users: 0 }).collect();
        let claims = BTreeSet::new();
        let made = Assignment { owner, request, lifetime, ends, slots, claims, until: Nanos::ZERO, released: false };
        self.insert(assignment, made);
        self.start_lifetime_if_unused(at.now, assignment);
        Ok(Assigned { assignment, paths })
    }

    /// Returns the path for a connection: the one of index `wish`, if it is up; otherwise the one with the fewest
    /// claims and connections among those that are up, the first of them if several have as few. If the same claim is
    /// repeated, it gets the same path, and its wait starts again.
    pub(crate) fn claim(
        &mut self,
        at: &Facts<'_>,
        owner: &Owner,
        id: AssignmentId,
        key: ClaimKey,
        wish: Option<u32>,
    ) -> Result<Path, AssignError> {
        let (src, dst) = self.checked(owner, id, key)?;
        let present = self.claims.get(&key).copied();
        match present {
            Some(claim) if claim.id == id => return self.claim_again(at, key, claim),
            // The application made a new request before it connected.
            Some(Claim { id: other, state: Claimed::Waiting { .. }, .. }) if self.owns(owner, other) => {}
            Some(Claim { id: other, .. }) => {
                return Err(AssignError::PortTaken { src_port: key.src_port, id: other });
            }
            None => {}
        }
        let Some(assignment) = self.assignments.get_mut(&id) else { return Err(AssignError::Unknown(id)) };
        if assignment.claims.len() >= at.limits.most_claims as usize {
            return Err(AssignError::TooManyClaims { id, most: at.limits.most_claims });
        }
        let paths = assignment.slots.len();
        if let Some(asked) = wish.filter(|&asked| asked as usize >= paths) {
            return Err(AssignError::NoSuchPath { id, asked, paths: paths as u32 });
        }
        let up = assignment.slots.iter().enumerate().filter(|(_, slot)| slot.path.is_up(at.links));
        let is_wish = |slot: usize| wish.is_some_and(|wish| wish as usize == slot);
        let Some((slot, _)) = up.min_by_key(|(index, slot)| (!is_wish(*index), slot.users)) else {
            return Err(AssignError::NoPath { src, dst });
        };
        assignment.slots[slot].users += 1;
        assignment.claims.insert(key);
        let path = assignment.slots[slot].path.clone();
        self.due.remove(&(assignment.until, Due::Assignment(id)));
        if present.is_some() {
            // The old claim of the other assignment. This assignment already has the key.
            self.end_claim(at.now, key);
        }
        let until = at.now.saturating_add(at.limits.claim_timeout);
        self.claims.insert(key, Claim { id, slot, state: Claimed::Waiting { until } });
        self.due.insert((until, Due::Claim(key)));
        Ok(path)
    }

    /// Checks whether an owner may claim a path of an assignment for a connection. Returns the assignment's ends.
    fn checked(&self, owner: &Owner, id: AssignmentId, key: ClaimKey) -> Result<(Address, Address), AssignError> {
        let assignment = self.owned(owner, id)?;
        let PathRequest { src, dst, .. } = assignment.request;
        if (key.src, key.dst) != (src, dst) {
            return Err(AssignError::OtherEnds { id, src, dst });
        }
        if key.src_port == 0 || key.dst_port == Some(0) {
            return Err(AssignError::Port);
        }
        Ok((src, dst))
    }

    fn claim_again(&mut self, at: &Facts<'_>, key: ClaimKey, claim: Claim) -> Result<Path, AssignError> {
        let Claim { id, slot, state } = claim;
        let slot = self.assignments.get(&id).and_then(|assignment| assignment.slots.get(slot));
        let path = slot.map(|slot| slot.path.clone()).filter(|path| path.is_up(at.links));
        let path = path.ok_or(AssignError::NoPath { src: key.src, dst: key.dst })?;
        if let Claimed::Waiting { until: before } = state {
            let until = at.now.saturating_add(at.limits.claim_timeout);
            self.due.remove(&(before, Due::Claim(key)));
            self.due.insert((until, Due::Claim(key)));
            self.claims.insert(key, Claim { state: Claimed::Waiting { until }, ..claim });
        }
        Ok(path)
    }

    /// Stops accepting claims for an assignment. Claims without a connection end; connections keep their paths.
    pub(crate) fn release(&mut self, now: Nanos, owner: &Owner, id: AssignmentId) -> Result<(), AssignError> {
        self.owned(owner, id)?;
        self.close(now, id);
        Ok(())
    }

    /// Returns the claimed path for the connection of this first packet; `None` if nobody claimed one.
    pub(crate) fn waiting(&self, five_tuple: &FiveTuple) -> Option<&Path> {
        let claim = self.claims.get(&ClaimKey::of(five_tuple)).filter(|_| five_tuple.proto() == PROTO_TCP)?;
        match claim.state {
            Claimed::Waiting { .. } => Some(&self.assignments.get(&claim.id)?.slots.get(claim.slot)?.path),
            Claimed::Bound(_) => None,
        }
    }

    /// Returns the connection to which a flow belongs, and the assignment of its path.
    pub(crate) fn holder(&self, flow: FlowId) -> Option<(AssignmentId, ClaimKey)> {
        let (key, _) = self.flows.get(&flow)?;
        Some((self.claims.get(key)?.id, *key))
    }

    /// The flow of the connection of a claim, if it is open.
    pub(crate) fn flow_of(&self, key: ClaimKey) -> Option<FlowId> {
        match self.claims.get(&key)?.state {
            Claimed::Bound(connection) => connection.flow,
            Claimed::Waiting { .. } => None,
        }
    }

    /// Whether a claim waits for its connection.
    pub(crate) fn is_waiting(&self, key: ClaimKey) -> bool {
        self.claims.get(&key).is_some_and(|claim| matches!(claim.state, Claimed::Waiting { .. }))
    }

    /// The connection of a claim is open. Stores the flows of its directions.
    pub(crate) fn bind(&mut self, key: ClaimKey, flow: Option<FlowId>, back: Option<FlowId>) {
        let Some(claim) = self.claims.get_mut(&key) else { return };
        if let Claimed::Waiting { until } = claim.state {
            self.due.remove(&(until, Due::Claim(key)));
        }
        claim.state = Claimed::Bound(Connection { flow, back });
        self.forget_unseen(key);
        self.flows.extend(flow.map(|flow| (flow, (key, Way::Forth))));
        self.flows.extend(back.map(|back| (back, (key, Way::Back))));
    }

    /// Returns the path of a flow of a connection, in the direction of the flow; `None` for other flows.
    pub(crate) fn path_of(&self, flow: FlowId) -> Option<Path> {
        let (key, way) = self.flows.get(&flow)?;
        let claim = self.claims.get(key)?;
        let path = &self.assignments.get(&claim.id)?.slots.get(claim.slot)?.path;
        Some(match way {
            Way::Forth => path.clone(),
            Way::Back => path.reverse(),
        })
    }

    /// A flow has ended, and so has its connection. Returns the flow of the other direction, which must end too.
    pub(crate) fn flow_ended(&mut self, now: Nanos, flow: FlowId) -> Option<FlowId> {
        self.forget_retry(flow);
        let (key, way) = self.flows.remove(&flow)?;
        let Claimed::Bound(connection) = self.claims.get(&key)?.state else { return None };
        self.end_claim(now, key);
        match way {
            Way::Forth => connection.back,
            Way::Back => connection.flow,
        }
    }

    /// Addresses whose first and last packets must be copied, in order.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Address> + '_ {
        self.per_source.keys().copied()
    }

    /// Returns the addresses that became a source, or ceased to be one, since the last call.
    pub(crate) fn take_changed_sources(&mut self) -> BTreeSet<Address> {
        std::mem::take(&mut self.changed_sources)
    }

    /// Number of assignments, including released ones that still have connections.
    pub fn len(&self) -> usize {
        self.assignments.len()
    }

    /// Whether there are no assignments.
    pub fn is_empty(&self) -> bool {
        self.assignments.is_empty()
    }

    /// Number of claims whose connection has not been opened yet.
    pub fn waiting_claims(&self) -> usize {
        self.claims.len() - self.connections()
    }

    /// Number of connections on assigned paths.
    pub fn connections(&self) -> usize {
        self.claims.values().filter(|claim| matches!(claim.state, Claimed::Bound(_))).count()
    }

    /// All assignments in the order of their identifiers, each with its owner, its paths, and the number of claims
    /// and connections on each path.
    pub fn iter(&self) -> impl Iterator<Item = (AssignmentId, &Owner, Vec<(&Path, u32)>)> + '_ {
        self.assignments.iter().map(|(&id, of)| {
            let paths = of.slots.iter().map(|slot| (&slot.path, slot.users));
            (id, &of.owner, paths.collect())
        })
    }

    /// Returns an assignment; `None` if no assignment has this identifier.
    pub fn get(&self, id: AssignmentId) -> Option<Listed> {
        self.assignments.get(&id).map(|assignment| Listed::of(self, id, assignment))
    }

    /// Returns assignments after another one, in the order of their identifiers. If an owner is given, only those of
    /// this owner.
    pub fn list<'a>(
        &'a self,
        after: Option<AssignmentId>,
        owner: Option<&'a Owner>,
    ) -> impl Iterator<Item = Listed> + 'a {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.assignments.range((start, Bound::Unbounded));
        let wanted = move |of: &&Assignment| owner.is_none_or(|owner| of.owner == *owner);
        all.filter(move |(_, of)| wanted(of)).map(|(&id, of)| Listed::of(self, id, of))
    }

    fn next_id(&mut self) -> AssignmentId {
        loop {
            self.last = self.last.wrapping_add(1) & ID_MASK;
            let id = AssignmentId(self.last);
            if self.last > 0 && !self.assignments.contains_key(&id) {
                return id;
            }
        }
    }

    /// Returns the assignment with this identifier, if it belongs to this owner and accepts claims.
    fn owned(&self, owner: &Owner, id: AssignmentId) -> Result<&Assignment, AssignError> {
        match self.assignments.get(&id).filter(|assignment| !assignment.released) {
            Some(assignment) if assignment.owner == *owner => Ok(assignment),
            Some(_) => Err(AssignError::NotYours(id)),
            None => Err(AssignError::Unknown(id)),
        }
    }

    fn owns(&self, owner: &Owner, id: AssignmentId) -> bool {
        self.assignments.get(&id).is_some_and(|assignment| assignment.owner == *owner)
    }

    fn insert(&mut self, id: AssignmentId, assignment: Assignment) {
        *self.per_owner.entry(assignment.owner.clone()).or_insert(0) += 1;
        let source = assignment.request.src;
        let count = self.per_source.entry(source).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.changed_sources.insert(source);
        }
        self.assignments.insert(id, assignment);
    }

    fn remove(&mut self, id: AssignmentId) {
        let Some(assignment) = self.assignments.remove(&id) else { return };
        self.due.remove(&(assignment.until, Due::Assignment(id)));
        let source = assignment.request.src;
        if count_down(&mut self.per_source, &source) {
            self.changed_sources.insert(source);
        }
        count_down(&mut self.per_owner, &assignment.owner);
    }

    /// If nobody uses an assignment, starts its lifetime, or removes it if it was released.
    fn start_lifetime_if_unused(&mut self, now: Nanos, id: AssignmentId) {
        let Some(assignment) = self.assignments.get_mut(&id).filter(|assignment| assignment.claims.is_empty()) else {
            return;
        };
        if assignment.released {
            return self.remove(id);
        }
        assignment.until = now.saturating_add(assignment.lifetime);
        self.due.insert((assignment.until, Due::Assignment(id)));
    }

    /// Ends a claim or its connection.
    pub(crate) fn end_claim(&mut self, now: Nanos, key: ClaimKey) {
        let Some(claim) = self.claims.remove(&key) else { return };
        self.forget_unseen(key);
        match claim.state {
            Claimed::Waiting { until } => drop(self.due.remove(&(until, Due::Claim(key)))),
            Claimed::Bound(connection) => {
                for flow in [connection.flow, connection.back].into_iter().flatten() {
                    self.flows.remove(&flow);
                    self.forget_retry(flow);
                }
            }
        }
        if let Some(assignment) = self.assignments.get_mut(&claim.id) {
            assignment.claims.remove(&key);
            if let Some(slot) = assignment.slots.get_mut(claim.slot) {
                slot.users = slot.users.saturating_sub(1);
            }
        }
        self.start_lifetime_if_unused(now, claim.id);
    }

    /// Ends an assignment, but not its connections.
    fn close(&mut self, now: Nanos, id: AssignmentId) {
        let Some(assignment) = self.assignments.get_mut(&id) else { return };
        assignment.released = true;
        let keys: Vec<ClaimKey> = assignment.claims.iter().copied().collect();
        for key in keys {
            if self.claims.get(&key).is_some_and(|claim| matches!(claim.state, Claimed::Waiting { .. })) {
                self.end_claim(now, key);
            }
        }
        if self.assignments.get(&id).is_some_and(|assignment| assignment.claims.is_empty()) {
            self.remove(id);
        }
    }
}

/// Decrements the count of a key. Returns whether it reached 0.
fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count = count.saturating_sub(1);
    let last = *count == 0;
    if last {
        counts.remove(key);
    }
    last
}
