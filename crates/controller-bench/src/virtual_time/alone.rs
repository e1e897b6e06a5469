//! The fabric while no controller runs: its hosts find each other, and nothing loops.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_discovery::arp::Arp;
use pathloom_model::{FiveTuple, Headers, Mac, PROTO_UDP};
use pathloom_testnet::{End, Frame, Host, Timing};
use std::net::Ipv4Addr;

/// A fabric whose hosts are known to the controller.
pub(super) fn standing(seed: u64) -> Lab {
    let mut lab = Lab::with(K4, QUIET, "", Timing::SLOW, seed);
    (0..lab.hosts.len()).for_each(|host| lab.announce(host));
    lab.run_for(s(5));
    lab
}

/// Number of ARP frames with this sender that a host has received.
pub(super) fn heard(lab: &Lab, host: usize, sender: usize) -> usize {
    let from = v4(&lab.hosts[sender]);
    let read = |frame: &Frame| Arp::parse(&frame.to_bytes()).ok();
    lab.hosts[host].received.iter().filter_map(read).filter(|arp| arp.sender_ip == from).count()
}

pub(super) fn ask(lab: &mut Lab, from: usize, target: usize, to: Mac) {
    let (host, target) = (lab.hosts[from].clone(), v4(&lab.hosts[target]));
    lab.send_bytes(host.end, &Arp::request(host.mac, v4(&host), target, to).emit());
}

/// A host looks for another one as Linux does: if it knows a hardware address, three requests to that address, and then
/// three broadcasts, a second apart (`ucast_solicit` and `mcast_solicit` in arp(7)). Packets for the other one wait until
/// then. Returns whether it was answered.
pub(super) fn finds(lab: &mut Lab, from: usize, target: usize, knows: bool) -> bool {
    let before = heard(lab, from, target);
    let known = lab.hosts[target].mac;
    for to in [known, known, known, Mac::BROADCAST, Mac::BROADCAST, Mac::BROADCAST] {
        if to == known && !knows {
            continue;
        }
        ask(lab, from, target, to);
        lab.run_for(s(1));
        if heard(lab, from, target) > before {
            return true;
        }
    }
    false
}

/// The address of a host.
fn v4(host: &pathloom_testnet::Host) -> Ipv4Addr {
    host.address.v4().expect("live hosts have IPv4")
}

/// A message of DHCP between these addresses and ports, about the client with the address 02:00:00:00:00:07.
fn dhcp(src: Ipv4Addr, dst: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    let (src, dst) = (src.into(), dst.into());
    let five_tuple = FiveTuple::new(PROTO_UDP, (src, ports.0), (dst, ports.1));
    let mut bytes = Frame::bytes_of(Headers::plain(five_tuple));
    // RFC 2131 §2: `op`, `htype`, `hlen`; `chaddr` is at 28.
    bytes.extend([if ports.0 == 68 { 1 } else { 2 }, 1, 6]);
    bytes.extend([0; 25]);
    bytes.extend([2, 0, 0, 0, 0, 7]);
    bytes
}

#[test]
fn neighbours_are_found_at_any_time_after_the_controller_stops_and_when_it_is_back() {
    let mut lab = standing(1);
    for step in 0..20 {
        let (from, to, knows) = (step % 16, (step + 7) % 16, step % 2 == 0);
        let snapshot = lab.kill_controller();
        lab.run_for(ms(250 * step as u64));
        // A host that knows nothing gives up after 3 s, which is before switches have removed their punts. Its next
        // packet starts again.
        let found = finds(&mut lab, from, to, knows) || !knows && step < 12 && finds(&mut lab, from, to, knows);
        assert!(found, "{step} quarters of a second after the controller stopped");
        lab.start_controller(QUIET, (step % 3 > 0).then_some(snapshot));
        lab.run_for(ms(100 * step as u64));
        assert!(finds(&mut lab, to, from, knows), "{step} tenths of a second after a controller started");
        lab.run_for(s(5));
        assert_eq!(lab.sessions(), 20);
    }
    assert_eq!(lab.frames.lost, 0, "no frame loops");
}

