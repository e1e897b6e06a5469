//! A network of fake switches under a controller. Packets take time on links. Messages take time to switches and
//! back, and switches take time to carry them out. Messages of one session keep their order, those of two sessions do
//! not.

use crate::switch::{FakeSwitch, RemovedRule};
use pathloom_control::{Controller, Input, Output, SOURCE_COOKIE, SOURCE_COOKIE_MASK};
use pathloom_model::rules::{Rule, RuleKey};
use pathloom_model::{Fabric, Headers, LinkId, LinkState, Nanos, NodeId, PortNo};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A packet that has crossed more links than this is in a loop.
const MOST_HOPS: u32 = 64;
/// Number of rules in one part of the answer to a review.
const REVIEW_PART: usize = 3;
/// Bytes of every packet.
const PACKET_BYTES: u64 = 1000;

/// Durations: the least and the greatest of each.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time of a packet on a link.
    pub link: (Nanos, Nanos),
    /// Time of a message between controller and switch.
    pub message: (Nanos, Nanos),
    /// Time that a switch takes for a message.
    pub work: (Nanos, Nanos),
    /// Whether switches answer barriers on arrival, before earlier messages are carried out. This is wrong on
    /// purpose, to see whether a test notices it.
    pub hasty_barriers: bool,
}

impl Timing {
    /// Everything happens at once.
    pub const NONE: Timing = Timing {
        link: (Nanos::ZERO, Nanos::ZERO),
        message: (Nanos::ZERO, Nanos::ZERO),
        work: (Nanos::ZERO, Nanos::ZERO),
        hasty_barriers: false,
    };
}

/// What became of a packet, or of a copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It reached this host, with this tag.
    Arrived(NodeId, Option<u16>),
    /// A switch had no rule for it, or had a rule that drops it.
    Dropped(NodeId),
    /// A link was down.
    Cut(LinkId),
    /// It was in a loop.
    Looped,
}

/// Everything that became of one packet.
#[derive(Clone, Debug)]
pub struct Report {
    /// When it was sent.
    pub sent: Nanos,
    /// Its headers.
    pub headers: Headers,
    /// Empty while it is under way; more than one if it was duplicated.
    pub fates: Vec<(Nanos, Fate)>,
    /// The switches it has entered, in order.
    pub switches: Vec<NodeId>,
}

#[derive(Clone, Debug)]
enum Happening {
    /// A message reaches a switch.
    AtSwitch(u32, Output),
    /// A switch carries a message out.
    Work(u32, Output),
    /// A message reaches the controller.
    AtController(u32, Input),
    /// A packet enters a node.
    Frame { packet: usize, node: NodeId, in_port: PortNo, headers: Headers, hops: u32 },
    /// A switch checks for expired rules.
    Expire(NodeId),
}

/// The network.
pub struct Network {
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// The controller.
    pub controller: Controller,
    /// Which links are up.
    pub links: LinkState,
    /// By node. Those of hosts are not used.
    pub switches: Vec<FakeSwitch>,
    /// All packets sent.
    pub packets: Vec<Report>,
    /// All inputs and outputs of the controller, in order.
    pub log: Vec<pathloom_control::Record>,
    /// A flow whose path is checked whenever a switch has changed its rules.
    pub watched: Option<Headers>,
    /// Times at which a packet of this flow would not have arrived, and what would have become of it.
    pub failures: Vec<(Nanos, Vec<Fate>)>,
    timing: Timing,
    rng: Pcg64,
    agenda: BTreeMap<(Nanos, u64), Happening>,
    sequence: u64,
    now: Nanos,
    /// By node: number of the session. It is odd while the session is up.
    sessions: Vec<u32>,
    /// By node: when the last message of each direction arrives, and when the switch finishes its work.
    last: Vec<[Nanos; 3]>,
    controller_dead: bool,
}

