//! Members of versions that know different formats of the keys in etcd.

use crate::scene::{ms, Fault, Scene, MEMBERS, TTL_S};
use pathloom_cluster::etcd::{Body, KeyValue, Keys, Operation, Request, Transaction};
use pathloom_cluster::format::{newest_for_all, of_key, say, FIRST, GONE_AFTER};
use pathloom_cluster::model::World;
use pathloom_cluster::{Position, Token};
use pathloom_model::Nanos;
use pathloom_testnet::Faults;

/// Time between two cards of a member, in which it says which format it knows.
pub const CARDS_EVERY: Nanos = Nanos::from_secs(2);
/// The newest format of any version.
pub const NEWEST: u32 = 2;
const CARDS: &str = "/pathloom/members/";

/// Which format each member knows.
pub struct Versions {
    known: [u32; MEMBERS],
    /// Whether members lead without regard to the format of the keys.
    pub ignore_formats: bool,
}

impl Default for Versions {
    fn default() -> Versions {
        Versions { known: [FIRST; MEMBERS], ignore_formats: false }
    }
}

impl Versions {
    /// Replaces the program of a member by a version that knows this format.
    pub fn install(&mut self, world: &mut World, member: usize, format: u32) {
        self.known[member] = format;
        world.settings(member).format = if self.ignore_formats { u32::MAX } else { format };
    }

    /// A member says in etcd which format it knows, and when by its own clock.
    pub fn say(&self, world: &mut World, member: usize) {
        if world.member(member).is_none() || world.is_paused(member) {
            return;
        }
        let value = format!("{} {}", world.shown(member).0, self.known[member]).into_bytes();
        let then = vec![Operation::Put { key: format!("{CARDS}c{member}"), value, lease: None }];
        world.send(member, Request::Transact(Transaction { then, ..Transaction::default() }));
    }

    /// A leader has read what all members say. It sends the format on which they agree, which arrives later.
    pub fn agree(&self, world: &mut World, member: usize, token: Token) {
        let cards = read(world, Keys::Prefix(CARDS.to_owned()));
        let others = cards.iter().map(|card| {
            let text = std::str::from_utf8(&card.value).unwrap();
            let (at, format) = text.split_once(' ').unwrap();
            (Nanos(at.parse().unwrap()), format.parse().unwrap())
        });
        let agreed = newest_for_all(self.known[member], world.shown(member), others);
        if agreed > format(world) {
            let request = say(world.settings(member), token, agreed);
            world.send(member, request);
        }
    }

    /// Whether a member does not know the format of the keys.
    pub fn is_too_old(&self, world: &World, member: usize) -> bool {
        self.known[member] < format(world)
    }

    /// What is wrong if this member leads now.
    pub fn misread(&self, world: &World, member: usize) -> Option<String> {
        let (known, format) = (self.known[member], format(world));
        (known < format).then(|| format!("{:?}: member {member} knows {known} and leads by {format}", world.now()))
    }
}

fn read(world: &World, keys: Keys) -> Vec<KeyValue> {
    let then = vec![Operation::Range(keys)];
    let request = Request::Transact(Transaction { then, ..Transaction::default() });
    match world.etcd.clone().handle(world.now(), &request).unwrap().body {
        Body::Done { found, .. } => found.into_iter().flatten().collect(),
        other => panic!("{other:?}"),
    }
}

/// The format of the keys.
fn format(world: &World) -> u32 {
    of_key(read(world, Keys::One("/pathloom/format".to_owned())).first()).unwrap()
}

