//! Three members, an etcd, switches that know roles, and agents of hosts, in virtual time; and what must never happen.

use crate::hosts::{Hosts, HOSTS};
use crate::versions::{Versions, CARDS_EVERY, NEWEST};
use pathloom_cluster::model::{Timing, World};
use pathloom_cluster::{Input, Position, Settings, Token};
use pathloom_model::Nanos;
use pathloom_openflow::{frame, FlowMod, Message, Role, RoleMessage, BAD_REQUEST, ROLE_REQUEST_FAILED};
use pathloom_testnet::{Device, Faults};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, VecDeque};

pub const MEMBERS: usize = 3;
pub const TTL_S: u64 = 2;
pub const SWITCHES: usize = 3;
/// Time between two rules of a leader.
const WRITES_EVERY: Nanos = Nanos::from_millis(40);
/// Time after which a leader asks again for the role of the master.
const ASKS_AGAIN_AFTER: Nanos = Nanos::from_millis(500);
/// Durations of messages between members and etcd, usually and while etcd is slow. Members do not wait that long for all
/// answers, which then come late.
const ETCD: (Nanos, Nanos) = (Nanos::from_micros(100), ms(20));
const SLOW_ETCD: (Nanos, Nanos) = (ms(50), ms(1500));
/// Durations of messages between members and switches.
const CHANNEL: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(30));

pub const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Kill(usize),
    Start(usize),
    Stop(usize),
    Pause(usize, bool),
    /// The clock of a member runs at another speed.
    Speed(usize, i64),
    /// A member and etcd are connected, or not.
    Etcd(usize, bool),
    /// A member and an agent are connected, or not. What is sent meanwhile arrives later.
    Host(usize, usize, bool),
    /// The agent of a host starts anew.
    AgentStarts(usize),
    /// A member and a switch are connected, or not. What is sent meanwhile arrives later, as by TCP.
    Switch(usize, usize, bool),
    BreakWatches(usize),
    EtcdAnswers(bool),
    EtcdFull(bool),
    EtcdSlow(bool),
    EtcdElects,
    Compact,
    /// A member is told to stop, and starts again, as in an upgrade or back. Its version knows formats of the keys up to this one.
    Upgrade(usize, u32),
    /// The process of whoever leads is killed.
    KillLeader,
    /// The process of whoever leads stands still.
    PauseLeader,
}

/// What a member's driver knows.
#[derive(Default)]
struct Driver {
    token: Option<Token>,
    /// When it last asked each switch for the role of the master, and whether it has it.
    roles: [(Nanos, bool); SWITCHES],
    /// Number of the process.
    life: usize,
}

/// One direction of a connection, in order.
#[derive(Default)]
struct Channel {
    waiting: VecDeque<(Nanos, usize, Vec<u8>)>,
    is_cut: bool,
}

pub struct Scene {
    pub world: World,
    pub switches: Vec<Device>,
    pub hosts: Hosts,
    pub versions: Versions,
    pub violations: Vec<String>,
    /// Rules that each switch has accepted by the election of their leader.
    pub accepted: BTreeMap<(usize, u64), u64>,
    drivers: [Driver; MEMBERS],
    to_switch: BTreeMap<(usize, usize), Channel>,
    to_member: BTreeMap<(usize, usize), Channel>,
    /// The newest election of which each switch has accepted something.
    newest: [u64; SWITCHES],
    masters: BTreeMap<(usize, u64), usize>,
    next_write: Nanos,
    next_cards: Nanos,
    now: Nanos,
    rng: Pcg64,
}

