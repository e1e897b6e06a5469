//! Random events in random order: no packet may be lost without need, and no rule may remain.

use pathloom_control::Config;
use pathloom_model::{Headers, LinkId, Nanos, TCP_FIN, TCP_SYN};
use pathloom_scheme::{Action, DefaultRoutes, Needs};
use pathloom_testkit::{ms, strategies, World, LABEL, SECOND, SFMM, SHARED};
use proptest::prelude::*;

/// Every way to move flows.
fn ways() -> impl Strategy<Value = Needs> {
    prop_oneof![Just(LABEL), Just(SFMM), Just(SHARED)]
}

/// Runs few cases, or as many as the environment variable `PROPTEST_CASES` says.
fn quick() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let standard = ProptestConfig::default();
    ProptestConfig { cases: if asked { standard.cases } else { 150 }, ..standard }
}

/// An event in the network.
#[derive(Clone, Debug)]
enum SessionEvent {
    Route(Vec<u8>),
    Unroute,
    Disconnect(prop::sample::Index),
    Connect(prop::sample::Index),
    Restart,
    Restore,
}

fn session_events() -> impl Strategy<Value = Vec<(u64, SessionEvent)>> {
    let turns = prop::collection::vec(any::<u8>(), 1..6);
    let event = prop_oneof![
        4 => turns.prop_map(SessionEvent::Route),
        1 => Just(SessionEvent::Unroute),
        3 => any::<prop::sample::Index>().prop_map(SessionEvent::Disconnect),
        3 => any::<prop::sample::Index>().prop_map(SessionEvent::Connect),
        1 => Just(SessionEvent::Restart),
        1 => Just(SessionEvent::Restore),
    ];
    prop::collection::vec((0..120u64, event), 1..12)
}

fn apply_session_event(world: &mut World, event: &SessionEvent, epoch: &mut u16) {
    let switches = world.network.fabric.switches().to_vec();
    let id = world.network.controller.view().flows.keys().next().copied();
    match event {
        SessionEvent::Route(turns) => {
            if let (Some(_), Some(path)) = (id, world.walk(turns)) {
                world.route(&path);
            }
        }
        SessionEvent::Unroute => {
            if let Some(flow) = id {
                world.script.at(world.network.now(), Action::Unroute { flow });
            }
        }
        SessionEvent::Disconnect(which) => world.network.disconnect(*which.get(&switches)),
        SessionEvent::Connect(which) => world.network.connect(*which.get(&switches)),
        SessionEvent::Restart => {
            *epoch += 1;
            world.restart(*epoch);
            switches.iter().step_by(2).for_each(|&switch| world.network.connect(switch));
        }
        SessionEvent::Restore => {
            *epoch += 1;
            let snapshot = world.network.controller.snapshot();
            world.network.kill_controller();
            world.traffic(ms(20));
            let controller = world.restored(snapshot, *epoch).unwrap();
            world.network.start_controller(controller);
            switches.iter().skip(1).step_by(2).for_each(|&switch| world.network.connect(switch));
        }
    }
}

proptest! {
    #![proptest_config(quick())]

    #[test]
    fn lost_sessions_and_restarts_lose_no_packet_and_leak_no_rule(
        fabric in strategies::fabrics(),
        needs in ways(),
        events in session_events(),
        seed: u64,
    ) {
        let mut world = World::new(fabric, needs, Config::default(), seed);
        let mut epoch = 1;
        for (wait, event) in &events {
            apply_session_event(&mut world, event, &mut epoch);
            world.traffic(ms(*wait));
        }
        world.connect_all();
        world.traffic(SECOND);
        world.pass(ms(100));
        let errors = world.network.delivery_errors();
        prop_assert!(errors.is_empty(), "{} of {}: {:?}", errors.len(), world.network.packets.len(), errors[0]);
        let flows: Vec<_> = world.network.controller.view().flows.values().collect();
        prop_assert!(flows.len() == 1 && flows[0].pending.is_none(), "{:?}", flows);
        world.pass(Nanos::from_secs(60));
        prop_assert_eq!(world.leaked(), Vec::<String>::new());
        prop_assert!(world.network.controller.view().flows.is_empty());
    }
}

/// An event in the network. Some concern one of four flows, by its number.
#[derive(Clone, Debug)]
enum NetworkEvent {
    First(u16),
    Last(u16),
    Route(u16, Vec<u8>),
    Unroute(u16),
    Session(prop::sample::Index, bool),
    Wipe(prop::sample::Index),
    Cable(prop::sample::Index, bool),
    Room(prop::sample::Index, Option<usize>),
    NewController(bool),
    NewScheme(Needs),
}

