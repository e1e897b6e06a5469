//! Rate and round-trip time of a path, by port counters and timed probes. Without these, the rates and delays of the
//! fabric count.

use crate::hub::{Hub, Responder};
use pathloom_model::{Address, LinkId, Nanos, Path};

/// A path, measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Measured {
    /// Rate of its slowest link, in b/s, the links of both hosts included.
    pub rate_bps: u64,
    /// The bandwidth that it has left, in b/s ([`pathloom_scheme::View::available_bps`]); `None` if it is unknown.
    pub available_bps: Option<u64>,
    /// Round trip between both hosts.
    pub round_trip: Nanos,
    /// Whether the delays of all its links between switches were measured.
    pub is_timed: bool,
}

/// Delay of a link: the time of a probe over it, less half a round trip of the control channel for each of its two
/// switches.
pub(crate) fn link_delay(probe: Nanos, (from, to): (Nanos, Nanos)) -> Nanos {
    probe.saturating_sub(Nanos((from.0 + to.0) / 2))
}

impl Measured {
    /// Measures a path between two addresses. `None` if no fabric is controlled, or an address is not on it.
    pub(crate) fn take(hub: &mut Hub, src: Address, dst: Address, path: &Path) -> Option<Measured> {
        let fabric = hub.fabric.clone()?;
        let Hub { responder, discovery, .. } = hub;
        let Responder::Fabric(controller) = responder else { return None };
        let (from, to) = (controller.attachment(src)?, controller.attachment(dst)?);
        let view = controller.view();
        let access = [from.uplink, to.uplink.reverse()];
        let all = || path.links().iter().copied().chain(access);
        let rate = |link: LinkId| fabric.link(link).settings.rate_bps;
        let configured = |link: LinkId| Nanos(fabric.link(link).settings.delay_ps / 1000);
        let timed = |link: LinkId| {
            let ends = (fabric.link(link).from, fabric.link(link).to);
            let rtts = (view.switch_rtt[ends.0.index()]?, view.switch_rtt[ends.1.index()]?);
            Some(link_delay(discovery.as_ref()?.probe_time(link)?, rtts))
        };
        let both_ways = |link: LinkId| [link, link.reverse()];
        let round_trip =
            path.links().iter().copied().flat_map(both_ways).map(|link| timed(link).unwrap_or(configured(link)));
        let outside = access.into_iter().flat_map(both_ways).map(configured);
        Some(Measured {
            rate_bps: all().map(rate).min().unwrap_or(0),
            available_bps: view.available_bps(all()),
            round_trip: Nanos(round_trip.chain(outside).map(|time| time.0).sum()),
            is_timed: path.links().iter().copied().flat_map(both_ways).all(|link| timed(link).is_some()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_a_link_excludes_the_control_channel() {
        let ms = Nanos::from_millis;
        assert_eq!(link_delay(ms(12), (ms(2), ms(4))), ms(9));
        assert_eq!(
            link_delay(ms(2), (ms(2), ms(4))),
            Nanos::ZERO,
            "the control channel was slower when it was measured"
        );
    }
}
