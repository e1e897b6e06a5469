//! CUBIC, DCTCP and selective acknowledgements on a shared cable.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, Nanos, NodeId};
use pathloom_sim::{ControlSettings, Outcome, SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::{FlowSpec, Start, Workload};
use std::sync::Arc;

const RATE_BPS: f64 = 100e6;
const FRAME: f64 = 1514.0;

/// Flows that share one cable of 100 Mbit/s.
struct Shared<'a> {
    flows: usize,
    delay: &'a str,
    buffer: usize,
    transport: &'a str,
    seconds: u64,
}

impl Shared<'_> {
    fn run(&self) -> Outcome {
        let Shared { flows, delay, buffer, .. } = self;
        let fabric = format!(
            "dumbbell:hosts={flows},host_rate=1Gbps,host_delay=1us,host_buffer=1000,\
             switch_rate=100Mbps,switch_delay={delay},switch_buffer={buffer}"
        );
        let fabric = Arc::new(fabric_from_spec(&fabric).unwrap());
        let duration = Nanos::from_secs(self.seconds);
        // The first half of the hosts are on one side of the cable. All send the same way.
        let hosts: Vec<NodeId> = fabric.hosts().to_vec();
        let flow = |i: usize| {
            FlowSpec::new(Start::At(Nanos::from_millis(7 * i as u64)), hosts[i], hosts[i + self.flows], None)
        };
        let flows = (0..self.flows).map(flow).collect();
        let outcome = outcome_of(fabric, flows, "spt", self.transport, duration);
        assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
        outcome
    }

    /// Mean queue and utilisation of the shared cable, in the direction with the longer queue.
    fn cable(&self, outcome: &Outcome) -> (f64, f64) {
        let middle = outcome.links.iter().max_by(|a, b| a.mean_queue.total_cmp(&b.mean_queue)).unwrap();
        (middle.mean_queue, middle.sent_bytes as f64 * 8.0 / RATE_BPS / self.seconds as f64)
    }
}

/// Results of these flows on a fabric that has no other traffic and no faults.
fn outcome_of(fabric: Arc<Fabric>, flows: Vec<FlowSpec>, scheme: &str, transport: &str, duration: Nanos) -> Outcome {
    let mut simulation = Simulation::new(SimSettings {
        fabric,
        workload: Arc::new(Workload {
            flows,
            description: "flows of a test".into(),
            notes: Vec::new(),
            jobs: Vec::new(),
        }),
        central: pathloom_schemes::parse(scheme).unwrap().central(1),
        successor: None,
        programs: None,
        transport: TransportSpec::parse(transport).unwrap(),
        control: ControlSettings::default(),
        duration,
        drain: 0,
        faults: Vec::new(),
        seed: 1,
    })
    .unwrap();
    simulation.advance(simulation.end());
    simulation.outcome()
}

fn retransmits(outcome: &Outcome) -> u32 {
    outcome.flows.iter().map(|flow| flow.retransmits).sum()
}

#[test]
fn dctcp_keeps_its_queue_around_the_threshold_and_loses_nothing() {
    for mark in [20, 40] {
        let transport = format!("dctcp:mark={mark}");
        let case = Shared { flows: 2, delay: "100us", buffer: 300, transport: &transport, seconds: 5 };
        let outcome = case.run();
        let (queue, utilisation) = case.cable(&outcome);
        let mark = f64::from(mark);
        assert!(queue > 0.5 * mark && queue < 1.1 * mark, "{queue} packets at a threshold of {mark}");
        assert!(utilisation > 0.99, "{utilisation}");
        assert_eq!((outcome.packets.dropped, retransmits(&outcome)), (0, 0));
    }
    // Loss-based windows fill the buffer instead.
    let case = Shared { flows: 2, delay: "100us", buffer: 300, transport: "cubic", seconds: 5 };
    let outcome = case.run();
    assert!(case.cable(&outcome).0 > 150.0 && outcome.packets.dropped > 0);
}

#[test]
fn dctcp_marks_by_the_rate_of_the_link_by_default() {
    let case = Shared { flows: 2, delay: "100us", buffer: 300, transport: "dctcp", seconds: 3 };
    let (queue, _) = case.cable(&case.run());
    assert!(queue > 10.0 && queue < 22.0, "20 packets up to 1 Gbit/s: {queue}");
}

