//! Priority-based flow control (IEEE 802.1Qbb): a switch counts the waiting bytes of each input link and priority, and
//! pauses the sender at the other end of the link before it runs out of room. This file has the counts and thresholds;
//! `network/pfc.rs` sends and obeys the frames.

use crate::packet::{Pause, PAUSE_BYTES};
use crate::port::NOWHERE;
use crate::time::Ps;
use crate::victims::Victims;
use pathloom_model::units::PS_PER_S;
use pathloom_model::{Fabric, LinkId, LinkSettings, PfcSettings};
use std::collections::VecDeque;

/// When a switch pauses the sender of a link, in bytes of one priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Thresholds {
    /// Above this many, the sender is paused.
    pub(crate) xoff: u64,
    /// At this many or fewer, it is resumed.
    pub(crate) xon: u64,
    /// Room for bytes of the link: `xoff` and the headroom.
    pub(crate) most: u64,
}

impl Thresholds {
    /// The thresholds for `link`, whose opposite direction is `back`, if frames have up to `frame` bytes and the ports of
    /// the switch hold `buffer` bytes.
    fn of(settings: PfcSettings, link: &LinkSettings, back: &LinkSettings, frame: u64, buffer: u64) -> Thresholds {
        let xoff = settings.xoff_bytes.unwrap_or(buffer);
        let xon = settings.xon_bytes.unwrap_or(xoff.saturating_sub(2 * frame)).min(xoff);
        let headroom = settings.headroom_bytes.unwrap_or_else(|| headroom(link, back, frame));
        Thresholds { xoff, xon, most: xoff.saturating_add(headroom) }
    }
}

/// Bytes that may wait beyond XOFF. The frame that exceeds it may do so by all of its bytes. The frame that pauses then
/// waits for one that is being sent, is sent, and crosses the link. The sender obeys at once, but finishes the frame that
/// it has begun; and what it has sent before is still on the link (IEEE 802.1Q-2018, annex N, without the response times
/// of real ports).
fn headroom(link: &LinkSettings, back: &LinkSettings, frame: u64) -> u64 {
    let bits = u128::from(frame + u64::from(PAUSE_BYTES)) * 8;
    let sent_ps = (bits * u128::from(PS_PER_S)).div_ceil(u128::from(back.rate_bps.max(1)));
    let unaware_ps = sent_ps + u128::from(back.delay_ps) + u128::from(link.delay_ps);
    let flying = (unaware_ps * u128::from(link.rate_bps)).div_ceil(8 * u128::from(PS_PER_S));
    u64::try_from(flying).unwrap_or(u64::MAX).saturating_add(2 * frame)
}

/// What waits in a switch of the bytes of one link and priority.
#[derive(Clone, Copy, Debug, Default)]
struct Ingress {
    bytes: u64,
    /// Most bytes so far.
    most: u64,
    /// Whether the switch has paused the sender, and not resumed it since.
    stops: bool,
}

/// How a link was paused by its other end.
#[derive(Clone, Copy, Debug, Default)]
struct Stopped {
    /// The paused priorities, one per bit.
    classes: u8,
    /// Since when one of them has been paused.
    since: Ps,
    /// Time before that with a paused priority.
    before: Ps,
    /// Number of pauses.
    times: u64,
}

/// Counts and pauses of all links.
pub(crate) struct Pfc {
    /// Number of priorities that can be paused.
    classes: usize,
    /// By link.
    thresholds: Vec<Thresholds>,
    stopped: Vec<Stopped>,
    /// By link, then by priority.
    ingress: Vec<Ingress>,
    /// Since when a priority of a link has been paused; by link, then by priority.
    since: Vec<Ps>,
    /// Frames that switches must send, each with the link that it is about.
    due: VecDeque<(u32, Pause)>,
    /// The link by which the packet came that the network is handling; [`NOWHERE`] if a switch made it.
    pub(crate) arriving: u32,
    /// What the pauses hold back.
    pub(crate) victims: Victims,
    /// Frames that switches have sent, and that other switches have received.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Frames that hosts have received.
    pub(crate) at_hosts: u64,
}

