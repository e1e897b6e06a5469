//! CONGA (Alizadeh et al. 2014, SIGCOMM): leaf switches tell each other how busy the paths between them are.
//!
//! A packet from a host gets a header at its leaf switch: the uplink that it takes, how busy the busiest link on its way is so far
//! (the fabric raises it), and a value for the other leaf: how busy the path is that this leaf's packets take from one of the uplinks
//! there. A new flowlet takes the uplink whose path is the least busy.

use super::flowlets::Flowlets;
use super::rate_estimator::RateEstimator;
use super::{Balancer, Neighbour, Passing};
use crate::selection::{PortState, PortView};
use pathloom_model::Nanos;

/// Settings of CONGA (§3.6 of the paper).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CongaSettings {
    /// Shortest pause between two flowlets. The paper has 500 us.
    pub gap: Nanos,
    /// Time constant of the rate of a link. The paper has 160 us.
    pub tau: Nanos,
}

impl Default for CongaSettings {
    fn default() -> CongaSettings {
        CongaSettings { gap: Nanos::from_micros(500), tau: Nanos::from_micros(160) }
    }
}

/// The highest congestion: three bits (§3.6).
const MOST_CONGESTED: u32 = 7;
/// After this time without feedback, a congestion falls by one, and again after each further one: the paper lets it decay
/// gradually after 10 ms (§3.3).
const AGE: Nanos = Nanos::from_millis(10);
/// Most uplinks that a header can tell apart. The paper has four bits; this has six, for larger switches.
const MOST_UPLINKS: usize = 64;

/// The header of a packet in the fabric, as the note of 24 bits: uplink (6 bits), congestion (3), uplink of the feedback (6), its
/// congestion (3), whether there is feedback (1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Header {
    uplink: u32,
    congestion: u32,
    feedback: Option<(u32, u32)>,
}

impl Header {
    fn to_note(self) -> u32 {
        let feedback = self.feedback.map_or(0, |(uplink, congestion)| 1 << 18 | congestion << 15 | uplink << 9);
        self.uplink | self.congestion << 6 | feedback
    }

    fn of_note(note: u32) -> Header {
        let feedback = (note >> 9 & 63, note >> 15 & 7);
        Header { uplink: note & 63, congestion: note >> 6 & 7, feedback: (note >> 18 & 1 != 0).then_some(feedback) }
    }
}

/// Congestion of a path to another leaf, as that leaf has reported it.
#[derive(Clone, Copy, Debug, Default)]
struct Remote {
    congestion: u32,
    at: Nanos,
}

/// Congestion of a path from another leaf, as packets have shown it.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    congestion: u32,
    /// Whether it has changed since it was last reported.
    is_news: bool,
    is_known: bool,
}

/// What a leaf knows of another one, by uplink.
#[derive(Clone, Debug, Default)]
struct OtherLeaf {
    to: Vec<Remote>,
    from: Vec<Observed>,
    /// Uplink of the next report, unless others are news.
    next: usize,
}

/// CONGA at one switch. Switches of the fabric only raise the congestion in headers.
pub struct Conga {
    settings: CongaSettings,
    /// Ports to other switches, with how busy they are.
    ports: Vec<(u32, RateEstimator)>,
    /// By number of the leaf.
    leaves: Vec<OtherLeaf>,
    flowlets: Flowlets,
}

impl Conga {
    /// For a switch with these neighbours.
    pub fn new(settings: CongaSettings, neighbours: &[Neighbour]) -> Conga {
        let ports = neighbours.iter().map(|of| (of.port, RateEstimator::default())).collect();
        Conga { settings, ports, leaves: Vec::new(), flowlets: Flowlets::new(settings.gap) }
    }

    fn place(&self, port: u32) -> usize {
        self.ports.iter().position(|&(known, _)| known == port).unwrap_or(0)
    }

    fn busy(&mut self, now: Nanos, place: usize, state: PortState) -> u32 {
        let tau = self.settings.tau;
        let level = self.ports[place].1.level(now, state, tau, MOST_CONGESTED + 1);
        level.min(MOST_CONGESTED)
    }

    /// Congestion of the path to a leaf over an uplink: that of the uplink or that of the rest, whichever is higher.
    fn congestion(&mut self, now: Nanos, leaf: u32, port: u32, state: PortState) -> u32 {
        let place = self.place(port);
        let local = self.busy(now, place, state);
        let remote = self.leaves.get(leaf as usize).and_then(|leaf| leaf.to.get(place)).copied().unwrap_or_default();
        let faded = now.0.saturating_sub(remote.at.0) / AGE.0;
        local.max(remote.congestion.saturating_sub(faded.min(7) as u32))
    }