impl Network {
    /// Creates empty switches, and a controller without sessions.
    pub fn new(fabric: Arc<Fabric>, controller: Controller, timing: Timing, seed: u64) -> Network {
        let nodes = fabric.nodes();
        let mut network = Network {
            links: LinkState::of(&fabric),
            switches: nodes
                .iter()
                .zip(0..)
                .map(|(node, salt)| FakeSwitch::new(node.ports.len() as u32, salt))
                .collect(),
            packets: Vec::new(),
            log: Vec::new(),
            watched: None,
            failures: Vec::new(),
            timing,
            rng: Pcg64::seed_from_u64(seed),
            agenda: BTreeMap::new(),
            sequence: 0,
            now: Nanos::ZERO,
            sessions: vec![0; nodes.len()],
            last: vec![[Nanos::ZERO; 3]; nodes.len()],
            controller_dead: false,
            fabric,
            controller,
        };
        let down: Vec<LinkId> = network.links.down().collect();
        for link in down {
            network.carrier(link, false);
        }
        network
    }

    /// All switches connect, and the controller gets the time that it needs to set them up.
    pub fn start(&mut self) {
        for switch in self.fabric.switches().to_vec() {
            self.connect(switch);
        }
        let settled = self.now + Nanos::from_secs(2);
        self.run_until(settled);
    }

    /// The present time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The session to a switch is established.
    pub fn connect(&mut self, switch: NodeId) {
        let session = &mut self.sessions[switch.index()];
        if session.is_multiple_of(2) && !self.controller_dead {
            *session += 1;
            // The switch finishes the work that it has begun before it handles messages of the new session.
            let [_, _, working] = self.last[switch.index()];
            self.last[switch.index()] = [self.now, self.now, working];
            let ports_down = self.switches[switch.index()].ports_down.iter().copied().collect();
            self.report(switch, Input::SwitchUp { switch, ports_down });
        }
    }

    /// The session to a switch ends. Messages under way in either direction are lost, except those that the switch
    /// has begun to carry out.
    pub fn disconnect(&mut self, switch: NodeId) {
        let session = &mut self.sessions[switch.index()];
        if *session % 2 == 1 {
            *session += 1;
            if !self.controller_dead {
                self.feed(Input::SwitchDown { switch });
            }
        }
    }

    /// The controller stops without notice; its sessions end.
    pub fn kill_controller(&mut self) {
        self.controller_dead = true;
        for switch in self.fabric.switches().to_vec() {
            self.disconnect(switch);
        }
    }

    /// Another controller starts in its place. No switch is connected yet.
    pub fn start_controller(&mut self, controller: Controller) {
        self.controller = controller;
        self.controller_dead = false;
        self.log.clear();
    }

    /// A switch restarts with empty tables; its session ends.
    pub fn wipe(&mut self, switch: NodeId) {
        self.disconnect(switch);
        let fake = &mut self.switches[switch.index()];
        fake.entries.clear();
        fake.groups.clear();
        fake.meters.clear();
    }

    /// A cable fails or comes back; both ends notice.
    pub fn set_cable(&mut self, link: LinkId, up: bool) {
        if self.links.set_cable(link, up) {
            self.carrier(link, up);
            for end in [link, link.reverse()] {
                let record = *self.fabric.link(end);
                if !self.fabric.is_host(record.from) {
                    let (switch, port) = (record.from, record.from_port);
                    self.report(switch, Input::PortStatus { switch, port, up });
                }
            }
        }
    }

    fn carrier(&mut self, link: LinkId, up: bool) {
        for end in [link, link.reverse()] {
            let record = *self.fabric.link(end);
            let down = &mut self.switches[record.from.index()].ports_down;
            if up {
                down.remove(&record.from_port);
            } else {
                down.insert(record.from_port);
            }
        }
    }

    /// A host sends a packet by the port that has its source address. Returns its number.
    pub fn send(&mut self, headers: Headers) -> usize {
        let at = *self.fabric.attachment(headers.five_tuple.src()).expect("a host sends from an address it has");
        self.packets.push(Report { sent: self.now, headers, fates: Vec::new(), switches: Vec::new() });
        let packet = self.packets.len() - 1;
        self.cross(packet, at.uplink, headers, 0);
        packet
    }

