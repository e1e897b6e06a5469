//! Bad input: each test feeds one kind of bad fabric, flow, link or switch to every central scheme. The world of
//! `support` also checks that the scheme requests nothing that the contract forbids. docs/schemes.md has the same as
//! a table.

use crate::support::World;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::rules::Refusal;
use pathloom_model::{Fabric, FabricBuilder, LinkId, LinkSettings, Nanos, NodeId, Tier};
use pathloom_scheme::{Action, Event, FlowId, Rejection, View};
use pathloom_schemes::Registry;
use pathloom_testkit::schemes::{central, fast, Tested};
use std::sync::Arc;

/// Polling period of the schemes that are polled.
const ROUND: Nanos = Nanos::from_secs(5);
const FLOW: FlowId = FlowId(1);
const OTHER: FlowId = FlowId(2);

/// A scheme, and all actions that it requested.
struct Play {
    world: World,
    asked: Vec<Action>,
}

impl Play {
    fn new(fabric: Fabric, scheme: &str) -> Play {
        let mut world = World::new("dumbbell", scheme, 1);
        world.view = View::new(Arc::new(fabric));
        let mut play = Play { world, asked: Vec::new() };
        play.tell(&Event::Started);
        assert!(matches!(play.asked[0], Action::SetDefaults(_)), "{scheme}: flows without a path have default routes");
        play
    }

    fn on(fabric: &str, scheme: &str) -> Play {
        Play::new(fabric_from_spec(fabric).unwrap(), scheme)
    }

    fn tell(&mut self, event: &Event) {
        let asked = self.world.deliver(event);
        self.asked.extend(asked);
    }

    /// A long flow between two hosts, by their numbers.
    fn arrive(&mut self, flow: FlowId, (src, dst): (usize, usize), size_bytes: Option<u64>) {
        let hosts = self.world.view.fabric.hosts().to_vec();
        self.world.add_flow(flow, (hosts[src], 0), (hosts[dst], 0), flow.0 as u16);
        self.world.view.flows.get_mut(&flow).unwrap().size_bytes = size_bytes.into();
        self.tell(&Event::FlowArrived { flow });
    }

    fn link(&mut self, link: LinkId, up: bool) {
        self.tell(&Event::LinkChanged { link, up });
        self.tell(&Event::LinkChanged { link: link.reverse(), up });
    }

    /// Advances by one polling period: delivers due time-outs and measurements, and ends jobs.
    fn poll(&mut self) {
        self.world.now = self.world.now.saturating_add(ROUND);
        for wake in 0.. {
            assert!(wake < 10, "the scheme requests a time-out at once, again and again");
            if self.world.scheme.poll_timeout().is_none_or(|at| at > self.world.now) {
                break;
            }
            self.tell(&Event::Timeout);
        }
        self.tell(&Event::RatesMeasured { period: ROUND });
        for job in 0.. {
            assert!(job < 10, "the scheme never stops solving");
            let Some((_, asked)) = self.world.solve() else { break };
            self.asked.extend(asked);
        }
    }

    /// As [`Play::poll`]; then the switches confirm all requested paths.
    fn round(&mut self) {
        self.poll();
        let pending = |(&id, flow): (&FlowId, &pathloom_scheme::FlowView)| flow.pending.is_some().then_some(id);
        let pending: Vec<FlowId> = self.world.view.flows.iter().filter_map(pending).collect();
        pending.into_iter().for_each(|flow| self.tell(&Event::RouteConfirmed { flow }));
    }

    fn rounds(&mut self, count: usize) {
        (0..count).for_each(|_| self.round());
    }

    /// Whether a path of the flow was requested or removed since the last call.
    fn moved(&mut self, wanted: FlowId) -> bool {
        std::mem::take(&mut self.asked).iter().any(|action| match action {
            Action::Route { flow, .. } | Action::Unroute { flow } => *flow == wanted,
            _ => false,
        })
    }

