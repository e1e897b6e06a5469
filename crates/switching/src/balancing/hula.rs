//! HULA (Katta et al. 2016, SOSR): probes tell each switch its best next hop to each ToR.
//!
//! Each ToR sends probes in turn. A probe collects the utilisation of the busiest link on the way back to its ToR. A switch keeps the
//! best next hop for each ToR and passes on probes that changed or confirmed it: those from below to all other switches, those
//! from above only down, those from the same tier nowhere. A new flowlet takes the best next hop, at each switch on its way.

use super::flowlets::Flowlets;
use super::rate_estimator::RateEstimator;
use super::{Balancer, Neighbour, Passing, Probe};
use crate::selection::{PortState, PortView};
use pathloom_model::Nanos;
use std::cmp::Ordering;

/// Settings of HULA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HulaSettings {
    /// Shortest pause between two flowlets. The paper has 100 us.
    pub gap: Nanos,
    /// Time between two probes of a ToR. The paper has 200 us.
    pub probe: Nanos,
}

impl Default for HulaSettings {
    fn default() -> HulaSettings {
        HulaSettings { gap: Nanos::from_micros(100), probe: Nanos::from_micros(200) }
    }
}

/// Utilisation of a full link in a probe, which has eight bits for it.
const FULL: u32 = 255;
/// The time constant of a link's rate is twice the time between two probes (§5).
const TAU_PROBES: u64 = 2;
/// A next hop whose probes are missing for this many times is no longer the best one (§3.5).
const MOST_MISSING: u64 = 3;

/// The best next hop for a ToR.
#[derive(Clone, Copy, Debug)]
struct Best {
    port: u32,
    utilisation: u32,
    at: Nanos,
}

/// HULA at one switch.
pub struct Hula {
    settings: HulaSettings,
    ports: Vec<(Neighbour, RateEstimator)>,
    /// By number of the ToR.
    best: Vec<Option<Best>>,
    flowlets: Flowlets,
    /// The number of this ToR and the time of its next probes; `None` for other switches.
    probes: Option<(u32, Nanos)>,
}

impl Hula {
    /// For a switch with these neighbours, in a fabric with this many ToRs. `tor` is the number of this switch, if it is a ToR, and
    /// the time of its first probes.
    pub fn new(settings: HulaSettings, neighbours: &[Neighbour], tors: usize, tor: Option<(u32, Nanos)>) -> Hula {
        let ports = neighbours.iter().map(|&of| (of, RateEstimator::default())).collect();
        Hula { settings, ports, best: vec![None; tors], flowlets: Flowlets::new(settings.gap), probes: tor }
    }

    fn utilisation(&mut self, now: Nanos, place: usize, state: PortState) -> u32 {
        let tau = Nanos(self.settings.probe.0.saturating_mul(TAU_PROBES));
        self.ports[place].1.level(now, state, tau, FULL)
    }

    /// Whether probes from this next hop are missing.
    fn is_silent(&self, now: Nanos, best: &Best) -> bool {
        now.0.saturating_sub(best.at.0) > self.settings.probe.0.saturating_mul(MOST_MISSING)
    }
}

impl Balancer for Hula {
    fn choose(
        &mut self,
        packet: &Passing,
        ports: &[u32],
        _view: &dyn PortView,
        _draw: &mut dyn FnMut() -> u32,
    ) -> Option<usize> {
        let place = |port: u32| ports.iter().position(|&known| known == port);
        let last = self.flowlets.last(packet).filter(|&(_, goes_on)| goes_on);
        let best = || self.best[packet.dst_tor as usize].filter(|best| !self.is_silent(packet.now, best));
        let chosen = last.and_then(|(port, _)| place(port)).or_else(|| place(best()?.port))?;
        self.flowlets.note(packet, ports[chosen]);
        Some(chosen)
    }

    fn forward(&mut self, packet: &Passing, _port: u32, _state: PortState) -> u32 {
        packet.note
    }

    fn deliver(&mut self, _packet: &Passing) {}

    fn poll_timeout(&self) -> Option<Nanos> {
        self.probes.map(|(_, at)| at)
    }

    fn handle_timeout(&mut self, now: Nanos, sent: &mut Vec<(u32, Probe)>) {
        let Some((tor, at)) = &mut self.probes else { return };
        if *at > now {
            return;
        }
        *at = Nanos(now.0.saturating_add(self.settings.probe.0.max(1)));
        let tor = *tor;
        sent.extend(self.ports.iter().map(|(to, _)| (to.port, Probe { tor, note: 0 })));
    }

