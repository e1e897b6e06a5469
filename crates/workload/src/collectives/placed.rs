//! Costs of algorithms whose ranks are in servers with a switch of their own: which messages need a network card depends on
//! the placement.

use super::schedule::{Message, Schedule};
use crate::generate::Context;
use crate::job::{Access, Algorithm, Cost};

/// Above this number of ranks, costs are closed forms in which every message needs a network card.
const MOST_RANKS: usize = 512;

/// The servers of ranks.
pub(super) struct Placed {
    /// By rank, the number of its server.
    server: Vec<usize>,
    outside: Access,
    inside: Access,
}

/// Messages that wait for each other, and their time without headers.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    time_s: f64,
    outside: Cost,
    inside: Cost,
}

impl Placed {
    /// `None` unless the ranks are in several servers with switches of their own.
    pub fn of(context: &Context, hosts: &[u32]) -> Option<Placed> {
        let (outside, inside) = context.hosts.access_of(hosts);
        let inside = inside.filter(|_| hosts.len() <= MOST_RANKS)?;
        let servers = context.hosts.servers();
        let find = |host: &u32| servers.iter().position(|server| server.contains(host));
        let server: Vec<usize> = hosts.iter().map(find).collect::<Option<_>>()?;
        server.iter().any(|&other| other != server[0]).then_some(Placed { server, outside, inside })
    }

    /// Whether two ranks are in the same server.
    pub fn share_server(&self, one: u32, other: u32) -> bool {
        self.server[one as usize] == self.server[other as usize]
    }

    /// The largest number of ranks that are in other servers than a rank.
    pub fn outside_ranks(&self) -> u32 {
        let ranks = 0..self.server.len() as u32;
        let outside = |rank| ranks.clone().filter(|&other| !self.share_server(rank, other)).count() as u32;
        ranks.clone().map(outside).max().unwrap_or(0)
    }

    /// An algorithm with the cost of its longest chain of messages, as in [`Schedule::flows`].
    pub fn algorithm(&self, name: &str, schedule: &Schedule) -> Algorithm {
        let mut ready = vec![Chain::default(); self.server.len()];
        let mut received = ready.clone();
        for round in &schedule.rounds {
            let end = |message: &Message| {
                self.after(later(ready[message.from as usize], received[message.to as usize]), message)
            };
            let ends: Vec<Chain> = round.iter().map(end).collect();
            for (message, end) in round.iter().zip(ends) {
                for rank in [message.from, message.to] {
                    ready[rank as usize] = later(ready[rank as usize], end);
                }
                received[message.to as usize] = end;
            }
        }
        let longest = ready.into_iter().fold(Chain::default(), later);
        Algorithm { name: name.to_owned(), outside: longest.outside, inside: longest.inside }
    }

    /// A chain with one more message.
    fn after(&self, before: Chain, message: &Message) -> Chain {
        let one = Cost { steps: 1.0, bytes: message.bytes as f64 };
        let takes_s = |access: Access| access.delay_ps as f64 / 1e12 + 8.0 * one.bytes / access.rate_bps as f64;
        match self.share_server(message.from, message.to) {
            true => Chain { time_s: before.time_s + takes_s(self.inside), inside: before.inside.then(one), ..before },
            false => {
                Chain { time_s: before.time_s + takes_s(self.outside), outside: before.outside.then(one), ..before }
            }
        }
    }
}

fn later(one: Chain, other: Chain) -> Chain {
    if other.time_s > one.time_s {
        other
    } else {
        one
    }
}