#[test]
fn cubic_refills_a_long_path_faster_than_newreno() {
    // The path takes 100 ms and 826 packets. After a loss, NewReno needs 413 round trips, which is 41 s; CUBIC needs
    // 11 s.
    let goodput = |transport| {
        let case = Shared { flows: 1, delay: "50ms", buffer: 100, transport, seconds: 60 };
        case.cable(&case.run()).1
    };
    let (newreno, cubic) = (goodput("newreno:sack=on"), goodput("cubic"));
    assert!(cubic > newreno + 0.04, "cubic {cubic}, newreno {newreno}");
}

#[test]
fn with_selective_acknowledgements_only_dropped_segments_are_retransmitted() {
    let case = |transport| Shared { flows: 8, delay: "5ms", buffer: 40, transport, seconds: 10 }.run();
    let (plain, sack) = (case("newreno"), case("newreno:sack=on"));
    // Every drop is repaired once. The last ones may not be repaired yet, and a rescue retransmission may be
    // unnecessary.
    let (dropped, again) = (sack.packets.dropped as f64, f64::from(retransmits(&sack)));
    assert!((again - dropped).abs() <= 0.05 * dropped + 20.0, "{again} retransmitted for {dropped} dropped");
    let goodput = |outcome: &Outcome| outcome.flows.iter().map(|flow| flow.delivered_bytes).sum::<u64>() as f64;
    assert!(goodput(&sack) > 0.95 * goodput(&plain));
    assert!(goodput(&sack) * FRAME / 1448.0 * 8.0 < RATE_BPS * 10.0 * 1.001);
}

#[test]
fn every_transport_gives_the_same_outcome_twice() {
    for transport in ["newreno:sack=on", "cubic", "dctcp"] {
        let case = Shared { flows: 4, delay: "1ms", buffer: 50, transport, seconds: 2 };
        let (first, second) = (case.run(), case.run());
        assert_eq!((first.flows, first.packets), (second.flows, second.packets), "{transport}");
    }
}

/// The SYN is answered ten times as fast as a full segment over six slow links. So a time-out from the RTT of the SYN
/// alone is shorter than the time that the data need.
#[test]
fn a_flow_that_loses_nothing_waits_for_no_time_out() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap());
    for transport in ["newreno", "mptcp:subflows=2"] {
        let (src, dst) = (fabric.hosts()[0], fabric.hosts()[15]);
        let flow = FlowSpec::new(Start::At(Nanos::ZERO), src, dst, Some(1448));
        let outcome = outcome_of(fabric.clone(), vec![flow], "ecmp", transport, Nanos::from_secs(1));
        let [flow] = outcome.flows.as_slice() else { panic!("one flow") };
        assert!(flow.finish.is_some() && flow.timeouts == 0, "{transport}");
        assert_eq!((flow.timeout_wait.initial, flow.timeout_wait.sampled), (Nanos::ZERO, Nanos::ZERO), "{transport}");
    }
}

#[test]
fn a_long_round_trip_raises_the_threshold_of_dctcp_so_that_fast_links_stay_busy() {
    // Some 2,000 packets are under way in a round trip, so a threshold of 65 is too low.
    let fabric = "dumbbell:hosts=4,rate=400Gbps,delay=10us,buffer=1000";
    let fabric = Arc::new(fabric_from_spec(fabric).unwrap());
    let hosts: Vec<NodeId> = fabric.hosts().to_vec();
    let flow = |i: usize| FlowSpec::new(Start::At(Nanos(1000 * i as u64)), hosts[i], hosts[i + 4], None);
    let share = |transport: &str| {
        let flows = (0..4).map(flow).collect();
        let outcome = outcome_of(fabric.clone(), flows, "spt", transport, Nanos::from_millis(30));
        outcome.flows.iter().map(|flow| flow.throughput.unwrap()).sum::<f64>()
    };
    let (own, fixed) = (share("dctcp"), share("dctcp:mark=65"));
    assert!(own > 0.95 && own > fixed + 0.02, "{own} with the default threshold, {fixed} with 65 packets");
}

