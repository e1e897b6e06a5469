//! A network with its program's messages and events, without anything of C. `C` is what the program wants to be called.

use crate::error::NetError;
use crate::matching::{Key, Matching};
use pathloom_model::{Fabric, Nanos, NodeId};
use pathloom_sim::{Driven, LargeFabric, Message, NoTap, PacketTotals, SimError, SimSettings};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The simulation, on a fabric of any size or a large one.
enum Run {
    Plain(Box<Driven<NoTap>>),
    Large(Box<Driven<LargeFabric>>),
}

/// Calls a method of a run of either kind.
macro_rules! of_run {
    ($run:expr, $sim:ident => $call:expr) => {
        match $run {
            Run::Plain($sim) => $call,
            Run::Large($sim) => $call,
        }
    };
}

/// A message under way.
struct Sent<C> {
    key: Key,
    /// Its number among those of its key.
    number: u64,
    call: C,
}

/// What happens next.
#[derive(Debug, PartialEq)]
pub(crate) enum Step<C> {
    /// The program is called.
    Call(C),
    /// Nothing more, up to the time that was asked for.
    Done,
}

/// A network with its program's messages and events.
pub(crate) struct Network<C> {
    run: Run,
    fabric: Arc<Fabric>,
    matching: Matching<C>,
    /// Messages under way, by the numbers of their transfers.
    sent: BTreeMap<u32, Sent<C>>,
    messages: u64,
    /// What is called now.
    due: VecDeque<C>,
    /// What is called at a time, in the order in which it was scheduled.
    scheduled: BTreeMap<(Nanos, u64), C>,
    events: u64,
    /// Transfers that have finished; reused.
    finished: Vec<u32>,
}

impl<C> Network<C> {
    /// Sets a network up. The settings have no transfers.
    pub(crate) fn new(settings: SimSettings) -> Result<Network<C>, SimError> {
        let fabric = settings.fabric.clone();
        let run = match fabric.links().len() >= LargeFabric::LINKS {
            true => Run::Large(Box::new(Driven::new(settings, LargeFabric)?)),
            false => Run::Plain(Box::new(Driven::new(settings, NoTap)?)),
        };
        Ok(Network {
            run,
            fabric,
            matching: Matching::default(),
            sent: BTreeMap::new(),
            messages: 0,
            due: VecDeque::new(),
            scheduled: BTreeMap::new(),
            events: 0,
            finished: Vec::new(),
        })
    }

    /// Number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.fabric.hosts().len()
    }

    /// Rate of the cards of a rank, all together; 0 if there is no such rank.
    pub(crate) fn rate_bps(&self, rank: u32) -> u64 {
        let Some(&host) = self.fabric.hosts().get(rank as usize) else { return 0 };
        self.fabric.host_attachments(host).iter().map(|at| self.fabric.link(at.uplink).settings.rate_bps).sum()
    }

    /// Simulated time.
    pub(crate) fn now(&self) -> Nanos {
        of_run!(&self.run, sim => sim.simulation().now())
    }

    /// Messages under way, scheduled events, and calls that are due.
    pub(crate) fn pending(&self) -> usize {
        self.sent.len() + self.scheduled.len() + self.due.len()
    }

    /// Number of messages so far.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Counts of packets so far.
    pub(crate) fn packets(&self) -> PacketTotals {
        of_run!(&self.run, sim => sim.simulation().packet_totals())
    }

    fn host(&self, what: &'static str, rank: u32) -> Result<NodeId, NetError> {
        let hosts = self.fabric.hosts();
        hosts.get(rank as usize).copied().ok_or(NetError::Rank { what, rank, ranks: hosts.len() })
    }

    /// Sends a message; `call` is called when it has arrived.
    pub(crate) fn send(&mut self, key: Key, call: C) -> Result<(), NetError> {
        let (src, dst) = (self.host("src", key.src)?, self.host("dst", key.dst)?);
        if src == dst {
            let number = self.matching.send(key);
            self.arrive(Sent { key, number, call });
        } else {
            let message = Message { src, dst, size_bytes: key.bytes };
            let transfer = of_run!(&mut self.run, sim => sim.send(message))?;
            let number = self.matching.send(key);
            self.sent.insert(transfer, Sent { key, number, call });
        }
        self.messages += 1;
        Ok(())
    }

    /// Receives a message; `call` is called when it has arrived.
    pub(crate) fn receive(&mut self, key: Key, call: C) -> Result<(), NetError> {
        self.host("src", key.src)?;
        self.host("dst", key.dst)?;
        self.due.extend(self.matching.receive(key, call));
        Ok(())
    }

    /// `call` is called after this time.
    pub(crate) fn schedule(&mut self, delay: Nanos, call: C) {
        self.events += 1;
        self.scheduled.insert((self.now().saturating_add(delay), self.events), call);
    }

    fn arrive(&mut self, Sent { key, number, call }: Sent<C>) {
        self.due.push_back(call);
        self.due.extend(self.matching.arrive(key, number));
    }

    /// Lets time pass until the program must be called, until nothing is left to happen, or up to and including `until`.
    ///
    /// # Errors
    /// Nothing is left to happen, but receives wait; the clock has ended with messages under way.
    pub(crate) fn next(&mut self, until: Option<Nanos>) -> Result<Step<C>, NetError> {
        loop {
            if let Some(call) = self.due.pop_front() {
                return Ok(Step::Call(call));
            }
            let now = self.now();
            if let Some(event) = self.scheduled.first_entry().filter(|event| event.key().0 <= now) {
                return Ok(Step::Call(event.remove()));
            }
            let nothing_left = self.pending() == 0;
            if nothing_left {
                self.check_receives()?;
            }
            let event = self.scheduled.keys().next().map(|&(at, _)| at);
            let target = match (until, event) {
                (None, None) if nothing_left => return Ok(Step::Done),
                (Some(until), _) if until <= now => return Ok(Step::Done),
                (until, event) => event.unwrap_or(Nanos::MAX).min(until.unwrap_or(Nanos::MAX)),
            };
            let mut finished = std::mem::take(&mut self.finished);
            of_run!(&mut self.run, sim => sim.advance(target, &mut finished));
            for transfer in finished.drain(..) {
                if let Some(sent) = self.sent.remove(&transfer) {
                    self.arrive(sent);
                }
            }
            self.finished = finished;
            let is_over = of_run!(&self.run, sim => sim.simulation().is_done());
            if is_over && self.due.is_empty() && self.now() < target {
                let (end_ns, messages, events) = (self.now().0, self.sent.len(), self.scheduled.len());
                return if nothing_left { Ok(Step::Done) } else { Err(NetError::Over { end_ns, messages, events }) };
            }
        }
    }

    fn check_receives(&self) -> Result<(), NetError> {
        let (count, first) = self.matching.expected();
        first.map_or(Ok(()), |key| Err(NetError::Stalled { count, key, similar: self.matching.similar(&key) }))
    }
}
