//! Lists of assignments for operators and owners.

use super::{Assignment, AssignmentId, Assignments, Claimed, Owner, PathRequest};
use pathloom_model::{Nanos, Path};

/// An entry of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its identifier.
    pub id: AssignmentId,
    /// Its owner, who may claim its paths and release it.
    pub owner: Owner,
    /// The request that it answers.
    pub request: PathRequest,
    /// Its paths in the order in which they are claimed, each with its number of claims and connections.
    pub paths: Vec<(Path, u32)>,
    /// Number of claims whose connection has not been opened yet.
    pub waiting: usize,
    /// Number of connections on its paths.
    pub connections: usize,
    /// When it expires if nobody uses it; `None` while it has claims or connections.
    pub until: Option<Nanos>,
    /// Whether it was released and only waits for its connections to end.
    pub released: bool,
}

impl Listed {
    pub(super) fn of(all: &Assignments, id: AssignmentId, of: &Assignment) -> Listed {
        let is_bound = |key| all.claims.get(key).is_some_and(|claim| matches!(claim.state, Claimed::Bound(_)));
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
