//! Counters of a program.

use crate::program::{DropCause, RefusedPort, Tables};
use pathloom_model::PortNo;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Counters of events, and the ports whose frames were refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) explorations: u64,
    pub(crate) recoveries: u64,
    pub(crate) fails: u64,
    dropped: [u64; DropCause::ALL.len()],
    unreadable: u64,
    refused: BTreeMap<PortNo, (u64, Option<DropCause>)>,
}

impl Hash for Counts {
    /// Hashes nothing: no decision depends on counters, so a search through the states of a fabric ignores them.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Counts {
    /// Counts a dropped frame. If the sender is at fault, its port is listed.
    pub(crate) fn dropped(&mut self, port: PortNo, why: DropCause) {
        let index = DropCause::ALL.iter().position(|&one| one == why).unwrap_or(0);
        self.dropped[index] += 1;
        if matches!(why, DropCause::Forged | DropCause::StolenAddress | DropCause::Invalid | DropCause::RateLimited) {
            self.refuse(port, Some(why));
        }
    }

    /// Lists a port that exceeded a limit, or that sent an unreadable frame.
    pub(crate) fn refuse(&mut self, port: PortNo, why: Option<DropCause>) {
        let (frames, last) = self.refused.entry(port).or_default();
        *frames += 1;
        *last = why;
    }

    pub(crate) fn unreadable(&mut self, port: PortNo) {
        self.unreadable += 1;
        self.refuse(port, None);
    }

    /// Returns the counters. The caller fills in the sizes of tables.
    pub(crate) fn tables(&self) -> Tables {
        let refused = self.refused.iter().map(|(&port, &(frames, last))| RefusedPort { port, frames, last });
        Tables {
            explorations: self.explorations,
            recoveries: self.recoveries,
            fails: self.fails,
            dropped: self.dropped,
            unreadable: self.unreadable,
            refused: refused.collect(),
            ..Tables::default()
        }
    }
}
