//! Dead links, lost sessions, refusals, restarts: what must hold whatever happens.

use pathloom_control::{replay, Config, Controller, Input, Message, RestoreError, Snapshot};
use pathloom_model::rules::Refusal;
use pathloom_model::{
    fabric_from_spec, Fabric, FiveTuple, Headers, LinkId, Nanos, NodeId, Path, LONG_FLOW_DSCP, PROTO_TCP, TCP_FIN,
    TCP_SYN,
};
use pathloom_scheme::{Action, DefaultRoutes, Detection, Event, FlowId, Migration, Needs, Rejection, RuleSharing};
use pathloom_testkit::{strategies, Network, Script, Timing};
use proptest::prelude::*;
use std::sync::Arc;

const LABEL: Needs = Needs { detection: Detection::Label, ..Needs::NOTHING };
const SECOND: Nanos = Nanos::from_secs(1);

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

const SLOW: Timing =
    Timing { link: (Nanos(100_000), Nanos(3_000_000)), message: (ms(1), ms(15)), work: (ms(0), ms(30)), lies: false };

/// The same, with flows that move in place.
const SFMM: Needs = Needs { migration: Migration::Sfmm, ..LABEL };

/// The same, with rules that flows share.
const SHARED: Needs = Needs { rules: RuleSharing::PerPath, ..LABEL };

/// Every way to move flows.
fn ways() -> impl Strategy<Value = Needs> {
    prop_oneof![Just(LABEL), Just(SFMM), Just(SHARED)]
}

fn controller(fabric: &Arc<Fabric>, script: &Script, needs: Needs, epoch: u16) -> Controller {
    let start = vec![Action::SetDefaults(DefaultRoutes::SinglePath)];
    let config = Config { epoch, ..Config::default() };
    Controller::new(config, fabric.clone(), script.scheme_with(needs, start))
}

struct World {
    needs: Needs,
    network: Network,
    script: Script,
    flow: Headers,
    bare: Vec<usize>,
}

impl World {
    fn new(fabric: Arc<Fabric>, needs: Needs, timing: Timing, seed: u64) -> World {
        let script = Script::new();
        let mut network = Network::new(fabric.clone(), controller(&fabric, &script, needs, 1), timing, seed);
        network.start();
        let bare = network.switches.iter().map(|switch| switch.entries.len()).collect();
        let (src, dst) = (fabric.attachments()[0].address, fabric.attachments().last().unwrap().address);
        let five_tuple = FiveTuple { src, dst, proto: PROTO_TCP, src_port: 1000, dst_port: 80 };
        let flow = Headers { dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) };
        network.send(Headers { tcp_flags: TCP_SYN, ..flow });
        let later = network.now() + ms(300);
        network.run_until(later);
        World { needs, network, script, flow, bare }
    }

    fn fat_tree() -> World {
        World::with(LABEL)
    }

    fn with(needs: Needs) -> World {
        World::new(Arc::new(fabric_from_spec("fat-tree:k=4").unwrap()), needs, SLOW, 1)
    }

    fn id(&self) -> FlowId {
        *self.network.controller.view().flows.keys().next().expect("the flow is known")
    }

    fn walk(&self, turns: &[u8]) -> Option<Path> {
        let fabric = &self.network.fabric;
        let tor = |address| fabric.attachment(address).unwrap().tor;
        strategies::walk(fabric, tor(self.flow.five_tuple.src), tor(self.flow.five_tuple.dst), turns)
    }

    fn route(&mut self, path: &Path) {
        let action = Action::Route { flow: self.id(), path: path.clone(), rate_bps: None };
        self.script.at(self.network.now(), action);
    }

    /// Passes time under steady traffic of the flow.
    fn traffic(&mut self, time: Nanos) {
        let end = self.network.now() + time;
        while self.network.now() < end {
            self.network.send(self.flow);
            let next = self.network.now() + Nanos(700_000);
            self.network.run_until(next);
        }
    }

    fn pass(&mut self, time: Nanos) {
        let end = self.network.now() + time;
        self.network.run_until(end);
    }

    fn leaked(&self) -> Vec<String> {
        let mut found = Vec::new();
        for &switch in self.network.fabric.switches() {
            let now = self.network.switches[switch.index()].entries.len();
            let (then, counted) = (self.bare[switch.index()], self.network.controller.rules_at(switch) as usize);
            if (now, counted) != (then, then) {
                found.push(format!("{switch:?}: {then} rules at first, {now} now, {counted} counted"));
            }
        }
        found
    }

    /// What the scheme heard since it was last asked.
    fn events(&self) -> Vec<Event> {
        let events = self.script.events();
        self.script.clear();
        events
    }

    /// The controller dies, and a new one, without a memory, takes over.
    fn restart(&mut self, epoch: u16) {
        self.network.kill_controller();
        let fabric = self.network.fabric.clone();
        self.network.start_controller(controller(&fabric, &self.script, self.needs, epoch));
    }

    fn connect_all(&mut self) {
        self.network.fabric.switches().to_vec().into_iter().for_each(|switch| self.network.connect(switch));
    }

    fn no_mishap(&mut self) {
        self.pass(ms(100));
        let mishaps = self.network.mishaps();
        assert!(mishaps.is_empty(), "{} of {}: {:?}", mishaps.len(), self.network.packets.len(), mishaps[0]);
    }
}

