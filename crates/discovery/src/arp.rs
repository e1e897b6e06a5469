//! ARP over Ethernet (RFC 826). Frames are parsed strictly, because accepted frames decide where traffic goes.

use crate::Mac;
use std::net::Ipv4Addr;

/// Ethernet type of ARP.
pub const ARP_ETHERTYPE: u16 = 0x0806;
/// Ethernet header and ARP packet, without padding.
const FRAME_BYTES: usize = 14 + 28;
/// Hardware type Ethernet, protocol type IPv4, lengths 6 and 4.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Operation of an ARP packet (`ar$op`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Asks who has the target address.
    Request,
    /// Announces that the sender has its address.
    Reply,
}

/// An ARP packet and the addresses of its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// Destination address of the frame. Its source address is always `sender_mac`.
    pub to: Mac,
    /// Request or reply.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_mac: Mac,
    /// The sender's address; 0.0.0.0 in a probe (RFC 5227 §2.1.1).
    pub sender_ip: Ipv4Addr,
    /// Hardware address of the receiver; unused in a request.
    pub target_mac: Mac,
    /// The requested address.
    pub target_ip: Ipv4Addr,
}

/// Why an ARP frame is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum ArpError {
    /// Too short, or another kind of frame.
    #[error("is not a complete ARP frame: expected at least 42 bytes and Ethernet type 0806")]
    NoArp,
    /// Not Ethernet and IPv4, or an unknown operation.
    #[error(
        "is not an ARP request or reply for IPv4 over Ethernet (types 1 and 0800, lengths 6 and 4, operation 1 or 2)"
    )]
    Kind,
    /// Frame and packet have different sender addresses.
    #[error("has one hardware address as source of the frame and another as ARP sender")]
    SenderMismatch,
    /// The sender's hardware address is a group address or zero.
    #[error("has a sender hardware address that no station can have")]
    SenderMac,
    /// A sender address that no host can have: multicast, broadcast, loopback, 0/8 (except 0.0.0.0 in a request),
    /// 240/4.
    #[error("has a sender address that no host can have")]
    SenderIp,
    /// A target address that no host can have.
    #[error("has a target address that no host can have")]
    TargetIp,
    /// The frame is sent to a group address other than broadcast.
    #[error("is sent to a group address other than the broadcast address")]
    To,
}

impl Arp {
    /// Creates a request for `target_ip`, in a frame to `to`. With sender 0.0.0.0 it is a probe.
    pub fn request(sender_mac: Mac, sender_ip: Ipv4Addr, target_ip: Ipv4Addr, to: Mac) -> Arp {
        Arp { to, operation: Operation::Request, sender_mac, sender_ip, target_mac: Mac::ZERO, target_ip }
    }

    /// Creates the answer to this request: `owner` has the requested address.
    pub fn answer(&self, owner: Mac) -> Arp {
        Arp {
            to: self.sender_mac,
            operation: Operation::Reply,
            sender_mac: owner,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Whether this is a probe: the sender checks that nobody has an address before it uses the address (RFC 5227
    /// §2.1.1).
    pub fn is_probe(&self) -> bool {
        self.sender_ip.is_unspecified()
    }

    /// Whether the sender announces its own address (RFC 5227 §2.3; "gratuitous").
    pub fn is_announcement(&self) -> bool {
        self.sender_ip == self.target_ip
    }

    /// Returns the frame, 60 bytes with padding.
    pub fn emit(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(60);
        frame.extend(self.to.0);
        frame.extend(self.sender_mac.0);
        frame.extend(ARP_ETHERTYPE.to_be_bytes());
        frame.extend(ETHERNET_IPV4);
        frame.extend(match self.operation {
            Operation::Request => [0, 1],
            Operation::Reply => [0, 2],
        });
        frame.extend(self.sender_mac.0);
        frame.extend(self.sender_ip.octets());
        frame.extend(self.target_mac.0);
        frame.extend(self.target_ip.octets());
        frame.resize(60, 0);
        frame
    }

    /// Parses an untagged frame. Bytes after the packet are padding.
    ///
    /// # Errors
    /// See [`ArpError`]; no part of a refused frame can be trusted.
    pub fn parse(frame: &[u8]) -> Result<Arp, ArpError> {
        let bytes: &[u8; FRAME_BYTES] = frame.first_chunk().ok_or(ArpError::NoArp)?;
        if bytes[12..14] != ARP_ETHERTYPE.to_be_bytes() {
            return Err(ArpError::NoArp);
        }
        let operation = match bytes[20..22] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return Err(ArpError::Kind),
        };
        if bytes[14..20] != ETHERNET_IPV4 {
            return Err(ArpError::Kind);
        }
        let mac = |at: usize| Mac(std::array::from_fn(|index| bytes[at + index]));
        let ip = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        let arp = Arp {
            to: mac(0),
            operation,
            sender_mac: mac(22),
            sender_ip: ip(28),
            target_mac: mac(32),
            target_ip: ip(38),
        };
        arp.check(mac(6)).map(|()| arp)
    }

    fn check(&self, source: Mac) -> Result<(), ArpError> {
        if !self.sender_mac.is_station() {
            return Err(ArpError::SenderMac);
        }
        if self.sender_mac != source {
            return Err(ArpError::SenderMismatch);
        }
        if self.to.is_group() && self.to != Mac::BROADCAST {
            return Err(ArpError::To);
        }
        let probe = self.is_probe() && self.operation == Operation::Request;
        if !probe && !is_host(self.sender_ip) {
            return Err(ArpError::SenderIp);
        }
        // A reply to a probe has target address 0.0.0.0.
        let target = is_host(self.target_ip) || (self.target_ip.is_unspecified() && self.operation == Operation::Reply);
        if target {
            Ok(())
        } else {
            Err(ArpError::TargetIp)
        }
    }
}

/// Whether a host can have this address (RFC 1122 §3.2.1.3, RFC 6890).
fn is_host(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..=255)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const IP_A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const IP_B: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);

