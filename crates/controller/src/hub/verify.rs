//! Compares the cabling found with the configured one. Differences are logged once. Cables at other ports than
//! configured are used if that is safe. A cable that carries no probe is not used, even if its ports report a
//! carrier.

use pathloom_discovery::cabling::{compare, link_at, link_between, place_of};
use pathloom_discovery::wiring::{adopted, adopted_line, match_cables, Wiring};
use pathloom_discovery::{Dpid, Place};
use pathloom_model::{Fabric, LinkId, Nanos, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A cable is dead if both of its ports have been up for this long and no probe has arrived.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Time between two comparisons, unless a change causes an earlier one.
const EVERY: Nanos = Nanos::from_secs(1);

/// The state of the cables of a fabric. All places follow the convention of [`pathloom_discovery::cabling`]. Ports have
/// the numbers of the switch unless stated otherwise.
pub(crate) struct Verifier {
    fabric: Arc<Fabric>,
    /// The fabric's numbers of the ports of switches.
    wiring: Wiring,
    /// Time since which a port has carrier and its switch has a session.
    up_since: BTreeMap<Place, Nanos>,
    dead: BTreeSet<LinkId>,
    logged: BTreeSet<String>,
    adopted: BTreeSet<String>,
    right: bool,
    due: Nanos,
}

/// Changes that a comparison found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changes {
    /// Switches whose port numbers have changed.
    pub rewired: Vec<NodeId>,
    /// Cables that may be used from now on (true) or not (false).
    pub cables: Vec<(LinkId, bool)>,
}

impl Verifier {
    pub(crate) fn new(fabric: Arc<Fabric>) -> Verifier {
        Verifier {
            fabric,
            wiring: Wiring::default(),
            up_since: BTreeMap::new(),
            dead: BTreeSet::new(),
            logged: BTreeSet::new(),
            adopted: BTreeSet::new(),
            right: false,
            due: Nanos::ZERO,
        }
    }

    /// The fabric's numbers of the ports of switches.
    pub(crate) fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// The fabric's numbers, mutable, to restore those that an earlier start found.
    pub(crate) fn wiring_mut(&mut self) -> &mut Wiring {
        &mut self.wiring
    }

    /// Handles a port that got or lost carrier. A dead cable that loses carrier is no longer marked as dead, because
    /// its port reports it as down. It is tried again when the port comes up. In this case, returns the port at the
    /// other end, by the fabric's number, if it still has carrier.
    pub(crate) fn port(&mut self, now: Nanos, place: Place, up: bool) -> Option<Place> {
        if up {
            self.up_since.entry(place).or_insert(now);
            return None;
        }
        self.up_since.remove(&place);
        let link = link_at(&self.fabric, self.wiring.in_fabric(&self.fabric, place))?;
        let other = place_of(&self.fabric, link.reverse());
        (self.dead.remove(&even(link)) && self.is_up(other)).then_some(other)
    }

    /// Whether a port of the fabric has carrier and its switch has a session.
    pub(crate) fn is_up(&self, in_fabric: Place) -> bool {
        self.up_since.contains_key(&self.wiring.at_switch(&self.fabric, in_fabric))
    }

    /// Handles the end of a switch's session: no probes are expected from its ports.
    pub(crate) fn switch_gone(&mut self, dpid: Dpid) {
        self.up_since.retain(|place, _| place.dpid != dpid);
    }

    /// Whether the cable of this port of the fabric must not be used although the port is up.
    pub(crate) fn is_dead(&self, in_fabric: Place) -> bool {
        link_at(&self.fabric, in_fabric).is_some_and(|link| self.dead.contains(&even(link)))
    }

    /// Handles a cable over which probes no longer arrive. Returns the cable if it is one of the fabric and was used
    /// until now.
    pub(crate) fn silent(&mut self, a: Place, b: Place) -> Option<LinkId> {
        let [a, b] = [a, b].map(|place| self.wiring.in_fabric(&self.fabric, place));
        let link = even(link_between(&self.fabric, a, b)?);
        self.due = Nanos::ZERO;
        self.dead.insert(link).then_some(link)
    }

    /// Makes the next [`Verifier::review`] compare at once.
    pub(crate) fn review_soon(&mut self) {
        self.due = Nanos::ZERO;
    }

