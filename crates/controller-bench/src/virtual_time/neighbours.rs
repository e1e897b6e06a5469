//! ARP between known hosts: switches forward it, whatever happens to the controller.

use super::alone::{ask, finds, heard, standing};
use super::lab::{ms, s, Lab, QUIET};
use pathloom_discovery::arp::Arp;
use pathloom_model::Mac;
use pathloom_openflow::flow_match::{FlowMatch, ETH_ARP};
use pathloom_openflow::{FlowCommand, FlowMod, FlowStatsRequest, Message, TABLE_ALL};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// A host refreshes what it knows of another one by one frame to its hardware address. Returns whether the other one
/// answers, and no host of another switch hears of it.
fn refreshes(lab: &mut Lab, from: usize, to: usize) -> bool {
    let before: Vec<usize> = (0..16).map(|host| heard(lab, host, from)).collect();
    let answers = heard(lab, from, to);
    let known = lab.hosts[to].mac;
    ask(lab, from, to, known);
    lab.run_for(ms(100));
    let is_asked = |host: usize| heard(lab, host, from) > before[host];
    heard(lab, from, to) > answers && (0..16).all(|host| is_asked(host) == (host == to) || host / 2 == from / 2)
}

/// Rules for ARP at all switches: those for known hosts, and those beside default routes.
fn rules(lab: &Lab) -> (usize, usize) {
    let arp = FlowMatch { eth_type: Some(ETH_ARP), ..FlowMatch::default() };
    let request = FlowStatsRequest { matches: arp, ..FlowStatsRequest::ALL };
    let rows: Vec<_> = lab.devices.values().flat_map(|device| device.tables.rows(&request)).collect();
    let known = rows.iter().filter(|row| row.matches.arp_sha.is_some()).count();
    let is_route = |row: &&pathloom_openflow::FlowStats| row.table == 2 && row.priority > 1;
    (known, rows.iter().filter(is_route).count())
}

fn default_routes(lab: &mut Lab) -> usize {
    let switches = lab.fabric.switches().to_vec();
    let controller = lab.machine().hub.controller().unwrap();
    switches.iter().map(|&switch| controller.default_routes(switch).count()).sum()
}

#[test]
fn known_hosts_refresh_each_other_by_rules_at_every_moment_of_a_crash() {
    let mut lab = standing(1);
    let routes = default_routes(&mut lab);
    assert_eq!(rules(&lab), (16, routes));
    for step in 0..24 {
        let (from, to) = (step % 16, (step + 3) % 16);
        assert!(refreshes(&mut lab, from, to), "step {step}, with a controller");
        let snapshot = lab.kill_controller();
        // Punts end 3 s after their last renewal. Later, the first switch sends frames along the trees.
        for wait in 0..step / 4 {
            assert!(refreshes(&mut lab, from, to), "step {step}, {wait} s after the controller stopped");
            lab.run_for(ms(900));
        }
        lab.run_for(ms(40 * step as u64));
        lab.start_controller(QUIET, (step % 3 > 0).then_some(snapshot));
        for wait in 0..4 {
            // A controller without a snapshot knows the sender only after its first frame.
            lab.run_for(ms(20 * wait));
            assert!(finds(&mut lab, from, to, true), "step {step}, turn {wait} after a controller started");
        }
        (0..16).for_each(|host| lab.announce(host));
        lab.run_for(s(5));
        assert_eq!((lab.sessions(), rules(&lab)), (20, (16, routes)), "step {step}");
    }
    assert_eq!(lab.logged(&["were missing and are restored"]), [""; 0]);
    assert_eq!(lab.frames.lost, 0, "no frame loops");
}

