//! DHCP between hosts at different switches. Broadcasts of clients go to all other ports with hosts, within limits.
//! Answers of servers go to the port of the client. Leases are not stored.

use pathloom_discovery::{Place, PortLimiter, Rate};
use pathloom_model::Nanos;
use std::collections::BTreeMap;

/// Limits of forwarded requests, per port and in total.
const PER_PORT: Rate = Rate { per_s: 5, burst: 20 };
const IN_ALL: Rate = Rate { per_s: 50, burst: 100 };
/// Maximum number of remembered clients, and how long each may wait for an answer.
const CLIENTS: usize = 4096;
const PATIENCE: Nanos = Nanos::from_secs(60);
/// Offsets in an untagged frame (`IP`) and in a DHCP message (RFC 2131 §2), and the value of `op` in a request.
const IP: usize = 14;
const OP: usize = 0;
const HARDWARE_ADDRESS: usize = 28;
const REQUEST: u8 = 1;

/// The client hardware address of a DHCP message.
type Client = [u8; 6];

/// The clients and their ports.
pub(crate) struct Dhcp {
    clients: BTreeMap<Client, (Place, Nanos)>,
    ports: PortLimiter,
    all: PortLimiter,
    /// Number of dropped messages.
    refused: u64,
}

/// The destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// All ports with hosts except this one.
    AllOthers(Place),
    /// This port.
    Port(Place),
    /// The client is not known. It may be at a switch without a session.
    Elsewhere,
    /// No port: the message is dropped.
    Drop,
}

impl Dhcp {
    pub(crate) fn new() -> Dhcp {
        let (ports, all) = (PortLimiter::new(PER_PORT), PortLimiter::new(IN_ALL));
        Dhcp { clients: BTreeMap::new(), ports, all, refused: 0 }
    }

    /// Number of dropped messages: requests beyond a limit, answers without a waiting client, and truncated messages.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The destination of a frame that arrived at a port.
    pub(crate) fn route(&mut self, now: Nanos, place: Place, frame: &[u8]) -> Destination {
        let destination = message(frame).and_then(|message| {
            let client: Client = message.get(HARDWARE_ADDRESS..)?.first_chunk().copied()?;
            if message[OP] != REQUEST {
                let asked = self.clients.get(&client).filter(|&&(_, at)| now.saturating_sub(at) <= PATIENCE);
                let elsewhere = || self.ports.admit(now, place).then_some(Destination::Elsewhere);
                return asked.map(|&(asked, _)| Destination::Port(asked)).or_else(elsewhere);
            }
            if !self.ports.admit(now, place) || !self.all.admit(now, Place::new(0, 0)) {
                return None;
            }
            if self.clients.len() >= CLIENTS {
                self.clients.retain(|_, (_, at)| now.saturating_sub(*at) <= PATIENCE);
            }
            if self.clients.len() < CLIENTS || self.clients.contains_key(&client) {
                self.clients.insert(client, (place, now));
            }
            Some(Destination::AllOthers(place))
        });
        self.refused += u64::from(matches!(destination, None | Some(Destination::Elsewhere)));
        destination.unwrap_or(Destination::Drop)
    }
}

/// The DHCP message in a frame, if it holds one.
pub(crate) fn message(frame: &[u8]) -> Option<&[u8]> {
    let ip = frame.get(IP..)?;
    let length = usize::from(ip.first()? & 15) * 4;
    let udp = ip.get(length..)?;
    let port = |at: usize| Some(u16::from_be_bytes(*udp.get(at..)?.first_chunk()?));
    let is_ipv4 = frame.get(12..14) == Some(&[8, 0]) && ip[0] >> 4 == 4 && ip.get(9) == Some(&17);
    let is_first = ip.get(6..8).is_some_and(|fragment| u16::from_be_bytes([fragment[0], fragment[1]]) & 0x1fff == 0);
    let ports = (port(0)?, port(2)?);
    (is_ipv4 && is_first && matches!(ports, (68, 67) | (67, 68))).then(|| udp.get(8..))?.filter(|body| !body.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(client: u8, request: bool) -> Vec<u8> {
        let mut bytes = vec![0xff; 12];
        bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
        bytes.extend(if request { [0, 68, 0, 67] } else { [0, 67, 0, 68] });
        bytes.extend([0; 4]);
        bytes.extend([if request { 1 } else { 2 }, 1, 6, 0]);
        bytes.extend([0; 24]);
        bytes.extend([2, 0, 0, 0, 0, client]);
        bytes
    }

    #[test]
    fn requests_go_to_all_other_ports_and_answers_to_the_client() {
        let mut dhcp = Dhcp::new();
        let (one, server) = (Place::new(1, 1), Place::new(9, 2));
        assert_eq!(dhcp.route(Nanos(0), server, &frame(7, false)), Destination::Elsewhere, "nobody asked");
        assert_eq!(dhcp.route(Nanos(0), one, &frame(7, true)), Destination::AllOthers(one));
        assert_eq!(dhcp.route(Nanos(1), server, &frame(7, false)), Destination::Port(one));
        assert_eq!(dhcp.route(Nanos(1), server, &frame(8, false)), Destination::Elsewhere);
        assert_eq!(dhcp.route(Nanos::from_secs(61), server, &frame(7, false)), Destination::Elsewhere, "too late");
        assert_eq!(dhcp.refused(), 3);
    }

    #[test]
    fn floods_are_limited_and_stored_clients_are_bounded() {
        let mut dhcp = Dhcp::new();
        let passed = |dhcp: &mut Dhcp, port| {
            (0..200u8)
                .filter(|&client| dhcp.route(Nanos(0), Place::new(1, port), &frame(client, true)) != Destination::Drop)
                .count()
        };
        assert_eq!(passed(&mut dhcp, 1), 20);
        assert_eq!((2..40).map(|port| passed(&mut dhcp, port)).sum::<usize>(), 80, "all together");
        assert!(dhcp.clients.len() <= CLIENTS);
    }

    #[test]
    fn truncated_frames_are_dropped() {
        let whole = frame(1, true);
        let mut dhcp = Dhcp::new();
        for end in 0..whole.len() {
            assert_eq!(dhcp.route(Nanos(0), Place::new(1, 1), &whole[..end]), Destination::Drop, "{end}");
        }
    }
}
