//! Tests of link discovery on whole fabrics: exactly the existing cables are found, quickly, and nobody can forge one.

use crate::support::{mac_of, Net};
use pathloom_discovery::cabling::{compare, dpid_of, place_of};
use pathloom_discovery::lldp::{emit, Probe, ProbeKey};
use pathloom_discovery::{AlarmKind, Dpid, LinkInput, LinkLoss, Mac, Place, PortState, ProbeSettings};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, LinkId, Nanos, PortNo};
use pathloom_testkit::strategies::fabrics;
use proptest::prelude::*;
use std::sync::Arc;

const MS: Nanos = Nanos::from_millis(1);

fn ms(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

fn fabric(spec: &str) -> Arc<Fabric> {
    Arc::new(fabric_from_spec(spec).unwrap())
}

fn settled(spec: &str) -> Net {
    let mut net = Net::new(fabric(spec), 1);
    net.connect_all();
    net.run_for(ms(1000));
    assert_eq!(net.up, net.wanted());
    net
}

fn first_cable(net: &Net) -> (LinkId, Place, Place) {
    let link = net.fabric.switch_cables().next().unwrap();
    let (a, b) = (place_of(&net.fabric, link), place_of(&net.fabric, link.reverse()));
    (link, a.min(b), a.max(b))
}

#[test]
fn fat_trees_that_connect_at_once_are_found_in_time_and_without_bursts() {
    for (spec, cables, bar) in [("fat-tree:k=4", 32, 100), ("fat-tree:k=8", 256, 100), ("fat-tree:k=16", 2048, 1000)] {
        let mut net = Net::new(fabric(spec), 3);
        net.connect_all();
        let took = net.run_until_right(ms(bar)).unwrap_or_else(|| panic!("{spec}: {} links in {bar} ms", net.up.len()));
        assert_eq!(net.up.len(), cables);
        net.run_for(ms(2000));
        assert_eq!((net.up == net.wanted(), &net.edges), (true, &net.host_ports()), "{spec}");
        assert_eq!(net.alarms, [], "{spec}, up in {took:?}");
        assert!(compare(&net.fabric, net.links.links()).is_right());
        let settings = ProbeSettings::default();
        for window in net.sent.windows(settings.sends.burst as usize + 100) {
            let span = window[window.len() - 1].0 - window[0].0;
            assert!(span >= Nanos(99 * 50_000), "{spec}: a burst at {:?}", window[0].0);
        }
    }
}

#[test]
fn steady_probes_are_few_and_come_in_rounds() {
    let mut net = settled("fat-tree:k=8");
    net.run_for(ms(10_000));
    net.sent.clear();
    net.run_for(ms(10_000));
    // 640 ports, each in two or three rounds of 3.25 to 5 s.
    assert!((2 * 640..=3 * 640).contains(&net.sent.len()), "{}", net.sent.len());
    // A process that runs all switches wakes up twice a second, and never probes all ports at the same time.
    let mut per_half = std::collections::BTreeMap::new();
    for (at, ..) in &net.sent {
        *per_half.entry(at.0 / 500_000_000).or_insert(0) += 1;
        assert!(at.0 % 500_000_000 < 20_000_000, "at {at:?}");
    }
    assert!(per_half.len() >= 18 && per_half.values().all(|&count| count < 640 / 3), "{per_half:?}");
}

#[test]
fn a_link_to_a_switch_without_session_is_probed_no_more_often_than_others() {
    let mut net = settled("fat-tree:k=4");
    net.disconnect(net.fabric.switches()[0]);
    net.run_for(ms(1000));
    net.sent.clear();
    net.run_for(ms(30_000));
    // 76 ports of 19 switches, each every 3.25 to 5 s.
    assert!(net.sent.len() < 76 * 10, "{}", net.sent.len());
    assert_eq!(net.losses, []);
}

#[test]
fn a_link_is_found_within_100_ms_and_goes_down_at_once_without_carrier() {
    let mut net = settled("fat-tree:k=8");
    let (link, a, b) = first_cable(&net);
    net.carrier(link, false);
    assert!(!net.up.contains(&(a, b)), "lost in the same instant");
    assert_eq!(net.losses, [LinkLoss::PortDown]);
    net.run_for(ms(500));
    net.carrier(link, true);
    let took = net.run_until_right(ms(100)).expect("found again");
    assert!(took < ms(10), "{took:?} with control channels of about 1 ms");
}

#[test]
fn a_silent_link_goes_down_in_time_and_never_becomes_an_edge() {
    let mut net = settled("fat-tree:k=4");
    let (_, a, b) = first_cable(&net);
    net.mute.insert(a);
    net.run_for(ms(2900));
    assert!(net.up.contains(&(a, b)), "a few lost probes do not take the link down");
    net.run_for(ms(5200));
    assert!(!net.up.contains(&(a, b)));
    assert_eq!(net.losses, [LinkLoss::Silent]);
    net.run_for(ms(20_000));
    assert!(!net.edges.contains(&a) && !net.edges.contains(&b));
    let one_way = |alarm: &pathloom_discovery::Alarm| alarm.place == b && alarm.kind == AlarmKind::OneWay { to: a };
    assert!(net.has_alarm(one_way), "{:?}", net.alarms);
    net.mute.clear();
    net.run_until_right(ms(6000)).expect("back");
}

#[test]
fn a_short_session_loss_keeps_links_up_and_a_long_one_takes_them_down() {
    let mut net = settled("fat-tree:k=4");
    let node = net.fabric.switches()[0];
    net.disconnect(node);
    net.run_for(ms(30_000));
    assert_eq!(net.losses, []);
    net.connect(node);
    net.run_for(ms(10_000));
    assert_eq!((&net.losses, net.up == net.wanted()), (&vec![], true));
    net.disconnect(node);
    net.run_for(ms(61_000));
    assert_eq!(net.losses, [LinkLoss::SwitchGone; 2]);
    net.connect(node);
    net.run_until_right(ms(100)).expect("found again");
}

#[test]
fn a_link_cut_while_the_session_is_lost_goes_down_at_reconnection() {
    let mut net = settled("fat-tree:k=4");
    let (link, a, b) = first_cable(&net);
    let node = net.fabric.link(link).from;
    net.disconnect(node);
    net.cut.insert(link.cable());
    net.run_for(ms(1000));
    assert!(net.up.contains(&(a, b)), "nothing was reported yet");
    net.connect(node);
    assert!(!net.up.contains(&(a, b)));
}

#[test]
fn a_flapping_port_is_damped_and_reported_and_other_links_stay_up() {
    let mut net = settled("fat-tree:k=4");
    let (link, a, _) = first_cable(&net);
    net.sent.clear();
    for _ in 0..500 {
        net.carrier(link, false);
        net.run_for(ms(5));
        net.carrier(link, true);
        net.run_for(ms(5));
    }
    assert!(net.losses.len() <= 4, "{} losses", net.losses.len());
    let flaps: Vec<_> = net
        .alarms
        .iter()
        .filter(|alarm| matches!(alarm.kind, AlarmKind::Flapping { .. }) && alarm.place == a)
        .collect();
    assert_eq!(flaps.len(), 1, "{:?}", net.alarms);
    let of_port = net.sent.iter().filter(|(_, place, _)| *place == a).count();
    assert!(of_port < 12, "{of_port} probes");
    assert_eq!(net.up.len(), 31);
    net.run_until_right(ms(10_100)).expect("used again when it has been quiet for 10 s");
}

#[test]
fn a_port_that_is_repeatedly_removed_and_added_is_damped() {
    let mut net = settled("fat-tree:k=4");
    let (link, a, b) = first_cable(&net);
    let node = net.fabric.switches().iter().copied().find(|&node| dpid_of(node) == a.dpid).unwrap();
    for _ in 0..100 {
        net.tell(LinkInput::PortRemoved { place: a });
        assert!(!net.up.contains(&(a, b)));
        net.run_for(ms(5));
        let state = net.state(node, a.port);
        net.tell(LinkInput::PortStatus { dpid: a.dpid, state });
        net.run_for(ms(5));
    }
    assert!(net.losses.len() <= 4 && !net.cut.contains(&link.cable()), "{:?}", net.losses);
    assert!(net.has_alarm(|alarm| alarm.place == a && matches!(alarm.kind, AlarmKind::Flapping { .. })));
    net.run_until_right(ms(10_100)).expect("used again");
}

#[test]
fn reserved_and_too_many_ports_are_ignored_and_reported() {
    let mut net = settled("fat-tree:k=4");
    let odd = |port: u32| PortState { port: PortNo(port), mac: Mac([2, 9, 9, 9, 9, 9]), up: true };
    net.sent.clear();
    for port in [0, 0xffff_ff01, 0xffff_fffe, u32::MAX] {
        net.tell(LinkInput::PortStatus { dpid: Dpid(1), state: odd(port) });
    }
    assert_eq!(net.sent.len(), 0);
    let many: Vec<PortState> = net.ports(net.fabric.switches()[0]).into_iter().chain((1000..7000).map(odd)).collect();
    // The fabric has no cables at the additional ports, so they are down.
    let many: Vec<PortState> = many.into_iter().map(|port| PortState { up: port.port.0 < 1000, ..port }).collect();
    net.tell(LinkInput::SwitchUp { dpid: Dpid(1), ports: &many });
    let alarms: Vec<_> = net.alarms.iter().map(|alarm| (alarm.place, alarm.kind)).collect();
    assert_eq!(alarms, [(Place::new(1, 0), AlarmKind::TooManyPorts)]);
    net.run_for(ms(5000));
    assert_eq!(net.up, net.wanted());
}

#[test]
fn a_second_switch_with_the_same_id_is_ignored_and_a_reconnection_is_accepted() {
    let mut net = settled("fat-tree:k=4");
    let dpid = Dpid(1);
    let strange: Vec<PortState> = (1..=4)
        .map(|port| PortState { port: PortNo(port), mac: Mac([0x66, 0, 0, 0, 0, port as u8]), up: false })
        .collect();
    assert!(net.links.is_duplicate(dpid, &strange));
    net.tell(LinkInput::SwitchUp { dpid, ports: &strange });
    assert_eq!(
        net.alarms.last().map(|alarm| (alarm.kind, alarm.place)),
        Some((AlarmKind::DuplicateSwitch, Place::new(1, 0)))
    );
    assert_eq!(net.up, net.wanted());
    let alarms = net.alarms.len();
    net.connect(net.fabric.switches()[0]);
    net.run_for(ms(5000));
    assert_eq!((net.alarms.len(), net.up == net.wanted()), (alarms, true));
}

/// The latest probe out of a port.
fn latest_probe(net: &Net, place: Place) -> Vec<u8> {
    net.sent.iter().rev().find(|(_, at, _)| *at == place).map(|(.., frame)| frame.clone()).expect("probed")
}

/// Runs until a port is probed once more, and returns that probe.
fn next_probe(net: &mut Net, place: Place) -> Vec<u8> {
    let done = net.sent.len();
    while !net.sent[done..].iter().any(|(_, at, _)| *at == place) {
        net.run_for(MS);
    }
    latest_probe(net, place)
}

#[test]
fn replayed_old_relayed_and_forged_probes_create_no_link() {
    let mut net = settled("fat-tree:k=4");
    let hosts: Vec<Place> = net.host_ports().into_iter().collect();
    let (evil, other) = (hosts[0], hosts[5]);
    let (_, a, b) = first_cable(&net);
    let before = net.up.clone();
    // A probe of a real link arrives again at the right port, and at another port.
    let probe = latest_probe(&net, a);
    net.inject(b, &probe);
    net.inject(evil, &probe);
    // A long time later.
    net.run_for(ms(700));
    net.inject(evil, &probe);
    // A probe of another start of the controller, or a forged one.
    let made_up = Probe { from: other, nonce: 1, sent: net.now };
    net.inject(evil, &emit(&made_up, mac_of(other), 4, &ProbeKey::new([9; 32])));
    // A probe of the port where the attacker's host is.
    net.inject(evil, &latest_probe(&net, evil));
    assert_eq!(net.up, before);
    net.run_for(ms(20_000));
    assert_eq!(net.up, before);
    let alarms: Vec<AlarmKind> =
        net.alarms.iter().filter(|alarm| alarm.place == evil).map(|alarm| alarm.kind).collect();
    assert!(alarms.iter().any(|kind| matches!(kind, AlarmKind::StaleProbe { .. })), "{alarms:?}");
    assert!(alarms.contains(&AlarmKind::ForgedProbe), "{alarms:?}");
}

/// Two hosts relay each other's probes without delay. The content of the probes does not reveal the relay, but known
/// hosts do.
#[test]
fn a_relay_between_hosts_creates_no_link_once_a_host_is_known() {
    let mut net = settled("fat-tree:k=4");
    let hosts: Vec<Place> = net.host_ports().into_iter().collect();
    let (evil, other, innocent) = (hosts[0], hosts[5], hosts[9]);
    let relay = |net: &mut Net| {
        for _ in 0..12_000 {
            let done = net.sent.len();
            net.run_for(MS);
            let new = net.sent[done..].to_vec();
            for (_, place, frame) in new {
                if let Some(to) = [(evil, other), (other, evil)].iter().find(|pair| pair.0 == place).map(|pair| pair.1)
                {
                    net.arrive_at(net.now + MS, to, frame);
                }
            }
        }
    };
    net.tell(LinkInput::HostSeen { place: evil });
    relay(&mut net);
    assert_eq!(net.up, net.wanted(), "one of them was seen as a host");
    assert!(net.has_alarm(|alarm| matches!(alarm.kind, AlarmKind::ProbeOnHostPort { .. })));
    net.tell(LinkInput::HostsGone { place: evil });
    relay(&mut net);
    let fake = (evil.min(other), evil.max(other));
    assert!(net.up.contains(&fake), "the content does not reveal the relay, as documented");
    let report = compare(&net.fabric, net.links.links());
    assert_eq!(report.miscabled.len(), 2, "but the configured cabling shows it");
    net.tell(LinkInput::HostSeen { place: other });
    assert_eq!(net.up, net.wanted());
    assert!(net.has_alarm(|alarm| alarm.kind == AlarmKind::HostOnLink { peer: evil }));
    relay(&mut net);
    assert_eq!(net.up, net.wanted());
    assert!(net.edges.contains(&innocent) && net.edges.contains(&other));
}

#[test]
fn a_probe_that_arrives_at_two_ports_takes_the_link_down() {
    let mut net = settled("fat-tree:k=4");
    let (_, a, b) = first_cable(&net);
    let evil = net.host_ports().into_iter().next_back().unwrap();
    let probe = next_probe(&mut net, a);
    net.run_for(ms(20));
    net.inject(evil, &probe);
    assert!(net.has_alarm(|alarm| alarm.kind == AlarmKind::TwoPlaces { from: a, first: b } && alarm.place == evil));
    assert_eq!(net.losses, [LinkLoss::Doubtful]);
    net.run_for(ms(3000));
    assert!(!net.up.contains(&(a, b)));
    net.run_until_right(ms(15_000)).expect("accepted again after the relay stopped");
}

#[test]
fn a_cable_between_two_ports_of_one_switch_is_reported() {
    let mut net = settled("fat-tree:k=4");
    let hosts: Vec<Place> = net.host_ports().into_iter().collect();
    assert_eq!(hosts[0].dpid, hosts[1].dpid);
    let probe = next_probe(&mut net, hosts[0]);
    net.inject(hosts[1], &probe);
    let alarms: Vec<_> = net.alarms.iter().map(|alarm| (alarm.place, alarm.kind)).collect();
    assert_eq!(alarms, [(hosts[1], AlarmKind::Looped { from: hosts[0] })]);
    assert_eq!(net.up, net.wanted());
}

#[test]
fn an_lldp_flood_affects_only_its_port() {
    let mut net = settled("fat-tree:k=4");
    let evil = net.host_ports().into_iter().next().unwrap();
    let junk = emit(&Probe { from: evil, nonce: 0, sent: net.now }, mac_of(evil), 4, &ProbeKey::new([1; 32]));
    let before = net.alarms.len();
    for _ in 0..3000 {
        for _ in 0..100 {
            net.inject(evil, &junk);
        }
        net.run_for(MS);
    }
    let new: Vec<_> = net.alarms[before..].iter().map(|alarm| (alarm.place, alarm.kind)).collect();
    assert_eq!(new, [(evil, AlarmKind::ForgedProbe), (evil, AlarmKind::LldpFlood)]);
    assert_eq!((&net.losses, net.up == net.wanted()), (&vec![], true));
}

/// Something that happens to a fabric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Connect(usize),
    Carrier(usize, bool),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any fabric, any order and time of connections, up to 20 % loss, and cables that flap: finally every existing
    /// cable is found, and at no time another one.
    #[test]
    fn exactly_the_existing_cables_are_found(
        fabric in fabrics(), seed: u64, loss in 0.0..0.2f64,
        starts in prop::collection::vec(0..2000u64, 8),
        flaps in prop::collection::vec((any::<prop::sample::Index>(), 0..3000u64, any::<bool>()), 0..12),
    ) {
        let mut net = Net::new(fabric, seed);
        net.loss = loss;
        let cables: Vec<LinkId> = net.fabric.switch_cables().collect();
        let every = net.wanted();
        let switches = 0..net.fabric.switches().len();
        let mut plan: Vec<(u64, Step)> =
            switches.map(|index| (starts[index % starts.len()], Step::Connect(index))).collect();
        plan.extend(flaps.iter().map(|(cable, at, up)| (*at, Step::Carrier(cable.index(cables.len()), *up))));
        plan.sort();
        let start = net.now;
        for (at, what) in plan {
            while net.now < start + ms(at) {
                net.run_for(MS);
                prop_assert!(net.up.is_subset(&every));
            }
            match what {
                Step::Connect(index) => net.connect(net.fabric.switches()[index]),
                Step::Carrier(cable, up) => net.carrier(cables[cable], up),
            }
        }
        // Damping requires at most 10 s without a failure.
        let took = net.run_until_right(ms(12_000));
        prop_assert!(took.is_some(), "found {:?} of {:?}", net.up, net.wanted());
        for _ in 0..20 {
            net.run_for(ms(500));
            prop_assert_eq!(&net.up, &net.wanted(), "and they stay up");
        }
        prop_assert!(net.edges.is_subset(&net.host_ports()) || !net.cut.is_empty());
    }

    /// Whatever a host sends (changed probes and random bytes, at any time), no link comes up and none goes down.
    #[test]
    fn no_frame_of_a_host_changes_a_link(
        seed: u64,
        attacks in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..200u64), 1..60),
        junk in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut net = Net::new(fabric("fat-tree:k=4"), seed);
        net.connect_all();
        net.run_for(ms(1000));
        let hosts: Vec<Place> = net.host_ports().into_iter().collect();
        for (probe, host, at, value, wait) in attacks {
            let evil = *host.get(&hosts);
            let mut frame = probe.get(&net.sent).2.clone();
            let at = at.index(frame.len());
            frame[at] ^= value | 1;
            net.inject(evil, &frame);
            net.inject(evil, &junk);
            net.run_for(ms(wait));
            prop_assert_eq!(&net.up, &net.wanted());
        }
        prop_assert_eq!(&net.losses, &vec![]);
    }
}

#[test]
fn same_seed_same_probes() {
    let run = || {
        let mut net = Net::new(fabric("fat-tree:k=4"), 5);
        net.loss = 0.1;
        net.connect_all();
        net.run_for(ms(5000));
        net.sent
    };
    assert_eq!(run(), run());
}
