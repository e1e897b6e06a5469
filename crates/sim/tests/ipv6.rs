//! Runs on fabrics whose hosts have IPv6 addresses, beside the same runs over IPv4.

use super::cases::{finish, listed, Case, SEARCH};
use pathloom_model::{Nanos, IPV6_HOSTS};
use pathloom_sim::{Fidelity, FlowOutcome, NoTap, Outcome, PcapTap, SimSettings, Simulation};
use pathloom_transport::{HEADER_BYTES, IPV6_MORE_BYTES};

const V4: Case<'static> = SEARCH;
const V6: Case<'static> = Case { fabric: "fat-tree:k=4,rate=1Gbps,addresses=ipv6", ..SEARCH };

fn run(case: Case<'_>, scheme: &str) -> Outcome {
    let programs = pathloom_schemes::parse(scheme).unwrap().deployment();
    finish(Simulation::new(SimSettings { programs, ..case.settings(scheme, None) }).unwrap())
}

fn times(outcome: &Outcome) -> Vec<String> {
    let row = |flow: &FlowOutcome| format!("{:?} {:?} {}", flow.start, flow.finish, flow.delivered_bytes);
    outcome.flows.iter().map(row).collect()
}

/// Rules of single paths and of hashes, moves, sprayed packets, load balancers, several addresses, and programs that ask for
/// addresses.
const SCHEMES: [&str; 14] = [
    "spt", "ecmp", "hedera", "ofpt", "lessor", "wcmp", "rps", "presto", "conga", "drill", "mptcp", "plb", "tcp-path",
    "arp-path",
];

#[test]
fn each_scheme_carries_the_flows_of_ipv6() {
    for scheme in SCHEMES {
        let outcome = run(V6, scheme);
        let before = run(V4, scheme);
        assert!(outcome.flows.len() > 20 && outcome.flows.len() == before.flows.len(), "{scheme}");
        for flow in &outcome.flows {
            assert_eq!(Some(flow.delivered_bytes), flow.size_bytes, "{scheme}");
            let tuple = flow.five_tuple.expect("a flow that started");
            assert!(IPV6_HOSTS.contains(tuple.src()) && IPV6_HOSTS.contains(tuple.dst()), "{scheme}: {tuple:?}");
        }
        let of =
            |flow: &FlowOutcome| flow.five_tuple.map(|tuple| (tuple.src().low(), tuple.dst().low(), tuple.src_port()));
        let pairs = |outcome: &Outcome| outcome.flows.iter().map(of).collect::<Vec<_>>();
        assert_eq!(pairs(&outcome), pairs(&before), "{scheme}: the workload and the ports stay");
    }
}

/// Packets of Ultra Ethernet have an IPv6 header in any case. So only hashes could differ, and spt uses none.
#[test]
fn without_hashes_and_with_equal_headers_the_results_are_equal() {
    let [v4, v6] = [V4, V6].map(|case| finish(case.start("spt", Some("uec:entropy=single"))));
    assert_eq!(times(&v4), times(&v6));
    assert_eq!((v4.packets, v4.control), (v6.packets, v6.control));
    assert!(v4.flows.iter().all(|flow| flow.finish.is_some()));
}

/// Bytes and packets on the link of the first host.
fn sent(fabric: &str, size_bytes: u64, transport: &str) -> (u64, u64) {
    let settings = listed("spt", fabric, &[(0, 0, 1, Some(size_bytes))], transport, "");
    let uplink = settings.fabric.node(settings.fabric.hosts()[0]).ports[0];
    let outcome = finish(Simulation::new(settings).unwrap());
    let row = outcome.links.iter().find(|row| row.link == uplink).unwrap();
    (row.sent_bytes, row.sent_packets)
}