impl Pfc {
    /// No bytes wait, and no link is paused. Frames have up to `frame` bytes.
    pub(crate) fn new(fabric: &Fabric, settings: PfcSettings, frame: u64) -> Pfc {
        let (links, ports) = (fabric.links(), fabric.ports());
        let fastest_bps = fabric.fastest_port_bps();
        let thresholds = |number: usize| {
            let (link, back) = (links[number].settings, fabric.link(LinkId(number as u32).reverse()).settings);
            let buffer = ports.at_rate(back.rate_bps, fastest_bps).queue_bytes;
            let buffer = buffer.unwrap_or(u64::from(back.buffer_packets) * frame);
            Thresholds::of(settings, &link, &back, frame, buffer)
        };
        let classes = usize::from(ports.queues);
        Pfc {
            classes,
            thresholds: (0..links.len()).map(thresholds).collect(),
            stopped: vec![Stopped::default(); links.len()],
            ingress: vec![Ingress::default(); links.len() * classes],
            since: vec![0; links.len() * classes],
            due: VecDeque::new(),
            arriving: NOWHERE,
            victims: Victims::default(),
            sent: 0,
            received: 0,
            at_hosts: 0,
        }
    }

    /// Number of priorities that can be paused: those of data.
    pub(crate) fn classes(&self) -> usize {
        self.classes
    }

    pub(crate) fn thresholds(&self, link: u32) -> Thresholds {
        self.thresholds[link as usize]
    }

    fn place(&self, link: u32, class: usize) -> Option<usize> {
        (link != NOWHERE && class < self.classes).then(|| link as usize * self.classes + class)
    }

    /// Whether the switch at the end of a link has room for a further packet that came by it. Packets of switches, and
    /// those of priorities that cannot be paused, are limited elsewhere.
    pub(crate) fn has_room(&self, from: u32, class: usize, bytes: u64) -> bool {
        let Some(place) = self.place(from, class) else { return true };
        self.ingress[place].bytes + bytes <= self.thresholds[from as usize].most
    }

    /// A packet that came by a link begins to wait.
    pub(crate) fn came(&mut self, from: u32, class: usize, bytes: u64) {
        let Some(place) = self.place(from, class) else { return };
        let (ingress, xoff) = (&mut self.ingress[place], self.thresholds[from as usize].xoff);
        ingress.bytes += bytes;
        ingress.most = ingress.most.max(ingress.bytes);
        if ingress.bytes > xoff && !ingress.stops {
            ingress.stops = true;
            self.due.push_back((from, Pause { class: class as u8, stops: true }));
        }
    }

    /// A packet that came by a link waits no longer: its sending begins, or it is lost.
    pub(crate) fn left(&mut self, from: u32, class: usize, bytes: u64) {
        let Some(place) = self.place(from, class) else { return };
        let (ingress, xon) = (&mut self.ingress[place], self.thresholds[from as usize].xon);
        ingress.bytes -= bytes;
        if ingress.bytes <= xon && ingress.stops {
            ingress.stops = false;
            self.due.push_back((from, Pause { class: class as u8, stops: false }));
        }
    }

    /// The next frame that a switch must send, with the link that it is about.
    pub(crate) fn take_due(&mut self) -> Option<(u32, Pause)> {
        self.due.pop_front()
    }

    /// The sender of a link obeys a frame.
    pub(crate) fn obey(&mut self, now: Ps, link: u32, pause: Pause) {
        let Some(place) = self.place(link, usize::from(pause.class)) else { return };
        let (of, bit) = (&mut self.stopped[link as usize], 1 << pause.class);
        if pause.stops {
            if of.classes == 0 {
                of.since = now;
            }
            (of.classes, of.times) = (of.classes | bit, of.times + 1);
            self.since[place] = now;
        } else if of.classes & bit != 0 {
            of.classes &= !bit;
            if of.classes == 0 {
                of.before += now - of.since;
            }
        }
    }

    /// A link has failed. Its sender has resumed all priorities, and the other end forgets its pauses.
    pub(crate) fn forget(&mut self, link: u32) {
        for class in 0..self.classes {
            self.ingress[link as usize * self.classes + class].stops = false;
        }
        self.due.retain(|&(about, _)| about != link);
    }

    /// Whether the sender of a link must not send packets of a priority.
    pub(crate) fn is_stopped(&self, link: u32, class: usize) -> bool {
        class < self.classes && self.stopped[link as usize].classes >> class & 1 == 1
    }

    /// Since when a priority of a link has been paused, or was the last time.
    pub(crate) fn stopped_since(&self, link: u32, class: usize) -> Ps {
        self.place(link, class).map_or(0, |place| self.since[place])
    }

    /// Whether the switch at the end of a link has paused a priority, and since when its sender obeys.
    pub(crate) fn stops(&self, link: u32, class: usize) -> Option<Ps> {
        let place = self.place(link, class)?;
        self.ingress[place].stops.then(|| self.since[place])
    }

