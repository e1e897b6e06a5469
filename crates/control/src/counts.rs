//! What a controller counts about itself.

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Running totals since the controller was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Inputs taken.
    pub messages_in: u64,
    /// Outputs given.
    pub messages_out: u64,
    /// Copied packets among the inputs.
    pub packet_ins: u64,
    /// Flows that came to be known.
    pub flows: u64,
    /// First packets left alone because their host had too many flows already.
    pub flows_refused: u64,
    /// First packets left alone because the rules that count flows at their ToR were as many as there may be.
    #[serde(default)]
    pub uncounted: u64,
    /// Paths confirmed for flows that were on the default routes.
    pub routes: u64,
    /// Paths confirmed for flows that were on another path.
    pub reroutes: u64,
    /// Of these, those that were moved in place ([`crate::sfmm`]).
    #[serde(default)]
    pub reroutes_in_place: u64,
    /// Paths that could not be set up.
    pub rejected: u64,
    /// Flows put back on the default routes because a link of their path went down.
    pub rescued: u64,
    /// Connections put on paths that applications had claimed for them.
    #[serde(default)]
    pub bound: u64,
    /// Rules and groups that switches refused.
    pub refused: u64,
    /// Flows found standing after a restart and taken over.
    pub adopted: u64,
    /// Most rules that one switch should have, now.
    pub rules_now: u32,
    /// Most rules that one switch was to have at any time.
    pub rules_max: u32,
    /// Rounds of reading the flow counters of the ToRs that were begun.
    #[serde(default)]
    pub polls: u64,
    /// Readings that were asked for once more within a round.
    #[serde(default)]
    pub polls_again: u64,
    /// When the first of the rounds began.
    #[serde(default)]
    pub first_poll: Nanos,
    /// When the last of the rounds began.
    #[serde(default)]
    pub last_poll: Nanos,
    /// Of the flows that came to be known, those with the label of long ones.
    #[serde(default)]
    pub labelled: u64,
    /// Flows that an announcement made known, or known to be long.
    #[serde(default)]
    pub announced: u64,
    /// Those that came to be known while they stood, not by their first packet.
    #[serde(default)]
    pub standing: u64,
    /// Times that all rules of a switch were read and compared while its session stood.
    #[serde(default)]
    pub reviews: u64,
    /// Rules and groups that somebody else had deleted or changed, and that were put back.
    #[serde(default)]
    pub restored: u64,
    /// Rules with a mark of the controller that should not have been there, and were deleted.
    #[serde(default)]
    pub surplus: u64,
    /// Inputs about switches, ports or hosts that the fabric does not have, or that make no sense.
    pub nonsense: u64,
}

impl Counts {
    /// A round of readings begins.
    pub(crate) fn polled(&mut self, now: Nanos) {
        if self.polls == 0 {
            self.first_poll = now;
        }
        self.last_poll = now;
        self.polls += 1;
    }

    /// Mean time from the beginning of a round of readings to that of the next; `None` before the second round.
    pub fn polling_period(&self) -> Option<Nanos> {
        let gaps = self.polls.checked_sub(1).filter(|&gaps| gaps > 0)?;
        Some(Nanos(self.last_poll.saturating_sub(self.first_poll).0 / gaps))
    }
}
