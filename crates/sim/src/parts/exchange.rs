//! Messages between the parts of a divided network, between two windows.
//!
//! A window is half as long as the shortest time that a packet takes from part to part. So the others need what a
//! part sends in a window only in the window after the next one. Nobody waits at the end of a window, except for
//! parts that are a whole window behind. There are several sets of parcels, used in turn: a part that is ahead writes
//! where no part reads any more.

use crate::network::{Network, Parcel};
use crate::tap::Tap;
use crate::time::{Ps, NEVER};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// A part that waits for more than this many checks sleeps until it is woken. On a machine with more work than cores,
/// a part that only yielded would wait for a time slice of another program in each window.
const LOOKS: u32 = 2000;
/// Number of sets. A part reads the messages of the previous turn, while another one may already write those of the
/// next turn.
const SETS: usize = 4;
/// Number of announced start times: two with which earlier windows may begin, and one that may end the next window.
pub(super) const STARTS: usize = 3;

/// What a part announces about its next events.
#[derive(Clone, Copy)]
pub(super) struct NextEvents {
    /// Time before which nothing happens in this part or because of packets that it has sent.
    pub(super) event: Ps,
    /// The next times at which transfers start; [`NEVER`] from all parts except that of the hosts.
    pub(super) starts: [Ps; STARTS],
}

/// What one part announces to all others, in separate cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Notice {
    /// Number of turns for which the part has written all its messages.
    turns: AtomicUsize,
    /// By set: the values of [`NextEvents`].
    next_events: [[AtomicU64; 1 + STARTS]; SETS],
    /// Number of parts that sleep until `turns` grows.
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    grown: Condvar,
}

