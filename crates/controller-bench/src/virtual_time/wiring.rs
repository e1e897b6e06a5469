//! Cables, probes and hosts.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_model::Mac;
use pathloom_testnet::{End, Timing};

const CONFIRMED: &str = "every cable is as configured";

fn standing(more: &str, seed: u64) -> Lab {
    let mut lab = Lab::with(K4, QUIET, more, Timing::SLOW, seed);
    lab.run_for(s(15));
    assert_eq!(lab.logged(&[CONFIRMED]).len(), 1);
    lab
}

fn end(lab: &Lab, name: &str, port: u32) -> End {
    End { node: lab.node(name), port }
}

#[test]
fn a_cable_that_fails_in_one_direction_is_avoided_and_used_again() {
    for seed in 0..3 {
        let mut lab = standing("", seed);
        lab.begin_flows(8);
        let link = lab.paths()[0][1];
        let from = lab.ends(link)[0];
        let begun = lab.now();
        lab.set_mute(from, true);
        let most = s(12);
        while lab.logged(&["no probe gets through a cable"]).is_empty() {
            assert!(lab.now() - begun < most);
            lab.traffic(ms(20));
        }
        // The longest time is the interval of 5 s plus 4 s.
        let took = lab.now() - begun;
        assert!(took > s(3) && took < ms(9100), "{took:?}");
        lab.traffic(s(1));
        lab.await_paths();
        assert!(!lab.paths()[0].contains(&link));
        let moved = lab.now();
        lab.traffic(s(1));
        lab.set_mute(from, false);
        while lab.logged(&["probes get through a cable again"]).is_empty() {
            assert!(lab.now() - moved < s(30));
            lab.traffic(ms(20));
        }
        lab.traffic(s(2));
        lab.run_for(ms(200));
        assert!(lab.delivery_errors().iter().all(|report| report.sent < moved), "seed {seed}");
    }
}

#[test]
fn swapped_uplinks_are_used_and_named() {
    for seed in 0..3 {
        let mut lab = standing("", seed);
        lab.begin_flows(8);
        let (one, two) = (end(&lab, "e0_0", 3), end(&lab, "e0_0", 4));
        for swapped in [true, false] {
            let seen = lab.logged(&["WARN", "it is used as that of"]).len();
            lab.swap(one, two);
            lab.traffic(s(3));
            lab.await_paths();
            let calm = lab.now();
            lab.traffic(s(2));
            lab.run_for(ms(200));
            let adopted = lab.machine().hub.adopted_ends();
            assert_eq!(adopted, if swapped { 2 } else { 0 });
            assert_eq!(lab.logged(&["WARN", "it is used as that of"]).len() - seen, adopted);
            assert!(lab.delivery_errors().iter().all(|report| report.sent < calm), "seed {seed}");
        }
    }
}

#[test]
fn cables_of_two_pods_that_are_exchanged_are_named_and_not_used() {
    let mut lab = standing("", 1);
    let (one, two) = (end(&lab, "e0_0", 3), end(&lab, "e1_0", 3));
    lab.swap(one, two);
    lab.run_for(s(10));
    assert_eq!(lab.logged(&["it belongs to"]).len(), 4);
    assert_eq!(lab.logged(&["it is not used"]).len(), 2);
    for to in 1..16 {
        let headers = lab.packet(0, to, 1000);
        assert!(lab.reaches(headers), "{to}: {:?}", lab.fates(headers));
    }
}

