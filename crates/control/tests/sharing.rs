//! Flows that share rules (OFPT §5.2: flow aggregation): what they cost, and that nothing is lost or left.

use pathloom_control::{Config, Controller};
use pathloom_model::rules::Refusal;
use pathloom_model::{
    fabric_from_spec, Fabric, FiveTuple, Headers, Nanos, NodeId, Path, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN,
};
use pathloom_scheme::{Action, DefaultRoutes, Detection, Event, FlowId, Needs, Rejection, RuleSharing};
use pathloom_testkit::{Network, Script, Timing};
use std::sync::Arc;

const SHARED: Needs = Needs { detection: Detection::Label, rules: RuleSharing::PerPath, ..Needs::NOTHING };
const SECOND: Nanos = Nanos::from_secs(1);

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

const SLOW: Timing =
    Timing { link: (Nanos(100_000), Nanos(3_000_000)), message: (ms(1), ms(15)), work: (ms(0), ms(30)), lies: false };

struct World {
    network: Network,
    script: Script,
    flows: Vec<Headers>,
    bare: Vec<usize>,
}

impl World {
    /// Flows between these hosts of a FatTree, by their numbers.
    fn new(needs: Needs, pairs: &[(usize, usize)]) -> World {
        let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap());
        let script = Script::new();
        let scheme = script.scheme_with(needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
        let controller = Controller::new(Config::default(), fabric.clone(), scheme);
        let mut network = Network::new(fabric.clone(), controller, SLOW, 7);
        network.start();
        let bare = network.switches.iter().map(|switch| switch.entries.len()).collect();
        let at = fabric.attachments();
        let flow = |(port, &(src, dst)): (u16, &(usize, usize))| {
            let (src, dst) = (at[src].address, at[dst].address);
            let five_tuple = FiveTuple { src, dst, proto: PROTO_TCP, src_port: 1000 + port, dst_port: 80 };
            Headers { dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) }
        };
        let flows: Vec<Headers> = (0..).zip(pairs).map(flow).collect();
        for &headers in &flows {
            network.send(Headers { tcp_flags: TCP_SYN, ..headers });
            network.run_until(network.now() + ms(50));
        }
        network.run_until(network.now() + ms(300));
        World { network, script, flows, bare }
    }

    fn ids(&self) -> Vec<FlowId> {
        self.network.controller.view().flows.keys().copied().collect()
    }

    /// Puts a flow on the path over these switches.
    fn route(&mut self, flow: usize, over: &[&str]) {
        let fabric = self.fabric();
        let node = |name: &str| fabric.find(name).unwrap();
        let links = over.windows(2).map(|pair| fabric.link_between(node(pair[0]), node(pair[1])).unwrap());
        let path = Path::new(links.collect::<Vec<_>>());
        self.script.at(self.network.now(), Action::Route { flow: self.ids()[flow], path, rate_bps: None });
    }

    fn fabric(&self) -> Arc<Fabric> {
        self.network.fabric.clone()
    }

    fn traffic(&mut self, time: Nanos) {
        let end = self.network.now() + time;
        while self.network.now() < end {
            for &headers in &self.flows {
                self.network.send(headers);
            }
            self.network.run_until(self.network.now() + Nanos(2_300_000));
        }
    }

    /// Rules that a switch has beside those it had at first.
    fn rules(&self, name: &str) -> usize {
        let at: NodeId = self.fabric().find(name).unwrap();
        let now = self.network.switches[at.index()].entries.len();
        assert_eq!(now, self.network.controller.rules_at(at) as usize, "{name}: as counted");
        now - self.bare[at.index()]
    }

    fn nothing_is_lost_or_left(&mut self) {
        self.network.run_until(self.network.now() + Nanos::from_secs(60));
        assert!(self.network.mishaps().is_empty(), "{:?}", self.network.mishaps()[0]);
        let left: Vec<usize> = self.network.switches.iter().map(|switch| switch.entries.len()).collect();
        assert_eq!(left, self.bare);
        for &switch in self.fabric().switches() {
            assert_eq!(self.network.controller.rules_at(switch) as usize, self.bare[switch.index()]);
        }
        assert!(self.network.controller.view().flows.is_empty());
    }
}

const FIRST: [&str; 5] = ["e0_0", "a0_0", "c0", "a1_0", "e1_0"];
const OTHER: [&str; 5] = ["e0_0", "a0_1", "c2", "a1_1", "e1_0"];