/// Controllers stop and start, sessions break, hosts move, get other hardware addresses and forget each other, in random order.
#[test]
fn hosts_find_each_other_after_every_random_schedule() {
    for seed in 0..8 {
        let mut chance = Pcg64::seed_from_u64(seed);
        let mut lab = standing(seed);
        let mut free = lab.other_end(lab.hosts[15].end).unwrap();
        let (mut snapshot, mut stopped) = (None, false);
        for step in 0..30 {
            let host = chance.random_range(0..15usize);
            match chance.random_range(0..6u8) {
                0 if !stopped => {
                    (snapshot, stopped) = (Some(lab.kill_controller()), true);
                }
                0 | 1 if stopped => {
                    lab.start_controller(QUIET, snapshot.take().filter(|_| chance.random()));
                    stopped = false;
                }
                2 => {
                    let old = lab.other_end(lab.hosts[host].end).unwrap();
                    lab.replug(host, free);
                    free = old;
                    lab.announce(host);
                }
                3 => {
                    lab.hosts[host].mac = Mac([2, 1, seed as u8, step, 0, host as u8]);
                    lab.announce(host);
                }
                4 if !stopped => {
                    let tor = lab.fabric.tors()[host / 2];
                    lab.break_session(tor);
                }
                _ => drop(finds(&mut lab, host, (host + 4) % 15, chance.random())),
            }
            lab.run_for(ms(chance.random_range(0..4000)));
        }
        if stopped {
            lab.start_controller(QUIET, snapshot);
        }
        // An address that is not at its configured port is accepted when its host is heard again a second later.
        for _ in 0..3 {
            lab.run_for(s(3));
            (0..15).for_each(|host| lab.announce(host));
        }
        lab.run_for(s(3));
        for host in 0..15 {
            let to = (host + 1 + chance.random_range(0..14usize)) % 15;
            assert!(finds(&mut lab, host, to, false), "seed {seed}: {host} finds {to}");
            assert!(refreshes(&mut lab, host, to), "seed {seed}: {host} refreshes {to}");
        }
        assert_eq!(rules(&lab).0, 15, "seed {seed}: one rule for each host, at its port");
        assert_eq!(lab.frames.looped, 0, "seed {seed}");
    }
}

#[test]
fn a_host_that_came_home_while_no_controller_ran_is_reached_again() {
    for with_snapshot in [true, false] {
        let mut lab = standing(4);
        let home = lab.other_end(lab.hosts[3].end).unwrap();
        let away = lab.other_end(lab.hosts[15].end).unwrap();
        lab.replug(3, away);
        for _ in 0..3 {
            lab.announce(3);
            lab.run_for(s(2));
        }
        let packet = lab.packet(0, 3, 1000);
        assert!(lab.reaches(packet), "{:?}", lab.fates(packet));
        let snapshot = lab.kill_controller();
        lab.replug(3, home);
        lab.announce(3);
        lab.run_for(s(10));
        lab.start_controller(QUIET, Some(snapshot).filter(|_| with_snapshot));
        lab.run_for(s(5));
        [0, 3].into_iter().for_each(|host| lab.announce(host));
        lab.run_for(s(30));
        assert!(lab.reaches(packet), "with a snapshot: {with_snapshot}; {:?}", lab.fates(packet));
        assert!(refreshes(&mut lab, 0, 3) && refreshes(&mut lab, 3, 0));
    }
}

#[test]
fn a_frame_under_the_address_of_another_host_goes_to_the_controller_only() {
    let mut lab = standing(2);
    let (liar, victim, target) = (lab.hosts[1].clone(), lab.hosts[15].clone(), lab.hosts[6].clone());
    let before = heard(&lab, 6, 15);
    for mac in [liar.mac, victim.mac] {
        lab.send_bytes(
            liar.end,
            &Arp::request(mac, victim.address.v4().unwrap(), target.address.v4().unwrap(), target.mac).emit(),
        );
        lab.run_for(s(2));
    }
    assert_eq!(heard(&lab, 6, 15), before, "the target does not hear the lie");
    assert!(!lab.logged(&[&format!("claims {}", victim.address)]).is_empty());
}

#[test]
fn rules_for_arp_that_somebody_deletes_or_leaves_are_corrected_by_a_review() {
    let mut lab = standing(3);
    let before = rules(&lab);
    let tor = lab.node("e0_0");
    // A rule for a host that is not there.
    let request = FlowStatsRequest { cookie: 0xb0_0201 << 40, cookie_mask: u64::MAX << 40, ..FlowStatsRequest::ALL };
    let rows = lab.devices[&tor].tables.rows(&request);
    assert_eq!(rows.len(), 2);
    let row = rows[0].clone();
    let matches = FlowMatch { arp_spa: Some([10, 9, 9, 9].into()), ..row.matches };
    let cookie = row.cookie & u64::MAX << 32 | 0x0a09_0909;
    let stale = FlowMod { table: row.table, priority: row.priority, cookie, matches, ..FlowMod::NOTHING };
    lab.meddle(tor, &Message::FlowMod(stale));
    assert_eq!(rules(&lab), (before.0 + 1, before.1));
    lab.run_for(s(120));
    assert_eq!(rules(&lab), before);
    // All rules for ARP of a switch.
    let matches = FlowMatch { eth_type: Some(ETH_ARP), ..FlowMatch::default() };
    let delete = FlowMod { command: FlowCommand::Delete, table: TABLE_ALL, matches, ..FlowMod::NOTHING };
    lab.meddle(tor, &Message::FlowMod(delete));
    assert!(rules(&lab) < before);
    lab.run_for(s(5));
    assert_eq!(rules(&lab), before);
}
