//! The fabric while no controller runs: its hosts find each other, and nothing loops.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_discovery::arp::Arp;
use pathloom_model::{FiveTuple, Headers, Mac, PROTO_UDP};
use pathloom_testnet::{Frame, Timing};
use std::net::Ipv4Addr;

/// A fabric whose hosts are known to the controller.
fn standing(seed: u64) -> Lab {
    let mut lab = Lab::with(K4, QUIET, "", Timing::SLOW, seed);
    (0..lab.hosts.len()).for_each(|host| lab.announce(host));
    lab.run_for(s(5));
    lab
}

/// Number of ARP frames with this sender that a host has received.
fn heard(lab: &Lab, host: usize, sender: usize) -> usize {
    let from = lab.hosts[sender].address;
    let read = |frame: &Frame| Arp::parse(&frame.to_bytes()).ok();
    lab.hosts[host].received.iter().filter_map(read).filter(|arp| arp.sender_ip == from).count()
}

fn ask(lab: &mut Lab, from: usize, target: usize, to: Mac) {
    let (host, target) = (lab.hosts[from].clone(), lab.hosts[target].address);
    lab.send_bytes(host.end, &Arp::request(host.mac, host.address, target, to).emit());
}

/// A host looks for another one as Linux does: if it knows a hardware address, three requests to that address, and then
/// three broadcasts, a second apart (`ucast_solicit` and `mcast_solicit` in arp(7)). Packets for the other one wait until
/// then. Returns whether it was answered.
fn finds(lab: &mut Lab, from: usize, target: usize, knows: bool) -> bool {
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
            // One request to a known address, and one broadcast.
            assert_eq!(heard(&lab, host, from) - before[host], 2, "host {host} in minute {minute}");
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
fn messages_of_dhcp_reach_every_host_once_without_a_controller() {
    let mut lab = standing(3);
    lab.kill_controller();
    lab.run_for(s(10));
    let message = |src: Ipv4Addr, dst: Ipv4Addr, ports: (u16, u16)| {
        let five_tuple = FiveTuple { src, dst, proto: PROTO_UDP, src_port: ports.0, dst_port: ports.1 };
        Frame::bytes_of(Headers::plain(five_tuple))
    };
    let (client, server) = (lab.hosts[3].clone(), lab.hosts[12].clone());
    let request = message(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, (68, 67));
    let reply = message(server.address, Ipv4Addr::BROADCAST, (67, 68));
    for (from, bytes) in [(client.end, request), (server.end, reply)] {
        lab.hosts.iter_mut().for_each(|host| host.received.clear());
        lab.send_bytes(from, &bytes);
        lab.run_for(s(1));
        let counts: Vec<usize> = lab.hosts.iter().map(|host| host.received.len()).collect();
        let wanted: Vec<usize> = lab.hosts.iter().map(|host| usize::from(host.end != from)).collect();
        assert_eq!(counts, wanted);
    }
}