#[test]
fn a_cut_path_is_left_at_once_and_the_scheme_may_route_again() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    world.events();
    let dead = path.links()[1];
    world.network.set_cable(dead, false);
    world.traffic(ms(400));
    let sent = world.network.packets.len();
    world.traffic(SECOND);
    let id = world.id();
    let (low, high) = (dead.min(dead.reverse()), dead.max(dead.reverse()));
    let changed = |link| Event::LinkChanged { link, up: false };
    assert_eq!(world.events(), [changed(low), changed(high)]);
    assert_eq!(world.network.controller.view().flows[&id].route, None);
    assert_eq!(world.network.controller.counts().rescued, 1);
    let late = world.network.mishaps().into_iter().filter(|report| report.sent > ms(400)).count();
    assert!(late > 0, "the link took some packets with it");
    world.pass(ms(100));
    let bad = world.network.mishaps();
    assert!(bad.iter().all(|report| !world.network.packets[sent..].iter().any(|p| p.sent == report.sent)));
    world.route(&path);
    world.pass(ms(300));
    let why = Rejection::LinkDown(dead);
    assert_eq!(world.events(), [Event::RouteRejected { flow: id, why }]);
    world.network.set_cable(dead, true);
    world.pass(SECOND);
    world.route(&path);
    world.traffic(SECOND);
    assert!(world.events().contains(&Event::RouteConfirmed { flow: id }));
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn a_link_that_dies_in_the_middle_of_a_move_ends_it() {
    for wait in [1, 20, 40, 60, 80, 120] {
        let mut world = World::fat_tree();
        let (old, new) = (world.walk(&[2]).unwrap(), world.walk(&[3]).unwrap());
        world.route(&old);
        world.traffic(SECOND);
        world.events();
        world.route(&new);
        world.traffic(ms(wait));
        let dead = *new.links().iter().find(|link| !old.links().contains(link)).unwrap();
        world.network.set_cable(dead, false);
        world.traffic(SECOND);
        let id = world.id();
        let events = world.events();
        let answers = events.iter().filter(|event| {
            matches!(event, Event::RouteConfirmed { .. } | Event::RouteRejected { why: Rejection::LinkDown(_), .. })
        });
        assert_eq!(answers.count(), 1, "{wait}: {events:?}");
        let view = &world.network.controller.view().flows[&id];
        assert!(view.pending.is_none() && view.route.as_ref() != Some(&new), "{wait}: {view:?}");
        assert!(world.network.reaches(world.flow));
        world.pass(Nanos::from_secs(40));
        world.network.set_cable(dead, true);
        world.pass(SECOND);
        assert_eq!(world.leaked(), Vec::<String>::new(), "{wait}");
    }
}

#[test]
fn paths_that_make_no_sense_are_rejected() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    let id = world.id();
    let links = path.links().to_vec();
    let host_link = world.network.fabric.attachments()[0].uplink;
    let cases = [
        (Path::new(links[1..].to_vec()), Rejection::WrongEnds),
        (path.reverse(), Rejection::WrongEnds),
        (Path::empty(), Rejection::WrongEnds),
        (Path::new([links[0], links[2]]), Rejection::Malformed),
        (Path::new([host_link]), Rejection::Malformed),
        (Path::new([LinkId(9999)]), Rejection::Malformed),
    ];
    for (path, why) in cases {
        world.events();
        world.route(&path);
        world.pass(SECOND);
        assert_eq!(world.events(), [Event::RouteRejected { flow: id, why }]);
    }
    let action = Action::Route { flow: FlowId(12345), path, rate_bps: None };
    world.script.at(world.network.now(), action);
    world.pass(SECOND);
    let why = Rejection::UnknownFlow;
    assert_eq!(world.events(), [Event::RouteRejected { flow: FlowId(12345), why }]);
    assert_eq!(world.network.controller.counts().rejected, 7);
}

