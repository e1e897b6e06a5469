use super::*;
use crate::fabric_from_spec;
use pathloom_model::{FabricBuilder, LinkId, LinkSettings, NodeId, Tier};
use proptest::prelude::*;

const SETTINGS: LinkSettings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

/// Builds switches with these numbers of hosts, and cables with a rate per direction. Failed cables are down.
fn graph(hosts: &[u32], cables: &[(u32, u32, u64, u64, bool)]) -> Fabric {
    let n = hosts.len() as u32;
    let mut builder = FabricBuilder::new("graph");
    let switches: Vec<NodeId> = (0..n).map(|i| builder.switch(format!("s{i}"), Tier::Tor, None)).collect();
    for (&switch, &count) in switches.iter().zip(hosts) {
        for number in 0..count {
            let host = builder.host(format!("h{}_{number}", switch.0), None);
            builder.cable(switch, host, SETTINGS);
        }
    }
    let mut failed: Vec<LinkId> = Vec::new();
    for &(a, b, there, back, up) in cables.iter().filter(|(a, b, ..)| a % n != b % n) {
        let (a, b) = (switches[(a % n) as usize], switches[(b % n) as usize]);
        let link = builder.cable(a, b, LinkSettings { rate_bps: there, ..SETTINGS });
        builder.set(link.reverse(), LinkSettings { rate_bps: back, ..SETTINGS });
        failed.extend((!up).then_some(link));
    }
    builder.build().unwrap().with_failed(failed)
}

/// Finds the smallest balanced cut by trying every set of switches.
fn by_brute_force(fabric: &Fabric) -> u64 {
    let switches = fabric.switches();
    let state = LinkState::of(fabric);
    let on_side =
        |side: u32, node: NodeId| switches.iter().position(|&s| s == node).is_some_and(|i| side >> i & 1 == 1);
    let ports = |side: u32| fabric.attachments().iter().filter(|at| on_side(side, at.tor)).count();
    let all = fabric.attachments().len();
    let sets = || 0..1u32 << switches.len();
    let nearest = sets().map(|side| ports(side).abs_diff(all - ports(side))).min().unwrap();
    let links = || (0..fabric.links().len() as u32).map(LinkId).filter(|&link| fabric.is_switch_link(link));
    let cut = |side: u32| -> u64 {
        let ends = links().filter(|&link| state.is_up(link)).map(|link| fabric.link(link));
        ends.filter(|link| on_side(side, link.from) && !on_side(side, link.to)).map(|link| link.settings.rate_bps).sum()
    };
    sets().filter(|&side| ports(side).abs_diff(all - ports(side)) == nearest).map(cut).min().unwrap()
}

fn of(spec: &str) -> Bisection {
    bisection(&fabric_from_spec(spec).unwrap()).unwrap()
}

/// Returns the bisection of a fabric whose name says nothing about its kind.
fn of_unknown(fabric: &Fabric) -> Bisection {
    let text = crate::to_node_link_json(fabric);
    bisection(&crate::fabric_from_file_text("unknown.json", &text).unwrap().fabric).unwrap()
}

#[test]
fn known_fabrics_have_their_published_bisection() {
    const G: u64 = 1_000_000_000;
    for (spec, expected) in [
        ("fat-tree:k=4", 8 * G),
        ("fat-tree:k=4,hosts=7", 8 * G),
        ("fat-tree:k=8", 64 * G),
        ("fat-tree:k=48", 13_824 * G),
        ("leaf-spine:switch_rate=10Gbps", 80 * G),
        ("leaf-spine:spines=3,leaves=5,hosts=2", 6 * G),
        ("vl2", 4 * G),
        ("vl2:d0=2,d1=6,d2=6,hosts=3", 8 * G),
    ] {
        let known = of(spec);
        assert_eq!((known.bps, known.kind, known.at_least_bps), (expected, BisectionKind::Exact, expected), "{spec}");
        assert_eq!(known.proof, Some(BisectionProof::Structure), "{spec}");
        if spec != "fat-tree:k=48" {
            let found = of_unknown(&fabric_from_spec(spec).unwrap());
            assert_eq!((found.bps, found.kind, found.host_ports), (known.bps, known.kind, known.host_ports), "{spec}");
            assert_ne!(found.proof, Some(BisectionProof::Structure), "{spec}");
        }
    }
}

