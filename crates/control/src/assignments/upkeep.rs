//! Changes of assignments without a request: by time, links, hosts that move, and paths that switches refuse.

use super::search::Found;
use super::{Assignment, AssignmentId, Assignments, ClaimKey, Claimed, Due, Facts, Slot};
use pathloom_model::{FiveTuple, Nanos, Path};
use pathloom_scheme::FlowId;

/// From the refusal of a path to the next attempt. It is doubled for each refusal in a row, at most three times.
const RETRY: Nanos = Nanos::from_secs(1);
const MOST_DOUBLINGS: u32 = 3;

/// From the claim of a path to the time at which a first packet should have been seen. Its copy needs some
/// milliseconds.
const UNSEEN: Nanos = Nanos::from_millis(100);

/// Results of expired timers.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct DueNow {
    /// Flows that must be put on their paths again.
    pub again: Vec<FlowId>,
    /// Connections that get their paths although no first packet of them was seen.
    pub unseen: Vec<(ClaimKey, FiveTuple)>,
}

impl Assignments {
    /// When [`Assignments::handle_timeout`] has work to do.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first().map(|&(at, _)| at)
    }

    /// Handles expired timers: ends claims and assignments, and returns the work for the caller.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) -> DueNow {
        let mut found = DueNow::default();
        while let Some(&(_, due)) = self.due.first().filter(|&&(at, _)| at <= now) {
            self.due.pop_first();
            match due {
                Due::Claim(key) => self.end_claim(now, key),
                Due::Assignment(id) => self.close(now, id),
                Due::Retry(flow) => found.again.push(flow),
                Due::Unseen(key) => {
                    let port = self.unseen.remove(&key).map(|(_, dst_port)| dst_port);
                    let five_tuple = ClaimKey { dst_port: port, ..key }.five_tuple();
                    found.unseen.extend(five_tuple.map(|five_tuple| (key, five_tuple)));
                }
            }
        }
        found
    }

    /// A connection is about to be opened to this port. If its first packet is not seen soon, the connection gets its
    /// path without it.
    pub(crate) fn open_unseen_later(&mut self, now: Nanos, key: ClaimKey, dst_port: u16) {
        self.forget_unseen(key);
        if self.is_waiting(key) {
            let at = now.saturating_add(UNSEEN);
            self.unseen.insert(key, (at, dst_port));
            self.due.insert((at, Due::Unseen(key)));
        }
    }

    /// The first packet was seen, or is not expected any more.
    pub(super) fn forget_unseen(&mut self, key: ClaimKey) {
        if let Some((at, _)) = self.unseen.remove(&key) {
            self.due.remove(&(at, Due::Unseen(key)));
        }
    }

    /// A flow is not on its path. It is put there again after some time.
    pub(crate) fn try_later(&mut self, now: Nanos, flow: FlowId) {
        if !self.flows.contains_key(&flow) {
            return;
        }
        let refusals = self.retries.get(&flow).map_or(0, |&(_, refusals)| refusals);
        let wait = Nanos(RETRY.0 << refusals.min(MOST_DOUBLINGS));
        self.forget_retry(flow);
        let at = now.saturating_add(wait);
        self.retries.insert(flow, (at, refusals.saturating_add(1)));
        self.due.insert((at, Due::Retry(flow)));
    }

    /// The path of a flow is down, and there is no other. The flow waits until a link comes up.
    pub(crate) fn await_link(&mut self, now: Nanos, flow: FlowId) {
        self.retries.entry(flow).or_insert((now, 0));
    }

    /// A flow is on its path, or has ended. Deletes its next attempt.
    pub(crate) fn forget_retry(&mut self, flow: FlowId) {
        if let Some((at, _)) = self.retries.remove(&flow) {
            self.due.remove(&(at, Due::Retry(flow)));
        }
    }

    /// Links came up or went down. Dead paths are replaced as far as other paths are up, and assignments that lack
    /// paths get more. Returns the flows whose path has changed or is up again.
    pub(crate) fn links_changed(&mut self, at: &Facts<'_>) -> Vec<FlowId> {
        let mut found = Found::default();
        let mut again = Vec::new();
        for id in self.assignments.keys().copied().collect::<Vec<_>>() {
            let Some(assignment) = self.assignments.get(&id) else { continue };
            let (request, ends) = (assignment.request, assignment.ends);
            let wanted = request.count as usize;
            if assignment.slots.len() >= wanted && assignment.slots.iter().all(|slot| slot.path.is_up(at.links)) {
                // All its paths may have been down for a while, so flows may wait for them.
                again.extend(self.retrying(id));
                continue;
            }
            let present: Vec<Path> = assignment.slots.iter().map(|slot| slot.path.clone()).collect();
            let paths = found.renew((at.fabric, at.links), ends, request.search, wanted, &present);
            if paths.is_empty() {
                // The flows wait on the default routes until a link is up again.
                for flow in self.flows_of(id) {
                    self.await_link(at.now, flow);
                }
                continue;
            }
            self.replace(id, paths);
            again.extend(self.flows_of(id));
        }
        again
    }

    /// Addresses have moved. Assignments get paths between the new places of their ends. Assignments with an end that
    /// does not exist any more are closed.
    pub(crate) fn addresses_changed(&mut self, at: &Facts<'_>) {
        for id in self.assignments.keys().copied().collect::<Vec<_>>() {
            let Some(assignment) = self.assignments.get_mut(&id) else { continue };
            let request = assignment.request;
            match at.ends(request.src, request.dst) {
                Ok(ends) if ends == assignment.ends => {}
                Ok(ends) => {
                    assignment.ends = ends;
                    let paths = super::search::find(at.fabric, at.links, ends, request.search, request.count as usize);
                    if paths.is_empty() {
                        self.close(at.now, id);
                    } else {
                        self.replace(id, paths);
                    }
                }
                Err(_) => self.close(at.now, id),
            }
        }
    }

    /// Replaces the paths of an assignment by `paths`, which must not be empty. Claims keep their path or get another
    /// one instead: an unused new path if there is one, else one of those with the fewest users.
    fn replace(&mut self, id: AssignmentId, paths: Vec<Path>) {
        let Some(assignment) = self.assignments.get_mut(&id) else { return };
        let before: Vec<Path> = assignment.slots.drain(..).map(|slot| slot.path).collect();
        let kept = |path: &Path| before.contains(path);
        let mut unused = (0..paths.len()).filter(|&slot| !kept(&paths[slot]));
        let replacement: Vec<Option<usize>> =
            before.iter().map(|path| paths.iter().position(|other| other == path).or_else(|| unused.next())).collect();
        assignment.slots = paths.into_iter().map(|path| Slot { path, users: 0 }).collect();
        let Assignment { slots, claims, .. } = assignment;
        let mut left: Vec<ClaimKey> = Vec::new();
        for key in claims.iter() {
            let Some(claim) = self.claims.get_mut(key) else { continue };
            match replacement.get(claim.slot).copied().flatten() {
                Some(slot) => {
                    claim.slot = slot;
                    slots[slot].users += 1;
                }
                None => left.push(*key),
            }
        }
        for key in left {
            let least = slots.iter().enumerate().min_by_key(|(_, slot)| slot.users).map(|(slot, _)| slot);
            if let (Some(claim), Some(slot)) = (self.claims.get_mut(&key), least) {
                claim.slot = slot;
                slots[slot].users += 1;
            }
        }
    }

    /// Flows of the connections of an assignment.
    fn flows_of(&self, id: AssignmentId) -> Vec<FlowId> {
        let claims = self.assignments.get(&id).into_iter().flat_map(|assignment| &assignment.claims);
        let connections = claims.filter_map(|key| match self.claims.get(key)?.state {
            Claimed::Bound(connection) => Some(connection),
            Claimed::Waiting { .. } => None,
        });
        connections.flat_map(|connection| [connection.flow, connection.back]).flatten().collect()
    }

    /// Those of them that wait for another attempt.
    fn retrying(&self, id: AssignmentId) -> Vec<FlowId> {
        if self.retries.is_empty() {
            return Vec::new();
        }
        let mut flows = self.flows_of(id);
        flows.retain(|flow| self.retries.contains_key(flow));
        flows
    }
}
