//! Lost sessions, killed and restarted controllers, switches that restart empty: their effects on the rest of a run.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fault, Nanos};
use pathloom_schemes::Registry;
use pathloom_sim::{ControlSettings, Journal, Outcome, SimError, SimSettings, Simulation};
use pathloom_testkit::schemes::{fast, Tested};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Long-lived flows that fill no queue, for 600 ms.
fn settings(scheme: &str, control: &str, faults: &str) -> SimSettings {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=100Mbps,buffer=1000").unwrap());
    let traffic = TrafficSpec::parse("long-lived:pattern=permutation").unwrap();
    let scheme = Registry::WithTestSchemes.parse(scheme).unwrap();
    SimSettings {
        workload: Arc::new(traffic.generate(&fabric, ms(600), 1, None).unwrap()),
        central: scheme.central(1),
        successor: Some(Box::new(move || scheme.central(1))),
        programs: None,
        transport: TransportSpec::parse("newreno:pace=5Mbps").unwrap(),
        control: ControlSettings::parse(control).unwrap(),
        duration: ms(600),
        drain: 1,
        faults: Fault::parse_schedule(&fabric, faults).unwrap(),
        seed: 1,
        fabric,
    }
}

fn run(scheme: &str, control: &str, faults: &str) -> (Simulation, Outcome) {
    let mut simulation = Simulation::new(settings(scheme, control, faults)).unwrap();
    simulation.advance(ms(599));
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets(), "{scheme}: {:?}", outcome.packets);
    (simulation, outcome)
}

const CONTROL: &str = "delay=500us,snapshot=50ms";

#[test]
fn neither_lost_sessions_nor_a_dead_controller_cost_a_packet() {
    for faults in [
        "105ms:session-down:e0_0,250ms:session-up:e0_0,130ms:session-down:c1,131ms:session-up:c1",
        "217ms:controller-kill",
        "217ms:controller-kill,330ms:controller-restart",
        "217ms:controller-kill,330ms:controller-restart:snapshot",
        "217ms:controller-restart,333ms:controller-restart:snapshot",
        "110ms:session-down:a0_0,217ms:controller-restart,320ms:session-up:a0_0",
    ] {
        for Tested { spec: scheme, .. } in fast() {
            for control in [CONTROL, "delay=500us,snapshot=50ms,batch=16"] {
                let (_, outcome) = run(scheme, control, faults);
                assert_eq!(outcome.packets.dropped, 0, "{scheme} {faults}");
                assert!(outcome.flows.iter().all(|flow| flow.timeouts == 0), "{scheme} {faults}");
            }
        }
    }
}

#[test]
fn a_restarted_controller_continues_to_move_flows() {
    let reroutes = |faults: &str| run("move:period=20ms", CONTROL, faults).1.control.reroutes;
    let (whole, dead) = (reroutes(""), reroutes("200ms:controller-kill"));
    assert!(dead > 20 && whole > dead * 2, "{whole} {dead}");
    for restart in ["300ms:controller-restart", "300ms:controller-restart:snapshot"] {
        let text = format!("200ms:controller-kill,{restart}");
        let restarted = reroutes(&text);
        assert!(restarted > dead + 20 && restarted < whole, "{restart}: {restarted} of {whole}, {dead} when dead");
    }
}

#[test]
fn a_snapshot_keeps_flow_identifiers_and_without_one_flows_are_adopted() {
    let flows = |simulation: &Simulation| -> Vec<_> {
        simulation.controller().view().flows.iter().map(|(&id, flow)| (id, flow.five_tuple)).collect()
    };
    let (plain, _) = run("ofpt:period=100ms", CONTROL, "");
    let (kept, _) = run("ofpt:period=100ms", CONTROL, "200ms:controller-restart:snapshot");
    let (anew, _) = run("ofpt:period=100ms", CONTROL, "200ms:controller-restart");
    assert!(flows(&plain).len() > 8, "{:?}", flows(&plain));
    assert_eq!(flows(&kept), flows(&plain));
    // Flows with rules of their own keep the identifier that is in the cookies of these rules.
    assert!(flows(&anew).iter().any(|one| flows(&plain).contains(one)), "{:?}", flows(&anew));
}

#[test]
fn a_switch_that_restarts_empty_gets_its_rules_again() {
    for Tested { spec: scheme, .. } in fast() {
        let rules = |simulation: &mut Simulation| -> Vec<usize> {
            simulation.switch_tables().iter().map(|tables| tables.rules.len()).collect()
        };
        let (mut rebooted, outcome) = run(scheme, "delay=5ms", "300ms:reboot:e0_0,301ms:reboot:e1_0");
        // Packets that reach a ToR while it has no rules are lost.
        assert!(outcome.packets.dropped > 0 && outcome.packets.dropped < 400, "{scheme}: {:?}", outcome.packets);
        assert!(rules(&mut rebooted).iter().all(|&rules| rules > 0), "{scheme}");
        let (mut alone, lost) = run(scheme, CONTROL, "290ms:controller-kill,300ms:reboot:e0_0");
        assert!(rules(&mut alone).contains(&0), "{scheme}: nobody is there to write them");
        assert!(lost.packets.dropped > 0, "{scheme}");
    }
}

