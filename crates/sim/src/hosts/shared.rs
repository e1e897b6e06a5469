//! What all hosts of a run share, whatever their transport: the transfers, the marks and entropies of their packets,
//! what the controller is told of them, and the time that hosts work on a packet.

use super::arp::Arp;
use super::parts::HostSettings;
use super::turns::{is_announced, RankedBy};
use crate::agenda::{Agenda, Event, Origin};
use crate::agents::Agents;
use crate::entropies::Entropies;
use crate::packet::Packet;
use crate::plan::EPHEMERAL;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::{to_ps, Ps};
use crate::transfers::Transfers;
use pathloom_control::Input;
use pathloom_model::{Fabric, FiveTuple, Headers, LinkId, Nanos, LONG_FLOW_DSCP};
use pathloom_scheme::{Ageing, Detection};
use pathloom_switching::deployment::{Mark, Marking};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// State of hosts that every transport uses.
pub(super) struct Shared {
    pub(super) fabric: Arc<Fabric>,
    agents: Agents,
    pub(super) transfers: Transfers,
    pub(super) entropies: Entropies,
    /// How packets are marked by the age of their message; `None` if they are not.
    ageing: Option<Ageing>,
    /// Which transfers hosts mark as elephants, and how; `None` if they mark none.
    elephants: Option<Marking>,
    /// The addresses that hosts have resolved, if switches run programs. Rule-driven switches need no Ethernet addresses.
    pub(super) arp: Option<Arp>,
    /// Whether agents announce long transfers to the controller.
    announces: bool,
    long_bytes: u64,
    /// Decides which messages are announced.
    seed: u64,
    /// Time that a message to the controller takes.
    control_delay: Ps,
    /// Random numbers for the time that a host works on a packet.
    rng: Pcg64,
    /// Longest time that a host works on a packet; `None` is the time that its card needs for a full frame.
    jitter: Option<Ps>,
    frame_bytes: u64,
    /// Time when arrivals stop. After it, the run ends with the last transfer.
    pub(super) duration: Ps,
    /// Whether the run continues after the last transfer.
    pub(super) keeps_going: bool,
}

impl Shared {
    pub(super) fn new(fabric: Arc<Fabric>, transfers: Transfers, settings: &HostSettings<'_>) -> Shared {
        let HostSettings { transport, needs, control, agents, deployment, duration, seed, .. } = settings;
        let transport = transport.settings();
        Shared {
            agents: agents.clone(),
            transfers,
            entropies: Entropies::new(needs.entropy),
            ageing: needs.ageing,
            elephants: deployment.and_then(|deployment| deployment.elephants.clone()),
            arp: deployment.map(|deployment| Arp::new(&fabric, deployment)),
            announces: needs.detection == Detection::Announced,
            long_bytes: control.long_bytes,
            seed: *seed,
            control_delay: to_ps(control.delay),
            rng: Pcg64::seed_from_u64(*seed),
            jitter: transport.jitter.map(to_ps),
            frame_bytes: transport.frame_bytes(),
            duration: *duration,
            keeps_going: false,
            fabric,
        }
    }

    /// A host gives a packet to its card. If the card is idle, it first works on the packet for a random time, which
    /// counts as time that the packet waits. A card that is busy gets it at once, so the delay takes nothing of the
    /// rate of the card. Returns whether the card has taken the packet.
    #[inline(always)]
    pub(super) fn hand_to_card<T: Tap>(&mut self, run: &mut Run<'_, T>, link: u32, packet: Packet) -> bool {
        let packet = self.entropies.stamp(run.now, packet);
        let card = &run.network.links[link as usize];
        if self.jitter == Some(0) || card.backlog(run.now) > 0 {
            return run.network.send(run.now, link, packet);
        }
        let most = self.jitter.unwrap_or_else(|| card.send_time(self.frame_bytes));
        // The upper half of the product: a number below `most`, without a division.
        let delay = ((u128::from(self.rng.next_u64()) * u128::from(most)) >> 64) as Ps;
        let taken = run.network.send(run.now + delay, link, packet);
        if taken {
            run.network.links[link as usize].add_waited(delay);
        }
        taken
    }

    /// The packet with the class of its level, if hosts mark packets by age. `bytes` are those by which its message is
    /// ranked; 0 for acknowledgements.
    #[inline(always)]
    pub(super) fn aged(&self, packet: Packet, bytes: impl FnOnce() -> u64) -> Packet {
        match self.ageing {
            None => packet,
            Some(ageing) => packet.with_class_selector(ageing.class_selector(ageing.level(bytes()))),
        }
    }

    /// What decides the level of a message. Which messages are announced depends only on the seed and their number, so it
    /// is the same for every scheme.
    #[inline(never)]
    pub(super) fn ranked_by(&self, transfer: u32, of_job: bool) -> RankedBy {
        let percent = self.ageing.map_or(0, |ageing| ageing.announced_percent);
        match self.transfers.spec(transfer).size_bytes {
            _ if of_job => RankedBy::Job,
            Some(size_bytes) if is_announced(percent, self.seed, transfer) => RankedBy::Left { size_bytes },
            _ => RankedBy::Sent,
        }
    }

