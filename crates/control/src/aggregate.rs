//! Computes the smallest set of prefix rules for a set of forwarding choices with the algorithm Optimal Routing Table
//! Constructor (ORTC: Draves, King, Venkatachary and Zill, INFOCOM 1999). In addition, addresses can have no choice
//! at all: how their packets are forwarded does not matter.

use pathloom_model::Prefix;

/// An aligned block of addresses with the same choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaf {
    /// Last 32 bits of the first address.
    pub start: u32,
    /// Number of those bits that all addresses share.
    pub len: u8,
    /// Number of the choice for packets to these addresses.
    pub choice: u32,
}

/// Divides the addresses `from..to` into aligned blocks.
pub(crate) fn blocks(from: u64, to: u64, choice: u32) -> impl Iterator<Item = Leaf> {
    let mut next = from;
    std::iter::from_fn(move || {
        let room = to.checked_sub(next).filter(|&room| room > 0)?;
        let bits = next.trailing_zeros().min(63 - room.leading_zeros()).min(32);
        let leaf = Leaf { start: next as u32, len: 32 - bits as u8, choice };
        next += 1 << bits;
        Some(leaf)
    })
}

/// Work space that is reused for each switch.
#[derive(Default)]
pub(crate) struct Aggregator {
    nodes: Vec<TrieNode>,
    /// Choices of all nodes, one after another.
    choices: Vec<u32>,
}

struct TrieNode {
    children: Option<[u32; 2]>,
    /// Range in `choices` of the choices that need the fewest rules below this node, sorted. It is empty if every
    /// choice is possible.
    from: u32,
    to: u32,
}

impl Aggregator {
    /// Returns the fewest rules that give every address of `leaves` the choice of its leaf, longest prefix first.
    /// Leaves are disjoint, in ascending order, and inside `whole`. Addresses in no leaf can get any choice.
    pub(crate) fn aggregate(&mut self, whole: Prefix, leaves: &[Leaf]) -> Vec<(Prefix, u32)> {
        self.nodes.clear();
        self.choices.clear();
        let (start, len) = (whole.address.low(), 32 - whole.host_bits());
        let root = self.build(start, len, leaves);
        let mut rules = Vec::new();
        self.emit(root, start, len, None, &mut rules);
        let prefix = |(start, len)| Prefix {
            address: whole.address.with_low(start),
            len: whole.len - (32 - whole.host_bits()) + len,
        };
        rules.into_iter().map(|(block, choice)| (prefix(block), choice)).collect()
    }

    fn build(&mut self, start: u32, len: u8, leaves: &[Leaf]) -> u32 {
        let from = self.choices.len() as u32;
        let whole = leaves.first().is_some_and(|leaf| leaf.len <= len);
        let children = if leaves.is_empty() {
            None
        } else if whole {
            self.choices.push(leaves[0].choice);
            None
        } else {
            let middle = start | 1 << (31 - len);
            let (low, high) = leaves.split_at(leaves.partition_point(|leaf| leaf.start < middle));
            Some([self.build(start, len + 1, low), self.build(middle, len + 1, high)])
        };
        let from = if children.is_some() { self.choices.len() as u32 } else { from };
        if let Some([low, high]) = children {
            self.merge(low, high);
        }
        self.nodes.push(TrieNode { children, from, to: self.choices.len() as u32 });
        self.nodes.len() as u32 - 1
    }

    /// Appends the choices that both nodes have in common. If there are none, appends the choices of both (ORTC pass
    /// 2).
    fn merge(&mut self, low: u32, high: u32) {
        let range = |node: &TrieNode| (node.from as usize, node.to as usize);
        let ((mut a, a_end), (mut b, b_end)) = (range(&self.nodes[low as usize]), range(&self.nodes[high as usize]));
        let (a_start, b_start, out) = (a, b, self.choices.len());
        while a < a_end && b < b_end {
            let (x, y) = (self.choices[a], self.choices[b]);
            if x == y {
                self.choices.push(x);
            }
            a += usize::from(x <= y);
            b += usize::from(y <= x);
        }
        if self.choices.len() == out {
            self.choices.extend_from_within(a_start..a_end);
            self.choices.extend_from_within(b_start..b_end);
            self.choices[out..].sort_unstable();
        }
    }

    fn emit(&self, node: u32, start: u32, len: u8, inherited: Option<u32>, rules: &mut Vec<((u32, u8), u32)>) {
        let node = &self.nodes[node as usize];
        let wanted = &self.choices[node.from as usize..node.to as usize];
        let keep = wanted.is_empty() || inherited.is_some_and(|choice| wanted.binary_search(&choice).is_ok());
        let choice = if keep { inherited } else { Some(wanted[0]) };
        if let Some([low, high]) = node.children {
            self.emit(low, start, len + 1, choice, rules);
            self.emit(high, start | 1 << (31 - len), len + 1, choice, rules);
        }
        if let Some(choice) = choice.filter(|_| !keep) {
            rules.push(((start, len), choice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::Address;
    use proptest::prelude::*;

    const WHOLE: Prefix = Prefix { address: Address::new(10, 0, 0, 0), len: 24 };
    const BASE: u32 = 10 << 24;

    fn lookup(rules: &[(Prefix, u32)], address: u32) -> Option<u32> {
        let hits = rules.iter().filter(|(prefix, _)| prefix.contains(Address::from(address)));
        hits.max_by_key(|(prefix, _)| prefix.len).map(|&(_, choice)| choice)
    }

    #[test]
    fn merges_equal_choices() {
        let mut leaves: Vec<Leaf> = (0..4).map(|i| Leaf { start: BASE + 64 * i, len: 26, choice: 7 }).collect();
        let mut space = Aggregator::default();
        assert_eq!(space.aggregate(WHOLE, &leaves), vec![(WHOLE, 7)]);
        leaves[2].choice = 8;
        assert_eq!(space.aggregate(WHOLE, &leaves).len(), 2);
        leaves.remove(2);
        assert_eq!(space.aggregate(WHOLE, &leaves), vec![(WHOLE, 7)], "an address in a gap may have any choice");
        assert_eq!(space.aggregate(WHOLE, &[]), vec![]);
    }

    #[test]
    fn cuts_ranges_into_aligned_blocks() {
        let cut: Vec<Leaf> = blocks(3, 12, 1).collect();
        assert_eq!(cut.iter().map(|leaf| (leaf.start, leaf.len)).collect::<Vec<_>>(), [(3, 32), (4, 30), (8, 30)]);
        assert_eq!(blocks(0, 1 << 32, 1).map(|leaf| leaf.len).collect::<Vec<_>>(), [0]);
        assert_eq!(blocks(5, 5, 1).count(), 0);
    }

    proptest! {
        #[test]
        fn every_address_gets_the_choice_of_its_leaf(choices in prop::collection::vec(prop::option::of(0..4u32), 256)) {
            let leaves: Vec<Leaf> = choices.iter().enumerate()
                .filter_map(|(i, choice)| choice.map(|choice| Leaf { start: BASE + i as u32, len: 32, choice }))
                .collect();
            let rules = Aggregator::default().aggregate(WHOLE, &leaves);
            for leaf in &leaves {
                prop_assert_eq!(lookup(&rules, leaf.start), Some(leaf.choice));
            }
            prop_assert!(rules.len() <= leaves.len());
        }
    }
}
