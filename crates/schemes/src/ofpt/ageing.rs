//! What the bytes that a flow has sent say about those that it will still send, if nobody announces its size.
//!
//! Sizes in a datacenter are heavy-tailed: the more a flow has sent, the more it will probably still send. So the flow
//! that has sent least is the best guess for the one that ends first (MRTF by least attained service). A flow is in one of
//! several classes by the bytes sent, and its weight on full links halves from class to class. Every flow always gets some
//! of each link, so a wrong guess starves none. The bytes are those that the dispatcher estimates between two readings of
//! the counters.

/// Payload bytes at which the first class ends. Shorter flows are not long. Each further class ends at twice as many.
const FIRST_END: u64 = 100_000;
/// Number of classes. The last one begins at 6.5 GB.
const CLASSES: u32 = 18;
/// The weight of a class, as a share of that of the class before. With 0.25 and 0.1, the mean FCT of web search at 0.8 on
/// k=4 is 1 and 3 % longer; with 0.7, on another seed, 3 % shorter.
const STEP: f64 = 0.5;

/// The class of a flow that has sent this many payload bytes: 0 at first.
pub(super) fn class(sent_bytes: u64) -> u32 {
    (sent_bytes / FIRST_END).checked_ilog2().map_or(0, |log| (log + 1).min(CLASSES - 1))
}

/// The payload bytes at which a class ends; `None` for the last one.
pub(super) fn end_bytes(class: u32) -> Option<u64> {
    (class + 1 < CLASSES).then(|| FIRST_END << class)
}

/// The weight of a class: 1 for the first one.
pub(super) fn weight(class: u32) -> f64 {
    STEP.powi(class as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_double_and_join_and_their_weights_halve() {
        assert_eq!([0, 99_999, 100_000, 199_999, 200_000, u64::MAX].map(class), [0, 0, 1, 1, 2, CLASSES - 1]);
        for one in 0..CLASSES - 1 {
            let end = end_bytes(one).unwrap();
            assert_eq!((class(end - 1), class(end)), (one, one + 1));
        }
        assert_eq!(end_bytes(CLASSES - 1), None);
        assert_eq!([0, 1, 2, 10].map(weight), [1.0, 0.5, 0.25, 1.0 / 1024.0]);
    }
}
