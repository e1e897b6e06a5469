//! Etcd goes on from a backup while members run.

use crate::scene::{ms, Fault, Scene, MEMBERS, TTL_S};
use pathloom_cluster::etcd::{Body, LeaseId, Operation, Request, Transaction};
use pathloom_cluster::Position;
use pathloom_model::Nanos;
use pathloom_testnet::Faults;

fn put(key: &str, lease: Option<LeaseId>) -> Request {
    let then = vec![Operation::Put { key: key.into(), value: b"(restored)".to_vec(), lease }];
    Request::Transact(Transaction { then, ..Transaction::default() })
}

/// Writes until etcd's revision is greater than this.
fn write(scene: &mut Scene, above: u64) {
    while scene.world.etcd.revision() <= above {
        scene.world.etcd.handle(scene.now(), &put("/pathloom/restored", None)).unwrap();
    }
}

/// Does what `pathloom-controller restored` does: makes etcd's revision greater than this, and takes the key of the leader for the
/// time to live of a lease.
fn raise(scene: &mut Scene, above: u64) {
    write(scene, above);
    let granted = scene.world.etcd.handle(scene.now(), &Request::Grant { ttl_s: 3 * TTL_S }).unwrap();
    let Body::Granted { lease, .. } = granted.body else { panic!("{granted:?}") };
    scene.world.etcd.handle(scene.now(), &put("/pathloom/leader", Some(lease))).unwrap();
    scene.run_for(Nanos::from_secs(TTL_S));
    scene.world.etcd.handle(scene.now(), &Request::Revoke(lease)).unwrap();
}

/// A scene whose etcd went back to a backup. `deposes`: whether another member led between the backup and now.
fn restored(seed: u64, deposes: bool) -> Scene {
    let mut scene = Scene::new(seed, |settings| settings, Faults::default());
    scene.run_for(ms(1000));
    let backup = scene.world.etcd.clone();
    if deposes {
        scene.apply(Fault::KillLeader);
    }
    // Changes of other keys, such as the leader's state.
    write(&mut scene, 100);
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    assert!(scene.is_led(), "seed {seed}");
    scene.world.restore(&backup);
    scene
}

#[test]
fn after_a_restore_no_member_leads_by_an_earlier_election_and_a_raised_revision_ends_that() {
    for seed in 0..20 {
        let mut scene = restored(seed, seed % 2 == 0);
        let token = |scene: &Scene, member: usize| scene.world.member(member)?.position().0.token();
        let newest = (0..MEMBERS).filter_map(|member| token(&scene, member)).max().unwrap();
        scene.run_for(Nanos::from_secs(10));
        // The last leader goes on with what switches accept of it, and nobody else is a leader.
        let leads: Vec<_> = (0..MEMBERS).filter_map(|member| token(&scene, member)).collect();
        assert_eq!(leads, [newest], "seed {seed}");
        let &(_, from, to) = scene.world.went_back.first().unwrap();
        assert!(from > 100 && to <= from, "seed {seed}: {from} {to}");
        raise(&mut scene, from);
        scene.run_for(Nanos::from_secs(TTL_S + 2));
        assert!(scene.is_led(), "seed {seed}");
        let leader = scene.leader().unwrap();
        assert!(token(&scene, leader).unwrap() > newest);
        assert_eq!(scene.violations, [""; 0], "seed {seed}");
    }
}

#[test]
fn a_member_that_starts_after_a_restore_is_refused_by_switches_until_the_revision_is_raised() {
    let mut scene = restored(4, true);
    (0..MEMBERS).for_each(|member| scene.apply(Fault::Kill(member)));
    (0..MEMBERS).for_each(|member| scene.apply(Fault::Start(member)));
    scene.run_for(Nanos::from_secs(TTL_S + 3));
    let leader = scene.leader().expect("etcd confirms one");
    assert!(matches!(scene.world.member(leader).unwrap().position().0, Position::Lead { token } if token.0 < 100));
    assert!(!scene.is_led(), "the switches know of a newer election");
    raise(&mut scene, 1000);
    scene.run_for(Nanos::from_secs(TTL_S + 2));
    assert!(scene.is_led());
    assert_eq!(scene.violations, [""; 0]);
}
