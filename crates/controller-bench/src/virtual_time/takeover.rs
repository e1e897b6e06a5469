//! Controllers that take over from each other.

use super::cluster::Cluster;
use super::lab::{ms, s, K4, QUIET};
use pathloom_controller::config;
use pathloom_host_agent::agent::ControllerId;
use pathloom_model::rules::Rule;
use pathloom_model::{FiveTuple, Headers, Nanos, NodeId, LONG_FLOW_DSCP, PROTO_UDP};
use pathloom_testnet::{Network, Timing};
use std::collections::BTreeMap;
use std::path::Path;

const CONTROLLERS: usize = 3;
const AGENTS: usize = 4;

/// A fabric with three controllers and flows that send all the time.
struct Fabric {
    network: Network<Cluster>,
    flows: Vec<Headers>,
}

impl Fabric {
    /// All switches have their rules, and the flows have paths of their own.
    fn standing(seed: u64) -> Fabric {
        let text = format!("[fabric]\nspec = \"{K4}\"\n");
        let checked = config::check(&text, Path::new("/")).unwrap();
        let fabric = checked.fabric.clone();
        let cluster = Cluster::new(checked, QUIET, CONTROLLERS, seed);
        let mut network = Network::new(fabric, cluster, Timing::SLOW, seed);
        network.controllers = CONTROLLERS;
        network.connect_all();
        network.run_for(s(6));
        let mut fabric = Fabric { network, flows: Vec::new() };
        let address = |host: usize| fabric.network.hosts[host].address;
        let flow = |from: usize| {
            let (src, dst) = (address(from), address((from + 8) % 16));
            let five_tuple = FiveTuple::new(PROTO_UDP, (src, 20_000), (dst, 80));
            Headers { dscp: LONG_FLOW_DSCP, tcp_flags: 0, ..Headers::plain(five_tuple) }
        };
        fabric.flows = (0..8).map(flow).collect();
        fabric.traffic(s(3));
        fabric
    }

    fn cluster(&mut self) -> &mut Cluster {
        self.network.machine()
    }

    fn with(&mut self, call: impl FnOnce(&mut Cluster, Nanos)) {
        self.network.with(call);
    }

    /// All flows send for this time. The leader stores its state every 100 ms.
    fn traffic(&mut self, time: Nanos) {
        let end = self.network.now() + time;
        let mut count = 0;
        while self.network.now() < end {
            for headers in self.flows.clone() {
                self.network.send(headers);
            }
            self.network.run_for(ms(4));
            count += 1;
            if count % 25 == 0 {
                self.cluster().store();
            }
        }
    }

    /// The rules of all switches that do not time out soon, without the number of the start of their controller.
    fn rules(&self) -> BTreeMap<NodeId, Vec<Rule>> {
        let lasting = |rules: Vec<Rule>| {
            let lasting = rules.into_iter().filter(|rule| rule.hard_timeout_s == 0);
            lasting.map(|rule| Rule { cookie: 0, ..rule }).collect()
        };
        self.network.devices.iter().map(|(&node, device)| (node, lasting(device.tables.rules()))).collect()
    }

    /// Number of flows with a path of their own at this controller.
    fn on_paths(&mut self, controller: usize) -> usize {
        let driven = self.cluster().hub(controller).unwrap();
        let view = driven.hub.controller().unwrap().view();
        view.flows.values().filter(|flow| flow.route.is_some()).count()
    }

    /// The agents of the first hosts start.
    fn start_agents(&mut self) {
        (0..AGENTS).for_each(|host| self.network.start_agent(host));
        self.traffic(s(2));
        let leader = self.cluster().leader().unwrap();
        self.agents_obey(leader);
    }

    /// All agents have a session with this leader, and refuse all before it.
    fn agents_obey(&mut self, leader: usize) {
        let election = self.cluster().leaders.last().unwrap().1;
        for agent in 0..AGENTS {
            let obeyed = self.network.with_agent(agent, |agent| (agent.leader(), agent.newest_election()));
            assert_eq!(obeyed, (Some(ControllerId(leader)), election), "agent {agent}");
        }
    }

    fn slave_refusals(&self) -> u64 {
        self.network.devices.values().map(|device| device.roles.slave_refusals).sum()
    }

    fn nothing_is_lost(&mut self) {
        self.network.run_for(s(1));
        let lost = self.network.delivery_errors();
        assert!(lost.is_empty(), "{} of {}: {:?}", lost.len(), self.network.packets.len(), lost[0]);
    }

    /// Kills the leader, and waits with traffic until another one leads and holds all switches. Returns it.
    fn kill_leader(&mut self) -> usize {
        let before = self.cluster().leader().unwrap();
        self.with(|cluster, _| cluster.kill(before));
        self.traffic(s(8));
        let next = self.cluster().leader().unwrap();
        assert_ne!(next, before);
        let sessions = self.cluster().hub(next).unwrap().hub.session_count();
        assert_eq!(sessions, self.network.fabric.switches().len());
        next
    }
}