    /// The switches on a flow's own path.
    fn switches(&self, flow: FlowId) -> Option<Vec<NodeId>> {
        let (fabric, flow) = (&self.world.view.fabric, self.world.view.flows.get(&flow)?);
        flow.route.as_ref().map(|path| path.switches(fabric, flow.src_tor))
    }
}

#[test]
fn every_central_scheme_is_tested() {
    for name in Registry::WithTestSchemes.names() {
        let has_central = Registry::WithTestSchemes.parse(name).unwrap().central(1).is_some();
        assert_eq!(has_central, central().any(|tested| tested.name == name), "{name}");
        assert_eq!(has_central, fast().any(|tested| tested.name == name), "{name}");
    }
}

const LINK: LinkSettings = LinkSettings { rate_bps: 10_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

/// A ring of four core switches with two hosts each. No switch is in the ToR tier, and each has paths in two
/// directions.
fn ring() -> Fabric {
    let mut builder = FabricBuilder::new("ring");
    let switches: Vec<NodeId> = (0..4).map(|i| builder.switch(format!("c{i}"), Tier::Core, None)).collect();
    for i in 0..4 {
        builder.cable(switches[i], switches[(i + 1) % 4], LINK);
    }
    for i in 0..8 {
        let host = builder.host(format!("h{i}"), None);
        builder.cable(host, switches[i / 2], LINK);
    }
    builder.build().unwrap()
}

/// A leaf-spine fabric with hosts at the spines: every switch with hosts is a ToR, in whatever tier.
fn hosts_at_spines() -> Fabric {
    let mut builder = FabricBuilder::new("spines with hosts");
    let leaves = ["l0", "l1"].map(|name| builder.switch(name, Tier::Tor, None));
    let spines = ["s0", "s1"].map(|name| builder.switch(name, Tier::Core, None));
    for (leaf, spine) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        builder.cable(leaves[leaf], spines[spine], LINK);
    }
    for (number, switch) in [spines[0], spines[0], leaves[0], leaves[1], spines[1], spines[1]].into_iter().enumerate() {
        let host = builder.host(format!("h{number}"), None);
        builder.cable(host, switch, LINK);
    }
    builder.build().unwrap()
}

#[test]
fn a_fabric_without_a_tor_tier_is_routed_from_the_switches_that_have_hosts() {
    for Tested { spec: scheme, places, balances, .. } in central() {
        for (fabric, ends) in [(ring(), ["c0", "c2"]), (hosts_at_spines(), ["s0", "s1"])] {
            let mut play = Play::new(fabric, scheme);
            let ends = ends.map(|name| play.world.view.fabric.find(name));
            // Two flows between the same two switches, which have two paths between them.
            for (flow, ends) in [(FLOW, (0, 4)), (OTHER, (1, 5))] {
                play.arrive(flow, ends, None);
            }
            play.rounds(3);
            let ways = [play.switches(FLOW), play.switches(OTHER)];
            assert_eq!(ways.iter().flatten().count(), if *places { 2 } else { 0 }, "{scheme}");
            for way in ways.iter().flatten() {
                assert_eq!([way.first().copied(), way.last().copied()], ends, "{scheme}");
            }
            // Schemes that balance load elsewhere do so here.
            assert!(!balances || ways[0] != ways[1], "{scheme}: {ways:?}");
        }
    }
}

#[test]
fn flows_of_unknown_size_are_placed_and_never_wait() {
    for Tested { spec: scheme, places, .. } in central() {
        let mut play = Play::on("fat-tree:k=4,rate=10Mbps", scheme);
        // All flows start at one host, so those of known size may wait for one another.
        play.arrive(FlowId(3), (0, 8), Some(5_000_000));
        play.arrive(FLOW, (0, 12), None);
        play.arrive(FlowId(4), (0, 10), Some(1_000_000));
        play.arrive(OTHER, (0, 14), None);
        play.rounds(3);
        for flow in [FLOW, OTHER] {
            assert_eq!(play.switches(flow).is_some(), *places, "{scheme}");
            let waits = |action: &Action| matches!(action, Action::Hold { flow: held, .. } if *held == flow);
            assert!(!play.asked.iter().any(waits), "{scheme}: {:?}", play.asked);
            let stopped = |action: &Action| matches!(action, Action::Pace { flow: paced, rate_bps: Some(..100_000) } if *paced == flow);
            assert!(!play.asked.iter().any(stopped), "{scheme}: {:?}", play.asked);
        }
    }
}