    /// Unused cabling that differs from the configuration, as text.
    pub(crate) fn differences(&self) -> impl Iterator<Item = &str> {
        self.logged.iter().map(String::as_str)
    }

    /// Cables that are used at other ports than configured, as text.
    pub(crate) fn adopted(&self) -> impl Iterator<Item = &str> {
        self.adopted.iter().map(String::as_str)
    }

    /// Whether the last comparison found every cable at its configured ports.
    #[cfg(test)]
    pub(crate) fn is_right(&self) -> bool {
        self.right
    }

    /// Whether a comparison is due.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// Compares the cabling if a comparison is due.
    pub(crate) fn review(&mut self, now: Nanos, found: &[(Place, Place)]) -> Changes {
        if !self.is_due(now) {
            return Changes::default();
        }
        self.due = now.saturating_add(EVERY);
        let fabric = self.fabric.clone();
        let wiring = match_cables(&fabric, found, &self.wiring);
        let is_same = |&switch: &NodeId| wiring.at(switch) == self.wiring.at(switch);
        let rewired = fabric.switches().iter().copied().filter(|switch| !is_same(switch)).collect();
        self.wiring = wiring;
        let in_fabric = |place: Place| self.wiring.in_fabric(&fabric, place);
        let mut report = compare(&fabric, found.iter().map(|&(a, b)| (in_fabric(a), in_fabric(b))));
        report.missing.retain(|&link| self.dead.contains(&even(link)) || self.is_overdue(now, link));
        let miscabled = report.miscabled.iter().map(|wrong| wrong.wanted).filter(|&link| fabric.is_switch_link(link));
        let dead: BTreeSet<LinkId> = report.missing.iter().copied().chain(miscabled).map(even).collect();
        let cables = dead.symmetric_difference(&self.dead).map(|&link| (link, self.dead.contains(&link))).collect();
        self.dead = dead;
        let failed: BTreeSet<LinkId> = fabric.failed_links().iter().copied().map(even).collect();
        let all = fabric.switch_cables().filter(|&link| !failed.contains(&even(link))).count();
        let right = report.is_right() && report.right >= all;
        // In texts, ports have the numbers of the switch.
        report.miscabled = compare(&fabric, found.iter().copied()).miscabled;
        report.miscabled.retain(|wrong| link_between(&fabric, in_fabric(wrong.at), in_fabric(wrong.found)).is_none());
        let used: BTreeSet<String> =
            adopted(&fabric, found, &self.wiring).iter().map(|cable| adopted_line(&fabric, cable)).collect();
        self.log_changes(report.lines(&fabric).collect(), used, right);
        Changes { rewired, cables }
    }

    /// Whether both ports of a cable have been up for so long that a probe should have arrived.
    fn is_overdue(&self, now: Nanos, link: LinkId) -> bool {
        [link, link.reverse()].into_iter().all(|link| {
            let place = self.wiring.at_switch(&self.fabric, place_of(&self.fabric, link));
            let since = self.up_since.get(&place);
            since.is_some_and(|&since| now.saturating_sub(since) >= PATIENCE)
        })
    }

    fn log_changes(&mut self, lines: BTreeSet<String>, adopted: BTreeSet<String>, right: bool) {
        for line in lines.difference(&self.logged).chain(adopted.difference(&self.adopted)) {
            tracing::warn!("cabling: {line}");
        }
        for line in self.logged.difference(&lines).chain(self.adopted.difference(&adopted)) {
            tracing::info!("cabling: no longer: {line}");
        }
        if right && adopted.is_empty() && !(self.right && self.adopted.is_empty()) {
            tracing::info!("cabling: every cable is as configured");
        }
        (self.logged, self.adopted, self.right) = (lines, adopted, right);
    }
}

