//! Members and an etcd in virtual time. Members may be killed and paused, their clocks may run at other speeds, and each
//! may be cut off from etcd.

use super::etcd::Etcd;
use crate::etcd::{Answer, Failure, Keys, Request};
use crate::member::{Input, Member, Output, RequestId, Settings};
use crate::position::Position;
use pathloom_model::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, VecDeque};

/// Time after which the driver of a member gives up a request.
const GIVES_UP_AFTER: Nanos = Nanos::from_millis(700);
/// Number of requests that are not of a member. Members begin with 1.
const OF_DRIVER: RequestId = RequestId(0);

/// A clock that runs at its own speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// A time of the world.
    pub since: Nanos,
    /// What the clock showed then.
    pub showed: Nanos,
    /// By how many thousandths it is faster than the clock of the world since then.
    pub faster_permille: i64,
}

impl Clock {
    fn speed(self) -> u128 {
        u128::try_from((1000 + self.faster_permille).max(1)).unwrap_or(1)
    }

    /// What it shows.
    pub fn at(self, now: Nanos) -> Nanos {
        let passed = u128::from(now.saturating_sub(self.since).0);
        self.showed + Nanos((passed * self.speed() / 1000) as u64)
    }

    /// When it shows this time or a later one for the first time.
    fn when(self, shown: Nanos) -> Nanos {
        let passed = u128::from(shown.saturating_sub(self.showed).0) * 1000;
        self.since.saturating_add(Nanos(u64::try_from(passed.div_ceil(self.speed())).unwrap_or(u64::MAX)))
    }
}

/// Least and greatest durations.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A message between a member and etcd.
    pub channel: (Nanos, Nanos),
}

/// A place for a member.
struct Node {
    member: Option<Member>,
    /// Number of members that were here.
    life: u64,
    clock: Clock,
    paused: bool,
    /// What has arrived during a pause.
    held: VecDeque<Input>,
    /// Whether it is connected with etcd.
    linked: bool,
    /// Its watches, and the next revision of each.
    watches: BTreeMap<RequestId, (Keys, u64)>,
    /// When the last message to it arrives. Messages of etcd keep their order.
    last: Nanos,
}

#[derive(Clone, Debug)]
enum Event {
    AtEtcd { node: usize, life: u64, id: RequestId, request: Request },
    AtMember { node: usize, life: u64, input: Input },
    GivesUp { node: usize, life: u64, id: RequestId },
}

/// Members, numbered from 0, and their etcd.
pub struct World {
    /// The etcd.
    pub etcd: Etcd,
    /// Whether etcd answers.
    pub etcd_answers: bool,
    /// Durations.
    pub timing: Timing,
    settings: Vec<Settings>,
    nodes: Vec<Node>,
    now: Nanos,
    agenda: BTreeMap<(Nanos, u64), Event>,
    events: u64,
    decisions: VecDeque<(usize, Position)>,
    /// The members that have noticed that etcd's revision went back, from which revision and to which one.
    pub went_back: Vec<(usize, u64, u64)>,
    /// The members that do not know the format of the keys, and what the key says.
    pub unknown_formats: Vec<(usize, String)>,
    rng: Pcg64,
}

impl World {
    /// One member with each of these settings. They start at time 0.
    pub fn new(settings: Vec<Settings>, timing: Timing, seed: u64) -> World {
        let node = |_: &Settings| Node {
            member: None,
            life: 0,
            clock: Clock::default(),
            paused: false,
            held: VecDeque::new(),
            linked: true,
            watches: BTreeMap::new(),
            last: Nanos::ZERO,
        };
        let nodes = settings.iter().map(node).collect();
        let mut world = World {
            etcd: Etcd::new(),
            etcd_answers: true,
            timing,
            settings,
            nodes,
            now: Nanos::ZERO,
            agenda: BTreeMap::new(),
            events: 0,
            decisions: VecDeque::new(),
            went_back: Vec::new(),
            unknown_formats: Vec::new(),
            rng: Pcg64::seed_from_u64(seed),
        };
        (0..world.nodes.len()).for_each(|node| world.start(node));
        world
    }

    /// The present time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A member, unless it was killed.
    pub fn member(&self, node: usize) -> Option<&Member> {
        self.nodes[node].member.as_ref()
    }

