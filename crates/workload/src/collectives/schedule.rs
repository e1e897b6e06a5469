//! Schedules of collectives: rounds of messages, and their conversion to flows.

use super::Repeated;
use crate::error::WorkloadError;
use crate::flow_spec::{FlowSpec, Start};
use crate::generate::Context;
use pathloom_model::Nanos;

/// A message between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Message {
    pub from: u32,
    pub to: u32,
    pub bytes: u64,
    /// What it carries: the first part of the buffer, and the number of parts.
    pub parts: (u32, u32),
    /// Whether the receiver adds these parts to its own. Otherwise they replace its own.
    pub adds: bool,
}

/// A buffer of every rank, divided into numbered parts. The first parts get the remainder of the division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub size_bytes: u64,
    pub parts: u32,
}

impl Buffer {
    /// Bytes of `count` parts from `first` on.
    pub fn bytes(self, (first, count): (u32, u32)) -> u64 {
        let parts = u64::from(self.parts);
        let before = |part: u64| part * (self.size_bytes / parts) + part.min(self.size_bytes % parts);
        before(u64::from(first) + u64::from(count)) - before(u64::from(first))
    }

    /// A message whose parts are added to those of the receiver.
    pub fn add(self, from: u32, to: u32, parts: (u32, u32)) -> Message {
        Message { from, to, bytes: self.bytes(parts), parts, adds: true }
    }

    /// A message whose parts replace those of the receiver.
    pub fn copy(self, from: u32, to: u32, parts: (u32, u32)) -> Message {
        Message { adds: false, ..self.add(from, to, parts) }
    }
}

/// The messages of one execution of a collective, by round. In a round, a rank sends at most one message and receives
/// at most one (the one-ported, full-duplex model).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Schedule {
    pub rounds: Vec<Vec<Message>>,
}

