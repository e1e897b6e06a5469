//! Sessions and ports coming and going, and what switches refuse.

use crate::controller::Controller;
use crate::io::Output;
use crate::links::Report;
use crate::switches::{Purpose, Session};
use crate::timers::Timer;
use pathloom_model::rules::Refusal;
use pathloom_model::{LinkId, Nanos, NodeId, PortNo};
use pathloom_scheme::{Event, FlowId, Rejection};

/// Wait before the rules of a switch that refused some are read again; doubled per refusal in a row, up to 64 times.
const READ_AGAIN: Nanos = Nanos::from_secs(1);

impl Controller {
    /// Tables are never wiped: what the switch has is read first, and then only the difference is sent.
    pub(crate) fn switch_up(&mut self, switch: NodeId, ports_down: &[PortNo]) {
        if self.context.switches[switch.index()].session != Session::Down {
            self.switch_down(switch);
        }
        self.context.switches[switch.index()].session = Session::Reading;
        for port in (1..=self.context.fabric.node(switch).ports.len() as u32).map(PortNo) {
            self.port_status(switch, port, !ports_down.contains(&port));
        }
        self.context.put(Output::DumpRequest { switch });
    }

    /// What was not confirmed may have arrived or not. Moves that had not reached their source ToR are given up; others
    /// are taken up again when the source ToR is back.
    pub(crate) fn switch_down(&mut self, switch: NodeId) {
        self.context.switches[switch.index()].close();
        self.polling.lost(self.context.now, switch);
        self.forget_orphan_rules(switch);
        self.labels_unsure(switch);
        self.stage_lost(switch);
        let hit = |&id: &FlowId| {
            let Some(flow) = self.flows.get(id) else { return false };
            let Some(moving) = flow.moving.as_ref().filter(|moving| moving.phase == 0) else { return false };
            let path = flow.version(moving.plan).and_then(|version| version.path.as_ref());
            let visits = |link: &LinkId| self.context.fabric.link(*link).to == switch;
            flow.tor() == switch || path.is_some_and(|path| path.links().iter().any(visits))
        };
        let in_place = |&id: &FlowId| self.flows.get(id).is_some_and(|flow| self.moves_in_place_at(flow, switch));
        let broken: Vec<FlowId> = self.routed().filter(in_place).collect();
        let hit: Vec<FlowId> = self.routed().filter(|id| !broken.contains(id) && hit(id)).collect();
        for id in broken {
            self.break_off(id, Rejection::SwitchGone(switch));
        }
        for id in hit {
            self.give_up(id, Rejection::SwitchGone(switch));
        }
    }

    pub(crate) fn port_status(&mut self, switch: NodeId, port: PortNo, up: bool) {
        let Some(link) = self.context.fabric.out_link(switch, port) else {
            self.context.counts.nonsense += 1;
            return;
        };
        self.port_changed(link);
        match self.cables.report(self.context.now, link, up, &self.context.view.links) {
            Report::Same => {}
            Report::Now(up) => self.set_link(link, up),
            Report::Later { at, changes } => self.context.timers.set(at, Timer::LinkQuiet { link, changes }),
        }
    }

    pub(crate) fn link_quiet(&mut self, link: LinkId, changes: u64) {
        if self.cables.is_quiet(link, changes) {
            self.set_link(link, true);
        }
    }

    fn set_link(&mut self, link: LinkId, up: bool) {
        let useless =
            self.context.fabric.link(link).settings.rate_bps == 0 || self.drains.covers(&self.context.fabric, link);
        if up && useless {
            return;
        }
        // A host's link reports from the switch's end alone.
        if !self.context.view.links.set_cable(link, up) || !self.context.fabric.is_switch_link(link) {
            return;
        }
        self.stale = true;
        if !up {
            self.rescue_from(link);
        }
        for link in [link.min(link.reverse()), link.max(link.reverse())] {
            self.tell(Event::LinkChanged { link, up });
        }
        self.reassign();
    }

    pub(crate) fn refused(&mut self, switch: NodeId, xid: u32, why: Refusal) {
        self.context.counts.refused += 1;
        let awaited = &mut self.context.switches[switch.index()].awaited;
        let purposes: Vec<Purpose> =
            awaited.iter().filter(|&&(sent, _)| sent == xid).map(|&(_, purpose)| purpose).collect();
        awaited.retain(|&(sent, _)| sent != xid);
        for purpose in purposes {
            match purpose {
                Purpose::Step { flow, number } => self.step_refused(switch, flow, number, why),
                Purpose::Count { flow, plan } => self.count_refused(flow, plan),
                Purpose::Gone { flow, plan } => self.gone(flow, plan),
                Purpose::Hop { flow } => self.unroute(flow),
                Purpose::Meter { flow } => self.meter_refused(flow),
                // The rule stands as it was (OpenFlow 1.3 §6.4: a message that is refused changes nothing).
                Purpose::Renewed { flow, .. } => self.meter_refused(flow),
                Purpose::Label { label } => self.label_refused(switch, label),
                // No message has its number.
                Purpose::Stage { number } => self.staged(switch, number),
                Purpose::Fixed => {
                    let state = &mut self.context.switches[switch.index()];
                    if !std::mem::replace(&mut state.reread, true) {
                        let wait = Nanos(READ_AGAIN.0 << state.refusals.min(6));
                        state.refusals += 1;
                        self.context.timers.set(self.context.now.saturating_add(wait), Timer::Reread { switch });
                    }
                }
            }
        }
    }

    /// Reads the rules of a switch again, to add what it refused.
    pub(crate) fn reread(&mut self, switch: NodeId) {
        if self.context.is_ready(switch) && self.context.switches[switch.index()].reread {
            self.context.put(Output::DumpRequest { switch });
        }
    }
}