    #[test]
    fn a_request_is_answered_according_to_rfc_826() {
        let request = Arp::request(A, IP_A, IP_B, Mac::BROADCAST);
        assert_eq!(Arp::parse(&request.emit()), Ok(request));
        let reply = request.answer(B);
        assert_eq!((reply.to, reply.sender_mac, reply.sender_ip), (A, B, IP_B));
        assert_eq!((reply.target_mac, reply.target_ip), (A, IP_A));
        assert_eq!(Arp::parse(&reply.emit()), Ok(reply));
        let probe = Arp::request(A, Ipv4Addr::UNSPECIFIED, IP_B, Mac::BROADCAST);
        assert!(probe.is_probe());
        assert_eq!(Arp::parse(&probe.answer(B).emit()), Ok(probe.answer(B)), "the answer to a probe");
    }

    #[test]
    fn frames_that_no_host_may_send_are_refused_with_a_reason() {
        let good = Arp::request(A, IP_A, IP_B, Mac::BROADCAST);
        let of = |arp: Arp| Arp::parse(&arp.emit());
        let changed = |at: usize, value: u8| {
            let mut frame = good.emit();
            frame[at] = value;
            Arp::parse(&frame)
        };
        for mac in [Mac::BROADCAST, Mac::ZERO, Mac([1, 0, 0x5e, 0, 0, 1])] {
            assert_eq!(of(Arp { sender_mac: mac, ..good }), Err(ArpError::SenderMac), "{mac}");
        }
        for ip in ["224.0.0.1", "255.255.255.255", "127.0.0.1", "0.1.2.3", "240.0.0.1"] {
            let ip: Ipv4Addr = ip.parse().unwrap();
            assert_eq!(of(Arp { sender_ip: ip, ..good }), Err(ArpError::SenderIp), "{ip}");
            assert_eq!(of(Arp { target_ip: ip, ..good }), Err(ArpError::TargetIp), "{ip}");
        }
        let nobody = Arp { sender_ip: Ipv4Addr::UNSPECIFIED, operation: Operation::Reply, ..good };
        assert_eq!(of(nobody), Err(ArpError::SenderIp));
        assert_eq!(of(Arp { to: Mac([1, 0, 0, 0, 0, 9]), ..good }), Err(ArpError::To));
        assert_eq!(changed(6 + 5, 9), Err(ArpError::SenderMismatch));
        for (at, value) in [(15, 6), (17, 1), (18, 8), (19, 16), (21, 3), (20, 1)] {
            assert_eq!(changed(at, value), Err(ArpError::Kind), "byte {at}");
        }
        assert_eq!(changed(13, 0), Err(ArpError::NoArp));
        assert_eq!(Arp::parse(&good.emit()[..41]), Err(ArpError::NoArp));
        assert_eq!(Arp::parse(&[]), Err(ArpError::NoArp));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random_frames_never_panic_and_accepted_frames_round_trip(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            edits in prop::collection::vec((0..42usize, any::<u8>()), 0..4),
        ) {
            prop_assert!(Arp::parse(&bytes).is_err());
            let mut frame = Arp::request(A, IP_A, IP_B, Mac::BROADCAST).emit();
            edits.into_iter().for_each(|(at, value)| frame[at] = value);
            if let Ok(arp) = Arp::parse(&frame) {
                prop_assert_eq!(&arp.emit()[..42], &frame[..42]);
                prop_assert!(arp.sender_mac.is_station());
            }
        }
    }
}