#[test]
fn a_full_table_rolls_the_path_back() {
    for full in 0..5 {
        let mut world = World::fat_tree();
        let path = world.walk(&[2]).unwrap();
        let switches = path.switches(&world.network.fabric, world.network.fabric.link(path.links()[0]).from);
        let Some(&switch) = switches.get(full) else { break };
        let now = world.network.switches[switch.index()].entries.len();
        world.network.switches[switch.index()].room = Some(now);
        world.events();
        world.route(&path);
        world.traffic(SECOND);
        let (flow, why) = (world.id(), Rejection::Refused(switch, Refusal::TableFull));
        assert_eq!(world.events(), [Event::RouteRejected { flow, why }]);
        assert_eq!(world.network.controller.view().flows[&flow].route, None);
        world.no_mishap();
        world.pass(Nanos::from_secs(40));
        assert_eq!(world.leaked(), Vec::<String>::new(), "switch {full} of the path");
    }
}

#[test]
fn a_default_route_that_was_refused_is_sent_again() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let script = Script::new();
    let mut network = Network::new(fabric.clone(), controller(&fabric, &script, LABEL, 1), Timing::NONE, 1);
    let tor = fabric.tors()[0];
    network.switches[tor.index()].room = Some(5);
    network.start();
    assert_eq!(network.switches[tor.index()].entries.len(), 5);
    assert!(network.controller.counts().refused > 0);
    network.switches[tor.index()].room = None;
    network.run_until(Nanos::from_secs(120));
    assert_eq!(network.switches[tor.index()].entries.len(), network.controller.rules_at(tor) as usize);
    assert!(network.controller.counts().messages_out < 2000, "not too often");
}

#[test]
fn a_lost_session_does_not_stop_traffic() {
    let mut world = World::fat_tree();
    let (old, new) = (world.walk(&[2]).unwrap(), world.walk(&[3]).unwrap());
    world.route(&old);
    world.traffic(SECOND);
    let middle = world.network.fabric.link(old.links()[1]).to;
    world.network.disconnect(middle);
    world.traffic(SECOND);
    world.events();
    world.route(&old.clone());
    world.pass(ms(100));
    assert_eq!(world.events(), [Event::RouteConfirmed { flow: world.id() }], "it is there already");
    let through = if new.switches(&world.network.fabric, NodeId(0)).contains(&middle) { new.clone() } else { new };
    world.route(&through);
    world.traffic(SECOND);
    world.network.connect(middle);
    world.traffic(SECOND);
    world.no_mishap();
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn a_switch_with_empty_tables_gets_everything_back() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    for &switch in &path.switches(&world.network.fabric, world.network.fabric.link(path.links()[0]).from) {
        world.network.wipe(switch);
        assert!(!world.network.reaches(world.flow));
        world.network.connect(switch);
        world.pass(SECOND);
        assert!(world.network.reaches(world.flow));
        assert_eq!(world.network.controller.view().flows[&world.id()].route.as_ref(), Some(&path));
    }
    world.traffic(SECOND);
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.leaked(), Vec::<String>::new());
}

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

fn restored(world: &World, snapshot: Snapshot, epoch: u16) -> Result<Controller, RestoreError> {
    let fabric = world.network.fabric.clone();
    let start = vec![Action::SetDefaults(DefaultRoutes::SinglePath)];
    let scheme = world.script.scheme_with(world.needs, start);
    Controller::restore(Config { epoch, ..Config::default() }, fabric, scheme, snapshot, world.network.now())
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
    let controller = restored(&world, snapshot.clone(), 2).unwrap();
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
    let controller = restored(&world, snapshot, 3).unwrap();
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
        restored(&world, snapshot, 2).err().map(|error| error.to_string()).unwrap_or_default()
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
    let again = || controller(&world.network.fabric, &world.script.from_the_start(), LABEL, 1);
    assert!(replay(&records, &mut again()).unwrap() > 100);
    let output = records.iter().rposition(|record| matches!(record.message, Message::Output(_))).unwrap();
    let at = records[output].at;
    records.remove(output);
    let divergence = replay(&records, &mut again()).unwrap_err();
    assert_eq!((divergence.at >= at, divergence.logged.is_none()), (true, true));
    let cut = &text[..text.len() - 20];
    assert!(pathloom_control::read_log(cut).unwrap_err().to_string().contains("cut off"));
}

