//! Several hubs with their members and an etcd, as one machine of the virtual network.

use crate::faults::driven::{Driven, Id as HubId};
use pathloom_cluster::model::{Timing, World};
use pathloom_cluster::{Input, Position, Settings, Token};
use pathloom_control::Snapshot;
use pathloom_controller::config::CheckedConfig;
use pathloom_model::Nanos;
use pathloom_testnet::Machine;
use std::collections::{BTreeMap, VecDeque};

/// A connection: the number of its controller, the number of that controller's hub, and its identifier there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Id {
    controller: usize,
    life: u64,
    id: HubId,
}

/// What a controller has not read yet.
enum Unread {
    Bytes(Id, Vec<u8>),
    Gone(Id),
}

/// A process of a controller.
struct Process {
    hub: Driven,
    life: u64,
    token: Option<Token>,
    is_paused: bool,
    unread: VecDeque<Unread>,
}

pub(crate) struct Cluster {
    pub world: World,
    processes: Vec<Option<Process>>,
    checked: CheckedConfig,
    scheme: String,
    lives: u64,
    epoch: u16,
    /// What the last leader has stored.
    pub snapshot: Option<Snapshot>,
    /// Bytes of each connection that its hub has not used yet.
    rest: BTreeMap<Id, Vec<u8>>,
    closed: VecDeque<Id>,
    /// The leaders so far, with their elections.
    pub leaders: Vec<(usize, u64)>,
}

impl Cluster {
    pub(crate) fn new(checked: CheckedConfig, scheme: &str, count: usize, seed: u64) -> Cluster {
        let settings = (0..count).map(|number| Settings::new(&format!("c{number}"), "/pathloom/", 2)).collect();
        let timing = Timing { channel: (Nanos::from_micros(200), Nanos::from_millis(5)) };
        let mut cluster = Cluster {
            world: World::new(settings, timing, seed),
            processes: (0..count).map(|_| None).collect(),
            checked,
            scheme: scheme.to_owned(),
            lives: 0,
            epoch: 0,
            snapshot: None,
            rest: BTreeMap::new(),
            closed: VecDeque::new(),
            leaders: Vec::new(),
        };
        (0..count).for_each(|controller| cluster.begin(controller));
        cluster
    }

    fn begin(&mut self, controller: usize) {
        self.lives += 1;
        let (hub, unread) = (Driven::follower(&self.checked), VecDeque::new());
        self.processes[controller] = Some(Process { hub, life: self.lives, token: None, is_paused: false, unread });
    }

    /// The connections of a controller are over.
    fn end(&mut self, controller: usize) {
        let Some(process) = self.processes[controller].take() else { return };
        let life = process.life;
        self.closed.extend(process.hub.open_connections().map(|id| Id { controller, life, id }));
    }

    /// Kills a controller. Returns its snapshot, if it led.
    pub(crate) fn kill(&mut self, controller: usize) {
        self.world.kill(controller);
        self.end(controller);
    }

    /// Starts a controller that was killed.
    pub(crate) fn start(&mut self, controller: usize) {
        self.world.start(controller);
        self.begin(controller);
    }

    /// The controller that leads, if its process runs.
    pub(crate) fn leader(&self) -> Option<usize> {
        (0..self.processes.len()).find(|&one| self.world.leads(one) && !self.world.is_paused(one))
    }

    /// The hub of a controller.
    pub(crate) fn hub(&mut self, controller: usize) -> Option<&mut Driven> {
        self.processes[controller].as_mut().map(|process| &mut process.hub)
    }

    /// The leader stores its state.
    pub(crate) fn store(&mut self) {
        let Some(leader) = self.leader() else { return };
        self.snapshot = self.hub(leader).and_then(|driven| Some(driven.hub.controller()?.snapshot()));
    }

    /// A controller stands still, or goes on.
    pub(crate) fn pause(&mut self, now: Nanos, controller: usize, is_paused: bool) {
        self.world.pause(controller, is_paused);
        let Some(process) = &mut self.processes[controller] else { return };
        process.is_paused = is_paused;
        if !is_paused {
            let unread = std::mem::take(&mut process.unread);
            self.decide(now);
            for one in unread {
                match one {
                    Unread::Bytes(id, bytes) => drop(self.received(now, id, &bytes)),
                    Unread::Gone(id) => self.disconnect(now, id),
                }
            }
        }
    }

    fn process(&mut self, id: Id) -> Option<&mut Process> {
        self.processes[id.controller].as_mut().filter(|process| process.life == id.life)
    }

