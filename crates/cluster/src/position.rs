//! What a member is in its cluster.

/// Number of an election. Each leader has a greater one than all before it. It is the revision at which etcd created the
/// key of the leader, and the `generation_id` of the leader's roles at switches (OpenFlow 1.3.4 §6.3.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// A member that leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// Name of the member.
    pub name: String,
    /// Number of its election.
    pub token: Token,
}

/// What a member is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Position {
    /// It leads. No other member does.
    Lead {
        /// Number of its election.
        token: Token,
    },
    /// It led, and etcd no longer confirms it. Another member may lead by now. It may send switches what they refuse from
    /// a deposed leader. It must not do anything else that only a leader may do.
    Unconfirmed {
        /// Number of its election.
        token: Token,
    },
    /// It does not lead.
    Follow {
        /// The member that led when etcd last answered, if one did.
        leader: Option<Leader>,
    },
}

impl Position {
    /// Number of the election by which the member leads or led; `None` for one that follows.
    pub fn token(&self) -> Option<Token> {
        match self {
            Position::Lead { token } | Position::Unconfirmed { token } => Some(*token),
            Position::Follow { .. } => None,
        }
    }

    /// Whether the member leads and etcd confirms it.
    pub fn is_lead(&self) -> bool {
        matches!(self, Position::Lead { .. })
    }
}
