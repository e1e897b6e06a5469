//! How flows of unknown size share a link that all of them want more of.

/// Links between the ToRs of a path that cost a flow nothing of its share. No shortest path of a healthy FatTree, VL2 or
/// leaf-spine has more.
const FREE_LINKS: usize = 4;
/// Access links of a path.
const ACCESS_LINKS: usize = 2;

/// What part of a full link a flow gets beside others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// By the length of its path: one over n links takes capacity from n links. Over more than [`FREE_LINKS`] between the
    /// ToRs, its part falls with the square of their number. TCP falls about as steeply, by losses on each link and by
    /// round-trip times. With equal parts, wide-area networks would carry less in all than under TCP alone.
    ByLength,
    /// As much as every other: max-min fair, whatever the path.
    Equal,
}

impl Sharing {
    /// The weight of a flow over so many links, access links included: above 0, at most 1.
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