#[test]
fn frames_of_tcp_stay_as_long_and_those_of_roce_get_longer() {
    let (v4, v6) = ("dumbbell:hosts=2,rate=10Gbps", "dumbbell:hosts=2,rate=10Gbps,addresses=ipv6");
    let (header, more) = (u64::from(HEADER_BYTES), u64::from(IPV6_MORE_BYTES));
    let [mss_v4, mss_v6] = [1448, 1448 - more];
    let tcp = "newreno:handshake=off";
    assert_eq!(sent(v4, 100 * mss_v4, tcp), (100 * (mss_v4 + header), 100));
    assert_eq!(sent(v6, 100 * mss_v6, tcp), (100 * (mss_v4 + header), 100), "1514 bytes");
    assert_eq!(sent(v6, 100 * mss_v4, tcp), (100 * mss_v4 + 102 * (header + more), 102));
    let (v4, v6) = ("dumbbell:hosts=2,pfc=on", "dumbbell:hosts=2,pfc=on,addresses=ipv6");
    let (roce_v4, roce_v6) = (sent(v4, 102_400, "roce:mtu=1024B"), sent(v6, 102_400, "roce:mtu=1024B"));
    assert_eq!(roce_v4, (100 * (1024 + 66), 100));
    assert_eq!(roce_v6, (100 * (1024 + 66 + more), 100));
    assert_eq!(sent(v4, 102_400, "uec"), sent(v6, 102_400, "uec"), "the header of IPv6 in any case");
}

#[test]
fn flows_as_rates_and_skipped_phases_know_the_longer_header() {
    let flows = [(0, 0, 2, None), (0, 1, 3, None)];
    for fidelity in [Fidelity::Fluid, Fidelity::Skip, Fidelity::Packets] {
        // Bytes of frames for each byte of payload.
        let frame_bytes = |fabric| {
            let settings = listed("spt", fabric, &flows, "newreno:handshake=off,rwnd=64KB", "");
            let settings = SimSettings { duration: Nanos::from_millis(500), drain: 1, ..settings };
            let uplink = settings.fabric.node(settings.fabric.hosts()[0]).ports[0];
            let mut simulation = Simulation::with_fidelity(settings, NoTap, None, fidelity).unwrap();
            simulation.advance(simulation.end());
            let outcome = simulation.outcome();
            let sent = outcome.links.iter().find(|row| row.link == uplink).unwrap().sent_bytes;
            sent as f64 / outcome.flows[0].delivered_bytes as f64
        };
        // A window is under way at the end: 0.2 % of the bytes.
        let near = |measured: f64, expected: f64| (measured / expected - 1.0).abs() < 4e-3;
        let (v4, v6) = (frame_bytes("dumbbell:hosts=2"), frame_bytes("dumbbell:hosts=2,addresses=ipv6"));
        assert!(near(v4, 1514.0 / 1448.0) && near(v6, 1514.0 / 1428.0), "{fidelity:?}: {v4} {v6}");
    }
}

#[test]
fn a_capture_has_headers_of_ipv6() {
    let settings = listed("spt", "dumbbell:hosts=2,addresses=ipv6", &[(0, 0, 2, Some(14_280))], "newreno", "");
    let fabric = settings.fabric.clone();
    let tap = PcapTap::new(Vec::new(), &fabric).unwrap();
    let mut simulation = Simulation::with_tap(settings, tap, None).unwrap();
    simulation.advance(simulation.end());
    let (written, file) = simulation.tap_mut().finish_with(|file| file.clone()).unwrap();
    let packets = super::runs::packets(&file);
    assert_eq!(written, packets.len() as u64);
    let ends = [0, 2].map(|host| fabric.host_attachments(fabric.hosts()[host])[0].address.to_bits().to_be_bytes());
    let mut full = 0;
    for (_, bytes) in packets {
        etherparse::LaxSlicedPacket::from_ethernet(bytes).expect("headers that parse");
        let ip = &bytes[14..];
        assert_eq!((bytes[12], bytes[13], ip[0] >> 4, ip[6]), (0x86, 0xdd, 6, 6), "IPv6 and TCP");
        assert!([&ip[8..24], &ip[24..40]].iter().all(|address| ends.iter().any(|end| end == *address)));
        full += u32::from(u16::from_be_bytes([ip[4], ip[5]]) == 1500 - 40);
    }
    assert!(full >= 30, "ten full frames on each of three links");
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let [one, again] = [(); 2].map(|()| run(V6, "ecmp"));
    assert_eq!((times(&one), one.packets), (times(&again), again.packets));
    assert_ne!(times(&one), times(&run(V4, "ecmp")), "other headers and hashes");
}
