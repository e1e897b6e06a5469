//! Hosts: each is one interface with an address. It answers ARP.

use crate::frame::Frame;
use crate::network::End;
use pathloom_model::{Address, Arp, Body, Frame as Fields, Mac};
use pathloom_openflow::packet::path;

/// A host, or one interface of it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its address.
    pub address: Address,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its end of its cable.
    pub end: End,
    /// Whether it answers ARP requests.
    pub answers: bool,
    /// Frames that it received and that are not its packets, in order.
    pub received: Vec<Frame>,
}

impl Host {
    /// The ARP request for an address. For its own address, this is an announcement (RFC 5227 §3).
    pub fn request(&self, target_ip: Address) -> Frame {
        let (sender_mac, sender_ip) = (self.mac, self.address);
        arp(Mac::BROADCAST, Arp { request: true, sender_mac, sender_ip, target_mac: Mac::ZERO, target_ip })
    }

    /// Handles a frame that is not one of its packets. Returns its answer.
    pub(crate) fn handle(&mut self, frame: &Frame) -> Option<Frame> {
        let bytes = frame.to_bytes();
        self.received.push(frame.clone());
        let asked = match path::read(&bytes).ok()?.frame.body {
            Body::Arp(arp) if arp.request && arp.target_ip == self.address && self.answers => arp,
            _ => return None,
        };
        let (sender_mac, sender_ip) = (self.mac, self.address);
        let (target_mac, target_ip) = (asked.sender_mac, asked.sender_ip);
        Some(arp(target_mac, Arp { request: false, sender_mac, sender_ip, target_mac, target_ip }))
    }
}

fn arp(dst: Mac, arp: Arp) -> Frame {
    let mut bytes = Vec::new();
    path::emit(&Fields { src: arp.sender_mac, dst, body: Body::Arp(arp) }, &[], &mut bytes);
    Frame::from_bytes(&bytes).unwrap_or_else(|| unreachable!("a frame was just written"))
}
