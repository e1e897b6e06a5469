//! Why flows are where they are: what was decided for them lately, and what led to it.

use crate::controller::Controller;
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
    /// An application asked for paths.
    PathsRequested,
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
            Event::PathsRequested { .. } => Cause::PathsRequested,
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

/// What is kept of reasons.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
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

    fn keep(&mut self, flow: FlowId, reason: Reason) {
        if self.recent.len() >= KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((flow, reason));
    }
}

impl Controller {
    /// Notes a decision.
    pub(crate) fn note(&mut self, flow: FlowId, decision: Decision) {
        let (cause, solved) = self.reasons.now.map_or((None, false), |(cause, solved)| (Some(cause), solved));
        let places = !matches!(decision, Decision::Hold | Decision::Release | Decision::Rejected { .. });
        let reason = Reason { at: self.now, scheme: self.scheme.name(), cause, solved, decision };
        if places {
            if let Some(known) = self.flows.get_mut(flow) {
                known.placed = Some(reason.clone());
            }
        }
        self.reasons.keep(flow, reason);
    }

    /// What put a flow where it is; `None` for one that never left the default routes, or whose reason did not survive
    /// a restart.
    pub fn placement(&self, flow: FlowId) -> Option<&Reason> {
        self.flows.get(flow)?.placed.as_ref()
    }

    /// What was decided for a flow lately, oldest first: as far as it is among the last decisions for all flows, of which
    /// about four thousand are kept.
    pub fn history(&self, flow: FlowId) -> Vec<&Reason> {
        self.reasons.recent.iter().filter(|(other, _)| *other == flow).map(|(_, reason)| reason).collect()
    }
}
