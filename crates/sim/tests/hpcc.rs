//! Transfers over HPCC: telemetry in packets, the share of a cable, queues, and DCQCN beside it.

use crate::packets::{all_finish, fcts_us, run, run_with, settings, FAT_TREE};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{LinkId, Nanos};
use pathloom_sim::{LargeFabric, Outcome, SimSettings, Simulation};
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

/// Bytes of a full packet with its telemetry, at the last of so many ports.
fn frame(ports: u64) -> u64 {
    4096 + 66 + 2 + 8 * ports
}

#[test]
fn telemetry_takes_its_bytes_on_every_link_of_the_path() {
    let own = settings(FAT_TREE, &[(0, 0, 15, Some(4096))], "hpcc", "");
    let fabric = own.fabric.clone();
    let outcome = run(own);
    let sent = |is_of_data: bool| {
        let of_hosts = |link: LinkId| (fabric.is_host(fabric.link(link).from), fabric.is_host(fabric.link(link).to));
        let rows = outcome.links.iter().filter(|row| row.sent_packets == 1 && (row.sent_bytes > 1000) == is_of_data);
        let mut bytes: Vec<(u64, (bool, bool))> = rows.map(|row| (row.sent_bytes, of_hosts(row.link))).collect();
        bytes.sort_unstable();
        bytes
    };
    let data = sent(true);
    assert_eq!(data.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), (0..6).map(frame).collect::<Vec<_>>());
    assert_eq!((data[0].1, data[5].1), ((true, false), (false, true)));
    // The acknowledgement brings the entries of five ports.
    assert_eq!(sent(false).iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [70 + 2 + 8 * 5; 6]);
}

#[test]
fn a_lone_flow_takes_the_time_of_its_frames_and_links() {
    // At most the product of rate and round trip is in flight, so the card stands still only while rounding does.
    let fct = fcts_us(&run(settings(FAT_TREE, &[(0, 0, 15, Some(4_096_000))], "hpcc:eta=1", "")))[0];
    let alone = 1000.0 * frame(5) as f64 * 8e-5 + 6.0 * 0.5 + 5.0 * frame(2) as f64 * 8e-5;
    assert!((fct / alone - 1.0).abs() < 0.03, "{fct} {alone}");
}

/// Flows without end over one cable of 100 Gbit/s. Returns the mean queue at the cable in bytes, its utilisation, and Jain's index
/// of the goodput of the flows, all from 2 to 10 ms.
fn steady(flows: usize) -> (f64, f64, f64) {
    let fabric = format!("dumbbell:hosts={flows},rate=100Gbps,delay=1us,buffer=2000,pfc=on");
    let rows: Vec<(u64, usize, usize, Option<u64>)> =
        (0..flows).map(|flow| (flow as u64, flow, flows + flow, None)).collect();
    let own = settings(&fabric, &rows, "hpcc:mtu=1024B", "");
    let mut simulation = Simulation::new(SimSettings { duration: Nanos::from_millis(10), drain: 0, ..own }).unwrap();
    let graph = fabric_from_spec(&fabric).unwrap();
    let [before, after] = [2, 10].map(|ms| {
        simulation.advance(Nanos::from_millis(ms));
        simulation.outcome()
    });
    assert_eq!((after.packets.dropped, after.pauses.as_ref().unwrap().pauses), (0, 0));
    let cable =
        after.links.iter().filter(|row| graph.is_switch_link(row.link)).max_by_key(|row| row.sent_bytes).unwrap();
    let earlier = before.links[cable.link.index()];
    let queue = (cable.mean_queue * 10.0 - earlier.mean_queue * 2.0) / 8.0;
    let sent = (cable.sent_bytes - earlier.sent_bytes) as f64 * 8.0 / (1e11 * 0.008);
    let goodput = |flow: usize| (after.flows[flow].delivered_bytes - before.flows[flow].delivered_bytes) as f64;
    let (sum, squares) = (0..flows).map(goodput).fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (queue * 1100.0, sent, sum * sum / squares / flows as f64)
}

#[test]
fn flows_share_a_cable_equally_near_the_target_and_with_almost_no_queue() {
    for flows in [2, 4, 8, 16] {
        let (queue, utilisation, jain) = steady(flows);

        // What 100 Gbit/s send in the round trip of 6 us are 75 KB.
        assert!(queue < 7_500.0, "{flows} flows: {queue} bytes");
        assert!((0.92..0.98).contains(&utilisation), "{flows} flows: {utilisation}");
        assert!(jain >= 0.95, "{flows} flows: {jain}");
    }
}

