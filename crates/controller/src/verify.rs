//! The cabling that was found against the one that is configured: differences are named once, and a cable that no probe
//! gets through is not used, whatever carrier its ports report.

use pathloom_discovery::cabling::{compare, link_at, link_between, place_of};
use pathloom_discovery::{Dpid, Place};
use pathloom_model::{Fabric, LinkId, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A cable both of whose ports have been up for this long without a probe getting through is dead.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Between two looks at the whole, if nothing is found before.
const EVERY: Nanos = Nanos::from_secs(1);

/// What is known of the cables of a fabric. All places are by the convention of [`pathloom_discovery::cabling`].
pub(crate) struct Verifier {
    fabric: Arc<Fabric>,
    /// Since when ports have carrier and the session to their switch stands.
    up_since: BTreeMap<Place, Nanos>,
    dead: BTreeSet<LinkId>,
    said: BTreeSet<String>,
    right: bool,
    due: Nanos,
}

impl Verifier {
    pub(crate) fn new(fabric: Arc<Fabric>) -> Verifier {
        let (up_since, dead) = (BTreeMap::new(), BTreeSet::new());
        Verifier { fabric, up_since, dead, said: BTreeSet::new(), right: false, due: Nanos::ZERO }
    }

    /// A port has carrier, or has none. A dead cable that lost carrier is known to be down without us, and has another
    /// chance when it comes up again: returns the port at its other end, which has carrier as far as is known.
    pub(crate) fn port(&mut self, now: Nanos, place: Place, up: bool) -> Option<Place> {
        if up {
            self.up_since.entry(place).or_insert(now);
            return None;
        }
        self.up_since.remove(&place);
        let link = link_at(&self.fabric, place)?;
        let other = place_of(&self.fabric, link.reverse());
        (self.dead.remove(&even(link)) && self.up_since.contains_key(&other)).then_some(other)
    }

    /// The session to a switch ended: nothing is expected of its ports.
    pub(crate) fn switch_gone(&mut self, dpid: Dpid) {
        self.up_since.retain(|place, _| place.dpid != dpid);
    }

    /// Whether the cable of this port is not to be used though the port is up.
    pub(crate) fn is_dead(&self, place: Place) -> bool {
        link_at(&self.fabric, place).is_some_and(|link| self.dead.contains(&even(link)))
    }

    /// Probes do not get through any more. Returns the cable, if it is one of the fabric and was used until now.
    pub(crate) fn silent(&mut self, a: Place, b: Place) -> Option<LinkId> {
        let link = even(link_between(&self.fabric, a, b)?);
        self.due = Nanos::ZERO;
        self.dead.insert(link).then_some(link)
    }

    /// The next [`Verifier::review`] is to be at once.
    pub(crate) fn hurry(&mut self) {
        self.due = Nanos::ZERO;
    }

    /// What is different from the configuration, in words.
    pub(crate) fn differences(&self) -> impl Iterator<Item = &str> {
        self.said.iter().map(String::as_str)
    }

    /// Whether every cable was found where it belongs when last looked.
    #[cfg(test)]
    pub(crate) fn is_right(&self) -> bool {
        self.right
    }

    /// Compares what is found, if it is time to. Returns the cables that may be used from now on (true) or not (false).
    pub(crate) fn review(
        &mut self,
        now: Nanos,
        found: impl IntoIterator<Item = (Place, Place)>,
    ) -> Vec<(LinkId, bool)> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now.saturating_add(EVERY);
        let fabric = self.fabric.clone();
        let mut report = compare(&fabric, found);
        report.missing.retain(|&link| self.dead.contains(&even(link)) || self.is_overdue(now, link));
        let miscabled = report.miscabled.iter().map(|wrong| wrong.wanted).filter(|&link| fabric.is_switch_link(link));
        let dead: BTreeSet<LinkId> = report.missing.iter().copied().chain(miscabled).map(even).collect();
        let changes = dead.symmetric_difference(&self.dead).map(|&link| (link, self.dead.contains(&link))).collect();
        self.dead = dead;
        let failed: BTreeSet<LinkId> = fabric.failed_links().iter().copied().map(even).collect();
        let all = fabric.switch_cables().filter(|&link| !failed.contains(&even(link))).count();
        self.say(report.lines(&fabric).collect(), report.is_right() && report.right >= all);
        changes
    }

    /// Whether a probe should have got through long since.
    fn is_overdue(&self, now: Nanos, link: LinkId) -> bool {
        [link, link.reverse()].into_iter().all(|link| {
            let since = self.up_since.get(&place_of(&self.fabric, link));
            since.is_some_and(|&since| now.saturating_sub(since) >= PATIENCE)
        })
    }

    fn say(&mut self, lines: BTreeSet<String>, right: bool) {
        for line in lines.difference(&self.said) {
            tracing::warn!("cabling: {line}");
        }
        for line in self.said.difference(&lines) {
            tracing::info!("cabling: not any more: {line}");
        }
        self.said = lines;
        if right && !self.right {
            tracing::info!("cabling: every cable is as configured");
        }
        self.right = right;
    }
}

