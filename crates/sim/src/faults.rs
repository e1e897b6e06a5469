//! Faults of a run as they happen: what is down, and the effects on the network, the hosts and the control plane.

use crate::control_plane::ControlPlane;
use crate::hosts::Hosts;
use crate::program_events;
use crate::run::Run;
use crate::tap::Tap;
use pathloom_control::Input;
use pathloom_model::{Fabric, FailureState, Fault, FaultKind, FaultTarget, LinkId, LinkState, NodeId};
use std::sync::Arc;

/// The fault schedule of a run, and what is down now.
pub(crate) struct Faults {
    fabric: Arc<Fabric>,
    schedule: Vec<Fault>,
    links: LinkState,
    failures: FailureState,
}

impl Faults {
    /// A schedule of which nothing has happened.
    pub(crate) fn new(fabric: Arc<Fabric>, schedule: Vec<Fault>) -> Faults {
        let (links, failures) = (LinkState::of(&fabric), FailureState::of(&fabric));
        Faults { fabric, schedule, links, failures }
    }

    /// The entries of the schedule.
    pub(crate) fn schedule(&self) -> &[Fault] {
        &self.schedule
    }

    /// Which links are up.
    pub(crate) fn links(&self) -> &LinkState {
        &self.links
    }

    /// Whether a link is up.
    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.links.is_up(link)
    }

    /// Whether a node works.
    pub(crate) fn has_power(&self, node: NodeId) -> bool {
        !self.failures.is_dead(node)
    }

    /// Carries out an entry of the schedule.
    pub(crate) fn carry_out<T: Tap>(
        &mut self,
        run: &mut Run<'_, T>,
        hosts: &mut Hosts,
        control: &mut ControlPlane,
        index: u32,
    ) {
        let (now, fault) = (run.now, self.schedule[index as usize]);
        match fault.kind {
            FaultKind::Carrier { target, up } => self.set_carrier(run, hosts, control, (&fault, target, up)),
            FaultKind::Quality { target, quality } => {
                for cable in target.cables(&self.fabric) {
                    run.network.set_quality(now, cable, quality);
                    run.network.set_quality(now, cable.reverse(), quality);
                }
            }
            FaultKind::Session { switch, up } => control.set_session(now, run.agenda, switch, up, &self.links),
            FaultKind::Reboot { switch } => {
                run.network.clear_switch(now, switch);
                control.renew_session(now, run.agenda, switch, &self.links);
                program_events::restart(run, hosts, switch, |link| self.links.is_up(link));
            }
            FaultKind::ControllerKill if control.starts.running => control.kill(now, run.agenda, &self.links),
            FaultKind::ControllerKill => {}
            FaultKind::ControllerRestart { from_snapshot } => {
                control.restart(now, run.agenda, &self.links, from_snapshot);
            }
        }
    }

    /// Cables or a node fail or come back. A switch that comes back has an empty rule table.
    fn set_carrier<T: Tap>(
        &mut self,
        run: &mut Run<'_, T>,
        hosts: &mut Hosts,
        control: &mut ControlPlane,
        (fault, target, up): (&Fault, FaultTarget, bool),
    ) {
        if let FaultTarget::Node(node) = target {
            if up && self.failures.is_dead(node) {
                run.network.clear_switch(run.now, node);
                program_events::restart(run, hosts, node, |link| self.links.is_up(link));
            }
            if !self.fabric.is_host(node) {
                control.set_switch(run.now, run.agenda, node, up, &self.links);
            }
        }
        for cable in self.failures.apply(&self.fabric, fault, &mut self.links) {
            for direction in [cable, cable.reverse()] {
                self.set_direction(run, hosts, control, (direction, up));
            }
        }
    }

    /// A link has failed or come back. Informs the network, the program of the switch that sends into the link, and
    /// the controller.
    fn set_direction<T: Tap>(
        &self,
        run: &mut Run<'_, T>,
        hosts: &mut Hosts,
        control: &mut ControlPlane,
        (link, up): (LinkId, bool),
    ) {
        for lane in run.network.set_link(run.now, link, up) {
            hosts.lose(run, lane, 1);
        }
        let record = self.fabric.link(link);
        if self.has_power(record.from) {
            program_events::set_port(run, hosts, (record.from, record.from_port), up);
        }
        if !self.fabric.is_host(record.from) {
            let input = Input::PortStatus { switch: record.from, port: record.from_port, up };
            control.tell(run.now, run.agenda, input);
        }
    }
}
