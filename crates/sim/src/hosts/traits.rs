//! What the senders of packets know of their network at the start.

use pathloom_fabrics::round_trip_of;
use pathloom_model::{Fabric, Nanos};
use pathloom_transport::ends::PacketSettings;
use pathloom_transport::uec::NetworkTraits;

/// Time in picoseconds that a rate needs for these bytes.
pub(super) fn send_ps(bytes: u64, rate_bps: u64) -> u128 {
    u128::from(bytes) * 8_000_000_000_000 / u128::from(rate_bps.max(1))
}

/// What senders know of a fabric.
pub(super) fn traits_of(settings: &PacketSettings, fabric: &Fabric) -> NetworkTraits {
    let (frame, header) = (settings.frame_bytes(), u64::from(settings.header_bytes()));
    let ports = fabric.ports();
    let fastest_bps = fabric.fastest_port_bps();
    let drain_ps = |link: &pathloom_model::Link| {
        let buffer = u64::from(link.settings.buffer_packets).saturating_mul(frame);
        let rate_bps = link.settings.rate_bps;
        send_ps(ports.at_rate(rate_bps, fastest_bps).queue_bytes.unwrap_or(buffer), rate_bps)
    };
    let of_switches = fabric.links().iter().filter(|link| !fabric.is_host(link.from));
    let drain_ps = of_switches.map(drain_ps).max().unwrap_or(0);
    // With a single switch, there are two links each way.
    let around_switch = || {
        let (link, bytes) = (fabric.links().first()?.settings, frame + header);
        Some(2 * send_ps(bytes, link.rate_bps) + 4 * u128::from(link.delay_ps))
    };
    let round_trip = round_trip_of(fabric, [frame, header]).map(u128::from).or_else(around_switch);
    let hop_ps = |link: &pathloom_model::Link| {
        send_ps(frame + header, link.settings.rate_bps) + 2 * u128::from(link.settings.delay_ps)
    };
    let hop_ps = fabric.links().iter().map(hop_ps).max().unwrap_or(0);
    let nanos = |ps: u128| Nanos(u64::try_from(ps / 1000).unwrap_or(u64::MAX));
    NetworkTraits {
        rate_bps: 0,
        round_trip: nanos(round_trip.unwrap_or(0)),
        hop: nanos(hop_ps),
        trims: ports.trim_bytes.is_some(),
        lossless: ports.pfc.is_some(),
        timeout: Nanos::from_micros(15).saturating_add(nanos(6 * drain_ps)),
    }
}
