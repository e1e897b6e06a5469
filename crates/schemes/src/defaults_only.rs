//! A central policy that sets default routes and leaves every flow on them.

use crate::next_hop_choice::NextHopChoice;
use pathloom_model::Nanos;
use pathloom_scheme::{Action, DefaultRoutes, Entropy, Event, Needs, Scheme, View};

/// Sets these default routes and nothing else.
pub(crate) struct DefaultsOnly {
    pub(crate) name: &'static str,
    pub(crate) routes: DefaultRoutes,
    pub(crate) entropy: Entropy,
    pub(crate) choice: NextHopChoice,
    /// Time between two readings of the port counters, which applications see; `None` for never.
    pub(crate) link_loads_every: Option<Nanos>,
}

impl DefaultsOnly {
    /// The same routes for all packets of a flow.
    pub(crate) fn by_flow(name: &'static str, routes: DefaultRoutes) -> DefaultsOnly {
        DefaultsOnly { name, routes, entropy: Entropy::Flow, choice: NextHopChoice::default(), link_loads_every: None }
    }
}

impl Scheme for DefaultsOnly {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> Needs {
        let &DefaultsOnly { entropy, choice, link_loads_every, .. } = self;
        choice.in_needs(Needs { entropy, link_loads_every, ..Needs::NOTHING })
    }

    fn handle(&mut self, _now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match *event {
            Event::Started => actions.push(Action::SetDefaults(self.routes)),
            // The previous scheme left the flow on a path of its own.
            Event::FlowAdopted { flow } if view.flows.get(&flow).is_some_and(|f| f.intended_route().is_some()) => {
                actions.push(Action::Unroute { flow });
            }
            _ => {}
        }
    }
}
