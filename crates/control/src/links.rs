//! Determines which links can be used, from the reports of both ends. A link that flaps must be quiet for some time
//! before it is used again.

use pathloom_model::{Fabric, LinkId, LinkState, Nanos};
use serde::{Deserialize, Serialize};

/// Number of failures within [`MEMORY`] after which a link is not yet held back.
const FREE_FAILURES: u32 = 3;
/// How long a failure is remembered.
const MEMORY: Nanos = Nanos::from_secs(10);
/// How long a link is held back at first. The time is doubled for each further failure.
const FIRST_WAIT: Nanos = Nanos::from_millis(100);
/// Longest time that a link is held back.
pub(crate) const LONGEST_WAIT: Nanos = Nanos::from_secs(10);

/// State of one cable.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Cable {
    /// Whether the port at the start of each direction has no carrier.
    down: [bool; 2],
    /// Number of recent failures.
    failures: u32,
    last_failure: Nanos,
    changes: u64,
}

/// Effect of a port report on its cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// The state is unchanged.
    Same,
    /// The link may be used (true) or must not be used (false) from now on.
    Now(bool),
    /// The link came up but has flapped. It may be used if it stays quiet until this time.
    Later { at: Nanos, changes: u64 },
}

/// All cables.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Cables(Vec<Cable>);

impl Cables {
    /// Creates the state of all cables. All are up, except those that the fabric specification fails.
    pub(crate) fn new(fabric: &Fabric) -> Cables {
        let mut cables = vec![Cable::default(); fabric.links().len() / 2];
        for link in fabric.failed_links() {
            cables[link.cable() as usize].down = [true, true];
        }
        Cables(cables)
    }

    /// Whether both ends of a cable have carrier.
    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.0[link.cable() as usize].down == [false, false]
    }

    /// Number of cables.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The port at the start of `link` gained or lost carrier.
    pub(crate) fn report(&mut self, now: Nanos, link: LinkId, up: bool, links: &LinkState) -> Report {
        let cable = &mut self.0[link.cable() as usize];
        let end = (link.0 & 1) as usize;
        if cable.down[end] != up {
            return Report::Same;
        }
        cable.down[end] = !up;
        cable.changes += 1;
        if now.saturating_sub(cable.last_failure) > MEMORY {
            cable.failures = 0;
        }
        if !up {
            // The other end reports the same failure.
            if !cable.down[1 - end] {
                cable.failures += 1;
                cable.last_failure = now;
            }
            return if links.is_up(link) { Report::Now(false) } else { Report::Same };
        }
        if cable.down[1 - end] {
            return Report::Same;
        }
        let Some(excess) = cable.failures.checked_sub(FREE_FAILURES + 1) else { return Report::Now(true) };
        let wait = Nanos(FIRST_WAIT.0.saturating_mul(1 << excess.min(20))).min(LONGEST_WAIT);
        Report::Later { at: now.saturating_add(wait), changes: cable.changes }
    }

    /// One direction of each cable that has carrier at both ends but is not used, with the number of its last change.
    /// Some of these cables are held back. The others must not be used, whatever their ports report.
    pub(crate) fn idle<'a>(&'a self, links: &'a LinkState) -> impl Iterator<Item = (LinkId, u64)> + 'a {
        let all = (0..).step_by(2).map(LinkId).zip(&self.0);
        all.filter(|&(link, _)| self.is_up(link) && !links.is_up(link)).map(|(link, cable)| (link, cable.changes))
    }

    /// Whether a cable that was held back at change number `changes` has been quiet since then.
    pub(crate) fn is_quiet(&self, link: LinkId, changes: u64) -> bool {
        self.0[link.cable() as usize].changes == changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::{FabricBuilder, LinkSettings, Tier};

    fn one_cable() -> (Fabric, LinkId) {
        let settings = LinkSettings { rate_bps: 1, delay_ps: 1, buffer_packets: 1 };
        let mut builder = FabricBuilder::new("pair");
        let (a, b) = (builder.switch("a", Tier::Tor, None), builder.switch("b", Tier::Tor, None));
        let link = builder.cable(a, b, settings);
        for (name, tor) in [("h", a), ("i", b)] {
            let host = builder.host(name, None);
            builder.cable(host, tor, settings);
        }
        (builder.build().unwrap(), link)
    }

    #[test]
    fn a_cable_is_up_when_both_ends_report_carrier() {
        let (fabric, link) = one_cable();
        let (mut cables, mut links) = (Cables::new(&fabric), LinkState::of(&fabric));
        let now = Nanos::from_secs(1);
        assert_eq!(cables.report(now, link, true, &links), Report::Same);
        assert_eq!(cables.report(now, link, false, &links), Report::Now(false));
        links.set_cable(link, false);
        assert_eq!(cables.report(now, link.reverse(), false, &links), Report::Same);
        assert_eq!(cables.report(now, link, true, &links), Report::Same);
        assert_eq!(cables.report(now, link.reverse(), true, &links), Report::Now(true));
    }

    #[test]
    fn a_flapping_cable_is_held_back_longer_and_longer() {
        let (fabric, link) = one_cable();
        let (mut cables, mut links) = (Cables::new(&fabric), LinkState::of(&fabric));
        let (mut now, mut waits) = (Nanos::from_secs(1), Vec::new());
        for _ in 0..7 {
            now += Nanos::from_millis(5);
            cables.report(now, link, false, &links);
            links.set_cable(link, false);
            now += Nanos::from_millis(5);
            match cables.report(now, link, true, &links) {
                Report::Now(true) => {
                    links.set_cable(link, true);
                    waits.push(0);
                }
                Report::Later { at, changes } => {
                    assert!(cables.is_quiet(link, changes));
                    waits.push((at - now).0 / 1_000_000);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waits, [0, 0, 0, 100, 200, 400, 800]);
        now += Nanos::from_secs(20);
        cables.report(now, link, false, &links);
        assert_eq!(cables.report(now, link, true, &links), Report::Now(true), "old failures are forgotten");
    }
}
