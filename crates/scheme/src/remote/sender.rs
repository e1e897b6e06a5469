//! The changes of a view, found by comparison with a copy, and applied to another copy.

use super::ViewChange;
use crate::{FlowId, FlowMap, FlowView, HopWeights, PlannedWeights, View};
use pathloom_model::{Fabric, LinkId, NodeId};

/// Finds what has changed in a view since the last time.
///
/// It keeps a copy of its own. A clone of the view would share its flows, and the controller would copy all of them with
/// its next change. A comparison reads each flow once.
pub struct ViewSender {
    /// What the other end knows; `None` if it knows nothing.
    known: Option<View>,
    /// Number of changes of the links ([`pathloom_model::LinkState::version`]) at the last call.
    version: u64,
}

impl Default for ViewSender {
    fn default() -> ViewSender {
        ViewSender::new()
    }
}

impl ViewSender {
    /// The other end knows nothing yet.
    pub fn new() -> ViewSender {
        ViewSender { known: None, version: 0 }
    }

    /// The other end has forgotten everything.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// What has changed in `view` since the last call.
    pub fn changes(&mut self, view: &View) -> ViewChange {
        let fresh = self.known.is_none();
        let known = self.known.get_or_insert_with(|| View::new(view.fabric.clone()));
        let mut change = ViewChange { fresh, ..ViewChange::default() };
        change_of_flows(&known.flows, &view.flows, &mut change);
        if fresh || self.version != view.links.version() {
            change_of_links(known, view, &mut change);
            self.version = view.links.version();
        }
        change.defaults = (known.defaults != view.defaults).then_some(view.defaults);
        change.weights = (*known.weights != *view.weights).then(|| listed(&view.weights));
        change.busy_share = (known.busy_share != view.busy_share).then(|| view.busy_share.to_string());
        change.first_answer = (known.first_answer != view.first_answer).then_some([view.first_answer]);
        let rtt = known.switch_rtt.iter().zip(view.switch_rtt.iter()).zip(0..);
        change.switch_rtt.extend(rtt.filter(|((was, is), _)| was != is).map(|((_, &is), node)| (NodeId(node), is)));
        let loads = known.link_load_bps.iter().zip(view.link_load_bps.iter()).zip(0..);
        change
            .link_load_bps
            .extend(loads.filter(|((was, is), _)| was != is).map(|((_, &is), link)| (LinkId(link), is)));
        change.apply(known);
        change
    }
}

fn change_of_flows(known: &FlowMap<FlowView>, now: &FlowMap<FlowView>, change: &mut ViewChange) {
    let mut left = known.iter().peekable();
    for (id, flow) in now.iter() {
        while let Some((&gone, _)) = left.next_if(|(known, _)| *known < id) {
            change.gone.push(gone);
        }
        let was = left.next_if(|(known, _)| *known == id).map(|(_, was)| was);
        if was != Some(flow) {
            change.flows.push((*id, flow.clone()));
        }
    }
    change.gone.extend(left.map(|(&gone, _)| gone));
}

fn change_of_links(known: &View, now: &View, change: &mut ViewChange) {
    let cables = (0..now.fabric.links().len() as u32).step_by(2).map(LinkId);
    let changed = cables.filter(|&link| known.links.is_up(link) != now.links.is_up(link));
    change.links.extend(changed.map(|link| (link, now.links.is_up(link))));
}

fn listed(weights: &PlannedWeights) -> Vec<HopWeights> {
    let one =
        |(&(switch, tor), weights): (&(NodeId, NodeId), &Vec<_>)| HopWeights { switch, tor, weights: weights.clone() };
    weights.iter().map(one).collect()
}

impl ViewChange {
    /// Whether all numbers of nodes and links are those of the fabric.
    pub(super) fn fits(&self, fabric: &Fabric) -> bool {
        let (nodes, links) = (fabric.nodes().len(), fabric.links().len());
        let link = |link: &LinkId| link.index() < links;
        self.links.iter().all(|(one, _)| link(one))
            && self.link_load_bps.iter().all(|(one, _)| link(one))
            && self.switch_rtt.iter().all(|(node, _)| node.index() < nodes)
    }

    /// Makes the changes in a view. The change fits its fabric.
    pub(super) fn apply(&self, view: &mut View) {
        let flows: &mut FlowMap<FlowView> = &mut view.flows;
        self.gone.iter().for_each(|gone: &FlowId| drop(flows.remove(gone)));
        self.flows.iter().for_each(|(id, flow)| drop(flows.insert(*id, flow.clone())));
        self.links.iter().for_each(|&(link, up)| {
            view.links.set_cable(link, up);
        });
        self.defaults.iter().for_each(|&defaults| view.defaults = defaults);
        if let Some(all) = &self.weights {
            view.weights =
                all.iter().map(|one| ((one.switch, one.tor), one.weights.clone())).collect::<PlannedWeights>().into();
        }
        self.busy_share.iter().for_each(|digits| view.busy_share = digits.parse().unwrap_or_default());
        self.first_answer.iter().for_each(|&[first]| view.first_answer = first);
        self.switch_rtt.iter().for_each(|&(node, rtt)| view.switch_rtt[node.index()] = rtt);
        self.link_load_bps.iter().for_each(|&(link, load)| view.link_load_bps[link.index()] = load);
    }
}
