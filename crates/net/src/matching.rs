//! Which receive gets which message: of the sends and receives with the same ranks, tag and size, the first send and the
//! first receive belong together, then the second ones, and so on. Messages may arrive in another order.

use std::collections::{BTreeMap, VecDeque};

/// What a send and its receive have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) tag: i64,
    pub(crate) bytes: u64,
}

/// A message or a receive that waits for the other one. `C` is what is called when a message has arrived.
enum Pair<C> {
    /// No message has arrived, and no receive waits.
    Neither,
    /// A message has arrived.
    Arrived,
    /// A receive waits.
    Expected(C),
    /// Both are done.
    Done,
}

/// The pairs of one key that are not done, after some number of pairs that are.
struct Queue<C> {
    done: u64,
    sends: u64,
    receives: u64,
    pairs: VecDeque<Pair<C>>,
}

impl<C> Default for Queue<C> {
    fn default() -> Queue<C> {
        Queue { done: 0, sends: 0, receives: 0, pairs: VecDeque::new() }
    }
}

impl<C> Queue<C> {
    /// The pair with this number. Pairs up to it are created.
    fn pair(&mut self, number: u64) -> &mut Pair<C> {
        let place = (number - self.done) as usize;
        while self.pairs.len() <= place {
            self.pairs.push_back(Pair::Neither);
        }
        &mut self.pairs[place]
    }
}

/// All messages and receives that wait for each other.
pub(crate) struct Matching<C> {
    queues: BTreeMap<Key, Queue<C>>,
}

impl<C> Default for Matching<C> {
    fn default() -> Matching<C> {
        Matching { queues: BTreeMap::new() }
    }
}

impl<C> Matching<C> {
    /// A message is sent. Returns its number, for [`Matching::arrive`].
    pub(crate) fn send(&mut self, key: Key) -> u64 {
        let queue = self.queues.entry(key).or_default();
        let number = queue.sends;
        queue.sends += 1;
        // The queue stays until the message has arrived, and with it the numbers.
        queue.pair(number);
        number
    }

    /// A message has arrived. Returns what its receive wants to be called, if there is one already.
    pub(crate) fn arrive(&mut self, key: Key, number: u64) -> Option<C> {
        let queue = self.queues.get_mut(&key)?;
        let pair = queue.pair(number);
        match std::mem::replace(pair, Pair::Done) {
            Pair::Expected(call) => {
                self.tidy(key);
                Some(call)
            }
            _ => {
                *pair = Pair::Arrived;
                None
            }
        }
    }

    /// A message is received. Returns `call` at once if it has arrived.
    pub(crate) fn receive(&mut self, key: Key, call: C) -> Option<C> {
        let queue = self.queues.entry(key).or_default();
        let number = queue.receives;
        queue.receives += 1;
        let pair = queue.pair(number);
        match std::mem::replace(pair, Pair::Done) {
            Pair::Arrived => {
                self.tidy(key);
                Some(call)
            }
            _ => {
                *pair = Pair::Expected(call);
                None
            }
        }
    }

    /// Number of receives whose messages nobody has sent, and the key of one of them.
    pub(crate) fn expected(&self) -> (usize, Option<Key>) {
        let ahead = self.queues.iter().filter(|(_, queue)| queue.receives > queue.sends);
        let count = ahead.clone().map(|(_, queue)| (queue.receives - queue.sends) as usize).sum();
        (count, ahead.map(|(key, _)| *key).next())
    }

    /// A message that was sent between the same ranks with another tag or size, and that nobody receives.
    pub(crate) fn similar(&self, key: &Key) -> Option<Key> {
        let left_over = |queue: &Queue<C>| queue.sends > queue.receives;
        let same = |other: &Key| (other.src, other.dst) == (key.src, key.dst);
        self.queues.iter().find(|(other, queue)| same(other) && left_over(queue)).map(|(other, _)| *other)
    }

    /// Forgets pairs that are done.
    fn tidy(&mut self, key: Key) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        while let Some(Pair::Done) = queue.pairs.front() {
            queue.pairs.pop_front();
            queue.done += 1;
        }
        if queue.pairs.is_empty() {
            self.queues.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { src: 0, dst: 1, tag: 7, bytes: 100 };

    #[test]
    fn receives_get_messages_in_the_order_of_sends_whatever_arrives_first() {
        let mut matching = Matching::default();
        let numbers = [(); 3].map(|()| matching.send(KEY));
        assert_eq!(matching.receive(KEY, 'a'), None);
        assert_eq!(matching.arrive(KEY, numbers[1]), None, "the second message has no receive");
        assert_eq!(matching.arrive(KEY, numbers[0]), Some('a'));
        assert_eq!(matching.receive(KEY, 'b'), Some('b'), "it has arrived");
        assert_eq!(matching.receive(KEY, 'c'), None);
        assert_eq!(matching.arrive(KEY, numbers[2]), Some('c'));
        assert!(matching.queues.is_empty());
    }

    #[test]
    fn receives_may_come_before_sends_and_keys_are_apart() {
        let mut matching = Matching::default();
        let other = Key { tag: 8, ..KEY };
        assert_eq!(matching.receive(KEY, 'a'), None);
        assert_eq!(matching.receive(KEY, 'b'), None);
        assert_eq!(matching.expected(), (2, Some(KEY)));
        let number = matching.send(other);
        assert_eq!(matching.similar(&KEY), Some(other));
        assert_eq!(matching.arrive(other, number), None);
        let number = matching.send(KEY);
        assert_eq!(matching.expected(), (1, Some(KEY)));
        assert_eq!(matching.arrive(KEY, number), Some('a'));
        assert_eq!(matching.expected(), (1, Some(KEY)));
    }
}
