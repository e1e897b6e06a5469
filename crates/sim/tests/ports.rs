//! Ports of switches with strict priorities and RED.

use crate::cases::{listed, Listed};
use crate::packets::run_with;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fault, LinkId, Nanos};
use pathloom_sim::{LargeFabric, LinkOutcome, NoTap, Outcome, SimError, SimSettings, Simulation};
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

/// Three hosts on either side of a cable of 100 Mbit/s.
const DUMBBELL: &str = "dumbbell:hosts=3,rate=100Mbps,host_buffer=1000,switch_buffer=50";

/// Transfers that start at these milliseconds.
fn settings(fabric: &str, flows: &[Listed], transport: &str, faults: &str) -> SimSettings {
    let flows: Vec<Listed> = flows.iter().map(|&(ms, src, dst, size)| (1000 * ms, src, dst, size)).collect();
    SimSettings { duration: Nanos::from_secs(2), drain: 0, ..listed("spt", fabric, &flows, transport, faults) }
}

fn run(fabric: &str, flows: &[Listed], transport: &str) -> Outcome {
    run_with(settings(fabric, flows, transport, ""), NoTap)
}

/// Two flows without end share the cable.
const TWO_LONG: [(u64, usize, usize, Option<u64>); 2] = [(0, 0, 3, None), (3, 1, 4, None)];

/// The cable between the ToRs, in the direction of the data, and its mean queue.
fn cable(outcome: &Outcome) -> (LinkId, f64) {
    let fabric = fabric_from_spec(DUMBBELL).unwrap();
    let of_cable = outcome.links.iter().filter(|row| fabric.is_switch_link(row.link));
    let row = of_cable.max_by_key(|row| row.sent_bytes).unwrap();
    (row.link, row.mean_queue)
}

#[test]
fn a_port_with_packets_of_one_class_behaves_like_a_fifo() {
    for (transport, faults) in [
        ("newreno", ""),
        ("dctcp", ""),
        ("cubic", "300ms:down:e0-e1,310ms:up:e0-e1,500ms:degrade:e0-e1:10Mbps,900ms:restore:e0-e1"),
        ("newreno", "0s:loss:e0-e1:0.001"),
    ] {
        let fifo = run_with(settings(DUMBBELL, &TWO_LONG, transport, faults), NoTap);
        for queues in ["queues=2", "queues=8"] {
            let fabric = format!("{DUMBBELL},{queues}");
            let ports = run_with(settings(&fabric, &TWO_LONG, transport, faults), NoTap);
            assert_eq!(ports.flows, fifo.flows, "{transport} {faults}");
            let columns = |outcome: &Outcome| -> Vec<(u64, i64)> {
                let row = |row: &LinkOutcome| (row.dropped_packets, (row.mean_queue * 1e6).round() as i64);
                outcome.links.iter().map(row).collect()
            };
            assert_eq!(columns(&ports), columns(&fifo), "{transport} {faults}");
            // Packets that wait when a link fails count as sent in a FIFO.
            let used = |outcome: &Outcome| outcome.links.iter().map(|row| row.utilisation).sum::<f64>();
            assert!((used(&ports) - used(&fifo)).abs() < 0.004, "{} {}", used(&ports), used(&fifo));
            assert_eq!(ports.packets.events, fifo.packets.events, "one event per packet-hop");
        }
    }
}

#[test]
fn a_short_flow_of_a_higher_class_meets_no_queue() {
    let short = (1000, 2, 5, Some(50_000));
    let fct_ms = |fabric: &str, flows: &[(u64, usize, usize, Option<u64>)]| {
        let outcome = run(fabric, flows, "newreno");
        let flow = outcome.flows.iter().find(|flow| flow.size_bytes.is_some()).unwrap();
        flow.finish.map_or(f64::INFINITY, |finish| (finish.0 - flow.start.unwrap().0) as f64 / 1e6)
    };
    let shared = [TWO_LONG[0], TWO_LONG[1], short];
    let prioritised = format!("{DUMBBELL},queues=2");
    let alone = fct_ms(DUMBBELL, &[short]);
    let (fifo, first) = (fct_ms(DUMBBELL, &shared), fct_ms(&prioritised, &shared));
    // The handshake and each burst of a window wait at most for one frame of 0.12 ms that is being sent.
    assert!(first < alone + 6.0 * 0.122, "{first} ms, {alone} ms alone");
    assert!(fifo > alone + 5.0, "{fifo} ms among long flows in one queue, {alone} ms alone");
}

