//! Packets by kind, for transports that acknowledge packets: data, headers of trimmed packets, requests, acknowledgements, negative
//! ones, pulls, congestion notices, and pauses of switches.

use crate::outcome::KindOutcome;
use crate::packet::{Direction, Packet};
use pathloom_transport::packets::{Feedback, ReportKind, TrimmedAt};

/// The kind of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Data,
    Header,
    Request,
    Ack,
    Nack,
    Pull,
    Notice,
    Pause,
}

/// Every kind with its name in results.
const KINDS: [(Kind, &str); 8] = [
    (Kind::Data, "data"),
    (Kind::Header, "headers"),
    (Kind::Request, "requests"),
    (Kind::Ack, "acks"),
    (Kind::Nack, "nacks"),
    (Kind::Pull, "pulls"),
    (Kind::Notice, "notices"),
    (Kind::Pause, "pauses"),
];

impl Kind {
    /// The kind of a packet of a host that acknowledges packets, or of a frame that pauses.
    pub(crate) fn of(packet: &Packet) -> Kind {
        match (packet.pause(), packet.trimmed_at(), packet.direction()) {
            (Some(_), _, _) => Kind::Pause,
            (_, Some(TrimmedAt::Sender), _) => Kind::Request,
            (_, Some(_), _) => Kind::Header,
            (_, _, Direction::Data) => Kind::Data,
            (_, _, Direction::Ack) => match packet.payload_or_option() {
                1 => Kind::Nack,
                2 => Kind::Pull,
                3 => Kind::Notice,
                _ => Kind::Ack,
            },
        }
    }
}

/// What a packet with feedback has in place of the number of a SACK option.
pub(crate) fn code_of(feedback: &Feedback) -> u16 {
    match feedback {
        Feedback::Report(report) if report.kind == ReportKind::Ack => 0,
        Feedback::Report(_) => 1,
        Feedback::Pull(_) => 2,
        Feedback::Notice => 3,
    }
}

/// A number for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers([u64; KINDS.len()]);

impl Numbers {
    pub(crate) fn add(&mut self, kind: Kind, packets: u64) {
        self.0[kind as usize] += packets;
    }

    fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }
}

/// What hosts have sent and received, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) sent: Numbers,
    pub(crate) arrived: Numbers,
}

impl Exchanged {
    /// The results, with what is under way and what full queues have trimmed. What is missing was lost.
    pub(crate) fn outcome(&self, in_flight: &Numbers, trimmed: u64) -> Vec<KindOutcome> {
        let of_kind = |&(kind, name): &(Kind, &'static str)| {
            let became = if kind == Kind::Header { trimmed } else { 0 };
            let left = if kind == Kind::Data { trimmed } else { 0 };
            let sent = self.sent.of(kind) + became;
            let (arrived, in_flight) = (self.arrived.of(kind), in_flight.of(kind));
            KindOutcome {
                name,
                sent,
                arrived,
                in_flight,
                trimmed: left,
                lost: sent.checked_sub(arrived + in_flight + left),
            }
        };
        KINDS.iter().map(of_kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Pause;

    #[test]
    fn every_packet_has_a_kind_of_its_own() {
        let kinds: Vec<Kind> = KINDS.iter().map(|&(kind, _)| kind).collect();
        assert!(kinds.iter().enumerate().all(|(place, &kind)| kind as usize == place));
        let data = Packet::new(6, 3, 1000, 1066, 0);
        let trimmed = |place| {
            let mut packet = data;
            packet.trim(64, place);
            packet
        };
        let feedback = |code| Packet::new(7, 3, code, 64, 0);
        let pause = Packet::of_pause(Pause { class: 0, stops: true });
        let (headers, requests) = ([TrimmedAt::Fabric, TrimmedAt::LastHop].map(trimmed), trimmed(TrimmedAt::Sender));
        let packets = [data, headers[0], requests, feedback(0), feedback(1), feedback(2), feedback(3), pause];
        assert_eq!(packets.iter().map(Kind::of).collect::<Vec<_>>(), kinds);
        assert_eq!(Kind::of(&headers[1]), Kind::Header);
        assert_eq!([Feedback::Pull(1), Feedback::Notice].map(|feedback| code_of(&feedback)), [2, 3]);
    }

    #[test]
    fn what_is_missing_was_lost_and_too_much_is_an_error() {
        let mut exchanged = Exchanged::default();
        exchanged.sent.add(Kind::Data, 10);
        exchanged.arrived.add(Kind::Data, 4);
        exchanged.arrived.add(Kind::Header, 2);
        let mut in_flight = Numbers::default();
        in_flight.add(Kind::Data, 1);
        let outcome = exchanged.outcome(&in_flight, 3);
        let row = |place: usize| (outcome[place].sent, outcome[place].trimmed, outcome[place].lost);
        assert_eq!([row(0), row(1)], [(10, 3, Some(2)), (3, 0, Some(1))]);
        assert_eq!(exchanged.outcome(&in_flight, 1)[1].lost, None, "more headers arrived than there were");
    }
}
