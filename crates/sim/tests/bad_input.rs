//! Bad input in whole runs: every central scheme, with a controller and switches that need time for their work. The
//! tests of `pathloom-schemes` check what each scheme requests. The tests here check the results: every transfer
//! ends, every packet is accounted for, and no rule is left.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, FabricBuilder, LinkId, LinkSettings, Nanos, NodeId, Tier};
use pathloom_schemes::Registry;
use pathloom_sim::{ControlSettings, Outcome, SimSettings, Simulation, SwitchTables};
use pathloom_testkit::schemes::{fast, Tested};
use pathloom_transport::TransportSpec;
use pathloom_workload::{FlowSpec, Start, Workload};
use std::sync::Arc;

const DURATION: Nanos = Nanos::from_secs(20);
/// Too short to be labelled or announced, so no scheme is informed of it.
const SHORT_BYTES: u64 = 1000;

/// A transfer: start in ms, sending and receiving host by number, and bytes; `None` for a transfer that runs to the
/// end.
type Transfer = (u64, usize, usize, Option<u64>);

fn fat_tree() -> Fabric {
    fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap()
}

fn simulation(fabric: Fabric, scheme: &str, control: &str, transfers: &[Transfer]) -> Simulation {
    let flow = |&(start_ms, src, dst, size_bytes): &Transfer| {
        FlowSpec::new(Start::At(Nanos::from_millis(start_ms)), fabric.hosts()[src], fabric.hosts()[dst], size_bytes)
    };
    let flows = transfers.iter().map(flow).collect();
    let settings = SimSettings {
        workload: Arc::new(Workload { flows, description: "by hand".into(), notes: Vec::new(), jobs: Vec::new() }),
        central: Registry::WithTestSchemes.parse(scheme).unwrap().central(1),
        successor: None,
        programs: None,
        transport: TransportSpec::parse("newreno").unwrap(),
        control: ControlSettings::parse(control).unwrap(),
        duration: DURATION,
        drain: 5,
        faults: Vec::new(),
        seed: 1,
        fabric: Arc::new(fabric),
    };
    Simulation::new(settings).unwrap()
}

/// Runs to the end. Returns the results and the rules in the switches.
fn run(fabric: Fabric, scheme: &str, control: &str, transfers: &[Transfer]) -> (Outcome, Vec<SwitchTables>) {
    let mut simulation = simulation(fabric, scheme, control, transfers);
    simulation.advance(simulation.end());
    assert!(simulation.is_done(), "{scheme}");
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets(), "{scheme}: {:?}", outcome.packets);
    (outcome, simulation.switch_tables())
}

/// As [`run`], but every transfer must end and get enough bandwidth. Schemes that ignore load may put three transfers
/// on one link.
fn all_end(fabric: Fabric, scheme: &str, control: &str, transfers: &[Transfer]) -> (Outcome, Vec<SwitchTables>) {
    let (outcome, tables) = run(fabric, scheme, control, transfers);
    for flow in &outcome.flows {
        match flow.size_bytes {
            Some(_) => assert!(flow.finish.is_some(), "{scheme}: {flow:?}"),
            None => assert!(flow.throughput.is_some_and(|share| share > 0.1), "{scheme}: {flow:?}"),
        }
    }
    (outcome, tables)
}

#[test]
fn a_fabric_without_a_tor_tier_carries_all_transfers() {
    for Tested { spec: scheme, balances, .. } in fast() {
        let mut builder = FabricBuilder::new("ring");
        let settings = LinkSettings { rate_bps: 10_000_000, delay_ps: 1_000_000, buffer_packets: 100 };
        let switches: Vec<NodeId> = (0..4).map(|i| builder.switch(format!("c{i}"), Tier::Core, None)).collect();
        for i in 0..4 {
            builder.cable(switches[i], switches[(i + 1) % 4], settings);
        }
        for i in 0..8 {
            let host = builder.host(format!("h{i}"), None);
            builder.cable(host, switches[i / 2], settings);
        }
        let transfers = [(1, 0, 4, None), (2, 1, 5, None), (3, 2, 7, Some(3_000_000)), (4, 4, 3, Some(200_000))];
        let (outcome, _) = all_end(builder.build().unwrap(), scheme, "delay=1ms", &transfers);
        // If the scheme considers the flows on paths, each of the two directions of the ring carries one flow.
        let both: f64 = outcome.flows.iter().take(2).filter_map(|flow| flow.throughput).sum();
        assert!(!balances || both > 1.5, "{scheme}: {both:.2}");
    }
}

#[test]
fn transfers_of_unknown_size_share_with_those_of_known_size() {
    for Tested { spec: scheme, .. } in fast() {
        // All leave one host, so those of known size must wait for each other under `ofpt:sizes=announced`.
        let transfers = [(1, 0, 8, None), (2, 0, 12, Some(2_000_000)), (3, 0, 10, Some(1_000_000)), (4, 0, 14, None)];
        let (outcome, _) = run(fat_tree(), scheme, "delay=1ms", &transfers);
        for flow in &outcome.flows {
            assert!(flow.size_bytes.is_none() || flow.finish.is_some(), "{scheme}: {flow:?}");
            assert!(flow.throughput.is_some_and(|share| share > 0.1), "{scheme}: {flow:?}");
        }
    }
}

