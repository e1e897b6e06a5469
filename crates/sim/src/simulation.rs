//! The run: hosts, network and control plane under one virtual clock.

use crate::agenda::{Agenda, Event};
use crate::agents::Agents;
use crate::checks::{check, check_without_packets, longest_path_switches};
use crate::control_plane::{ControlPlane, Journal};
use crate::faults::Faults;
use crate::hosts::{HostSettings, Hosts};
use crate::marks::Signals;
use crate::network::{pfc, Arrival, Network, PacketIn};
use crate::outcome::{LinkOutcome, Outcome, PacketTotals, SubflowPath};
use crate::packet::Packet;
use crate::parts;
use crate::plan::Plan;
use crate::preview::{self, OfferedFlow, SwitchTables};
use crate::program_events;
use crate::run::Run;
use crate::settings::{Fidelity, SimError, SimSettings};
use crate::skip::{self, Skip, Skipped};
use crate::splitting::splits_of;
use crate::tap::{NoTap, Tap};
use crate::time::{to_nanos, to_ps, Ps};
use crate::transfers::Transfers;
use pathloom_control::Input;
use pathloom_model::spec::SpecError;
use pathloom_model::{Fabric, Fault, FaultKind, LinkId, Nanos, Quality};
use pathloom_scheme::{Entropy, Needs};
use std::sync::Arc;

/// One run of one scheme.
pub struct Simulation<T: Tap = NoTap> {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) network: Network<T>,
    pub(crate) hosts: Hosts,
    pub(crate) control: ControlPlane,
    pub(crate) agenda: Agenda,
    pub(crate) faults: Faults,
    pub(crate) now: Ps,
    pub(crate) duration: Ps,
    /// Whether switches run programs.
    pub(crate) runs_programs: bool,
    /// Why the run must stay on one thread; `None` if it need not.
    pub(crate) single_thread_reason: Option<&'static str>,
    /// Whether several threads share even little work.
    pub(crate) force_threads: bool,
    /// Number of windows that were simulated on several threads so far.
    pub(crate) windows: u64,
    pub(crate) end: Ps,
    /// Looks for steady phases, if they are skipped.
    pub(crate) skip: Option<Box<Skip>>,
}

/// Most messages per switch that a controller may exchange before the first packet.
const START_MESSAGES_PER_SWITCH: u64 = 100_000;

impl Simulation<NoTap> {
    /// Sets a run up: the controller has started, default routes are in place, no packet has been sent.
    pub fn new(settings: SimSettings) -> Result<Simulation, SimError> {
        Simulation::with_tap(settings, NoTap, None)
    }
}

impl<T: Tap> Simulation<T> {
    /// Sets a run up with a tap on every link and an optional journal of the controller's messages.
    pub fn with_tap(
        settings: SimSettings,
        tap: T,
        journal: Option<Box<dyn Journal + Send>>,
    ) -> Result<Simulation<T>, SimError> {
        Simulation::with_fidelity(settings, tap, journal, Fidelity::Packets)
    }

    /// As [`Simulation::with_tap`], with packets or with flows as rates. A tap sees no packets in a run without any.
    ///
    /// # Errors
    /// As [`Simulation::new`]; also a run that needs packets, and has none.
    pub fn with_fidelity(
        settings: SimSettings,
        tap: T,
        journal: Option<Box<dyn Journal + Send>>,
        fidelity: Fidelity,
    ) -> Result<Simulation<T>, SimError> {
        check(&settings, journal.is_some())?;
        let settings = settings.for_family();
        if fidelity == Fidelity::Fluid {
            check_without_packets(&settings)?;
        }
        let SimSettings { fabric, workload, transport, seed, .. } = &settings;
        let plan = Plan::of_workload(fabric, workload, transport, *seed)?;
        let divides = settings.central.as_ref().is_some_and(|central| central.needs().entropy == Entropy::Part);
        let plan = if divides { plan.divided(&splits_of(fabric, workload)) } else { plan };
        Simulation::with_plan(settings, tap, journal, (plan, fidelity))
    }