impl Scene {
    pub fn new(seed: u64, settings: impl Fn(Settings) -> Settings, faults: Faults) -> Scene {
        let names = (0..MEMBERS).map(|member| format!("c{member}"));
        let settings = names.map(|name| settings(Settings::new(&name, "/pathloom/", TTL_S))).collect();
        let timing = Timing { channel: ETCD };
        Scene {
            world: World::new(settings, timing, seed),
            switches: (0..SWITCHES).map(|number| Device::new(number as u64 + 1, 4, faults.clone())).collect(),
            hosts: Hosts::new(seed),
            versions: Versions::default(),
            violations: Vec::new(),
            accepted: BTreeMap::new(),
            drivers: Default::default(),
            to_switch: BTreeMap::new(),
            to_member: BTreeMap::new(),
            newest: [0; SWITCHES],
            masters: BTreeMap::new(),
            next_write: Nanos::ZERO,
            next_cards: Nanos::ZERO,
            now: Nanos::ZERO,
            rng: Pcg64::seed_from_u64(seed ^ 0x5eed),
        }
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The member that leads and that etcd confirms.
    pub fn leader(&self) -> Option<usize> {
        (0..MEMBERS).find(|&member| self.world.leads(member) && !self.world.is_paused(member))
    }

    pub fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(member) => self.kill(member),
            Fault::Start(member) if self.world.member(member).is_none() => self.world.start(member),
            Fault::Start(_) => {}
            Fault::Stop(member) => self.world.stop(member),
            Fault::Pause(member, paused) if paused != self.world.is_paused(member) => self.world.pause(member, paused),
            Fault::Pause(..) => {}
            Fault::Speed(member, faster_permille) => self.world.set_speed(member, faster_permille),
            Fault::Etcd(member, works) => self.world.link(member, works),
            Fault::Switch(member, switch, works) => {
                for channels in [&mut self.to_switch, &mut self.to_member] {
                    channels.entry((member, switch)).or_default().is_cut = !works;
                }
            }
            Fault::Host(member, host, works) => self.hosts.link(member, host, works),
            Fault::AgentStarts(host) => self.hosts.restart(host),
            Fault::BreakWatches(member) => self.world.break_watches(member),
            Fault::EtcdAnswers(answers) => {
                self.world.etcd_answers = answers;
                if !answers {
                    (0..MEMBERS).for_each(|member| self.world.break_watches(member));
                }
            }
            Fault::EtcdFull(is_full) => self.world.etcd.is_full = is_full,
            Fault::EtcdSlow(is_slow) => self.world.timing.channel = if is_slow { SLOW_ETCD } else { ETCD },
            Fault::Upgrade(member, format) => {
                // What it sends before it ends arrives.
                self.world.stop(member);
                self.decide();
                self.kill(member);
                self.versions.install(&mut self.world, member, format);
                self.world.start(member);
            }
            Fault::EtcdElects => self.world.etcd.change_leader(self.now),
            Fault::Compact => {
                let before = self.world.etcd.revision();
                // It may be compacted already.
                let _ = self.world.etcd.handle(self.now, &pathloom_cluster::etcd::Request::Compact { before });
            }
            Fault::KillLeader => self.leader().into_iter().for_each(|leader| self.kill(leader)),
            Fault::PauseLeader => self.leader().into_iter().for_each(|leader| self.world.pause(leader, true)),
        }
        self.decide();
    }

    fn kill(&mut self, member: usize) {
        self.world.kill(member);
        let life = self.drivers[member].life + 1;
        self.drivers[member] = Driver { life, ..Driver::default() };
        // What it has sent still arrives.
        self.to_member.iter_mut().filter(|(key, _)| key.0 == member).for_each(|(_, channel)| channel.waiting.clear());
    }

    /// Everything works again, and all members run.
    pub fn heal(&mut self) {
        for member in 0..MEMBERS {
            self.apply(Fault::Etcd(member, true));
            (0..SWITCHES).for_each(|switch| self.apply(Fault::Switch(member, switch, true)));
            (0..HOSTS).for_each(|host| self.apply(Fault::Host(member, host, true)));
            self.apply(Fault::Pause(member, false));
            let stopped = self.world.member(member).is_some_and(|one| one.poll_timeout() == Nanos::MAX);
            if stopped {
                self.apply(Fault::Kill(member));
            }
            self.apply(Fault::Start(member));
        }
        self.apply(Fault::EtcdFull(false));
        self.apply(Fault::EtcdSlow(false));
        self.apply(Fault::EtcdAnswers(true));
        // If no member knows the format of the keys, an operator must upgrade one.
        if (0..MEMBERS).all(|member| self.versions.is_too_old(&self.world, member)) {
            self.apply(Fault::Upgrade(0, NEWEST));
        }
    }

    pub fn run_for(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            // A member that stands still reads nothing.
            let reads = |&((member, _), _): &(&(usize, usize), &Channel)| !self.world.is_paused(*member);
            let channels = self.to_switch.iter().chain(self.to_member.iter().filter(reads));
            let arrivals = channels
                .filter(|(_, channel)| !channel.is_cut)
                .filter_map(|(_, channel)| channel.waiting.front().map(|&(at, ..)| at));
            let next = arrivals.chain(self.world.poll_timeout()).chain(self.hosts.poll_timeout());
            let next = next.chain([self.next_write, self.next_cards]).min().unwrap_or(end);
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.world.advance(self.now);
            self.decide();
            self.arrive();
            if self.now >= self.next_write {
                self.next_write = self.now + WRITES_EVERY;
                (0..MEMBERS).for_each(|member| self.write(member));
            }
            if self.now >= self.next_cards {
                self.next_cards = self.now + CARDS_EVERY;
                (0..MEMBERS).for_each(|member| self.versions.say(&mut self.world, member));
            }
            self.check_leaders();
        }
        self.now = end;
        self.world.advance(end);
        self.decide();
    }

    fn check_leaders(&mut self) {
        let leaders: Vec<usize> = (0..MEMBERS).filter(|&member| self.world.leads(member)).collect();
        if leaders.len() > 1 {
            self.violations.push(format!("{:?}: members {leaders:?} lead", self.now));
        }
        let unable = leaders.into_iter().filter_map(|member| self.versions.misread(&self.world, member));
        self.violations.extend(unable);
    }

    /// Drivers take the decisions of their members.
    fn decide(&mut self) {
        while let Some((member, position)) = self.world.poll_decision() {
            let token = match position {
                Position::Lead { token } | Position::Unconfirmed { token } => Some(token),
                Position::Follow { .. } => None,
            };
            if self.drivers[member].token != token {
                self.drivers[member].token = token;
                self.drivers[member].roles = Default::default();
                if let Some(token) = token {
                    self.versions.agree(&mut self.world, member, token);
                }
                self.write(member);
            }
        }
    }

    /// A leader asks switches for the role of the master, or sends them rules.
    fn write(&mut self, member: usize) {
        let Some(Token(token)) = self.drivers[member].token.filter(|_| !self.world.is_paused(member)) else { return };
        self.hosts.order(self.now, self.drivers[member].life * MEMBERS + member, token);
        for switch in 0..SWITCHES {
            let (asked, granted) = &mut self.drivers[member].roles[switch];
            let message = if *granted {
                Message::FlowMod(FlowMod { cookie: token, ..FlowMod::NOTHING })
            } else if *asked == Nanos::ZERO || self.now >= *asked + ASKS_AGAIN_AFTER {
                *asked = self.now;
                Message::RoleRequest(RoleMessage { role: Role::Master, generation: token })
            } else {
                continue;
            };
            let mut bytes = Vec::new();
            message.emit(1, &mut bytes).unwrap();
            let connection = self.drivers[member].life * MEMBERS + member;
            send(&mut self.to_switch, (member, switch), (self.now, &mut self.rng), connection, bytes);
        }
    }

    fn arrive(&mut self) {
        self.violations.extend(self.hosts.arrive(self.now));
        for member in 0..MEMBERS {
            for switch in 0..SWITCHES {
                while let Some((connection, bytes)) = take(&mut self.to_switch, (member, switch), self.now) {
                    self.at_switch(switch, connection, &bytes);
                }
                if self.world.is_paused(member) {
                    continue;
                }
                while let Some((_, bytes)) = take(&mut self.to_member, (member, switch), self.now) {
                    self.at_member(member, switch, &bytes);
                }
            }
        }
    }

    fn at_switch(&mut self, switch: usize, connection: usize, bytes: &[u8]) {
        let (header, body, _) = frame(bytes).unwrap().unwrap();
        let member = connection % MEMBERS;
        let refused_before = self.switches[switch].roles.slave_refusals;
        let mut out = Vec::new();
        self.switches[switch].handle(self.now, connection, (header, body), &mut out);
        let is_permitted = self.switches[switch].roles.slave_refusals == refused_before;
        let accepted = match (Message::parse(header, body).unwrap(), frame(&out)) {
            (Message::FlowMod(rule), _) if is_permitted => {
                *self.accepted.entry((switch, rule.cookie)).or_default() += 1;
                Some(rule.cookie)
            }
            (Message::RoleRequest(asked), Ok(Some((answer, ..))))
                if answer.kind == pathloom_openflow::Kind::ROLE_REPLY =>
            {
                let other = *self.masters.entry((switch, asked.generation)).or_insert(member);
                if other != member {
                    let what = format!("switch {switch} had {other} and {member} as masters of {}", asked.generation);
                    self.violations.push(what);
                }
                Some(asked.generation)
            }
            _ => None,
        };
        if let Some(token) = accepted {
            let newest = &mut self.newest[switch];
            if token < *newest {
                let what = format!("{:?}: switch {switch} accepts {token} of {member} after {newest}", self.now);
                self.violations.push(what);
            }
            *newest = token.max(*newest);
        }
        if !out.is_empty() && self.drivers[member].life * MEMBERS + member == connection {
            send(&mut self.to_member, (member, switch), (self.now, &mut self.rng), connection, out);
        }
    }

    fn at_member(&mut self, member: usize, switch: usize, bytes: &[u8]) {
        let (header, body, _) = frame(bytes).unwrap().unwrap();
        let Driver { token, roles, .. } = &mut self.drivers[member];
        match Message::parse(header, body).unwrap() {
            Message::RoleReply(reply) if *token == Some(Token(reply.generation)) => {
                roles[switch].1 = reply.role == Role::Master;
            }
            Message::Error(error) if error.kind == ROLE_REQUEST_FAILED || error.kind == BAD_REQUEST => {
                roles[switch].1 = false;
                if token.is_some() {
                    self.world.give(member, Input::RefusedBySwitch);
                    self.decide();
                }
            }
            _ => {}
        }
    }

    /// Whether one member leads, is the master of all switches, and all agents obey it.
    pub fn is_led(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(Token(token)) = self.drivers[leader].token else { return false };
        let is_obeyed = self.hosts.newest.iter().all(|&newest| newest == token);
        is_obeyed
            && (0..SWITCHES).all(|switch| {
                let is_master = self.masters.get(&(switch, token)) == Some(&leader);
                is_master && self.newest[switch] == token && self.drivers[leader].roles[switch].1
            })
    }
}