impl Notice {
    /// Makes `turns` known and wakes all that sleep. The order of all threads (`SeqCst`) is needed: either this part
    /// sees the sleeper, or the sleeper sees `turns`.
    fn set_turns(&self, turns: usize) {
        self.turns.store(turns, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        // A sleeper holds the lock from its last check until it sleeps, so it does not miss this.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.grown.notify_all();
    }

    /// Sleeps until `is_over`.
    fn sleep_until(&self, is_over: impl Fn() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_over() {
            lock = self.grown.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        drop(lock);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// State that all parts share.
pub(super) struct Exchange {
    look_ahead: Ps,
    /// The end of the last window.
    limit: Ps,
    /// By set, sender and receiver: the messages.
    parcels: Vec<Mutex<Parcel>>,
    /// By part.
    notices: Vec<Notice>,
    /// Whether a part has panicked.
    broken: AtomicBool,
}

/// A part at the end of a window.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    pub(super) part: usize,
    /// Number of windows of this part so far.
    pub(super) turn: usize,
    /// Time when its last window ended.
    pub(super) ended: Ps,
}

impl Exchange {
    /// `look_ahead` must be 2 ps at least.
    pub(super) fn new(parts: usize, look_ahead: Ps, limit: Ps) -> Exchange {
        Exchange {
            look_ahead,
            limit,
            parcels: (0..SETS * parts * parts).map(|_| Mutex::default()).collect(),
            notices: (0..parts).map(|_| Notice::default()).collect(),
            broken: AtomicBool::new(false),
        }
    }

    /// Writes the messages of a part for the others, and handles their messages for it from the previous turn. Adds
    /// packets of lanes that they have lost to `lost`. Returns when the first of the packets that it sent arrives.
    pub(super) fn swap<T: Tap>(&self, progress: Progress, network: &mut Network<T>, lost: &mut Vec<(u32, i32)>) -> Ps {
        let earliest = network.earliest_sent();
        for other in self.others(progress.part) {
            network.send_messages(other, &mut self.parcel(progress.turn, progress.part, other));
        }
        if let Some(before) = progress.turn.checked_sub(1) {
            self.receive_messages(before, progress.part, network, lost);
        }
        earliest
    }

    /// Handles the messages that the others write in a turn, once all have written them.
    pub(super) fn receive_messages<T: Tap>(
        &self,
        turn: usize,
        part: usize,
        network: &mut Network<T>,
        lost: &mut Vec<(u32, i32)>,
    ) {
        self.wait(turn, part);
        for other in self.others(part) {
            network.receive_messages(&mut self.parcel(turn, other, part), lost);
        }
    }

    /// Informs the others that all messages are written. Returns the end of the next window (exclusive), which is the
    /// same for all parts; `None` if nothing is left to do. Within a window no part affects another.
    pub(super) fn next_end(&self, progress: Progress, next_events: NextEvents) -> Option<Ps> {
        let own = &self.notices[progress.part];
        let [first, second, third] = next_events.starts;
        for (to, at) in own.next_events[progress.turn % SETS].iter().zip([next_events.event, first, second, third]) {
            to.store(at, Ordering::Relaxed);
        }
        own.set_turns(progress.turn + 1);
        if progress.turn == 0 {
            self.wait(0, progress.part);
        }
        self.end_after(progress.turn.saturating_sub(1), progress.ended)
    }

    /// The end of the window that begins at `ended`, from the announcements of the parts in a turn.
    fn end_after(&self, turn: usize, ended: Ps) -> Option<Ps> {
        let said = || self.notices.iter().map(|notice| &notice.next_events[turn % SETS]);
        let least = |which: usize| said().map(|of| of[which].load(Ordering::Relaxed)).min().unwrap_or(NEVER);
        let event = least(0);
        if event >= self.limit {
            return None;
        }
        let start = event.max(ended);
        // Transfers start at the beginning of a window.
        let next_start = (1..=STARTS).map(least).find(|&at| at > start).unwrap_or(NEVER);
        let end = start.saturating_add(self.look_ahead / 2).min(event.saturating_add(self.look_ahead));
        Some(end.min(self.limit).min(next_start))
    }

    fn others(&self, part: usize) -> impl Iterator<Item = usize> {
        (0..self.notices.len()).filter(move |&other| other != part)
    }

    fn parcel(&self, turn: usize, from: usize, to: usize) -> std::sync::MutexGuard<'_, Parcel> {
        let parts = self.notices.len();
        let slot = (turn % SETS * parts + from) * parts + to;
        self.parcels[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the others have written all their messages of a turn.
    fn wait(&self, turn: usize, part: usize) {
        for other in self.others(part) {
            let notice = &self.notices[other];
            let is_written = || notice.turns.load(Ordering::SeqCst) > turn;
            let is_broken = || self.broken.load(Ordering::SeqCst);
            let checks_are_enough = (0..LOOKS).any(|_| {
                is_written() || is_broken() || {
                    std::hint::spin_loop();
                    false
                }
            });
            if !checks_are_enough {
                notice.sleep_until(|| is_written() || is_broken());
            }
            assert!(is_written() || !is_broken(), "another part of the run has failed");
        }
    }

    /// Lets all parts that wait, now or later, fail.
    fn break_off(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.notices.iter().for_each(Notice::wake);
    }
}

/// Informs the other parts if the thread that owns this value panics. Otherwise they would wait forever.
pub(super) struct PanicGuard<'a>(pub(super) &'a Exchange);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    /// Whether a part that waits for turn 0 of another part fails, if it sleeps when that part does `act`.
    fn sleeper_fails(act: impl FnOnce(&Exchange)) -> bool {
        let exchange = Exchange::new(2, 10, 1000);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| catch_unwind(AssertUnwindSafe(|| exchange.wait(0, 1))).is_err());
            while exchange.notices[0].sleepers.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            act(&exchange);
            sleeper.join().expect("the panic is caught")
        })
    }

    #[test]
    fn a_part_that_sleeps_is_woken_by_messages_and_by_a_failure() {
        assert!(!sleeper_fails(|exchange| exchange.notices[0].set_turns(1)));
        assert!(sleeper_fails(|exchange| {
            let failed = catch_unwind(AssertUnwindSafe(|| {
                let _guard = PanicGuard(exchange);
                panic!("a part fails");
            }));
            assert!(failed.is_err());
        }));
    }
}
