//! Controllers that die and come back, with a memory and without; schemes that take over; logs that replay.

use pathloom_control::{replay, Controller, Input, Message, Snapshot};
use pathloom_model::Nanos;
use pathloom_scheme::{Action, DefaultRoutes, Event};
use pathloom_testkit::{ms, Script, World, LABEL, SECOND};

#[test]
fn a_new_controller_adopts_what_stands() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    let id = world.id();
    world.events();
    world.restart(2);
    world.traffic(SECOND);
    world.connect_all();
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    assert_eq!(world.network.controller.view().flows[&id].route, Some(path.clone()));
    assert_eq!(world.network.controller.counts().messages_out, 20, "reading the rules of 20 switches was all");
    let other = world.walk(&[3]).unwrap();
    world.route(&other);
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::RouteConfirmed { flow: id }]);
    world.no_mishap();
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.events(), [Event::FlowFinished { flow: id }]);
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn flows_that_ended_while_nobody_looked_leave_nothing() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    world.restart(2);
    world.pass(Nanos::from_secs(30));
    world.connect_all();
    world.pass(Nanos::from_secs(30));
    assert!(world.network.controller.view().flows.is_empty());
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn a_snapshot_brings_back_what_rules_cannot_say() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    let announced = Input::TransferAnnounced { five_tuple: world.flow.five_tuple, size_bytes: Some(123_456_789) };
    world.network.tell(announced);
    let snapshot = world.network.controller.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    let snapshot: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(snapshot, world.network.controller.snapshot());
    let (id, before) = (world.id(), world.network.controller.view().flows[&world.id()].clone());
    world.events();
    world.network.kill_controller();
    world.traffic(ms(100));
    let controller = world.restored(snapshot.clone(), 2).unwrap();
    world.network.start_controller(controller);
    world.connect_all();
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    assert_eq!(world.network.controller.view().flows[&id], before);

    // The same snapshot, when the flow has moved meanwhile: the switches are right.
    let other = world.walk(&[3]).unwrap();
    world.route(&other);
    world.traffic(SECOND);
    world.network.kill_controller();
    world.events();
    let controller = world.restored(snapshot, 3).unwrap();
    world.network.start_controller(controller);
    world.connect_all();
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    let view = &world.network.controller.view().flows[&id];
    assert_eq!((view.route.as_ref(), view.size_bytes), (Some(&other), Some(123_456_789)));
    world.no_mishap();
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.events(), [Event::FlowFinished { flow: id }]);
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn a_snapshot_of_something_else_is_refused() {
    let world = World::fat_tree();
    let good = serde_json::to_value(world.network.controller.snapshot()).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        changed[key] = value;
        let snapshot = serde_json::from_value(changed).unwrap();
        world.restored(snapshot, 2).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(with("form", 99.into()).contains("form 99"));
    assert!(with("fabric", "fat-tree:k=6".into()).contains("fat-tree:k=6"));
    assert!(with("scheme", "hedera".into()).contains("hedera"));
    assert!(with("state", "nonsense".into()).contains("nonsense"));
    assert!(with("nodes", 3.into()).contains("3 nodes"));
    assert_eq!(with("form", good["form"].clone()), "");
}

#[test]
fn another_scheme_takes_over_without_loss() {
    let mut world = World::fat_tree();
    let (old, new) = (world.walk(&[2]).unwrap(), world.walk(&[3]).unwrap());
    world.route(&old);
    world.traffic(SECOND);
    let (id, second) = (world.id(), Script::new());
    let start = vec![Action::SetDefaults(DefaultRoutes::Ecmp)];
    world.network.set_scheme(second.scheme_with(LABEL, start));
    world.traffic(SECOND);
    assert_eq!(second.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    second.at(world.network.now(), Action::Route { flow: id, path: new, rate_bps: None });
    world.traffic(SECOND);
    assert_eq!(second.events()[2..], [Event::RouteConfirmed { flow: id }]);
    world.no_mishap();
}

#[test]
fn a_log_replays() {
    let mut world = World::fat_tree();
    for turns in [[2], [3], [1], [0]] {
        let path = world.walk(&turns).unwrap();
        let at = world.network.now();
        world.route(&path);
        world.traffic(ms(300));
        if turns == [1] {
            world.network.set_cable(path.links()[1], false);
        }
        assert!(world.network.now() > at);
    }
    world.pass(Nanos::from_secs(20));
    let text: String = world.network.log.iter().map(|record| record.to_line() + "\n").collect();
    let mut records = pathloom_control::read_log(&text).unwrap();
    assert_eq!(records, world.network.log);

    // The scripted scheme has to be told the same again.
    let again = || {
        let start = vec![Action::SetDefaults(DefaultRoutes::SinglePath)];
        let scheme = world.script.from_the_start().scheme_with(LABEL, start);
        Controller::new(world.config.clone(), world.network.fabric.clone(), scheme)
    };
    assert!(replay(&records, &mut again()).unwrap() > 100);
    let output = records.iter().rposition(|record| matches!(record.message, Message::Output(_))).unwrap();
    let at = records[output].at;
    records.remove(output);
    let divergence = replay(&records, &mut again()).unwrap_err();
    assert_eq!((divergence.at >= at, divergence.logged.is_none()), (true, true));
    let cut = &text[..text.len() - 20];
    assert!(pathloom_control::read_log(cut).unwrap_err().to_string().contains("cut off"));
}