/// Most packets that wait for a link, by means over steps of 1 us, in an incast of 1 MB from each sender.
fn peak(transport: &str, senders: usize) -> (f64, Outcome) {
    let fabric = "leaf-spine:spines=2,leaves=4,hosts=8,rate=100Gbps,buffer=2000,pfc=on,ecn=100KB/400KB/0.1";
    let rows: Vec<(u64, usize, usize, Option<u64>)> = (1..=senders).map(|host| (0, host, 0, Some(1_000_000))).collect();
    let mut simulation = Simulation::new(settings(fabric, &rows, transport, "")).unwrap();
    let (mut before, mut most) = (Vec::new(), 0.0f64);
    for us in 1..=3_000u64 {
        simulation.advance(Nanos::from_micros(us));
        let sums: Vec<f64> = simulation.outcome().links.iter().map(|row| row.mean_queue * us as f64).collect();
        let steps = sums.iter().zip(&before).map(|(now, then): (&f64, &f64)| now - then);
        most = steps.fold(most, f64::max);
        before = sums;
    }
    simulation.advance(Nanos::from_millis(30));
    (most, simulation.outcome())
}

#[test]
fn an_incast_makes_shorter_queues_than_with_dcqcn_and_ends_no_later() {
    for senders in [8, 16] {
        let [(hpcc, own), (dcqcn, other)] = ["hpcc", "roce"].map(|transport| peak(transport, senders));
        assert!(all_finish(&own) && all_finish(&other));
        assert_eq!((own.packets.dropped, other.packets.dropped), (0, 0));
        assert!(2.0 * hpcc < dcqcn, "{senders} to 1: {hpcc} packets with hpcc, {dcqcn} with dcqcn");
        let last = |outcome: &Outcome| fcts_us(outcome).into_iter().fold(0.0, f64::max);
        assert!(last(&own) < last(&other), "{senders} to 1: {} us, {} us", last(&own), last(&other));
    }
}

/// Mean and 99th percentile of FCT divided by the ideal FCT, of all flows and of those up to 100 KB, with web search at half of
/// the load.
fn slowdowns(transport: &str) -> [[f64; 2]; 2] {
    let spec = "fat-tree:k=4,rate=100Gbps,delay=1us,buffer=1000,pfc=on,ecn=100KB/400KB/0.2";
    let own = settings(spec, &[], transport, "");
    let traffic = TrafficSpec::parse("web-search:load=0.5").unwrap();
    let workload = traffic.generate(&own.fabric, Nanos::from_millis(4), 1, None).unwrap();
    let outcome = run(SimSettings { workload: Arc::new(workload), duration: Nanos::from_millis(4), ..own });
    assert!(all_finish(&outcome) && outcome.packets.dropped == 0);
    [u64::MAX, 100_000].map(|most| {
        let of_size = outcome.flows.iter().filter(|flow| flow.size_bytes.unwrap() <= most);
        let mut all: Vec<f64> = of_size.map(|flow| 1.0 / flow.throughput.unwrap()).collect();
        all.sort_by(f64::total_cmp);
        [all.iter().sum::<f64>() / all.len() as f64, all[all.len() * 99 / 100]]
    })
}

#[test]
fn flows_of_web_search_are_slowed_down_less_than_with_dcqcn() {
    let [hpcc, dcqcn] = ["hpcc", "roce"].map(slowdowns);

    let is_less = |which: usize| (0..2).all(|of| hpcc[which][of] < dcqcn[which][of]);
    assert!(is_less(0) && is_less(1), "{hpcc:?} {dcqcn:?}");
}

#[test]
fn losses_failures_and_large_fabrics_change_no_result_that_they_should_not() {
    let fabric = "leaf-spine:spines=2,leaves=2,hosts=8,rate=10Gbps,buffer=20";
    let flows: Vec<(u64, usize, usize, Option<u64>)> =
        (1..8).map(|host| (host as u64, host, 8, Some(1_000_000))).collect();
    let faults = "300us:down:e0-c0,500us:up:e0-c0,700us:down:e1-c1,900us:up:e1-c1";
    for transport in ["hpcc:rto=1ms", "hpcc:rto=1ms,recovery=irn", "roce:cc=hpcc,rto=1ms"] {
        let own = || settings(fabric, &flows, transport, faults);
        let (small, large) = (run(own()), run_with(own(), LargeFabric));
        assert_eq!(small, large, "{transport}");
        assert!(all_finish(&small) && small.packets.dropped > 0, "{transport}");
    }
}
