//! Buffers that the ports of a switch share, and queues that share a port by weight.

use crate::packets::{run, settings};
use pathloom_model::Nanos;
use pathloom_sim::{ControlSettings, SimError, SimSettings, Simulation};

const LEAVES: &str = "leaf-spine:spines=2,leaves=2,hosts=8,rate=10Gbps,delay=1us";

/// Seven hosts send at the same time to an eighth one of the same rack, each `kb` KB in one burst.
fn incast(at_us: u64, to: usize, kb: u64) -> Vec<(u64, usize, usize, Option<u64>)> {
    (0..8).filter(|&host| host != to).map(|host| (at_us, host, to, Some(kb * 1000))).collect()
}

fn dropped(keys: &str, flows: &[(u64, usize, usize, Option<u64>)], faults: &str) -> u64 {
    let mut settings = settings(&format!("{LEAVES},{keys}"), flows, "newreno:iw=60KB,min_rto=1ms", faults);
    (settings.duration, settings.drain) = (Nanos::from_millis(100), 20);
    let outcome = run(settings);
    assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()), "{keys}");
    outcome.packets.dropped
}

/// Ten ports of 50 frames have 757 KB, and a burst of seven times 60 KB has 420.
#[test]
fn an_incast_that_exceeds_the_buffer_of_a_port_fits_a_shared_one() {
    let burst = incast(0, 7, 60);
    assert!(dropped("switch_buffer=50", &burst, "") > 50);
    // A single full queue may hold alpha / (1 + alpha): 378 KB, 505 KB and 673 KB.
    let lost = |alpha: &str| dropped(&format!("shared_buffer=757KB,alpha={alpha}"), &burst, "");
    assert!(lost("0.5") > 0 && lost("1") <= lost("0.5"));
    assert_eq!((lost("2"), lost("8")), (0, 0));
    // A switch may have too little for two such bursts.
    let both = [burst.clone(), incast(0, 6, 60)].concat();
    assert_eq!(dropped("shared_buffer=420KB,alpha=100", &burst, ""), 0);
    assert!(dropped("shared_buffer=420KB,alpha=100", &both, "") > 0);
    assert_eq!(dropped("shared_buffer=840KB,alpha=100", &both, ""), 0);
}

#[test]
fn what_leaves_or_is_lost_is_free_again() {
    let flows: Vec<_> = (0..5).flat_map(|round| incast(round * 2_000, 7, 60)).collect();
    let keys = "shared_buffer=450KB,alpha=100";
    assert_eq!(dropped(keys, &flows, ""), 0, "no burst finds what an earlier one left");
    // Packets that wait at a port are lost with its cable.
    let cut = "100us:down:h7-e0,1500us:up:h7-e0";
    let lost = |flows: &[(u64, usize, usize, Option<u64>)]| dropped(keys, flows, cut);
    let first = lost(&flows[..7]);
    assert!(first > 100, "{first}");
    let again: Vec<_> = [incast(0, 7, 60), incast(60_000, 7, 60)].concat();
    assert_eq!(lost(&again), first, "the burst after the fault finds the whole buffer");
}

#[test]
fn the_control_queue_is_not_in_the_shared_buffer() {
    let flows: Vec<_> = incast(0, 7, 400);
    let fabric = format!("{LEAVES},shared_buffer=80KB,alpha=1,trim=on");
    let outcome = run(settings(&fabric, &flows, "uec:mtu=1514B", ""));
    assert!(outcome.packets.trimmed > 0 && outcome.flows.iter().all(|flow| flow.finish.is_some()));
    assert_eq!(outcome.packets.dropped, 0, "full queues cut packets down");
}

/// A flow of 9 MB, which is not long and so has the upper queue, beside a long one.
fn weighted(keys: &str) -> SimSettings {
    let flows = [(0, 0, 2, None), (300_000, 1, 3, Some(9_000_000))];
    let fabric = format!("dumbbell:hosts=2,rate=100Mbps,host_buffer=1000,switch_buffer=50,{keys}");
    let mut settings = settings(&fabric, &flows, "newreno", "");
    (settings.duration, settings.drain) = (Nanos::from_secs(4), 0);
    settings.control = ControlSettings { long_bytes: 50_000_000, ..ControlSettings::default() };
    settings
}

#[test]
fn queues_share_a_port_by_weight() {
    let fct_ms = |keys: &str| {
        let outcome = run(weighted(keys));
        let flow = &outcome.flows[1];
        (flow.finish.unwrap().0 - flow.start.unwrap().0) as f64 / 1e6
    };
    // 9 MB and their headers take 750 ms. With a strict priority, the flow has the port for itself.
    let first = fct_ms("queues=2");
    assert!((750.0..760.0).contains(&first), "{first}");
    for (weights, share) in [("1/1", 0.5), ("3/1", 0.25)] {
        let fct = fct_ms(&format!("queue_weights={weights}"));
        assert!((fct * share / first - 1.0).abs() < 0.02, "{weights}: {fct}");
    }
}

#[test]
fn hosts_that_mark_by_age_need_strict_priorities() {
    let mut settings = weighted("queue_weights=1/1");
    settings.central = pathloom_schemes::parse("loom").unwrap().central(1);
    assert_eq!(Simulation::new(settings).err(), Some(SimError::AgesNeedPriorities));
}
