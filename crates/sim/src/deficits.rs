//! Deficit round robin: queues that are not empty send in turn, each as many bytes in a round as its weight allows
//! (Shreedhar and Varghese, Efficient Fair Queuing using Deficit Round-Robin, SIGCOMM 1995).

/// The turns of the queues of a port.
pub(crate) struct Deficits {
    /// By queue: bytes that it may send more in each round.
    quanta: Vec<u64>,
    /// By queue: bytes that it may still send.
    deficits: Vec<u64>,
    /// The queue whose turn it is, and whether it has got its quantum.
    turn: usize,
    has_quantum: bool,
}

impl Deficits {
    /// Queues with these weights. A quantum is as many full frames, so each turn sends a packet at least.
    pub(crate) fn new(weights: &[u8], frame_bytes: u64) -> Deficits {
        let quanta: Vec<u64> = weights.iter().map(|&weight| u64::from(weight.max(1)) * frame_bytes.max(1)).collect();
        Deficits { deficits: vec![0; quanta.len()], quanta, turn: 0, has_quantum: false }
    }

    /// The queue that sends next, from the bytes of the first packet of each; `None` for those that have nothing to send.
    pub(crate) fn next(&mut self, first: impl Fn(usize) -> Option<u64>) -> Option<usize> {
        let queues = self.quanta.len();
        (0..queues).find(|&queue| first(queue).is_some())?;
        loop {
            let turn = self.turn;
            let Some(bytes) = first(turn) else {
                self.deficits[turn] = 0;
                self.pass();
                continue;
            };
            if !self.has_quantum {
                self.deficits[turn] += self.quanta[turn];
                self.has_quantum = true;
            }
            if let Some(left) = self.deficits[turn].checked_sub(bytes) {
                self.deficits[turn] = left;
                return Some(turn);
            }
            self.pass();
        }
    }

    fn pass(&mut self) {
        self.turn = (self.turn + 1) % self.quanta.len();
        self.has_quantum = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that full queues send in turns, each with packets of one size.
    fn sent(weights: &[u8], bytes: &[u64], packets: usize) -> Vec<u64> {
        let mut deficits = Deficits::new(weights, 1500);
        let mut sent = vec![0; weights.len()];
        for _ in 0..packets {
            let queue = deficits.next(|queue| Some(bytes[queue])).unwrap();
            sent[queue] += bytes[queue];
        }
        sent
    }

    #[test]
    fn queues_of_equal_packets_send_in_turn() {
        let mut deficits = Deficits::new(&[2, 1], 1000);
        let turns: Vec<usize> = (0..6).map(|_| deficits.next(|_| Some(1000)).unwrap()).collect();
        assert_eq!(turns, [0, 0, 1, 0, 0, 1]);
        assert_eq!(deficits.next(|queue| (queue == 1).then_some(500)), Some(1), "nobody else has a packet");
        assert_eq!(deficits.next(|_| None), None);
    }

    #[test]
    fn a_queue_that_was_empty_has_no_credit() {
        let mut deficits = Deficits::new(&[1, 1], 1000);
        for _ in 0..100 {
            assert_eq!(deficits.next(|queue| (queue == 0).then_some(100)), Some(0));
        }
        let turns: Vec<usize> = (0..40).map(|_| deficits.next(|_| Some(100)).unwrap()).collect();
        assert!(turns.iter().filter(|&&queue| queue == 1).count() <= 20, "{turns:?}");
    }

    proptest! {
        #[test]
        fn full_queues_share_by_weight_within_a_quantum_and_a_frame(
            queues in prop::collection::vec((1u8..10, 64u64..=1500), 2..=8), packets in 1usize..3000,
        ) {
            let (weights, bytes): (Vec<u8>, Vec<u64>) = queues.into_iter().unzip();
            let sent = sent(&weights, &bytes, packets);
            for (one, other) in (0..weights.len()).zip(1..weights.len()) {
                // Shreedhar and Varghese 1995, lemma 2: rounds differ by one, and deficits by a frame.
                let rounds = |queue: usize| sent[queue] as f64 / f64::from(weights[queue]) / 1500.0;
                prop_assert!((rounds(one) - rounds(other)).abs() <= 3.0, "{:?} {:?}", sent, weights);
            }
        }
    }
}
