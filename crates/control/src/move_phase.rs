//! The move of a flow and its progress. Each phase contains the data that it needs.

use pathloom_model::{Nanos, NodeId, Path};
use std::num::NonZeroU32;

/// A move in progress.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// Number of the move, by which late confirmations of an abandoned move are recognised.
    pub number: NonZeroU32,
    /// Plan of the new version.
    pub plan: u8,
    /// Level of the new rule at the source ToR.
    pub level: u8,
    /// The current phase.
    pub phase: Phase,
    /// When the move was requested.
    pub begun: Nanos,
    /// Number of confirmations that the phase still waits for.
    pub waiting: u32,
}

/// The phase of a move.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// A phase of a move by tags ([`crate::plan`]).
    Tagged(TagPhase),
    /// A phase of a move in place ([`crate::sfmm`]).
    InPlace(Box<InPlace>),
}

/// The phase of a move by tags: steps 1 to 3 of [`crate::plan`]. At step 4 the flow is already on its new path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TagPhase {
    /// The rules of the new version are added at all switches except the first.
    AddHops,
    /// The new rule is added at the source ToR.
    AddSource,
    /// The old rules are deleted at the source ToR.
    DeleteOld,
}

impl TagPhase {
    /// Returns the next phase; `None` if the flow is on its new path.
    pub(crate) fn next(self) -> Option<TagPhase> {
        match self {
            TagPhase::AddHops => Some(TagPhase::AddSource),
            TagPhase::AddSource => Some(TagPhase::DeleteOld),
            TagPhase::DeleteOld => None,
        }
    }
}

/// A move in place.
#[derive(Clone, Debug)]
pub(crate) struct InPlace {
    /// Switches on both paths, in the order in which the old rules are deleted.
    pub order: Vec<NodeId>,
    /// The current phase.
    pub phase: InPlacePhase,
}

/// The phase of a move in place, as listed in [`crate::sfmm`].
#[derive(Clone, Debug)]
pub(crate) enum InPlacePhase {
    /// The low rules of the new path are added at all switches except the first. `old`: plan of the old version.
    AddHops { old: u8 },
    /// The low rule is added at the source ToR.
    AddSource { old: u8 },
    /// The old rule is deleted at the first cutover switch.
    CutFirst(Cutover),
    /// The old rules are deleted at the other cutover switches.
    CutRest(Cutover),
    /// Copies of the new rules are added with normal priority. `plan`: their plan. `level`: their level at the source
    /// ToR.
    AddCopies { plan: u8, level: u8 },
    /// The low rules are deleted. `copy`: plan of the copies.
    DeleteLow { copy: u8 },
}

/// Data for the time in which the old rules are deleted.
#[derive(Clone, Debug)]
pub(crate) struct Cutover {
    /// Plan of the old version.
    pub old: u8,
    /// A path that was requested meanwhile.
    pub next: Option<Path>,
}

/// Progress of a move in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Every packet uses the old path.
    Before,
    /// A packet may use parts of both paths.
    Between,
    /// Every packet uses the new path.
    After,
}

/// What follows a phase of which all steps are confirmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// The next phase.
    Phase,
    /// Nothing, because the flow is on its new path.
    Arrival,
    /// The move to a path that was requested while the flow was between two paths. The flow is on its new path.
    MoveTo(Path),
}

impl Move {
    /// Whether its rule at the source ToR has not been sent, so that no packet can enter the new version.
    pub(crate) fn adds_hops(&self) -> bool {
        match &self.phase {
            Phase::Tagged(phase) => *phase == TagPhase::AddHops,
            Phase::InPlace(way) => matches!(way.phase, InPlacePhase::AddHops { .. }),
        }
    }

    /// Whether its rule at the source ToR has been sent but not confirmed.
    pub(crate) fn adds_source(&self) -> bool {
        match &self.phase {
            Phase::Tagged(phase) => *phase == TagPhase::AddSource,
            Phase::InPlace(way) => matches!(way.phase, InPlacePhase::AddSource { .. }),
        }
    }

    /// Whether its rule at the source ToR is confirmed. From then on, a move by tags is completed in any case.
    pub(crate) fn is_committed(&self) -> bool {
        !self.adds_hops() && !self.adds_source()
    }

