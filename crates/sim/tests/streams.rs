//! Parallel TCP streams in the simulator: their throughput on several paths, and the requests for their paths.

use pathloom_control::{Input, Output};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, Fault, FaultKind, FaultTarget, Nanos};
use pathloom_sim::{ControlSettings, Journal, NoTap, Outcome, SimSettings, Simulation};
use pathloom_workload::{FlowSpec, Start, Workload};
use std::sync::{Arc, Mutex};

/// Topology A of the paper: four disjoint paths of 100 Mbit/s.
const TOPOLOGY_A: &str = "parallel-paths:rates=100Mbps/100Mbps/100Mbps/100Mbps,delays=1us/1us/1us/1us,host_rate=1Gbps";

/// Counts requests of hosts, and successful releases.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<[usize; 4]>>);

impl Journal for Asked {
    fn input(&mut self, _: Nanos, input: &Input) {
        let index = match input {
            Input::AssignPaths { .. } => 0,
            Input::ClaimPath { .. } => 1,
            Input::ReleasePaths { .. } => 2,
            _ => return,
        };
        self.0.lock().unwrap()[index] += 1;
    }

    fn output(&mut self, _: Nanos, output: &Output) {
        if matches!(output, Output::Released { answer: Ok(()), .. }) {
            self.0.lock().unwrap()[3] += 1;
        }
    }
}

fn settings(fabric: Fabric, scheme: &str, sizes: &[u64], faults: Vec<Fault>) -> SimSettings {
    let spec = pathloom_schemes::parse(scheme).unwrap();
    let (src, dst) = (fabric.hosts()[0], fabric.hosts()[fabric.hosts().len() - 1]);
    let start = Start::At(Nanos::from_millis(10));
    let flow = |&size: &u64| FlowSpec::new(start.clone(), src, dst, Some(size));
    let flows = sizes.iter().map(flow).collect();
    SimSettings {
        workload: Arc::new(Workload { flows, description: String::new(), notes: Vec::new(), jobs: Vec::new() }),
        central: spec.central(1),
        successor: None,
        programs: None,
        transport: spec.transport().clone(),
        control: ControlSettings::default(),
        duration: Nanos::from_secs(20),
        drain: 5,
        faults,
        seed: 1,
        fabric: Arc::new(fabric),
    }
}

fn run(settings: SimSettings) -> (Outcome, [usize; 4]) {
    let asked = Asked::default();
    let mut simulation = Simulation::with_tap(settings, NoTap, Some(Box::new(asked.clone()))).unwrap();
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets() && outcome.packets.misdelivered == 0, "{:?}", outcome.packets);
    let asked = *asked.0.lock().unwrap();
    (outcome, asked)
}

fn fct_s(outcome: &Outcome) -> f64 {
    let flow = &outcome.flows[0];
    (flow.finish.expect("it finished") - flow.start.unwrap()).as_secs_f64()
}

#[test]
fn four_streams_on_four_paths_are_nearly_four_times_as_fast_as_on_one() {
    let fabric = || fabric_from_spec(TOPOLOGY_A).unwrap();
    let (all, asked) = run(settings(fabric(), "parallel-tcp", &[100_000_000], Vec::new()));
    assert_eq!(asked, [1, 4, 1, 1], "assignment, claims, release");
    let (one, _) = run(settings(fabric(), "parallel-tcp:policy=single", &[100_000_000], Vec::new()));
    let (all, one) = (fct_s(&all), fct_s(&one));
    assert!(one / all > 3.8, "{all} s on four paths, {one} s on one");
}

#[test]
fn a_transfer_has_at_most_one_stream_per_byte_and_releases_its_paths() {
    let fabric = fabric_from_spec("fat-tree:k=4,rate=100Mbps").unwrap();
    let sizes = [1, 3, 100_000, 5_000_000];
    let (outcome, asked) = run(settings(fabric, "parallel-tcp:streams=8", &sizes, Vec::new()));
    assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()));
    assert_eq!(outcome.flows.iter().map(|flow| flow.delivered_bytes).collect::<Vec<_>>(), sizes);
    assert_eq!(asked, [4, 1 + 3 + 8 + 8, 4, 4]);
}

