//! Random schedules of faults, and some chosen ones.

use crate::hosts::{Wrong, HOSTS};
use crate::scene::{draw, ms, Fault, Scene, MEMBERS, SWITCHES, TTL_S};
use pathloom_cluster::{Position, Settings};
use pathloom_model::Nanos;
use pathloom_testnet::Faults;

/// By how much clocks may run apart in random schedules, in thousandths. Members allow for more.
const CLOCKS_PERMILLE: i64 = 80;

fn scene(seed: u64) -> Scene {
    Scene::new(seed, |settings| settings, Faults::default())
}

/// A scene in which a member leads. Returns it with the member's number.
fn led(seed: u64) -> (Scene, usize) {
    let mut scene = scene(seed);
    scene.run_for(ms(1000));
    assert!(scene.is_led(), "nobody leads after 1 s");
    let leader = scene.leader().unwrap();
    (scene, leader)
}

/// Whether a member knows who leads.
fn knows_leader(scene: &Scene, member: usize) -> bool {
    match scene.world.member(member).unwrap().position().0 {
        Position::Lead { .. } => Some(member) == scene.leader(),
        Position::Follow { leader: Some(leader) } => scene.leader().is_some_and(|one| leader.name == format!("c{one}")),
        _ => false,
    }
}

/// Runs a schedule. Returns what has gone wrong.
fn violations(mut scene: Scene, faults: Vec<(Nanos, Fault)>) -> Vec<String> {
    for &(at, fault) in &faults {
        scene.run_for(at.saturating_sub(scene.now()));
        scene.apply(fault);
    }
    scene.heal();
    let healed = scene.now();
    let most = Nanos::from_secs(TTL_S + 2);
    while !scene.is_led() {
        if scene.now() > healed + most {
            scene.violations.push(format!("nobody leads {most:?} after the last repair"));
            break;
        }
        scene.run_for(ms(20));
    }
    // Members agree on who leads.
    scene.run_for(Nanos::from_secs(1));
    if scene.violations.is_empty() {
        let unaware = (0..MEMBERS).filter(|&member| !knows_leader(&scene, member));
        scene.violations = unaware.map(|member| format!("member {member} does not know who leads")).collect();
    }
    scene.violations
}

fn run(seed: u64, settings: impl Fn(Settings) -> Settings, faults: Faults, clocks_permille: i64) -> Vec<String> {
    let drawn = draw(seed, 1 + (seed % 8) as usize, Nanos::from_secs(12), clocks_permille);
    violations(Scene::new(seed, settings, faults), drawn)
}

#[test]
fn one_member_leads_and_no_switch_accepts_a_deposed_one() {
    for seed in 0..1000 {
        let found = run(seed, |settings| settings, Faults::default(), CLOCKS_PERMILLE);
        assert_eq!(found, [""; 0], "seed {seed}");
    }
}

#[test]
fn switches_that_ignore_elections_accept_deposed_leaders() {
    let faults = Faults { ignores_elections: true, ..Faults::default() };
    let found = (0..500).flat_map(|seed| run(seed, |settings| settings, faults.clone(), CLOCKS_PERMILLE));
    assert!(found.filter(|what| what.contains("accepts")).count() > 0, "the check finds nothing");
}

#[test]
fn agents_that_ignore_elections_obey_deposed_leaders() {
    let found = (0..500).flat_map(|seed| {
        let mut scene = scene(seed);
        scene.hosts.wrong = Wrong::IgnoresElections;
        violations(scene, draw(seed, 1 + (seed % 8) as usize, Nanos::from_secs(12), CLOCKS_PERMILLE))
    });
    assert!(found.filter(|what| what.contains("obeys")).count() > 0, "the check finds nothing");
}

/// The leader is cut off from etcd and the switches, so it does not learn that another one leads. Then the agents start
/// anew. Returns what has gone wrong.
fn agents_start_under_two_leaders(seed: u64, wrong: Wrong) -> Vec<String> {
    let (mut scene, leader) = led(seed);
    scene.hosts.wrong = wrong;
    scene.apply(Fault::Etcd(leader, false));
    (0..SWITCHES).for_each(|switch| scene.apply(Fault::Switch(leader, switch, false)));
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    let old = scene.world.member(leader).unwrap().position().0.clone();
    assert!(matches!(old, Position::Unconfirmed { .. }) && scene.leader().is_some(), "seed {seed}: {old:?}");
    (0..HOSTS).for_each(|host| scene.apply(Fault::AgentStarts(host)));
    scene.run_for(Nanos::from_secs(1));
    scene.violations
}

#[test]
fn an_agent_that_starts_anew_must_know_the_newest_election() {
    for seed in 0..20 {
        assert_eq!(agents_start_under_two_leaders(seed, Wrong::Nothing), [""; 0], "seed {seed}");
    }
    let found = (0..20).flat_map(|seed| agents_start_under_two_leaders(seed, Wrong::ForgetsElections));
    assert!(found.filter(|what| what.contains("obeys")).count() > 0, "the check finds nothing");
}

