//! Arrival and removal of switches and ports.

use super::{LinkDiscovery, LinkLoss, LinkOutput, PortState, Timer};
use crate::alarm::{Alarm, AlarmKind};
use crate::damping::Damper;
use crate::limits::TokenBucket;
use crate::{Dpid, Mac, Place};
use pathloom_model::Nanos;

/// Highest port number of a switch, `OFPP_MAX` (OpenFlow 1.3.5 §7.2.1). Higher numbers are reserved, and ignored.
const HIGHEST_PORT: u32 = 0xffff_ff00;
/// Maximum number of ports per switch, so that a faulty switch cannot fill the memory.
const MOST_PORTS: usize = 4096;
/// Number of a port's last probes that are stored. Only these are accepted when they arrive.
pub(super) const IN_FLIGHT: usize = 8;
/// Number of a port's last arrived probes whose travel times are stored. The shortest one is used, because the others
/// contain waiting times.
pub(super) const TIMED: usize = 8;

/// A switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    /// Whether the switch has a session.
    pub(super) session: bool,
}

/// A probe that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) nonce: u64,
    pub(super) arrived: Option<Place>,
}

/// The port at which the probes of another port arrive, and the time of the last arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heard {
    pub(super) at: Place,
    pub(super) last: Nanos,
}

/// The state of a port.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) mac: Mac,
    /// Carrier, as last reported.
    pub(super) up: bool,
    /// The switch reported the removal of the port. Its state is kept, so that repeated removal counts as flapping.
    removed: bool,
    pub(super) damper: Damper,
    /// The port flapped. It is not used before it has stayed up for a while.
    pub(super) held: bool,
    /// A host is known at this port.
    pub(super) host: bool,
    /// The port was reported as facing hosts.
    pub(super) edge: bool,
    pub(super) up_since: Nanos,
    /// The latest probes sent, as a ring buffer.
    pub(super) sent: [Option<Sent>; IN_FLIGHT],
    pub(super) last_sent: Option<Nanos>,
    /// Number of probes sent since the port came up or its link went down.
    pub(super) probes: u32,
    /// Number of probes sent since one last arrived.
    pub(super) unheard: u32,
    /// Time at which the first of these probes was sent.
    pub(super) unheard_since: Nanos,
    /// Time to wait after the next probe.
    pub(super) gap: Nanos,
    /// Where the probes of this port arrive.
    pub(super) heard: Option<Heard>,
    /// Travel times of its last probes, from the controller and back to it, the latest first.
    pub(super) took: [Option<Nanos>; TIMED],
    /// Time at which a probe of another port last arrived here.
    pub(super) last_in: Option<Nanos>,
    /// The other end of the link that is up.
    pub(super) link: Option<Place>,
    /// A link was up here and its cable may still be connected. So the port does not count as facing hosts before it
    /// loses carrier.
    pub(super) was_link: bool,
    /// Time until which probes of this port are refused, because one of them arrived at two ports.
    pub(super) shared_until: Nanos,
    pub(super) bucket: TokenBucket,
}

impl Port {
    /// Whether the port is up and does not wait for the end of flapping.
    pub(super) fn usable(&self) -> bool {
        self.up && !self.held
    }
}

impl LinkDiscovery {
    pub(super) fn switch_up(&mut self, dpid: Dpid, ports: &[PortState]) {
        if self.is_duplicate(dpid, ports) {
            return self.alarm(Alarm::of_switch(dpid), AlarmKind::DuplicateSwitch);
        }
        self.timers.cancel(Timer::Grace(dpid));
        self.switches.insert(dpid, Switch { session: true });
        let gone: Vec<Place> =
            self.ports_of(dpid).filter(|place| !ports.iter().any(|state| state.port == place.port)).collect();
        for place in gone {
            self.remove_port(place, LinkLoss::PortDown);
        }
        for &state in ports {
            self.port_status(dpid, state);
        }
        // Links that were up when the session was lost get the full time again before they count as silent.
        for place in self.ports_of(dpid).collect::<Vec<_>>() {
            self.resume(place);
        }
        self.probing.next_round(self.now, dpid);
    }

    fn resume(&mut self, place: Place) {
        let port = self.ports.get_mut(&place).expect("listed just now");
        if !port.usable() || port.host {
            return;
        }
        port.gap = self.settings.first_gap;
        let (peer, now) = (port.link, self.now);
        for end in [Some(place), peer].into_iter().flatten() {
            if let Some(port) = self.ports.get_mut(&end) {
                port.unheard = 0;
                port.heard.iter_mut().for_each(|heard| heard.last = now);
            }
            self.probe_now(end);
        }
    }

