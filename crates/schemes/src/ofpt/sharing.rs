//! How flows of unknown size share a full link.

/// Up to this number of links between the ToRs of its path, a flow has its full share. No shortest path of a healthy
/// FatTree, VL2 or leaf-spine has more.
const FREE_LINKS: usize = 4;
/// Access links of a path.
const ACCESS_LINKS: usize = 2;

/// The part of a full link that a flow gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// By the length of its path, because a flow over n links takes capacity from n links. Beyond [`FREE_LINKS`]
    /// between the ToRs, its share falls with the square of their number. Under TCP it falls about as steeply, because
    /// of losses on each link and of round-trip times. With equal shares, wide-area networks would carry less in total
    /// than under TCP alone.
    ByLength,
    /// As much as every other flow: max-min fair, whatever the path.
    Equal,
}

impl Sharing {
    /// The weight of a flow over this many links, access links included: above 0, at most 1.
    pub(super) fn weight(self, links: usize) -> f64 {
        match self {
            Sharing::ByLength => {
                let between = links.saturating_sub(ACCESS_LINKS).max(FREE_LINKS);
                let ratio = FREE_LINKS as f64 / between as f64;
                ratio * ratio
            }
            Sharing::Equal => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_longer_than_those_of_three_tiers_weigh_less() {
        assert!((0..=6).all(|links| Sharing::ByLength.weight(links) == 1.0));
        assert_eq!([10, 14, 18].map(|links| Sharing::ByLength.weight(links)), [0.25, 1.0 / 9.0, 0.0625]);
        assert!((0..=40).all(|links| Sharing::Equal.weight(links) == 1.0));
    }
}