    /// Places of the uplinks with the least congestion on the way to the ToR of a packet's receiver.
    fn least_congested(&mut self, packet: &Passing, ports: &[u32], view: &dyn PortView) -> Vec<usize> {
        let congestion = |(place, &port)| self.congestion(packet.now, packet.dst_tor, port, view.state(place));
        let all: Vec<u32> = ports.iter().enumerate().map(congestion).collect();
        let least = all.iter().min();
        (0..all.len()).filter(|&place| all.get(place) == least).collect()
    }
}

impl OtherLeaf {
    /// The next report for this leaf: news first, otherwise in turn (§3.3).
    fn next_report(&mut self) -> Option<(u32, u32)> {
        let count = self.from.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count);
        let known = in_turn.filter(|&place| self.from[place].is_known);
        let place = known.clone().find(|&place| self.from[place].is_news).or(known.clone().next())?;
        self.next = place + 1;
        self.from[place].is_news = false;
        Some((place as u32, self.from[place].congestion))
    }

    fn observe(&mut self, uplink: usize, congestion: u32) {
        let from = grown(&mut self.from, uplink);
        let is_news = from.is_news || !from.is_known || from.congestion != congestion;
        *from = Observed { congestion, is_news, is_known: true };
    }
}

fn grown<T: Clone + Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    list.resize(list.len().max(place + 1), T::default());
    &mut list[place]
}

impl Balancer for Conga {
    fn choose(
        &mut self,
        packet: &Passing,
        ports: &[u32],
        view: &dyn PortView,
        draw: &mut dyn FnMut() -> u32,
    ) -> Option<usize> {
        // Above the leaf switches, ecmp chooses (§7).
        if !packet.from_host {
            return None;
        }
        let last = self.flowlets.last(packet);
        let last_place = last.and_then(|(port, _)| ports.iter().position(|&known| known == port));
        let place = match (last, last_place) {
            (Some((_, true)), Some(place)) => place,
            _ => {
                let best = self.least_congested(packet, ports, view);
                // A flow moves only to a path that is less busy (§3.5).
                let drawn = || best[((u64::from(draw()) * best.len() as u64) >> 32) as usize];
                last_place.filter(|place| best.contains(place)).unwrap_or_else(drawn)
            }
        };
        self.flowlets.note(packet, ports[place]);
        Some(place)
    }

    fn forward(&mut self, packet: &Passing, port: u32, state: PortState) -> u32 {
        let place = self.place(port);
        let header = match packet.from_host {
            true => {
                let feedback = grown(&mut self.leaves, packet.dst_tor as usize).next_report();
                Header { uplink: (place % MOST_UPLINKS) as u32, congestion: 0, feedback }
            }
            false => Header::of_note(packet.note),
        };
        let congestion = header.congestion.max(self.busy(packet.now, place, state));
        Header { congestion, ..header }.to_note()
    }