#[test]
fn the_repair_of_a_switch_that_never_failed_keeps_its_rules() {
    let (_, plain) = run("ecmp", CONTROL, "");
    let (_, twice) = run("ecmp", CONTROL, "100ms:up:e0_0");
    assert_eq!(plain.flows, twice.flows);
}

struct Deaf;

impl Journal for Deaf {
    fn input(&mut self, _: Nanos, _: &pathloom_control::Input) {}
    fn output(&mut self, _: Nanos, _: &pathloom_control::Output) {}
}

#[test]
fn a_restart_needs_a_successor_and_excludes_an_event_log() {
    let restart = || settings("ecmp", CONTROL, "100ms:controller-restart");
    let without = Simulation::new(SimSettings { successor: None, ..restart() });
    assert_eq!(without.err(), Some(SimError::NoSuccessor));
    let logged = Simulation::with_tap(restart(), pathloom_sim::NoTap, Some(Box::new(Deaf)));
    assert_eq!(logged.err(), Some(SimError::EventLogWithRestart));
    let kill = settings("ecmp", CONTROL, "100ms:controller-kill");
    assert!(Simulation::with_tap(kill, pathloom_sim::NoTap, Some(Box::new(Deaf))).is_ok());
    assert!(ControlSettings::parse("snapshot=0s").unwrap_err().to_string().contains("expected the time"));
    assert!(ControlSettings::parse("batch=0").is_err());
}

/// Bytes that the flows deliver in 600 ms, and number of lost packets.
fn delivered(scheme: &str, faults: &str) -> (u64, u64) {
    let (_, outcome) = run(scheme, CONTROL, faults);
    (outcome.flows.iter().map(|flow| flow.delivered_bytes).sum(), outcome.packets.dropped)
}

#[test]
fn slow_cables_slow_their_flows_until_they_are_restored() {
    let (whole, none) = delivered("ecmp", "");
    let (slow, _) = delivered("ecmp", "100ms:degrade:h0-e0_0:1Mbps");
    let (again, _) = delivered("ecmp", "100ms:degrade:h0-e0_0:1Mbps,200ms:restore:h0-e0_0");
    assert_eq!(none, 0);
    // The flows to and from h0 otherwise send 5 Mbit/s. For 500 ms they get a fifth of that or less.
    let most = 2 * 5_000_000 / 8 / 2;
    assert!(whole - slow > most / 2 && whole - slow < 2 * most, "{whole} {slow}");
    assert!(again > slow && again < whole, "{slow} {again} {whole}");
}

#[test]
fn the_use_of_a_slow_cable_is_relative_to_the_rate_of_the_fabric() {
    let (_, outcome) = run("ecmp", CONTROL, "0s:degrade:h0-e0_0:1Mbps");
    let used = outcome.links.iter().filter(|link| link.link.0 < 2).map(|link| link.utilisation);
    assert!(used.into_iter().all(|used| used < 0.0101), "1 of 100 Mbit/s: {:?}", &outcome.links[..2]);
}

#[test]
fn a_packet_keeps_its_rate_through_several_changes() {
    // The packet that is being sent at 200 ms takes 121 ms at 100 kbit/s. Later changes do not move its arrival.
    let slow = "200ms:degrade:e0-e1:100kbps,201300us:degrade:e0-e1:100kbps";
    let arrived = |faults: &str| {
        let mut simulation = Simulation::new(congested("", CONTROL, faults)).unwrap();
        simulation.advance(ms(599));
        simulation.outcome().flows.iter().map(|flow| flow.delivered_bytes).sum::<u64>()
    };
    let kept = arrived(slow);
    let back_and_forth = arrived(&format!("{slow},205ms:degrade:e0-e1:10Mbps,205ms:degrade:e0-e1:100kbps"));
    assert_eq!(kept, back_and_forth);
}

/// Two flows share a link of 10 Mbit/s, so its queue is never empty.
fn congested(ports: &str, control: &str, faults: &str) -> SimSettings {
    let fabric = Arc::new(fabric_from_spec(&format!("dumbbell:hosts=2,rate=10Mbps{ports}")).unwrap());
    let traffic = TrafficSpec::parse("long-lived:pattern=stride").unwrap();
    SimSettings {
        workload: Arc::new(traffic.generate(&fabric, ms(600), 1, None).unwrap()),
        transport: TransportSpec::parse("newreno").unwrap(),
        faults: Fault::parse_schedule(&fabric, faults).unwrap(),
        fabric,
        ..settings("spt", control, "")
    }
}

