//! Reasons why flows are where they are: recent decisions, and the event that led to each of them.

use pathloom_model::{LinkId, Nanos, NodeId, Path};
use pathloom_scheme::{Event, FlowId, Rejection};
use serde::Serialize;
use std::collections::VecDeque;

/// Number of stored decisions of all flows. In addition, the last decision that placed a flow is stored as long as
/// the flow is known.
const KEPT: usize = 4096;

/// Event that led to a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Cause {
    /// A scheme was put in charge.
    Started,
    /// A long flow was found.
    FlowArrived {
        /// The flow.
        flow: FlowId,
    },
    /// A subflow requested to be opened.
    SubflowArrived {
        /// The subflow.
        flow: FlowId,
    },
    /// A flow was found on its path, after a restart or a change of scheme.
    FlowAdopted {
        /// The flow.
        flow: FlowId,
    },
    /// A flow ended.
    FlowFinished {
        /// The flow.
        flow: FlowId,
    },
    /// Rates were measured.
    RatesMeasured,
    /// A link came up or went down, left service or returned to it.
    LinkChanged {
        /// The link.
        link: LinkId,
        /// Whether the link can be used.
        up: bool,
    },
    /// A path was confirmed.
    RouteConfirmed {
        /// The flow.
        flow: FlowId,
    },
    /// A path could not be set up.
    RouteRejected {
        /// The flow.
        flow: FlowId,
    },
    /// The time-out that the scheme had set expired.
    Timeout,
}

impl Cause {
    /// Returns the cause that corresponds to an event. `None` for the answer of a job, whose cause is the one for
    /// which the job was started.
    fn of(event: &Event) -> Option<Cause> {
        Some(match *event {
            Event::Started => Cause::Started,
            Event::FlowArrived { flow } => Cause::FlowArrived { flow },
            Event::SubflowArrived { flow, .. } => Cause::SubflowArrived { flow },
            Event::FlowAdopted { flow } => Cause::FlowAdopted { flow },
            Event::FlowFinished { flow } => Cause::FlowFinished { flow },
            Event::RatesMeasured { .. } => Cause::RatesMeasured,
            Event::LinkChanged { link, up } => Cause::LinkChanged { link, up },
            Event::RouteConfirmed { flow } => Cause::RouteConfirmed { flow },
            Event::RouteRejected { flow, .. } => Cause::RouteRejected { flow },
            Event::Timeout => Cause::Timeout,
            Event::Solved { .. } => return None,
        })
    }
}

/// A decision for a flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The scheme requested this path.
    Route {
        /// The path.
        path: Path,
        /// Bandwidth that the scheme expects for the flow.
        rate_bps: Option<u64>,
    },
    /// An application claimed this path for the flow.
    Assigned {
        /// The path.
        path: Path,
    },
    /// The scheme put the flow back on the default routes.
    Unroute,
    /// The scheme held the flow.
    Hold,
    /// The scheme released the flow.
    Release,
    /// The controller put the flow back on the default routes, because this link of its path is down.
    Rescued {
        /// The link.
        link: LinkId,
    },
    /// The controller put the flow back on the default routes, because its path contains something out of service and
    /// the scheme did not move it in time.
    Drained,
    /// The controller put the flow back on the default routes, because its host had more than its share of the rules
    /// of this switch and others needed them.
    MadeRoom {
        /// The switch.
        switch: NodeId,
    },
    /// The flow was found on this path in the switches.
    Adopted {
        /// The path.
        path: Path,
    },
    /// A path for the flow could not be set up.
    Rejected {
        /// Why it was rejected.
        why: Rejection,
    },
}

/// A decision, and the event that led to it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reason {
    /// Time of the decision.
    pub at: Nanos,
    /// The scheme in charge.
    pub scheme: &'static str,
    /// The event that led to the decision; `None` if the controller decided by itself.
    pub cause: Option<Cause>,
    /// Whether the decision came from a job that was started at that event, and not directly from the event.
    pub solved: bool,
    /// The decision.
    pub decision: Decision,
}

/// The [`Reason`] why a flow is where it is, in two thirds of the memory, because each flow has one.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    at: Nanos,
    cause: Option<Cause>,
    /// Path of a route, assignment or adoption.
    path: Option<Path>,
    /// Bandwidth that the scheme expects, or the number of the dead link or of the full switch.
    number: u64,
    place: Place,
    /// Index in [`Reasons::schemes`] of the scheme that was in charge.
    scheme: u8,
    solved: bool,
}

/// Kind of a decision that placed a flow.
#[derive(Clone, Copy, Debug)]
enum Place {
    Route,
    RouteAtRate,
    Adopted,
    Assigned,
    Unroute,
    Rescued,
    Drained,
    MadeRoom,
}

