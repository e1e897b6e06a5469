//! Reasons as text, for people who ask why a flow is where it is.

use crate::controller::Controller;
use crate::reasons::{Cause, Decision, Reason};
use pathloom_model::{Fabric, LinkId, Path};
use pathloom_scheme::{FlowId, Rejection};

impl Reason {
    /// Returns the event that led to the decision as a clause: `flow 7 (…) began`.
    pub fn cause_text(&self, controller: &Controller) -> String {
        let fabric = &controller.view().fabric;
        match self.cause {
            None => "a decision of the controller itself".into(),
            Some(cause) if self.solved => {
                format!("a job that started because {}", cause_text(controller, fabric, cause))
            }
            Some(cause) => cause_text(controller, fabric, cause),
        }
    }

    /// Returns the decision and the event that led to it as a sentence.
    pub fn text(&self, controller: &Controller) -> String {
        let decision = decision_text(&controller.view().fabric, &self.decision);
        format!("{} {decision}, because of this: {}", self.scheme, self.cause_text(controller))
    }
}

fn cause_text(controller: &Controller, fabric: &Fabric, cause: Cause) -> String {
    let flow = |flow: FlowId| match controller.view().flows.get(&flow) {
        Some(known) => format!("flow {} ({:?})", flow.0, known.five_tuple),
        None => format!("flow {}", flow.0),
    };
    match cause {
        Cause::Started => "the scheme took charge".into(),
        Cause::FlowArrived { flow: id } => format!("{} began", flow(id)),
        Cause::SubflowArrived { flow: id } => format!("{} requested to be opened as a subflow", flow(id)),
        Cause::FlowAdopted { flow: id } => format!("{} was found with its rules", flow(id)),
        Cause::FlowFinished { flow: id } => format!("{} ended", flow(id)),
        Cause::RatesMeasured => "rates were measured".into(),
        Cause::LinkChanged { link, up } if controller.is_drained(link) && !up => {
            format!("link {} left service", link_name(fabric, link))
        }
        Cause::LinkChanged { link, up: true } => format!("link {} came up", link_name(fabric, link)),
        Cause::LinkChanged { link, up: false } => format!("link {} went down", link_name(fabric, link)),
        Cause::RouteConfirmed { flow: id } => format!("the path of {} was confirmed", flow(id)),
        Cause::RouteRejected { flow: id } => format!("the path of {} could not be set up", flow(id)),
        Cause::Timeout => "the timer of the scheme expired".into(),
    }
}

/// Returns a decision as a clause without its subject: `put it on e0_0 - a0_0 - e0_1`.
pub fn decision_text(fabric: &Fabric, decision: &Decision) -> String {
    let along = |path: &Path| {
        let first = path.links().first().map(|&link| fabric.link(link).from);
        let names = first.map(|first| path.switches(fabric, first)).unwrap_or_default();
        names.iter().map(|&switch| fabric.node(switch).name.as_str()).collect::<Vec<_>>().join(" - ")
    };
    match decision {
        Decision::Route { path, rate_bps: Some(rate) } => {
            format!("put it on {}, expecting {} Mbit/s for it", along(path), *rate as f64 / 1e6)
        }
        Decision::Route { path, rate_bps: None } => format!("put it on {}", along(path)),
        Decision::Assigned { path } => format!("put it on {}, which an application has claimed for it", along(path)),
        Decision::Unroute => "put it on the default routes".into(),
        Decision::Hold => "told it to wait".into(),
        Decision::Release => "let it send".into(),
        Decision::Rescued { link } => {
            format!("put it on the default routes at once: link {} of its path is down", link_name(fabric, *link))
        }
        Decision::Drained => "put it on the default routes: its path contained something out of service".into(),
        Decision::MadeRoom { switch } => format!(
            "put it on the default routes: its host had more than its share of the rules of {}, and others needed them",
            fabric.node(*switch).name
        ),
        Decision::Adopted { path } => format!("left it on {}, where it was found", along(path)),
        Decision::Rejected { why: Rejection::OverBudget(switch) } => {
            let name = &fabric.node(*switch).name;
            format!("left it where it was: its host has its share of the rules of {name} (setting control.rule_limit)")
        }
        Decision::Rejected { why } => format!("left it where it was: {why}"),
    }
}

/// Returns `NODE:PORT` of the start of a link.
pub fn link_name(fabric: &Fabric, link: LinkId) -> String {
    let ends = fabric.link(link);
    format!("{}:{}", fabric.node(ends.from).name, ends.from_port.0)
}
