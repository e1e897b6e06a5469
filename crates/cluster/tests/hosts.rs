//! Agents of hosts, to which leaders send orders. The rate of an order says by which election it was sent.

use crate::scene::MEMBERS;
use pathloom_host_agent::agent::{Agent, ControllerId, Settings};
use pathloom_host_agent::protocol::{ControllerMessage, Wants, VERSION};
use pathloom_model::{Address, FiveTuple, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, VecDeque};

pub const HOSTS: usize = 2;
/// Durations of messages between members and hosts.
const CHANNEL: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(30));

/// What agents do wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wrong {
    #[default]
    Nothing,
    /// They take all elections for the same.
    IgnoresElections,
    /// One that starts anew knows of no election.
    ForgetsElections,
}

/// Lines of a member for a host, in order, with the process of the member that has sent them.
#[derive(Default)]
struct Channel {
    waiting: VecDeque<(Nanos, usize, Vec<u8>)>,
    is_cut: bool,
}

pub struct Hosts {
    pub wrong: Wrong,
    pub agents: Vec<Agent>,
    /// The newest election of which each agent has carried out an order.
    pub newest: [u64; HOSTS],
    /// Number of orders that each agent has carried out.
    pub obeyed: [u64; HOSTS],
    channels: BTreeMap<(usize, usize), Channel>,
    /// The election by which each process of a member has welcomed an agent last.
    welcomed: BTreeMap<(usize, usize), u64>,
    rng: Pcg64,
}

fn flow(host: usize) -> FiveTuple {
    let (src, dst) = (address(host), Address::new(10, 0, 7, 1));
    FiveTuple::new(6, (src, 40_000), (dst, 80))
}

fn address(host: usize) -> Address {
    Address::new(10, 0, 0, 1 + host as u8)
}

fn agent(host: usize) -> Agent {
    Agent::new(Settings { hosts: address(host).v4().into_iter().collect(), token: None, max_flows: 4 })
}

impl Hosts {
    pub fn new(seed: u64) -> Hosts {
        Hosts {
            wrong: Wrong::default(),
            agents: (0..HOSTS).map(agent).collect(),
            newest: [0; HOSTS],
            obeyed: [0; HOSTS],
            channels: BTreeMap::new(),
            welcomed: BTreeMap::new(),
            rng: Pcg64::seed_from_u64(seed ^ 0xa6e7),
        }
    }

    pub fn link(&mut self, member: usize, host: usize, works: bool) {
        self.channels.entry((member, host)).or_default().is_cut = !works;
    }

    /// The agent of a host starts anew. Its connections are new ones, and its orders stay in the kernel.
    pub fn restart(&mut self, host: usize) {
        let newest = self.agents[host].newest_election();
        self.agents[host] = agent(host);
        if self.wrong != Wrong::ForgetsElections {
            self.agents[host].adopt_election(newest);
        }
        self.channels.iter_mut().filter(|(key, _)| key.1 == host).for_each(|(_, channel)| channel.waiting.clear());
        self.welcomed.retain(|&(_, other), _| other != host);
    }

    /// A leader orders something from all agents. `process` is the number of its process, times the number of members,
    /// plus its own number.
    pub fn order(&mut self, now: Nanos, process: usize, election: u64) {
        for host in 0..HOSTS {
            let sent = Some(if self.wrong == Wrong::IgnoresElections { 1 } else { election });
            let before = self.welcomed.insert((process, host), election);
            if before.is_none() {
                self.agents[host].handle_connected(ControllerId(process));
            }
            if before != Some(election) {
                let welcome = ControllerMessage::Welcome { version: VERSION, wants: Wants::default(), election: sent };
                self.send(now, process, host, &welcome);
            }
            let pace = ControllerMessage::Pace { flow: flow(host), rate_bps: Some(election), election: sent };
            self.send(now, process, host, &pace);
        }
    }

    fn send(&mut self, now: Nanos, process: usize, host: usize, message: &ControllerMessage<'_>) {
        let drawn = now + Nanos(self.rng.random_range(CHANNEL.0 .0..=CHANNEL.1 .0));
        let waiting = &mut self.channels.entry((process % MEMBERS, host)).or_default().waiting;
        let at = waiting.back().map_or(drawn, |&(last, ..)| last.max(drawn));
        let mut line = Vec::new();
        message.write(&mut line);
        waiting.push_back((at, process, line));
    }

    /// When the next line arrives.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let open = self.channels.values().filter(|channel| !channel.is_cut);
        open.filter_map(|channel| channel.waiting.front().map(|&(at, ..)| at)).min()
    }

    /// Agents handle the lines that have arrived. Returns what must not happen.
    pub fn arrive(&mut self, now: Nanos) -> Vec<String> {
        let mut violations = Vec::new();
        for (&(_, host), channel) in self.channels.iter_mut().filter(|(_, channel)| !channel.is_cut) {
            while channel.waiting.front().is_some_and(|&(at, ..)| at <= now) {
                let Some((_, process, line)) = channel.waiting.pop_front() else { break };
                self.agents[host].handle_line(now, ControllerId(process), &line);
                while let Some((_, order)) = self.agents[host].poll_order() {
                    let Some(election) = order.pace_bps else { continue };
                    let newest = self.newest[host];
                    if election < newest {
                        violations.push(format!("{now:?}: host {host} obeys {election} after {newest}"));
                    }
                    self.newest[host] = newest.max(election);
                    self.obeyed[host] += 1;
                }
            }
        }
        violations
    }
}
