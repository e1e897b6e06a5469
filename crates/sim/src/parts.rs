//! One run on several threads, with the same result as on one thread, bit for bit.
//!
//! All hosts and the agenda stay with the calling thread. The switches are divided into parts, one for each thread. A
//! packet on a link between two parts arrives after the link's delay at the earliest, so no part needs to know at
//! once what the others send. A window is half as long as this delay. docs/inside-simulator.md explains why the
//! result stays the same.

mod exchange;

use crate::hosts::HostSettings;
use crate::network::{Arrival, Network, Plan};
use crate::simulation::Simulation;
use crate::tap::{Parted, Tap};
use crate::time::{to_ps, Ps, NEVER};
use crate::transfers::Transfers;
use exchange::{Exchange, NextEvents, PanicGuard, Progress, STARTS};
use pathloom_model::Nanos;
use pathloom_scheme::{Entropy, Needs, Selection};
use pathloom_transport::TransportSpec;

/// Dividing the network and joining it again costs as much as some windows. For fewer windows than this, it is not
/// worthwhile.
const LEAST_WINDOWS: u64 = 64;
/// A window is half as long as the look-ahead, and at least one unit of time.
const LEAST_LOOK_AHEAD: Ps = 2;
/// Simulated time after which the run checks again whether several threads are worthwhile. It is shorter on one
/// thread, because then nothing must be divided and joined.
const RECHECK_AFTER_PARALLEL: Ps = 10_000_000_000;
const RECHECK_AFTER_SINGLE: Ps = 1_000_000_000;
/// Least arrivals expected within the look-ahead. With fewer, the parts wait for each other longer than they work.
const LEAST_ARRIVALS: f64 = 250.0;
/// Bytes of a full frame.
const FRAME_BYTES: u64 = 1514;

/// Why a run must stay on one thread; `None` if it need not.
pub(crate) fn single_thread_reason(settings: &HostSettings<'_>, transfers: &Transfers) -> Option<&'static str> {
    if settings.fluid {
        return Some("no packets are sent");
    }
    if settings.deployment.is_some() {
        return Some("switches run programs");
    }
    if settings.transport.packets().is_some() {
        return Some("hosts choose a path for each packet");
    }
    if !matches!(settings.transport, TransportSpec::Tcp(_)) {
        return Some("transfers have several subflows");
    }
    if transfers.has_chains() {
        return Some("transfers wait for others");
    }
    if transfers.any_under_way() {
        return Some("transfers are under way at the start");
    }
    single_thread_reason_by_needs(settings.needs)
}

/// As [`single_thread_reason`], for the needs of a scheme.
pub(crate) fn single_thread_reason_by_needs(needs: &Needs) -> Option<&'static str> {
    if needs.selection.has_balancer() {
        return Some("switches have load balancers");
    }
    // Hosts choose the entropy, and all of them are on the calling thread. A switch sees only ports of its own part.
    (Needs { entropy: Entropy::Flow, selection: Selection::Hash, ..*needs } != Needs::NOTHING)
        .then_some("the scheme's controller is informed of flows or reads counters")
}

impl<T: Tap> Simulation<T> {
    /// Why the run stays on one thread, even if it gets several; `None` if it does not.
    pub fn one_thread(&self) -> Option<&'static str> {
        let paths = self.hosts.records_paths().then_some("the paths of flows are recorded");
        let ports = self.network.links.has_ports().then_some("ports of switches have several queues or RED");
        let skips = self.skip.is_some().then_some("steady phases are skipped");
        self.single_thread_reason.or(skips).or(paths).or(ports)
    }

    /// Number of windows that were simulated on several threads so far.
    pub fn windows(&self) -> u64 {
        self.windows
    }
}

impl<const LARGE: bool> Simulation<Parted<LARGE>> {
    /// As [`Simulation::advance`], on this many threads if possible. The result does not depend on their number.
    pub fn advance_on(&mut self, until: Nanos, threads: usize) {
        if self.skip.is_some() {
            return self.advance(until);
        }
        let limit = to_ps(until).min(self.end).saturating_add(1);
        if threads <= 1 || self.one_thread().is_some() {
            return self.advance_on_one_thread(limit);
        }
        let plan = Plan::new(&self.fabric, threads);
        while plan.parts() > 1 && !self.is_done() && self.now < limit - 1 {
            let (others, over) = (self.agenda.next_of_others(), self.not_over_before());
            let look_ahead = plan.look_ahead(&self.fabric, self.network.links.of_fabric());
            let has_work = self.force_threads || self.arrivals_in(look_ahead) >= LEAST_ARRIVALS;
            let recheck_at = self.now + if has_work { RECHECK_AFTER_PARALLEL } else { RECHECK_AFTER_SINGLE };
            let stretch = others.min(limit).min(over).min(recheck_at);
            let is_long = stretch.saturating_sub(self.now) / LEAST_WINDOWS > look_ahead;
            if has_work && is_long && look_ahead >= LEAST_LOOK_AHEAD {
                self.advance_on_all_threads(stretch, &plan, look_ahead);
            } else if self.now >= self.duration && over <= stretch {
                break;
            }
            // This includes the event that ended the stretch.
            self.advance_on_one_thread(stretch.saturating_add(1).min(limit));
        }
        self.advance_on_one_thread(limit);
    }

