//! Switches with programs, from the side of the run: starts of programs, their timers, and their effects on packets
//! of connections.

use crate::agenda::Event;
use crate::packet::Packet;
use crate::simulation::Simulation;
use crate::tap::Tap;
use crate::time::{to_ps, Ps};
use pathloom_model::{Nanos, NodeId, PortNo};

/// Number of samples of the tables while transfers arrive. The time between samples is at least 1 ms and at most 1 s.
const SAMPLES: Ps = 200;

impl<T: Tap> Simulation<T> {
    /// Starts the programs of all switches, before anything else happens.
    pub(crate) fn start_programs(&mut self) {
        if self.runs_programs {
            for &switch in self.fabric.clone().switches() {
                self.restart_program(0, switch);
            }
            self.agenda.push(self.sample_period(), Event::SampleTables);
        }
    }

    /// A program decides about a packet that has arrived over `link`.
    pub(crate) fn ask_program(&mut self, now: Ps, link: u32, packet: Packet) {
        if let Some((programs, mut plane)) = self.network.programs_at(now) {
            let switch = programs.ask(&mut plane, link, packet);
            self.follow_up(now, switch);
        }
    }

    /// Restarts the program of a switch, if it runs one, with empty state.
    pub(crate) fn restart_program(&mut self, now: Ps, switch: NodeId) {
        if let Some((programs, mut plane)) = self.network.programs_at(now) {
            programs.restart(&mut plane, switch, |link| self.link_state.is_up(link));
            self.follow_up(now, switch);
        }
    }

    /// A port of a switch goes up or down.
    pub(crate) fn set_program_port(&mut self, now: Ps, (switch, port): (NodeId, PortNo), up: bool) {
        if let Some((programs, mut plane)) = self.network.programs_at(now) {
            programs.set_port(&mut plane, switch, port, up);
            self.follow_up(now, switch);
        }
    }

    /// Handles the results of a call of a switch's program: packets of connections that it removed or added, and its
    /// timer.
    fn follow_up(&mut self, now: Ps, switch: NodeId) {
        while let Some((lane, lost)) = self.network.programs_at(now).and_then(|(programs, _)| programs.take_change()) {
            self.lose(now, lane, lost);
        }
        let programs = self.network.programs_at(now);
        if let Some(at) = programs.and_then(|(programs, mut plane)| programs.next_timer(&mut plane, switch)) {
            self.agenda.push(at, Event::ProgramTimer(switch));
        }
    }

    pub(crate) fn program_timer(&mut self, now: Ps, switch: NodeId) {
        let has_power = !self.failure_state.is_dead(switch);
        if let Some((programs, mut plane)) = self.network.programs_at(now) {
            programs.timer_due(&mut plane, switch, has_power);
        }
        if has_power {
            self.follow_up(now, switch);
        }
    }

    /// The balancer of a switch sends the probes that are due.
    pub(crate) fn probe(&mut self, now: Ps, switch: NodeId) {
        self.network.probe(now, switch, !self.failure_state.is_dead(switch));
        self.schedule_probe(switch);
    }

    /// Schedules the next probes of a switch, if its balancer sends any.
    pub(crate) fn schedule_probe(&mut self, switch: NodeId) {
        if let Some(at) = self.network.next_probe(switch) {
            self.agenda.push(at, Event::Probe(switch));
        }
    }

    pub(crate) fn sample_tables(&mut self, now: Ps) {
        if let Some((programs, mut plane)) = self.network.programs_at(now) {
            programs.sample_tables(&mut plane);
        }
        let next = now + self.sample_period();
        if next <= self.duration {
            self.agenda.push(next, Event::SampleTables);
        }
    }

    fn sample_period(&self) -> Ps {
        (self.duration / SAMPLES).clamp(to_ps(Nanos::from_millis(1)), to_ps(Nanos::from_secs(1)))
    }
}