#[test]
fn transfers_within_a_tor_need_no_rules_in_other_switches() {
    for Tested { spec: scheme, .. } in fast() {
        let quiet = simulation(fat_tree(), scheme, "delay=1ms", &[(0, 0, 1, Some(SHORT_BYTES))]).switch_tables();
        let most = quiet.iter().map(|table| table.rules.len()).max().unwrap();
        let transfers = [(1, 0, 1, None), (2, 1, 0, Some(2_000_000)), (3, 2, 3, Some(2_000_000))];
        let (outcome, _) = all_end(fat_tree(), scheme, "delay=1ms", &transfers);
        assert_eq!(outcome.control.reroutes, 0, "{scheme}");
        // A ToR counts its hosts' flows with one rule each; paths would need rules in other switches.
        assert!(outcome.control.rules_max <= most as u64 + 4, "{scheme}: {} {most}", outcome.control.rules_max);
    }
}

#[test]
fn links_without_capacity_and_failed_ones_carry_nothing() {
    for Tested { spec: scheme, .. } in fast() {
        let healthy = fat_tree();
        let mut builder = FabricBuilder::new("a core without capacity");
        for node in healthy.nodes() {
            match node.tier {
                Tier::Host => builder.host(node.name.clone(), node.pod),
                tier => builder.switch(node.name.clone(), tier, node.pod),
            };
        }
        let dead = healthy.find("c0").unwrap();
        for cable in healthy.cables() {
            let link = healthy.link(cable);
            let rate_bps = if link.to == dead || link.from == dead { 0 } else { link.settings.rate_bps };
            builder.cable(link.from, link.to, LinkSettings { rate_bps, ..link.settings });
        }
        let fabric = builder.build().unwrap();
        let of_c3 =
            |&link: &LinkId| [fabric.link(link).from, fabric.link(link).to].contains(&fabric.find("c3").unwrap());
        let failed: Vec<LinkId> = fabric.switch_cables().filter(of_c3).take(2).collect();
        let fabric = fabric.with_failed(failed.clone());
        let transfers: Vec<Transfer> = (0..16).map(|host| (1, host, (host + 8) % 16, Some(500_000))).collect();
        let links = fabric.links().to_vec();
        let (outcome, _) = all_end(fabric, scheme, "delay=1ms", &transfers);
        for row in &outcome.links {
            let useless = links[row.link.index()].settings.rate_bps == 0
                || failed.iter().any(|&link| [link, link.reverse()].contains(&row.link));
            assert!(!useless || row.sent_packets == 0, "{scheme}: {row:?}");
        }
    }
}

#[test]
fn a_transfer_that_ends_before_its_rules_arrive_leaves_no_rules() {
    for Tested { spec: scheme, .. } in fast() {
        // The transfers end in less than 200 ms, but a message takes 300. The last transfer, long after, keeps the
        // run going.
        let mut transfers: Vec<Transfer> =
            (0..8).map(|host| (1 + 5 * host as u64, host, 15 - host, Some(150_000))).collect();
        transfers.push((19_900, 0, 15, Some(SHORT_BYTES)));
        let control = "delay=300ms,install=50ms";
        let before = simulation(fat_tree(), scheme, control, &transfers).switch_tables();
        let (outcome, after) = all_end(fat_tree(), scheme, control, &transfers);
        let early = outcome.flows.iter().filter(|flow| flow.finish.is_some_and(|at| at < Nanos::from_millis(600)));
        assert!(early.count() >= 6, "{scheme}: {:?}", outcome.flows);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.rules, after.rules, "{scheme}: {:?}", after.switch);
        }
    }
}

#[test]
fn a_rejected_rule_leaves_transfers_on_the_default_routes() {
    for Tested { spec: scheme, finds, .. } in fast() {
        let defaults = simulation(fat_tree(), scheme, "delay=1ms", &[(0, 0, 1, Some(SHORT_BYTES))]).switch_tables();
        let room = defaults.iter().map(|table| table.rules.len()).max().unwrap() + 1;
        let transfers: Vec<Transfer> =
            (0..16).map(|host| (1 + host as u64, host, (host + 8) % 16, Some(500_000))).collect();
        let (outcome, _) = all_end(fat_tree(), scheme, &format!("delay=1ms,tcam={room}"), &transfers);
        assert!(outcome.control.rules_max <= room as u64, "{scheme}");
        // There is room for the first request at most; all others find a full table.
        let (free, _) = all_end(fat_tree(), scheme, "delay=1ms", &transfers);
        assert_eq!(free.control.rules_max > room as u64, *finds, "{scheme}: {} {room}", free.control.rules_max);
    }
}
