//! How a switch chooses one of several equal next hops for each packet, by what it sees of its own ports.

/// State of an output port, as its switch sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortState {
    /// Bytes that wait, and those that are missing of the packet being sent.
    pub queue_bytes: u64,
    /// Bytes that have left the port so far. The packet being sent may count as a whole.
    pub sent_bytes: u64,
    /// Present rate in bit/s.
    pub rate_bps: u64,
    /// Whether the link is up.
    pub is_up: bool,
}

/// The ports of one set of equal next hops, numbered from 0.
pub trait PortView {
    /// Present state of a port. It may cost time, so a switch asks only for the ports that it considers.
    fn state(&self, port: usize) -> PortState;
}

/// The shortest of some queues: those of ports drawn at random, and those that were the shortest the last time.
///
/// DRILL(d, m) of Ghorbani et al. 2017 (SIGCOMM), §3.2. Where two queues are equally short, a drawn port comes before a
/// remembered one.
#[derive(Clone, Debug)]
pub struct ShortestQueue {
    /// The ports. Drawn ones are swapped to the front.
    ports: Vec<u32>,
    /// Number of ports to draw, at most all.
    drawn: usize,
    /// Most ports to remember.
    most_remembered: usize,
    /// The ports with the shortest queues the last time, shortest first.
    remembered: Vec<u32>,
    /// The ports considered last with their queues, if more than one is remembered.
    considered: Vec<(u64, u32)>,
}

impl ShortestQueue {
    /// For a set of this many ports, at least one: draws `drawn` different ports for each packet, or all if there are
    /// fewer, and remembers up to `remembered` ports.
    pub fn new(ports: usize, drawn: usize, remembered: usize) -> ShortestQueue {
        ShortestQueue {
            ports: (0..ports as u32).collect(),
            drawn: drawn.clamp(1, ports.max(1)).min(ports),
            most_remembered: remembered,
            remembered: Vec::new(),
            considered: Vec::new(),
        }
    }

    /// Chooses a port. `draw` returns a random number; it is called once for each port to draw.
    #[inline]
    pub fn choose(&mut self, view: &impl PortView, mut draw: impl FnMut() -> u32) -> usize {
        let mut best = (u64::MAX, 0);
        for place in 0..self.drawn {
            let others = (self.ports.len() - place) as u64;
            self.ports.swap(place, place + ((u64::from(draw()) * others) >> 32) as usize);
            best = shorter(best, queue_of(self.ports[place], view));
        }
        for &port in &self.remembered {
            best = shorter(best, queue_of(port, view));
        }
        match self.most_remembered {
            0 => {}
            1 => {
                self.remembered.clear();
                self.remembered.push(best.1);
            }
            _ => self.remember_shortest(view),
        }
        best.1 as usize
    }

    /// Remembers the shortest queues of those that were considered.
    fn remember_shortest(&mut self, view: &impl PortView) {
        let known = self.remembered.iter().filter(|port| !self.ports[..self.drawn].contains(port));
        self.considered.clear();
        self.considered.extend(self.ports[..self.drawn].iter().chain(known).map(|&port| queue_of(port, view)));
        self.considered.sort_by_key(|&(bytes, _)| bytes);
        self.remembered.clear();
        self.remembered.extend(self.considered.iter().take(self.most_remembered).map(|&(_, port)| port));
    }
}

#[inline]
fn queue_of(port: u32, view: &impl PortView) -> (u64, u32) {
    (view.state(port as usize).queue_bytes, port)
}

/// The first one, unless the second one has the shorter queue.
#[inline]
fn shorter(first: (u64, u32), second: (u64, u32)) -> (u64, u32) {
    if second.0 < first.0 {
        second
    } else {
        first
    }
}

/// One port after another.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// Begins with this port.
    pub fn from(first: usize) -> RoundRobin {
        RoundRobin { next: first }
    }

    /// Chooses the next of this many ports.
    #[inline]
    pub fn choose(&mut self, ports: usize) -> usize {
        let chosen = if self.next < ports { self.next } else { 0 };
        self.next = chosen + 1;
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg32;

    /// Queues in bytes.
    struct Queues<'a>(&'a [u64]);

    impl PortView for Queues<'_> {
        fn state(&self, port: usize) -> PortState {
            PortState { queue_bytes: self.0[port], sent_bytes: 0, rate_bps: 1, is_up: true }
        }
    }

    /// How often each port is chosen in 8000 choices.
    fn chosen(drawn: usize, remembered: usize, queues: &[u64]) -> Vec<u32> {
        let (mut policy, mut rng) = (ShortestQueue::new(queues.len(), drawn, remembered), Pcg32::seed_from_u64(1));
        let mut counts = vec![0; queues.len()];
        for _ in 0..8000 {
            counts[policy.choose(&Queues(queues), || rng.next_u32())] += 1;
        }
        counts
    }

    #[test]
    fn with_all_ports_drawn_the_shortest_queue_is_joined() {
        assert_eq!(chosen(5, 0, &[9, 4, 7, 3, 8]), [0, 0, 0, 8000, 0]);
        assert_eq!(chosen(64, 1, &[9, 4, 7, 3, 8]), [0, 0, 0, 8000, 0], "there are no more than all");
        let even = chosen(5, 0, &[0, 6, 0, 0, 0]);
        assert!(even[1] == 0 && [0, 2, 3, 4].iter().all(|&port: &usize| even[port].abs_diff(2000) < 200), "{even:?}");
    }

    /// Port number n has the (n+1)-th shortest of 4 queues. Of two different ports at random, it is the shorter one with
    /// probability (3-n)/6.
    #[test]
    fn two_different_ports_are_drawn_with_equal_probability() {
        let counts = chosen(2, 0, &[1, 2, 3, 4]);
        for (port, expected) in [4000u32, 2667, 1333, 0].into_iter().enumerate() {
            assert!(counts[port].abs_diff(expected) < 150, "{counts:?}");
        }
        assert!(chosen(1, 0, &[1, 2, 3, 4]).iter().all(|&count| count.abs_diff(2000) < 150), "the queue has no effect");
    }

    #[test]
    fn the_shortest_queues_are_remembered() {
        assert!(chosen(1, 1, &[4, 3, 2, 1])[3] > 7900, "once found, it is chosen until another one is shorter");
        let mut policy = ShortestQueue::new(4, 1, 2);
        // A draw of 0 takes the port at the front; u32::MAX the last one.
        let mut choose = |queues: &[u64], draw| policy.choose(&Queues(queues), || draw);
        assert_eq!(choose(&[5, 6, 7, 8], 0), 0);
        assert_eq!(choose(&[5, 6, 7, 4], u32::MAX), 3, "now it remembers 3 and 0");
        assert_eq!(choose(&[2, 1, 1, 3], 0), 0, "3 is drawn again, and 0 is remembered");
        assert_eq!(choose(&[5, 9, 1, 5], 0), 3, "a drawn port comes before an equal one that is remembered");
    }

    #[test]
    fn ports_take_turns() {
        let mut policy = RoundRobin::from(1);
        assert_eq!([3, 3, 3, 3, 1, 2].map(|ports| policy.choose(ports)), [1, 2, 0, 1, 0, 1]);
    }
}