    /// Carries out the decisions of the members.
    fn decide(&mut self, now: Nanos) {
        while let Some((controller, position)) = self.world.poll_decision() {
            let Some(process) = &mut self.processes[controller] else { continue };
            let before = std::mem::replace(&mut process.token, position.token());
            match (before, position) {
                (None, Position::Lead { token }) => {
                    self.leaders.push((controller, token.0));
                    self.epoch += 1;
                    let what = (&self.checked, self.scheme.as_str());
                    let led = process.hub.lead(what, self.epoch, self.snapshot.clone(), now, token.0);
                    led.expect("the snapshot is one of this configuration");
                }
                (Some(before), Position::Lead { token }) if before != token => {
                    self.leaders.push((controller, token.0));
                    process.hub.hub.renew_lead(now, token.0);
                }
                (Some(_), Position::Follow { .. }) => {
                    self.end(controller);
                    self.begin(controller);
                }
                _ => {}
            }
        }
    }

    /// Tells members what their switches have refused.
    fn report_refusals(&mut self, now: Nanos) {
        for controller in 0..self.processes.len() {
            let was_refused = self.hub(controller).is_some_and(|driven| driven.hub.take_refusal());
            if was_refused {
                self.world.give(controller, Input::RefusedBySwitch);
            }
        }
        self.decide(now);
    }
}

impl Machine for Cluster {
    type Id = Id;

    fn connect(&mut self, now: Nanos, peer: &str) -> Option<Id> {
        self.connect_to(now, 0, peer)
    }

    fn connect_to(&mut self, now: Nanos, controller: usize, peer: &str) -> Option<Id> {
        let process = self.processes[controller].as_mut().filter(|process| !process.is_paused)?;
        let life = process.life;
        process.hub.connect(now, peer).map(|id| Id { controller, life, id })
    }

    fn connect_agent(&mut self, now: Nanos, peer: &str) -> Option<Id> {
        self.connect_agent_to(now, 0, peer)
    }

    fn connect_agent_to(&mut self, now: Nanos, controller: usize, peer: &str) -> Option<Id> {
        let process = self.processes[controller].as_mut().filter(|process| !process.is_paused)?;
        let life = process.life;
        process.hub.connect_agent(now, peer).map(|id| Id { controller, life, id })
    }

    fn disconnect(&mut self, now: Nanos, id: Id) {
        let Some(process) = self.process(id) else { return };
        if process.is_paused {
            return process.unread.push_back(Unread::Gone(id));
        }
        process.hub.disconnect(now, id.id);
        self.rest.remove(&id);
    }

    fn received(&mut self, now: Nanos, id: Id, bytes: &[u8]) -> usize {
        let mut all = self.rest.remove(&id).unwrap_or_default();
        let Some(process) = self.process(id) else { return bytes.len() };
        if process.is_paused {
            process.unread.push_back(Unread::Bytes(id, bytes.to_vec()));
        } else {
            all.extend_from_slice(bytes);
            let used = process.hub.received(now, id.id, &all);
            all.drain(..used);
        }
        self.rest.insert(id, all);
        self.report_refusals(now);
        bytes.len()
    }

    fn poll_transmit(&mut self) -> Option<(Id, Vec<u8>)> {
        self.processes.iter_mut().enumerate().find_map(|(controller, process)| {
            let Process { hub, life, .. } = process.as_mut().filter(|process| !process.is_paused)?;
            let (id, bytes) = hub.poll_transmit()?;
            Some((Id { controller, life: *life, id }, bytes))
        })
    }

    fn poll_closed(&mut self) -> Option<Id> {
        let closed = self.processes.iter_mut().enumerate().find_map(|(controller, process)| {
            let Process { hub, life, .. } = process.as_mut().filter(|process| !process.is_paused)?;
            let (life, id) = (*life, hub.poll_closed()?);
            Some(Id { controller, life, id })
        });
        closed.or_else(|| self.closed.pop_front())
    }

    fn poll_timeout(&mut self) -> Option<Nanos> {
        let running = self.processes.iter_mut().flatten().filter(|process| !process.is_paused);
        let hubs = running.filter_map(|process| process.hub.poll_timeout()).min();
        [hubs, self.world.poll_timeout()].into_iter().flatten().min()
    }

    fn timeout(&mut self, now: Nanos) {
        self.world.advance(now);
        self.decide(now);
        for process in self.processes.iter_mut().flatten().filter(|process| !process.is_paused) {
            if process.hub.poll_timeout().is_some_and(|at| at <= now) {
                process.hub.timeout(now);
            }
        }
        self.report_refusals(now);
    }
}