    /// As [`Simulation::with_tap`], for checked settings and with the subflows of a plan.
    pub(crate) fn with_plan(
        settings: SimSettings,
        tap: T,
        journal: Option<Box<dyn Journal + Send>>,
        (plan, fidelity): (Plan, Fidelity),
    ) -> Result<Simulation<T>, SimError> {
        let settings = settings.for_family();
        let SimSettings { fabric, workload, central, successor, transport, control, .. } = settings;
        let SimSettings { duration, drain, faults, seed, programs, .. } = settings;
        let needs = central.as_ref().map_or(Needs::NOTHING, |central| central.needs());
        let signals = Signals::of(&transport, &needs, &fabric);
        let mut network = Network::new(
            fabric.clone(),
            &control,
            signals,
            longest_path_switches(&fabric),
            (programs.clone(), seed),
            tap,
        );
        let transfers = Transfers::new(&fabric, workload, plan, transport.settings());
        let end = to_ps(duration).saturating_mul(u64::from(drain) + 1);
        let duration = to_ps(duration);
        let agents = Agents::draw(&fabric, control.agents, seed);
        let mut plane = ControlPlane::new(fabric.clone(), control.clone(), agents.clone(), central);
        let deployment = programs.as_ref();
        let (transport, needs, control) = (&transport, &needs, &control);
        let fluid = fidelity == Fidelity::Fluid;
        let settings = HostSettings { transport, needs, control, agents, deployment, duration, seed, fluid };
        let single_thread_reason = parts::single_thread_reason(&settings, &transfers);
        let skip = (fidelity == Fidelity::Skip)
            .then(|| Box::new(Skip::new(skip::refusal(&settings, &transfers, network.links.has_ports(), T::ON))));
        let hosts = Hosts::new(fabric.clone(), transfers, &settings);
        if hosts.acknowledge_packets() {
            network.take_slow_path_to_hosts();
        }
        if fluid {
            network.note_changes();
            network.forget_decisions();
            network.links.carried_bytes = Some(vec![0.0; fabric.links().len()]);
        } else if needs.takes_several_paths() || hosts.acknowledge_packets() {
            network.expect_several_paths(needs.selection, needs.selection_tier, seed);
        }
        if skip.is_some() {
            network.note_changes();
        }
        plane.journal = journal;
        plane.starts.successor = successor;
        let mut simulation = Simulation {
            network,
            hosts,
            control: plane,
            agenda: Agenda::default(),
            faults: Faults::new(fabric.clone(), faults),
            now: 0,
            duration,
            runs_programs: programs.is_some(),
            single_thread_reason,
            force_threads: false,
            windows: 0,
            end,
            skip,
            fabric,
        };
        simulation.prepare()?;
        Ok(simulation)
    }

    fn prepare(&mut self) -> Result<(), SimError> {
        for &link in self.fabric.clone().failed_links() {
            for one in [link, link.reverse()] {
                self.network.set_link(0, one, false);
            }
        }
        let limit = START_MESSAGES_PER_SWITCH * self.fabric.switches().len() as u64;
        for &(link, per_billion) in self.fabric.clone().lossy_links() {
            self.network.set_quality(0, link, Quality::Loss { per_billion });
        }
        let Simulation { fabric, network, hosts, control, agenda, faults, .. } = self;
        let started = control.start(network, agenda, faults.links(), limit);
        started.ok_or(SimError::EndlessStart(limit))?;
        hosts.keep_paths(network);
        let run = &mut Run { now: 0, network, agenda };
        if self.runs_programs {
            for &switch in fabric.switches() {
                program_events::restart(run, hosts, switch, |link| faults.is_up(link));
            }
            run.agenda.push(program_events::sample_period(self.duration), Event::SampleTables);
        }
        fabric.switches().iter().for_each(|&switch| program_events::schedule_probe(run, switch));
        for (index, fault) in faults.schedule().iter().enumerate() {
            run.agenda.push(to_ps(fault.at), Event::Fault(index as u32));
        }
        let restarts = |fault: &Fault| fault.kind == FaultKind::ControllerRestart { from_snapshot: true };
        if faults.schedule().iter().any(restarts) {
            control.write_snapshot(0, run.agenda);
        }
        self.agenda.push(self.duration, Event::EndOfArrivals);
        if let Some(at) = self.hosts.transfers().next_start() {
            self.agenda.push(to_ps(at), Event::NextStart);
        }
        Ok(())
    }