    pub(super) fn switch_down(&mut self, dpid: Dpid) {
        let Some(switch) = self.switches.get_mut(&dpid).filter(|switch| switch.session) else { return };
        switch.session = false;
        self.probing.end_rounds(dpid);
        for place in self.ports_of(dpid).collect::<Vec<_>>() {
            self.probing.stop(place);
        }
        self.timers.set(Timer::Grace(dpid), self.now.saturating_add(self.settings.session_grace));
    }

    pub(super) fn give_up_switch(&mut self, dpid: Dpid) {
        for place in self.ports_of(dpid).collect::<Vec<_>>() {
            self.remove_port(place, LinkLoss::SwitchGone);
        }
        self.switches.remove(&dpid);
    }

    pub(super) fn port_status(&mut self, dpid: Dpid, state: PortState) {
        if !self.has_session(dpid) || !(1..=HIGHEST_PORT).contains(&state.port.0) {
            return;
        }
        let place = Place { dpid, port: state.port };
        if !self.ports.contains_key(&place) {
            if self.ports_of(dpid).count() >= MOST_PORTS {
                self.drop_removed(dpid);
            }
            if self.ports_of(dpid).count() >= MOST_PORTS {
                return self.alarm(Alarm::of_switch(dpid), AlarmKind::TooManyPorts);
            }
            self.ports.insert(place, self.new_port(state.mac));
        }
        let port = self.ports.get_mut(&place).expect("there or inserted");
        (port.mac, port.removed) = (state.mac, false);
        match (port.up, state.up) {
            (true, false) => self.port_down(place, LinkLoss::PortDown),
            (false, true) => self.port_up(place),
            _ => {}
        }
    }

    fn new_port(&self, mac: Mac) -> Port {
        Port {
            mac,
            up: false,
            removed: false,
            damper: Damper::default(),
            held: false,
            host: false,
            edge: false,
            up_since: self.now,
            sent: [None; IN_FLIGHT],
            last_sent: None,
            probes: 0,
            unheard: 0,
            unheard_since: self.now,
            gap: self.settings.first_gap,
            heard: None,
            took: [None; TIMED],
            last_in: None,
            link: None,
            was_link: false,
            shared_until: Nanos::ZERO,
            bucket: TokenBucket::new(self.now, self.settings.lldp),
        }
    }

    fn port_up(&mut self, place: Place) {
        let port = self.ports.get_mut(&place).expect("known");
        port.up = true;
        let Some(wait) = port.damper.wait(self.now) else { return self.use_port(place) };
        port.held = true;
        let failures = port.damper.failures();
        self.timers.set(Timer::Quiet(place), self.now.saturating_add(wait));
        self.alarm(place, AlarmKind::Flapping { failures, wait });
    }

    /// Starts to use a port that flapped and has stayed up for the required time.
    pub(super) fn quiet(&mut self, place: Place) {
        if self.ports.get(&place).is_some_and(|port| port.up && port.held) {
            self.use_port(place);
        }
    }

    fn use_port(&mut self, place: Place) {
        let now = self.now;
        let port = self.ports.get_mut(&place).expect("known");
        (port.held, port.up_since, port.probes, port.gap) = (false, now, 0, self.settings.first_gap);
        self.timers.set(Timer::Settle(place), now.saturating_add(self.settings.settle));
        self.probe_now(place);
    }

    pub(super) fn port_down(&mut self, place: Place, why: LinkLoss) {
        self.unlink(place, why);
        self.leave_edge(place);
        self.probing.stop(place);
        for timer in [Timer::Check(place), Timer::Quiet(place), Timer::Settle(place)] {
            self.timers.cancel(timer);
        }
        let now = self.now;
        let port = self.ports.get_mut(&place).expect("known");
        if port.up {
            port.damper.failed(now);
        }
        let before = port.heard.take().map(|heard| heard.at);
        (port.up, port.held, port.host, port.was_link, port.last_in) = (false, false, false, false, None);
        // Probes under way, and what is known of the other direction, date from before the loss of carrier.
        (port.sent, port.took) = ([None; IN_FLIGHT], [None; TIMED]);
        if let Some(other) = before.and_then(|at| self.ports.get_mut(&at)) {
            other.heard = other.heard.filter(|heard| heard.at != place);
            other.last_in = None;
        }
    }