#[test]
fn agents_obey_the_next_leader_and_say_so_to_the_old_one() {
    let (mut scene, leader) = led(7);
    scene.apply(Fault::Pause(leader, true));
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    let next = scene.leader().unwrap();
    let token = scene.world.member(next).unwrap().position().0.token().unwrap().0;
    assert_eq!(scene.hosts.newest, [token; 2]);
    // An order of the old leader that was on its way.
    scene.hosts.order(scene.now(), leader, 1);
    scene.run_for(ms(100));
    for agent in &mut scene.hosts.agents {
        assert_eq!(agent.counts().stale, 2, "its welcome and its order");
        let stale = format!(r#"{{"stale":{{"newest":{token}}}}}"#);
        assert_eq!(std::iter::from_fn(|| agent.poll_line()).last().unwrap().1, stale);
    }
    assert_eq!(scene.violations, [""; 0]);
}

/// The clock of the leader runs slower, and then it is cut off from etcd. Returns what has gone wrong.
fn cut_off_with_a_slow_clock(seed: u64, slower_permille: i64, settings: impl Fn(Settings) -> Settings) -> Vec<String> {
    let mut scene = Scene::new(seed, settings, Faults::default());
    scene.run_for(ms(1000));
    let leader = scene.leader().unwrap();
    scene.apply(Fault::Speed(leader, -slower_permille));
    scene.run_for(ms(1000));
    scene.apply(Fault::Etcd(leader, false));
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    assert_ne!(scene.leader(), Some(leader), "seed {seed}");
    scene.violations
}

#[test]
fn two_members_lead_when_clocks_run_further_apart_than_allowed() {
    let trusting = |settings: Settings| Settings { drift_permille: 0, ..settings };
    for seed in 0..20 {
        assert_eq!(cut_off_with_a_slow_clock(seed, CLOCKS_PERMILLE, |settings| settings), [""; 0], "seed {seed}");
        let found = cut_off_with_a_slow_clock(seed, 300, trusting);
        assert!(found.iter().any(|what| what.ends_with("lead")), "seed {seed}: the check finds nothing");
        // Switches need no clocks.
        assert!(!found.iter().any(|what| what.contains("accepts")), "seed {seed}: {found:?}");
    }
}

#[test]
fn the_next_leads_after_the_lease_and_at_once_after_a_stop() {
    for seed in 0..20 {
        let (mut scene, leader) = led(seed);
        scene.apply(Fault::Kill(leader));
        scene.run_for(Nanos::from_secs(TTL_S + 1));
        assert!(scene.is_led(), "seed {seed}");
        let next = scene.leader().unwrap();
        assert_ne!(next, leader);
        scene.apply(Fault::Stop(next));
        scene.run_for(ms(300));
        assert!(scene.is_led(), "seed {seed}");
        assert_ne!(scene.leader(), Some(next));
        assert_eq!(scene.violations, [""; 0]);
    }
}

#[test]
fn a_leader_without_etcd_goes_on_and_nobody_takes_over() {
    let (mut scene, leader) = led(1);
    let token = scene.world.member(leader).unwrap().position().0.token().unwrap();
    scene.apply(Fault::EtcdAnswers(false));
    scene.run_for(Nanos::from_secs(TTL_S));
    let before = scene.accepted[&(0, token.0)];
    scene.run_for(Nanos::from_secs(600));
    assert_eq!(scene.leader(), None, "nobody is confirmed");
    assert_eq!(*scene.world.member(leader).unwrap().position().0, Position::Unconfirmed { token });
    assert!(scene.accepted[&(0, token.0)] > before + 10_000, "switches still accept its rules");
    for member in (0..MEMBERS).filter(|&member| member != leader) {
        assert_eq!(scene.world.member(member).unwrap().position().0.token(), None);
    }
    // Its lease is over. A member gets a new one, and the switches accept one leader.
    scene.apply(Fault::EtcdAnswers(true));
    scene.run_for(Nanos::from_secs(2));
    assert!(scene.is_led());
    assert_eq!(scene.violations, [""; 0]);
}

#[test]
fn a_leader_that_stood_still_follows_when_it_goes_on() {
    let (mut scene, leader) = led(2);
    scene.apply(Fault::Pause(leader, true));
    scene.run_for(Nanos::from_secs(5));
    let next = scene.leader().unwrap();
    assert_ne!(next, leader);
    scene.apply(Fault::Pause(leader, false));
    assert!(!scene.world.leads(leader));
    scene.run_for(ms(500));
    assert!(matches!(scene.world.member(leader).unwrap().position().0, Position::Follow { leader: Some(_) }));
    assert_eq!((scene.leader(), scene.violations), (Some(next), vec![]));
}

#[test]
fn a_leader_cut_off_from_etcd_is_replaced_and_refused() {
    let (mut scene, leader) = led(3);
    scene.apply(Fault::Etcd(leader, false));
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    let next = scene.leader().unwrap();
    assert_ne!(next, leader);
    // It learns that from the switches.
    assert_eq!(*scene.world.member(leader).unwrap().position().0, Position::Follow { leader: None });
    assert!(scene.switches.iter().any(|switch| switch.roles.slave_refusals > 0));
    assert_eq!(scene.violations, [""; 0]);
}

#[test]
fn a_switch_that_refuses_a_confirmed_leader_does_not_depose_it() {
    let (mut scene, leader) = led(4);
    scene.world.give(leader, pathloom_cluster::Input::RefusedBySwitch);
    scene.run_for(Nanos::from_secs(1));
    assert_eq!(scene.leader(), Some(leader));
}
