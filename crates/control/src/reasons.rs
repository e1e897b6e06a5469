//! Why flows are where they are: what was decided for them lately, and what led to it.

use crate::context::Context;
use crate::flows::FlowTable;
use pathloom_model::{LinkId, Nanos, Path};
use pathloom_scheme::{Event, FlowId, Rejection};
use serde::Serialize;
use std::collections::VecDeque;

/// Decisions kept, of all flows together; the last that placed a flow is kept for as long as the flow is known.
const KEPT: usize = 4096;

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Cause {
    /// The scheme took charge.
    Started,
    /// A long flow was found.
    FlowArrived {
        /// The flow.
        flow: FlowId,
    },
    /// A subflow asked to be opened.
    SubflowArrived {
        /// The subflow.
        flow: FlowId,
    },
    /// A flow was found standing, after a restart or a change of scheme.
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
    /// A link came up or went down, or was taken out of service or back.
    LinkChanged {
        /// The link.
        link: LinkId,
        /// Whether it can be used.
        up: bool,
    },
    /// A path was confirmed.
    RouteConfirmed {
        /// Of this flow.
        flow: FlowId,
    },
    /// A path could not be set up.
    RouteRejected {
        /// Of this flow.
        flow: FlowId,
    },
    /// The time came that the scheme had named.
    Timeout,
}

impl Cause {
    /// What an event is; `None` for the answer of a job, whose cause is what the job was begun for.
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

/// What was decided for a flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The scheme asked for this path.
    Route {
        /// The path.
        path: Path,
        /// The bandwidth that the scheme counts on.
        rate_bps: Option<u64>,
    },
    /// An application has claimed this path for it.
    Assigned {
        /// The path.
        path: Path,
    },
    /// The scheme put it back on the default routes.
    Unroute,
    /// The scheme told it to wait.
    Hold,
    /// The scheme let it send.
    Release,
    /// The controller put it back on the default routes: this link of its path is down.
    Rescued {
        /// The link.
        link: LinkId,
    },
    /// The controller put it back on the default routes: its path leads over something out of service, and the scheme
    /// had not moved it in time.
    Drained,
    /// It was found standing on this path in the switches.
    Adopted {
        /// The path.
        path: Path,
    },
    /// A path for it could not be set up.
    Rejected {
        /// Why.
        why: Rejection,
    },
}

/// A decision and what led to it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reason {
    /// When.
    pub at: Nanos,
    /// The scheme in charge.
    pub scheme: &'static str,
    /// What had happened; `None` for what the controller found or did by itself.
    pub cause: Option<Cause>,
    /// Whether the scheme worked it out in a job that was begun when that happened, and not at once.
    pub solved: bool,
    /// What was decided.
    pub decision: Decision,
}

/// The [`Reason`] why a flow is where it is, in two thirds of the room: there is one for each flow.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    at: Nanos,
    cause: Option<Cause>,
    /// Of a route or of what was adopted.
    path: Option<Path>,
    /// The bandwidth that the scheme counts on, or the number of the dead link.
    number: u64,
    place: Place,
    /// Which of [`Reasons::schemes`] was in charge.
    scheme: u8,
    solved: bool,
}

/// Where a flow was put.
#[derive(Clone, Copy, Debug)]
enum Place {
    Route,
    RouteAtRate,
    Adopted,
    Assigned,
    Unroute,
    Rescued,
    Drained,
}

impl Placed {
    /// `None` for a decision that puts no flow anywhere.
    fn new(reason: &Reason, scheme: u8) -> Option<Placed> {
        let (place, path, number) = match &reason.decision {
            Decision::Route { path, rate_bps: None } => (Place::Route, Some(path), 0),
            Decision::Route { path, rate_bps: Some(rate_bps) } => (Place::RouteAtRate, Some(path), *rate_bps),
            Decision::Adopted { path } => (Place::Adopted, Some(path), 0),
            Decision::Assigned { path } => (Place::Assigned, Some(path), 0),
            Decision::Unroute => (Place::Unroute, None, 0),
            Decision::Rescued { link } => (Place::Rescued, None, u64::from(link.0)),
            Decision::Drained => (Place::Drained, None, 0),
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
            _ => Decision::Unroute,
        };
        let scheme = schemes.get(usize::from(self.scheme)).copied().unwrap_or_default();
        Reason { at: self.at, scheme, cause: self.cause, solved: self.solved, decision }
    }
}

/// What is kept of reasons.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    /// Names of the schemes that were in charge.
    schemes: Vec<&'static str>,
    /// Index of the one in charge.
    in_charge: u8,
    recent: VecDeque<(FlowId, Reason)>,
    /// What led to the actions at hand.
    now: Option<(Cause, bool)>,
    /// What led to the jobs whose answers the scheme has not heard yet, in the order in which it will.
    answered: VecDeque<Option<Cause>>,
}

impl Reasons {
    /// The scheme is about to hear this.
    pub(crate) fn begin(&mut self, event: &Event) {
        self.now = match Cause::of(event) {
            Some(cause) => Some((cause, false)),
            None => self.answered.pop_front().flatten().map(|cause| (cause, true)),
        };
    }

    /// The scheme has no part in what comes.
    pub(crate) fn end(&mut self) {
        self.now = None;
    }

    /// What led to the actions at hand, to be given back by [`Reasons::answer`] when a job that they begin is done.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.now.map(|(cause, _)| cause)
    }

    /// The scheme will hear the answer of a job that was begun for this.
    pub(crate) fn answer(&mut self, cause: Option<Cause>) {
        self.answered.push_back(cause);
    }

    /// Another scheme takes over, and hears no answers.
    pub(crate) fn forget_jobs(&mut self) {
        self.answered.clear();
    }

    /// This scheme is in charge from now on.
    pub(crate) fn in_charge(&mut self, scheme: &'static str) {
        let known = self.schemes.iter().position(|&known| known == scheme);
        let number = known.unwrap_or_else(|| {
            self.schemes.push(scheme);
            self.schemes.len() - 1
        });
        // There are no more than 256: the registry has a tenth of that.
        self.in_charge = u8::try_from(number).unwrap_or(u8::MAX);
    }

    /// Notes a decision. Gives what a flow is to remember, if it was put somewhere.
    pub(crate) fn note(&mut self, at: Nanos, flow: FlowId, decision: Decision) -> Option<Placed> {
        let (cause, solved) = self.now.map_or((None, false), |(cause, solved)| (Some(cause), solved));
        let scheme = self.schemes.get(usize::from(self.in_charge)).copied().unwrap_or_default();
        let reason = Reason { at, scheme, cause, solved, decision };
        let placed = Placed::new(&reason, self.in_charge);
        if self.recent.len() >= KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((flow, reason));
        placed
    }

    /// The whole of what a flow remembers.
    pub(crate) fn explain(&self, placed: &Placed) -> Reason {
        placed.reason(&self.schemes)
    }

    /// What was decided for a flow lately, oldest first.
    pub(crate) fn history(&self, flow: FlowId) -> Vec<&Reason> {
        self.recent.iter().filter(|(other, _)| *other == flow).map(|(_, reason)| reason).collect()
    }
}

/// Notes a decision.
pub(crate) fn note(cx: &mut Context, flows: &mut FlowTable, flow: FlowId, decision: Decision) {
    let placed = cx.reasons.note(cx.now, flow, decision);
    if let (Some(placed), Some(known)) = (placed, flows.get_mut(flow)) {
        known.placed = Some(placed);
    }
}
