//! With many flows, ofpt gives a new flow its path at once, and computes the paces later, for all recent arrivals
//! together.

use crate::support::World;
use pathloom_model::{Nanos, NodeId};
use pathloom_scheme::{Action, Event, FlowId};

/// Number of flows from which ofpt computes paces later.
const MANY: u64 = 1024;

/// Adds a flow between two hosts that are half of the host list apart.
fn arrive(world: &mut World, number: u64) -> Vec<Action> {
    let hosts: Vec<NodeId> = world.view.fabric.hosts().to_vec();
    let at = number as usize % hosts.len();
    let (src, dst) = (hosts[at], hosts[(at + hosts.len() / 2) % hosts.len()]);
    world.add_flow(FlowId(number), (src, 0), (dst, 0), 1024 + number as u16);
    world.deliver(&Event::FlowArrived { flow: FlowId(number) })
}

fn paced(actions: &[Action], number: u64) -> bool {
    actions.iter().any(|action| matches!(action, Action::Pace { flow, .. } if *flow == FlowId(number)))
}

fn routed(actions: &[Action], number: u64) -> bool {
    actions.iter().any(|action| matches!(action, Action::Route { flow, .. } if *flow == FlowId(number)))
}

fn standing(flows: u64) -> World {
    let mut world = World::new("fat-tree:k=4", "ofpt", 1);
    world.deliver(&Event::Started);
    (0..flows).for_each(|number| drop(arrive(&mut world, number)));
    world.settle();
    // The rates become exact here, and no round is due afterwards.
    world.now = Nanos::from_secs(1);
    world.deliver(&Event::Timeout);
    world.settle();
    world.now = Nanos::from_secs(2);
    world.deliver(&Event::Timeout);
    world
}

#[test]
fn with_few_flows_each_gets_its_pace_with_its_path() {
    let mut world = standing(MANY - 2);
    let actions = arrive(&mut world, 5000);
    assert!(routed(&actions, 5000) && paced(&actions, 5000), "{actions:?}");
}

#[test]
fn with_many_flows_paths_come_at_once_and_paces_within_five_milliseconds() {
    let mut world = standing(MANY);
    let begun = world.now;
    for number in 5000..5100 {
        let actions = arrive(&mut world, number);
        assert!(routed(&actions, number), "{actions:?}");
        assert!(!actions.iter().any(|action| matches!(action, Action::Pace { .. })), "{actions:?}");
        world.now = world.now.saturating_add(Nanos(10_000));
    }
    world.deliver(&Event::FlowFinished { flow: FlowId(5007) });
    let due = world.scheme.poll_timeout().unwrap();
    assert!(due <= begun.saturating_add(Nanos::from_millis(5)), "{due:?}");
    world.now = due;
    let actions = world.deliver(&Event::Timeout);
    assert!((5000..5100).all(|number| paced(&actions, number) == (number != 5007)), "{actions:?}");
    // Without further changes, no further computation is due.
    assert!(world.scheme.poll_timeout().is_none_or(|at| at > due), "{:?}", world.scheme.poll_timeout());
}

#[test]
fn capacity_that_becomes_free_is_redistributed_within_five_milliseconds() {
    let mut world = standing(MANY + 128);
    let begun = world.now;
    // All flows of one host except one.
    let gone: Vec<u64> = (0..MANY + 128).filter(|number| number % 16 == 3 && *number != 3).collect();
    for &number in &gone {
        world.deliver(&Event::FlowFinished { flow: FlowId(number) });
    }
    let due = world.scheme.poll_timeout().unwrap();
    assert!(due <= begun.saturating_add(Nanos::from_millis(5)), "{due:?}");
    world.now = due;
    let actions = world.deliver(&Event::Timeout);
    let rate_bps = actions.iter().find_map(|action| match action {
        Action::Pace { flow: FlowId(3), rate_bps } => *rate_bps,
        _ => None,
    });
    assert!(rate_bps.is_some_and(|bps| bps > 50_000_000), "{rate_bps:?}");
}
