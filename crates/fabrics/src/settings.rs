//! The keys that every fabric accepts: rates, delays and buffers of links, degraded, lossy and failed cables, queues of
//! ports, and the family of addresses.

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
    ipv6: bool,
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
            ipv6: addresses(spec)?,
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

    /// Makes the cables of `degrade=` slower and those of `loss=` lossy, sets the queues of switch ports and the family of
    /// addresses, and takes down the share `fail=` of the cables between switches.
    pub(super) fn apply(&self, spec: &Spec, fabric: Fabric) -> Result<Fabric, FabricError> {
        let fabric = self.losses.apply(spec, self.degraded.apply(spec, fabric)?)?;
        let fabric = port_keys::apply(self.ports, spec, fabric)?;
        let fabric = if self.ipv6 { fabric.with_ipv6() } else { fabric };
        let Some(share) = self.fail else { return Ok(fabric) };
        match draw_failures(&fabric, share, self.fail_seed) {
            Ok(failed) => Ok(fabric.with_failed(failed)),
            Err(error) => Err(spec.error(format!("fail: {error}")).into()),
        }
    }
}

/// Whether `addresses=` asks for IPv6.
fn addresses(spec: &Spec) -> Result<bool, SpecError> {
    match spec.text_of("addresses") {
        None | Some("ipv4") => Ok(false),
        Some("ipv6") => Ok(true),
        Some(other) => Err(spec.error(format!("addresses: `{other}` is neither ipv4 nor ipv6"))),
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

#[cfg(test)]
mod tests {
    use crate::fabric_from_spec;
    use pathloom_model::{Address, Prefix, IPV6_HOSTS};

    #[test]
    fn addresses_of_ipv6_end_with_those_of_ipv4() {
        for spec in ["fat-tree:k=4", "leaf-spine:spines=2,leaves=3,hosts=300", "jellyfish:homes=2,hosts=20"] {
            let [v4, other, v6] = ["", "addresses=ipv4", "addresses=ipv6"].map(|key| {
                let separator = if spec.contains(':') { "," } else { ":" };
                let text = if key.is_empty() { spec.to_owned() } else { format!("{spec}{separator}{key}") };
                fabric_from_spec(&text).unwrap()
            });
            assert_eq!((v4.attachments(), v4.is_ipv6()), (other.attachments(), false));
            assert!(v6.is_ipv6() && v6.simulated_keys() == ["addresses"] && v4.simulated_keys().is_empty());
            assert_eq!(v4.attachments().len(), v6.attachments().len());
            for (before, at) in v4.attachments().iter().zip(v6.attachments()) {
                assert_eq!((before.host, before.tor, before.uplink), (at.host, at.tor, at.uplink));
                assert_eq!((before.address.low(), at.address.v4()), (at.address.low(), None));
                assert_eq!(v6.attachment(at.address), Some(at));
                assert_eq!(v6.attachment(before.address), None);
                let [of_v4, of_v6] = [&v4, &v6].map(|fabric| fabric.tor_prefix(at.tor).unwrap());
                assert!(of_v6.contains(at.address) && v6.whole_prefix().contains(of_v6.address));
                assert_eq!((of_v6.address.low(), of_v6.len), (of_v4.address.low(), of_v4.len + 96));
                assert_eq!(
                    v6.tors().iter().filter(|&&tor| v6.tor_prefix(tor).unwrap().contains(at.address)).count(),
                    1
                );
            }
            assert_eq!(v4.whole_prefix(), Prefix::new(Address::new(10, 0, 0, 0), 8));
            assert_eq!(v6.whole_prefix(), Prefix::new(IPV6_HOSTS.address.with_low(10 << 24), 104));
        }
        let first = fabric_from_spec("dumbbell:addresses=ipv6").unwrap().attachments()[0].address;
        assert_eq!(first.to_string(), "fd70:6c:0:a::a00:1");
    }

    #[test]
    fn another_family_is_refused() {
        let problem = fabric_from_spec("dumbbell:addresses=ipx").unwrap_err().to_string();
        assert!(problem.contains("addresses: `ipx` is neither ipv4 nor ipv6"), "{problem}");
    }
}