    fn deliver(&mut self, packet: &Passing) {
        let header = Header::of_note(packet.note);
        let leaf = grown(&mut self.leaves, packet.src_tor as usize);
        leaf.observe(header.uplink as usize, header.congestion);
        if let Some((uplink, congestion)) = header.feedback {
            *grown(&mut leaf.to, uplink as usize) = Remote { congestion, at: packet.now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancing::Segment;
    use std::cmp::Ordering;

    /// Ports of 1 Gbit/s that have sent this many bytes.
    struct Sent<'a>(&'a [u64]);

    impl PortView for Sent<'_> {
        fn state(&self, port: usize) -> PortState {
            PortState { queue_bytes: 0, sent_bytes: self.0[port], rate_bps: 1_000_000_000, is_up: true }
        }
    }

    const UPLINKS: [u32; 3] = [10, 12, 14];

    fn leaf() -> Conga {
        let above = UPLINKS.map(|port| Neighbour { port, tier: Ordering::Greater });
        Conga::new(CongaSettings::default(), &above)
    }

    fn packet(us: u64, flow: u32, from_host: bool) -> Passing {
        let (src_tor, dst_tor) = if from_host { (0, 1) } else { (1, 0) };
        let now = Nanos::from_micros(us);
        let segment = Segment::Data { end: 0 };
        Passing { now, flow, connection: 0, src_tor, dst_tor, from_host, note: 0, segment }
    }

    /// A packet from a host of leaf 0 to leaf 1, after this many microseconds.
    fn up(us: u64, flow: u32) -> Passing {
        packet(us, flow, true)
    }

    /// A packet from leaf 1.
    fn down(us: u64) -> Passing {
        packet(us, 9, false)
    }

    fn with_note(packet: Passing, note: u32) -> Passing {
        Passing { note, ..packet }
    }

    #[test]
    fn headers_fit_notes() {
        for header in [
            Header { uplink: 63, congestion: 7, feedback: Some((63, 7)) },
            Header { uplink: 5, congestion: 2, feedback: Some((0, 0)) },
            Header { uplink: 0, congestion: 0, feedback: None },
        ] {
            let note = header.to_note();
            assert!(note < 1 << super::super::NOTE_BITS);
            assert_eq!(Header::of_note(note), header);
        }
    }

    #[test]
    fn flowlets_take_the_uplink_that_is_the_least_busy() {
        let mut conga = leaf();
        // 20 kB within 160 us are 1 Gbit/s.
        let sent = [15_000, 3000, 9000];
        let mut choose = |us, sent: &[u64; 3]| conga.choose(&up(us, 1), &UPLINKS, &Sent(sent), &mut || 0);
        assert_eq!(choose(1, &sent), Some(1));
        let busy = [15_000, 30_000, 9000];
        assert_eq!(choose(400, &busy), Some(1), "the flowlet goes on");
        assert_eq!(choose(901, &busy), Some(0), "a pause has ended the flowlet, and the uplink has become busy");
        assert_eq!(choose(9000, &busy), Some(0), "all are idle, so it stays");
        assert_eq!(choose(9501, &[35_000, 30_000, 9000]), Some(1), "its uplink is busy: one of the others at random");
    }

    #[test]
    fn feedback_of_the_other_leaf_counts_until_it_is_old() {
        let mut conga = leaf();
        let idle = Sent(&[0; 3]);
        for (uplink, congestion) in [(0, 5), (1, 6), (2, 4)] {
            conga.deliver(&with_note(
                down(1),
                Header { feedback: Some((uplink, congestion)), ..Header::default() }.to_note(),
            ));
        }
        let mut choose = |us, flow| conga.choose(&up(us, flow), &UPLINKS, &idle, &mut || 0);
        assert_eq!(choose(2, 1), Some(2));
        assert_eq!(choose(9000, 2), Some(2));
        assert_eq!(choose(60_001, 3), Some(0), "after five times 10 ms, two of them are forgotten");
        assert_eq!(choose(80_001, 4), Some(0), "all of them");
    }

    #[test]
    fn each_leaf_reports_the_paths_from_the_other_one_in_turn_and_news_first() {
        let mut conga = leaf();
        let idle = PortState { queue_bytes: 0, sent_bytes: 0, rate_bps: 1_000_000_000, is_up: true };
        for (uplink, congestion) in [(0, 3), (1, 4), (2, 0)] {
            conga.deliver(&with_note(down(1), Header { uplink, congestion, feedback: None }.to_note()));
        }
        let report = |conga: &mut Conga| Header::of_note(conga.forward(&up(2, 1), 12, idle)).feedback;
        let turns: Vec<_> = (0..4).map(|_| report(&mut conga)).collect();
        assert_eq!(turns, [Some((0, 3)), Some((1, 4)), Some((2, 0)), Some((0, 3))]);
        conga.deliver(&with_note(down(3), Header { uplink: 0, congestion: 6, feedback: None }.to_note()));
        assert_eq!(report(&mut conga), Some((0, 6)), "news before its turn");
        assert_eq!(report(&mut conga), Some((1, 4)));
    }

    #[test]
    fn the_fabric_raises_the_congestion_of_a_path() {
        let mut spine = leaf();
        let full = PortState { queue_bytes: 0, sent_bytes: 1 << 20, rate_bps: 1_000_000_000, is_up: true };
        let header = Header { uplink: 2, congestion: 3, feedback: Some((1, 2)) };
        let raised = Header::of_note(spine.forward(&with_note(down(5), header.to_note()), 10, full));
        assert_eq!(raised, Header { congestion: 7, ..header });
        let idle = PortState { sent_bytes: 0, ..full };
        assert_eq!(spine.forward(&with_note(down(5), header.to_note()), 14, idle), header.to_note());
        assert_eq!(spine.choose(&down(5), &UPLINKS, &Sent(&[0; 3]), &mut || 0), None, "by the hash");
    }
}
