//! Addresses of other hosts that each interface has resolved (RFC 826), and subflows that wait for an answer.

use crate::interface::Interface;
use crate::time::{to_ps, Ps};
use pathloom_model::{Address, Nanos};
use rustc_hash::FxHashMap;

/// A subflow that waits for an address: its slot, and the use count of the slot.
pub(super) type Waiter = (u32, u32);

/// State of an address at an interface.
enum Entry {
    /// The address is resolved until this time.
    Resolved(Ps),
    /// A request is on its way; these subflows wait for the answer.
    Requested(Vec<Waiter>),
}

/// Result of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LookUp {
    /// The address is resolved.
    Resolved,
    /// The subflow waits, and the caller must send a request.
    Request,
    /// The subflow waits for the answer to an earlier request.
    Wait,
}

/// The ARP caches of all interfaces.
pub(super) struct Resolver {
    /// Read by key only, so no order depends on the hash.
    entries: FxHashMap<(Interface, Address), Entry>,
    /// How long an entry is valid after it was learned.
    age: Ps,
    /// An unanswered request is repeated after this time. RFC 1122 §2.3.2.1 asks for at least a second.
    pub(super) retry: Ps,
}

impl Resolver {
    /// Creates caches whose entries are valid for `age`. If it is zero, each connection sends its own request.
    pub(super) fn new(age: Nanos, retry: Nanos) -> Resolver {
        Resolver { entries: FxHashMap::default(), age: to_ps(age), retry: to_ps(retry) }
    }

    /// Looks up an address for a subflow.
    pub(super) fn look_up(&mut self, now: Ps, interface: Interface, address: Address, waiter: Waiter) -> LookUp {
        match self.entries.get_mut(&(interface, address)) {
            Some(Entry::Resolved(until)) if *until > now => LookUp::Resolved,
            Some(Entry::Requested(waiting)) => {
                waiting.push(waiter);
                LookUp::Wait
            }
            _ => {
                self.entries.insert((interface, address), Entry::Requested(vec![waiter]));
                LookUp::Request
            }
        }
    }

    /// A request or a reply from the host with this address has reached the interface to which it was addressed.
    /// Returns the subflows that need not wait any more.
    pub(super) fn learn(&mut self, now: Ps, interface: Interface, address: Address) -> Vec<Waiter> {
        match self.entries.insert((interface, address), Entry::Resolved(now.saturating_add(self.age))) {
            Some(Entry::Requested(waiting)) => waiting,
            _ => Vec::new(),
        }
    }

    /// A request may have gone unanswered. Returns whether to repeat it: at least one waiting subflow must be alive
    /// according to `is_alive`.
    pub(super) fn repeats(
        &mut self,
        interface: Interface,
        address: Address,
        mut is_alive: impl FnMut(Waiter) -> bool,
    ) -> bool {
        let Some(Entry::Requested(waiting)) = self.entries.get_mut(&(interface, address)) else { return false };
        waiting.retain(|&waiter| is_alive(waiter));
        if waiting.is_empty() {
            self.entries.remove(&(interface, address));
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::LinkId;

    const PEER: Address = Address::new(10, 0, 0, 2);

    #[test]
    fn one_request_serves_all_waiting_subflows_and_entries_expire() {
        let (interface, other) = (Interface::of(LinkId(0)), Interface::of(LinkId(2)));
        let mut resolver = Resolver::new(Nanos::from_secs(60), Nanos::from_secs(1));
        assert_eq!(resolver.look_up(0, interface, PEER, (1, 0)), LookUp::Request);
        assert_eq!(resolver.look_up(5, interface, PEER, (2, 0)), LookUp::Wait);
        assert_eq!(resolver.look_up(5, other, PEER, (3, 0)), LookUp::Request, "each interface has its own cache");
        assert_eq!(resolver.learn(10, interface, PEER), [(1, 0), (2, 0)]);
        assert_eq!(resolver.learn(11, interface, PEER), []);
        let until = 11 + to_ps(Nanos::from_secs(60));
        assert_eq!(resolver.look_up(until - 1, interface, PEER, (4, 0)), LookUp::Resolved);
        assert_eq!(resolver.look_up(until, interface, PEER, (4, 0)), LookUp::Request);
    }

    #[test]
    fn a_request_is_repeated_while_subflows_wait() {
        let interface = Interface::of(LinkId(0));
        let mut resolver = Resolver::new(Nanos::ZERO, Nanos::from_secs(1));
        resolver.look_up(0, interface, PEER, (1, 0));
        resolver.look_up(0, interface, PEER, (2, 0));
        assert!(resolver.repeats(interface, PEER, |waiter| waiter == (2, 0)));
        assert_eq!(resolver.learn(3, interface, PEER), [(2, 0)]);
        assert!(!resolver.repeats(interface, PEER, |_| true), "it was answered");
        assert_eq!(resolver.look_up(3, interface, PEER, (4, 0)), LookUp::Request, "entries expire at once");
        assert!(!resolver.repeats(interface, PEER, |_| false));
        assert_eq!(resolver.look_up(4, interface, PEER, (5, 0)), LookUp::Request, "nobody waited any more");
    }
}
