//! What the parts of a divided network tell each other between two windows.
//!
//! All parts end a window at one barrier. What they have to say is laid down before it and taken up after it. There are two
//! sets of places, used by turns: a part that is ahead by a window writes where nobody reads any more.

use crate::network::{Network, Parcel};
use crate::tap::Tap;
use crate::time::{Ps, NEVER};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A part that waits for longer than so many looks lets others have its core in between.
const LOOKS: u32 = 2000;

/// What a part says of the time to come.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    /// Nothing happens in this part before, nor by what it has sent.
    pub(super) event: Ps,
    /// The next two instants at which transfers start; [`NEVER`] from all parts but that of the hosts.
    pub(super) starts: [Ps; 2],
}

/// Where the parts meet.
pub(super) struct Exchange {
    parts: usize,
    look_ahead: Ps,
    /// The end of the last window.
    limit: Ps,
    /// By turn, sender and receiver.
    parcels: Vec<Mutex<Parcel>>,
    /// By turn and part: [`Coming`].
    coming: Vec<[AtomicU64; 3]>,
    arrived: AtomicUsize,
    /// Barriers passed.
    passed: AtomicUsize,
    /// A part has panicked.
    broken: AtomicBool,
}

impl Exchange {
    pub(super) fn new(parts: usize, look_ahead: Ps, limit: Ps) -> Exchange {
        let never = || [const { AtomicU64::new(NEVER) }; 3];
        Exchange {
            parts,
            look_ahead,
            limit,
            parcels: (0..2 * parts * parts).map(|_| Mutex::default()).collect(),
            coming: (0..2 * parts).map(|_| never()).collect(),
            arrived: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Lays down what a part has for others, waits for them, takes up what they have for it, and returns the first instant after
    /// the window that follows one that ended at `ended`; `None` after the last one. Within a window no part affects
    /// another. `turn` counts the calls of a part from 0 on.
    /// Packets of lanes that other parts have lost are added to `lost`.
    pub(super) fn meet<T: Tap>(
        &self,
        (part, turn, ended): (usize, usize, Ps),
        coming: Coming,
        network: &mut Network<T>,
        lost: &mut Vec<(u32, i32)>,
    ) -> Option<Ps> {
        let set = turn % 2;
        let event = coming.event.min(network.earliest_sent());
        for (place, at) in self.coming[set * self.parts + part].iter().zip([event, coming.starts[0], coming.starts[1]])
        {
            place.store(at, Ordering::Relaxed);
        }
        for other in (0..self.parts).filter(|&other| other != part) {
            network.hand_over(other, &mut self.parcel(set, part, other));
        }
        self.wait(turn);
        for other in (0..self.parts).filter(|&other| other != part) {
            network.take_up(&mut self.parcel(set, other, part), lost);
        }
        self.window_end(set, ended)
    }

    fn parcel(&self, set: usize, from: usize, to: usize) -> std::sync::MutexGuard<'_, Parcel> {
        let place = (set * self.parts + from) * self.parts + to;
        self.parcels[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the window after one that ended at `ended`: the same for all parts.
    fn window_end(&self, set: usize, ended: Ps) -> Option<Ps> {
        let coming = &self.coming[set * self.parts..(set + 1) * self.parts];
        let least = |which: usize| coming.iter().map(|of| of[which].load(Ordering::Relaxed)).min().unwrap_or(NEVER);
        let start = least(0).max(ended);
        if start >= self.limit {
            return None;
        }
        // Transfers start at the beginning of a window.
        let next_start = if least(1) > start { least(1) } else { least(2) };
        Some(start.saturating_add(self.look_ahead).min(self.limit).min(next_start))
    }

    /// Waits until all parts have come here for the `turn`-th time.
    fn wait(&self, turn: usize) {
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.parts {
            self.arrived.store(0, Ordering::Relaxed);
            self.passed.store(turn + 1, Ordering::Release);
            return;
        }
        let mut looks = 0;
        while self.passed.load(Ordering::Acquire) == turn {
            assert!(!self.broken.load(Ordering::Relaxed), "another part of the run has failed");
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Tells the other parts if the thread that holds it panics: they would wait for ever.
pub(super) struct Attendance<'a>(pub(super) &'a Exchange);

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::Relaxed);
        }
    }
}