    /// Simulated time.
    pub fn now(&self) -> Nanos {
        to_nanos(self.now)
    }

    /// Latest end of the run.
    pub fn end(&self) -> Nanos {
        to_nanos(self.end)
    }

    /// Number of subflows of the next transfer and of those that start before it could end; and whether they acknowledge
    /// packets, so that they need less memory than TCP.
    pub fn first_subflows(&self) -> (usize, bool) {
        (self.hosts.transfers().first_subflows(), self.hosts.acknowledge_packets())
    }

    /// Whether the run is over.
    pub fn is_done(&self) -> bool {
        self.agenda.is_halted() || self.now >= self.end
    }

    /// Lets switches decide about every packet from now on, without the cache. It is slow but changes no result: for
    /// tests of that.
    pub fn forget_decisions(&mut self) {
        self.network.forget_decisions();
    }

    /// Lets the cache hold decisions about at most this many lanes if packets of a flow take several paths. It changes no result:
    /// for tests of that.
    pub fn limit_lanes(&mut self, most: usize) {
        self.network.limit_lanes(most);
    }

    /// Number of packets so far about which a switch was asked, because no decision was cached.
    pub fn decisions(&self) -> u64 {
        self.network.totals.decisions
    }

    /// The tap.
    pub fn tap_mut(&mut self) -> &mut T {
        &mut self.network.links.tap
    }

    /// Simulates everything up to and including `until`.
    ///
    /// Never inlined, so that profilers find it by name: `pathloom bench sim --instructions` counts the instructions
    /// of this function and of all functions that it calls.
    #[inline(never)]
    pub fn advance(&mut self, until: Nanos) {
        let limit = to_ps(until).min(self.end).saturating_add(1);
        if let Some(mut skip) = self.skip.take() {
            skip.advance(self, limit);
            self.skip = Some(skip);
            return;
        }
        self.advance_before(limit);
    }

    /// What was skipped of the run so far; `None` if every packet is simulated by choice.
    pub fn skipped(&self) -> Option<Skipped> {
        self.skip.as_ref().map(|skip| skip.outcome())
    }

    /// Beginning and end of each phase that was skipped so far.
    pub fn skipped_phases(&self) -> Vec<(Nanos, Nanos)> {
        self.skip.iter().flat_map(|skip| skip.phases()).collect()
    }

    /// Simulates everything before `limit`, which must be above 0.
    #[inline(always)]
    pub(crate) fn advance_before(&mut self, limit: Ps) {
        if self.network.sprays() {
            self.advance_sprayed(limit);
        } else {
            self.main_loop::<false>(limit);
        }
    }

    /// As [`Simulation::advance_before`]. Not inlined, for callers that call it rarely.
    #[inline(never)]
    pub(crate) fn packets_before(&mut self, limit: Ps) {
        self.advance_before(limit);
    }

    /// As [`Simulation::advance_before`], for runs in which packets of a flow take several paths.
    #[inline(never)]
    fn advance_sprayed(&mut self, limit: Ps) {
        self.main_loop::<true>(limit);
    }