#[test]
fn flows_on_one_path_share_all_rules_but_the_first() {
    let mut world = World::new(SHARED, &[(0, 4), (1, 5), (0, 5)]);
    for flow in 0..3 {
        world.route(flow, &FIRST);
        world.traffic(ms(300));
    }
    assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| world.rules(name)), [3, 1, 1, 1, 1]);
    world.route(0, &OTHER);
    world.traffic(SECOND);
    let both = ["e0_0", "a0_0", "c0", "a1_0", "e1_0", "a0_1", "c2", "a1_1"];
    // At e1_0 both paths end, so they have one label there.
    assert_eq!(both.map(|name| world.rules(name)), [3, 1, 1, 1, 1, 1, 1, 1]);
    world.route(1, &OTHER);
    world.route(2, &OTHER);
    world.traffic(SECOND);
    assert_eq!(both.map(|name| world.rules(name)), [3, 0, 0, 0, 1, 1, 1, 1], "after the drain nobody needs them");
    let counts = world.network.controller.counts();
    assert_eq!((counts.routes, counts.reroutes, counts.reroutes_in_place), (3, 3, 0));
    world.nothing_is_lost_or_left();
}

#[test]
fn paths_to_one_tor_share_their_last_part() {
    let mut world = World::new(SHARED, &[(0, 4), (8, 4), (12, 5)]);
    world.route(0, &FIRST);
    world.route(1, &["e2_0", "a2_0", "c0", "a1_0", "e1_0"]);
    world.route(2, &["e3_0", "a3_0", "c0", "a1_0", "e1_0"]);
    world.traffic(SECOND);
    assert_eq!(["c0", "a1_0", "e1_0", "a2_0", "a3_0"].map(|name| world.rules(name)), [1; 5]);
    world.nothing_is_lost_or_left();
    let mut apart = World::new(Needs { rules: RuleSharing::PerFlow, ..SHARED }, &[(0, 4), (8, 4), (12, 5)]);
    apart.route(0, &FIRST);
    apart.route(1, &["e2_0", "a2_0", "c0", "a1_0", "e1_0"]);
    apart.traffic(SECOND);
    assert_eq!(["c0", "a1_0", "e1_0", "a2_0"].map(|name| apart.rules(name)), [2, 2, 2, 1]);
}

/// A new controller, with and without a memory, finds the rules, and takes away what nobody claims.
#[test]
fn shared_rules_are_adopted() {
    for memory in [false, true] {
        let mut world = World::new(SHARED, &[(0, 4), (1, 5), (8, 5)]);
        world.route(0, &FIRST);
        world.route(1, &FIRST);
        world.traffic(SECOND);
        let snapshot = memory.then(|| world.network.controller.snapshot());
        world.network.kill_controller();
        world.traffic(ms(20));
        let config = Config { epoch: 2, ..Config::default() };
        let scheme = world.script.scheme_with(SHARED, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
        let (fabric, now) = (world.fabric(), world.network.now());
        world.network.start_controller(match snapshot {
            Some(snapshot) => Controller::restore(config, fabric.clone(), scheme, snapshot, now).unwrap(),
            None => Controller::new(config, fabric.clone(), scheme),
        });
        fabric.switches().iter().rev().for_each(|&switch| world.network.connect(switch));
        world.traffic(SECOND);
        let routes: Vec<bool> =
            world.network.controller.view().flows.values().map(|flow| flow.route.is_some()).collect();
        assert_eq!(routes, [true, true, false], "{memory}");
        assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| world.rules(name)), [2, 1, 1, 1, 1]);
        world.route(2, &["e2_0", "a2_0", "c0", "a1_0", "e1_0"]);
        world.traffic(SECOND);
        assert_eq!(["c0", "a1_0", "e1_0"].map(|name| world.rules(name)), [1, 1, 1], "and used by new flows");
        world.nothing_is_lost_or_left();
    }
}

#[test]
fn a_full_table_on_a_shared_path_rejects_all_who_wait_for_it() {
    let mut world = World::new(SHARED, &[(0, 4), (1, 5)]);
    let core = world.fabric().find("c0").unwrap();
    world.network.switches[core.index()].room = Some(world.bare[core.index()]);
    world.script.clear();
    world.route(0, &FIRST);
    world.route(1, &FIRST);
    world.traffic(ms(500));
    let why = Rejection::Refused(core, Refusal::TableFull);
    let rejected = world.ids().into_iter().map(|flow| Event::RouteRejected { flow, why }).collect::<Vec<_>>();
    assert_eq!(world.script.events(), rejected);
    assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| world.rules(name)), [2, 0, 0, 0, 0]);
    world.network.switches[core.index()].room = None;
    world.route(0, &FIRST);
    world.traffic(ms(500));
    assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| world.rules(name)), [2, 1, 1, 1, 1]);
    world.nothing_is_lost_or_left();
}

#[test]
fn a_switch_that_lost_its_rules_gets_the_shared_ones_back() {
    let mut world = World::new(SHARED, &[(0, 4), (1, 5)]);
    world.route(0, &FIRST);
    world.route(1, &FIRST);
    world.traffic(SECOND);
    world.network.run_until(world.network.now() + ms(100));
    let core = world.fabric().find("c0").unwrap();
    world.network.wipe(core);
    world.network.run_until(world.network.now() + ms(100));
    world.network.connect(core);
    world.network.run_until(world.network.now() + ms(500));
    assert_eq!(world.rules("c0"), 1);
    world.traffic(ms(300));
    world.nothing_is_lost_or_left();
}