    pub(super) fn remove_port(&mut self, place: Place, why: LinkLoss) {
        if self.ports.contains_key(&place) {
            self.port_down(place, why);
            self.ports.remove(&place);
            self.alarms.forget(place);
        }
    }

    /// Handles the removal of a port by its switch.
    pub(super) fn port_removed(&mut self, place: Place) {
        if self.has_session(place.dpid) && self.ports.contains_key(&place) {
            self.port_down(place, LinkLoss::PortDown);
            self.ports.get_mut(&place).expect("found above").removed = true;
        }
    }

    fn drop_removed(&mut self, dpid: Dpid) {
        for place in self.ports_of(dpid).filter(|place| self.ports[place].removed).collect::<Vec<_>>() {
            self.remove_port(place, LinkLoss::PortDown);
        }
    }

    pub(super) fn host_seen(&mut self, place: Place) {
        let Some(port) = self.ports.get_mut(&place).filter(|port| port.usable()) else { return };
        port.host = true;
        if let Some(peer) = port.link {
            self.alarm(place, AlarmKind::HostOnLink { peer });
            self.unlink(place, LinkLoss::Doubtful);
        }
        // The host must not get probes that it could relay.
        self.probing.stop(place);
        self.timers.set(Timer::Settle(place), self.now);
    }

    pub(super) fn hosts_gone(&mut self, place: Place) {
        let Some(port) = self.ports.get_mut(&place).filter(|port| port.host) else { return };
        port.host = false;
        port.gap = self.settings.idle_interval;
        self.schedule(place);
    }

    /// Decides whether a port faces hosts: a host is known there, or no switch answers. If probes of the port arrive
    /// somewhere, or if it receives probes, it may still become part of a link.
    pub(super) fn settle(&mut self, place: Place) {
        let again = self.now.saturating_add(self.settings.settle);
        let Some(port) = self.ports.get_mut(&place) else { return };
        if !port.usable() || port.edge || port.link.is_some() {
            return;
        }
        let since = |last: Option<Nanos>| last.is_some_and(|at| self.now.saturating_sub(at) < self.settings.window());
        let answered = since(port.heard.map(|heard| heard.last)) || since(port.last_in);
        let asked =
            port.probes >= self.settings.missed || self.now.saturating_sub(port.up_since) > self.settings.window();
        if port.host || (!answered && asked && !port.was_link && port.shared_until <= self.now) {
            port.edge = true;
            return self.outputs.push_back(LinkOutput::EdgeUp { place });
        }
        let long = self.now.saturating_sub(port.up_since) >= self.settings.window();
        let one_way = port.heard.map(|heard| heard.at).filter(|_| long && !since(port.last_in));
        self.timers.set(Timer::Settle(place), again);
        if let Some(to) = one_way.filter(|to| self.has_session(to.dpid)) {
            self.alarm(place, AlarmKind::OneWay { to });
        }
    }

    pub(super) fn leave_edge(&mut self, place: Place) {
        if let Some(port) = self.ports.get_mut(&place).filter(|port| port.edge) {
            port.edge = false;
            self.outputs.push_back(LinkOutput::EdgeDown { place });
        }
    }

    /// Takes down the link of a port, if any. Its ends are probed often again, because the link may come back soon.
    pub(super) fn unlink(&mut self, place: Place, why: LinkLoss) {
        let Some(peer) = self.ports.get_mut(&place).and_then(|port| port.link.take()) else { return };
        let (a, b) = (place.min(peer), place.max(peer));
        self.outputs.push_back(LinkOutput::LinkDown { a, b, why });
        if let Some(port) = self.ports.get_mut(&peer) {
            port.link = None;
        }
        for end in [place, peer] {
            let port = self.ports.get_mut(&end).expect("both ends are known");
            port.was_link = why != LinkLoss::Doubtful;
            if let Some(heard) = port.heard {
                self.timers.set(Timer::Check(end), heard.last.saturating_add(self.settings.window()));
            }
            if port.usable() {
                (port.gap, port.probes, port.up_since) = (self.settings.first_gap, 0, self.now);
                self.timers.set(Timer::Settle(end), self.now.saturating_add(self.settings.settle));
                self.probe_now(end);
            }
        }
    }
}
