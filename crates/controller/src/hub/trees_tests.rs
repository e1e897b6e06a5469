//! Trees of broadcasts: no loop, and every pair of ToRs stays connected when a cable fails.

use super::broadcast_trees;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, LinkId, LinkState, NodeId};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn cables(fabric: &Fabric, tree: &LinkState) -> Vec<LinkId> {
    fabric.switch_cables().filter(|&cable| tree.is_up(cable)).collect()
}

/// The switches that a frame from `from` reaches in a tree, and how often it reaches one that it has visited.
fn reached(fabric: &Fabric, tree: &LinkState, from: NodeId) -> (BTreeSet<NodeId>, usize) {
    let (mut seen, mut again, mut open) = (BTreeSet::from([from]), 0, vec![(from, None)]);
    while let Some((node, came)) = open.pop() {
        for port in fabric.switch_ports(node) {
            if tree.is_up(port.link) && came != Some(port.link.reverse()) {
                again += usize::from(!seen.insert(port.to));
                open.extend((again == 0).then_some((port.to, Some(port.link))));
            }
        }
    }
    (seen, again)
}

/// Pairs of ToRs that neither tree connects.
fn separated(fabric: &Fabric, trees: &[LinkState; 2]) -> usize {
    let of = |tor: NodeId| -> BTreeSet<NodeId> {
        trees.iter().flat_map(|tree| reached(fabric, tree, tor).0).filter(|&n| fabric.tor_index(n).is_some()).collect()
    };
    fabric.tors().iter().map(|&tor| fabric.tors().len() - of(tor).len()).sum()
}

fn check(fabric: &Fabric, state: &LinkState) -> [LinkState; 2] {
    let trees = broadcast_trees(fabric, state);
    let [first, second] = [0, 1].map(|tree: usize| cables(fabric, &trees[tree]).into_iter().collect::<BTreeSet<_>>());
    assert!(first.is_disjoint(&second), "a cable is in both trees of {}", fabric.spec());
    for tree in &trees {
        for cable in cables(fabric, tree) {
            assert!(state.is_up(cable));
            for end in [fabric.link(cable).from, fabric.link(cable).to] {
                let degree = fabric.switch_ports(end).iter().filter(|port| tree.is_up(port.link)).count();
                assert!(degree > 1 || fabric.tor_index(end).is_some(), "a cable of {} leads nowhere", fabric.spec());
            }
        }
        for &switch in fabric.switches() {
            assert_eq!(reached(fabric, tree, switch).1, 0, "a loop in {}", fabric.spec());
        }
    }
    trees
}

#[test]
fn any_cable_may_fail() {
    for spec in ["fat-tree:k=4", "fat-tree:k=8", "leaf-spine:spines=2,leaves=4,hosts=2"] {
        let fabric = fabric_from_spec(spec).unwrap();
        let state = LinkState::of(&fabric);
        let trees = check(&fabric, &state);
        assert_eq!(separated(&fabric, &trees), 0, "{spec}");
        for cable in fabric.switch_cables() {
            let mut left = trees.clone();
            for tree in &mut left {
                tree.set_cable(cable, false);
            }
            assert_eq!(separated(&fabric, &left), 0, "{spec} without {cable:?}");
        }
    }
}

proptest! {
    #[test]
    fn the_first_tree_connects_what_is_connected(failed in prop::collection::btree_set(0usize..256, 0..80)) {
        let fabric = fabric_from_spec("fat-tree:k=8").unwrap();
        let mut state = LinkState::of(&fabric);
        let all: Vec<LinkId> = fabric.switch_cables().collect();
        for index in failed {
            state.set_cable(all[index % all.len()], false);
        }
        let trees = check(&fabric, &state);
        for &tor in fabric.tors() {
            let tors = |state: &LinkState| -> BTreeSet<NodeId> {
                let mut open = vec![tor];
                let mut seen = BTreeSet::from([tor]);
                while let Some(node) = open.pop() {
                    for port in fabric.switch_ports(node) {
                        if state.is_up(port.link) && seen.insert(port.to) {
                            open.push(port.to);
                        }
                    }
                }
                seen.into_iter().filter(|&node| fabric.tor_index(node).is_some()).collect()
            };
            prop_assert_eq!(tors(&trees[0]), tors(&state));
        }
    }
}
