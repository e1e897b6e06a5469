//! What drivers ask a controller.

use crate::assignments::Assignments;
use crate::config::Config;
use crate::controller::Controller;
use crate::counts::Counts;
use crate::drain::DrainError;
use crate::durations::DurationHistogram;
use crate::io::Target;
use crate::reasons::Reason;
use crate::switches::{Purpose, Session, Switch};
use pathloom_model::{Attachment, FiveTuple, LinkId, NodeId, PortNo};
use pathloom_scheme::{FlowId, Needs, State, View};
use std::net::Ipv4Addr;

impl Controller {
    /// What the controller knows; solvers get a clone of it.
    pub fn view(&self) -> &View {
        &self.context.view
    }

    /// Carries out [`crate::Output::Solve`].
    pub fn solver(&self) -> fn(&View, &State) -> State {
        self.in_charge.scheme.solver()
    }

    /// The flow that has a five-tuple now.
    pub fn find_flow(&self, five_tuple: &FiveTuple) -> Option<FlowId> {
        self.routes.flows.find(five_tuple).filter(|id| self.context.view.flows.contains_key(id))
    }

    /// Whether a flow was told to wait, and still is to.
    pub fn is_held(&self, flow: FlowId) -> bool {
        self.routes.flows.get(flow).is_some_and(|flow| flow.extras().held_until > self.context.now)
    }

    /// Flows that were told to wait, and still are to.
    pub fn held_flows(&self) -> usize {
        let flows = self.routes.flows.iter();
        flows.filter(|(_, flow)| !flow.closed && flow.extras().held_until > self.context.now).count()
    }

    /// Name of the scheme in charge.
    pub fn scheme_name(&self) -> &'static str {
        self.in_charge.scheme.name()
    }

    /// What that scheme needs.
    pub fn needs(&self) -> &Needs {
        &self.context.needs
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.context.config
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        let rules_now = self.context.switches.iter().map(Switch::rules).max().unwrap_or(0);
        Counts { rules_now, ..self.context.counts }
    }

    /// How much the scheme in charge keeps ([`pathloom_scheme::Scheme::sizes`]).
    pub fn scheme_sizes(&self) -> Vec<(&'static str, u64)> {
        self.in_charge.scheme.sizes()
    }

    /// How long it took to set up paths, from the scheme's wish to the last confirmation.
    pub fn set_up_times(&self) -> &DurationHistogram {
        &self.routes.set_up
    }

    /// Rules that a switch should have, or should have had when its session ended.
    pub fn rules_at(&self, switch: NodeId) -> u32 {
        self.context.switches.get(switch.index()).map_or(0, Switch::rules)
    }

    /// What put a flow where it is; `None` for one that never left the default routes, or whose reason did not survive
    /// a restart.
    pub fn placement(&self, flow: FlowId) -> Option<Reason> {
        Some(self.context.reasons.explain(self.routes.flows.get(flow)?.placed.as_ref()?))
    }

    /// What was decided for a flow lately, oldest first: as far as it is among the last decisions for all flows, of which
    /// about four thousand are kept.
    pub fn history(&self, flow: FlowId) -> Vec<&Reason> {
        self.context.reasons.history(flow)
    }

    /// Path assignments, their claims and connections.
    pub fn assignments(&self) -> &Assignments {
        &self.routes.assignments
    }

    /// Whether the first packets of connections from an address that has an assignment come to the controller from now on:
    /// its ToR has confirmed the rules that copy them, or has no session, so that nothing will be confirmed.
    pub fn sees_connections_of(&self, src: Ipv4Addr) -> bool {
        let Some(at) = self.attachment(src) else { return true };
        let tor = &self.context.switches[at.tor.index()];
        tor.session != Session::Reading && tor.awaited.iter().all(|&(_, purpose)| purpose != Purpose::Copies)
    }

    /// Where an address is: where it was placed, where the fabric lays it out, or where a prefix was placed that it is in.
    pub fn attachment(&self, address: Ipv4Addr) -> Option<Attachment> {
        self.context.attachment(address)
    }

    /// Single addresses that were placed, each with the switch and port that it is at.
    pub fn placed(&self) -> impl Iterator<Item = (Ipv4Addr, NodeId, PortNo)> + '_ {
        self.context.places.ports(&self.context.fabric)
    }

    /// Whether a switch or a cable may be taken out of service (`out`), or back into it.
    pub fn check_drain(&self, target: Target, out: bool) -> Result<(), DrainError> {
        self.drains.check(&self.context, target, out)
    }

    /// Whether a link is out of service, or a switch at an end of it.
    pub fn is_drained(&self, link: LinkId) -> bool {
        self.drains.out.covers(&self.context.fabric, link)
    }

    /// Whether a switch is out of service.
    pub fn is_switch_drained(&self, switch: NodeId) -> bool {
        self.drains.is_switch_drained(switch)
    }

    /// Whether default routes are still being changed for what has left service or come back.
    pub fn is_staging(&self) -> bool {
        self.drains.is_staging()
    }

    /// Whether packets may still cross a link that is out of service, without a path of their own that is known: as long as
    /// it is not certain that no switch has rules that lead over it.
    pub fn may_be_crossed(&self, link: LinkId) -> bool {
        self.drains.may_be_crossed(&self.context, &self.routes, link)
    }

    /// Number of flows with rules for a path over each link, by link, with those that move away from it.
    pub fn flows_on_links(&self) -> Vec<u32> {
        self.routes.on_links(&self.context)
    }
}
