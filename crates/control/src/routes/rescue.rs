//! Handles interrupted paths: dead links, lost sessions, and switches without room for shared rules.

use super::Routes;
use crate::context::Context;
use crate::flows::{note, Flow};
use crate::plan::Version;
use crate::reasons::Decision;
use pathloom_model::{Attachment, LinkId, NodeId, Path};
use pathloom_scheme::{FlowId, Rejection};

impl Routes {
    /// Moves flows whose path has a dead link back to the default routes, and ends moves to such paths.
    pub(crate) fn rescue_from(&mut self, cx: &mut Context, dead: LinkId) {
        let crosses = |path: &Path| path.links().iter().copied().find(|link| link.cable() == dead.cable());
        for id in self.routed().collect::<Vec<_>>() {
            let Some(flow) = self.flows.get(id) else { continue };
            if let Some(link) = self.cut_in_place(flow, dead) {
                self.abort_in_place(cx, id, Rejection::LinkDown(link));
            }
            let Some(flow) = self.flows.get(id) else { continue };
            let hit = |plan: u8| flow.version(plan).and_then(|version| version.path.as_ref()).and_then(crosses);
            if let Some((link, committed)) =
                flow.current_move.as_ref().and_then(|m| hit(m.plan).map(|link| (link, m.is_committed())))
            {
                if !committed {
                    self.give_up(cx, id, Rejection::LinkDown(link));
                } else {
                    self.supersede(cx, id);
                    self.reject(cx, id, Rejection::LinkDown(link));
                }
            }
            let Some(flow) = self.flows.get(id) else { continue };
            let hit = |plan: &u8| flow.version(*plan).and_then(|v| v.path.as_ref()).and_then(crosses).is_some();
            let cut: Vec<u8> = flow.staying().map(|source| source.plan).filter(hit).collect();
            if cut.is_empty() {
                continue;
            }
            cx.counts.rescued += 1;
            let uncounted = flow.current_move.is_none() && !flow.closed && cut.len() == flow.staying().count();
            note(cx, &mut self.flows, id, Decision::Rescued { link: dead });
            if uncounted {
                self.add_count(cx, id);
            }
            for plan in cut {
                self.leave(cx, id, plan);
            }
            if let Some(view) = cx.view.flows.get_mut(&id) {
                view.route = None;
            }
        }
    }

    /// The session to a switch was lost, and it may or may not have received unconfirmed messages. Moves that have
    /// not reached their source ToR end. Others continue when the source ToR is back.
    pub(crate) fn session_lost(&mut self, cx: &mut Context, switch: NodeId) {
        self.orphans.forget(cx, switch);
        self.labels.session_lost(switch);
        let hit = |&id: &FlowId| {
            let Some(flow) = self.flows.get(id) else { return false };
            let Some(current_move) = flow.current_move.as_ref().filter(|current_move| current_move.adds_hops()) else {
                return false;
            };
            let path = flow.version(current_move.plan).and_then(|version| version.path.as_ref());
            let visits = |link: &LinkId| cx.fabric.link(*link).to == switch;
            flow.tor() == switch || path.is_some_and(|path| path.links().iter().any(visits))
        };
        let in_place = |&id: &FlowId| self.flows.get(id).is_some_and(|flow| self.moves_in_place_at(cx, flow, switch));
        let broken: Vec<FlowId> = self.routed().filter(in_place).collect();
        let hit: Vec<FlowId> = self.routed().filter(|id| !broken.contains(id) && hit(id)).collect();
        for id in broken {
            self.abort_in_place(cx, id, Rejection::SwitchGone(switch));
        }
        for id in hit {
            self.give_up(cx, id, Rejection::SwitchGone(switch));
        }
    }

    /// Ends flows with an end that has moved, because their paths lead to its old place.
    pub(crate) fn leave_old_places(&mut self, cx: &mut Context) {
        let gone = |at: &Attachment| cx.attachment(at.address).is_none_or(|now| now.uplink != at.uplink);
        let moved = |flow: &Flow| gone(&flow.key.src) || gone(&flow.key.dst);
        let moved: Vec<FlowId> = self.flows.iter().filter(|(_, flow)| moved(flow)).map(|(id, _)| id).collect();
        for id in moved {
            self.finish(cx, id);
            self.retire(cx, id);
        }
    }

    /// A switch has no room for the rule of a label. Flows that used it return to the default routes. Moves that wait
    /// for the rule handle the refusal themselves.
    pub(crate) fn label_refused(&mut self, cx: &mut Context, switch: NodeId, label: u16) {
        if !self.labels.note_absent(cx, switch, label) {
            return;
        }
        let uses = |id: &FlowId| {
            self.flows.get(*id).is_some_and(|flow| {
                let waits = |version: &Version| {
                    flow.current_move.as_ref().is_some_and(|m| m.plan == version.plan && m.adds_hops())
                };
                let needs = |version: &Version| version.tag == label && version.stands_at(&cx.fabric, switch);
                flow.versions.iter().any(|version| needs(version) && !waits(version))
            })
        };
        let hit: Vec<FlowId> = self.routed().filter(uses).collect();
        hit.into_iter().for_each(|id| self.unroute_by(cx, id, Decision::Unroute));
    }
}
