//! The nodes of the data plane, and what it counts beside its links.

use pathloom_switching::{Program, Switch};

/// What a node of the fabric runs.
pub(super) enum Node {
    /// A host. The network does not model what it runs.
    Host,
    /// A switch with rules, which the controller writes.
    Rules(Box<Switch>),
    /// A switch with a program, which needs no controller.
    Program(Box<dyn Program + Send>),
}

impl Node {
    pub(super) fn rules(&self) -> Option<&Switch> {
        match self {
            Node::Rules(rules) => Some(rules),
            _ => None,
        }
    }

    pub(super) fn rules_mut(&mut self) -> Option<&mut Switch> {
        match self {
            Node::Rules(rules) => Some(rules),
            _ => None,
        }
    }

    pub(super) fn program_mut(&mut self) -> Option<&mut (dyn Program + Send)> {
        match self {
            Node::Program(program) => Some(&mut **program),
            _ => None,
        }
    }
}

/// Counts of packets that are not kept by links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub sent: u64,
    /// Copies made by groups that send a frame out by several ports.
    pub copied: u64,
    /// Packets dropped by switches: no rule, a meter, or too many switches passed.
    pub dropped_at_switches: u64,
    /// Packets that reached another interface than their destination.
    pub misdelivered: u64,
    /// Packets about which a switch was asked, because no decision was cached.
    pub decisions: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Totals) {
        self.sent += other.sent;
        self.copied += other.copied;
        self.dropped_at_switches += other.dropped_at_switches;
        self.misdelivered += other.misdelivered;
        self.decisions += other.decisions;
    }
}