/// Few cases each time, and as many as `PROPTEST_CASES` says for who wants to know.
fn quick() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let standard = ProptestConfig::default();
    ProptestConfig { cases: if asked { standard.cases } else { 150 }, ..standard }
}

/// Something that happens to the network.
#[derive(Clone, Debug)]
enum Blow {
    Route(Vec<u8>),
    Unroute,
    Disconnect(prop::sample::Index),
    Connect(prop::sample::Index),
    Restart,
    Restore,
}

fn blows() -> impl Strategy<Value = Vec<(u64, Blow)>> {
    let turns = prop::collection::vec(any::<u8>(), 1..6);
    let blow = prop_oneof![
        4 => turns.prop_map(Blow::Route),
        1 => Just(Blow::Unroute),
        3 => any::<prop::sample::Index>().prop_map(Blow::Disconnect),
        3 => any::<prop::sample::Index>().prop_map(Blow::Connect),
        1 => Just(Blow::Restart),
        1 => Just(Blow::Restore),
    ];
    prop::collection::vec((0..120u64, blow), 1..12)
}

fn strike(world: &mut World, blow: &Blow, epoch: &mut u16) {
    let switches = world.network.fabric.switches().to_vec();
    let id = world.network.controller.view().flows.keys().next().copied();
    match blow {
        Blow::Route(turns) => {
            if let (Some(_), Some(path)) = (id, world.walk(turns)) {
                world.route(&path);
            }
        }
        Blow::Unroute => {
            if let Some(flow) = id {
                world.script.at(world.network.now(), Action::Unroute { flow });
            }
        }
        Blow::Disconnect(which) => world.network.disconnect(*which.get(&switches)),
        Blow::Connect(which) => world.network.connect(*which.get(&switches)),
        Blow::Restart => {
            *epoch += 1;
            world.restart(*epoch);
            switches.iter().step_by(2).for_each(|&switch| world.network.connect(switch));
        }
        Blow::Restore => {
            *epoch += 1;
            let snapshot = world.network.controller.snapshot();
            world.network.kill_controller();
            world.traffic(ms(20));
            let controller = restored(world, snapshot, *epoch).unwrap();
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
        blows in blows(),
        seed: u64,
    ) {
        let mut world = World::new(fabric, needs, SLOW, seed);
        let mut epoch = 1;
        for (wait, blow) in &blows {
            strike(&mut world, blow, &mut epoch);
            world.traffic(ms(*wait));
        }
        world.connect_all();
        world.traffic(SECOND);
        world.pass(ms(100));
        let mishaps = world.network.mishaps();
        prop_assert!(mishaps.is_empty(), "{} of {}: {:?}", mishaps.len(), world.network.packets.len(), mishaps[0]);
        let flows: Vec<_> = world.network.controller.view().flows.values().collect();
        prop_assert!(flows.len() == 1 && flows[0].pending.is_none(), "{:?}", flows);
        world.pass(Nanos::from_secs(60));
        prop_assert_eq!(world.leaked(), Vec::<String>::new());
        prop_assert!(world.network.controller.view().flows.is_empty());
    }
}

/// Anything at all that happens to the network, to flow number `flow` of four where one is meant.
#[derive(Clone, Debug)]
enum Gust {
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

fn storms() -> impl Strategy<Value = Vec<(u64, Gust)>> {
    let index = any::<prop::sample::Index>;
    let turns = prop::collection::vec(any::<u8>(), 1..6);
    let gust = prop_oneof![
        4 => (0..4u16).prop_map(Gust::First),
        1 => (0..4u16).prop_map(Gust::Last),
        6 => (0..4u16, turns).prop_map(|(flow, turns)| Gust::Route(flow, turns)),
        1 => (0..4u16).prop_map(Gust::Unroute),
        3 => (index(), any::<bool>()).prop_map(|(which, up)| Gust::Session(which, up)),
        1 => index().prop_map(Gust::Wipe),
        3 => (index(), any::<bool>()).prop_map(|(which, up)| Gust::Cable(which, up)),
        2 => (index(), prop::option::of(0..3usize)).prop_map(|(which, room)| Gust::Room(which, room)),
        1 => any::<bool>().prop_map(Gust::NewController),
        1 => ways().prop_map(Gust::NewScheme),
    ];
    prop::collection::vec((0..150u64, gust), 1..25)
}

fn blow(world: &mut World, gust: &Gust, epoch: &mut u16) {
    let fabric = world.network.fabric.clone();
    let switches = fabric.switches();
    let headers = |world: &World, flow: u16, tcp_flags| {
        let five_tuple = FiveTuple { src_port: 1000 + flow, ..world.flow.five_tuple };
        Headers { tcp_flags, five_tuple, ..world.flow }
    };
    let known = |world: &World, flow: u16| {
        let five_tuple = headers(world, flow, 0).five_tuple;
        let views = &world.network.controller.view().flows;
        views.iter().find(|(_, view)| view.five_tuple == five_tuple).map(|(&id, _)| id)
    };
    match gust {
        Gust::First(flow) => {
            world.network.send(headers(world, *flow, TCP_SYN));
        }
        Gust::Last(flow) => {
            world.network.send(headers(world, *flow, TCP_FIN));
        }
        Gust::Route(flow, turns) => {
            if let (Some(flow), Some(path)) = (known(world, *flow), world.walk(turns)) {
                world.script.at(world.network.now(), Action::Route { flow, path, rate_bps: None });
            }
        }
        Gust::Unroute(flow) => {
            if let Some(flow) = known(world, *flow) {
                world.script.at(world.network.now(), Action::Unroute { flow });
            }
        }
        Gust::Session(which, true) => world.network.connect(*which.get(switches)),
        Gust::Session(which, false) => world.network.disconnect(*which.get(switches)),
        Gust::Wipe(which) => world.network.wipe(*which.get(switches)),
        Gust::Cable(which, up) => {
            let cable = LinkId(2 * which.index(fabric.links().len() / 2) as u32);
            if fabric.is_switch_link(cable) {
                world.network.set_cable(cable, *up);
            }
        }
        Gust::Room(which, room) => {
            let switch = &mut world.network.switches[which.get(switches).index()];
            switch.room = room.map(|room| switch.entries.len() + room);
        }
        Gust::NewController(remembers) => {
            strike(world, if *remembers { &Blow::Restore } else { &Blow::Restart }, epoch)
        }
        Gust::NewScheme(needs) => {
            let scheme = world.script.scheme_with(*needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
            world.network.set_scheme(scheme);
        }
    }
}

proptest! {
    #![proptest_config(quick())]

    #[test]
    fn after_every_storm_all_is_as_it_should_be(
        fabric in strategies::fabrics(),
        needs in ways(),
        storm in storms(),
        seed: u64,
    ) {
        let mut world = World::new(fabric.clone(), needs, SLOW, seed);
        let mut epoch = 1;
        for (wait, gust) in &storm {
            blow(&mut world, gust, &mut epoch);
            world.traffic(ms(*wait));
        }
        world.network.switches.iter_mut().for_each(|switch| switch.room = None);
        world.connect_all();
        (0..fabric.links().len() as u32).step_by(2).for_each(|cable| world.network.set_cable(LinkId(cable), true));
        // Long enough for cables that flapped, and for rules that were refused to be sent again.
        for _ in 0..80 {
            world.traffic(ms(1));
            world.pass(SECOND);
        }
        for flow in 0..4 {
            let five_tuple = FiveTuple { src_port: 1000 + flow, ..world.flow.five_tuple };
            let headers = Headers { five_tuple, ..world.flow };
            prop_assert!(world.network.reaches(headers), "{:?}: {:?}", headers, world.network.fates(headers));
        }
        let pending = world.network.controller.view().flows.values().any(|flow| flow.pending.is_some());
        prop_assert!(!pending, "{:?}", world.network.controller.view().flows);
        prop_assert!(world.network.packets.iter().all(|report| report.fates.len() <= 1), "no packet was doubled");
        world.pass(Nanos::from_secs(60));
        prop_assert_eq!(world.leaked(), Vec::<String>::new());
        prop_assert!(world.network.controller.view().flows.is_empty());
    }
}
