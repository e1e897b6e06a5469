//! Tests with random fabrics and random schedules of connections, broadcasts, failures, repairs, restarts and hosts that
//! move. Frames arrive in any order. There must be no loop and no duplicate at a host. When all failures are repaired and nothing
//! changes any more, every connection works.

use super::net::{identity, tuple, Inspect, Net};
use crate::programs::{ArpPath, Elephants, Selection, Settings, TcpPath};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Address, Fabric, LinkId, Nanos, NodeId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const FABRICS: [&str; 8] = [
    "leaf-spine:spines=2,leaves=3,hosts=2",
    "leaf-spine:spines=3,leaves=2,hosts=1",
    "diamond",
    "dumbbell",
    "parallel-paths:rates=100Mbps/50Mbps,delays=1ms/20ms",
    "jellyfish:switches=6,ports=4,hosts=6,seed=3",
    "jellyfish:switches=5,ports=5,hosts=5,seed=7",
    "fat-tree:k=4",
];

fn random_address(fabric: &Fabric, rng: &mut Pcg64) -> Address {
    let all = fabric.attachments();
    all[rng.random_range(0..all.len())].address
}

/// Performs one random event.
fn happen<P: Inspect>(net: &mut Net<'_, P>, rng: &mut Pcg64, port: u16) {
    let fabric = net.fabric;
    let cables: Vec<LinkId> = fabric.switch_cables().collect();
    match rng.random_range(0..11) {
        0..=3 => {
            let (src, dst) = (random_address(fabric, rng), random_address(fabric, rng));
            if src != dst {
                net.open(tuple(src, dst, port), 1 + u32::from(port) % 4);
            }
        }
        4..=5 => net.set_cable(cables[rng.random_range(0..cables.len())], false),
        6 => {
            let down: Vec<LinkId> = net.down.iter().copied().collect();
            if let Some(&cable) = down.get(rng.random_range(0..down.len().max(1))) {
                net.set_cable(cable, true);
            }
        }
        7 => {
            let switches = fabric.switches();
            net.boot(switches[rng.random_range(0..switches.len())]);
        }
        8 if rng.random() => {
            // One direction of a cable loses all frames, and no port notices.
            let cable = cables[rng.random_range(0..cables.len())];
            net.dead.insert(cable.reverse());
        }
        8 => net.flush_caches(),
        9 => {
            let (one, other) = (random_address(fabric, rng), random_address(fabric, rng));
            net.swap_hosts(one, other, true);
        }
        _ => net.want_more(),
    }
}

/// Runs one schedule, and returns the number of frames. The error describes what went wrong.
pub(crate) fn schedule<P: Inspect>(
    fabric: &Fabric,
    seed: u64,
    make: impl Fn(Nanos, &Fabric, NodeId, u64) -> P,
) -> Result<u64, String> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let longest = [Nanos::from_micros(20), Nanos::from_millis(2), Nanos::from_millis(60)][rng.random_range(0..3)];
    let mut net = Net::new(fabric, seed, longest, make);
    let end = net.now + Nanos::from_secs(1);
    net.run(end);
    for step in 0..rng.random_range(3..14u16) {
        happen(&mut net, &mut rng, 1000 + step);
        let times = [1, 10, 100][rng.random_range(0..3)];
        let pause = Nanos(rng.random_range(1..=longest.0 * times));
        let end = net.now + pause;
        net.run(end);
        net.check_ways();
    }
    let down: Vec<LinkId> = net.down.iter().copied().collect();
    down.into_iter().for_each(|cable| net.set_cable(cable, true));
    net.dead.clear();
    let end = net.now + Nanos::from_secs(rng.random_range(2..30));
    net.run(end);
    net.want_more();
    let all = fabric.attachments();
    net.open(tuple(all[0].address, all[all.len() - 1].address, 3500), 3);
    let end = net.now + Nanos::from_secs(40);
    net.run(end);
    if let Some(violation) = net.violations.first() {
        return Err(format!("seed {seed} on {}: {violation}", fabric.spec()));
    }
    if let Some(stuck) = net.sessions().find(|one| one.acked < one.wanted) {
        return Err(format!("seed {seed} on {}: the connection does not work: {stuck:?}", fabric.spec()));
    }
    Ok(net.frames)
}

