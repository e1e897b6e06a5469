//! Sessions of switches: the handshake and its interruptions, silence, and the same seed.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_control::Input;
use pathloom_model::PortNo;
use pathloom_openflow::frame;
use pathloom_testnet::Timing;

#[test]
fn all_hosts_reach_each_other_once_the_sessions_are_up() {
    for (timing, seed) in [(Timing::PROMPT, 1), (Timing::SLOW, 1), (Timing::SLOW, 2)] {
        let mut lab = Lab::with(K4, "ecmp", "", timing, seed);
        let hosts = lab.hosts.len();
        for from in 0..hosts {
            for to in (0..hosts).filter(|&to| to != from) {
                let headers = lab.packet(from, to, 1000);
                assert!(lab.reaches(headers), "{from} to {to}: {:?}", lab.fates(headers));
                lab.send(headers);
            }
        }
        lab.nothing_is_lost();
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let digest = |seed| {
        let mut lab = Lab::k4(QUIET, seed);
        lab.begin_flows(4);
        lab.traffic(s(1));
        lab.digest()
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

/// A port whose cable fails while the session is being set up. At every moment of the handshake, the controller knows
/// the state of the port in the end.
#[test]
fn a_port_that_changes_during_the_handshake_has_its_last_state() {
    for step in 0..60 {
        let mut lab = Lab::bare(K4, QUIET, "", Timing::SLOW, step);
        let (tor, spine) = (lab.node("e0_0"), lab.node("a0_0"));
        let link = lab.fabric.link_between(tor, spine).unwrap();
        lab.connect_all();
        lab.run_for(ms(6 * step));
        lab.set_cable(link, false);
        // Every third cable comes back.
        let comes_back = step % 3 == 0;
        if comes_back {
            lab.run_for(ms(1 + step % 7));
            lab.set_cable(link, true);
        }
        lab.run_for(s(5));
        let controller = lab.machine().hub.controller().unwrap();
        assert_eq!(controller.view().links.is_up(link), comes_back, "after {} ms", 6 * step);
        let port = lab.fabric.link(link).from_port;
        assert!(comes_back || !lab.routes_over(tor, port), "no rule leads to the dead cable");
        let headers = lab.packet(0, 8, 1000);
        assert!(lab.reaches(headers));
    }
}

/// A port changes while the switch describes its ports in parts, or just before or after that.
#[test]
fn a_port_that_changes_between_two_parts_of_the_description_has_its_last_state() {
    // The number of messages of the handshake before the status: hello, features,
    // the description of the switch, and two parts with two ports each.
    for moment in 1..=6 {
        let mut lab = Lab::with(K4, QUIET, "", Timing::PROMPT, 1);
        lab.redials = false;
        let tor = lab.node("e0_0");
        lab.break_session(tor);
        let mut double = lab.devices[&tor].clone();
        double.faults.rows_in_part = 2;
        let peer = lab.open("192.0.2.200:1").unwrap();
        // Each message is sent when the earlier ones have been answered.
        let (mut said, mut waiting) = (0, vec![double.hello()]);
        while said < 40 && !(waiting.is_empty() && said > moment) {
            if said == moment {
                let status = double.set_port(3, false);
                lab.say(peer, &status);
                // The description was made before.
                double.set_port(3, true);
            }
            if !waiting.is_empty() {
                let message = waiting.remove(0);
                lab.say(peer, &message);
            }
            said += 1;
            lab.run_for(ms(5));
            let heard = std::mem::take(&mut lab.peer(peer).heard);
            let now = lab.now();
            let (mut rest, mut out) = (&heard[..], Vec::new());
            while let Ok(Some((header, body, length))) = frame(rest) {
                double.handle(now, 0, (header, body), &mut out);
                rest = &rest[length..];
            }
            let mut rest = &out[..];
            while let Ok(Some((_, _, length))) = frame(rest) {
                waiting.push(rest[..length].to_vec());
                rest = &rest[length..];
            }
        }
        lab.run_for(s(1));
        assert_eq!(lab.sessions(), 20, "moment {moment}");
        let link = lab.fabric.out_link(tor, PortNo(3)).unwrap();
        let up = lab.machine().hub.controller().unwrap().view().links.is_up(link);
        // A description that begins after the status has the later state.
        assert_eq!(up, moment <= 1, "moment {moment}");
    }
}

#[test]
fn a_silent_switch_loses_its_session_after_the_echo_timeout_and_gets_it_again() {
    let mut lab =
        Lab::with(K4, QUIET, "[sessions]\necho_interval = \"2s\"\necho_timeout = \"6s\"\n", Timing::PROMPT, 1);
    let core = lab.node("c0");
    let silent_since = lab.now();
    // It reads and carries out everything, and never answers.
    lab.redials = false;
    let peer = lab.session(core).unwrap();
    lab.peer(peer).silent = true;
    let waited = lab.run_while(s(60), |lab| lab.is_open(peer));
    assert!(waited, "its session stays");
    let took = lab.now() - silent_since;
    assert!(took > s(4) && took < s(7), "{took:?}");
    assert_eq!(lab.logged(&["it was silent for longer than sessions.echo_timeout"]).len(), 1);
    lab.connect(core);
    lab.run_for(s(2));
    lab.goes_on(1000, 20);
}

#[test]
fn a_connection_that_does_not_finish_its_handshake_is_closed_in_time() {
    let mut lab = Lab::with(K4, QUIET, "[sessions]\nhandshake_timeout = \"5s\"\n", Timing::PROMPT, 1);
    let begun = lab.now();
    let peer = lab.open("192.0.2.200:1").unwrap();
    assert!(lab.run_while(s(60), |lab| lab.is_open(peer)));
    let took = lab.now() - begun;
    assert!(took >= s(5) && took < ms(5600), "{took:?}");
    lab.goes_on(1000, 20);
}

/// Sessions break at any moment, also in the handshake; no packet is lost, and the rules are the same in the end.
#[test]
fn sessions_that_break_at_any_moment_cost_no_packet() {
    for seed in 0..6 {
        let mut lab = Lab::k4(QUIET, seed);
        lab.begin_flows(8);
        lab.traffic(s(3));
        let before = lab.state();
        let nodes: Vec<_> = lab.devices.keys().copied().collect();
        for turn in 0..40usize {
            lab.break_session(nodes[(turn * 7 + seed as usize) % nodes.len()]);
            lab.traffic(ms(3 + 37 * (turn as u64 % 5)));
        }
        lab.traffic(s(10));
        lab.nothing_is_lost();
        assert_eq!(lab.sessions(), 20);
        assert_eq!(lab.changed_since(&before), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_session_is_reconciled_after_an_interruption() {
    for seed in 0..5 {
        let mut lab = Lab::k4(QUIET, seed);
        lab.begin_flows(8);
        lab.traffic(s(1));
        let paths = lab.paths();
        let away = lab.fabric.link(paths[0][1]).to;
        let elsewhere = paths[0][paths[0].len() - 2];
        let elsewhere = if lab.fabric.link(elsewhere).from == away { paths[0][0] } else { elsewhere };
        lab.redials = false;
        lab.break_session(away);
        // While the switch has no session, flows leave a cable elsewhere, and their rules in it become useless.
        lab.set_cable(elsewhere, false);
        lab.traffic(s(3));
        lab.set_cable(elsewhere, true);
        lab.redials = true;
        lab.connect(away);
        lab.traffic(s(10));
        lab.await_paths();
        let from = lab.packets.len();
        lab.traffic(s(1));
        lab.run_for(ms(200));
        let calm = lab.now() - s(1);
        assert!(lab.delivery_errors().iter().all(|report| report.sent < calm), "seed {seed}");
        assert!(lab.packets.len() > from);
        for (index, &switch) in lab.fabric.clone().switches().iter().enumerate() {
            let counted = lab.machine().hub.controller().unwrap().rules_at(switch) as usize;
            let found = lab.devices[&switch].tables.rules().iter().filter(|rule| rule.cookie >> 60 == 0xa).count();
            assert_eq!(counted, found, "switch {index}, seed {seed}");
        }
    }
}

#[test]
fn barriers_that_are_slow_hold_back_paths_and_lose_nothing() {
    let mut lab = Lab::with(K4, QUIET, "", Timing { work: (ms(0), ms(60)), ..Timing::SLOW }, 3);
    lab.begin_flows(8);
    lab.traffic(s(2));
    lab.nothing_is_lost();
}

#[test]
fn a_flow_stays_on_the_default_routes_if_a_switch_never_answers_barriers() {
    let mut lab = Lab::k4(QUIET, 1);
    let silent = lab.node("e0_0");
    lab.devices.get_mut(&silent).unwrap().faults.ignores_barriers = true;
    let flow = lab.packet(0, 8, 1000);
    lab.flows = vec![flow];
    lab.traffic(s(5));
    assert!(!lab.are_on_paths(), "no rule of its path is confirmed");
    lab.nothing_is_lost();
    lab.goes_on(2000, 20);
}

#[test]
fn an_input_during_the_handshake_is_not_forgotten() {
    // A switch is taken out of service before it has a session.
    let mut lab = Lab::bare(K4, QUIET, "", Timing::SLOW, 4);
    let core = lab.node("c0");
    lab.give(Input::Drain { target: pathloom_control::Target::Switch(core), out: true });
    lab.connect_all();
    lab.run_for(s(5));
    let into = lab.fabric.links().iter().filter(|link| link.to == core);
    let uses: Vec<(pathloom_model::NodeId, PortNo)> = into.map(|link| (link.from, link.from_port)).collect();
    for (node, port) in uses {
        assert!(!lab.routes_over(node, port), "{node:?}");
    }
}
