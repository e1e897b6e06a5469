//! vlb: each long flow takes a shortest path to a switch drawn at random, and from there one to its destination.
//!
//! Valiant's scheme makes any traffic look like uniform traffic. In fabrics with tiers the switch in the middle is one of the
//! highest tier, as in VL2, where the result is that of ecmp for flows between pods. In others, such as Jellyfish, it is any switch,
//! so paths are longer than the shortest ones.

use crate::entry::{Entry, EntryInfo, Parts};
use crate::helpers::backoff::{Backoff, Waits};
use crate::helpers::{draws, links, state};
use pathloom_model::search::ShortestPaths;
use pathloom_model::{Nanos, NodeId, Path};
use pathloom_scheme::{
    Action, DefaultRoutes, Detection, Event, FlowId, FlowView, Needs, Scheme, State, StateError, View,
};
use rand_pcg::Pcg64;

const NAME: &str = "vlb";
/// Switches that are drawn before a flow takes a shortest path. A path that visits a switch twice is no path.
const DRAWS: usize = 16;

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "each long flow takes a path through a switch drawn at random (Valiant load balancing)",
        paper: "Greenberg et al. 2009, VL2: A Scalable and Flexible Data Center Network (SIGCOMM); Valiant 1982",
        keys: &[],
    },
    read: |_| Ok(Parts::central(|seed| Box::new(Vlb { seed, backoff: Backoff::default() }))),
};

struct Vlb {
    seed: u64,
    backoff: Backoff,
}

impl Scheme for Vlb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self) -> Needs {
        Needs { detection: Detection::Label, ..Needs::NOTHING }
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match *event {
            Event::Started => {
                self.backoff.keep(|flow| view.flows.contains_key(&flow));
                actions.push(Action::SetDefaults(DefaultRoutes::Ecmp));
            }
            Event::FlowArrived { flow } | Event::FlowAdopted { flow } => self.place(now, view, flow, actions),
            // Flows on a dead link are on default routes by now.
            Event::LinkChanged { .. } => view.long_flows().for_each(|(flow, _)| self.place(now, view, flow, actions)),
            Event::Timeout => {
                for flow in self.backoff.take_due(now.0) {
                    self.place(now, view, flow, actions);
                }
            }
            Event::FlowFinished { flow } | Event::RouteConfirmed { flow } => self.backoff.end(flow),
            Event::RouteRejected { flow, why } => self.backoff.rejected(now.0, flow, &why, Waits::SECONDS),
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.backoff.next_due().map(Nanos)
    }

    fn save(&self) -> State {
        state::pack(&self.backoff)
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        self.backoff = state::restore(NAME, state)?;
        Ok(())
    }
}

impl Vlb {
    /// Asks for a path for a flow that has none, unless one was refused a moment ago.
    fn place(&self, now: Nanos, view: &View, flow: FlowId, actions: &mut Vec<Action>) {
        let Some(known) = view.flows.get(&flow).filter(|known| known.intended_route().is_none()) else { return };
        // Within a ToR there is nothing to choose.
        if self.backoff.holds(now.0, flow) || known.src_tor == known.dst_tor {
            return;
        }
        let mut rng = draws::generator(self.seed, flow.0);
        let over_a_switch = (0..DRAWS).find_map(|_| path_over_a_switch(view, known, &mut rng));
        let path = over_a_switch.or_else(|| drawn(&links::paths_of(view, known), &mut rng));
        actions.extend(path.map(|path| Action::Route { flow, path, rate_bps: None }));
    }
}

/// A path of a flow through a switch drawn at random; `None` if it would visit a switch twice, or does not exist.
fn path_over_a_switch(view: &View, flow: &FlowView, rng: &mut Pcg64) -> Option<Path> {
    let fabric = &view.fabric;
    let highest = fabric.switches().iter().map(|&node| fabric.node(node).tier).max()?;
    let middles: Vec<NodeId> =
        fabric.switches().iter().copied().filter(|&node| fabric.node(node).tier == highest).collect();
    let middle = middles[draws::below(rng, middles.len() as u128) as usize];
    let there = drawn(&ShortestPaths::between(fabric, &view.links, flow.src_tor, middle), rng)?;
    let on = drawn(&ShortestPaths::between(fabric, &view.links, middle, flow.dst_tor), rng)?;
    let path = Path::new([there.links(), on.links()].concat());
    path.check(fabric).is_ok().then_some(path)
}

fn drawn(paths: &ShortestPaths, rng: &mut Pcg64) -> Option<Path> {
    let number = draws::below(rng, paths.count());
    paths.nth(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::{FiveTuple, PROTO_TCP};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// The paths of 600 flows between two hosts, by the switch before the middle of the way.
    fn paths(fabric: &str, src: &str, dst: &str) -> Vec<Vec<String>> {
        let mut view = View::new(Arc::new(fabric_from_spec(fabric).unwrap()));
        let fabric = view.fabric.clone();
        let at = |name: &str| *fabric.host_attachments(fabric.find(name).unwrap())[0];
        let (from, to) = (at(src), at(dst));
        let five_tuple = FiveTuple::new(PROTO_TCP, (from.address, 1), (to.address, 2));
        let vlb = Vlb { seed: 1, backoff: Backoff::default() };
        let place = |number: u64| {
            let flow = FlowId(number);
            view.flows.insert(flow, FlowView::new(five_tuple, &from, &to, Nanos::ZERO));
            let mut actions = Vec::new();
            vlb.place(Nanos::ZERO, &view, flow, &mut actions);
            let [Action::Route { path, .. }] = &actions[..] else { panic!("{actions:?}") };
            path.check(&fabric).unwrap();
            path.links().iter().map(|&link| fabric.node(fabric.link(link).to).name.clone()).collect()
        };
        (0..600).map(place).collect()
    }

    #[test]
    fn flows_between_pods_bounce_off_all_core_switches_equally() {
        let mut cores = BTreeMap::new();
        for path in paths("fat-tree:k=4,rate=1Gbps", "h0", "h8") {
            assert_eq!(path.len(), 4);
            *cores.entry(path[1].clone()).or_insert(0) += 1;
        }
        assert!(cores.len() == 4 && cores.values().all(|&count: &u32| count.abs_diff(150) < 40), "{cores:?}");
        let within = paths("fat-tree:k=4,rate=1Gbps", "h0", "h2");
        assert!(
            within.iter().all(|path| path.len() == 2),
            "a core switch would lead back over the same aggregation switch"
        );
    }

    #[test]
    fn without_tiers_any_switch_may_be_in_the_middle() {
        let paths = paths("jellyfish:switches=20,ports=6,hosts=40,rate=1Gbps,seed=1", "h0", "h39");
        let mut visited: Vec<&String> = paths.iter().flatten().collect();
        visited.sort_unstable();
        visited.dedup();
        assert!(visited.len() >= 19, "{}", visited.len());
        let shortest = paths.iter().map(Vec::len).min().unwrap();
        assert!(paths.iter().any(|path| path.len() > shortest));
    }
}