    #[inline(always)]
    fn main_loop<const SPRAYS: bool>(&mut self, limit: Ps) {
        loop {
            // At the same time, events of the agenda come before arrivals. When the run is over or pauses, the agenda
            // returns a time of 0.
            let hosts = &self.hosts;
            let first = self.agenda.next_at().min(limit);
            if let Some((at, link)) = self.network.next_before(first, |packet| hosts.fetch(packet)) {
                self.now = at;
                self.arrive::<SPRAYS>(at, link);
            } else if !self.agenda.is_stopped() && self.agenda.next_at() < limit {
                self.next_event();
            } else {
                break;
            }
        }
        if !self.agenda.is_stopped() {
            self.now = self.now.max(limit - 1);
            self.network.advance_to(self.now);
        } else if !self.agenda.is_halted() {
            return;
        }
        self.network.links.catch_up_all(self.now);
    }

    #[inline(always)]
    fn arrive<const SPRAYS: bool>(&mut self, now: Ps, link: u32) {
        match self.network.arrive::<SPRAYS>(now, link) {
            Arrival::Forwarded => {}
            Arrival::Host(packet, interface) => {
                let (hosts, mut run) = self.hosts_at(now);
                hosts.deliver(&mut run, &packet, interface);
            }
            Arrival::Dropped(lane) => self.lose(now, lane, 1),
            Arrival::Slow(packet) => self.arrive_slowly(now, link, packet),
            Arrival::Resumed(uplink) => self.resumed(now, uplink),
        }
    }

    /// Packets of a lane were lost; a negative number means that packets were added.
    #[inline]
    pub(crate) fn lose(&mut self, now: Ps, lane: u32, packets: i32) {
        let (hosts, mut run) = self.hosts_at(now);
        hosts.lose(&mut run, lane, packets);
    }

    /// The hosts, and what they may act on at this time.
    #[inline(always)]
    pub(crate) fn hosts_at(&mut self, now: Ps) -> (&mut Hosts, Run<'_, T>) {
        (&mut self.hosts, Run { now, network: &mut self.network, agenda: &mut self.agenda })
    }

    /// The card of a host may send paused packets again.
    #[cold]
    #[inline(never)]
    fn resumed(&mut self, now: Ps, uplink: LinkId) {
        let (hosts, mut run) = self.hosts_at(now);
        hosts.card_resumed(&mut run, uplink);
    }

    /// A packet has arrived for which the main loop knows no decision. Not inlined, like all code that few packets
    /// need, because the main loop needs all registers.
    #[inline(never)]
    fn arrive_slowly(&mut self, now: Ps, link: u32, packet: Packet) {
        match self.network.arrive_slowly(now, link, packet) {
            Arrival::Forwarded => {}
            Arrival::Host(packet, interface) => {
                let (hosts, mut run) = self.hosts_at(now);
                hosts.deliver_any(&mut run, &packet, interface);
            }
            Arrival::Dropped(lane) => self.lose(now, lane, 1),
            Arrival::Slow(packet) => self.ask_switch(now, link, packet),
            Arrival::Resumed(uplink) => self.resumed(now, uplink),
        }
    }

    /// A switch decides about a packet.
    fn ask_switch(&mut self, now: Ps, link: u32, packet: Packet) {
        if self.runs_programs {
            let (hosts, mut run) = self.hosts_at(now);
            return program_events::ask(&mut run, hosts, link, packet);
        }
        let lane = packet.lane();
        let (copy, lost) = self.network.decide(now, link, packet);
        if let Some(copy) = copy {
            let input = Input::PacketIn { switch: copy.switch, in_port: copy.in_port, headers: copy.headers };
            self.control.tell(now, &mut self.agenda, input);
        }
        if lost != 0 {
            self.lose(now, lane, lost);
        }
    }