/// The name of a cable: its first direction.
fn even(link: LinkId) -> LinkId {
    link.min(link.reverse())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::fabric_from_spec;

    type Found = Vec<(Place, Place)>;

    fn k4() -> (Verifier, Found) {
        let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
        let found: Found =
            fabric.switch_cables().map(|link| (place_of(&fabric, link), place_of(&fabric, link.reverse()))).collect();
        let mut verifier = Verifier::new(fabric);
        for (a, b) in &found {
            verifier.port(Nanos::from_secs(1), *a, true);
            verifier.port(Nanos::from_secs(1), *b, true);
        }
        (verifier, found)
    }

    #[test]
    fn a_cable_is_dead_when_it_was_silent_long_and_lives_again_when_it_speaks() {
        let (mut verifier, mut found) = k4();
        let lost = found.pop().unwrap();
        let link = even(link_between(&verifier.fabric, lost.0, lost.1).unwrap());
        assert_eq!(verifier.review(Nanos::from_secs(10), found.iter().copied()), []);
        assert_eq!(verifier.review(Nanos::from_secs(11), found.iter().copied()), [(link, false)]);
        assert!(verifier.is_dead(lost.0) && verifier.is_dead(lost.1));
        assert_eq!(verifier.differences().count(), 1);
        assert_eq!(verifier.review(Nanos::from_secs(12), found.iter().copied()), []);
        found.push(lost);
        assert_eq!(verifier.review(Nanos::from_secs(13), found.iter().copied()), [(link, true)]);
        assert!(!verifier.is_dead(lost.0) && verifier.right);
        assert_eq!(verifier.silent(lost.1, lost.0), Some(link));
        assert_eq!(verifier.silent(lost.0, lost.1), None, "known by now");
        found.pop();
        assert_eq!(verifier.review(Nanos::from_secs(14), found.iter().copied()), [], "and stays so");
        assert!(verifier.is_dead(lost.0));
    }

    #[test]
    fn ports_without_carrier_or_session_are_not_waited_for() {
        let (mut verifier, mut found) = k4();
        let (lost, other) = (found.pop().unwrap(), found.remove(0));
        assert_eq!(verifier.port(Nanos::from_secs(2), lost.1, false), None);
        verifier.switch_gone(other.0.dpid);
        assert_eq!(verifier.review(Nanos::from_secs(60), found.iter().copied()), []);
        verifier.port(Nanos::from_secs(60), lost.1, true);
        assert_eq!(verifier.review(Nanos::from_secs(65), found.iter().copied()), []);
        assert_eq!(verifier.review(Nanos::from_secs(70), found.iter().copied()).len(), 1);
        assert_eq!(verifier.port(Nanos::from_secs(71), lost.1, false), Some(lost.0), "no more our affair");
        assert!(!verifier.is_dead(lost.0));
    }

    #[test]
    fn swapped_cables_are_not_used() {
        let (mut verifier, mut found) = k4();
        let (one, two) = (found[0], found[9]);
        (found[0], found[9]) = ((one.0, two.1), (two.0, one.1));
        let changes = verifier.review(Nanos::from_secs(2), found.iter().copied());
        assert_eq!(changes.len(), 2);
        assert!(changes.iter().all(|&(_, up)| !up));
        (found[0], found[9]) = (one, two);
        let changes = verifier.review(Nanos::from_secs(3), found.iter().copied());
        assert!(changes.len() == 2 && changes.iter().all(|&(_, up)| up));
    }
}