#[test]
fn red_keeps_the_mean_queue_between_its_thresholds() {
    // Here the mean follows the queue closely, so the queue itself stays between the thresholds.
    let red = format!("{DUMBBELL},red=5/30,red_weight=0.02");
    let (link, tail) = cable(&run(DUMBBELL, &TWO_LONG, "newreno"));
    let dropping = run(&red, &TWO_LONG, "newreno");
    let (_, mean) = cable(&dropping);
    assert!(tail > 25.0 && (2.0..20.0).contains(&mean), "{tail} {mean}");
    let used = dropping.links[link.index()].utilisation;
    assert!(used > 0.85, "{used}");
    assert!(dropping.links[link.index()].dropped_packets > 0);
}

#[test]
fn red_marks_data_of_dctcp_and_drops_data_of_others() {
    let marking = format!("{DUMBBELL},red=5/30,red_weight=0.02,red_ecn=on");
    let dropped = |transport: &str| {
        let outcome = run(&marking, &TWO_LONG, transport);
        (outcome.packets.dropped, cable(&outcome).1)
    };
    let (lost, mean) = dropped("dctcp:ssthresh=30KB");
    assert!(lost == 0 && (2.0..30.0).contains(&mean), "{lost} {mean}");
    assert!(dropped("newreno").0 > 0);
    let both = Simulation::new(settings(&marking, &TWO_LONG, "dctcp:mark=20", ""));
    assert_eq!(both.err(), Some(SimError::ConflictingMarking));
    let queues = format!("{DUMBBELL},queues=2");
    assert!(Simulation::new(settings(&queues, &TWO_LONG, "dctcp:mark=20", "")).is_ok());
}

fn mixed(fabric: &str, seed: u64, faults: &str) -> SimSettings {
    let fabric = Arc::new(fabric_from_spec(fabric).unwrap());
    let duration = Nanos::from_millis(200);
    let traffic = TrafficSpec::parse("web-search:load=0.6,pattern=random").unwrap();
    SimSettings {
        workload: Arc::new(traffic.generate(&fabric, duration, 1, None).unwrap()),
        central: pathloom_schemes::parse("ecmp").unwrap().central(1),
        duration,
        drain: 2,
        faults: Fault::parse_schedule(&fabric, faults).unwrap(),
        seed,
        fabric,
        ..settings(DUMBBELL, &TWO_LONG, "newreno:min_rto=5ms", "")
    }
}

const MIXED: &str = "fat-tree:k=4,rate=100Mbps,buffer=30,queues=3,red=3/15,red_weight=0.05,loss=0.0005";
const FAULTS: &str = "20ms:down:c0+a1_0,60ms:up:c0+a1_0,80ms:degrade:c1:10Mbps,90ms:loss:c1:0.1,120ms:restore:c1";

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_gives_another() {
    let first = run_with(mixed(MIXED, 1, FAULTS), NoTap);
    assert!(first.packets.dropped > 100 && first.packets.delivered > 10_000, "{:?}", first.packets);
    assert_eq!(first, run_with(mixed(MIXED, 1, FAULTS), NoTap));
    assert_ne!(first.links, run_with(mixed(MIXED, 2, FAULTS), NoTap).links);
}

#[test]
fn the_code_for_large_fabrics_gives_the_same_run_despite_faults() {
    for fabric in [MIXED, "fat-tree:k=4,rate=100Mbps,buffer=30"] {
        let small = run_with(mixed(fabric, 1, FAULTS), NoTap);
        assert_eq!(small, run_with(mixed(fabric, 1, FAULTS), LargeFabric), "{fabric}");
    }
}

#[test]
fn a_lossy_fabric_equals_a_fault_at_the_start_and_a_restore_keeps_its_losses() {
    let plain = "fat-tree:k=4,rate=100Mbps";
    let lossy = format!("{plain},loss=c0:0.01/e0_0-h0:0.002");
    let by_key = run_with(mixed(&lossy, 1, ""), NoTap);
    let by_fault = run_with(mixed(plain, 1, "0s:loss:c0:0.01,0s:loss:e0_0-h0:0.002"), NoTap);
    assert_eq!(by_key.flows, by_fault.flows);
    assert_ne!(by_key.flows, run_with(mixed(plain, 1, ""), NoTap).flows);
    let restored = run_with(mixed(&lossy, 1, "0s:loss:c0:0.5,0s:restore:c0"), NoTap);
    assert_eq!(restored.flows, by_key.flows);
}