#[test]
fn flows_within_a_tor_need_no_path_and_get_none() {
    for Tested { spec: scheme, places, .. } in central() {
        let mut play = Play::on("fat-tree:k=4,rate=10Mbps", scheme);
        play.arrive(FLOW, (0, 1), None);
        play.arrive(FlowId(3), (0, 1), Some(5_000_000));
        play.arrive(OTHER, (1, 9), None);
        play.rounds(3);
        let cable = play.world.view.fabric.switch_cables().next().unwrap();
        play.link(cable, false);
        play.rounds(2);
        assert_eq!(play.switches(OTHER).is_some(), *places, "{scheme}: a flow that leaves the ToR");
        for flow in [FLOW, FlowId(3)] {
            let named = |action: &&Action| match action {
                Action::Route { flow: named, .. } | Action::Unroute { flow: named } => *named == flow,
                _ => false,
            };
            assert_eq!(play.asked.iter().find(named), None, "{scheme}");
        }
        play.tell(&Event::FlowFinished { flow: FLOW });
    }
}

/// A fabric whose switch `c0` carries nothing, though its links are up.
fn half_dead() -> Fabric {
    let text = "leaf-spine:spines=3,leaves=2,hosts=2,rate=10Mbps";
    let healthy = fabric_from_spec(text).unwrap();
    let mut builder = FabricBuilder::new(text);
    for node in healthy.nodes() {
        match healthy.find(&node.name).filter(|&id| healthy.is_host(id)) {
            Some(_) => builder.host(node.name.clone(), node.pod),
            None => builder.switch(node.name.clone(), node.tier, node.pod),
        };
    }
    let dead = healthy.find("c0").unwrap();
    for cable in healthy.cables() {
        let link = healthy.link(cable);
        let rate_bps = if [link.from, link.to].contains(&dead) { 0 } else { link.settings.rate_bps };
        builder.cable(link.from, link.to, LinkSettings { rate_bps, ..link.settings });
    }
    builder.build().unwrap()
}

#[test]
fn links_without_capacity_are_avoided() {
    for Tested { spec: scheme, places, .. } in central() {
        let mut play = Play::new(half_dead(), scheme);
        let dead = play.world.view.fabric.find("c0").unwrap();
        for (number, ends) in [(0, 2), (1, 3), (0, 3)].into_iter().enumerate() {
            play.arrive(FlowId(number as u64), ends, None);
        }
        for _ in 0..4 {
            play.round();
            let ways: Vec<_> = (0..3).filter_map(|flow| play.switches(FlowId(flow))).collect();
            assert!(ways.iter().all(|way| !way.contains(&dead)), "{scheme} {ways:?}");
            assert_eq!(ways.len(), if *places { 3 } else { 0 }, "{scheme}");
        }
    }
}

#[test]
fn a_flow_without_any_path_is_left_alone_until_a_link_is_up() {
    for Tested { spec: scheme, places, .. } in central() {
        let mut play = Play::on("fat-tree:k=4,rate=10Mbps", scheme);
        let fabric = play.world.view.fabric.clone();
        let tor = fabric.attachments()[0].tor;
        let cables: Vec<LinkId> = fabric.switch_ports(tor).iter().map(|port| port.link).collect();
        play.arrive(OTHER, (0, 9), None);
        play.rounds(2);
        assert_eq!(play.switches(OTHER).is_some(), *places, "{scheme}");
        cables.iter().for_each(|&cable| play.link(cable, false));
        play.arrive(FLOW, (0, 8), None);
        play.asked.clear();
        play.rounds(3);
        for flow in [FLOW, OTHER] {
            let named = |action: &&Action| matches!(action, Action::Route { flow: named, .. } | Action::Unroute { flow: named } if *named == flow);
            assert_eq!(play.asked.iter().find(named), None, "{scheme}: no path exists");
        }
        // Both cables are up again. With one cable there would be only one path, which flows take without rules of
        // their own.
        cables.iter().for_each(|&cable| play.link(cable, true));
        play.rounds(2);
        for flow in [FLOW, OTHER] {
            assert_eq!(play.switches(flow).is_some(), *places, "{scheme}");
        }
    }
}

