//! Measures the computing time of discovery: `cargo run --release -p pathloom-discovery --example speed`.

use pathloom_discovery::arp::Arp;
use pathloom_discovery::cabling::{dpid_of, link_at, place_of};
use pathloom_discovery::lldp::{emit, parse, Probe, ProbeKey};
use pathloom_discovery::{Discovery, HostSettings, Input, Mac, Output, Place, PortState, ProbeSettings};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, Nanos, PortNo};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::hint::black_box;
use std::time::Instant;

/// Number of repetitions. The fastest one counts, because other programs may slow down the machine.
const ROUNDS: usize = 5;

fn main() {
    codec();
    println!();
    println!(
        "{:14} {:>8} {:>6} {:>12} {:>14} {:>16} {:>10}",
        "fabric", "switches", "ports", "found (ms)", "start (us)", "ns per event", "CPU share"
    );
    for spec in ["fat-tree:k=4", "fat-tree:k=8", "fat-tree:k=16"] {
        fabric(spec);
    }
    println!();
    arp();
}

fn best(mut work: impl FnMut() -> u64) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let events = work();
            start.elapsed().as_nanos() as f64 / events as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn codec() {
    let key = ProbeKey::new([1; 32]);
    let probe = Probe { from: Place::new(7, 3), nonce: 1, sent: Nanos::from_secs(9) };
    let frame = emit(&probe, Mac([2; 6]), 4, &key);
    let times = |work: &dyn Fn()| {
        best(|| {
            (0..100_000).for_each(|_| work());
            100_000
        })
    };
    let ns = times(&|| {
        black_box(emit(&probe, Mac([2; 6]), 4, &key));
    });
    println!("sign a probe    {ns:8.0} ns");
    let ns = times(&|| {
        black_box(parse(&frame, &key));
    });
    println!("check a probe   {ns:8.0} ns");
}

/// Measures the time until all links are found, and the following 20 s of simulated time. Probes arrive without delay,
/// one after the other.
fn fabric(spec: &str) {
    let fabric = fabric_from_spec(spec).unwrap();
    let ports: usize = fabric.switches().iter().map(|&node| fabric.node(node).ports.len()).sum();
    let wanted = fabric.switch_cables().count();
    let (mut start_us, mut ns, mut found_ms, mut share) = (f64::INFINITY, f64::INFINITY, 0.0, 0.0);
    for _ in 0..ROUNDS {
        let rng = Pcg64::seed_from_u64(1);
        let mut discovery = Discovery::new(ProbeSettings::default(), HostSettings::default(), [1; 32], rng);
        let clock = Instant::now();
        for &node in fabric.switches() {
            let of = |port| PortState { port: PortNo(port), mac: Mac([2, 0, 0, 0, 0, 1]), up: true };
            let ports: Vec<PortState> = (1..=fabric.node(node).ports.len() as u32).map(of).collect();
            discovery.handle(Nanos::ZERO, Input::SwitchUp { dpid: dpid_of(node), ports: &ports });
        }
        let (mut now, mut found) = (Nanos::ZERO, 0);
        while found < wanted {
            found += run(&fabric, &mut discovery, &mut now, Nanos(1_000_000)).1;
        }
        found_ms = now.0 as f64 / 1e6;
        start_us = start_us.min(clock.elapsed().as_secs_f64() * 1e6);
        let clock = Instant::now();
        let (events, _) = run(&fabric, &mut discovery, &mut now, Nanos::from_secs(20));
        let spent = clock.elapsed().as_nanos() as f64;
        (ns, share) = if spent / (events as f64) < ns { (spent / events as f64, spent / 20e9) } else { (ns, share) };
    }
    let switches = fabric.switches().len();
    println!("{spec:14} {switches:8} {ports:6} {found_ms:12.0} {start_us:14.0} {ns:16.0} {:9.3}%", share * 100.0);
}

/// Runs for `span` of simulated time. Returns the number of events handled, and the number of links found.
fn run(fabric: &Fabric, discovery: &mut Discovery, now: &mut Nanos, span: Nanos) -> (u64, usize) {
    let end = *now + span;
    let (mut events, mut found) = (0, 0);
    let mut frames = Vec::new();
    loop {
        while let Some(output) = discovery.poll_output() {
            match output {
                Output::Send { place, frame } => frames.push((place, frame)),
                Output::LinkUp { .. } => found += 1,
                _ => {}
            }
        }
        events += 1;
        if let Some((place, frame)) = frames.pop() {
            let link = link_at(fabric, place).unwrap();
            if fabric.is_switch_link(link) {
                let place = place_of(fabric, link.reverse());
                discovery.handle(*now, Input::PacketIn { place, frame: &frame });
            }
        } else if let Some(at) = discovery.poll_timeout().filter(|&at| at <= end) {
            *now = (*now).max(at);
            discovery.handle(*now, Input::Timeout);
        } else {
            *now = end;
            return (events, found);
        }
    }
}

/// Measures ARP: 1000 hosts that request each other's addresses, and one host that floods.
fn arp() {
    let settings = HostSettings::default();
    let address = |number: u32| std::net::Ipv4Addr::from(0x0a00_0000 + number + 1);
    let mac = |number: u32| Mac([2, 0, 0, 0, (number >> 8) as u8, number as u8]);
    let mut hosts = pathloom_discovery::HostLearning::new(settings);
    let place = |number: u32| Place::new(1 + u64::from(number / 16), 1 + number % 16);
    let mut now = Nanos::from_secs(1);
    let frames: Vec<Vec<u8>> = (0..1000)
        .map(|number| Arp::request(mac(number), address(number), address((number + 500) % 1000), Mac::BROADCAST).emit())
        .collect();
    for number in 0..1000 {
        hosts.handle(now, pathloom_discovery::HostInput::EdgeUp { place: place(number) });
        let own = Arp::request(mac(number), address(number), address(number), Mac::BROADCAST).emit();
        hosts.handle(now, pathloom_discovery::HostInput::Frame { place: place(number), frame: &own });
    }
    let mut round = |frames: &[Vec<u8>], same: bool| {
        best(|| {
            for (number, frame) in frames.iter().enumerate() {
                let place = place(if same { 0 } else { number as u32 });
                hosts.handle(now, pathloom_discovery::HostInput::Frame { place, frame });
                while let Some(output) = hosts.poll_output() {
                    black_box(output);
                }
            }
            now += Nanos::from_millis(20);
            frames.len() as u64
        })
    };
    println!("answer a request for a known host  {:6.0} ns", round(&frames, false));
    println!("drop a frame of a host that floods {:6.0} ns", round(&vec![frames[0].clone(); 1_000_000], true));
}