    /// Returns the progress of a move in place; `None` for a move by tags.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match &self.phase {
            Phase::Tagged(_) => None,
            Phase::InPlace(way) => Some(match way.phase {
                InPlacePhase::AddHops { .. } | InPlacePhase::AddSource { .. } => Stage::Before,
                InPlacePhase::CutFirst(_) | InPlacePhase::CutRest(_) => Stage::Between,
                InPlacePhase::AddCopies { .. } | InPlacePhase::DeleteLow { .. } => Stage::After,
            }),
        }
    }

    /// Returns the plan of the old version of a move in place, as long as its rules exist.
    pub(crate) fn old_plan(&self) -> Option<u8> {
        let Phase::InPlace(way) = &self.phase else { return None };
        match &way.phase {
            InPlacePhase::AddHops { old } | InPlacePhase::AddSource { old } => Some(*old),
            InPlacePhase::CutFirst(cutover) | InPlacePhase::CutRest(cutover) => Some(cutover.old),
            InPlacePhase::AddCopies { .. } | InPlacePhase::DeleteLow { .. } => None,
        }
    }

    /// Returns the plan of the copies with normal priority, while they are added.
    pub(crate) fn added_copy(&self) -> Option<u8> {
        match &self.phase {
            Phase::InPlace(way) => match way.phase {
                InPlacePhase::AddCopies { plan, .. } => Some(plan),
                _ => None,
            },
            Phase::Tagged(_) => None,
        }
    }

    /// Returns the path that was requested while the flow was between two paths.
    pub(crate) fn into_next(self) -> Option<Path> {
        let Phase::InPlace(way) = self.phase else { return None };
        match way.phase {
            InPlacePhase::CutFirst(cutover) | InPlacePhase::CutRest(cutover) => cutover.next,
            _ => None,
        }
    }

    /// Returns the data for the time in which a flow is between two paths.
    pub(crate) fn cutover_mut(&mut self) -> Option<&mut Cutover> {
        let Phase::InPlace(way) = &mut self.phase else { return None };
        match &mut way.phase {
            InPlacePhase::CutFirst(cutover) | InPlacePhase::CutRest(cutover) => Some(cutover),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::successors;

    fn at(phase: Phase) -> Move {
        Move { number: NonZeroU32::MIN, plan: 7, level: 1, phase, begun: Nanos::ZERO, waiting: 0 }
    }

    #[test]
    fn a_move_by_tags_is_committed_when_its_source_rule_is_confirmed() {
        let phases = successors(Some(TagPhase::AddHops), |phase| phase.next());
        let moves: Vec<Move> = phases.map(|phase| at(Phase::Tagged(phase))).collect();
        let told: Vec<_> = moves.iter().map(|all| (all.adds_hops(), all.adds_source(), all.is_committed())).collect();
        assert_eq!(told, [(true, false, false), (false, true, false), (false, false, true)]);
        assert!(moves.iter().all(|all| all.stage().is_none() && all.old_plan().is_none()));
    }

    #[test]
    fn a_move_in_place_holds_what_its_phase_needs() {
        let next = Path::empty();
        let cutover = || Cutover { old: 3, next: Some(next.clone()) };
        let (old, before, between, after) = (Some(3), Some(Stage::Before), Some(Stage::Between), Some(Stage::After));
        // Phase, and its stage, old plan, plan of the copies, whether a path is requested next.
        let expected = [
            (InPlacePhase::AddHops { old: 3 }, (before, old, None, false)),
            (InPlacePhase::AddSource { old: 3 }, (before, old, None, false)),
            (InPlacePhase::CutFirst(cutover()), (between, old, None, true)),
            (InPlacePhase::CutRest(cutover()), (between, old, None, true)),
            (InPlacePhase::AddCopies { plan: 9, level: 2 }, (after, None, Some(9), false)),
            (InPlacePhase::DeleteLow { copy: 9 }, (after, None, None, false)),
        ];
        for (phase, expected) in expected {
            let mut current_move = at(Phase::InPlace(Box::new(InPlace { order: Vec::new(), phase })));
            assert_eq!(current_move.cutover_mut().is_some(), expected.3, "{current_move:?}");
            let told = (
                current_move.stage(),
                current_move.old_plan(),
                current_move.added_copy(),
                current_move.clone().into_next().is_some(),
            );
            assert_eq!(told, expected, "{current_move:?}");
        }
    }
}
