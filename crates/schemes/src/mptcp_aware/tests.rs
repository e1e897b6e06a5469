use super::*;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{FiveTuple, PROTO_TCP};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Four paths between two hosts, and a controller that confirms every route at once.
struct World {
    scheme: MptcpAware,
    view: View,
    next: u64,
}

impl World {
    fn new() -> World {
        World { scheme: scheme(), view: View::new(Arc::new(fabric_from_spec("fat-tree:k=8").unwrap())), next: 0 }
    }

    /// Adds a flow between the hosts with these numbers to the view.
    fn flow(&mut self, hosts: [usize; 2], token: Option<u32>) -> FlowId {
        self.next += 1;
        let [src, dst] = hosts.map(|host| *self.view.fabric.host_attachments(self.view.fabric.hosts()[host])[0]);
        let src_port = self.next as u16;
        let five_tuple = FiveTuple::new(PROTO_TCP, (src.address, src_port), (dst.address, 9));
        let known = FlowView { long: true, mptcp_token: token, ..FlowView::new(five_tuple, &src, &dst, Nanos::ZERO) };
        self.view.flows.insert(FlowId(self.next), known);
        FlowId(self.next)
    }

    fn tell(&mut self, now: Nanos, event: Event) -> Option<Path> {
        let mut actions = Vec::new();
        self.scheme.handle(now, &event, &self.view, &mut actions);
        let mut last = None;
        for action in actions {
            if let Action::Route { flow, path, .. } = action {
                self.view.flows.get_mut(&flow).unwrap().route = Some(path.clone());
                last = Some(path);
            }
        }
        last
    }

    fn join(&mut self, now: Nanos, hosts: [usize; 2], token: u32) -> Path {
        let flow = self.flow(hosts, Some(token));
        self.tell(now, Event::SubflowArrived { flow, token: Some(token) }).unwrap()
    }

    fn begin(&mut self, hosts: [usize; 2]) -> (FlowId, Path) {
        let flow = self.flow(hosts, None);
        let path = self.tell(Nanos::ZERO, Event::FlowArrived { flow }).unwrap();
        (flow, path)
    }
}

fn scheme() -> MptcpAware {
    let rule = PathRule { choice: Choice::EdgeDisjoint, most: 8, most_hops: None };
    MptcpAware::new(Settings { rule, mode: Mode::FewestSubflows }, 1)
}

const PAIR: [usize; 2] = [0, 100];
const LATER: Nanos = Nanos::from_secs(30);

#[test]
fn after_a_restart_the_next_subflow_takes_an_unused_path() {
    let mut world = World::new();
    let (first, path) = world.begin(PAIR);
    world.view.flows.get_mut(&first).unwrap().mptcp_token = Some(7);
    let mut taken = BTreeSet::from([path]);
    taken.extend([world.join(Nanos::ZERO, PAIR, 7), world.join(Nanos::ZERO, PAIR, 7)]);
    assert_eq!(taken.len(), 3);
    // The next controller knows the rules, but not to which connection they belong.
    world.scheme = scheme();
    world.tell(LATER, Event::Started);
    for flow in (1..=3).map(FlowId) {
        world.view.flows.get_mut(&flow).unwrap().mptcp_token = None;
        assert_eq!(world.tell(LATER, Event::FlowAdopted { flow }), None, "the subflow keeps its path");
    }
    let later = LATER.saturating_add(LATER);
    assert!(taken.insert(world.join(later, PAIR, 7)), "the fourth path is free");
    // The next subflow takes the path of a subflow that has ended.
    let gone = world.view.flows[&FlowId(2)].route.clone();
    world.tell(later, Event::FlowFinished { flow: FlowId(2) });
    assert_eq!(Some(world.join(later, PAIR, 7)), gone);
    // A snapshot keeps the adopted subflows for the next controller.
    let mut heir = scheme();
    heir.restore(world.scheme.save()).unwrap();
    assert_eq!(heir.memory, world.scheme.memory);
}

#[test]
fn an_unknown_token_makes_a_new_connection() {
    let mut world = World::new();
    let paths: Vec<Path> = (0..4).map(|_| world.join(Nanos::ZERO, PAIR, 99)).collect();
    assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(world.join(Nanos::ZERO, PAIR, 99), paths[0], "then all paths are used equally");
}

#[test]
fn a_join_before_the_first_subflow_belongs_to_the_connection() {
    let mut world = World::new();
    let early = world.join(Nanos::ZERO, PAIR, 7);
    let (first, path) = world.begin(PAIR);
    assert_eq!(path, early, "the first subflow takes the shortest path, even if it is in use");
    world.view.flows.get_mut(&first).unwrap().mptcp_token = Some(7);
    let rest: BTreeSet<Path> = (0..3).map(|_| world.join(Nanos::ZERO, PAIR, 7)).collect();
    assert!(rest.len() == 3 && !rest.contains(&path));
}

#[test]
fn connections_with_the_same_token_between_different_hosts_are_independent() {
    let mut world = World::new();
    let other = [1, 101];
    let alone: Vec<Path> = (0..4).map(|_| world.join(Nanos::ZERO, other, 7)).collect();
    let mut world = World::new();
    for path in alone {
        world.join(Nanos::ZERO, PAIR, 7);
        assert_eq!(world.join(Nanos::ZERO, other, 7), path);
    }
    // When all subflows have ended, the token is forgotten.
    for flow in (1..=8).map(FlowId) {
        world.tell(LATER, Event::FlowFinished { flow });
        world.view.flows.remove(&flow);
    }
    assert_eq!(world.scheme.memory.connections.len(), 0);
}