    #[inline(never)]
    fn next_event(&mut self) {
        let Some((at, event)) = self.agenda.pop() else { return };
        self.now = at;
        self.network.advance_to(at);
        let Simulation { hosts, control, faults, network, agenda, .. } = self;
        let run = &mut Run { now: at, network, agenda };
        match event {
            Event::NextStart => hosts.start_next(run),
            Event::Start(transfer) => hosts.start(run, transfer),
            Event::PathsOverdue(transfer) => hosts.paths_overdue(run, transfer),
            Event::SenderTimer { slot, use_count } => hosts.sender_timer(run, (slot, use_count)),
            Event::PacketTimer { slot, use_count } => hosts.packet_timer(run, (slot, use_count)),
            Event::PullDue(uplink) => hosts.pull_due(run, uplink),
            Event::CardFree(uplink) => hosts.card_free(run, uplink),
            Event::CardReady { slot, use_count } => hosts.card_ready(run, (slot, use_count)),
            Event::ReceiverTimer { slot, use_count } => hosts.receiver_timer(run, (slot, use_count)),
            Event::FlowReady { slot, use_count } => hosts.flow_ready(run, (slot, use_count)),
            Event::FlowDrained(transfer) => hosts.flow_drained(run, transfer),
            Event::FlowArrived(transfer) => hosts.flow_arrived(run, transfer),
            Event::LeaseOver { slot, use_count } => hosts.lease_over(run, (slot, use_count)),
            Event::FirstWindowSent { slot, use_count } => hosts.first_window_sent(run, (slot, use_count)),
            Event::ArpRetry { interface, address } => hosts.arp_retry(run, (interface, address)),
            Event::EndOfArrivals => hosts.end_of_arrivals(run),
            Event::Deliver { output, session } => match output.switch() {
                Some(switch) => control.reached_switch(at, run.agenda, switch, (output, session)),
                None => hosts.obey(run, *output),
            },
            Event::Apply { output, session } => {
                hosts.count_for(run, &output);
                control.applied(at, run.network, run.agenda, (*output, session));
            }
            Event::Inform { input, origin } => control.inform(at, run.agenda, *input, origin),
            Event::Served { controller } => control.served(at, run.agenda, controller),
            Event::WriteSnapshot => control.write_snapshot(at, run.agenda),
            Event::ControllerTimer => control.timer_due(at, run.agenda),
            Event::Sweep(switch) => {
                hosts.count_at(run, switch);
                control.sweep(at, switch, run.network, run.agenda);
            }
            Event::MeasureLoad => control.measure_load(at, run.agenda),
            Event::ProgramTimer(switch) => program_events::timer_due(run, hosts, switch, faults.has_power(switch)),
            Event::Probe(switch) => program_events::probe(run, switch, faults.has_power(switch)),
            Event::SampleTables => program_events::sample_tables(run, self.duration),
            Event::Fault(index) => faults.carry_out(run, hosts, control, index),
        }
        if self.hosts.is_fluid() {
            self.update_rates();
        }
    }

    /// Brings the rates of a run without packets up to date, and sends the copies of packets to the controller.
    fn update_rates(&mut self) {
        let (hosts, mut run) = self.hosts_at(self.now);
        for PacketIn { switch, in_port, headers } in hosts.update_rates(&mut run) {
            self.control.tell(self.now, &mut self.agenda, Input::PacketIn { switch, in_port, headers });
        }
    }

    /// The links that the data of a transfer's first subflow would cross if it sent now, from its host to the place
    /// where they arrive (or would be lost). Empty for a transfer that has not started.
    pub fn route(&self, flow: u32) -> Vec<LinkId> {
        let Some(five_tuple) = self.hosts.transfers().five_tuple(flow) else { return Vec::new() };
        let Some(source) = self.fabric.attachment(five_tuple.src()) else { return Vec::new() };
        self.network.trace(source.uplink, self.hosts.headers(flow, five_tuple))
    }

    /// Records from now on the path of each subflow when it closes, for [`Simulation::take_subflow_paths`].
    pub fn record_subflow_paths(&mut self) {
        self.hosts.record_paths();
    }