    fn handle_probe(&mut self, now: Nanos, port: u32, state: PortState, probe: Probe, sent: &mut Vec<(u32, Probe)>) {
        let from = self.ports.iter().position(|(of, _)| of.port == port);
        let (Some(from), false) = (from, self.probes.is_some_and(|(own, _)| own == probe.tor)) else { return };
        let utilisation = probe.note.max(self.utilisation(now, from, state)).min(FULL);
        let Some(&known) = self.best.get(probe.tor as usize) else { return };
        let is_better =
            known.is_none_or(|best| best.port == port || utilisation < best.utilisation || self.is_silent(now, &best));
        if !is_better {
            return;
        }
        self.best[probe.tor as usize] = Some(Best { port, utilisation, at: now });
        let from_tier = self.ports[from].0.tier;
        let goes_on = |to: &&Neighbour| match (from_tier, to.tier) {
            (Ordering::Less, Ordering::Less | Ordering::Greater) => to.port != port,
            (Ordering::Greater, Ordering::Less) => true,
            // Between switches of one tier a probe could go round for ever.
            _ => false,
        };
        let to = self.ports.iter().map(|(to, _)| to).filter(goes_on);
        sent.extend(to.map(|to| (to.port, Probe { note: utilisation, ..probe })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancing::Segment;

    const IDLE: PortState = PortState { queue_bytes: 0, sent_bytes: 0, rate_bps: 1_000_000_000, is_up: true };
    /// Half of what the link can send within 400 us.
    const HALF: PortState = PortState { sent_bytes: 25_000, ..IDLE };

    struct Unseen;

    impl PortView for Unseen {
        fn state(&self, _port: usize) -> PortState {
            IDLE
        }
    }

    /// An aggregation switch with two ToRs below and two core switches above.
    fn aggregation() -> Hula {
        let of = |port, tier| Neighbour { port, tier };
        let (below, above) = (Ordering::Less, Ordering::Greater);
        let of_one_tier = of(9, Ordering::Equal);
        let neighbours = [of(1, below), of(2, below), of(3, above), of(4, above), of_one_tier];
        Hula::new(HulaSettings::default(), &neighbours, 5, None)
    }

    fn probe(hula: &mut Hula, us: u64, port: u32, state: PortState, note: u32) -> Vec<(u32, u32)> {
        let mut sent = Vec::new();
        hula.handle_probe(Nanos::from_micros(us), port, state, Probe { tor: 3, note }, &mut sent);
        assert!(sent.iter().all(|(_, probe)| probe.tor == 3));
        sent.into_iter().map(|(port, probe)| (port, probe.note)).collect()
    }

    fn chosen(hula: &mut Hula, us: u64, flow: u32, ports: &[u32]) -> Option<usize> {
        let now = Nanos::from_micros(us);
        let segment = Segment::Data { end: 0 };
        let packet = Passing { now, flow, connection: 0, src_tor: 0, dst_tor: 3, from_host: false, note: 0, segment };
        hula.choose(&packet, ports, &Unseen, &mut || 0)
    }

    #[test]
    fn probes_spread_up_and_down_but_never_up_again() {
        let mut hula = aggregation();
        assert_eq!(probe(&mut hula, 1, 1, IDLE, 0), [(2, 0), (3, 0), (4, 0)]);
        let mut other = aggregation();
        assert_eq!(probe(&mut other, 1, 3, HALF, 9), [(1, 127), (2, 127)], "the busier of the probe and the own link");
        assert_eq!(probe(&mut other, 2, 4, IDLE, 200), [], "not better");
        assert_eq!(probe(&mut other, 3, 4, IDLE, 100), [(1, 100), (2, 100)]);
        assert_eq!(probe(&mut other, 4, 4, IDLE, 130), [(1, 130), (2, 130)], "news of the best next hop");
        assert_eq!(probe(&mut other, 5, 7, IDLE, 0), [], "no such port");
        assert_eq!(probe(&mut other, 6, 9, IDLE, 0), [], "it may go round");
        assert_eq!(chosen(&mut other, 7, 1, &[4, 9]), Some(1), "but it counts");
    }

    #[test]
    fn flowlets_follow_the_best_next_hop_while_its_probes_arrive() {
        let mut hula = aggregation();
        let above = [3, 4];
        assert_eq!(chosen(&mut hula, 1, 1, &above), None, "no probe yet");
        probe(&mut hula, 2, 4, IDLE, 10);
        assert_eq!(chosen(&mut hula, 3, 1, &above), Some(1));
        probe(&mut hula, 4, 3, IDLE, 5);
        assert_eq!([chosen(&mut hula, 5, 1, &above), chosen(&mut hula, 5, 2, &above)], [Some(1), Some(0)]);
        assert_eq!(chosen(&mut hula, 105, 1, &above), Some(0), "after a pause");
        assert_eq!(chosen(&mut hula, 106, 1, &[4]), None, "the port is down");
        assert_eq!(chosen(&mut hula, 605, 3, &above), None, "three probes are missing");
        assert_eq!(probe(&mut hula, 606, 4, IDLE, 99), [(1, 99), (2, 99)]);
        assert_eq!(chosen(&mut hula, 607, 3, &above), Some(1));
    }

    #[test]
    fn a_tor_sends_probes_in_its_rhythm() {
        let above = [5, 6].map(|port| Neighbour { port, tier: Ordering::Greater });
        let mut tor = Hula::new(HulaSettings::default(), &above, 5, Some((3, Nanos::from_micros(7))));
        let mut sent = Vec::new();
        tor.handle_timeout(Nanos::from_micros(6), &mut sent);
        assert_eq!((sent.len(), tor.poll_timeout()), (0, Some(Nanos::from_micros(7))));
        tor.handle_timeout(Nanos::from_micros(7), &mut sent);
        assert_eq!(sent, [5, 6].map(|port| (port, Probe { tor: 3, note: 0 })));
        assert_eq!(tor.poll_timeout(), Some(Nanos::from_micros(207)));
        assert_eq!(probe(&mut tor, 208, 5, IDLE, 1), [], "its own probe came back");
        assert_eq!(aggregation().poll_timeout(), None);
    }
}