    /// Whether hosts mark packets by the age of their message.
    #[inline(always)]
    pub(super) fn ages(&self) -> bool {
        self.ageing.is_some()
    }

    /// The retransmission timer of a slot has expired.
    pub(super) fn timed_out(&mut self, now: Ps, slot: usize) {
        self.entropies.timed_out(now, slot, &mut self.rng);
    }

    /// The last byte of a transfer, or of a part of it, has arrived: `ready` are the transfers that may start now, each
    /// with its delay.
    pub(super) fn arrived(&self, now: Ps, agenda: &mut Agenda, ready: Vec<(u32, Nanos)>) {
        for (transfer, delay) in ready {
            agenda.push(now + to_ps(delay), Event::Start(transfer));
        }
        if now >= self.duration {
            self.stop_if_finished(agenda);
        }
        if self.transfers.has_news() {
            agenda.pause();
        }
    }

    pub(super) fn stop_if_finished(&self, agenda: &mut Agenda) {
        if self.transfers.all_finished() && !self.keeps_going {
            agenda.halt();
        }
    }

    /// Sends a message to the controller.
    pub(super) fn tell(&self, now: Ps, agenda: &mut Agenda, input: Input) {
        agenda.push(now + self.control_delay, Event::Inform { input: Box::new(input), origin: Origin::Outside });
    }

    /// Whether the host that sends a transfer has an agent.
    pub(super) fn has_agent(&self, transfer: u32) -> bool {
        self.agents.at(self.transfers.spec(transfer).src)
    }

    /// Whether an agent labels or announces a transfer. Short transfers never wait for the controller (OFPT §4).
    pub(super) fn is_known_long(&self, transfer: u32) -> bool {
        self.transfers.spec(transfer).size_bytes.is_none_or(|size| size >= self.long_bytes) && self.has_agent(transfer)
    }

    /// Tells the controller of a new subflow of a transfer of `size_bytes`, if agents announce long ones when they begin.
    pub(super) fn announce(
        &self,
        now: Ps,
        agenda: &mut Agenda,
        (transfer, five_tuple): (u32, FiveTuple),
        size: Option<u64>,
    ) {
        if self.announces && self.ageing.is_none() && self.is_known_long(transfer) {
            self.tell(now, agenda, Input::TransferAnnounced { five_tuple, size_bytes: size });
        }
    }

    /// If hosts report messages by age, tells the controller of one that becomes long with the bytes from `seq` on.
    #[inline(never)]
    pub(super) fn announce_aged<T: Tap>(
        &self,
        run: &mut Run<'_, T>,
        (slot, transfer): (usize, u32),
        seq: u64,
        bytes: u32,
    ) {
        let becomes_long = seq < self.long_bytes && seq + u64::from(bytes) >= self.long_bytes;
        if becomes_long && self.announces && self.is_known_long(transfer) {
            let five_tuple = run.network.links.lanes.five_tuple(slot);
            self.tell(run.now, run.agenda, Input::TransferAnnounced { five_tuple, size_bytes: None });
        }
    }

    /// The sender of a slot has ended. Tells the controller, if that was told of the transfer.
    pub(super) fn announce_end<T: Tap>(&self, run: &mut Run<'_, T>, slot: usize, transfer: u32) {
        if self.announces && self.is_known_long(transfer) {
            let five_tuple = run.network.links.lanes.five_tuple(slot);
            self.tell(run.now, run.agenda, Input::TransferEnded { five_tuple });
        }
    }

    /// Headers of a transfer's data on one of its subflows. If the transfer is long, the agent of its host labels it.
    /// If it is an elephant for a program, its host marks it.
    pub(super) fn headers(&self, transfer: u32, five_tuple: FiveTuple) -> Headers {
        let dscp = match self.elephants.as_ref().map(|elephants| (elephants, &elephants.mark)) {
            None if self.ageing.is_none() && self.is_known_long(transfer) => LONG_FLOW_DSCP,
            Some((elephants, Mark::Dscp(mark))) if elephants.include(self.transfers.spec(transfer).size_bytes) => *mark,
            _ => 0,
        };
        Headers { dscp, ..Headers::plain(five_tuple) }
    }

    /// Range of source ports for a transfer of this size: hosts may mark elephants by their ports.
    pub(super) fn source_ports(&self, size_bytes: Option<u64>) -> RangeInclusive<u16> {
        match &self.elephants {
            Some(elephants) if elephants.include(size_bytes) => match &elephants.mark {
                Mark::SourcePorts(ports) => ports.clone(),
                Mark::Dscp(_) => EPHEMERAL,
            },
            _ => EPHEMERAL,
        }
    }

    /// Rate of a link.
    pub(super) fn rate_bps(&self, link: LinkId) -> u64 {
        self.fabric.link(link).settings.rate_bps
    }
}
