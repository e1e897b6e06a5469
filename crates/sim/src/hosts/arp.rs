//! ARP in hosts (RFC 826). Used only if switches run programs.

use super::parts::addresses;
use super::resolver::{LookUp, Resolver, Waiter};
use crate::agenda::Event;
use crate::frames::mac_of;
use crate::interface::Interface;
use crate::run::Run;
use crate::subflow::Subflows;
use crate::tap::Tap;
use pathloom_model::{Address, Body, Fabric, Frame, Mac};
use pathloom_switching::deployment::Deployment;

/// The ARP caches of all hosts, and the requests and answers that fill them.
pub(super) struct Arp {
    resolver: Resolver,
    /// Addresses of interfaces, by the links that they send into.
    addresses: Vec<Option<Address>>,
}

impl Arp {
    /// Empty caches, with the life of entries of a deployment.
    pub(super) fn new(fabric: &Fabric, deployment: &Deployment) -> Arp {
        Arp { resolver: Resolver::new(deployment.arp_age, deployment.arp_retry), addresses: addresses(fabric) }
    }

    /// A subflow wants to send to an address. Returns whether it can; if not, it is among those that [`Arp::take_frame`]
    /// returns later.
    pub(super) fn resolves<T: Tap>(
        &mut self,
        run: &mut Run<'_, T>,
        interface: Interface,
        address: Address,
        waiter: Waiter,
    ) -> bool {
        let found = self.resolver.look_up(run.now, interface, address, waiter);
        if found == LookUp::Request {
            self.request(run, interface, address);
        }
        found == LookUp::Resolved
    }

    /// Sends an ARP request for an address to all hosts, and schedules the check whether it was answered.
    fn request<T: Tap>(&self, run: &mut Run<'_, T>, interface: Interface, address: Address) {
        let sender_ip = self.address_of(interface);
        let sender_mac = mac_of(sender_ip);
        let arp =
            pathloom_model::Arp { request: true, sender_mac, sender_ip, target_mac: Mac::ZERO, target_ip: address };
        let frame = Frame { src: sender_mac, dst: Mac::BROADCAST, body: Body::Arp(arp) };
        run.network.send_frame(run.now, interface.uplink(), frame);
        run.agenda.push(run.now.saturating_add(self.resolver.retry), Event::ArpRetry { interface, address });
    }

    /// Repeats an ARP request if it was not answered in time and a subflow still waits for the answer.
    pub(super) fn retry<T: Tap>(
        &mut self,
        run: &mut Run<'_, T>,
        (interface, address): (Interface, Address),
        subflows: &mut Subflows,
    ) {
        let waits = |(slot, use_count)| subflows.current(slot, use_count).is_some();
        if self.resolver.repeats(interface, address, waits) {
            self.request(run, interface, address);
        }
    }

    /// A frame of no connection has reached a host. ARP is answered and learned from. Any other frame is ignored: it is
    /// not for hosts, or its connection is over. Returns the subflows that need not wait any more.
    pub(super) fn take_frame<T: Tap>(
        &mut self,
        run: &mut Run<'_, T>,
        frame: &Frame,
        interface: Interface,
    ) -> Vec<Waiter> {
        let own_ip = self.address_of(interface);
        let Body::Arp(arp) = frame.body else { return Vec::new() };
        if arp.target_ip != own_ip {
            return Vec::new();
        }
        let ready = self.resolver.learn(run.now, interface, arp.sender_ip);
        if arp.request {
            let sender_mac = mac_of(own_ip);
            let (target_mac, target_ip) = (arp.sender_mac, arp.sender_ip);
            let answer = pathloom_model::Arp { request: false, sender_mac, sender_ip: own_ip, target_mac, target_ip };
            let frame = Frame { src: sender_mac, dst: target_mac, body: Body::Arp(answer) };
            run.network.send_frame(run.now, interface.uplink(), frame);
        }
        ready
    }

    /// The address of an interface.
    fn address_of(&self, interface: Interface) -> Address {
        self.addresses.get(interface.uplink().index()).copied().flatten().unwrap_or(Address::UNSPECIFIED)
    }
}