    /// Whether a member leads and etcd confirms it, at this moment of its own clock.
    pub fn leads(&self, node: usize) -> bool {
        let Node { member, clock, .. } = &self.nodes[node];
        member.as_ref().is_some_and(|member| member.leads_at(clock.at(self.now)))
    }

    /// What the clock of a member shows.
    pub fn shown(&self, node: usize) -> Nanos {
        self.nodes[node].clock.at(self.now)
    }

    /// The settings of a member. Changed ones apply when it starts anew.
    pub fn settings(&mut self, node: usize) -> &mut Settings {
        &mut self.settings[node]
    }

    /// Whether a member is paused.
    pub fn is_paused(&self, node: usize) -> bool {
        self.nodes[node].paused
    }

    /// Starts a member where none runs.
    pub fn start(&mut self, node: usize) {
        let settings = self.settings[node].clone();
        let one = &mut self.nodes[node];
        (one.life, one.paused) = (one.life + 1, false);
        one.held.clear();
        one.watches.clear();
        one.member = Some(Member::new(settings, one.clock.at(self.now)));
    }

    /// Kills a member.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].member = None;
        self.nodes[node].watches.clear();
    }

    /// A member leaves, as its process does when it is told to stop.
    pub fn stop(&mut self, node: usize) {
        self.give(node, Input::Stop);
    }

    /// A member stands still, as by SIGSTOP, or goes on. What arrives meanwhile waits.
    pub fn pause(&mut self, node: usize, paused: bool) {
        self.nodes[node].paused = paused;
        if !paused {
            // A process that goes on looks at its clock first.
            self.time_out(node);
            while let Some(input) = self.nodes[node].held.pop_front() {
                self.give(node, input);
            }
        }
    }

    /// The connection of a member with etcd breaks or works again.
    pub fn link(&mut self, node: usize, works: bool) {
        self.nodes[node].linked = works;
        if !works {
            self.break_watches(node);
        }
    }

    /// The watches of a member break. It notices.
    pub fn break_watches(&mut self, node: usize) {
        for id in std::mem::take(&mut self.nodes[node].watches).into_keys() {
            self.tell(node, Input::Changed { id, changes: Err(Failure::Unanswered) });
        }
    }

    /// Etcd goes on from a backup. All watches break, and each lease gets its whole time to live again.
    pub fn restore(&mut self, backup: &Etcd) {
        self.etcd.restore(self.now, backup);
        (0..self.nodes.len()).for_each(|node| self.break_watches(node));
    }

    /// The clock of a member runs at another speed from now on.
    pub fn set_speed(&mut self, node: usize, faster_permille: i64) {
        let (since, showed) = (self.now, self.nodes[node].clock.at(self.now));
        self.nodes[node].clock = Clock { since, showed, faster_permille };
    }

    /// A member learns something at once.
    pub fn give(&mut self, node: usize, input: Input) {
        let one = &mut self.nodes[node];
        if one.paused {
            return one.held.push_back(input);
        }
        let now = one.clock.at(self.now);
        if let Some(member) = &mut one.member {
            member.handle(now, input);
            self.take_outputs(node);
        }
    }

    /// A decision of a member that was not taken yet, in order.
    pub fn poll_decision(&mut self) -> Option<(usize, Position)> {
        self.decisions.pop_front()
    }

    /// When to call [`World::advance`].
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let event = self.agenda.keys().next().map(|&(at, _)| at);
        let members = (0..self.nodes.len()).filter_map(|node| self.member_timeout(node));
        let next = members.chain(event).chain(self.etcd.poll_timeout()).min();
        next.map(|at| at.max(self.now))
    }

    fn member_timeout(&self, node: usize) -> Option<Nanos> {
        let Node { member, clock, paused, .. } = &self.nodes[node];
        let shown = member.as_ref().filter(|_| !paused)?.poll_timeout();
        (shown < Nanos::MAX).then(|| clock.when(shown))
    }

    /// Does what is due. `now` must not be later than [`World::poll_timeout`].
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.etcd.advance(self.now);
        self.tell_watchers();
        for node in 0..self.nodes.len() {
            if self.member_timeout(node).is_some_and(|at| at <= self.now) {
                self.time_out(node);
            }
        }
        while let Some(event) = self.agenda.first_entry().filter(|event| event.key().0 <= self.now) {
            let event = event.remove();
            self.happen(event);
        }
    }

    fn time_out(&mut self, node: usize) {
        let now = self.nodes[node].clock.at(self.now);
        if let Some(member) = &mut self.nodes[node].member {
            member.handle_timeout(now);
            self.take_outputs(node);
        }
    }

    fn take_outputs(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].member.as_mut().and_then(Member::poll_output) {
            match output {
                Output::Position(position) => self.decisions.push_back((node, position)),
                Output::WentBack { from, to } => self.went_back.push((node, from, to)),
                Output::UnknownFormat(format) => self.unknown_formats.push((node, format)),
                Output::Request { id, request } => {
                    let life = self.nodes[node].life;
                    self.ask(node, id, request);
                    self.plan(self.now + GIVES_UP_AFTER, Event::GivesUp { node, life, id });
                }
            }
        }
    }

    fn ask(&mut self, node: usize, id: RequestId, request: Request) {
        let at = self.now + self.draw();
        self.plan(at, Event::AtEtcd { node, life: self.nodes[node].life, id, request });
    }

    /// The driver of a member sends etcd a request of its own. It needs no answer.
    pub fn send(&mut self, node: usize, request: Request) {
        self.ask(node, OF_DRIVER, request);
    }

    fn draw(&mut self) -> Nanos {
        let (least, most) = self.timing.channel;
        Nanos(self.rng.random_range(least.0..=most.0))
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.events += 1;
        self.agenda.insert((at, self.events), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::AtEtcd { node, life, id, request } => self.at_etcd(node, life, id, request),
            Event::AtMember { node, life, input } if self.nodes[node].life == life => {
                // An answer may be lost although the request was carried out.
                if self.nodes[node].linked || !is_of_etcd(&input) {
                    self.give(node, input);
                }
            }
            Event::GivesUp { node, life, id } if self.nodes[node].life == life => {
                // A watch has no answer, and a request that was answered is forgotten.
                self.give(node, Input::Answered { id, answer: Err(Failure::Unanswered) });
            }
            Event::AtMember { .. } | Event::GivesUp { .. } => {}
        }
    }

    /// A request arrives, also one of a member that was killed since.
    fn at_etcd(&mut self, node: usize, life: u64, id: RequestId, request: Request) {
        if !self.nodes[node].linked || !self.etcd_answers {
            if matches!(request, Request::Watch { .. }) && self.nodes[node].life == life {
                self.tell(node, Input::Changed { id, changes: Err(Failure::Unanswered) });
            }
            return;
        }
        if let Request::Watch { keys, from } = request {
            if self.nodes[node].life == life {
                self.nodes[node].watches.insert(id, (keys, from));
            }
        } else {
            let answer: Result<Answer, Failure> = self.etcd.handle(self.now, &request);
            if self.nodes[node].life == life {
                self.tell(node, Input::Answered { id, answer });
            }
        }
        self.tell_watchers();
    }

    /// Sends a member something, in order.
    fn tell(&mut self, node: usize, input: Input) {
        let at = (self.now + self.draw()).max(self.nodes[node].last);
        self.nodes[node].last = at;
        let life = self.nodes[node].life;
        self.plan(at, Event::AtMember { node, life, input });
    }

    fn tell_watchers(&mut self) {
        if !self.etcd_answers {
            return;
        }
        for node in (0..self.nodes.len()).filter(|&node| self.nodes[node].linked).collect::<Vec<_>>() {
            let watches: Vec<(RequestId, Keys, u64)> = self.nodes[node]
                .watches
                .iter()
                .filter(|(_, (_, from))| *from <= self.etcd.revision())
                .map(|(&id, (keys, from))| (id, keys.clone(), *from))
                .collect();
            for (id, keys, from) in watches {
                let changes = self.etcd.changes(&keys, from);
                let next = self.etcd.revision() + 1;
                if changes.is_err() {
                    self.nodes[node].watches.remove(&id);
                } else if let Some(watch) = self.nodes[node].watches.get_mut(&id) {
                    watch.1 = next;
                }
                if changes != Ok(Vec::new()) {
                    self.tell(node, Input::Changed { id, changes });
                }
            }
        }
    }
}

/// Whether etcd has sent this. A driver reports failures by itself.
fn is_of_etcd(input: &Input) -> bool {
    match input {
        Input::Answered { answer, .. } => answer.is_ok(),
        Input::Changed { changes, .. } => changes.is_ok(),
        Input::RefusedBySwitch | Input::Stop => false,
    }
}
