//! What the parts of a divided network tell each other between two windows.
//!
//! A window is half as long as a packet takes from part to part at least. So what a part sends in a window is needed by the
//! others only for the window after the next one: nobody waits at the end of a window, but for parts that are a whole window
//! behind. There are several sets of places, used by turns: a part that is ahead writes where nobody reads any more.

use crate::network::{Network, Parcel};
use crate::tap::Tap;
use crate::time::{Ps, NEVER};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A part that waits for longer than so many looks lets others have its core in between.
const LOOKS: u32 = 2000;
/// A part reads what was laid down one turn ago, while another one may lay down for the next turn.
const SETS: usize = 4;
/// Two starts that earlier windows begin with, and the one that may end the window to come.
pub(super) const STARTS: usize = 3;

/// What a part says of the time to come.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    /// Nothing happens in this part before, nor by what it has sent.
    pub(super) event: Ps,
    /// The next instants at which transfers start; [`NEVER`] from all parts but that of the hosts.
    pub(super) starts: [Ps; STARTS],
}

/// What one part tells all others, in cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Notice {
    /// Turns for which the part has laid down everything.
    turns: AtomicUsize,
    /// By set: [`Coming`].
    coming: [[AtomicU64; 1 + STARTS]; SETS],
}

/// Where the parts meet.
pub(super) struct Exchange {
    look_ahead: Ps,
    /// The end of the last window.
    limit: Ps,
    /// By set, sender and receiver.
    parcels: Vec<Mutex<Parcel>>,
    /// By part.
    notices: Vec<Notice>,
    /// A part has panicked.
    broken: AtomicBool,
}

/// A part at the end of a window.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) part: usize,
    /// Windows of this part so far.
    pub(super) turn: usize,
    /// When the last one ended.
    pub(super) ended: Ps,
}

impl Exchange {
    /// The look-ahead is 2 ps at least.
    pub(super) fn new(parts: usize, look_ahead: Ps, limit: Ps) -> Exchange {
        Exchange {
            look_ahead,
            limit,
            parcels: (0..SETS * parts * parts).map(|_| Mutex::default()).collect(),
            notices: (0..parts).map(|_| Notice::default()).collect(),
            broken: AtomicBool::new(false),
        }
    }

    /// Lays down what a part has for others, and takes up what they had for it one turn ago. Packets of lanes that they have
    /// lost are added to `lost`. Returns when the first of the packets arrives that were laid down.
    pub(super) fn swap<T: Tap>(&self, place: Place, network: &mut Network<T>, lost: &mut Vec<(u32, i32)>) -> Ps {
        let earliest = network.earliest_sent();
        for other in self.others(place.part) {
            network.hand_over(other, &mut self.parcel(place.turn, place.part, other));
        }
        if let Some(before) = place.turn.checked_sub(1) {
            self.take_up(before, place.part, network, lost);
        }
        earliest
    }

    /// Takes up what the others lay down in a turn, once all have.
    pub(super) fn take_up<T: Tap>(
        &self,
        turn: usize,
        part: usize,
        network: &mut Network<T>,
        lost: &mut Vec<(u32, i32)>,
    ) {
        self.wait(turn, part);
        for other in self.others(part) {
            network.take_up(&mut self.parcel(turn, other, part), lost);
        }
    }

    /// Tells the others that everything is laid down. Returns the first instant after the next window, the same for all
    /// parts; `None` if nothing is left to do. Within a window no part affects another.
    pub(super) fn next_end(&self, place: Place, coming: Coming) -> Option<Ps> {
        let own = &self.notices[place.part];
        let [first, second, third] = coming.starts;
        for (to, at) in own.coming[place.turn % SETS].iter().zip([coming.event, first, second, third]) {
            to.store(at, Ordering::Relaxed);
        }
        own.turns.store(place.turn + 1, Ordering::Release);
        if place.turn == 0 {
            self.wait(0, place.part);
        }
        self.end_after(place.turn.saturating_sub(1), place.ended)
    }

    /// The end of the window that begins at `ended`, by what the parts said in a turn.
    fn end_after(&self, turn: usize, ended: Ps) -> Option<Ps> {
        let said = || self.notices.iter().map(|notice| &notice.coming[turn % SETS]);
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
        let place = (turn % SETS * parts + from) * parts + to;
        self.parcels[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the others have laid down everything for a turn.
    fn wait(&self, turn: usize, part: usize) {
        for other in self.others(part) {
            let mut looks = 0;
            while self.notices[other].turns.load(Ordering::Acquire) <= turn {
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