    /// Lets the threads share even little work, although it takes longer. For tests of the result.
    pub fn force_threads(&mut self) {
        self.force_threads = true;
    }

    /// Number of packets that will arrive within `time` if all links that have packets now continue to send data at
    /// their rates.
    fn arrivals_in(&self, time: Ps) -> f64 {
        let busy = self.network.links.of_fabric().iter().filter(|queue| queue.in_flight() > 0);
        busy.map(|queue| time as f64 / queue.send_time(FRAME_BYTES).max(1) as f64).sum()
    }

    /// Time before which the run does not end. After the end of arrivals, the run ends at once with the last
    /// transfer, so no part may be ahead of that.
    fn not_over_before(&self) -> Ps {
        if self.now < self.duration {
            self.duration
        } else {
            self.now.saturating_add(self.hosts.least_time_left())
        }
    }

    #[inline(never)]
    fn advance_on_one_thread(&mut self, limit: Ps) {
        self.advance_before(limit);
    }

    /// Simulates everything before `limit`, on one thread for each part.
    fn advance_on_all_threads(&mut self, limit: Ps, plan: &Plan, look_ahead: Ps) {
        let mut others = self.network.divide(self.now, plan);
        let exchange = Exchange::new(plan.parts(), look_ahead, limit);
        let ended = self.now;
        std::thread::scope(|scope| {
            for (number, part) in (1..).zip(&mut others) {
                let exchange = &exchange;
                scope.spawn(move || advance_part(part, number, ended, exchange));
            }
            self.advance_hosts(ended, &exchange);
        });
        self.network.join(self.now, plan, others);
    }

    /// Advances the part of the hosts.
    fn advance_hosts(&mut self, ended: Ps, exchange: &Exchange) {
        let _guard = PanicGuard(exchange);
        let mut progress = Progress { part: 0, turn: 0, ended };
        let (mut lost, mut started, mut starts) = (Vec::new(), 0, [NEVER; STARTS]);
        loop {
            let sent = exchange.swap(progress, &mut self.network, &mut lost);
            if started != self.hosts.transfers().started() || progress.turn == 0 {
                started = self.hosts.transfers().started();
                starts = self.hosts.transfers().next_starts().map(|start| start.map_or(NEVER, to_ps));
            }
            let event = sent.min(self.network.earliest_arrival()).min(self.agenda.next_at());
            let end = exchange.next_end(progress, NextEvents { event, starts });
            // A transfer that starts now must know all earlier packet losses.
            if end.is_none() || starts[0] == progress.ended {
                exchange.receive_messages(progress.turn, progress.part, &mut self.network, &mut lost);
            }
            for (lane, packets) in lost.drain(..) {
                self.lose(self.now, lane, packets);
            }
            let Some(end) = end else { break };
            self.advance_on_one_thread(end);
            self.windows += 1;
            progress = Progress { turn: progress.turn + 1, ended: end, ..progress };
        }
    }
}

/// Advances a part of switches to the end of the last window.
fn advance_part<T: Tap>(network: &mut Network<T>, part: usize, ended: Ps, exchange: &Exchange) {
    let _guard = PanicGuard(exchange);
    let mut progress = Progress { part, turn: 0, ended };
    loop {
        let mut nobodys = Vec::new();
        let sent = exchange.swap(progress, network, &mut nobodys);
        let event = sent.min(network.earliest_arrival());
        let Some(end) = exchange.next_end(progress, NextEvents { event, starts: [NEVER; STARTS] }) else {
            exchange.receive_messages(progress.turn, part, network, &mut nobodys);
            break;
        };
        if network.sprays() {
            switch_before::<T, true>(network, end);
        } else {
            switch_before::<T, false>(network, end);
        }
        progress = Progress { turn: progress.turn + 1, ended: end, ..progress };
    }
}

/// Handles all arrivals of a part of switches before `end`.
#[inline(never)]
fn switch_before<T: Tap, const SPRAYS: bool>(network: &mut Network<T>, end: Ps) {
    while let Some((now, link)) = network.next_before(end, |_| {}) {
        let arrival = match network.arrive::<SPRAYS>(now, link) {
            Arrival::Slow(packet) => network.arrive_slowly(now, link, packet),
            done => done,
        };
        match arrival {
            Arrival::Forwarded => {}
            Arrival::Dropped(lane) => network.note_lost(lane, 1),
            Arrival::Slow(packet) => {
                let lane = packet.lane();
                let (copy, lost) = network.decide(now, link, packet);
                debug_assert!(copy.is_none(), "a run stays on one thread if its controller is informed of flows");
                if lost != 0 {
                    network.note_lost(lane, lost);
                }
            }
            Arrival::Host(..) | Arrival::Resumed(_) => debug_assert!(false, "hosts are in another part"),
        }
    }
    network.advance_to(end - 1);
}
