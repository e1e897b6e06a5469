//! Determines at which switches a flow is cut over from its old path to its new one, and in which order (OFPT §5.3,
//! Alg. 4).
//!
//! A cutover switch is on both paths. While it has both rules, the old rule is effective; when that is deleted, the
//! new one is effective. If both paths visit the cutover switches in the same order, then a packet visits them in
//! that order too, even if rules change while it is in transit. Therefore no order of deletions causes loops or
//! packet loss. If the paths visit two of them in opposite order, such as A-B-C-D and A-C-B-D, a flow is not moved in
//! place. A packet on the old path from B to C could be sent back to B by the new rule of C.

use pathloom_model::{Fabric, LinkId, NodeId, Path};

/// Function that returns the switches at which a flow is cut over from the first path to the second, in order. The
/// link is the bottleneck of the first path. `None`: the flow cannot be moved in place.
pub type CutoverOrder = fn(&Fabric, &Path, &Path, LinkId) -> Option<Vec<NodeId>>;

/// The order of OFPT. The cutover switch before the bottleneck is first, so that the flow leaves the congestion
/// quickly. The rules upstream of it are next, from the bottleneck to the source ToR, because they still match
/// packets and would never expire. Those downstream follow.
pub fn bottleneck_first(fabric: &Fabric, old: &Path, new: &Path, bottleneck: LinkId) -> Option<Vec<NodeId>> {
    let (before, after) = (switches(fabric, old), switches(fabric, new));
    let common: Vec<NodeId> = before.iter().copied().filter(|switch| after.contains(switch)).collect();
    if !after.iter().filter(|switch| before.contains(switch)).eq(&common) {
        return None;
    }
    let reached = old.links().iter().position(|&link| link == bottleneck).unwrap_or(0);
    let last = common.iter().rposition(|switch| before[..=reached].contains(switch))?;
    Some(common[..=last].iter().rev().chain(&common[last + 1..]).copied().collect())
}

/// Returns the link of `old` with the highest load relative to its capacity, among those that are not in `new`. If
/// several have the same, returns the first of them.
pub(crate) fn bottleneck(fabric: &Fabric, old: &Path, new: &Path, load_bps: &[u64]) -> Option<LinkId> {
    let left = old.links().iter().copied().filter(|link| !new.links().contains(link));
    left.reduce(|most, link| {
        let share =
            |link: LinkId| (u128::from(load_bps[link.index()]), u128::from(fabric.link(link).settings.rate_bps));
        let ((load, rate), (most_load, most_rate)) = (share(link), share(most));
        // Compares load/rate without rounding. Without any load, the slowest link is the bottleneck.
        let tighter = (load * most_rate, most_rate) > (most_load * rate, rate);
        if tighter {
            link
        } else {
            most
        }
    })
}

/// Returns the switches of a path, from its source ToR on.
pub(crate) fn switches(fabric: &Fabric, path: &Path) -> Vec<NodeId> {
    path.links().first().map_or(Vec::new(), |&first| path.switches(fabric, fabric.link(first).from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::{FabricBuilder, LinkSettings, Tier};

    /// The part of the fabric of OFPT's Fig. 3 that its example needs: switches 1, 2, 3, 4, 7, 9, 10 in that order.
    fn figure_3() -> (Fabric, Path, Path, [NodeId; 7]) {
        let settings = LinkSettings { rate_bps: 10_000_000, delay_ps: 1, buffer_packets: 100 };
        let mut builder = FabricBuilder::new("figure 3");
        let names = ["1", "2", "3", "4", "7", "9", "10"];
        let nodes = names.map(|name| builder.switch(name, Tier::Tor, None));
        let [one, two, three, four, seven, nine, ten] = nodes;
        let pairs = [
            (three, two),
            (two, one),
            (one, seven),
            (seven, ten),
            (three, four),
            (four, one),
            (one, nine),
            (nine, ten),
        ];
        let links = pairs.map(|(a, b)| builder.cable(a, b, settings));
        for (name, tor) in [("s", three), ("d", ten)] {
            let host = builder.host(name, None);
            builder.cable(host, tor, settings);
        }
        (builder.build().unwrap(), Path::new(&links[..4]), Path::new(&links[4..]), nodes)
    }

    #[test]
    fn the_example_of_the_paper() {
        let (fabric, old, new, [one, _, three, _, _, _, ten]) = figure_3();
        let one_to_seven = old.links()[2];
        // "if the link between switch 1 and switch 7 is the bottleneck, we will preferentially remove the old flow
        // entries from 1 to 7"; the cutover switches are {3, 1, 10}.
        assert_eq!(bottleneck_first(&fabric, &old, &new, one_to_seven), Some(vec![one, three, ten]));
        assert_eq!(bottleneck_first(&fabric, &old, &new, old.links()[1]), Some(vec![three, one, ten]));
        assert_eq!(bottleneck_first(&fabric, &old, &new, old.links()[3]), Some(vec![one, three, ten]));
    }

    #[test]
    fn opposite_orders_are_not_cut_over_in_place() {
        let settings = LinkSettings { rate_bps: 10_000_000, delay_ps: 1, buffer_packets: 100 };
        let mut builder = FabricBuilder::new("crossing");
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| builder.switch(name, Tier::Tor, None));
        let [ab, bc, cd, ac, bd] = [(a, b), (b, c), (c, d), (a, c), (b, d)].map(|(x, y)| builder.cable(x, y, settings));
        for (name, tor) in [("s", a), ("t", d)] {
            let host = builder.host(name, None);
            builder.cable(host, tor, settings);
        }
        let fabric = builder.build().unwrap();
        let (old, new) = (Path::new([ab, bc, cd]), Path::new([ac, bc.reverse(), bd]));
        assert_eq!(bottleneck_first(&fabric, &old, &new, bc), None);
        assert_eq!(bottleneck_first(&fabric, &old, &Path::new([ac, cd]), ab), Some(vec![a, c, d]));
    }

    #[test]
    fn the_bottleneck_is_where_most_of_the_capacity_is_used() {
        let (fabric, old, new, _) = figure_3();
        let mut load = vec![0; fabric.links().len()];
        assert_eq!(bottleneck(&fabric, &old, &new, &load), Some(old.links()[0]), "no load: the first of equal links");
        load[old.links()[2].index()] = 5;
        load[old.links()[3].index()] = 4;
        assert_eq!(bottleneck(&fabric, &old, &new, &load), Some(old.links()[2]));
        assert_eq!(bottleneck(&fabric, &old, &old, &load), None, "a flow that stays leaves no link");
    }
}