impl Placed {
    /// Returns `None` for a decision that does not place a flow.
    fn new(reason: &Reason, scheme: u8) -> Option<Placed> {
        let (place, path, number) = match &reason.decision {
            Decision::Route { path, rate_bps: None } => (Place::Route, Some(path), 0),
            Decision::Route { path, rate_bps: Some(rate_bps) } => (Place::RouteAtRate, Some(path), *rate_bps),
            Decision::Adopted { path } => (Place::Adopted, Some(path), 0),
            Decision::Assigned { path } => (Place::Assigned, Some(path), 0),
            Decision::Unroute => (Place::Unroute, None, 0),
            Decision::Rescued { link } => (Place::Rescued, None, u64::from(link.0)),
            Decision::Drained => (Place::Drained, None, 0),
            Decision::MadeRoom { switch } => (Place::MadeRoom, None, u64::from(switch.0)),
            Decision::Hold | Decision::Release | Decision::Rejected { .. } => return None,
        };
        let Reason { at, cause, solved, .. } = *reason;
        Some(Placed { at, cause, path: path.cloned(), number, place, scheme, solved })
    }

    fn reason(&self, schemes: &[&'static str]) -> Reason {
        let decision = match (self.place, self.path.clone()) {
            (Place::Route, Some(path)) => Decision::Route { path, rate_bps: None },
            (Place::RouteAtRate, Some(path)) => Decision::Route { path, rate_bps: Some(self.number) },
            (Place::Adopted, Some(path)) => Decision::Adopted { path },
            (Place::Assigned, Some(path)) => Decision::Assigned { path },
            (Place::Rescued, _) => Decision::Rescued { link: LinkId(self.number as u32) },
            (Place::Drained, _) => Decision::Drained,
            (Place::MadeRoom, _) => Decision::MadeRoom { switch: NodeId(self.number as u32) },
            _ => Decision::Unroute,
        };
        let scheme = schemes.get(usize::from(self.scheme)).copied().unwrap_or_default();
        Reason { at: self.at, scheme, cause: self.cause, solved: self.solved, decision }
    }
}

/// Stored reasons.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    /// Names of the schemes that were in charge.
    schemes: Vec<&'static str>,
    /// Index of the scheme in charge.
    active_scheme: u8,
    recent: VecDeque<(FlowId, Reason)>,
    /// All decisions since they were last taken; `None` unless they are recorded.
    pub(crate) journal: Option<Vec<(FlowId, Reason)>>,
    /// The event that led to the current actions, and whether they come from a job that it started.
    now: Option<(Cause, bool)>,
    /// Causes of the jobs whose answers the scheme has not handled yet, in the order in which it will handle them.
    answered: VecDeque<Option<Cause>>,
}

impl Reasons {
    /// The scheme is about to handle this event.
    pub(crate) fn begin(&mut self, event: &Event) {
        self.now = match Cause::of(event) {
            Some(cause) => Some((cause, false)),
            None => self.answered.pop_front().flatten().map(|cause| (cause, true)),
        };
    }

    /// The following decisions are not by the scheme.
    pub(crate) fn end(&mut self) {
        self.now = None;
    }

    /// The cause of the current actions. If they start a job, it must be passed to [`Reasons::answer`] when the job
    /// is done.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.now.map(|(cause, _)| cause)
    }

    /// The scheme will handle the answer of a job with this cause.
    pub(crate) fn answer(&mut self, cause: Option<Cause>) {
        self.answered.push_back(cause);
    }

    /// Another scheme takes over, and gets no answers of earlier jobs.
    pub(crate) fn forget_jobs(&mut self) {
        self.answered.clear();
    }

    /// Sets the scheme in charge.
    pub(crate) fn set_active_scheme(&mut self, scheme: &'static str) {
        let known = self.schemes.iter().position(|&known| known == scheme);
        let number = known.unwrap_or_else(|| {
            self.schemes.push(scheme);
            self.schemes.len() - 1
        });
        // There are fewer than 256: the registry has a tenth of that.
        self.active_scheme = u8::try_from(number).unwrap_or(u8::MAX);
    }

    /// Stores a decision. Returns the part that the flow must store, if the decision places it.
    pub(crate) fn note(&mut self, at: Nanos, flow: FlowId, decision: Decision) -> Option<Placed> {
        let (cause, solved) = self.now.map_or((None, false), |(cause, solved)| (Some(cause), solved));
        let scheme = self.schemes.get(usize::from(self.active_scheme)).copied().unwrap_or_default();
        let reason = Reason { at, scheme, cause, solved, decision };
        let placed = Placed::new(&reason, self.active_scheme);
        if let Some(journal) = &mut self.journal {
            journal.push((flow, reason.clone()));
        }
        if self.recent.len() >= KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((flow, reason));
        placed
    }

    /// Returns the full reason for a placement that a flow stores.
    pub(crate) fn explain(&self, placed: &Placed) -> Reason {
        placed.reason(&self.schemes)
    }

    /// Recent decisions for a flow, oldest first.
    pub(crate) fn history(&self, flow: FlowId) -> Vec<&Reason> {
        self.recent.iter().filter(|(other, _)| *other == flow).map(|(_, reason)| reason).collect()
    }
}