#[test]
fn an_hour_without_a_controller_ends_nothing() {
    let mut lab = standing(2);
    lab.run_for(s(60));
    let seen = heard(&lab, 9, 0);
    ask(&mut lab, 0, 15, Mac::BROADCAST);
    lab.run_for(s(1));
    assert_eq!(heard(&lab, 9, 0), seen, "the controller answers, so other hosts do not hear the request");
    let snapshot = lab.kill_controller();
    for minute in 0..60 {
        lab.run_for(s(57));
        let (from, to) = (minute % 16, (minute + 5) % 16);
        let before: Vec<usize> = (0..16).map(|host| heard(&lab, host, from)).collect();
        assert!(finds(&mut lab, from, to, true) && finds(&mut lab, from, to, false), "minute {minute}");
        lab.run_for(s(1));
        for host in (0..16).filter(|&host| host != from) {
            // A broadcast along both trees, and a request to a known address, which other switches forward to this address
            // only. Hosts at the same switch get both from there.
            let copies = match host {
                _ if host / 2 == from / 2 => 1 + 1,
                _ if host == to => 2 + 2,
                _ => 2,
            };
            assert_eq!(heard(&lab, host, from) - before[host], copies, "host {host} in minute {minute}");
        }
        let packet = lab.packet(from, to, 1000);
        assert!(lab.reaches(packet), "minute {minute}: {:?}", lab.fates(packet));
    }
    assert_eq!(lab.frames.lost, 0, "no frame loops");
    lab.start_controller(QUIET, Some(snapshot));
    lab.run_for(s(5));
    assert_eq!((lab.sessions(), lab.logged(&["were missing and are restored"]).len()), (20, 0));
    let before = heard(&lab, 9, 0);
    assert!(finds(&mut lab, 0, 15, true));
    assert_eq!(heard(&lab, 9, 0), before, "the controller is asked again");
}

#[test]
fn messages_of_dhcp_reach_every_host_along_both_trees_without_a_controller() {
    let mut lab = standing(3);
    lab.kill_controller();
    lab.run_for(s(10));
    let (client, server) = (lab.hosts[3].clone(), lab.hosts[12].clone());
    let request = dhcp(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, (68, 67));
    let reply = dhcp(v4(&server), Ipv4Addr::BROADCAST, (67, 68));
    for (from, bytes) in [(client.end, request), (server.end, reply)] {
        lab.hosts.iter_mut().for_each(|host| host.received.clear());
        lab.send_bytes(from, &bytes);
        lab.run_for(s(1));
        let counts: Vec<usize> = lab.hosts.iter().map(|host| host.received.len()).collect();
        let copies = |host: &Host| match lab.other_end(host.end).map(|end| end.node) {
            _ if host.end == from => 0,
            tor if tor == lab.other_end(from).map(|end| end.node) => 1,
            _ => 2,
        };
        assert_eq!(counts, lab.hosts.iter().map(copies).collect::<Vec<usize>>());
    }
}

/// Runs a check for each cable between switches while it has failed. Every second one fails in one direction, which nobody
/// notices.
fn with_each_cable_failed(lab: &mut Lab, mut check: impl FnMut(&mut Lab, usize)) {
    let cables: Vec<_> = lab.fabric.switch_cables().collect();
    for (number, &cable) in cables.iter().enumerate() {
        let silent = (number % 2 == 1).then(|| lab.ends(cable)[number / 2 % 2]);
        match silent {
            Some(end) => lab.set_mute(end, true),
            None => lab.set_cable(cable, false),
        }
        check(lab, number);
        match silent {
            Some(end) => lab.set_mute(end, false),
            None => lab.set_cable(cable, true),
        }
    }
}

#[test]
fn no_failed_cable_separates_hosts_for_arp_and_dhcp_without_a_controller() {
    let mut lab = standing(4);
    lab.kill_controller();
    lab.run_for(s(10));
    with_each_cable_failed(&mut lab, |lab, number| {
        let from = number % 16;
        for to in (0..16).filter(|&to| to != from) {
            ask(lab, from, to, Mac::BROADCAST);
            lab.run_for(ms(20));
        }
        lab.run_for(s(1));
        for to in (0..16).filter(|&to| to != from) {
            assert!(heard(lab, from, to) > 0, "host {to} answers host {from} with cable {number} down");
        }
        lab.hosts.iter_mut().for_each(|host| host.received.clear());
        let (end, address) = (lab.hosts[from].end, Ipv4Addr::UNSPECIFIED);
        lab.send_bytes(end, &dhcp(address, Ipv4Addr::BROADCAST, (68, 67)));
        lab.run_for(s(1));
        let counts: Vec<usize> = lab.hosts.iter().map(|host| host.received.len()).collect();
        let is_right = |host: usize| host == from || (1..=2).contains(&counts[host]);
        assert!((0..16).all(is_right), "host {from} with cable {number} down: {counts:?}");
        lab.hosts.iter_mut().for_each(|host| host.received.clear());
    });
}

