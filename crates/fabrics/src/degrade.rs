//! `degrade=a0_0-c0:1Gbps/c3:100Mbps`: cables that are slower than the others of their kind. `a0_0-c1:10Gbps+1Gbps`
//! gives each direction its own rate.

use pathloom_model::fault::cables_named;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::units::{parse_rate_bps, rate_text};
use pathloom_model::Fabric;

/// Cables by name, and their rates in bit/s: from the first node of the name (or from the switch that is named), and in
/// the opposite direction. If two entries name
/// a cable, the later one applies; it must not be faster than the earlier one.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Degraded(Vec<(String, [u64; 2])>);

impl Degraded {
    /// Parses the key `degrade`.
    pub(super) fn read(spec: &Spec) -> Result<Degraded, SpecError> {
        let Some(text) = spec.text_of("degrade") else { return Ok(Degraded::default()) };
        let entry = |entry: &str| {
            let example = "expected CABLE:RATE, several with / between them, such as a0_0-c0:1Gbps/c3:100Mbps, or \
                           CABLE:RATE+RATE for the direction from its first node and the opposite one";
            let error = || spec.error(format!("degrade: `{entry}`: {example}"));
            let (cable, rates) = entry.rsplit_once(':').ok_or_else(error)?;
            let (there, back) = rates.split_once('+').unwrap_or((rates, rates));
            let rate_bps = |text| parse_rate_bps(text).map_err(|problem| spec.error(format!("degrade: {problem}")));
            Ok((cable.trim().to_owned(), [rate_bps(there)?, rate_bps(back)?]))
        };
        text.split('/').map(|part| entry(part.trim())).collect::<Result<_, _>>().map(Degraded)
    }

    /// Returns the fabric with these rates.
    ///
    /// # Errors
    /// No cable has the given name, or the cable is slower already.
    pub(super) fn apply(&self, spec: &Spec, mut fabric: Fabric) -> Result<Fabric, SpecError> {
        let error = |problem: String| spec.error(format!("degrade: {problem}"));
        for (name, rates_bps) in &self.0 {
            for link in cables_named(&fabric, name).map_err(error)? {
                for (link, &rate_bps) in [link, link.reverse()].into_iter().zip(rates_bps) {
                    let own_bps = fabric.link(link).settings.rate_bps;
                    if rate_bps > own_bps {
                        let own = rate_text(own_bps);
                        return Err(error(format!(
                            "{name} has {own}; expected at most that, because rate=, host_rate= and switch_rate= set higher rates"
                        )));
                    }
                    fabric = fabric.with_rate(link, rate_bps);
                }
            }
        }
        Ok(fabric)
    }
}

#[cfg(test)]
mod tests {
    use crate::fabric_from_spec;
    use pathloom_model::Fabric;

    fn rate_bps(fabric: &Fabric, from: &str, to: &str) -> u64 {
        let [from, to] = [from, to].map(|name| fabric.find(name).unwrap());
        fabric.link(fabric.link_between(from, to).unwrap()).settings.rate_bps
    }

    #[test]
    fn only_named_cables_are_slower_in_both_directions() {
        let fabric =
            fabric_from_spec("fat-tree:k=4,rate=10Gbps,degrade=a0_0-c0:1Gbps/c3:100Mbps/c3-a1_1:10Mbps").unwrap();
        let expected = |name: &str, other: &str| match (name, other) {
            ("a0_0", "c0") => 1_000_000_000,
            ("a1_1", "c3") => 10_000_000,
            (_, "c3") => 100_000_000,
            _ => 10_000_000_000,
        };
        let name = |node| fabric.node(node).name.as_str();
        for cable in fabric.cables() {
            let (from, to) = (name(fabric.link(cable).from), name(fabric.link(cable).to));
            let rate = expected(from, to).min(expected(to, from));
            assert_eq!([rate_bps(&fabric, from, to), rate_bps(&fabric, to, from)], [rate; 2], "{from}-{to}");
        }
        assert_eq!(fabric.spec().matches("degrade=").count(), 1, "the specification of the fabric has the key");
    }

    #[test]
    fn two_rates_are_those_of_the_directions() {
        let fabric = fabric_from_spec("fat-tree:k=4,degrade=c0-a0_0:25Mbps+1Gbps/a1_0-c1:1Gbps+50Mbps/c3:1Gbps+5Mbps");
        let fabric = fabric.unwrap();
        let slow = fabric.links().iter().filter(|link| link.settings.rate_bps < 1_000_000_000);
        let name = |node| fabric.node(node).name.as_str();
        let mut slow: Vec<_> =
            slow.map(|link| (name(link.from), name(link.to), link.settings.rate_bps / 1_000_000)).collect();
        slow.sort_unstable();
        let to_c3 = ["a0_1", "a1_1", "a2_1", "a3_1"].map(|from| (from, "c3", 5));
        assert_eq!(slow, [&to_c3[..], &[("c0", "a0_0", 25), ("c1", "a1_0", 50)]].concat());
    }

    #[test]
    fn the_cable_of_a_host_can_be_named() {
        let fabric = fabric_from_spec("three-layer:pods=2,tors=1,planes=2,spines=1,hosts=2,degrade=h0-e0_0:1Mbps");
        let fabric = fabric.unwrap();
        let slow = fabric.links().iter().filter(|link| link.settings.rate_bps == 1_000_000);
        assert_eq!(slow.count(), 2);
    }

    #[test]
    fn errors_name_the_problem() {
        for (value, words) in [
            ("", "not key=value"),
            ("a0_0-c0", "expected CABLE:RATE"),
            ("a0_0-c0:", "rate"),
            ("a0_0-c0:fast", "`fast`"),
            ("a0_0-c0:1Gbps/", "expected CABLE:RATE"),
            ("a0_0-c7:1Mbps", "did you mean"),
            ("a0_0-c3:1Mbps", "not neighbours"),
            ("a0_0-c0:2Gbps", "expected at most that"),
            ("a0_0-c0:1Gbps+2Gbps", "expected at most that"),
            ("a0_0-c0:1Gbps+", "rate"),
            ("a0_0-c0:1Mbps+1Mbps+1Mbps", "rate"),
            ("a0_0-c0#2:1Mbps", "expected #1 to #1"),
            ("a0_0-c0:0bps", "rate"),
        ] {
            let problem = fabric_from_spec(&format!("fat-tree:k=4,degrade={value}")).unwrap_err().to_string();
            assert!(problem.contains("degrade") && problem.contains(words), "{value}: {problem}");
        }
    }
}