impl Schedule {
    /// The number of messages.
    pub fn len(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    /// The longest chain of messages that wait for each other, as in [`Schedule::flows`].
    pub fn steps(&self, ranks: u32) -> u32 {
        // By rank: the steps after which it may send, and those after which it has received.
        let mut ready = vec![0u32; ranks as usize];
        let mut received = ready.clone();
        for round in &self.rounds {
            let end = |message: &Message| 1 + ready[message.from as usize].max(received[message.to as usize]);
            let ends: Vec<u32> = round.iter().map(end).collect();
            for (message, end) in round.iter().zip(ends) {
                for rank in [message.from, message.to] {
                    ready[rank as usize] = ready[rank as usize].max(end);
                }
                received[message.to as usize] = end;
            }
        }
        ready.into_iter().max().unwrap_or(0)
    }

    /// The rounds of both, one after the other.
    pub fn then(mut self, other: Schedule) -> Schedule {
        self.rounds.extend(other.rounds);
        self
    }

    /// Several schedules at the same time, each among other ranks.
    pub fn beside(all: Vec<Schedule>) -> Schedule {
        let mut rounds: Vec<Vec<Message>> = Vec::new();
        for schedule in all {
            rounds.resize(rounds.len().max(schedule.rounds.len()), Vec::new());
            rounds.iter_mut().zip(schedule.rounds).for_each(|(all, round)| all.extend(round));
        }
        Schedule { rounds }
    }

    /// The rounds in reverse order, with each message in the other direction and added: a broadcast becomes a reduction.
    pub fn reversed(&self) -> Schedule {
        let back = |message: &Message| Message { from: message.to, to: message.from, adds: true, ..*message };
        Schedule { rounds: self.rounds.iter().rev().map(|round| round.iter().map(back).collect()).collect() }
    }

    /// The flows, for ranks on these hosts. The coflow of each is its round, counted over all iterations.
    ///
    /// A rank sends once it has received everything that it expects from earlier rounds, and once its own last message
    /// has arrived. The receiver takes one message at a time: it lets a message begin when the one of its last round has
    /// arrived, as in a rendezvous. News of this take no time.
    pub fn flows(&self, context: &Context, hosts: &[u32], of: &Repeated) -> Result<Vec<FlowSpec>, WorkloadError> {
        let count = self.len() as f64 * f64::from(of.iterations);
        context.refuse_too_many(count, "lower iterations=, hosts= or chunks=")?;
        let mut jitter = context.rng("jitter");
        let mut flows: Vec<FlowSpec> = Vec::with_capacity(count as usize);
        // By rank: received since its last send, its last receive, and its last send.
        let mut received: Vec<Vec<u32>> = vec![Vec::new(); hosts.len()];
        let mut last_received: Vec<Option<u32>> = vec![None; hosts.len()];
        let mut sent: Vec<Option<u32>> = vec![None; hosts.len()];
        let mut round_number = 0;
        for _ in 0..of.iterations {
            let before = flows.len();
            for round in &self.rounds {
                let first = flows.len();
                for message in round {
                    let from = message.from as usize;
                    let mut after = std::mem::take(&mut received[from]);
                    after.extend(sent[from]);
                    let clear = last_received[message.to as usize].filter(|flow| !after.contains(flow));
                    after.extend(clear);
                    let start = if after.is_empty() {
                        context.jittered(Nanos::ZERO, of.jitter, &mut jitter)
                    } else {
                        let begins = after.iter().all(|&flow| (flow as usize) < before);
                        Start::After { flows: after.into(), delay: if begins { of.gap } else { Nanos::ZERO } }
                    };
                    let pair = (hosts[from], hosts[message.to as usize]);
                    flows.push(context.flow(start, pair, Some(message.bytes), Some(round_number)));
                }
                for (index, message) in round.iter().enumerate() {
                    let flow = (first + index) as u32;
                    received[message.to as usize].push(flow);
                    last_received[message.to as usize] = Some(flow);
                    sent[message.from as usize] = Some(flow);
                }
                round_number += 1;
            }
        }
        Ok(flows)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that no rank sends or receives two messages in a round, and that none is empty.
    pub fn check_one_ported(schedule: &Schedule, ranks: u32) {
        for (number, round) in schedule.rounds.iter().enumerate() {
            let mut ports = vec![(0, 0); ranks as usize];
            for message in round {
                assert!(message.from != message.to && message.bytes > 0, "round {number}: {message:?}");
                ports[message.from as usize].0 += 1;
                ports[message.to as usize].1 += 1;
            }
            assert!(ports.iter().all(|&(out, into)| out <= 1 && into <= 1), "round {number}: {round:?}");
        }
    }

    /// Carries out a schedule. `held[rank][part]` has the ranks, as bits, whose values the part contains. No value may
    /// be added twice.
    pub fn carry_out(schedule: &Schedule, held: &mut [Vec<u32>]) {
        check_one_ported(schedule, held.len() as u32);
        for round in &schedule.rounds {
            let before = held.to_vec();
            for message in round {
                for part in message.parts.0..message.parts.0 + message.parts.1 {
                    let sent = before[message.from as usize][part as usize];
                    let own = &mut held[message.to as usize][part as usize];
                    assert!(sent != 0, "{message:?} sends what its sender does not have");
                    assert!(!message.adds || *own & sent == 0, "{message:?} adds a value twice");
                    *own = if message.adds { *own | sent } else { sent };
                }
            }
        }
    }

    /// Every rank has its own value of every part.
    pub fn own_values(ranks: u32, parts: u32) -> Vec<Vec<u32>> {
        (0..ranks).map(|rank| vec![1 << rank; parts as usize]).collect()
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        for (size_bytes, parts) in [(100_000_000, 16), (17, 16), (16, 16), (1_000_003, 7)] {
            let buffer = Buffer { size_bytes, parts };
            let each: Vec<u64> = (0..parts).map(|part| buffer.bytes((part, 1))).collect();
            assert_eq!(each.iter().sum::<u64>(), size_bytes);
            assert!(each.iter().all(|&bytes| bytes >= 1) && each.is_sorted_by(|a, b| a >= b));
            assert_eq!(buffer.bytes((1, parts - 1)), size_bytes - each[0]);
        }
    }
}
