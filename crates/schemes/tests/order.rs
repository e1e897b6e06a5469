//! The order in which OFPT and LESSOR request paths that are due at the same time (OFPT §5.2, Alg. 3).

use crate::support::World;
use pathloom_model::rules::Refusal;
use pathloom_model::{Nanos, NodeId, Path};
use pathloom_scheme::{Action, Event, FlowId, Rejection};

const MB: u64 = 1_000_000;

fn routed(actions: &[Action]) -> Vec<u64> {
    let flow = |action: &Action| match action {
        Action::Route { flow, .. } => Some(flow.0),
        _ => None,
    };
    actions.iter().filter_map(flow).collect()
}

/// Adds a long flow of this size between two hosts by number. It is on a path of its own if `over` names the switches
/// of one.
fn add(world: &mut World, flow: u64, (src, dst): (usize, usize), size_bytes: u64, over: &[&str]) {
    let fabric = world.view.fabric.clone();
    let hosts = fabric.hosts();
    world.add_flow(FlowId(flow), (hosts[src], 0), (hosts[dst], 0), flow as u16);
    let node = |name: &str| fabric.find(name).unwrap();
    let links: Vec<_> = over.windows(2).map(|two| fabric.link_between(node(two[0]), node(two[1])).unwrap()).collect();
    let known = world.view.flows.get_mut(&FlowId(flow)).unwrap();
    known.size_bytes = size_bytes.into();
    known.route = (!links.is_empty()).then(|| Path::new(links));
}

/// Two pairs of flows share a path each, and two more flows have no path. The round moves one flow of each pair and
/// sets up both flows without a path.
#[test]
fn a_round_moves_the_longest_first_and_then_sets_up_the_shortest_first() {
    for scheme in ["ofpt:enforce=none,schedule=none", "lessor"] {
        let mut world = World::new("fat-tree:k=4,rate=10Mbps", scheme, 1);
        world.deliver(&Event::Started);
        // The paths of these flows are refused at first, that of the larger flow first.
        for (flow, ends, size_mb) in [(1, (8, 4), 9), (2, (12, 6), 8)] {
            add(&mut world, flow, ends, size_mb * MB, &[]);
            world.deliver(&Event::FlowArrived { flow: FlowId(flow) });
            let why = Rejection::Refused(NodeId(0), Refusal::TableFull);
            world.deliver(&Event::RouteRejected { flow: FlowId(flow), why });
        }
        let pairs = [
            (3, (0, 8), 2, ["e0_0", "a0_0", "c0", "a2_0", "e2_0"]),
            (4, (1, 9), 2, ["e0_0", "a0_0", "c0", "a2_0", "e2_0"]),
            (5, (2, 12), 7, ["e0_1", "a0_1", "c2", "a3_1", "e3_0"]),
            (6, (3, 13), 7, ["e0_1", "a0_1", "c2", "a3_1", "e3_0"]),
        ];
        for (flow, ends, size_mb, over) in pairs {
            add(&mut world, flow, ends, size_mb * MB, &over);
            world.deliver(&Event::FlowAdopted { flow: FlowId(flow) });
        }
        // The first backoff is over. A round that began before ends first.
        world.solve();
        world.now = Nanos::from_secs(6);
        let standing: Vec<Option<Path>> = (1..=6).map(|flow| world.view.flows[&FlowId(flow)].route.clone()).collect();
        assert_eq!(standing.iter().flatten().count(), 4, "{scheme}");
        for _ in 0..3 {
            world.deliver(&Event::Timeout);
        }
        world.deliver(&Event::RatesMeasured { period: Nanos::from_secs(5) });
        let (_, actions) = world.solve().unwrap();
        let order = routed(&actions);
        assert_eq!(order.len(), 4, "{scheme}: {actions:?}");
        // ΔR_0: 7 MB before 2 MB. ΔR_n: 8 MB before 9 MB.
        assert!([5, 6].contains(&order[0]) && [3, 4].contains(&order[1]), "{scheme}: {order:?}");
        assert_eq!(order[2..], [2, 1], "{scheme}");
    }
}

#[test]
fn flows_on_a_dead_link_are_rerouted_shortest_first() {
    for scheme in ["ofpt:enforce=none,schedule=none", "ofpt:schedule=none", "lessor"] {
        let mut world = World::new("fat-tree:k=4,rate=10Mbps", scheme, 1);
        world.deliver(&Event::Started);
        let over = ["e0_0", "a0_0", "c0", "a2_0", "e2_0"];
        for (flow, src, size_mb) in [(1, 0, 5), (2, 1, 1), (3, 0, 3)] {
            add(&mut world, flow, (src, 8), size_mb * MB, &over);
            world.deliver(&Event::FlowAdopted { flow: FlowId(flow) });
        }
        world.solve();
        let link = world.view.flows[&FlowId(1)].route.as_ref().unwrap().links()[1];
        let actions = world.deliver(&Event::LinkChanged { link, up: false });
        assert_eq!(routed(&actions), [2, 3, 1], "{scheme}: {actions:?}");
        assert_eq!(routed(&world.deliver(&Event::LinkChanged { link: link.reverse(), up: false })), [0u64; 0]);
    }
}