/// A member of the old version is cut off while the others are upgraded, for so long that they take it for removed. The
/// new leader then uses the new format. When the old member is back, the others are killed. Returns the scene, in which it
/// has had the time to become the leader, and its number.
fn left_alone_after_an_upgrade(seed: u64, ignore_formats: bool) -> (Scene, usize) {
    let mut scene = Scene::new(seed, |settings| settings, Faults::default());
    scene.versions.ignore_formats = ignore_formats;
    (0..MEMBERS).for_each(|member| scene.apply(Fault::Upgrade(member, FIRST)));
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    assert!(scene.is_led(), "seed {seed}");
    let old = (scene.leader().unwrap() + 1) % MEMBERS;
    scene.apply(Fault::Etcd(old, false));
    for member in (0..MEMBERS).filter(|&member| member != old) {
        scene.apply(Fault::Upgrade(member, NEWEST));
        scene.run_for(Nanos::from_secs(TTL_S + 1));
    }
    assert_eq!(format(&scene.world), FIRST, "seed {seed}: the old member may come back");
    scene.run_for(GONE_AFTER);
    scene.apply(Fault::KillLeader);
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    assert_eq!(format(&scene.world), NEWEST, "seed {seed}");
    scene.apply(Fault::Etcd(old, true));
    scene.run_for(ms(1000));
    (0..MEMBERS).filter(|&member| member != old).for_each(|member| scene.apply(Fault::Kill(member)));
    scene.run_for(Nanos::from_secs(TTL_S + 5));
    (scene, old)
}

#[test]
fn a_member_that_was_cut_off_during_an_upgrade_does_not_lead_by_a_format_that_it_does_not_know() {
    for seed in 0..20 {
        let (mut scene, old) = left_alone_after_an_upgrade(seed, false);
        assert!(matches!(scene.world.member(old).unwrap().position().0, Position::Follow { .. }), "seed {seed}");
        assert!(scene.world.unknown_formats.contains(&(old, NEWEST.to_string())), "seed {seed}: it says why");
        scene.apply(Fault::Upgrade(old, NEWEST));
        scene.run_for(Nanos::from_secs(TTL_S + 2));
        assert!(scene.is_led(), "seed {seed}");
        assert_eq!(scene.violations, [""; 0], "seed {seed}");
    }
}

#[test]
fn members_that_ignore_the_format_lead_by_one_that_they_do_not_know() {
    for seed in 0..20 {
        let (scene, _) = left_alone_after_an_upgrade(seed, true);
        assert!(
            scene.violations.iter().any(|what| what.contains("leads by 2")),
            "seed {seed}: the check finds nothing"
        );
    }
}

#[test]
fn an_upgrade_one_by_one_ends_with_the_new_format_and_the_way_back_keeps_a_leader() {
    for seed in 0..20 {
        let mut scene = Scene::new(seed, |settings| settings, Faults::default());
        scene.run_for(Nanos::from_secs(2));
        let leader = scene.leader().unwrap();
        let order = [(leader + 1) % MEMBERS, (leader + 2) % MEMBERS, leader];
        for member in order {
            assert_eq!(format(&scene.world), FIRST, "seed {seed}");
            scene.apply(Fault::Upgrade(member, NEWEST));
            scene.run_for(Nanos::from_secs(TTL_S + 2));
            assert!(scene.is_led(), "seed {seed}");
        }
        // When the last leader began, the one before had just said that it knows the old format only.
        scene.apply(Fault::KillLeader);
        scene.run_for(Nanos::from_secs(TTL_S + 2));
        assert_eq!(format(&scene.world), NEWEST, "seed {seed}");
        let leader = scene.leader().unwrap();
        let old = (leader + 1) % MEMBERS;
        scene.apply(Fault::Upgrade(old, FIRST));
        (0..MEMBERS).for_each(|member| scene.apply(Fault::Start(member)));
        scene.run_for(Nanos::from_secs(TTL_S + 2));
        scene.apply(Fault::KillLeader);
        scene.run_for(Nanos::from_secs(TTL_S + 2));
        assert!(scene.is_led(), "seed {seed}");
        assert_ne!(scene.leader(), Some(old), "seed {seed}");
        assert_eq!(scene.violations, [""; 0], "seed {seed}");
    }
}
