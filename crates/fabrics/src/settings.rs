//! The keys that every fabric accepts: rates, delays and buffers of links, degraded, lossy and failed cables, and
//! queues of ports.

use super::degrade::Degraded;
use super::failures::draw_failures;
use super::losses::Losses;
use super::port_keys;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::units::PS_PER_S;
use pathloom_model::{Fabric, FabricError, LinkSettings, PortSettings};

/// Settings of a link for which nothing is specified.
pub(super) const DEFAULT_LINK: LinkSettings =
    LinkSettings { rate_bps: 1_000_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

/// Longest delay of a link. It is far beyond any path on Earth, and sums of such delays do not overflow the clock.
const MOST_DELAY_PS: u64 = 1000 * PS_PER_S;
const MOST_BUFFER_PACKETS: u64 = 1_000_000_000;

/// Rate, delay and buffer, as far as a specification states them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PartialSettings {
    pub(super) rate_bps: Option<u64>,
    pub(super) delay_ps: Option<u64>,
    pub(super) buffer_packets: Option<u32>,
}

impl PartialSettings {
    /// Returns the values stated here, and for the others those of `other`.
    pub(super) fn or(self, other: PartialSettings) -> PartialSettings {
        PartialSettings {
            rate_bps: self.rate_bps.or(other.rate_bps),
            delay_ps: self.delay_ps.or(other.delay_ps),
            buffer_packets: self.buffer_packets.or(other.buffer_packets),
        }
    }

    /// Returns the values stated here, and for the others those of `base`.
    pub(super) fn with_defaults(self, base: LinkSettings) -> LinkSettings {
        LinkSettings {
            rate_bps: self.rate_bps.unwrap_or(base.rate_bps),
            delay_ps: self.delay_ps.unwrap_or(base.delay_ps),
            buffer_packets: self.buffer_packets.unwrap_or(base.buffer_packets),
        }
    }
}

/// The keys that every fabric accepts.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LinkKeys {
    /// Values stated for host links.
    pub(super) stated_host: PartialSettings,
    /// Values stated for links between switches.
    pub(super) stated_switch: PartialSettings,
    degraded: Degraded,
    losses: Losses,
    ports: PortSettings,
    fail: Option<f64>,
    fail_seed: u64,
}

impl LinkKeys {
    pub(super) fn read(spec: &Spec) -> Result<LinkKeys, SpecError> {
        let all = stated(spec, "rate", "delay", "buffer")?;
        Ok(LinkKeys {
            stated_host: stated(spec, "host_rate", "host_delay", "host_buffer")?.or(all),
            stated_switch: stated(spec, "switch_rate", "switch_delay", "switch_buffer")?.or(all),
            degraded: Degraded::read(spec)?,
            losses: Losses::read(spec)?,
            ports: port_keys::read(spec)?,
            fail: spec.number("fail", 0.0, 1.0)?,
            fail_seed: spec.count("fail_seed", 0, u64::MAX)?.unwrap_or(1),
        })
    }

    /// Returns the settings of a host link.
    pub(super) fn host(&self) -> LinkSettings {
        self.stated_host.with_defaults(DEFAULT_LINK)
    }

    /// Returns the settings of a link between switches.
    pub(super) fn switch(&self) -> LinkSettings {
        self.stated_switch.with_defaults(DEFAULT_LINK)
    }

    /// Makes the cables of `degrade=` slower and those of `loss=` lossy, sets the queues of switch ports, and takes
    /// down the share `fail=` of the cables between switches.
    pub(super) fn apply(&self, spec: &Spec, fabric: Fabric) -> Result<Fabric, FabricError> {
        let fabric = self.losses.apply(spec, self.degraded.apply(spec, fabric)?)?;
        let fabric = port_keys::apply(self.ports, spec, fabric)?;
        let Some(share) = self.fail else { return Ok(fabric) };
        match draw_failures(&fabric, share, self.fail_seed) {
            Ok(failed) => Ok(fabric.with_failed(failed)),
            Err(error) => Err(spec.error(format!("fail: {error}")).into()),
        }
    }
}

fn stated(
    spec: &Spec,
    rate: &'static str,
    delay: &'static str,
    buffer: &'static str,
) -> Result<PartialSettings, SpecError> {
    let delay_ps = spec.time_ps(delay)?;
    if delay_ps.is_some_and(|ps| ps > MOST_DELAY_PS) {
        return Err(spec.error(format!("{delay}: a link's delay is at most {}s", MOST_DELAY_PS / PS_PER_S)));
    }
    Ok(PartialSettings {
        rate_bps: spec.rate_bps(rate)?,
        delay_ps,
        buffer_packets: spec.count(buffer, 0, MOST_BUFFER_PACKETS)?.map(|packets| packets as u32),
    })
}

/// Parses the delay of a link outside a specification, such as `20ms`.
pub(super) fn parse_delay_ps(text: &str) -> Result<u64, String> {
    let delay_ps = pathloom_model::units::parse_time_ps(text).map_err(|error| error.to_string())?;
    if delay_ps > MOST_DELAY_PS {
        return Err(format!("`{text}` is too long: a link's delay is at most {}s", MOST_DELAY_PS / PS_PER_S));
    }
    Ok(delay_ps)
}