fn network_events() -> impl Strategy<Value = Vec<(u64, NetworkEvent)>> {
    let index = any::<prop::sample::Index>;
    let turns = prop::collection::vec(any::<u8>(), 1..6);
    let event = prop_oneof![
        4 => (0..4u16).prop_map(NetworkEvent::First),
        1 => (0..4u16).prop_map(NetworkEvent::Last),
        6 => (0..4u16, turns).prop_map(|(flow, turns)| NetworkEvent::Route(flow, turns)),
        1 => (0..4u16).prop_map(NetworkEvent::Unroute),
        3 => (index(), any::<bool>()).prop_map(|(which, up)| NetworkEvent::Session(which, up)),
        1 => index().prop_map(NetworkEvent::Wipe),
        3 => (index(), any::<bool>()).prop_map(|(which, up)| NetworkEvent::Cable(which, up)),
        2 => (index(), prop::option::of(0..3usize)).prop_map(|(which, room)| NetworkEvent::Room(which, room)),
        1 => any::<bool>().prop_map(NetworkEvent::NewController),
        1 => ways().prop_map(NetworkEvent::NewScheme),
    ];
    prop::collection::vec((0..150u64, event), 1..25)
}

fn apply_event(world: &mut World, event: &NetworkEvent, epoch: &mut u16) {
    let fabric = world.network.fabric.clone();
    let switches = fabric.switches();
    let headers = |world: &World, flow: u16, tcp_flags| {
        let five_tuple = world.flow.five_tuple.with_src_port(1000 + flow);
        Headers { tcp_flags, five_tuple, ..world.flow }
    };
    let known = |world: &World, flow: u16| {
        let five_tuple = headers(world, flow, 0).five_tuple;
        let views = &world.network.controller.view().flows;
        views.iter().find(|(_, view)| view.five_tuple == five_tuple).map(|(&id, _)| id)
    };
    match event {
        NetworkEvent::First(flow) => {
            world.network.send(headers(world, *flow, TCP_SYN));
        }
        NetworkEvent::Last(flow) => {
            world.network.send(headers(world, *flow, TCP_FIN));
        }
        NetworkEvent::Route(flow, turns) => {
            if let (Some(flow), Some(path)) = (known(world, *flow), world.walk(turns)) {
                world.script.at(world.network.now(), Action::Route { flow, path, rate_bps: None });
            }
        }
        NetworkEvent::Unroute(flow) => {
            if let Some(flow) = known(world, *flow) {
                world.script.at(world.network.now(), Action::Unroute { flow });
            }
        }
        NetworkEvent::Session(which, true) => world.network.connect(*which.get(switches)),
        NetworkEvent::Session(which, false) => world.network.disconnect(*which.get(switches)),
        NetworkEvent::Wipe(which) => world.network.wipe(*which.get(switches)),
        NetworkEvent::Cable(which, up) => {
            let cable = LinkId(2 * which.index(fabric.links().len() / 2) as u32);
            if fabric.is_switch_link(cable) {
                world.network.set_cable(cable, *up);
            }
        }
        NetworkEvent::Room(which, room) => {
            let switch = &mut world.network.switches[which.get(switches).index()];
            switch.room = room.map(|room| switch.entries.len() + room);
        }
        NetworkEvent::NewController(remembers) => {
            apply_session_event(world, if *remembers { &SessionEvent::Restore } else { &SessionEvent::Restart }, epoch)
        }
        NetworkEvent::NewScheme(needs) => {
            let scheme = world.script.scheme_with(*needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
            world.network.set_scheme(scheme);
        }
    }
}

proptest! {
    #![proptest_config(quick())]

    #[test]
    fn all_is_in_order_after_random_events(
        fabric in strategies::fabrics(),
        needs in ways(),
        events in network_events(),
        seed: u64,
    ) {
        let mut world = World::new(fabric.clone(), needs, Config::default(), seed);
        let mut epoch = 1;
        for (wait, event) in &events {
            apply_event(&mut world, event, &mut epoch);
            world.traffic(ms(*wait));
        }
        world.network.switches.iter_mut().for_each(|switch| switch.room = None);
        world.connect_all();
        (0..fabric.links().len() as u32).step_by(2).for_each(|cable| world.network.set_cable(LinkId(cable), true));
        // Long enough for cables that flapped, and for rules that were refused and are sent again.
        for _ in 0..80 {
            world.traffic(ms(1));
            world.pass(SECOND);
        }
        for flow in 0..4 {
            let five_tuple = world.flow.five_tuple.with_src_port(1000 + flow);
            let headers = Headers { five_tuple, ..world.flow };
            prop_assert!(world.network.reaches(headers), "{:?}: {:?}", headers, world.network.fates(headers));
        }
        let pending = world.network.controller.view().flows.values().any(|flow| flow.pending.is_some());
        prop_assert!(!pending, "{:?}", world.network.controller.view().flows);
        prop_assert!(world.network.packets.iter().all(|report| report.fates.len() <= 1), "no packet was duplicated");
        world.pass(Nanos::from_secs(60));
        prop_assert_eq!(world.leaked(), Vec::<String>::new());
        prop_assert!(world.network.controller.view().flows.is_empty());
    }
}