/// The identifier of a cable: the smaller one of its two directions.
fn even(link: LinkId) -> LinkId {
    link.min(link.reverse())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_discovery::cabling::dpid_of;
    use pathloom_fabrics::fabric_from_spec;

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
    fn a_silent_cable_is_dead_until_probes_arrive_again() {
        let (mut verifier, mut found) = k4();
        let lost = found.pop().unwrap();
        let link = even(link_between(&verifier.fabric, lost.0, lost.1).unwrap());
        assert_eq!(verifier.review(Nanos::from_secs(10), &found).cables, []);
        assert_eq!(verifier.review(Nanos::from_secs(11), &found).cables, [(link, false)]);
        assert!(verifier.is_dead(lost.0) && verifier.is_dead(lost.1));
        assert_eq!(verifier.differences().count(), 1);
        assert_eq!(verifier.review(Nanos::from_secs(12), &found).cables, []);
        found.push(lost);
        assert_eq!(verifier.review(Nanos::from_secs(13), &found).cables, [(link, true)]);
        assert!(!verifier.is_dead(lost.0) && verifier.right);
        assert_eq!(verifier.silent(lost.1, lost.0), Some(link));
        assert_eq!(verifier.silent(lost.0, lost.1), None, "known by now");
        found.pop();
        assert_eq!(verifier.review(Nanos::from_secs(14), &found).cables, [], "and stays so");
        assert!(verifier.is_dead(lost.0));
    }

    #[test]
    fn no_probes_are_expected_from_ports_without_carrier_or_session() {
        let (mut verifier, mut found) = k4();
        let (lost, other) = (found.pop().unwrap(), found.remove(0));
        assert_eq!(verifier.port(Nanos::from_secs(2), lost.1, false), None);
        verifier.switch_gone(other.0.dpid);
        assert_eq!(verifier.review(Nanos::from_secs(60), &found).cables, []);
        verifier.port(Nanos::from_secs(60), lost.1, true);
        assert_eq!(verifier.review(Nanos::from_secs(65), &found).cables, []);
        assert_eq!(verifier.review(Nanos::from_secs(70), &found).cables.len(), 1);
        assert_eq!(verifier.port(Nanos::from_secs(71), lost.1, false), Some(lost.0), "the port reports it as down");
        assert!(!verifier.is_dead(lost.0));
    }

    #[test]
    fn cables_swapped_between_pods_are_not_used() {
        let (mut verifier, mut found) = k4();
        let (one, two) = (found[0], found[9]);
        (found[0], found[9]) = ((one.0, two.1), (two.0, one.1));
        let changes = verifier.review(Nanos::from_secs(2), &found);
        assert_eq!((changes.cables.len(), changes.rewired), (2, vec![]));
        assert!(changes.cables.iter().all(|&(_, up)| !up));
        assert_eq!((verifier.differences().count(), verifier.adopted().count()), (4, 0));
        (found[0], found[9]) = (one, two);
        let changes = verifier.review(Nanos::from_secs(3), &found);
        assert!(changes.cables.len() == 2 && changes.cables.iter().all(|&(_, up)| up));
    }

    #[test]
    fn swapped_uplinks_of_a_tor_are_used_at_once_and_named_by_the_numbers_on_the_switch() {
        let (mut verifier, mut found) = k4();
        verifier.review(Nanos::from_secs(2), &found);
        let fabric = verifier.fabric.clone();
        let tor = fabric.find("e0_0").unwrap();
        let own = |place: Place| place.dpid == dpid_of(tor);
        let of_tor: Vec<usize> = (0..found.len()).filter(|&index| own(found[index].0)).collect();
        let &[one, two] = &of_tor[..] else { panic!("{of_tor:?}") };
        let far = (found[one].1, found[two].1);
        (found[one].1, found[two].1) = (far.1, far.0);
        let changes = verifier.review(Nanos::from_secs(3), &found);
        assert_eq!(changes, Changes { rewired: vec![tor], cables: vec![] }, "no cable is out of use for a moment");
        assert_eq!((verifier.differences().count(), verifier.adopted().count()), (0, 2));
        let line = verifier.adopted().next().unwrap();
        assert_eq!(line, "the cable from e0_0 port 3 leads to a0_1 port 1; it is used as that of e0_0 port 4");
        // A change of a port applies to the cable as which it is used.
        let (place, other) = found[one];
        assert!(verifier.is_up(place_of(&fabric, link_at(&fabric, other).unwrap().reverse())));
        let cable = verifier.silent(place, other).unwrap();
        assert_eq!(cable, even(link_at(&fabric, other).unwrap()));
        assert!(verifier.is_dead(other) && !verifier.is_dead(far.0));
        // Swapped back.
        (found[one].1, found[two].1) = far;
        let changes = verifier.review(Nanos::from_secs(4), &found);
        assert_eq!((changes.rewired, changes.cables), (vec![tor], vec![(cable, true)]));
        assert!(verifier.right && verifier.adopted().count() == 0);
    }
}