#[test]
fn a_fast_path_carries_more() {
    let fabric = fabric_from_spec("parallel-paths:rates=100Mbps/20Mbps,delays=1ms,host_rate=1Gbps").unwrap();
    let scheme = "parallel-tcp:paths=2,streams=2,policy=round-robin";
    let (outcome, _) = run(settings(fabric, scheme, &[60_000_000], Vec::new()));
    // It takes 4.2 s if both paths are full all the time, and 12.5 s if each carries one half.
    assert!((4.1..4.8).contains(&fct_s(&outcome)), "{} s", fct_s(&outcome));
}

/// Number of streams on the first of two equal paths and on the second, of a transfer that begins while another one
/// fills the first path.
fn streams_beside_a_full_path(bandwidth: &str) -> [usize; 2] {
    let fabric = fabric_from_spec("parallel-paths:rates=10Mbps/10Mbps,delays=5ms,host_rate=1Gbps").unwrap();
    // 3 streams for 10 Mbit/s, and 1 for a path without bandwidth.
    let scheme = format!("parallel-tcp:paths=2,streams=4,a=0.015,bandwidth={bandwidth}");
    let fault = |ms, kind| Fault { at: Nanos::from_millis(ms), kind };
    // Without a controller, the first transfer takes the default route.
    let restart = FaultKind::ControllerRestart { from_snapshot: true };
    let faults = vec![fault(1, FaultKind::ControllerKill), fault(3000, restart)];
    let mut settings = settings(fabric, &scheme, &[20_000_000; 2], faults);
    let spec = pathloom_schemes::parse(&scheme).unwrap();
    settings.successor = Some(Box::new(move || spec.central(1)));
    let mut workload = (*settings.workload).clone();
    workload.flows[1].start = Start::At(Nanos::from_millis(7500));
    settings.workload = Arc::new(workload);
    let fabric = settings.fabric.clone();
    let mut simulation = Simulation::with_tap(settings, NoTap, None).unwrap();
    simulation.record_subflow_paths();
    simulation.advance(Nanos::from_secs(9));
    let paths = simulation.take_subflow_paths();
    let used = fabric.switch_cables().map(|cable| {
        let crosses = |path: &&pathloom_sim::SubflowPath| path.transfer == 1 && path.links.contains(&cable);
        paths.iter().filter(crosses).count()
    });
    // A path has two cables; those of the first path come first.
    let used: Vec<usize> = used.collect();
    assert_eq!((used[0], used[2]), (used[1], used[3]));
    [used[0], used[2]]
}

#[test]
fn streams_avoid_a_path_that_other_traffic_fills() {
    assert_eq!(streams_beside_a_full_path("rate"), [2, 2]);
    assert_eq!(streams_beside_a_full_path("available"), [1, 3]);
}

#[test]
fn streams_leave_a_dead_path() {
    let fabric = fabric_from_spec(TOPOLOGY_A).unwrap();
    let source = fabric.attachments()[0].tor;
    let cable = fabric.switch_cables().find(|&link| fabric.link(link).from == source).unwrap();
    let fault =
        Fault { at: Nanos::from_secs(1), kind: FaultKind::Carrier { target: FaultTarget::Cable(cable), up: false } };
    let (outcome, asked) = run(settings(fabric, "parallel-tcp", &[100_000_000], vec![fault]));
    assert_eq!(asked, [1, 4, 1, 1]);
    // The stream of the dead path shares another path.
    assert!((2.0..6.0).contains(&fct_s(&outcome)), "{} s", fct_s(&outcome));
}

#[test]
fn without_a_controller_streams_take_the_default_routes() {
    let fabric = fabric_from_spec(TOPOLOGY_A).unwrap();
    let fault = Fault { at: Nanos::from_millis(1), kind: FaultKind::ControllerKill };
    let (outcome, asked) = run(settings(fabric, "parallel-tcp", &[10_000_000], vec![fault]));
    assert_eq!(asked, [0, 0, 0, 0]);
    assert!((1.8..2.5).contains(&fct_s(&outcome)), "{} s, of these 1 s without an answer", fct_s(&outcome));
}