#[test]
fn jitter_delays_packets_and_takes_nothing_of_the_rate() {
    let fabric = Arc::new(fabric_from_spec("dumbbell:rate=10Gbps").unwrap());
    let hosts: Vec<NodeId> = fabric.hosts().to_vec();
    let flow = FlowSpec::new(Start::At(Nanos::ZERO), hosts[0], hosts[2], None);
    // A frame takes 1.2 µs.
    for transport in ["newreno:jitter=5us", "cubic:jitter=20us", "dctcp:jitter=5us"] {
        let outcome = outcome_of(fabric.clone(), vec![flow.clone()], "spt", transport, Nanos::from_millis(100));
        let throughput = outcome.flows[0].throughput.unwrap();
        assert!(throughput > 0.99, "{transport}: {throughput}");
    }
}

/// Throughput of the first `flows` hosts, which send to the other side of one cable from the start, as shares of its
/// rate.
fn shares_of_a_cable(flows: usize, transport: &str, gbps: u64) -> Vec<f64> {
    let fabric = Arc::new(fabric_from_spec(&format!("dumbbell:rate={gbps}Gbps")).unwrap());
    let hosts: Vec<NodeId> = fabric.hosts().to_vec();
    let flow = |i: usize| FlowSpec::new(Start::At(Nanos::ZERO), hosts[i], hosts[i + 2], None);
    // The time of 200,000 frames is hundreds of the windows' cycles at every rate.
    let duration = Nanos(200_000 * 8 * FRAME as u64 / gbps);
    let outcome = outcome_of(fabric, (0..flows).map(flow).collect(), "spt", transport, duration);
    outcome.flows.iter().map(|flow| flow.throughput.unwrap()).collect()
}

#[test]
fn two_flows_that_start_together_share_a_cable_equally_at_every_rate() {
    let jain = |shares: &[f64]| {
        let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
        sum * sum / (shares.len() as f64 * squares)
    };
    for transport in ["newreno", "cubic", "dctcp"] {
        for gbps in [1, 10, 100, 400] {
            let shares = shares_of_a_cable(2, &format!("{transport}:min_rto=1ms"), gbps);
            assert!(jain(&shares) >= 0.98, "{transport} at {gbps} Gbit/s: {shares:?}");
        }
    }
    // Without the random delay of hosts, one of them gets nearly everything: phase effects.
    let shares = shares_of_a_cable(2, "newreno:min_rto=1ms,jitter=0s", 10);
    assert!(jain(&shares) < 0.6, "{shares:?}");
}

#[test]
fn the_random_delay_of_hosts_costs_a_lone_flow_nothing() {
    for transport in ["newreno", "cubic", "dctcp"] {
        for gbps in [1, 10, 100, 400] {
            let share = |keys: &str| shares_of_a_cable(1, &format!("{transport}:min_rto=1ms{keys}"), gbps)[0];
            let (default, exact) = (share(""), share(",jitter=0s"));
            assert!(default > exact - 0.005, "{transport} at {gbps} Gbit/s: {default}, exactly timed {exact}");
        }
    }
}

/// Senders that lose their SYNs in the same queue repeat them at the ticks of their own clocks. With exact timers, they
/// repeat them together, and most are lost again.
#[test]
fn an_incast_of_a_thousand_senders_does_not_stay_in_step() {
    let fabric = Arc::new(fabric_from_spec("leaf-spine:spines=4,leaves=10,hosts=101,rate=10Gbps").unwrap());
    let hosts: Vec<NodeId> = fabric.hosts().to_vec();
    let flow = |i: usize| FlowSpec::new(Start::At(Nanos(10 * i as u64)), hosts[i], hosts[1000], Some(256_000));
    let case = |transport: &str| {
        let flows: Vec<FlowSpec> = (0..1000).map(flow).collect();
        let outcome = outcome_of(fabric.clone(), flows, "ecmp", transport, Nanos::from_secs(6));
        outcome.flows.iter().filter(|flow| flow.finish.is_some()).count()
    };
    let (coarse, exact) = (case("newreno:min_rto=10ms"), case("newreno:min_rto=10ms,timers=exact"));
    assert!(coarse == 1000 && exact < 900, "finished within 6 s: {coarse}, with exact timers {exact}");
}