#[test]
fn a_flow_that_ends_before_its_rules_arrive_is_forgotten() {
    for Tested { spec: scheme, places, .. } in central() {
        let mut play = Play::on("fat-tree:k=4,rate=10Mbps", scheme);
        play.arrive(FLOW, (0, 8), Some(2_000_000));
        play.arrive(OTHER, (1, 9), None);
        play.poll();
        let pending = play.world.view.flows[&FLOW].pending.is_some();
        assert_eq!(pending, *places, "{scheme}: its path was requested");
        // The flow ends while its path is pending, and while a job runs that could place it again.
        play.world.now = play.world.now.saturating_add(ROUND);
        play.tell(&Event::RatesMeasured { period: ROUND });
        play.tell(&Event::FlowFinished { flow: FLOW });
        play.asked.clear();
        let job = play.world.solve();
        play.asked.extend(job.into_iter().flat_map(|(_, asked)| asked));
        play.tell(&Event::RouteConfirmed { flow: FLOW });
        play.tell(&Event::RouteRejected { flow: FLOW, why: Rejection::UnknownFlow });
        play.rounds(3);
        let names_it = |action: &&Action| match action {
            Action::Route { flow, .. }
            | Action::Unroute { flow }
            | Action::Hold { flow, .. }
            | Action::Release { flow }
            | Action::Pace { flow, .. } => *flow == FLOW,
            _ => false,
        };
        assert_eq!(play.asked.iter().find(names_it), None, "{scheme}");
        assert_eq!(play.switches(OTHER).is_some(), *places, "{scheme}: the other flow keeps its path");
        // The saved state does not list flows that have ended either.
        let mut fresh = Play::on("fat-tree:k=4,rate=10Mbps", scheme);
        fresh.world.scheme.restore(play.world.scheme.save()).unwrap();
        play.tell(&Event::FlowFinished { flow: OTHER });
        let saved = play.world.scheme.save().0.to_string();
        for kept in ["\"1\":", "\"2\":"] {
            assert!(!saved.contains(kept), "{scheme}: {saved}");
        }
    }
}

/// Number of rounds (one minute) within which a scheme requests a path again that was refused once or twice.
const PATIENCE: usize = 12;

#[test]
fn a_path_refused_twice_is_requested_a_third_time_but_never_at_once() {
    let refused = |node| Rejection::Refused(NodeId(node), Refusal::TableFull);
    for Tested { spec: scheme, places, .. } in central() {
        let gone = Rejection::SwitchGone(NodeId(0));
        for why in [refused(0), gone, Rejection::Draining, Rejection::WrongEnds, Rejection::Malformed] {
            let mut play = Play::on("fat-tree:k=4,rate=10Mbps", scheme);
            play.arrive(FLOW, (0, 8), None);
            play.arrive(OTHER, (1, 9), None);
            play.poll();
            assert_eq!(play.world.view.flows[&FLOW].pending.is_some(), *places, "{scheme}");
            for time in 1..=2 {
                play.asked.clear();
                play.tell(&Event::RouteRejected { flow: FLOW, why });
                play.tell(&Event::RouteConfirmed { flow: OTHER });
                assert!(!play.moved(FLOW), "{scheme}: not at once");
                let rounds = (1..=PATIENCE).find(|_| {
                    play.poll();
                    play.moved(FLOW)
                });
                assert_eq!(rounds.is_some(), *places, "{scheme}, {why:?}: requests it again after refusal {time}");
            }
            play.rounds(1);
            for flow in [FLOW, OTHER] {
                assert_eq!(play.switches(flow).is_some(), *places, "{scheme}");
            }
        }
    }
}
