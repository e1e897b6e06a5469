//! The run's side of switches that run programs: their starts, their timers, and what they do to packets of connections.

use crate::agenda::Event;
use crate::simulation::Simulation;
use crate::tap::Tap;
use crate::time::{to_ps, Ps};
use pathloom_model::{Nanos, NodeId};

/// Tables are looked at so many times while transfers arrive, but at most once a millisecond and at least once a second.
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

    /// The program of a switch, if it runs one, starts from nothing.
    pub(crate) fn restart_program(&mut self, now: Ps, switch: NodeId) {
        let links = &self.link_state;
        self.network.start_program(now, switch, |link| links.is_up(link));
        self.follow_up(now, switch);
    }

    /// Settles what a call of a switch's program has left: packets of connections that it took or gave, and its timer.
    pub(crate) fn follow_up(&mut self, now: Ps, switch: NodeId) {
        while let Some((lane, lost)) = self.network.take_change() {
            self.hosts.lose(&mut self.network, lane, lost);
        }
        if let Some(at) = self.network.next_timer(now, switch) {
            self.agenda.push(at, Event::ProgramTimer(switch));
        }
    }

    pub(crate) fn program_timer(&mut self, now: Ps, switch: NodeId) {
        self.network.run_program(now, switch, !self.damage.is_dead(switch));
        if !self.damage.is_dead(switch) {
            self.follow_up(now, switch);
        }
    }

    pub(crate) fn sample_tables(&mut self, now: Ps) {
        self.network.sample_tables(now);
        let next = now + self.sample_period();
        if next <= self.duration {
            self.agenda.push(next, Event::SampleTables);
        }
    }

    fn sample_period(&self) -> Ps {
        (self.duration / SAMPLES).clamp(to_ps(Nanos::from_millis(1)), to_ps(Nanos::from_secs(1)))
    }
}