    /// What becomes of a packet that a host sends now, if nothing else happens. The check takes no time and leaves no
    /// trace.
    pub fn fates(&self, headers: Headers) -> Vec<Fate> {
        let at = *self.fabric.attachment(headers.five_tuple.src()).expect("a host sends from an address it has");
        let (mut fates, mut open) = (Vec::new(), vec![(at.uplink, headers, 0)]);
        while let Some((link, headers, hops)) = open.pop() {
            let record = self.fabric.link(link);
            if !self.links.is_up(link) {
                fates.push(Fate::Cut(link));
            } else if self.fabric.is_host(record.to) {
                fates.push(Fate::Arrived(record.to, headers.tag));
            } else if hops > MOST_HOPS {
                fates.push(Fate::Looped);
            } else {
                let verdict = self.switches[record.to.index()].peek(record.to_port, headers, &mut Vec::new());
                let next = verdict.out.iter().filter_map(|&(port, headers)| {
                    self.fabric.out_link(record.to, port).map(|link| (link, headers, hops + 1))
                });
                let before = open.len();
                open.extend(next);
                if open.len() == before {
                    fates.push(Fate::Dropped(record.to));
                }
            }
        }
        fates
    }

    /// Whether a packet with these headers reaches the host with its destination address, exactly once and without a
    /// tag.
    pub fn reaches(&self, headers: Headers) -> bool {
        let host = self.fabric.attachment(headers.five_tuple.dst()).map(|at| at.host);
        host.is_some_and(|host| self.fates(headers) == [Fate::Arrived(host, None)])
    }

    /// Gives the controller an input that comes from no switch.
    pub fn give_input(&mut self, input: Input) {
        self.feed(input);
    }

    /// Puts another scheme in charge of the controller. The log has only its name, not its settings.
    pub fn set_scheme(&mut self, scheme: Box<dyn pathloom_scheme::Scheme>) {
        let change = pathloom_control::SchemeChange { spec: scheme.name().to_owned(), seed: 0 };
        self.log.push(pathloom_control::Record::scheme(self.now, change));
        self.controller.set_scheme(self.now, scheme);
        self.carry_out();
    }

