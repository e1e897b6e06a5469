//! Two interfaces, and the packets in transit between them.

use crate::interface::Interface;
use crate::packet::MOST_BYTES;
use std::collections::VecDeque;

/// Interval between checks of the carriers.
pub(crate) const CARRIER_NS: u64 = 20_000_000;
/// Packets taken from an interface before the other cables have their turn.
const BATCH_PACKETS: usize = 64;
/// Largest number of packets in transit in one direction: more than a second of the smallest packets at 100 Mbit/s.
const MOST: usize = 200_000;

struct Direction {
    delay_ns: u64,
    in_transit: VecDeque<(u64, Box<[u8]>)>,
}

/// The end that was set down because the other one lost its carrier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Both,
    /// This end has no carrier.
    Lost(usize),
}

/// A cable.
pub(crate) struct Cable {
    ends: [Interface; 2],
    /// From each end to the other.
    directions: [Direction; 2],
    carrier: Carrier,
    buffer: Box<[u8; MOST_BYTES]>,
}

/// Splits the argument for a cable: two interfaces, and the delay from each to the other in ns.
pub(crate) fn parse_argument(text: &str) -> Result<([&str; 2], [u64; 2]), String> {
    let wrong = || format!("`{text}` is not a cable; expected A,B,NANOSECONDS_TO_B,NANOSECONDS_TO_A");
    let [a, b, to_b, to_a] = text.split(',').collect::<Vec<_>>()[..] else { return Err(wrong()) };
    let number = |text: &str| text.parse::<u64>().ok().filter(|&ns| ns <= 10_000_000_000);
    match (number(to_b), number(to_a)) {
        (Some(to_b), Some(to_a)) if !a.is_empty() && !b.is_empty() => Ok(([a, b], [to_b, to_a])),
        _ => Err(wrong()),
    }
}

impl Cable {
    pub(crate) fn parse(text: &str) -> Result<Cable, String> {
        let (names, delays) = parse_argument(text)?;
        let open = |name: &str| Interface::open(name).map_err(|problem| format!("{name}: {problem}"));
        let ends = [open(names[0])?, open(names[1])?];
        let directions = delays.map(|delay_ns| Direction { delay_ns, in_transit: VecDeque::new() });
        Ok(Cable { ends, directions, carrier: Carrier::Both, buffer: Box::new([0; MOST_BYTES]) })
    }

    pub(crate) fn sockets(&self) -> [i32; 2] {
        [self.ends[0].socket(), self.ends[1].socket()]
    }

    /// Returns the time when the next packet is due.
    pub(crate) fn due(&self) -> Option<u64> {
        self.directions.iter().filter_map(|direction| direction.in_transit.front().map(|&(due, _)| due)).min()
    }

    /// Receives the packets that have arrived at both ends.
    pub(crate) fn receive(&mut self) {
        for (end, direction) in self.ends.iter().zip(&mut self.directions) {
            for _ in 0..BATCH_PACKETS {
                let Some((arrived, frame)) = end.receive(&mut self.buffer) else { break };
                if direction.in_transit.len() < MOST {
                    direction.in_transit.push_back((arrived + direction.delay_ns, frame.into()));
                }
            }
        }
    }

    /// Sends the packets that are due.
    pub(crate) fn send_due(&mut self, now: u64) {
        for (index, direction) in self.directions.iter_mut().enumerate() {
            while let Some((_, frame)) = direction.in_transit.front().filter(|&&(due, _)| due <= now) {
                self.ends[1 - index].send(frame);
                direction.in_transit.pop_front();
            }
        }
    }

    /// Sets an end down when the other one has no carrier, and up again when the carrier returns, as a cable does.
    pub(crate) fn pass_on_carrier(&mut self) {
        match self.carrier {
            Carrier::Both => {
                if let Some(end) = (0..2).find(|&end| !self.ends[end].has_carrier()) {
                    self.ends[1 - end].set(false);
                    // Packets in transit are lost with the cable.
                    self.directions.iter_mut().for_each(|direction| direction.in_transit.clear());
                    self.carrier = Carrier::Lost(end);
                }
            }
            Carrier::Lost(end) if self.ends[end].has_carrier() => {
                self.ends[1 - end].set(true);
                self.carrier = Carrier::Both;
            }
            Carrier::Lost(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cable_arguments_are_parsed() {
        assert_eq!(parse_argument("d10,d11,20000000,5"), Ok((["d10", "d11"], [20_000_000, 5])));
        for wrong in ["", "a,b", "a,b,1", "a,b,1,2,3", "a,b,x,1", ",b,1,1", "a,b,-1,1", "a,b,1,99999999999"] {
            assert!(parse_argument(wrong).is_err_and(|why| why.contains("is not a cable")), "{wrong}");
        }
    }
}
