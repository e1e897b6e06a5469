//! The simulator alone, for profilers: `hops FABRIC MILLISECONDS TRAFFIC TRANSPORT SCHEME THREADS`, all optional.
//!
//! ```text
//! cargo build --release -p pathloom-sim --example hops
//! valgrind --tool=callgrind target/release/examples/hops fat-tree:k=8 200
//! ```

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{LargeFabric, Parted, SimSettings, Simulation, Tap};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &'static str| arguments.get(index).map_or(default, |text| text.as_str());
    let fabric = Arc::new(fabric_from_spec(argument(0, "fat-tree:k=8,rate=1Gbps,delay=1us,buffer=100"))?);
    let duration = Nanos::from_millis(argument(1, "1000").parse()?);
    let traffic = TrafficSpec::parse(argument(2, "long-lived:pattern=stride"))?;
    let workload = Arc::new(traffic.generate(&fabric, duration, 1, None)?);
    let transport = TransportSpec::parse(argument(3, "newreno:small_queues=off,acks=1"))?;
    let scheme = pathloom_schemes::parse(argument(4, "ecmp"))?;
    let transport = scheme.transport_with(Some(transport))?;
    let central = scheme.central(1);
    let (control, faults) = (Default::default(), Vec::new());
    let large = fabric.links().len() >= LargeFabric::LINKS;
    let settings = SimSettings {
        fabric,
        workload,
        central,
        successor: None,
        programs: scheme.deployment(),
        transport,
        control,
        duration,
        drain: 5,
        faults,
        seed: 1,
    };
    let threads: usize = argument(5, "1").parse()?;
    match (threads > 1, large) {
        (false, false) => report(Simulation::new(settings)?, Simulation::advance),
        (false, true) => report(Simulation::with_tap(settings, LargeFabric, None)?, Simulation::advance),
        (true, false) => report_together(Simulation::with_tap(settings, Parted::<false>, None)?, threads),
        (true, true) => report_together(Simulation::with_tap(settings, Parted::<true>, None)?, threads),
    }
    Ok(())
}

/// As [`report`], on several threads.
fn report_together<const LARGE: bool>(simulation: Simulation<Parted<LARGE>>, threads: usize) {
    match simulation.one_thread() {
        Some(why) => println!("on one thread: {why}"),
        None => println!("on {threads} threads"),
    }
    report(simulation, |simulation, until| simulation.advance_on(until, threads));
}

/// Runs to the end and prints the results.
fn report<T: Tap>(mut simulation: Simulation<T>, advance: impl FnOnce(&mut Simulation<T>, Nanos)) {
    let begun = Instant::now();
    let end = simulation.end();
    advance(&mut simulation, end);
    let wall_s = begun.elapsed().as_secs_f64();
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets(), "packets are lost without trace: {:?}", outcome.packets);
    let shares: Vec<f64> = outcome.flows.iter().filter_map(|flow| flow.throughput).collect();
    let finished = outcome.flows.iter().filter(|flow| flow.finish.is_some()).count();
    println!("{:?}\n{:?}", outcome.packets, outcome.control);
    if let Some(mut programs) = outcome.programs {
        programs.samples.clear();
        println!("{programs:?}");
    }
    println!("{finished} of {} flows finished by {:.3} s", outcome.flows.len(), outcome.end.as_secs_f64());
    let slow = simulation.decisions();
    println!("{slow} packets asked a switch, {:.2} in 1000 hops", slow as f64 * 1e3 / outcome.packets.hops as f64);
    println!("{} windows on several threads", simulation.windows());
    println!("mean throughput {:.4}", shares.iter().sum::<f64>() / shares.len() as f64);
    println!("{:.2} million packet-hops per wall second ({wall_s:.3} s)", outcome.packets.hops as f64 / wall_s / 1e6);
}
