//! Methods by which drivers read the state of a controller, and record its decisions.

use crate::assignments::Assignments;
use crate::config::Config;
use crate::controller::Controller;
use crate::counts::Counts;
use crate::defaults::route_rule;
use crate::drain::{DrainError, Drains};
use crate::durations::DurationHistogram;
use crate::io::Target;
use crate::reasons::Reason;
use crate::switches::{Purpose, Session, Switch};
use pathloom_model::rules::Rule;
use pathloom_model::{Address, Attachment, FiveTuple, LinkId, Nanos, NodeId, PortNo};
use pathloom_scheme::{FlowId, Needs, State, View};

impl Controller {
    /// The view: everything that a scheme can see. Solvers get a clone of it.
    pub fn view(&self) -> &View {
        &self.context.view
    }

    /// Returns the function that computes the answer to [`crate::Output::Solve`].
    pub fn solver(&self) -> fn(&View, &State) -> State {
        self.active_scheme.scheme.solver()
    }

    /// Returns the flow that has a five-tuple now.
    pub fn find_flow(&self, five_tuple: &FiveTuple) -> Option<FlowId> {
        self.routes.rules.flows.find(five_tuple).filter(|id| self.context.view.flows.contains_key(id))
    }

    /// Whether a flow is held at the moment.
    pub fn is_held(&self, flow: FlowId) -> bool {
        self.routes.rules.flows.get(flow).is_some_and(|flow| flow.extras().held_until > self.context.now)
    }

    /// Number of flows that are held at the moment.
    pub fn held_flows(&self) -> usize {
        let flows = self.routes.rules.flows.iter();
        flows.filter(|(_, flow)| !flow.closed && flow.extras().held_until > self.context.now).count()
    }

    /// Name of the scheme in charge.
    pub fn scheme_name(&self) -> &'static str {
        self.active_scheme.scheme.name()
    }

    /// The needs of the scheme in charge, with the settings that override them.
    pub fn needs(&self) -> &Needs {
        &self.context.needs
    }

    /// The settings of the controller.
    pub fn config(&self) -> &Config {
        &self.context.config
    }

    /// The counts of the controller.
    pub fn counts(&self) -> Counts {
        let rules_now = self.context.switches.iter().map(Switch::rules).max().unwrap_or(0);
        Counts { rules_now, ..self.context.counts }
    }

    /// Sizes of the data that the scheme in charge stores ([`pathloom_scheme::Scheme::sizes`]).
    pub fn scheme_sizes(&self) -> Vec<(&'static str, u64)> {
        self.active_scheme.scheme.sizes()
    }

    /// Times to set up paths, from the request of the scheme to the last confirmation.
    pub fn set_up_times(&self) -> &DurationHistogram {
        &self.routes.moves.set_up
    }

    /// Number of rules that a switch should have, or should have had when its session ended.
    pub fn rules_at(&self, switch: NodeId) -> u32 {
        self.context.switches.get(switch.index()).map_or(0, Switch::rules)
    }

    /// The default routes of a switch, as far as they were sent. Empty before its rules were read for the first time.
    pub fn default_routes(&self, switch: NodeId) -> impl Iterator<Item = Rule> + '_ {
        let table = self.base.tables.get(switch.index());
        let routes = table.into_iter().flat_map(|table| &table.defaults.routes);
        routes.map(|&(prefix, choice)| route_rule(&self.context.config, prefix, choice))
    }

    /// The switch and the host with the largest number of rules of one host at one switch, among the switches that are
    /// more than half full. `None` if there is no such switch.
    pub fn largest_holder(&self) -> Option<(NodeId, NodeId, u32)> {
        self.routes.largest_holder()
    }

    /// The reason why a flow is where it is. `None` for a flow that never left the default routes, or whose reason
    /// was lost in a restart.
    pub fn placement(&self, flow: FlowId) -> Option<Reason> {
        Some(self.context.reasons.explain(self.routes.rules.flows.get(flow)?.placed.as_ref()?))
    }

    /// Recent decisions for a flow, oldest first. The controller stores about the last four thousand decisions for
    /// all flows.
    pub fn history(&self, flow: FlowId) -> Vec<&Reason> {
        self.context.reasons.history(flow)
    }

    /// Records all decisions from now on, for [`Controller::take_decisions`].
    pub fn record_decisions(&mut self) {
        self.context.reasons.journal.get_or_insert_default();
    }

    /// Returns the recorded decisions since the last call, oldest first, and the flows that they are about.
    pub fn take_decisions(&mut self) -> Vec<(FlowId, Reason)> {
        self.context.reasons.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Path assignments, their claims and connections.
    pub fn assignments(&self) -> &Assignments {
        &self.routes.assignments
    }

    /// Whether the controller will see the first packets of new connections from an address that has an assignment:
    /// the ToR of the address has confirmed the rules that copy them. Also true if the ToR has no session, because
    /// then nothing will be confirmed.
    pub fn sees_connections_of(&self, src: Address) -> bool {
        let Some(at) = self.attachment(src) else { return true };
        let tor = &self.context.switches[at.tor.index()];
        tor.session != Session::Reading && tor.awaited.iter().all(|&(_, purpose)| purpose != Purpose::Copies)
    }

    /// Returns the place of an address: where the address was placed, else where the fabric has it, else where the
    /// longest placed prefix that contains it is.
    pub fn attachment(&self, address: Address) -> Option<Attachment> {
        self.context.attachment(address)
    }

    /// Single addresses that were placed, each with its switch and port.
    pub fn placed(&self) -> impl Iterator<Item = (Address, NodeId, PortNo)> + '_ {
        self.context.places.ports(&self.context.fabric)
    }

    /// Whether a switch or a cable may be taken out of service (`out`), or back into it, without loss of packets.
    pub fn check_drain(&self, now: Nanos, target: Target, out: bool) -> Result<(), DrainError> {
        self.drains.check(&self.context, target, out)?;
        if !out {
            return Ok(());
        }
        let age = if self.started { now.saturating_sub(self.begun) } else { Nanos::ZERO };
        Drains::check_sessions(&self.context, age)
    }

    /// Whether a link is out of service, because of its cable or because of a switch at one of its ends.
    pub fn is_drained(&self, link: LinkId) -> bool {
        self.drains.out.covers(&self.context.fabric, link)
    }

    /// Whether a switch is out of service.
    pub fn is_switch_drained(&self, switch: NodeId) -> bool {
        self.drains.is_switch_drained(switch)
    }

    /// Whether default routes are still changing, because something left service or returned.
    pub fn is_staging(&self) -> bool {
        self.drains.is_staging()
    }

    /// Whether packets without a known path of their own may still cross a link that is out of service. This is the
    /// case until it is certain that no switch has rules that lead over it.
    pub fn may_be_crossed(&self, link: LinkId) -> bool {
        self.drains.may_be_crossed(&self.context, &self.routes, link)
    }

    /// Number of flows with rules for a path over each link, by link. Flows that move away from a link are included.
    pub fn flows_on_links(&self) -> Vec<u32> {
        self.routes.rules.on_links(&self.context)
    }
}
