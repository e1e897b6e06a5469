//! Deadlocks of paused links: links that wait for each other in a cycle, so that none of them can ever be resumed.

use std::collections::{BTreeMap, BTreeSet};

/// A paused link of one priority. Its sender is resumed when few enough of its bytes wait in the switch at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paused {
    /// The link is resumed at this many bytes or fewer (XON).
    pub(crate) xon: u64,
    /// Its bytes that wait in the switch at its end, by the paused link that they wait for.
    pub(crate) waiting: BTreeMap<u32, u64>,
}

/// Removes the links that may still be resumed. Those that remain wait for each other, whatever the rest of the network
/// does: of each, more than XON bytes wait for links that also remain.
pub(crate) fn retain_stuck(links: &mut BTreeMap<u32, Paused>) {
    loop {
        let is_stuck = |one: &Paused| {
            let bytes: u64 =
                one.waiting.iter().filter(|(link, _)| links.contains_key(link)).map(|(_, bytes)| bytes).sum();
            bytes > one.xon
        };
        let free: Vec<u32> = links.iter().filter(|(_, one)| !is_stuck(one)).map(|(&link, _)| link).collect();
        if free.is_empty() {
            return;
        }
        free.iter().for_each(|link| {
            links.remove(link);
        });
    }
}

/// A cycle among links that [`retain_stuck`] has left: each waits for the next one, and the last for the first. Empty if
/// no link is stuck. It begins with its lowest link.
pub(crate) fn cycle(stuck: &BTreeMap<u32, Paused>) -> Vec<u32> {
    let Some((&first, _)) = stuck.first_key_value() else { return Vec::new() };
    let (mut way, mut seen) = (vec![first], BTreeSet::from([first]));
    loop {
        let last = way[way.len() - 1];
        let next = stuck[&last].waiting.keys().find(|link| stuck.contains_key(link));
        let Some(&next) = next else { return Vec::new() };
        if !seen.insert(next) {
            let begin = way.iter().position(|&link| link == next).unwrap_or(0);
            let mut cycle = way.split_off(begin);
            let lowest = (0..cycle.len()).min_by_key(|&place| cycle[place]).unwrap_or(0);
            cycle.rotate_left(lowest);
            return cycle;
        }
        way.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link, its XON, and what waits for other links.
    type Row<'a> = (u32, u64, &'a [(u32, u64)]);

    fn links(of: &[Row<'_>]) -> BTreeMap<u32, Paused> {
        of.iter()
            .map(|&(link, xon, waiting)| (link, Paused { xon, waiting: waiting.iter().copied().collect() }))
            .collect()
    }

    fn stuck(of: &[Row<'_>]) -> (Vec<u32>, Vec<u32>) {
        let mut links = links(of);
        retain_stuck(&mut links);
        (links.keys().copied().collect(), cycle(&links))
    }

    #[test]
    fn a_chain_that_ends_at_a_free_port_is_no_deadlock() {
        assert_eq!(stuck(&[(1, 10, &[(2, 50)]), (2, 10, &[(3, 50)]), (3, 10, &[])]), (vec![], vec![]));
    }

    #[test]
    fn a_cycle_is_one_and_stops_those_that_wait_for_it() {
        let ring: [Row<'_>; 4] =
            [(4, 10, &[(2, 50)]), (2, 10, &[(3, 50), (9, 50)]), (3, 10, &[(4, 11)]), (1, 0, &[(3, 1)])];
        assert_eq!(stuck(&ring), (vec![1, 2, 3, 4], vec![2, 3, 4]));
        // One link of the ring gets below XON, because most of its bytes wait for a port that sends.
        let leaking: [Row<'_>; 4] =
            [(4, 10, &[(2, 50)]), (2, 10, &[(3, 10), (9, 50)]), (3, 10, &[(4, 11)]), (1, 0, &[(3, 1)])];
        assert_eq!(stuck(&leaking), (vec![], vec![]));
    }
}
