//! Assignments across a restart of the controller, from a snapshot and from the rules of switches.

use super::{
    Assignment, AssignmentId, Assignments, Claim, ClaimKey, Claimed, Connection, Due, Facts, Owner, PathRequest, Slot,
    Way, ID_MASK,
};
use pathloom_model::{FiveTuple, Nanos, Path};
use pathloom_scheme::FlowId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Assignments and their claims, in a form that survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SavedAssignments {
    last: u32,
    assignments: Vec<SavedAssignment>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct SavedAssignment {
    id: AssignmentId,
    owner: Owner,
    request: PathRequest,
    lifetime: Nanos,
    paths: Vec<Path>,
    claims: Vec<SavedClaim>,
    until: Nanos,
    released: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct SavedClaim {
    src_port: u16,
    /// The destination port, if the connection was open when its path was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dst_port: Option<u16>,
    /// Index of its path.
    slot: usize,
    /// When its wait ends; `None` if its connection is open.
    until: Option<Nanos>,
    /// The port to which its connection is about to be opened, as long as no first packet was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opens_to: Option<u16>,
    /// The flows of its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flow: Option<FlowId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    back: Option<FlowId>,
}

impl Assignments {
    /// Returns the state for a snapshot.
    pub(crate) fn save(&self) -> SavedAssignments {
        let saved = |(&id, of): (&AssignmentId, &Assignment)| SavedAssignment {
            id,
            owner: of.owner.clone(),
            request: of.request,
            lifetime: of.lifetime,
            paths: of.slots.iter().map(|slot| slot.path.clone()).collect(),
            claims: of.claims.iter().filter_map(|key| self.save_claim(key)).collect(),
            until: of.until,
            released: of.released,
        };
        SavedAssignments { last: self.last, assignments: self.assignments.iter().map(saved).collect() }
    }

    fn save_claim(&self, key: &ClaimKey) -> Option<SavedClaim> {
        let claim = self.claims.get(key)?;
        let (until, connection) = match claim.state {
            Claimed::Waiting { until } => (Some(until), Connection { flow: None, back: None }),
            Claimed::Bound(connection) => (None, connection),
        };
        let Connection { flow, back } = connection;
        let ClaimKey { src_port, dst_port, .. } = *key;
        let opens_to = self.unseen.get(key).map(|&(_, dst_port)| dst_port);
        Some(SavedClaim { src_port, dst_port, slot: claim.slot, until, opens_to, flow, back })
    }

    /// Restores assignments that are valid on this fabric. `stands` returns whether a flow is known and has not
    /// ended. Every flow is put on its path again after some time, because a move may have been interrupted.
    pub(crate) fn restore(&mut self, at: &Facts<'_>, saved: SavedAssignments, stands: impl Fn(FlowId) -> bool) {
        self.last = self.last.max(saved.last & ID_MASK);
        for SavedAssignment { id, owner, request, lifetime, paths, claims, until, released } in saved.assignments {
            let Ok(ends) = at.ends(request.src, request.dst) else { continue };
            let joins = |path: &Path| {
                let (first, last) = (path.links().first(), path.links().last());
                let joined = first.zip(last).map(|(&a, &b)| (at.fabric.link(a).from, at.fabric.link(b).to));
                joined.unwrap_or((ends.0, ends.0)) == ends
            };
            let sound = |path: &Path| path.check(at.fabric).is_ok() && joins(path);
            if paths.is_empty() || !paths.iter().all(sound) || self.assignments.contains_key(&id) {
                continue;
            }
            let slots = paths.into_iter().map(|path| Slot { path, users: 0 }).collect();
            let assignment =
                Assignment { owner, request, lifetime, ends, slots, claims: BTreeSet::new(), until, released };
            self.insert(id, assignment);
            for claim in claims {
                self.restore_claim(at, id, &claim, &stands);
            }
            let Some(assignment) = self.assignments.get(&id).filter(|assignment| assignment.claims.is_empty()) else {
                continue;
            };
            match assignment.released {
                true => self.remove(id),
                // Its last connection may have ended meanwhile, so its lifetime has not been started.
                false if until <= at.now => self.start_lifetime_if_unused(at.now, id),
                false => drop(self.due.insert((until, Due::Assignment(id)))),
            }
        }
    }

    fn restore_claim(
        &mut self,
        at: &Facts<'_>,
        id: AssignmentId,
        saved: &SavedClaim,
        stands: &impl Fn(FlowId) -> bool,
    ) {
        let Some(assignment) = self.assignments.get_mut(&id) else { return };
        let PathRequest { src, dst, .. } = assignment.request;
        let key = ClaimKey { src, dst, src_port: saved.src_port, dst_port: saved.dst_port };
        let [flow, back] = [saved.flow, saved.back].map(|flow| flow.filter(|&flow| stands(flow)));
        let ended = saved.until.is_none() && flow.is_none() && back.is_none();
        let Some(slot) = assignment.slots.get_mut(saved.slot).filter(|_| !ended && !self.claims.contains_key(&key))
        else {
            return;
        };
        slot.users += 1;
        assignment.claims.insert(key);
        let state = match saved.until {
            Some(until) => {
                self.due.insert((until, Due::Claim(key)));
                Claimed::Waiting { until }
            }
            None => Claimed::Bound(Connection { flow, back }),
        };
        self.claims.insert(key, Claim { id, slot: saved.slot, state });
        if let Some(dst_port) = saved.opens_to {
            self.open_unseen_later(at.now, key, dst_port);
        }
        for (flow, way) in [(flow, Way::Forth), (back, Way::Back)] {
            if let Some(flow) = flow.filter(|_| saved.until.is_none()) {
                self.flows.insert(flow, (key, way));
                self.try_later(at.now, flow);
            }
        }
    }

    /// A flow of a connection was found in the switches. If there is a claim for it, the connection is open.
    pub(crate) fn adopted(&mut self, now: Nanos, five_tuple: &FiveTuple, flow: FlowId) {
        if self.flows.contains_key(&flow) {
            return;
        }
        let reverse = five_tuple.reverse();
        let keys = [(five_tuple, Way::Forth), (&reverse, Way::Back)];
        let keys = keys.map(|(ends, way)| [ClaimKey::of(ends), ClaimKey::standing(ends)].map(|key| (key, way)));
        for (key, way) in keys.into_iter().flatten() {
            let Some(claim) = self.claims.get_mut(&key) else { continue };
            let mut connection = match claim.state {
                Claimed::Waiting { until } => {
                    self.due.remove(&(until, Due::Claim(key)));
                    Connection { flow: None, back: None }
                }
                Claimed::Bound(connection) => connection,
            };
            let known = match way {
                Way::Forth => &mut connection.flow,
                Way::Back => &mut connection.back,
            };
            if known.is_none() {
                *known = Some(flow);
                claim.state = Claimed::Bound(connection);
                self.flows.insert(flow, (key, way));
                self.forget_unseen(key);
                return self.try_later(now, flow);
            }
        }
    }
}
