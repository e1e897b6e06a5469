//! Roles of ports: which lead to switches and which to hosts, by configuration and by Hello (tcp-path.txt §III.A).

use super::check_queue::CheckQueue;
use super::settings::{Identity, PortRole, Settings};
use super::shared_limit::SharedLimit;
use crate::program::{DropCause, Outgoing};
use crate::SavedNeighbour;
use pathloom_model::{Body, Frame, Heard, Hello, Mac, Nanos, PortNo, Tier};
use std::collections::BTreeMap;

/// Destination address of all frames between switches: a group address that nothing else uses.
pub(crate) const SWITCHES: Mac = Mac([0x03, 0x50, 0x41, 0x54, 0x48, 0x00]);

/// Present state of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum State {
    Down,
    /// The port is up, and it is not yet known whether it leads to a switch or to a host.
    Unsettled,
    Host,
    Switch,
    /// The port leads to a switch that is not heard any more, to a one-way link, or back to the same switch.
    Silent,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Neighbour {
    heard: Heard,
    tier: Option<Tier>,
    /// Times of the first and the last Hello of this start of the neighbour.
    since: Nanos,
    last: Nanos,
    two_way: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Port {
    role: PortRole,
    state: State,
    up_at: Nanos,
    neighbour: Option<Neighbour>,
}

impl Port {
    fn learns(&self) -> bool {
        self.role == PortRole::Learn && self.state != State::Down
    }
}

/// The ports of a switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ports {
    mac: Mac,
    tier: Option<Tier>,
    boot: u64,
    roles: BTreeMap<PortNo, PortRole>,
    hello: Option<Nanos>,
    neighbour_age: Nanos,
    settle: Nanos,
    /// Limit of explorations of connections, and of all other events that are not floods of the default forwarding.
    events: SharedLimit,
    /// Limit of explorations of connections that the hosts at the port do not use.
    unused: SharedLimit,
    /// Limit of floods of the default forwarding.
    broadcasts: SharedLimit,
    ports: BTreeMap<PortNo, Port>,
    next_hello: Option<Nanos>,
    /// Time of the next Hello on ports that learn their role. These Hellos are frequent: a neighbour that starts must
    /// hear this switch within `settle`, even if this switch does not hear the neighbour. Otherwise the neighbour takes
    /// this switch for a host.
    next_search: Option<Nanos>,
    due: CheckQueue<PortNo>,
}

impl Ports {
    pub(crate) fn new(now: Nanos, identity: Identity, settings: &Settings) -> Ports {
        Ports {
            mac: identity.mac,
            tier: identity.tier,
            boot: identity.boot,
            roles: identity.roles,
            hello: settings.hello,
            neighbour_age: settings.neighbour_age,
            settle: settings.settle,
            events: SharedLimit::new(settings.explorations_per_s, settings.busy_ports),
            unused: SharedLimit::new(settings.unused_explorations_per_s, settings.busy_ports),
            broadcasts: SharedLimit::new(settings.broadcasts_per_s, settings.busy_ports),
            ports: BTreeMap::new(),
            next_hello: settings.hello.map(|period| now.saturating_add(period)),
            next_search: None,
            due: CheckQueue::new(),
        }
    }

    pub(crate) fn mac(&self) -> Mac {
        self.mac
    }

    pub(crate) fn state(&self, port: PortNo) -> State {
        self.ports.get(&port).map_or(State::Down, |port| port.state)
    }

    pub(crate) fn is_host(&self, port: PortNo) -> bool {
        matches!(self.state(port), State::Host)
    }

    pub(crate) fn is_switch(&self, port: PortNo) -> bool {
        self.state(port) == State::Switch
    }

