//! Sender and receiver together, over a small network in virtual time.

use super::*;
use crate::packets::{Arrived, PacketReceiver, PacketSender};
use pathloom_model::Nanos;

const NETWORK: NetworkTraits =
    NetworkTraits { rate_bps: 100_000_000_000, round_trip: Nanos(14_022), trims: true, timeout: Nanos(100_656) };

#[test]
fn delivers_a_transfer_without_losses() {
    let settings = UecSettings::default();
    let mut sender = UecSender::new(&settings, &NETWORK, 2_000_000, 1);
    let mut receiver = UecReceiver::new(&settings, 2_000_000);
    let mut now = Nanos::ZERO;
    while !sender.is_finished() {
        let mut reports = Vec::new();
        while let Some(packet) = sender.poll_transmit(now) {
            reports.extend(receiver.handle_data(&Arrived::from(packet)));
        }
        assert!(!reports.is_empty());
        now += NETWORK.round_trip;
        reports.iter().for_each(|report| sender.handle_report(now, report));
    }
    assert_eq!((receiver.received_bytes(), receiver.delivered_bytes()), (2_000_000, 2_000_000));
    assert_eq!((sender.counters(), sender.in_flight_bytes()), (UecCounters::default(), 0));
}