#[test]
fn fabrics_without_a_known_value_are_searched_or_bounded() {
    for (spec, bps) in [("dumbbell:hosts=3", 1), ("diamond", 2), ("three-layer", 8), ("three-layer:tors=3", 8)] {
        let found = of(spec);
        assert_eq!((found.bps, found.kind), (bps * 1_000_000_000, BisectionKind::Exact), "{spec}");
    }
    // An expander: no exact value, but both bounds.
    let found = of("jellyfish");
    assert_eq!((found.kind, found.proof, found.host_ports), (BisectionKind::UpperBound, None, (60, 60)));
    assert!(0 < found.at_least_bps && found.at_least_bps < found.bps, "{found:?}");
    assert!(found.bps <= 64_000_000_000, "{found:?}");
    // A fabric with failed cables has no known value.
    let fabric = fabric_from_spec("fat-tree:k=4,fail=0.2").unwrap();
    let found = bisection(&fabric).unwrap();
    assert!(found.kind == BisectionKind::Exact && found.bps < 8_000_000_000, "{found:?}");
    assert_eq!(found.bps, by_brute_force(&fabric));
}

#[test]
fn bisection_of_one_rack_is_none_and_of_disconnected_parts_is_zero() {
    assert_eq!(bisection(&fabric_from_spec("leaf-spine:leaves=1,hosts=3,spines=1").unwrap()), None);
    let apart = graph(&[1, 1, 1, 1], &[(0, 1, 5, 5, true), (2, 3, 5, 5, true), (0, 2, 5, 5, false)]);
    let found = bisection(&apart).unwrap();
    assert_eq!((found.bps, found.at_least_bps, found.kind), (0, 0, BisectionKind::Exact));
}

/// Internet2's Abilene, 2005: New York, Chicago, Washington, Seattle, Sunnyvale, Los Angeles, Denver, Kansas City,
/// Houston, Atlanta, Indianapolis.
#[test]
fn abilene_is_cut_at_two_cables() {
    let ends =
        [(0, 1), (0, 2), (1, 10), (2, 9), (3, 4), (3, 6), (4, 5), (4, 6), (5, 8), (6, 7), (7, 8), (7, 10), (8, 9)];
    let cables: Vec<_> = ends.into_iter().chain([(9, 10)]).map(|(a, b)| (a, b, 10, 10, true)).collect();
    let found = bisection(&graph(&[1; 11], &cables)).unwrap();
    assert_eq!((found.bps, found.kind, found.host_ports), (20, BisectionKind::Exact, (5, 6)));
}

/// The best cut of a ladder is across its middle, in any order of its ToRs in the file, even if the first half is one
/// row.
#[test]
fn the_order_of_the_file_does_not_matter() {
    let rungs = 20u32;
    let mut cables: Vec<(u32, u32, u64, u64, bool)> = (0..rungs).map(|i| (i, rungs + i, 1, 1, true)).collect();
    cables.extend((0..rungs - 1).flat_map(|i| [(i, i + 1, 1, 1, true), (rungs + i, rungs + i + 1, 1, 1, true)]));
    let found = bisection(&graph(&[1; 40], &cables)).unwrap();
    assert_eq!((found.bps, found.kind), (2, BisectionKind::Exact));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn small_fabrics_match_the_brute_force_cut(
        hosts in prop::collection::vec(0u32..4, 2..10),
        cables in prop::collection::vec((0u32..10, 0u32..10, 1u64..6, 1u64..6, prop::bool::weighted(0.8)), 0..24),
        alike: bool,
    ) {
        prop_assume!(hosts.iter().sum::<u32>() >= 2);
        let alike = |(a, b, there, back, up)| (a, b, there, if alike { there } else { back }, up);
        let fabric = graph(&hosts, &cables.into_iter().map(alike).collect::<Vec<_>>());
        let Some(found) = bisection(&fabric) else {
            prop_assert!(fabric.tors().len() < 2);
            return Ok(());
        };
        let smallest = by_brute_force(&fabric);
        prop_assert_eq!((found.bps, found.kind), (smallest, BisectionKind::Exact));
        let (state, total) = (LinkState::of(&fabric), fabric.attachments().len() as u64);
        prop_assert_eq!(found.host_ports.0 + found.host_ports.1, total);
        // Each part alone keeps its promise.
        let problem = Problem::of(&fabric, &state);
        prop_assert!(local::best_cut(&problem) >= u128::from(smallest));
        prop_assert!(routed::lower_bound(&fabric, &state, &problem) <= u128::from(smallest));
        prop_assert_eq!(exact::smallest_cut(&problem, u128::MAX), Some(u128::from(smallest)));
    }
}
