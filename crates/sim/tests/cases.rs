//! Cases that several files of tests run: a fabric with its traffic and faults, under any scheme.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fault, Nanos};
use pathloom_sim::{ControlSettings, Outcome, SimSettings, Simulation, Tap};
use pathloom_transport::TransportSpec;
use pathloom_workload::{FlowSpec, Start, TrafficSpec, Workload};
use std::sync::Arc;

#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub fabric: &'a str,
    pub traffic: &'a str,
    pub faults: &'a str,
    pub duration: Nanos,
    /// After `duration`, transfers have this many times as long to finish.
    pub drain: u32,
    pub seed: u64,
}

pub const SEARCH: Case<'static> = Case {
    fabric: "fat-tree:k=4,rate=1Gbps",
    traffic: "web-search:load=0.5,max_size=1MB",
    faults: "",
    duration: Nanos::from_millis(30),
    drain: 60,
    seed: 1,
};

impl Case<'_> {
    /// The settings of a run. The transport is that of the scheme's hosts, refined by `transport`.
    pub fn settings(&self, scheme: &str, transport: Option<&str>) -> SimSettings {
        let fabric = Arc::new(fabric_from_spec(self.fabric).unwrap());
        let traffic = TrafficSpec::parse(self.traffic).unwrap();
        let scheme = pathloom_schemes::parse(scheme).unwrap();
        let transport = transport.map(|text| TransportSpec::parse(text).unwrap());
        SimSettings {
            workload: Arc::new(traffic.generate(&fabric, self.duration, self.seed, None).unwrap()),
            central: scheme.central(self.seed),
            successor: None,
            programs: None,
            transport: scheme.transport_with(transport).unwrap(),
            control: ControlSettings::default(),
            duration: self.duration,
            drain: self.drain,
            faults: Fault::parse_schedule(&fabric, self.faults).unwrap(),
            seed: self.seed,
            fabric,
        }
    }

    pub fn start(&self, scheme: &str, transport: Option<&str>) -> Simulation {
        Simulation::new(self.settings(scheme, transport)).unwrap()
    }

    pub fn run(&self, scheme: &str, transport: Option<&str>) -> Outcome {
        finish(self.start(scheme, transport))
    }
}

/// A transfer of a list: its start in microseconds, the numbers of its hosts, and its size.
pub type Listed = (u64, usize, usize, Option<u64>);

/// The settings of a run of 1 ms with these transfers. They have up to 100 times as long to finish.
pub fn listed(scheme: &str, fabric: &str, flows: &[Listed], transport: &str, faults: &str) -> SimSettings {
    let fabric = Arc::new(fabric_from_spec(fabric).unwrap());
    let flow = |&(us, src, dst, size_bytes): &Listed| {
        FlowSpec::new(Start::At(Nanos::from_micros(us)), fabric.hosts()[src], fabric.hosts()[dst], size_bytes)
    };
    let flows = flows.iter().map(flow).collect();
    SimSettings {
        workload: Arc::new(Workload { flows, description: "as listed".into(), notes: Vec::new(), jobs: Vec::new() }),
        central: pathloom_schemes::parse(scheme).unwrap().central(1),
        successor: None,
        programs: None,
        transport: TransportSpec::parse(transport).unwrap(),
        control: ControlSettings::default(),
        duration: Nanos::from_millis(1),
        drain: 100,
        faults: Fault::parse_schedule(&fabric, faults).unwrap(),
        seed: 1,
        fabric,
    }
}

/// Runs a simulation to its end. No packet may be missing.
pub fn finish<T: Tap>(mut simulation: Simulation<T>) -> Outcome {
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
    outcome
}

pub fn throughputs(outcome: &Outcome) -> Vec<f64> {
    outcome.flows.iter().filter_map(|flow| flow.throughput).collect()
}
