//! What the operator of the fabric, or a test, can do during a run.

use crate::parts::single_thread_reason_by_needs;
use crate::simulation::Simulation;
use crate::tap::Tap;
use crate::time::to_ps;
use pathloom_control::{Controller, Input, Target};
use pathloom_model::{LinkId, Nanos, NodeId};
use pathloom_scheme::Scheme;

impl<T: Tap> Simulation<T> {
    /// Puts another scheme in charge of the running controller, as an operator can at any time.
    pub fn set_scheme(&mut self, scheme: Box<dyn Scheme>) {
        self.single_thread_reason = self.single_thread_reason.or(single_thread_reason_by_needs(&scheme.needs()));
        self.control.set_scheme(self.now, &mut self.agenda, scheme);
    }

    /// Tells the controller to take something out of service, or to put it back into service.
    pub fn drain(&mut self, target: Target, out: bool) {
        self.control.tell(self.now, &mut self.agenda, Input::Drain { target, out });
    }

    /// Continues the run to its end even if nothing is left to send. For observing what becomes of the rules.
    pub fn keep_going(&mut self) {
        self.hosts.keep_going();
    }

    /// Ends arrivals now: long-lived flows end, and no other flow starts.
    pub fn end_arrivals(&mut self) {
        let (hosts, mut run) = self.hosts_at(self.now);
        hosts.end_of_arrivals(&mut run);
    }

    /// The links that the data of a transfer's first subflow would cross if it sent now (see [`Simulation::route`]),
    /// and those that its acknowledgements would cross.
    pub fn paths(&self, flow: u32) -> [Vec<LinkId>; 2] {
        let Some(five_tuple) = self.hosts.transfers().five_tuple(flow) else { return Default::default() };
        let back = self.fabric.attachment(five_tuple.dst()).map(|there| {
            let headers = self.hosts.headers(flow, five_tuple.reverse());
            self.network.trace(there.uplink, headers)
        });
        [self.route(flow), back.unwrap_or_default()]
    }

    /// Sets the time that one switch takes to carry out each change from now on. Other switches keep theirs.
    pub fn set_install(&mut self, switch: NodeId, install: Nanos) {
        self.control.install[switch.index()] = to_ps(install);
    }

    /// Makes switches answer barriers on arrival, before earlier messages are carried out. This is wrong on purpose,
    /// to test checks that should notice it.
    pub fn answer_barriers_at_once(&mut self) {
        self.control.hasty_barriers = true;
    }

    /// The running controller, or the last one that ran.
    pub fn controller(&self) -> &Controller {
        &self.control.controller
    }

    /// Whether everything is as at the start: all cables that did not fail before the run are up, and the controller
    /// runs and has a session to every switch.
    pub fn is_whole(&self) -> bool {
        let cables =
            self.fabric.cables().all(|link| self.faults.is_up(link) || self.fabric.failed_links().contains(&link));
        cables && self.control.is_whole()
    }

    /// Number of subflows that the controller holds.
    pub fn held_subflows(&self) -> usize {
        self.hosts.held()
    }
}