    /// Runs until `end`.
    pub fn run_until(&mut self, end: Nanos) {
        loop {
            let next = self.agenda.keys().next().map(|&(at, _)| at);
            let wake = (!self.controller_dead).then(|| self.controller.poll_timeout()).flatten();
            let wake = wake.map(|at| at.max(self.now));
            let Some(at) = [next, wake].into_iter().flatten().min().filter(|&at| at <= end) else { break };
            self.now = at;
            if next == Some(at) {
                if let Some((_, happening)) = self.agenda.pop_first() {
                    self.happen(happening);
                }
            } else {
                self.feed(Input::Timeout);
            }
        }
        self.now = end;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::AtSwitch(session, output) => self.at_switch(session, output),
            Happening::Work(session, output) => self.work(session, output),
            Happening::AtController(session, input) => {
                let current = input.switch().is_none_or(|switch| self.sessions[switch.index()] == session);
                if current && !self.controller_dead {
                    self.feed(input);
                }
            }
            Happening::Frame { packet, node, in_port, headers, hops } => {
                self.frame(packet, node, in_port, headers, hops);
            }
            Happening::Expire(switch) => self.expire(switch),
        }
    }

    fn feed(&mut self, input: Input) {
        self.log.push(pathloom_control::Record::input(self.now, input.clone()));
        self.controller.handle(self.now, input);
        self.carry_out();
    }

    /// Carries out the outputs of the controller.
    fn carry_out(&mut self) {
        while let Some(output) = self.controller.poll_output() {
            self.log.push(pathloom_control::Record::output(self.now, output.clone()));
            if let Output::Solve { ticket, input, modelled } = &output {
                let answer = self.controller.solver()(self.controller.view(), input);
                let solved = Input::Solved { ticket: *ticket, answer };
                self.plan(self.now + *modelled, Happening::AtController(0, solved));
            }
            if let Some(switch) = output.switch() {
                let session = self.sessions[switch.index()];
                let at = self.in_order(switch, 0, self.timing.message);
                self.plan(at, Happening::AtSwitch(session, output));
            }
        }
    }

    fn plan(&mut self, at: Nanos, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((at, self.sequence), happening);
    }

    fn draw(&mut self, (least, most): (Nanos, Nanos)) -> Nanos {
        Nanos(self.rng.random_range(least.0..=most.0))
    }

    /// Draws a time that is not before the last one of this switch and direction.
    fn in_order(&mut self, switch: NodeId, direction: usize, spread: (Nanos, Nanos)) -> Nanos {
        let at = self.now + self.draw(spread);
        let last = &mut self.last[switch.index()][direction];
        *last = at.max(*last);
        *last
    }

    fn report(&mut self, switch: NodeId, input: Input) {
        let session = self.sessions[switch.index()];
        if session % 2 == 1 {
            let at = self.in_order(switch, 1, self.timing.message);
            self.plan(at, Happening::AtController(session, input));
        }
    }

    fn at_switch(&mut self, session: u32, output: Output) {
        let Some(switch) = output.switch().filter(|switch| self.sessions[switch.index()] == session) else {
            return;
        };
        if let (Output::Barrier { switch, xid }, true) = (&output, self.timing.hasty_barriers) {
            return self.report(*switch, Input::BarrierReply { switch: *switch, xid: *xid });
        }
        let at = self.in_order(switch, 2, self.timing.work);
        self.plan(at, Happening::Work(session, output));
    }

    fn work(&mut self, session: u32, output: Output) {
        let Some(switch) = output.switch() else { return };
        let now = self.now;
        let fake = &mut self.switches[switch.index()];
        let mut refuse = None;
        match output {
            Output::AddRule { xid, rule, .. } => refuse = fake.add_rule(now, rule).err().map(|why| (xid, why)),
            Output::DeleteRule { key, .. } => {
                if let Some(gone) = fake.delete_rule(&key) {
                    self.report_removed(switch, gone);
                }
            }
            Output::AddGroup { group, .. } => {
                fake.groups.insert(group.id, group);
            }
            Output::DeleteGroup { xid, group, .. } => refuse = fake.delete_group(group).err().map(|why| (xid, why)),
            Output::AddMeter { meter, .. } => {
                fake.meters.insert(meter.id, meter);
            }
            Output::DeleteMeter { meter, .. } => {
                fake.meters.remove(&meter);
            }
            Output::ReviewRequest { number, .. } => return self.review(session, switch, number),
            other => {
                if let Some(answer) = answer(switch, fake, &other) {
                    if self.sessions[switch.index()] == session {
                        self.report(switch, answer);
                    }
                }
            }
        }
        if let Some((xid, why)) = refuse {
            self.report(switch, Input::Refused { switch, xid, why });
        }
        self.plan_expiry(switch);
        if let Some(headers) = self.watched.filter(|&headers| !self.reaches(headers)) {
            self.failures.push((self.now, self.fates(headers)));
        }
    }

    /// Answers a review in parts, as switches do.
    fn review(&mut self, session: u32, switch: NodeId, number: u32) {
        if self.sessions[switch.index()] != session {
            return;
        }
        let fake = &self.switches[switch.index()];
        let (rules, groups) = (fake.rules(), fake.groups.values().cloned().collect());
        let meters = fake.meters.values().copied().collect();
        for part in rules.chunks(REVIEW_PART) {
            let (rules, groups, meters) = (part.to_vec(), Vec::new(), Vec::new());
            self.report(switch, Input::Reviewed { switch, number, rules, groups, meters, last: false });
        }
        self.report(switch, Input::Reviewed { switch, number, rules: Vec::new(), groups, meters, last: true });
    }

    /// Somebody else deletes some rules of a switch. The switch reports those that have `notify_removal`.
    pub fn delete_rules(&mut self, switch: NodeId, which: impl Fn(&Rule) -> bool) {
        let gone: Vec<RuleKey> = self.switches[switch.index()]
            .entries
            .iter()
            .map(|entry| &entry.rule)
            .filter(|rule| which(rule))
            .map(Rule::key)
            .collect();
        for key in gone {
            if let Some(gone) = self.switches[switch.index()].delete_rule(&key) {
                self.report_removed(switch, gone);
            }
        }
    }

    fn plan_expiry(&mut self, switch: NodeId) {
        let planned = |at: Nanos| {
            let mut then = self.agenda.range((at, 0)..=(at, u64::MAX));
            then.any(|(_, happening)| matches!(happening, Happening::Expire(other) if *other == switch))
        };
        if let Some(at) = self.switches[switch.index()].next_expiry().filter(|&at| !planned(at)) {
            self.plan(at.max(self.now), Happening::Expire(switch));
        }
    }

    fn expire(&mut self, switch: NodeId) {
        for gone in self.switches[switch.index()].expire(self.now) {
            self.report_removed(switch, gone);
        }
        self.plan_expiry(switch);
    }

    fn report_removed(&mut self, switch: NodeId, gone: RemovedRule) {
        let RemovedRule { rule, counters, why } = gone;
        if rule.notify_removal {
            let (key, cookie) = (rule.key(), rule.cookie);
            self.report(switch, Input::RuleRemoved { switch, key, cookie, counters, why });
        }
    }

    fn cross(&mut self, packet: usize, link: LinkId, headers: Headers, hops: u32) {
        if !self.links.is_up(link) {
            return self.packets[packet].fates.push((self.now, Fate::Cut(link)));
        }
        if hops > MOST_HOPS {
            return self.packets[packet].fates.push((self.now, Fate::Looped));
        }
        let record = *self.fabric.link(link);
        let at = self.now + self.draw(self.timing.link);
        let (node, in_port) = (record.to, record.to_port);
        self.plan(at, Happening::Frame { packet, node, in_port, headers, hops: hops + 1 });
    }

    fn frame(&mut self, packet: usize, node: NodeId, in_port: PortNo, headers: Headers, hops: u32) {
        if self.fabric.is_host(node) {
            return self.packets[packet].fates.push((self.now, Fate::Arrived(node, headers.tag)));
        }
        self.packets[packet].switches.push(node);
        let verdict = self.switches[node.index()].forward(in_port, headers, self.now, PACKET_BYTES);
        for headers in verdict.copies {
            self.report(node, Input::PacketIn { switch: node, in_port, headers });
        }
        if verdict.out.is_empty() {
            self.packets[packet].fates.push((self.now, Fate::Dropped(node)));
        }
        for (port, headers) in verdict.out {
            match self.fabric.out_link(node, port) {
                Some(link) => self.cross(packet, link, headers, hops),
                None => self.packets[packet].fates.push((self.now, Fate::Dropped(node))),
            }
        }
        self.plan_expiry(node);
    }

    /// Packets that entered a switch twice.
    pub fn strays(&self) -> Vec<&Report> {
        let twice = |report: &&Report| {
            let switches = &report.switches;
            switches.iter().enumerate().any(|(index, switch)| switches[..index].contains(switch))
        };
        self.packets.iter().filter(twice).collect()
    }

    /// Packets that did not reach the host that they were for, exactly once and without a tag.
    pub fn delivery_errors(&self) -> Vec<&Report> {
        let fine = |report: &&Report| {
            let host = self.fabric.attachment(report.headers.five_tuple.dst()).map(|at| at.host);
            match report.fates.as_slice() {
                &[(_, Fate::Arrived(node, None))] => Some(node) == host,
                _ => false,
            }
        };
        self.packets.iter().filter(|report| !fine(report)).collect()
    }
}

fn answer(switch: NodeId, fake: &FakeSwitch, request: &Output) -> Option<Input> {
    match request {
        Output::Barrier { xid, .. } => Some(Input::BarrierReply { switch, xid: *xid }),
        Output::FlowStatsRequest { .. } => {
            Some(Input::FlowStats { switch, rows: fake.statistics(SOURCE_COOKIE, SOURCE_COOKIE_MASK) })
        }
        Output::PortStatsRequest { .. } => Some(Input::PortStats { switch, rows: Vec::new() }),
        Output::DumpRequest { .. } => Some(Input::RuleDump {
            switch,
            rules: fake.rules(),
            groups: fake.groups.values().cloned().collect(),
            meters: fake.meters.values().copied().collect(),
        }),
        _ => None,
    }
}
