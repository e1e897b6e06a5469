//! ARP in hosts, and the source ports by which hosts mark elephants. Used only if switches run programs.

use super::resolver::LookUp;
use super::Hosts;
use crate::agenda::{Agenda, Event};
use crate::frames::mac_of;
use crate::interface::Interface;
use crate::network::Network;
use crate::tap::Tap;
use crate::time::{to_nanos, Ps};
use crate::transfers::EPHEMERAL;
use pathloom_model::{Arp, Body, Frame, Mac};
use pathloom_switching::deployment::Mark;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

impl Hosts {
    /// Lets a subflow send, once its host has resolved the address of the other host.
    pub(super) fn open_sender<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let subflow = self.subflows.get(slot);
        let Some(resolver) = &mut self.resolver else { return subflow.sender.open(to_nanos(now)) };
        let (interface, address) = (subflow.interfaces[0], network.lanes.five_tuple(slot).dst);
        match resolver.look_up(now, interface, address, (slot as u32, subflow.use_count)) {
            LookUp::Resolved => subflow.sender.open(to_nanos(now)),
            LookUp::Request => self.request(now, network, agenda, interface, address),
            LookUp::Wait => {}
        }
    }

    /// Sends an ARP request for an address to all hosts, and schedules the check whether it was answered.
    fn request<T: Tap>(
        &self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        interface: Interface,
        address: Ipv4Addr,
    ) {
        let sender_ip = self.address_of(interface);
        let sender_mac = mac_of(sender_ip);
        let arp = Arp { request: true, sender_mac, sender_ip, target_mac: Mac::ZERO, target_ip: address };
        let frame = Frame { src: sender_mac, dst: Mac::BROADCAST, body: Body::Arp(arp) };
        network.send_frame(now, interface.uplink(), frame);
        let Some(resolver) = &self.resolver else { return };
        agenda.push(now.saturating_add(resolver.retry), Event::ArpRetry { interface, address });
    }

    /// Repeats an ARP request if it was not answered in time and a subflow still waits for the answer.
    pub(crate) fn arp_retry<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        (interface, address): (Interface, Ipv4Addr),
    ) {
        let Some(resolver) = &mut self.resolver else { return };
        let subflows = &mut self.subflows;
        if resolver.repeats(interface, address, |(slot, use_count)| subflows.current(slot, use_count).is_some()) {
            self.request(now, network, agenda, interface, address);
        }
    }

    /// A frame of no connection has reached a host. ARP is answered and learned from (RFC 826). Any other frame is
    /// ignored: it is not for hosts, or its connection is over.
    pub(super) fn take_frame<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        frame: &Frame,
        interface: Interface,
    ) {
        let own_ip = self.address_of(interface);
        let Body::Arp(arp) = frame.body else { return };
        let Some(resolver) = self.resolver.as_mut().filter(|_| arp.target_ip == own_ip) else { return };
        let ready = resolver.learn(now, interface, arp.sender_ip);
        if arp.request {
            let sender_mac = mac_of(own_ip);
            let (target_mac, target_ip) = (arp.sender_mac, arp.sender_ip);
            let answer = Arp { request: false, sender_mac, sender_ip: own_ip, target_mac, target_ip };
            let frame = Frame { src: sender_mac, dst: target_mac, body: Body::Arp(answer) };
            network.send_frame(now, interface.uplink(), frame);
        }
        for (slot, use_count) in ready {
            if let Some(subflow) = self.subflows.current(slot, use_count) {
                subflow.sender.open(to_nanos(now));
                self.pump(now, network, agenda, slot as usize);
            }
        }
    }

    /// The address of an interface.
    fn address_of(&self, interface: Interface) -> Ipv4Addr {
        self.addresses.get(interface.uplink().index()).copied().flatten().unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// Range of source ports for a transfer of this size.
    pub(super) fn source_ports(&self, size_bytes: Option<u64>) -> RangeInclusive<u16> {
        match &self.elephants {
            Some(elephants) if elephants.include(size_bytes) => match &elephants.mark {
                Mark::SourcePorts(ports) => ports.clone(),
                Mark::Dscp(_) => EPHEMERAL,
            },
            _ => EPHEMERAL,
        }
    }
}