    /// Ports of hosts, in ascending order.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.ports.iter().filter(|(_, port)| matches!(port.state, State::Host)).map(|(&number, _)| number)
    }

    /// Ports that lead to switches, in ascending order.
    pub(crate) fn switches(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.ports.iter().filter(|(_, port)| port.state == State::Switch).map(|(&number, _)| number)
    }

    pub(crate) fn neighbour_count(&self) -> usize {
        self.ports.values().filter(|port| port.neighbour.is_some()).count()
    }

    /// Returns the neighbours that hear this switch.
    pub(crate) fn save(&self) -> Vec<SavedNeighbour> {
        let two_way = |port: &Port| port.neighbour.filter(|neighbour| neighbour.two_way);
        let saved = |(&port, neighbour): (&PortNo, Neighbour)| {
            let Heard { switch, port: its_port, boot } = neighbour.heard;
            SavedNeighbour { port, switch, its_port, boot, tier: neighbour.tier }
        };
        self.ports.iter().filter_map(|(number, port)| Some((number, two_way(port)?))).map(saved).collect()
    }

    /// Restores a neighbour of an earlier start as if it had just been heard, if its port is up and not a host port.
    pub(crate) fn restore(&mut self, now: Nanos, saved: &SavedNeighbour) {
        let Some(port) = self.ports.get_mut(&saved.port) else { return };
        if port.state == State::Down || port.role == PortRole::Host {
            return;
        }
        port.neighbour =
            Some(Neighbour { heard: saved.heard(), tier: saved.tier, since: now, last: now, two_way: true });
        port.state = State::Switch;
        self.due.watch(now.saturating_add(self.neighbour_age), saved.port);
    }

    /// Makes an unsettled port a host port, because a host is known to be there.
    pub(crate) fn restore_host(&mut self, number: PortNo) {
        if let Some(port) = self.ports.get_mut(&number).filter(|port| port.state == State::Unsettled) {
            port.state = State::Host;
        }
    }

    /// Adds a Hello for each port that may lead to a switch to `out`.
    pub(crate) fn greet(&self, out: &mut Vec<Outgoing>) {
        if self.hello.is_some() {
            self.say_hello(out, |port| port.role != PortRole::Host);
        }
    }

    fn tier_at(&self, port: PortNo) -> Option<Tier> {
        let port = self.ports.get(&port)?;
        let configured = match port.role {
            PortRole::Switch { tier } => tier,
            PortRole::Learn | PortRole::Host => None,
        };
        port.neighbour.and_then(|neighbour| neighbour.tier).or(configured)
    }

    /// Whether the switch at a port is known to be of a higher tier.
    pub(crate) fn is_above(&self, port: PortNo) -> bool {
        self.tier.zip(self.tier_at(port)).is_some_and(|(own, its)| its > own)
    }

    /// Whether the switch at a port is known to be of a lower tier.
    pub(crate) fn is_below(&self, port: PortNo) -> bool {
        self.tier.zip(self.tier_at(port)).is_some_and(|(own, its)| its < own)
    }

    /// Takes a token from the rate limit of a port. Returns false if there is none.
    pub(crate) fn take_token(&mut self, now: Nanos, port: PortNo) -> bool {
        if self.is_host(port) {
            self.events.take(now, port)
        } else {
            self.events.take_alone(now, port)
        }
    }

    /// Like [`Ports::take_token`], for the exploration of a connection of a host. [`Ports::was_used`] puts the token of one
    /// limit back.
    pub(crate) fn take_exploration_token(&mut self, now: Nanos, port: PortNo) -> bool {
        self.events.take(now, port) && self.unused.take(now, port)
    }

    /// Notes that a host at the port uses a connection for which the port has taken a token.
    pub(crate) fn was_used(&mut self, port: PortNo) {
        self.unused.put_back(port);
    }

    /// Like [`Ports::take_token`], for a flood of the default forwarding.
    pub(crate) fn take_broadcast_token(&mut self, now: Nanos, port: PortNo) -> bool {
        self.broadcasts.take(now, port)
    }

    /// Brings a port up or down. Returns whether a host or switch was lost.
    pub(crate) fn set(&mut self, now: Nanos, number: PortNo, up: bool, out: &mut Vec<Outgoing>) -> bool {
        let role = self.roles.get(&number).copied().unwrap_or_default();
        let may_have_hosts = !matches!(role, PortRole::Switch { .. });
        for limit in [&mut self.events, &mut self.unused, &mut self.broadcasts] {
            limit.add(number, may_have_hosts);
        }
        let fresh = Port { role, state: State::Down, up_at: now, neighbour: None };
        let port = self.ports.entry(number).or_insert(fresh);
        if up == (port.state != State::Down) {
            return false;
        }
        let lost = matches!(port.state, State::Host | State::Switch);
        (port.up_at, port.neighbour) = (now, None);
        port.state = match (up, role) {
            (false, _) => State::Down,
            (true, PortRole::Learn) => State::Unsettled,
            (true, PortRole::Host) => State::Host,
            (true, PortRole::Switch { .. }) => State::Switch,
        };
        match port.state {
            State::Unsettled => self.due.watch(now.saturating_add(self.settle), number),
            State::Switch if self.hello.is_some() => self.due.watch(now.saturating_add(self.neighbour_age), number),
            _ => {}
        }
        if up && self.hello.is_some() && role == PortRole::Learn && self.next_search.is_none() {
            self.next_search = Some(now.saturating_add(Nanos(self.settle.0 / 2)));
        }
        if up && self.hello.is_some() && role != PortRole::Host {
            out.push(self.own_hello(number));
        }
        lost
    }

    fn own_hello(&self, number: PortNo) -> Outgoing {
        let heard = self.ports.get(&number).and_then(|port| port.neighbour).map(|neighbour| neighbour.heard);
        let hello = Hello { switch: self.mac, port: number, tier: self.tier, boot: self.boot, heard };
        Outgoing { port: number, frame: Frame { src: self.mac, dst: SWITCHES, body: Body::Hello(hello) } }
    }

    /// Handles the Hello of a neighbour. Returns whether the host or switch that was at the port before is lost.
    ///
    /// # Errors
    /// The cause for which the Hello is refused.
    pub(crate) fn heard(
        &mut self,
        now: Nanos,
        number: PortNo,
        hello: &Hello,
        out: &mut Vec<Outgoing>,
    ) -> Result<bool, DropCause> {
        let own = Heard { switch: self.mac, port: number, boot: self.boot };
        let (settle, age) = (self.settle, self.neighbour_age);
        let port = self.ports.get_mut(&number).ok_or(DropCause::PortNotReady)?;
        match port.state {
            State::Down => return Err(DropCause::PortNotReady),
            State::Host if port.role == PortRole::Host => return Err(DropCause::Forged),
            _ => {}
        }
        if !hello.switch.is_station() {
            return Err(DropCause::Invalid);
        }
        let (was_switch, was_host) = (port.state == State::Switch, port.state == State::Host);
        if hello.switch == own.switch {
            // The cable connects the switch to itself.
            (port.state, port.neighbour) = (State::Silent, None);
            return if was_switch || was_host { Ok(true) } else { Err(DropCause::Invalid) };
        }
        let heard = Heard { switch: hello.switch, port: hello.port, boot: hello.boot };
        let before = port.neighbour.filter(|neighbour| neighbour.heard == heard);
        // Each new neighbour is stored and answered.
        if before.is_none() && !self.events.take_alone(now, number) {
            return Err(DropCause::RateLimited);
        }
        let changed = port.neighbour.is_some() && before.is_none();
        let two_way = hello.heard == Some(own);
        let since = before.map_or(now, |neighbour| neighbour.since);
        let deaf = !two_way && before.is_some_and(|neighbour| neighbour.two_way);
        port.neighbour = Some(Neighbour { heard, tier: hello.tier, since, last: now, two_way });
        port.state = match (two_way, port.state) {
            (true, _) => State::Switch,
            // A port that already leads to a switch gives a new neighbour time to hear this switch.
            (false, State::Switch) if !deaf => State::Switch,
            (false, State::Unsettled | State::Host) => State::Unsettled,
            (false, _) => State::Silent,
        };
        if before.is_none() {
            self.due.watch(now.saturating_add(settle), number);
            self.due.watch(now.saturating_add(age), number);
            out.push(self.own_hello(number));
        }
        Ok(was_host || was_switch && (changed || deaf))
    }

    /// Adds the Hellos that are due to `out`. Returns the ports whose neighbouring switch is lost.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, out: &mut Vec<Outgoing>) -> Vec<PortNo> {
        let mut lost = Vec::new();
        while let Some(number) = self.due.pop_due(now) {
            if self.look_at(now, number) {
                lost.push(number);
            }
        }
        if let Some(period) = self.hello {
            if self.next_hello.is_some_and(|at| at <= now) {
                self.say_hello(out, |port| port.role != PortRole::Host);
                self.next_hello = Some(now.saturating_add(period));
            } else if self.next_search.is_some_and(|at| at <= now) {
                self.say_hello(out, Port::learns);
            }
            if self.next_search.is_some_and(|at| at <= now) {
                let searching = self.ports.values().any(Port::learns);
                self.next_search = searching.then_some(now.saturating_add(Nanos(self.settle.0 / 2)));
            }
        }
        lost
    }

    fn say_hello(&self, out: &mut Vec<Outgoing>, to: impl Fn(&Port) -> bool) {
        let ports = self.ports.iter().filter(|(_, port)| port.state != State::Down && to(port));
        out.extend(ports.map(|(&number, _)| self.own_hello(number)));
    }

    /// Checks the deadlines of a port. Returns whether its switch is lost.
    fn look_at(&mut self, now: Nanos, number: PortNo) -> bool {
        let (settle, age, hello) = (self.settle, self.neighbour_age, self.hello.is_some());
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let was_switch = port.state == State::Switch;
        let passed = |since: Nanos, span: Nanos| now >= since.saturating_add(span);
        match port.neighbour {
            None => match port.state {
                State::Unsettled if passed(port.up_at, settle) => port.state = State::Host,
                State::Switch if hello && passed(port.up_at, age) => port.state = State::Silent,
                _ => {}
            },
            Some(neighbour) if hello && passed(neighbour.last, age) => {
                (port.state, port.neighbour) = (State::Silent, None);
            }
            Some(neighbour) => {
                let one_way = !neighbour.two_way && passed(neighbour.since, settle);
                if one_way && matches!(port.state, State::Switch | State::Unsettled) {
                    port.state = State::Silent;
                }
                if hello {
                    self.due.watch(neighbour.last.saturating_add(age), number);
                }
            }
        }
        was_switch && self.state(number) != State::Switch
    }

    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        [self.due.next(), self.next_hello, self.next_search].into_iter().flatten().min()
    }
}