/// Returns the settings that a seed determines: with or without Hello, and whether ports learn their roles (only with
/// Hello).
fn settings(seed: u64) -> (Settings, bool) {
    let learn = seed / 32 % 24 == 23;
    let hello = (learn || seed / 32 % 2 == 1).then_some(Nanos::from_secs(5));
    (Settings { hello, ..Settings::default() }, learn)
}

/// Runs one schedule with the fabric, the program and the settings that a seed determines.
pub(crate) fn case(fabrics: &[Fabric], seed: u64) -> Result<u64, String> {
    let fabric = &fabrics[(seed % fabrics.len() as u64) as usize];
    let (settings, learn) = settings(seed);
    match seed / 8 % 4 {
        0 => schedule(fabric, seed, |now, fabric, node, boot| {
            ArpPath::new(now, identity(fabric, node, boot, learn), settings.clone())
        }),
        1 => schedule(fabric, seed, |now, fabric, node, boot| {
            let settings = Settings { descend_only: true, ..settings.clone() };
            TcpPath::elephants(now, identity(fabric, node, boot, learn), settings, Elephants::default())
        }),
        _ => schedule(fabric, seed, |now, fabric, node, boot| {
            TcpPath::new(now, identity(fabric, node, boot, learn), settings.clone(), Selection::AllTcp)
        }),
    }
}

pub(crate) fn fabrics() -> Vec<Fabric> {
    FABRICS.iter().map(|spec| fabric_from_spec(spec).unwrap()).collect()
}

fn check(seeds: std::ops::Range<u64>) {
    let fabrics = fabrics();
    let wrong: Vec<String> = seeds.filter_map(|seed| case(&fabrics, seed).err()).take(5).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Similar schedules, with switches that accept late copies.
#[test]
fn hosts_receive_duplicates_if_late_copies_are_accepted() {
    let fabrics = fabrics();
    let caught = (0..64).filter(|&seed| {
        let settings = Settings { late_copies_pass: true, ..settings(seed).0 };
        let fabric = &fabrics[(seed % 2) as usize];
        let result = schedule(fabric, seed, |now, fabric, node, boot| {
            TcpPath::new(now, identity(fabric, node, boot, false), settings.clone(), Selection::AllTcp)
        });
        result.is_err_and(|why| why.contains("twice"))
    });
    let caught = caught.count();
    assert!(caught > 50, "{caught} of 64 schedules show it");
}

#[test]
fn random_schedules_cause_no_loop_and_no_duplicate_and_all_connections_work() {
    check(0..2_500);
}

/// Tables of two to four connections: entries are displaced all the time.
#[test]
fn full_tables_cause_no_loop_and_no_duplicate_and_all_connections_work() {
    let fabrics = fabrics();
    let full = |seed: u64| {
        let fabric = &fabrics[(seed % fabrics.len() as u64) as usize];
        let settings = Settings {
            most_connections: 2 + (seed / 8 % 3) as usize,
            unused_explorations_per_s: 2,
            ..settings(seed).0
        };
        schedule(fabric, seed, |now, fabric, node, boot| {
            TcpPath::new(now, identity(fabric, node, boot, false), settings.clone(), Selection::AllTcp)
        })
    };
    let wrong: Vec<String> = (0..1_000).filter_map(|seed| full(seed).err()).take(5).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tables of a few hosts: entries of hosts at other switches are displaced all the time.
#[test]
fn full_tables_of_hosts_cause_no_loop_and_no_duplicate_and_all_connections_work() {
    let fabrics = fabrics();
    let full = |seed: u64| {
        let fabric = &fabrics[(seed % fabrics.len() as u64) as usize];
        let settings = Settings { most_hosts: 4 + (seed / 8 % 3) as usize, ..settings(seed).0 };
        schedule(fabric, seed, |now, fabric, node, boot| {
            TcpPath::new(now, identity(fabric, node, boot, false), settings.clone(), Selection::AllTcp)
        })
    };
    let wrong: Vec<String> = (0..1_000).filter_map(|seed| full(seed).err()).take(5).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "20 s of processor time; make test-long runs it"]
fn more_random_schedules_cause_no_loop_and_no_duplicate_and_all_connections_work() {
    check(2_500..20_000);
}