#[test]
fn a_link_never_sends_faster_than_its_rate_and_sent_bytes_agree_with_its_use() {
    let faults = "201500us:degrade:e0-e1:1Mbps,333333us:restore:e0-e1,400500us:down:e0-e1,450ms:up:e0-e1,\
                  551ms:degrade:e0-e1:2Mbps,552ms:degrade:e0-e1:5Mbps";
    let rate_mbps = |at_us: u64| match at_us {
        201_500..=333_332 => 1.0,
        400_500..=449_999 => 0.0,
        551_000..=551_999 => 2.0,
        552_000.. => 5.0,
        _ => 10.0,
    };
    for ports in ["", ",queues=2"] {
        for control in [CONTROL, "handover=begin"] {
            let settings = congested(ports, control, faults);
            let switch = |name: &str| settings.fabric.find(name).unwrap();
            let link = settings.fabric.link_between(switch("e0"), switch("e1")).unwrap().index();
            let mut simulation = Simulation::new(settings).unwrap();
            let (mut before, mut before_us) = (0.0, 0);
            for at_us in (500..600_000).step_by(500) {
                simulation.advance(Nanos(at_us * 1000));
                let row = simulation.outcome().links[link];
                let place = format!("{ports} {control} {at_us} us");
                let used_bytes = row.utilisation * at_us as f64 * 10.0 / 8.0;
                // The packet that is being sent counts as a whole, and so do the two that a failure has cut off.
                let rest = row.sent_bytes as f64 - used_bytes;
                assert!((-1.0..2.0 * 1515.0).contains(&rest), "{place}: {} and {used_bytes}", row.sent_bytes);
                let bits = 8.0 * (used_bytes - before);
                let most: f64 = (before_us..at_us).map(rate_mbps).sum();
                // A packet that is being sent keeps the old rate: it can send faster than a slower new rate.
                let kept = if (201_000..204_000).contains(&at_us) || at_us > 551_000 { 8.0 * 1514.0 } else { 0.0 };
                assert!((-0.5..most + kept + 0.5).contains(&bits), "{place}: {bits} bits, at most {most}");
                (before, before_us) = (used_bytes, at_us);
            }
            assert!(before > 0.5 * 600e3 * 10.0 / 8.0 / 2.0, "{ports} {control}: {before}");
        }
    }
}

#[test]
fn a_lossy_cable_loses_its_share_and_the_same_packets_each_time() {
    let (_, plain) = run("ecmp", CONTROL, "");
    let (_, first) = run("ecmp", CONTROL, "100ms:loss:h0-e0_0:0.1");
    let (_, again) = run("ecmp", CONTROL, "100ms:loss:h0-e0_0:0.1");
    assert_eq!(first, again);
    let crossed: u64 = first.links[..2].iter().map(|link| link.sent_packets).sum();
    let share = first.packets.dropped as f64 / crossed as f64;
    assert!((0.05..0.15).contains(&share), "{share} of {crossed}");
    let lost = |outcome: &Outcome| outcome.flows.iter().map(|flow| flow.retransmits).sum::<u32>();
    assert!(lost(&first) > lost(&plain));
    let (_, all) = run("ecmp", CONTROL, "0s:loss:h0-e0_0:1");
    assert!(all.flows.iter().filter(|flow| flow.delivered_bytes == 0).count() >= 2);
    let (_, restored) = run("ecmp", CONTROL, "0s:loss:c0+c1:0.5,1us:restore:c0+c1");
    assert_eq!(restored.flows, plain.flows);
}

#[test]
fn a_fault_of_several_switches_and_a_flap_equal_their_single_faults() {
    let together = delivered("hedera:period=50ms", "100ms:down:c0+c1+c2+c3,200ms:up:c0+c1+c2+c3");
    let one_by_one: String = (0..4).map(|core| format!("100ms:down:c{core},200ms:up:c{core},")).collect();
    assert_eq!(together, delivered("hedera:period=50ms", one_by_one.trim_end_matches(',')));
    let flaps = delivered("ecmp", "100ms:flap:e0_0-a0_0:10ms/20ms/3");
    let spelt = "100ms:down:e0_0-a0_0,110ms:up:e0_0-a0_0,130ms:down:e0_0-a0_0,140ms:up:e0_0-a0_0,160ms:down:e0_0-a0_0,\
                 170ms:up:e0_0-a0_0";
    assert_eq!(flaps, delivered("ecmp", spelt));
}