#[test]
fn the_leader_controls_all_switches_and_the_others_only_stand_by() {
    let mut fabric = Fabric::standing(1);
    let leader = fabric.cluster().leader().unwrap();
    for controller in 0..CONTROLLERS {
        let sessions = fabric.cluster().hub(controller).unwrap().hub.session_count();
        assert_eq!(sessions, if controller == leader { 20 } else { 0 });
    }
    assert_eq!((fabric.on_paths(leader), fabric.slave_refusals()), (8, 0));
    // Every switch knows one master and two slaves.
    for (node, device) in &fabric.network.devices {
        assert_eq!(fabric.network.sessions_of(*node).len(), CONTROLLERS);
        assert_eq!(device.roles.generation(), Some(fabric.network.devices[node].roles.generation().unwrap()));
        assert!(device.roles.master().is_some());
    }
    fabric.nothing_is_lost();
}

#[test]
fn a_killed_leader_costs_no_packet_and_no_rule() {
    for seed in 0..3 {
        let mut fabric = Fabric::standing(seed);
        let rules = fabric.rules();
        for with_state in [true, false] {
            if !with_state {
                fabric.cluster().snapshot = None;
            }
            let before = fabric.cluster().leader().unwrap();
            let next = fabric.kill_leader();
            assert_eq!(fabric.on_paths(next), 8, "seed {seed}");
            fabric.with(|cluster, _| cluster.start(before));
            fabric.traffic(s(3));
            assert_eq!(fabric.cluster().leader(), Some(next), "one that starts does not take over");
            assert!(fabric.rules() == rules, "seed {seed}");
        }
        assert_eq!(fabric.slave_refusals(), 0);
        fabric.nothing_is_lost();
    }
}

#[test]
fn switches_that_stood_by_for_long_have_time_to_answer_a_new_leader() {
    let mut fabric = Fabric::standing(8);
    // Longer than a handshake may take.
    fabric.traffic(s(12));
    fabric.network.timing.work = (ms(300), ms(600));
    // A connection that is closed does not come back.
    fabric.network.redials = false;
    fabric.kill_leader();
}

#[test]
fn a_leader_that_stood_still_changes_nothing_afterwards() {
    let mut fabric = Fabric::standing(4);
    let rules = fabric.rules();
    let before = fabric.cluster().leader().unwrap();
    fabric.with(|cluster, now| cluster.pause(now, before, true));
    fabric.traffic(s(10));
    let next = fabric.cluster().leader().unwrap();
    assert_ne!(next, before);
    fabric.with(|cluster, now| cluster.pause(now, before, false));
    fabric.traffic(s(10));
    assert_eq!(fabric.cluster().leader(), Some(next));
    assert!(fabric.rules() == rules);
    assert_eq!(fabric.on_paths(next), 8);
    fabric.nothing_is_lost();
}

#[test]
fn a_leader_cut_off_from_etcd_gives_way_and_nothing_is_lost() {
    let mut fabric = Fabric::standing(5);
    let rules = fabric.rules();
    let before = fabric.cluster().leader().unwrap();
    fabric.with(|cluster, _| cluster.world.link(before, false));
    fabric.traffic(s(12));
    let next = fabric.cluster().leader().unwrap();
    assert_ne!(next, before);
    assert_eq!((fabric.cluster().leaders.len(), fabric.on_paths(next)), (2, 8));
    assert!(fabric.cluster().hub(before).unwrap().hub.controller().is_none(), "it follows");
    assert!(fabric.rules() == rules);
    fabric.nothing_is_lost();
}

#[test]
fn without_etcd_the_leader_goes_on_and_a_new_flow_gets_its_path() {
    let mut fabric = Fabric::standing(6);
    let leader = fabric.cluster().leader().unwrap();
    let stop = |fabric: &mut Fabric, answers: bool| {
        fabric.with(|cluster, _| {
            cluster.world.etcd_answers = answers;
            (0..CONTROLLERS).for_each(|controller| cluster.world.break_watches(controller));
        });
    };
    stop(&mut fabric, false);
    fabric.traffic(s(10));
    let late = Headers { five_tuple: fabric.flows[0].five_tuple.with_src_port(30_000), ..fabric.flows[0] };
    fabric.flows.push(late);
    fabric.traffic(s(3));
    assert_eq!((fabric.cluster().leader(), fabric.on_paths(leader)), (None, 9));
    // Its lease has ended. Whoever leads next has all flows.
    stop(&mut fabric, true);
    fabric.traffic(s(8));
    let next = fabric.cluster().leader().unwrap();
    assert_eq!(fabric.on_paths(next), 9);
    fabric.nothing_is_lost();
}

#[test]
fn agents_obey_each_new_leader_and_refuse_the_ones_before() {
    let mut fabric = Fabric::standing(7);
    fabric.start_agents();
    let first = fabric.cluster().leader().unwrap();
    let second = fabric.kill_leader();
    fabric.agents_obey(second);
    fabric.with(|cluster, _| cluster.start(first));
    fabric.traffic(s(3));
    fabric.agents_obey(second);
    fabric.with(|cluster, now| cluster.pause(now, second, true));
    fabric.traffic(s(10));
    let third = fabric.cluster().leader().unwrap();
    fabric.with(|cluster, now| cluster.pause(now, second, false));
    fabric.traffic(s(5));
    fabric.agents_obey(third);
    let election = fabric.cluster().leaders.last().unwrap().1;
    for agent in 0..AGENTS {
        fabric.network.restart_agent(agent);
    }
    fabric.traffic(s(2));
    fabric.agents_obey(third);
    assert_eq!(fabric.cluster().leaders.last().unwrap().1, election);
    fabric.nothing_is_lost();
}
