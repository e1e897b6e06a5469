//! What a transfer takes beside the time at its fair rate: the SYN exchange, the rounds of slow start in which its window
//! does not fill the path, and the time from the host that sends to the one that receives.
//!
//! Slow start follows RFC 5681 §3.1: the window begins with the initial window and grows by a segment for each
//! acknowledgement. The number of rounds until the window fills the path, and the time that the sender is idle in them,
//! are those of Cardwell, Savage and Anderson, Modeling TCP Latency (INFOCOM 2000), §II.C, without losses.

use pathloom_transport::Settings;

/// Most rounds of slow start. The window then exceeds every path.
const MOST_ROUNDS: u32 = 64;

/// A link of a path: its rate and its delay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stretch {
    pub(super) rate_bps: f64,
    pub(super) delay_ps: f64,
}

/// Time in ps that a frame takes over links that store it and forward it. Infinite over a link without a rate.
pub(super) fn frame_ps(links: &[Stretch], bytes: f64) -> f64 {
    links.iter().map(|link| link.delay_ps + bytes * 8e12 / link.rate_bps).sum()
}

/// Time in ps from the moment when the last byte has left at the rate of the slowest link until it arrives: the delays,
/// and the time to send the last frame on all other links.
pub(super) fn arrival_ps(links: &[Stretch], bytes: f64) -> f64 {
    let slowest_bps = links.iter().map(|link| link.rate_bps).fold(f64::INFINITY, f64::min);
    (frame_ps(links, bytes) - bytes * 8e12 / slowest_bps).max(0.0)
}

/// Bytes of a transfer on the wire, with headers.
pub(super) fn wire_bytes(settings: &Settings, size_bytes: u64) -> f64 {
    let segments = size_bytes.div_ceil(u64::from(settings.mss_bytes));
    size_bytes as f64 + segments as f64 * f64::from(settings.header_bytes)
}

/// Ratio of the bytes of acknowledgements to those of data.
pub(super) fn ack_ratio(settings: &Settings) -> f64 {
    f64::from(settings.header_bytes) / (f64::from(settings.ack_every.max(1)) * settings.frame_bytes() as f64)
}

/// Time in ps that a sender is idle in slow start: in each round in which it sends a window and more is left, it waits
/// for the rest of the round trip. `wire_bytes` are what it sends at `rate_bps`, and `round_trip_ps` passes between a
/// segment and its acknowledgement. `window_bytes` is the initial window of all subflows, in payload.
pub(super) fn idle_ps(
    settings: &Settings,
    window_bytes: f64,
    wire_bytes: f64,
    rate_bps: f64,
    round_trip_ps: f64,
) -> f64 {
    let mss = f64::from(settings.mss_bytes);
    let growth = if settings.byte_counting { 2.0 } else { 1.0 + 1.0 / f64::from(settings.ack_every.max(1)) };
    let most = settings.initial_ssthresh_bytes.min(settings.receive_window_bytes) as f64;
    let (mut window, mut left, mut idle) = (window_bytes, wire_bytes, 0.0);
    for _ in 0..MOST_ROUNDS {
        let segments = (window / mss).floor().max(1.0);
        let sent = segments * settings.frame_bytes() as f64;
        let waits = round_trip_ps - sent * 8e12 / rate_bps;
        left -= sent;
        if left <= 0.0 || waits <= 0.0 || window >= most {
            break;
        }
        idle += waits;
        window = (window * growth).min(most);
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: f64 = 1e6;

    #[test]
    fn a_frame_is_stored_at_each_switch() {
        let link = Stretch { rate_bps: 1e9, delay_ps: 2.0 * US };
        let slow = Stretch { rate_bps: 1e8, ..link };
        assert_eq!(frame_ps(&[link, link], 125.0), 6.0 * US);
        assert_eq!(arrival_ps(&[link, slow, link], 125.0), 8.0 * US);
    }

    #[test]
    fn slow_start_waits_in_each_round_until_the_window_fills_the_path() {
        let settings = Settings { mss_bytes: 934, ack_every: 1, ..Settings::default() };
        // Segments of 1000 bytes take 1 us at 8 Gbps. Windows of 2, 4 and 8 segments leave 8, 6 and 2 us of 10 idle.
        let idle = |segments: f64| idle_ps(&settings, 1868.0, segments * 1000.0, 8e9, 10.0 * US) / US;
        assert_eq!([2.0, 3.0, 6.0, 7.0, 14.0, 1000.0].map(idle), [0.0, 8.0, 8.0, 14.0, 14.0, 16.0]);
        let delayed = Settings { ack_every: 2, ..settings.clone() };
        // Half as many acknowledgements: windows of 2, 3 and 4.5 segments.
        assert_eq!(idle_ps(&delayed, 1868.0, 9000.0, 8e9, 10.0 * US) / US, 8.0 + 7.0);
        let bounded = Settings { receive_window_bytes: 1868, ..settings };
        assert_eq!(idle_ps(&bounded, 1868.0, 9000.0, 8e9, 10.0 * US), 0.0);
    }

    #[test]
    fn headers_and_acknowledgements_count() {
        let settings = Settings { mss_bytes: 1000, ack_every: 2, ..Settings::default() };
        assert_eq!([0, 1, 1000, 1001].map(|size| wire_bytes(&settings, size)), [0.0, 67.0, 1066.0, 1133.0]);
        assert_eq!(ack_ratio(&settings), 66.0 / 2132.0);
    }
}
