//! When a sender changes the entropy of its flow, and so the path: after congested rounds, and after time-outs.

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// The law of a sender that changes the entropy of its flow. PLB and FlowBender differ only in these numbers.
///
/// A round ends when the data is acknowledged that had been sent when the round began. It is congested if congestion marks
/// are echoed for more than a share of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rehash {
    /// The share of marked bytes above which a round is congested, in thousandths. No round is above 1000.
    pub above_permille: u16,
    /// Number of congested rounds in a row after which the entropy changes, at least 1.
    pub rounds: u32,
    /// The same if the sender has nothing in flight at the end of a round, so that no packets are reordered; 0 for no
    /// change then.
    pub idle_rounds: u32,
    /// Whether the entropy changes when the retransmission timer expires.
    pub on_timeout: bool,
    /// After that, congested rounds change nothing for this time and a random part of it more. So a sender that has left a
    /// path without a way through does not return to it soon.
    pub suspension: Nanos,
}

/// An acknowledgement of data, as the sender sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// Number of bytes that it acknowledges for the first time.
    pub bytes: u64,
    /// Whether it echoes a congestion mark.
    pub marked: bool,
    /// First byte that is not acknowledged.
    pub una: u64,
    /// One past the last byte sent.
    pub sent: u64,
}

/// What a sender remembers of its rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rounds {
    acked: u64,
    marked: u64,
    /// The round ends when all bytes before this one are acknowledged.
    end: u64,
    congested: u32,
    /// Whether all data of the round was sent with the present entropy. Other rounds say nothing about the present path.
    counts: bool,
    suspended_until: Nanos,
}

impl Rounds {
    /// Handles an acknowledgement. Returns whether the entropy changes.
    pub fn on_ack(&mut self, law: &Rehash, now: Nanos, ack: Acknowledged) -> bool {
        self.acked += ack.bytes;
        self.marked += if ack.marked { ack.bytes } else { 0 };
        if ack.bytes == 0 || ack.una < self.end {
            return false;
        }
        let is_congested = u128::from(self.marked) * 1000 > u128::from(self.acked) * u128::from(law.above_permille);
        let counts = std::mem::replace(&mut self.counts, true);
        (self.acked, self.marked, self.end) = (0, 0, ack.sent);
        self.congested = if counts && is_congested { self.congested.saturating_add(1) } else { 0 };
        let is_idle = ack.una == ack.sent && law.idle_rounds > 0;
        let enough = self.congested >= law.rounds || (is_idle && self.congested >= law.idle_rounds);
        let changes = enough && now >= self.suspended_until;
        if changes {
            (self.congested, self.counts) = (0, false);
        }
        changes
    }

    /// Handles an expiry of the retransmission timer. `draw` is a random number. Returns whether the entropy changes.
    pub fn on_timeout(&mut self, law: &Rehash, now: Nanos, draw: u64) -> bool {
        if law.on_timeout {
            let random = ((u128::from(law.suspension.0) * u128::from(draw)) >> 64) as u64;
            let suspension = law.suspension.0.saturating_add(random);
            let suspended_until = Nanos(now.0.saturating_add(suspension));
            *self = Rounds { suspended_until, end: self.end, ..Rounds::default() };
        }
        law.on_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Rehash =
        Rehash { above_permille: 500, rounds: 3, idle_rounds: 0, on_timeout: true, suspension: Nanos::ZERO };

    /// The rounds of ten bytes after which the entropy changes, if this many bytes of each are marked. The sender has
    /// another round in flight. If `idle`, it has nothing in flight, and one acknowledgement ends each round. The first
    /// round has no marks.
    fn changes(law: &Rehash, rounds: &mut Rounds, marked: &[u64], idle: bool) -> Vec<usize> {
        let first = rounds.end;
        let mut changed = Vec::new();
        for (round, &marked) in marked.iter().enumerate() {
            let end = first + 10 * (round as u64 + 1);
            let sent = if idle { end } else { end + 10 };
            let mut ack =
                |bytes, marked, una| rounds.on_ack(law, Nanos(round as u64), Acknowledged { bytes, marked, una, sent });
            if idle {
                changed.extend(ack(10, marked > 5, end).then_some(round));
                continue;
            }
            let early = marked > 0 && ack(marked, true, end - 10 + marked);
            assert!(!early, "only at the end of a round");
            changed.extend(ack(10 - marked, false, end).then_some(round));
        }
        changed
    }

    #[test]
    fn congested_rounds_in_a_row_change_the_entropy() {
        let changes = |marked: &[u64]| changes(&LAW, &mut Rounds::default(), marked, false);
        assert_eq!(changes(&[0, 6, 6, 6, 0]), [3]);
        assert!(changes(&[0, 5, 5, 5, 5, 5]).is_empty(), "half is not more than half");
        assert!(changes(&[0, 6, 6, 0, 6, 6, 0]).is_empty(), "not in a row");
        assert_eq!(changes(&[0, 9, 9, 9, 9, 9, 9, 9]), [3, 7], "what was sent before the change does not count");
    }

    #[test]
    fn without_a_threshold_nothing_is_congested() {
        let never = Rehash { above_permille: 1000, rounds: 1, ..LAW };
        assert!(changes(&never, &mut Rounds::default(), &[0, 9, 9, 9, 9], false).is_empty());
    }

    #[test]
    fn an_idle_sender_changes_earlier() {
        let law = Rehash { rounds: 4, idle_rounds: 2, ..LAW };
        assert!(changes(&law, &mut Rounds::default(), &[0, 9, 9, 9], false).is_empty());
        assert_eq!(changes(&law, &mut Rounds::default(), &[0, 9, 9, 0], true).first(), Some(&2));
    }

    #[test]
    fn time_outs_change_the_entropy_and_suspend_further_changes() {
        let law = Rehash { rounds: 1, suspension: Nanos(2), ..LAW };
        let mut rounds = Rounds::default();
        assert!(rounds.on_timeout(&law, Nanos(0), u64::MAX / 2 + 1));
        assert_eq!(changes(&law, &mut rounds, &[0, 9, 9, 9, 9], false), [3], "after 2 ns and half of them");
        assert!(!rounds.on_timeout(&Rehash { on_timeout: false, ..law }, Nanos(9), 0));
    }
}