/// Takes its session from a switch until [`rejoin`].
fn separate(lab: &mut Lab, tor: usize) {
    lab.redials = false;
    let node = lab.fabric.tors()[tor];
    lab.break_session(node);
    lab.redials = true;
}

fn rejoin(lab: &mut Lab, tor: usize) {
    let node = lab.fabric.tors()[tor];
    assert!(lab.connect(node).is_some());
    lab.run_for(s(5));
    assert_eq!(lab.sessions(), 20);
}

#[test]
fn hosts_of_a_switch_without_a_session_and_others_find_each_other() {
    for (seed, learnt) in [(5, true), (6, false)] {
        let mut lab = match learnt {
            true => standing(seed),
            false => Lab::with(K4, QUIET, "", Timing::SLOW, seed),
        };
        separate(&mut lab, 3);
        // Its punts end after 3 s. Its hosts are known for 60 s, and are asked for by broadcast afterwards.
        for wait in [s(4), s(30), s(30), s(90), s(300)] {
            lab.run_for(wait);
            for (alone, other) in [(6, 0), (7, 5), (6, 15)] {
                for (from, to) in [(alone, other), (other, alone)] {
                    lab.hosts.iter_mut().for_each(|host| host.received.clear());
                    assert!(finds(&mut lab, from, to, wait == s(30)), "{from} asks for {to} {wait:?} later");
                }
            }
        }
        lab.hosts.iter_mut().for_each(|host| host.received.clear());
        let (client, server) = (lab.hosts[6].clone(), lab.hosts[12].clone());
        for (from, to, bytes) in [
            (&client, 12, dhcp(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, (68, 67))),
            (&server, 6, dhcp(v4(&server), Ipv4Addr::BROADCAST, (67, 68))),
        ] {
            lab.send_bytes(from.end, &bytes);
            lab.run_for(s(1));
            assert!(!lab.hosts[to].received.is_empty(), "host {to} has a message of DHCP");
        }
        rejoin(&mut lab, 3);
        lab.run_for(s(5));
        let before = heard(&lab, 9, 0);
        assert!(finds(&mut lab, 0, 6, false) && finds(&mut lab, 6, 0, true));
        assert_eq!(heard(&lab, 9, 0), before, "the controller is asked again");
        assert_eq!(lab.frames.lost, 0, "no frame loops");
    }
}

/// A switch forwards by its rules while it has no session. Discovery forgets its ports after a minute.
#[test]
fn nothing_that_stands_ends_while_a_switch_has_no_session_for_minutes() {
    for (seed, name) in (8..).zip(["e0_0", "a0_0", "c0"]) {
        let mut lab = standing(seed);
        lab.begin_flows(8);
        lab.traffic(s(2));
        let node = lab.node(name);
        lab.redials = false;
        lab.break_session(node);
        lab.redials = true;
        for _ in 0..6 {
            lab.traffic(s(1));
            lab.run_for(s(50));
            // Flows on default routes, to and from a host of the switch or through it.
            for (from, to) in [(0, 9), (9, 0), (1, 3), (5, 1)] {
                let packet = lab.packet(from, to, 1000);
                assert!(lab.reaches(packet), "{name}: {:?}", lab.fates(packet));
                assert!(finds(&mut lab, from, to, true), "{name}: {from} finds {to}");
            }
        }
        assert!(lab.connect(node).is_some());
        lab.traffic(s(5));
        assert_eq!(lab.sessions(), 20);
        lab.nothing_is_lost();
    }
}

#[test]
fn a_frame_of_hosts_in_a_tree_is_not_sent_to_the_controller_and_ends_in_the_tree() {
    let mut lab = standing(7);
    // A switch with a session gets a frame from another one, as if that had none. Each port of the fabric in turn.
    let ends: Vec<End> = lab.fabric.switch_cables().flat_map(|cable| lab.ends(cable)).collect();
    let from = lab.hosts[0].clone();
    let frame = Arp::request(from.mac, v4(&from), v4(&lab.hosts[13]), Mac::BROADCAST).emit();
    for end in ends {
        lab.hosts.iter_mut().for_each(|host| host.received.clear());
        lab.send_bytes(end, &frame);
        lab.run_for(ms(50));
        assert!((0..16).all(|host| heard(&lab, host, 0) <= 1), "no host gets two copies from {end:?}");
        assert_eq!(lab.logged(&["claims"]).len(), 0);
    }
    assert_eq!(lab.frames.lost, 0, "no frame loops");
}
