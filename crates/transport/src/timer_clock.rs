//! When timers of a host expire. Kernels keep them in a wheel whose ticks are coarser for longer timers.

use pathloom_model::Nanos;

/// Bits of the time between two ticks for the shortest timers that Linux distinguishes: 2^20 ns is about a millisecond, one
/// jiffy of a kernel with `HZ=1000`.
const JIFFY_BITS: u32 = 20;
/// A level of the wheel has 64 ticks, and the next level's are eight times as far apart.
const LEVEL_BITS: u32 = 6;
const STEP_BITS: u32 = 3;
/// Phases are below this, so that hosts have different ones at every level.
const MOST_PHASE: u64 = 1 << 44;

/// The clock of a host's timers. A timer expires at the first tick at or after its time, and never before it. As in
/// Linux (kernel/time/timer.c, "The timer wheel has LVL_DEPTH array levels"), ticks are a jiffy apart for timers of less
/// than 64 jiffies, eight jiffies for less than 512, and so on: a timer of 1 s expires up to 67 ms late, one of 200 ms up
/// to 8 ms. Ticks of shorter timers continue in the same way below a jiffy, for hosts whose time-outs are short enough to
/// need that.
///
/// The clocks of hosts have different phases. So senders that lost their packets together do not all repeat them
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerClock {
    /// `None` if timers expire exactly at their times.
    phase: Option<u64>,
}

impl TimerClock {
    /// Timers expire exactly at their times.
    pub const EXACT: TimerClock = TimerClock { phase: None };

    /// Creates a clock with a phase, which is a random number.
    pub fn new(random: u64) -> TimerClock {
        TimerClock { phase: Some(random % MOST_PHASE) }
    }

    /// Returns the ticks of timers that last for `time`.
    pub(crate) fn ticks(self, time: Nanos) -> Ticks {
        let Some(phase) = self.phase else { return Ticks { phase: 0, mask: 0 } };
        let bits = (time.0 | 1).ilog2();
        // The finest level that has 64 ticks or less for this time.
        let finest = (bits + 1).saturating_sub(LEVEL_BITS);
        let level = finest + (JIFFY_BITS + STEP_BITS * 16 - finest) % STEP_BITS;
        Ticks { phase, mask: (1 << level.min(40)) - 1 }
    }
}

/// The ticks of timers of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    phase: u64,
    /// One less than the time between two ticks, which is a power of two.
    mask: u64,
}

impl Ticks {
    /// Returns the time when a timer for `at` expires.
    #[inline(always)]
    pub(crate) fn expiry(self, at: Nanos) -> Nanos {
        Nanos((at.0.saturating_add(self.phase) | self.mask) - self.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_as_far_apart_as_in_the_kernel() {
        let apart = |time| TimerClock::new(0).ticks(time).mask + 1;
        let ms = Nanos::from_millis;
        assert_eq!([apart(ms(1)), apart(ms(60)), apart(ms(200)), apart(ms(500))], [1 << 14, 1 << 20, 1 << 23, 1 << 23]);
        assert_eq!([apart(ms(1000)), apart(ms(4000)), apart(ms(5000))], [1 << 26, 1 << 26, 1 << 29]);
    }

    proptest! {
        #[test]
        fn timers_expire_at_a_tick_and_at_most_an_eighth_late(phase: u64, now in 0u64..1 << 60, time in 64u64..1 << 37) {
            let ticks = TimerClock::new(phase).ticks(Nanos(time));
            let at = Nanos(now + time);
            let late = ticks.expiry(at) - at;
            prop_assert!(late.0 <= time / 8, "{late:?} after {time} ns");
            prop_assert!(ticks.mask >= time / 64 - 1);
            prop_assert_eq!(ticks.expiry(ticks.expiry(at)), ticks.expiry(at));
        }

        #[test]
        fn exact_timers_expire_at_their_times(at: u64, time: u64) {
            prop_assert_eq!(TimerClock::EXACT.ticks(Nanos(time)).expiry(Nanos(at)), Nanos(at));
        }
    }
}
