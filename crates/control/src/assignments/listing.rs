//! Assignments as they are shown to operators and to their owners.

use super::{Assignment, AssignmentId, Assignments, Claimed, Owner, PathRequest};
use pathloom_model::{Nanos, Path};
use std::ops::Bound;

/// An assignment, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its name.
    pub id: AssignmentId,
    /// Who may claim its paths and release it.
    pub owner: Owner,
    /// What was asked for.
    pub request: PathRequest,
    /// Its paths in the order in which they are claimed, and how many claims and connections have each.
    pub paths: Vec<(Path, u32)>,
    /// Claims whose connection has not come yet.
    pub waiting: usize,
    /// Connections on its paths.
    pub connections: usize,
    /// When it expires if nobody uses it; `None` while there are claims or connections.
    pub until: Option<Nanos>,
    /// Whether it only waits for its connections to end.
    pub released: bool,
}

impl Assignments {
    /// An assignment; `None` if there is none of this name.
    pub fn get(&self, id: AssignmentId) -> Option<Listed> {
        self.assignments.get(&id).map(|assignment| self.listed(id, assignment))
    }

    /// Assignments after one of them, in the order of their names; of one owner if one is named.
    pub fn list<'a>(
        &'a self,
        after: Option<AssignmentId>,
        owner: Option<&'a Owner>,
    ) -> impl Iterator<Item = Listed> + 'a {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.assignments.range((start, Bound::Unbounded));
        let wanted = move |of: &&Assignment| owner.is_none_or(|owner| of.owner == *owner);
        all.filter(move |(_, of)| wanted(of)).map(|(&id, of)| self.listed(id, of))
    }

    fn listed(&self, id: AssignmentId, of: &Assignment) -> Listed {
        let is_bound = |key| self.claims.get(key).is_some_and(|claim| matches!(claim.state, Claimed::Bound(_)));
        let connections = of.claims.iter().filter(|key| is_bound(key)).count();
        Listed {
            id,
            owner: of.owner.clone(),
            request: of.request,
            paths: of.slots.iter().map(|slot| (slot.path.clone(), slot.users)).collect(),
            waiting: of.claims.len() - connections,
            connections,
            until: of.claims.is_empty().then_some(of.until),
            released: of.released,
        }
    }
}
