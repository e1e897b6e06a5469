//! `queues=2,red=5/15,red_p=0.1,red_weight=0.002,red_ecn=on`: how switch ports queue packets.

use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::MOST_QUEUES;
use pathloom_model::{Fabric, PortSettings, RedSettings};

/// Defaults of `max_p` and `w_q`: Floyd, RED: Discussions of Setting Parameters, 1997; Floyd and Jacobson 1993, §7.
const USUAL_PROBABILITY: f64 = 0.1;
const USUAL_WEIGHT: f64 = 0.002;

/// Parses the keys of ports.
pub(super) fn read(spec: &Spec) -> Result<PortSettings, SpecError> {
    let queues = spec.count("queues", 1, u64::from(MOST_QUEUES))?.unwrap_or(1) as u8;
    let thresholds =
        spec.text_of("red").map(|text| thresholds(text).map_err(|problem| spec.error(problem))).transpose()?;
    let (probability, weight) = (share(spec, "red_p")?, share(spec, "red_weight")?);
    let ecn = spec.flag("red_ecn")?;
    let Some((min_packets, max_packets)) = thresholds else {
        let orphans = [("red_p", probability.is_some()), ("red_weight", weight.is_some()), ("red_ecn", ecn.is_some())];
        return match orphans.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(spec.error(format!("{key} sets RED, but red= is missing; expected {EXAMPLE}"))),
            None => Ok(PortSettings { queues, red: None }),
        };
    };
    let red = RedSettings {
        min_packets,
        max_packets,
        most_probability: probability.unwrap_or(USUAL_PROBABILITY),
        weight: weight.unwrap_or(USUAL_WEIGHT),
        ecn: ecn.unwrap_or(false),
    };
    Ok(PortSettings { queues, red: Some(red) })
}

/// Returns the fabric with these port settings.
///
/// # Errors
/// RED could never act, because no switch port has a buffer larger than the lower threshold.
pub(super) fn apply(ports: PortSettings, spec: &Spec, fabric: Fabric) -> Result<Fabric, SpecError> {
    if let Some(red) = ports.red {
        let of_switches = fabric.links().iter().filter(|link| !fabric.is_host(link.from));
        let most = of_switches.map(|link| link.settings.buffer_packets).max().unwrap_or(0);
        if most <= red.min_packets {
            return Err(spec.error(format!(
                "red: RED acts when more than {} packets wait, but buffers hold {most}; expected a lower threshold or a \
                 greater buffer=",
                red.min_packets
            )));
        }
    }
    Ok(fabric.with_ports(ports))
}

const EXAMPLE: &str = "red=MIN/MAX in packets, such as red=5/15";

fn thresholds(text: &str) -> Result<(u32, u32), String> {
    let wrong = || {
        format!("red: `{text}` is not two numbers of packets, the first one less than the second; expected {EXAMPLE}")
    };
    let (min, max) = text.split_once('/').ok_or_else(wrong)?;
    let [min, max] = [min, max].map(|text| text.trim().parse::<u32>());
    match (min, max) {
        (Ok(min), Ok(max)) if min < max => Ok((min, max)),
        _ => Err(wrong()),
    }
}

/// Parses a number above 0 and at most 1.
fn share(spec: &Spec, key: &'static str) -> Result<Option<f64>, SpecError> {
    match spec.number(key, 0.0, 1.0)? {
        Some(number) if number <= 0.0 => Err(spec.error(format!("{key}: expected more than 0, and at most 1"))),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use crate::fabric_from_spec;
    use pathloom_model::{PortSettings, RedSettings};

    #[test]
    fn port_settings_follow_the_keys() {
        let ports = |keys: &str| fabric_from_spec(&format!("diamond{keys}")).unwrap().ports();
        assert_eq!(ports(""), PortSettings::DROP_TAIL);
        assert_eq!(ports(":queues=2"), PortSettings { queues: 2, red: None });
        let red = RedSettings { min_packets: 5, max_packets: 15, most_probability: 0.1, weight: 0.002, ecn: false };
        assert_eq!(ports(":red=5/15"), PortSettings { queues: 1, red: Some(red) });
        let other = RedSettings { min_packets: 0, max_packets: 90, most_probability: 1.0, weight: 0.5, ecn: true };
        assert_eq!(
            ports(":red=0/90,red_p=1,red_weight=0.5,red_ecn=on,queues=8"),
            PortSettings { queues: 8, red: Some(other) }
        );
    }

    #[test]
    fn errors_name_the_problem() {
        for (keys, words) in [
            ("queues=0", "`0` is not a whole number from 1 to 8"),
            ("queues=9", "`9` is not a whole number from 1 to 8"),
            ("queue=2", "did you mean `queues`?"),
            ("red=5", "expected red=MIN/MAX"),
            ("red=15/5", "the first one less than the second"),
            ("red=5/5", "the first one less than the second"),
            ("red=-5/5", "`-5/5` is not two numbers of packets"),
            ("red=5/15/25", "is not two numbers of packets"),
            ("red=5/15,red_p=0", "red_p: expected more than 0"),
            ("red=5/15,red_p=1.1", "`1.1` is not a number from 0 to 1"),
            ("red=5/15,red_weight=0", "red_weight: expected more than 0"),
            ("red=5/15,red_ecn=perhaps", "red_ecn"),
            ("red_p=0.1", "red_p sets RED, but red= is missing"),
            ("red_weight=0.1", "red_weight sets RED"),
            ("red_ecn=on", "red_ecn sets RED"),
            ("red=100/200", "buffers hold 100"),
            ("red=5/15,switch_buffer=4,host_buffer=5", "buffers hold 5"),
        ] {
            let problem = fabric_from_spec(&format!("diamond:{keys}")).unwrap_err().to_string();
            assert!(problem.contains(words) && !problem.contains('\n'), "{keys}: {problem}");
        }
    }
}