    /// Number of pauses of a link, and the time during which one of its priorities was paused.
    pub(crate) fn pauses(&self, link: u32, now: Ps) -> (u64, Ps) {
        let of = self.stopped[link as usize];
        let present = if of.classes == 0 { 0 } else { now.saturating_sub(of.since) };
        (of.times, of.before + present)
    }

    /// Most bytes of a link and one priority that have waited at the same time.
    pub(crate) fn most_waiting(&self, link: u32) -> u64 {
        let first = link as usize * self.classes;
        self.ingress[first..first + self.classes].iter().map(|ingress| ingress.most).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    const FRAME: u64 = 1514;

    fn pfc(keys: &str) -> Pfc {
        let fabric = fabric_from_spec(&format!("dumbbell:hosts=1,rate=10Gbps,{keys}")).unwrap();
        Pfc::new(&fabric, fabric.ports().pfc.unwrap(), FRAME)
    }

    #[test]
    fn thresholds_follow_the_formula_unless_they_are_given() {
        // 10 Gbit/s for 2 µs there and 2 µs back are 5000 bytes.
        let computed = pfc("delay=2us,buffer=50,pfc=on").thresholds(0);
        let (xoff, room) = (50 * FRAME, 5_000 + 64 + 3 * FRAME);
        assert_eq!(computed, Thresholds { xoff, xon: xoff - 2 * FRAME, most: xoff + room });
        let given = pfc("delay=2us,pfc=20KB/10KB,pfc_headroom=3KB").thresholds(0);
        assert_eq!(given, Thresholds { xoff: 20_000, xon: 10_000, most: 23_000 });
        assert_eq!(pfc("pfc=2KB").thresholds(0).xon, 0);
        // While a frame and the pause cross a link back of 1 Gbit/s, ten times as many bytes arrive.
        let link = LinkSettings { rate_bps: 10_000_000_000, delay_ps: 0, buffer_packets: 9 };
        let back = LinkSettings { rate_bps: 1_000_000_000, ..link };
        assert_eq!(headroom(&link, &back, FRAME), 10 * (FRAME + 64) + 2 * FRAME);
    }

    #[test]
    fn a_sender_is_paused_above_xoff_once_and_resumed_at_xon() {
        let mut pfc = pfc("delay=2us,pfc=3KB/1KB");
        let due = |pfc: &mut Pfc| std::iter::from_fn(|| pfc.take_due()).collect::<Vec<_>>();
        let about = |stops| vec![(0, Pause { class: 0, stops })];
        (0..3).for_each(|_| pfc.came(0, 0, 1_000));
        assert_eq!(due(&mut pfc), [], "as many as XOFF");
        (0..2).for_each(|_| pfc.came(0, 0, 1_000));
        assert_eq!((due(&mut pfc), pfc.stops(0, 0)), (about(true), Some(0)));
        (0..3).for_each(|_| pfc.left(0, 0, 1_000));
        assert_eq!(due(&mut pfc), []);
        pfc.left(0, 0, 1_000);
        assert_eq!((due(&mut pfc), pfc.stops(0, 0), pfc.most_waiting(0)), (about(false), None, 5_000));
        pfc.came(NOWHERE, 0, 1 << 40);
        pfc.came(0, 1, 1 << 40);
        assert_eq!(due(&mut pfc), [], "packets of switches and of the control queue do not count");
        assert!(pfc.has_room(NOWHERE, 0, 1 << 40) && pfc.has_room(0, 0, 10_000) && !pfc.has_room(0, 0, 1 << 40));
    }

    #[test]
    fn pauses_of_two_priorities_overlap() {
        let mut pfc = pfc("pfc=on,queues=2");
        let frame = |class, stops| Pause { class, stops };
        for (now, pause) in [
            (10, frame(0, true)),
            (15, frame(1, true)),
            (20, frame(0, false)),
            (30, frame(1, false)),
            (40, frame(1, true)),
        ] {
            pfc.obey(now, 3, pause);
        }
        assert_eq!((pfc.pauses(3, 45), pfc.pauses(2, 45)), ((3, 25), (0, 0)));
        assert!(pfc.is_stopped(3, 1) && !pfc.is_stopped(3, 0) && !pfc.is_stopped(3, 2));
        pfc.obey(50, 3, frame(1, false));
        assert_eq!((pfc.pauses(3, 90), pfc.is_stopped(3, 1)), ((3, 30), false));
    }
}