fn send(
    channels: &mut BTreeMap<(usize, usize), Channel>,
    key: (usize, usize),
    (now, rng): (Nanos, &mut Pcg64),
    connection: usize,
    bytes: Vec<u8>,
) {
    let waiting = &mut channels.entry(key).or_default().waiting;
    let drawn = now + Nanos(rng.random_range(CHANNEL.0 .0..=CHANNEL.1 .0));
    let at = waiting.back().map_or(drawn, |&(last, ..)| last.max(drawn));
    waiting.push_back((at, connection, bytes));
}

fn take(channels: &mut BTreeMap<(usize, usize), Channel>, key: (usize, usize), now: Nanos) -> Option<(usize, Vec<u8>)> {
    let channel = channels.get_mut(&key).filter(|channel| !channel.is_cut)?;
    let has_arrived = channel.waiting.front().is_some_and(|&(at, ..)| at <= now);
    let (_, connection, bytes) = has_arrived.then(|| channel.waiting.pop_front()).flatten()?;
    Some((connection, bytes))
}

/// Draws the faults of a schedule, with their times in order.
pub fn draw(seed: u64, count: usize, time: Nanos, fastest_permille: i64) -> Vec<(Nanos, Fault)> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut faults: Vec<(Nanos, Fault)> = Vec::new();
    for _ in 0..count {
        let at = Nanos(rng.random_range(0..time.0));
        let until = at + Nanos(rng.random_range(ms(50).0..ms(6000).0));
        let (member, switch) = (rng.random_range(0..MEMBERS), rng.random_range(0..SWITCHES));
        let speed = rng.random_range(-fastest_permille..=fastest_permille);
        let format = rng.random_range(1..=NEWEST);
        let pair = match rng.random_range(0..16) {
            0 => [Fault::Kill(member), Fault::Start(member)],
            1 => [Fault::KillLeader, Fault::KillLeader],
            2 => [Fault::Stop(member), Fault::Kill(member)],
            3 => [Fault::Pause(member, true), Fault::Pause(member, false)],
            4 => [Fault::PauseLeader, Fault::PauseLeader],
            5 => [Fault::Speed(member, speed), Fault::Speed(member, 0)],
            6 | 7 => [Fault::Etcd(member, false), Fault::Etcd(member, true)],
            8 | 9 => [Fault::Switch(member, switch, false), Fault::Switch(member, switch, true)],
            10 => [Fault::BreakWatches(member), Fault::Compact],
            11 => [Fault::EtcdAnswers(false), Fault::EtcdAnswers(true)],
            12 => [Fault::EtcdFull(true), Fault::EtcdFull(false)],
            13 => [Fault::EtcdSlow(true), Fault::EtcdSlow(false)],
            14 => [Fault::EtcdElects, Fault::Start(member)],
            _ => {
                faults.extend((1..MEMBERS).map(|later| {
                    let one = (member + later) % MEMBERS;
                    (at + Nanos((until - at).0 * later as u64 / MEMBERS as u64), Fault::Upgrade(one, format))
                }));
                [Fault::Upgrade(member, format), Fault::EtcdElects]
            }
        };
        faults.extend([(at, pair[0]), (until, pair[1])]);
        // What stood still goes on some time later.
        faults.extend((0..MEMBERS).map(|member| (until + ms(500), Fault::Pause(member, false))));
    }
    faults.extend(draw_of_hosts(seed, count, time));
    faults.sort_by_key(|&(at, _)| at);
    faults
}

/// Draws faults of agents.
fn draw_of_hosts(seed: u64, count: usize, time: Nanos) -> Vec<(Nanos, Fault)> {
    let mut rng = Pcg64::seed_from_u64(seed ^ 0x0a6e);
    let mut faults = Vec::new();
    for _ in 0..rng.random_range(0..=count) {
        let at = Nanos(rng.random_range(0..time.0));
        let until = at + Nanos(rng.random_range(ms(50).0..ms(6000).0));
        let (member, host) = (rng.random_range(0..MEMBERS), rng.random_range(0..HOSTS));
        faults.push((at, Fault::Host(member, host, false)));
        faults.push((until, Fault::Host(member, host, true)));
        if rng.random_bool(0.5) {
            faults.push((at + Nanos(rng.random_range(0..time.0)), Fault::AgentStarts(host)));
        }
    }
    faults
}