    /// Returns the paths of the subflows that closed since the last call and of the open ones, by transfer and
    /// five-tuple, with the reasons that the controller has for them. Changes nothing in the run.
    pub fn take_subflow_paths(&mut self) -> Vec<SubflowPath> {
        let mut paths = self.hosts.take_subflow_paths(&self.network);
        let controller = &self.control.controller;
        for path in &mut paths {
            let placed = controller.find_flow(&path.five_tuple).and_then(|flow| controller.placement(flow));
            path.why = placed.map(|reason| reason.text(controller));
        }
        paths
    }

    /// Counts of packets so far.
    pub fn packet_totals(&self) -> PacketTotals {
        let mut packets = self.network.packet_totals();
        packets.events += self.agenda.taken;
        packets
    }

    /// Returns the results of the run so far.
    pub fn outcome(&self) -> Outcome {
        let until = to_nanos(self.now.min(self.duration));
        Outcome {
            flows: self.hosts.outcomes(self.now(), until),
            subflows: self.hosts.subflow_outcomes(self.now, &self.network),
            links: self.links(),
            packets: self.packet_totals(),
            control: self.control.outcome(self.now),
            programs: self.network.program_outcome(),
            pauses: pfc::pause_outcome(&self.network.links, self.now),
            kinds: self.hosts.exchanged().map(|exchanged| self.network.kinds(exchanged)),
            end: self.now(),
        }
    }

    fn links(&self) -> Vec<LinkOutcome> {
        let elapsed = self.now.max(1) as f64;
        if let Some(carried) = self.hosts.carried(self.now, &self.network) {
            let row = |((bytes, busy_ps), link): ((f64, f64), u32)| {
                let utilisation = (busy_ps / elapsed).clamp(0.0, 1.0);
                LinkOutcome { utilisation, ..LinkOutcome::of_bytes(LinkId(link), bytes as u64) }
            };
            return carried.into_iter().zip(0..).map(row).collect();
        }
        let row = |(index, queue): (usize, &crate::link::LinkQueue)| {
            let link = LinkId(index as u32);
            let sending = self.network.links.sending(link, self.now);
            let sent = sending.sent();
            let busy = sending.busy(sent) as f64;
            let (pauses, paused) = pfc::pauses(&self.network.links, link, self.now);
            LinkOutcome {
                link,
                sent_bytes: sent.bytes,
                sent_packets: sent.packets,
                dropped_packets: queue.dropped_packets(),
                mean_queue: self.network.links.waited(link, self.now) as f64 / elapsed,
                utilisation: (busy / elapsed).clamp(0.0, 1.0),
                pauses,
                paused: to_nanos(paused),
            }
        };
        self.network.links.of_fabric().iter().enumerate().map(row).collect()
    }

    /// The links that the data of a transfer would cross by the present rules. `None` if it has not started, has several
    /// subflows, or if switches choose a path for each packet.
    pub fn path_of(&self, transfer: u32) -> Option<Vec<LinkId>> {
        preview::path_of(&self.hosts, &self.network, transfer)
    }

    /// Every transfer, in the order of the workload.
    pub fn offered(&self) -> Vec<OfferedFlow> {
        preview::offered(&self.hosts, &self.network)
    }

    /// The cables that faults take down and bring back, in order of time. A row has the time, whether the cables come
    /// back, and one direction of each cable.
    ///
    /// # Errors
    /// The first fault that does not take cables or nodes down or bring them back.
    pub fn cable_faults(&self) -> Result<Vec<(Nanos, bool, Vec<LinkId>)>, SpecError> {
        preview::cable_faults(&self.fabric, self.faults.schedule())
    }

    /// Rules, groups and meters that every switch has so far, in the order of the fabric.
    pub fn switch_tables(&mut self) -> Vec<SwitchTables> {
        preview::switch_tables(&self.fabric, &mut self.network)
    }
}