#[test]
fn forged_probes_of_a_host_make_no_link_and_are_named() {
    let mut lab = standing("", 1);
    lab.begin_flows(4);
    // A probe that another start of the controller might have sent, with a wrong signature.
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0x15, 1, 0x88, 0xcc];
    let text =
        |kind: u16, value: &[u8]| [&((kind << 9) | (value.len() as u16 + 1)).to_be_bytes()[..], &[7], value].concat();
    frame.extend(text(1, b"0000000000000002"));
    frame.extend(text(2, b"1"));
    frame.extend([6, 2, 0, 4]);
    let mut own = vec![0x52, 0x4c, 0x4d, 1, 1];
    own.extend([0; 8]);
    own.extend(lab.now().0.to_be_bytes());
    own.extend([0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]);
    own.extend([0; 16]);
    frame.extend(((127u16 << 9) | own.len() as u16).to_be_bytes());
    frame.extend(own);
    frame.extend([0, 0]);
    let from = lab.hosts[0].end;
    let before = lab.logged(&["WARN"]).len();
    for _ in 0..1000 {
        lab.send_bytes(from, &frame);
        lab.traffic(ms(3));
    }
    assert!(!lab.logged(&["claims to be a probe", "port 1"]).is_empty());
    assert!(!lab.logged(&["sends more LLDP than a port is allowed to"]).is_empty());
    assert_eq!(lab.logged(&["cabling:"]).len(), 1, "that every cable is as configured");
    assert!(lab.logged(&["WARN"]).len() - before < 10);
    lab.nothing_is_lost();
}

/// The addresses that a host was told by ARP, with the hardware address.
fn heard(lab: &Lab, host: usize) -> Vec<(std::net::Ipv4Addr, Mac)> {
    let arp = |frame: &pathloom_testnet::Frame| {
        let arp = pathloom_discovery::arp::Arp::parse(&frame.to_bytes()).ok()?;
        Some((arp.sender_ip, Mac(arp.sender_mac.0)))
    };
    lab.hosts[host].received.iter().filter_map(arp).collect()
}

#[test]
fn hosts_are_answered_for_and_a_false_claim_is_ignored_and_named() {
    let mut lab = standing("discovery = { hosts = \"learn\", addresses = \"fabric\" }\n", 1);
    let victim = lab.hosts[15].clone();
    lab.announce(15);
    lab.run_for(s(2));
    // Another host claims the address.
    let liar = pathloom_testnet::Host { address: victim.address, ..lab.hosts[1].clone() };
    let lie = liar.request(lab.hosts[6].address).to_bytes();
    for _ in 0..50 {
        lab.send_bytes(liar.end, &lie);
        lab.run_for(ms(10));
    }
    assert!(!lab.logged(&[&format!("claims {}", victim.address)]).is_empty());
    let request = lab.hosts[6].request(victim.address).to_bytes();
    let from = lab.hosts[6].end;
    lab.send_bytes(from, &request);
    lab.run_for(s(1));
    let told = heard(&lab, 6);
    assert!(
        told.contains(&(victim.address.v4().unwrap(), victim.mac)) && told.iter().all(|&(_, mac)| mac != liar.mac),
        "{told:?}"
    );
}

#[test]
fn an_address_moves_with_its_host_and_its_flows_follow() {
    let mut lab = standing("discovery = { hosts = \"learn\" }\n", 1);
    for host in [0, 9] {
        lab.announce(host);
    }
    lab.run_for(s(2));
    let flow = lab.packet(0, 9, 4000);
    lab.flows = vec![flow];
    lab.await_paths();
    // The host of the address takes the port of host 15, which leaves.
    let to = lab.other_end(lab.hosts[15].end).unwrap();
    lab.replug(9, to);
    lab.announce(9);
    let moved = lab.now();
    lab.traffic(s(5));
    lab.await_paths();
    let calm = lab.now();
    lab.traffic(s(1));
    lab.run_for(ms(200));
    let tor = to.node;
    let last = *lab.paths()[0].last().unwrap();
    assert_eq!(lab.fabric.link(last).to, tor, "the path leads to where the address is now");
    assert!(lab.delivery_errors().iter().all(|report| report.sent < calm));
    assert!(calm - moved < s(8));
    // A controller without memory gives it the same place again: the host need not announce itself.
    let snapshot = lab.kill_controller();
    lab.start_controller(QUIET, Some(snapshot));
    let from = lab.now();
    lab.traffic(s(5));
    lab.run_for(ms(200));
    let lost = lab.delivery_errors().iter().filter(|report| report.sent >= from).count();
    assert_eq!(lost, 0);
}
