//! Choice of the buckets of a group (OpenFlow 1.3 §5.6).

use pathloom_model::rules::{Bucket, Group, GroupKind};
use pathloom_model::{FiveTuple, PortNo};

/// Returns the buckets that act on a frame with this five-tuple.
pub(crate) fn choose<'a>(
    group: &'a Group,
    tuple: &FiveTuple,
    salt: u64,
    port_up: impl Fn(PortNo) -> bool,
) -> Vec<&'a Bucket> {
    let live = |bucket: &&Bucket| bucket.watch_port.is_none_or(&port_up);
    match group.kind {
        GroupKind::All => group.buckets.iter().filter(live).collect(),
        GroupKind::FastFailover => group.buckets.iter().find(live).into_iter().collect(),
        GroupKind::Select => select(group, tuple, salt, live).into_iter().collect(),
    }
}

fn select<'a>(
    group: &'a Group,
    tuple: &FiveTuple,
    salt: u64,
    live: impl Fn(&&'a Bucket) -> bool,
) -> Option<&'a Bucket> {
    let total: u64 = group.buckets.iter().filter(&live).map(|bucket| u64::from(bucket.weight)).sum();
    // The hash is scaled to the sum of weights by a multiplication. This needs no division, and its bias is negligible.
    let mut point = (u64::from(tuple.ecmp_hash(salt)) * total) >> 32;
    group.buckets.iter().filter(&live).find(|bucket| {
        let weight = u64::from(bucket.weight);
        let hit = point < weight;
        point = point.wrapping_sub(weight);
        hit
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::rules::{GroupId, RuleAction};
    use pathloom_model::PROTO_TCP;

    fn bucket(port: u32, weight: u16) -> Bucket {
        Bucket { weight, watch_port: Some(PortNo(port)), actions: vec![RuleAction::Output(PortNo(port))] }
    }

    fn tuple(src_port: u16) -> FiveTuple {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 1, 1].into());
        FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 5001))
    }

    #[test]
    fn select_follows_weights_and_liveness() {
        let buckets = vec![bucket(1, 1), bucket(2, 3), bucket(3, 0)];
        let group = Group { id: GroupId(1), kind: GroupKind::Select, buckets };
        let mut hits = [0u32; 4];
        for port in 0..20_000 {
            let chosen = choose(&group, &tuple(port), 7, |_| true);
            hits[chosen[0].watch_port.unwrap().0 as usize] += 1;
        }
        assert_eq!(hits[3], 0);
        assert!((4_700..5_300).contains(&hits[1]), "{hits:?}");
        let chosen = choose(&group, &tuple(1), 7, |port| port == PortNo(1));
        assert_eq!(chosen[0].watch_port, Some(PortNo(1)));
        assert!(choose(&group, &tuple(1), 7, |_| false).is_empty());
    }

    #[test]
    fn two_switches_choose_independently() {
        let group = Group { id: GroupId(1), kind: GroupKind::Select, buckets: vec![bucket(1, 1), bucket(2, 1)] };
        let pick = |port, salt| choose(&group, &tuple(port), salt, |_| true)[0].watch_port;
        let same = (0..10_000).filter(|&port| pick(port, 1) == pick(port, 2)).count();
        assert!((4_800..5_200).contains(&same), "{same}");
    }

    #[test]
    fn fast_failover_takes_the_first_live_bucket() {
        let group = Group { id: GroupId(1), kind: GroupKind::FastFailover, buckets: vec![bucket(1, 0), bucket(2, 0)] };
        assert_eq!(choose(&group, &tuple(1), 0, |_| true)[0].watch_port, Some(PortNo(1)));
        assert_eq!(choose(&group, &tuple(1), 0, |p| p != PortNo(1))[0].watch_port, Some(PortNo(2)));
    }
}
