//! Switches that act by themselves, from the side of the run: those with programs, with the effects of programs on packets
//! of connections, and those whose load balancers send probes.

use crate::agenda::Event;
use crate::hosts::Hosts;
use crate::packet::Packet;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::{to_ps, Ps};
use pathloom_model::{LinkId, Nanos, NodeId, PortNo};

/// Number of samples of the tables while transfers arrive. The time between samples is at least 1 ms and at most 1 s.
const SAMPLES: Ps = 200;

/// A program decides about a packet that has arrived over `link`.
pub(crate) fn ask<T: Tap>(run: &mut Run<'_, T>, hosts: &mut Hosts, link: u32, packet: Packet) {
    if let Some((programs, mut plane)) = run.network.programs_at(run.now) {
        let switch = programs.ask(&mut plane, link, packet);
        follow_up(run, hosts, switch);
    }
}

/// Restarts the program of a switch, if it runs one, with empty state. The ports for whose links `is_up` is true are up.
pub(crate) fn restart<T: Tap>(run: &mut Run<'_, T>, hosts: &mut Hosts, switch: NodeId, is_up: impl Fn(LinkId) -> bool) {
    if let Some((programs, mut plane)) = run.network.programs_at(run.now) {
        programs.restart(&mut plane, switch, is_up);
        follow_up(run, hosts, switch);
    }
}

/// A port of a switch goes up or down.
pub(crate) fn set_port<T: Tap>(run: &mut Run<'_, T>, hosts: &mut Hosts, (switch, port): (NodeId, PortNo), up: bool) {
    if let Some((programs, mut plane)) = run.network.programs_at(run.now) {
        programs.set_port(&mut plane, switch, port, up);
        follow_up(run, hosts, switch);
    }
}

/// The timer of a switch's program is due, or has moved to a later time.
pub(crate) fn timer_due<T: Tap>(run: &mut Run<'_, T>, hosts: &mut Hosts, switch: NodeId, has_power: bool) {
    if let Some((programs, mut plane)) = run.network.programs_at(run.now) {
        programs.timer_due(&mut plane, switch, has_power);
    }
    if has_power {
        follow_up(run, hosts, switch);
    }
}

/// Handles the results of a call of a switch's program: packets of connections that it removed or added, and its
/// timer.
fn follow_up<T: Tap>(run: &mut Run<'_, T>, hosts: &mut Hosts, switch: NodeId) {
    while let Some((lane, lost)) = run.network.programs_at(run.now).and_then(|(programs, _)| programs.take_change()) {
        hosts.lose(run, lane, lost);
    }
    let programs = run.network.programs_at(run.now);
    if let Some(at) = programs.and_then(|(programs, mut plane)| programs.next_timer(&mut plane, switch)) {
        run.agenda.push(at, Event::ProgramTimer(switch));
    }
}

/// Records how full the tables of programs are, and schedules the next sample, up to `duration`.
pub(crate) fn sample_tables<T: Tap>(run: &mut Run<'_, T>, duration: Ps) {
    if let Some((programs, mut plane)) = run.network.programs_at(run.now) {
        programs.sample_tables(&mut plane);
    }
    let next = run.now + sample_period(duration);
    if next <= duration {
        run.agenda.push(next, Event::SampleTables);
    }
}

/// Time between two samples of the tables in a run of this duration.
pub(crate) fn sample_period(duration: Ps) -> Ps {
    (duration / SAMPLES).clamp(to_ps(Nanos::from_millis(1)), to_ps(Nanos::from_secs(1)))
}

/// The balancer of a switch sends the probes that are due.
pub(crate) fn probe<T: Tap>(run: &mut Run<'_, T>, switch: NodeId, has_power: bool) {
    run.network.probe(run.now, switch, has_power);
    schedule_probe(run, switch);
}

/// Schedules the next probes of a switch, if its balancer sends any.
pub(crate) fn schedule_probe<T: Tap>(run: &mut Run<'_, T>, switch: NodeId) {
    if let Some(at) = run.network.next_probe(switch) {
        run.agenda.push(at, Event::Probe(switch));
    }
}
