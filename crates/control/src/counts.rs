//! Counters of a controller.

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Totals since the controller was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Inputs received.
    pub messages_in: u64,
    /// Outputs returned.
    pub messages_out: u64,
    /// Copied packets among the inputs.
    pub packet_ins: u64,
    /// Flows that became known.
    pub flows: u64,
    /// First packets ignored because their host had too many flows.
    pub flows_refused: u64,
    /// First packets ignored because their ToR had the maximum number of rules that count flows.
    #[serde(default)]
    pub uncounted: u64,
    /// Flows and paths refused because their host had its share of the rules of a switch.
    #[serde(default)]
    pub over_budget: u64,
    /// Flows put back on the default routes to make room for the rules of other hosts.
    #[serde(default)]
    pub made_room: u64,
    /// Paths confirmed for flows that were on the default routes.
    pub routes: u64,
    /// Paths confirmed for flows that were on another path.
    pub reroutes: u64,
    /// Those of the `reroutes` that were moves in place ([`crate::sfmm`]).
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
    /// Flows found after a restart and adopted.
    pub adopted: u64,
    /// Number of rules that the switch with the most rules should have now.
    pub rules_now: u32,
    /// Largest number of rules that a switch should have had at any time.
    pub rules_max: u32,
    /// Polling rounds that were started.
    #[serde(default)]
    pub polls: u64,
    /// Additional readings within a polling period.
    #[serde(default)]
    pub polls_again: u64,
    /// Start of the first polling round.
    #[serde(default)]
    pub first_poll: Nanos,
    /// Start of the last polling round.
    #[serde(default)]
    pub last_poll: Nanos,
    /// Flows that became known by the label of long flows.
    #[serde(default)]
    pub labelled: u64,
    /// Flows that became known, or known to be long, by an announcement.
    #[serde(default)]
    pub announced: u64,
    /// Flows that became known in the middle of their connection, not by its first packet.
    #[serde(default)]
    pub standing: u64,
    /// Reviews: times that all rules of a switch were read and compared within a session.
    #[serde(default)]
    pub reviews: u64,
    /// Rules and groups that somebody else deleted or changed, and that were added again.
    #[serde(default)]
    pub restored: u64,
    /// Rules with the mark of the controller that should not have existed and were deleted.
    #[serde(default)]
    pub surplus: u64,
    /// Invalid inputs, and inputs about switches, ports or hosts that the fabric does not have.
    #[serde(rename = "nonsense")]
    pub invalid_inputs: u64,
}

impl Counts {
    /// Counts a polling round.
    pub(crate) fn polled(&mut self, now: Nanos) {
        if self.polls == 0 {
            self.first_poll = now;
        }
        self.last_poll = now;
        self.polls += 1;
    }

    /// Mean time between the starts of polling rounds; `None` before the second round.
    pub fn polling_period(&self) -> Option<Nanos> {
        let gaps = self.polls.checked_sub(1).filter(|&gaps| gaps > 0)?;
        Some(Nanos(self.last_poll.saturating_sub(self.first_poll).0 / gaps))
    }
}
